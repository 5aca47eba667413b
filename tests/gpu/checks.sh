# Sourced by tests/gpu/run and pack: the checks of correctness. They use $root, $build, $unit, $work, $deadline.

# What the checks run, besides trainer
test_programs=$(printf 'tests/unit/%s ' device/test_cuda_kernels device/test_cuda_repeat \
    device/test_cuda_ways comm/test_reduce graph/test_ops_matmul graph/test_ops_norm graph/test_ops_pointwise \
    graph/test_ops_loss graph/test_ops_input graph/test_ops_update graph/test_ops_sequence graph/test_ops_head \
    graph/test_ops_conv)

# A function ends its commands at the deadline itself: `timeout` knows programs only. Its variables are its own.
run_limited() { # SECONDS COMMAND...
    case $(command -v "$2") in
        /*) timeout -k 5 "$@" ;;
        *) shift; ("$@") ;;
    esac
}
until_deadline() {
    left=$((deadline - $(date +%s)))
    [ "$left" -gt 0 ] && timeout -k 5 "$left" "$@"
}
result() { echo "result: $*"; } # what the report shows beside "passed"

# -- runs, and what is asked of them
# $ranks: how many, under mpiexec; $engine: settings of the engine; $wrapper: a program around each. Folders are below
# $work.
ranks= engine= wrapper=
train() { # CONFIG DEVICE FOLDER SETTING...
    config=$1; device=$2; folder=$3; shift 3
    # shellcheck disable=SC2086
    until_deadline ${ranks:+"$root/tools/mpiexec" -np "$ranks"} $wrapper "$build/trainer" train \
        "$root/configs/$config.ini" data.format=synthetic data.synthetic_samples=512 device="$device" \
        run.dir="$work/$folder" $engine "$@"
}
field() { sed -n "s/^ *\"$2\": *\([0-9.eE+-]*\).*/\1/p" "$work/$1/summary.json"; } # FOLDER KEY
near() { # FOLDER FOLDER TOLERANCE: their losses
    result "loss $(field "$1" loss) and $(field "$2" loss)"
    awk -v a="$(field "$1" loss)" -v b="$(field "$2" loss)" -v t="$3" \
        'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d <= t * a) }'
}
weights() { sha256sum <"$work/$1/checkpoints/latest/model.safetensors"; }
same_weights() { [ -n "$(weights "$1")" ] && [ "$(weights "$1")" = "$(weights "$2")" ]; } # FOLDER FOLDER

# -- self-test
self_test() { # CONFIG PRECISION
    case $1 in
        cifar*) set -- "$@" data.format=synthetic data.synthetic_shape=32x32x3 ;;
        gpt*) set -- "$@" data.format=synthetic_tokens $small_tokens ;;
        *) set -- "$@" data.format=synthetic ;;
    esac
    config=$root/configs/$1.ini precision=$2
    shift 2
    rm -rf "$work/doctor"
    until_deadline "$build/trainer" doctor "$config" device=cuda precision="$precision" run.dir="$work/doctor" \
        data.synthetic_samples=512 data.train= data.valid= data.test= "$@" >"$work/doctor.log" 2>&1
    code=$?
    cat "$work/doctor.log"
    result "$(sed -n 's/^\(ok\|error\|warning\)  *self-test  *//p' "$work/doctor.log")"
    # Other checks of doctor are of this machine, not of its GPU.
    [ $code -lt 124 ] && grep -q '^ok  *self-test ' "$work/doctor.log"
}

# -- equality
same_loss() { # CONFIG STEPS TOLERANCE SETTING...
    config=$1; steps=$2; tolerance=$3; shift 3
    rm -rf "$work/cpu" "$work/cuda"
    train "$config" cpu cpu train.steps="$steps" "$@" && train "$config" cuda cuda train.steps="$steps" "$@" &&
        near cpu cuda "$tolerance"
}
text_data() { # the settings of a run on a text of numbers, in $text_settings
    text=$work/text.h5
    text_settings="data.format=hdf5 data.train=$text:train data.valid= train.valid_every=0 schedule.warmup=0 $small_gpt"
    [ -e "$text" ] || { seq 4000 >"$work/text.txt" && until_deadline "$build/trainer" import text "$work/text.txt" \
        "$text" --tokenizer bytes --valid-fraction 0; }
}
same_gpt() {
    # shellcheck disable=SC2086
    text_data && same_loss gpt_tiny 10 1e-3 $text_settings
}
# A model that the CPU trained continues a text with the same tokens on both devices.
same_text() {
    rm -rf "$work/texts"
    # shellcheck disable=SC2086
    text_data && train gpt_tiny cpu texts train.steps=20 $text_settings || return
    for device in cpu cuda; do
        until_deadline "$build/trainer" generate "$work/texts" --prompt 12 --prompt 2 --tokens 24 --temperature 0 \
            device=$device >"$work/$device.text" 2>"$work/$device.log" || { cat "$work/$device.log"; return 1; }
    done
    cat "$work/cpu.text" "$work/cuda.text" "$work/cuda.log"
    result "$(grep -o '[0-9.]* tokens/s' "$work/cuda.log" | tail -n 1)"
    [ -s "$work/cpu.text" ] && cmp "$work/cpu.text" "$work/cuda.text"
}
# CONFIG STEPS SETTING...: steps that were captured, and steps that run op by op
same_captured() {
    config=$1; steps=$2; shift 2
    rm -rf "$work/on" "$work/off"
    set -- train.steps="$steps" "$@"
    train "$config" cuda on "$@" && train "$config" cuda off capture=no "$@" &&
        same_weights on off
}
# CONFIG STEPS SETTING...: these two, and a run that stopped half-way and continues
same_captured_and_resumed() {
    rm -rf "$work/parts"
    same_captured "$@" checkpoint.every=$(($2 / 2)) && cp -r "$work/on" "$work/parts" || return
    steps=$2 config=$1
    shift 2
    rm -rf "$work/parts/checkpoints/$(printf 'step-%08d' "$steps")" && ls -d "$work"/parts/checkpoints/step-* &&
        train "$config" cuda parts train.steps="$steps" checkpoint.every=$((steps / 2)) "$@" && same_weights on parts
}
learns() { # CONFIG ACCURACY SETTING...
    config=$1; least=$2; shift 2
    until_deadline "$build/trainer" import synthetic digits "$work/digits.h5" --force && rm -rf "$work/learns" &&
        train "$config" cuda learns data.format=hdf5 data.train="$work/digits.h5" train.epochs=3 "$@" &&
        result "test accuracy $(field learns test_accuracy)" &&
        awk -v a="$(field learns test_accuracy)" -v b="$least" 'BEGIN { exit !(a >= b) }'
}
# Two ranks share the GPU and reduce by MPI through pinned memory.
same_on_two_ranks() { # CONFIG STEPS TOLERANCE SETTING...
    config=$1; steps=$2; tolerance=$3; shift 3
    rm -rf "$work/one" "$work/two"
    train "$config" cuda one train.steps="$steps" "$@" &&
        with_ranks 2 cuda.share=yes train "$config" cuda two train.steps="$steps" "$@" && near one two "$tolerance"
}
# CONFIG STEPS SETTING...: plans made as on a machine without this GPU are accepted; some have other engines than plans
# made here, so the bits may differ
same_planned() {
    config=$1; steps=$2; shift 2
    gpu=$("$root/tests/gpu/gpu-name" "$build/trainer" 2>&1) || { echo "$gpu"; return 77; }
    rm -rf "$work/here" "$work/there"
    until_deadline "$build/trainer" plan "$root/configs/$config.ini" --gpu "$gpu" --warm "$work/plans" \
        data.format=synthetic data.synthetic_samples=512 "$@" &&
        train "$config" cuda there train.steps="$steps" cuda.plan_cache="$work/plans" "$@" >"$work/there.log" 2>&1 &&
        ! grep 'cuda\.plan_cache' "$work/there.log" && train "$config" cuda here train.steps="$steps" "$@" &&
        near here there 1e-3
}

# -- NCCL
with_ranks() { # RANKS SETTINGS COMMAND...
    ranks=$1 engine=$2
    shift 2
    "$@"
    code=$?
    engine= ranks=
    return $code
}
# by_nccl RANKS COMMAND...: ranks that reduce by NCCL, each with a GPU; on one GPU from NCCL 2.30 on, which allows it if
# asked. The blocks of all ranks wait for each other, so each has few.
by_nccl() {
    count=$1
    shift
    gpus=$(grep -c '^ *GPU [0-9]' "$info")
    number=$(sed -n 's/^ *NCCL  *\([0-9]*\)\.\([0-9]*\)\..*/\1 \2/p' "$info" | awk '{ print 100 * $1 + $2 }')
    share=
    if [ "$gpus" -lt "$count" ]; then
        [ "${number:-0}" -ge 230 ] || { echo "$count ranks on $gpus GPU(s) need NCCL 2.30 or later"; return 77; }
        share=cuda.share=yes
        export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=$((count > 2 ? 4 : 8))
    fi
    with_ranks "$count" "parallel.engine=nccl $share" "$@"
    code=$?
    unset NCCL_MULTI_RANK_GPU_ENABLE NCCL_MAX_CTAS
    return $code
}
collectives() { until_deadline "$root/tools/mpiexec" -np 2 "$unit/comm/test_reduce" cuda "$gpus"; }
allreduce() {
    # shellcheck disable=SC2086
    until_deadline "$root/tools/mpiexec" -np 2 "$build/trainer" bench allreduce device=cuda $engine --max $largest \
        >"$work/allreduce.log" 2>&1
    code=$?
    cat "$work/allreduce.log"
    result "$(awk '$1 ~ /^[0-9]+$/ { b = $1; us = $3; bus = $NF }
        END { print b " bytes in " us " us, " bus " GB/s of the bus" }' "$work/allreduce.log")"
    return $code
}
# The bits of one rank
same_reproducible() { # CONFIG STEPS SETTING...
    config=$1; steps=$2; shift 2
    rm -rf "$work/one" "$work/two"
    two=$engine many=$ranks
    train "$config" cuda two train.steps="$steps" parallel.reproducible=yes "$@" || return
    engine= ranks=
    train "$config" cuda one train.steps="$steps" parallel.reproducible=yes "$@"
    code=$?
    engine=$two ranks=$many
    [ $code = 0 ] && same_weights one two
}
# COMMAND...: NCCL takes each two ranks for a node of its own, and goes from one to the other by sockets.
on_two_nodes() {
    cat >"$work/on_node" <<SH
#!/bin/sh
export NCCL_HOSTID=node\$((\${OMPI_COMM_WORLD_RANK:-\${PMIX_RANK:-0}} / 2)) NCCL_SOCKET_IFNAME=lo
export NCCL_DEBUG=INFO NCCL_DEBUG_FILE=$work/nccl.%p
exec "\$@"
SH
    chmod +x "$work/on_node"
    rm -f "$work"/nccl.*
    wrapper=$work/on_node
    "$@"
    code=$?
    wrapper=
    [ $code = 0 ] || tail -n 5 "$work"/nccl.*
    [ -z "$dry" ] && [ $code = 0 ] || return $code
    grep -q 'via NET/Socket' "$work"/nccl.* || { echo "nothing went by sockets"; return 1; }
}
same_windows() { # CONFIG STEPS SETTING...: memory that NCCL has registered, and memory that it has not
    config=$1; steps=$2; shift 2
    rm -rf "$work/on" "$work/off"
    train "$config" cuda on train.steps="$steps" parallel.windows=on "$@" &&
        train "$config" cuda off train.steps="$steps" parallel.windows=off "$@" && same_weights on off
}
# CONFIG STEPS SETTING...: the state of each rank's own part, in the same order of sums; a run that continues without
# parts; and the collectives of parts that are not reproducible
same_sharded() {
    config=$1; steps=$2; shift 2
    rm -rf "$work/none" "$work/parts" "$work/moved" "$work/free"
    set -- train.steps="$steps" checkpoint.every=$((steps / 2)) "$@"
    train "$config" cuda none parallel.reproducible=yes "$@" &&
        train "$config" cuda parts parallel.reproducible=yes parallel.zero=1 "$@" && same_weights none parts &&
        cp -r "$work/parts" "$work/moved" && rm -rf "$work/moved/checkpoints/$(printf 'step-%08d' "$steps")" &&
        train "$config" cuda moved parallel.reproducible=yes "$@" && same_weights none moved &&
        train "$config" cuda free parallel.zero=1 "$@" && near none free 1e-4
}

# -- faults
# CONFIG SETTING...: a bit of a weight of rank 1 changes; the ranks find it at the next comparison.
different_replicas() {
    config=$1; shift
    rm -rf "$work/flipped"
    export TRAINER_FLIP_BIT=1:6
    train "$config" cuda flipped train.steps=20 parallel.check=5 "$@" >"$work/flipped.log" 2>&1
    code=$?
    unset TRAINER_FLIP_BIT
    cat "$work/flipped.log"
    result "code $code"
    [ $code = 75 ] && tr '\n' ' ' <"$work/flipped.log" | grep -q 'error:.*step [0-9]* .*rank 1 '
}
# A rank is killed in the steps: the others end, the verdict says "again", and the restart ends in the bits of a run
# that nobody disturbed.
killed() { # CONFIG STEPS SETTING...
    config=$1; steps=$2; shift 2
    rm -rf "$work/whole" "$work/killed"
    set -- train.steps="$steps" log.every=1 checkpoint.every=2 checkpoint.keep=2 parallel.timeout=10s "$@"
    train "$config" cuda whole "$@" || return
    printf '#!/bin/sh\necho $$ >>"%s"\nexec "$@"\n' "$work/pids" >"$work/with_pid" && chmod +x "$work/with_pid"
    wrapper=$work/with_pid
    train "$config" cuda killed "$@" >"$work/killed.log" 2>&1 &
    job=$!
    wrapper=
    while kill -0 $job 2>/dev/null && ! ls "$work"/killed/checkpoints/step-* >/dev/null 2>&1; do sleep 0.1; done
    victim=$(tail -n 1 "$work/pids")
    began=$(date +%s)
    kill -9 "$victim" || { wait $job; echo "the run had ended"; return 1; }
    wait $job
    code=$?
    verdict=$(head -n 1 "$work/killed/verdict")
    result "code $code $(($(date +%s) - began)) s after a rank was killed, verdict $verdict"
    case $verdict in again*) ;; *) return 1 ;; esac
    [ $code != 0 ] && train "$config" cuda killed "$@" && same_weights whole killed
}
# A model that cannot fit is refused before the first step.
too_large() {
    rm -rf "$work/large"
    until_deadline "$build/trainer" train "$root/configs/gpt2_1558m.ini" device=cuda data.format=synthetic_tokens \
        data.synthetic_samples=16384 data.train= data.valid= data.batch_size=16384 data.micro_batch=16384 \
        run.dir="$work/large" >"$work/large.log" 2>&1
    code=$?
    cat "$work/large.log"
    result "code $code: $(sed -n 's/.*error: //p' "$work/large.log" | head -n 1)"
    [ $code != 0 ] && [ $code -lt 124 ] && [ ! -s "$work/large/metrics.jsonl" ] && grep -q 'GiB' "$work/large.log"
}
# A model that the CPU trained, served from the GPU, continues a text as generate does on the CPU.
served() {
    rm -rf "$work/texts" "$work/address"
    # shellcheck disable=SC2086
    text_data && train gpt_tiny cpu texts train.steps=20 $text_settings || return
    until_deadline "$build/trainer" generate "$work/texts" --prompt 12 --tokens 24 --temperature 0 device=cpu \
        --json "$work/generated" 2>"$work/generate.log" || { cat "$work/generate.log"; return 1; }
    # Not until_deadline: $! is to be a process that passes TERM on.
    timeout -k 5 $((deadline - $(date +%s))) "$build/trainer" serve "$work/texts" device=cuda --port 0 \
        --address-file "$work/address" >"$work/serve.log" 2>&1 &
    server=$!
    until [ -s "$work/address" ] || ! kill -0 $server 2>/dev/null; do sleep 0.1; done
    cat "$work/serve.log"
    ! grep -q 'libmicrohttpd' "$work/serve.log" || return 77
    until_deadline python3 - "$work/address" "$work/generated" <<'PY'
import json, sys, time, urllib.request
address = open(sys.argv[1]).read().strip()
body = json.dumps({"prompt": "12", "max_tokens": 24, "temperature": 0}).encode()
url = (address if "://" in address else "http://" + address).rstrip("/") + "/v1/completions"
began = time.time()
answer = json.load(urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})))
text, want = answer["choices"][0]["text"], json.load(open(sys.argv[2]))["texts"][0]["text"]
print("served", repr(text), "generated", repr(want))
print("result: %.3f s for 24 tokens" % (time.time() - began))
sys.exit(0 if text and want.endswith(text) else 1)
PY
    code=$?
    kill -TERM $server
    wait $server || code=1
    return $code
}
sanitize() { # TOOL COMMAND...
    command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer"; return 77; }
    tool=$1
    shift
    until_deadline compute-sanitizer --tool "$tool" --error-exitcode 1 "$@" >"$work/sanitizer" 2>&1
    code=$?
    tail -n 15 "$work/sanitizer"
    ! grep -q 'Device not supported' "$work/sanitizer" || code=77
    return $code
}
# With what cuDNN makes plans for this GPU elsewhere
device_json() {
    cuda=${CUDA_HOME:-/usr/local/cuda}
    # What LD_LIBRARY_PATH has comes first at link time, too: tests/hostcuda/run sets it.
    # shellcheck disable=SC2046
    until_deadline ${CC:-cc} -w -o "$work/device_json" "$root/tests/gpu/device_json.c" -I"$cuda/include" \
        ${CUDNN_HOME:+-I"$CUDNN_HOME/include"} \
        $(echo "${LD_LIBRARY_PATH-}" | tr ':' '\n' | sed -n 's/^\(..*\)/-L\1/p') ${CUDNN_HOME:+-L"$CUDNN_HOME/lib"} \
        -L"$cuda/lib64" -lcudnn -Wl,--allow-shlib-undefined -Wl,-rpath,"$cuda/lib64" &&
        until_deadline "$work/device_json" >"$state/device.json" && cat "$state/device.json"
}
