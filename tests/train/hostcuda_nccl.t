#!/usr/bin/env bash
# TEST timeout=400
# NCCL's engine on the fakes of the CUDA libraries, one GPU for each rank: sums, training to the CPU's loss,
# exactness, and faults.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_nccl}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] && nm "$BUILD/hostcuda/libtrainer_cuda.so" | grep -q tr_cuda_nccl ||
    { echo "1..0 # SKIP no build/hostcuda with NCCL: built by make hostcuda where nvcc and nccl.h are"; exit 0; }
# gpus RANKS COMMAND...: on the fakes, a GPU for each rank
gpus() {
    local ranks=$1
    shift
    HOSTCUDA_DEVICES=${DEVICES:-$ranks} fakes "$MPIEXEC" -np "$ranks" "$@" >out 2>&1
}
# some RANKS FOLDER SETTING...: some steps of a config on synthetic data
some() {
    local ranks=$1 folder=$2
    shift 2
    rm -rf "$folder"
    gpus "$ranks" "$TRAINER" train "$TRAINER_ROOT/configs/mnist_mlp.ini" train.steps=4 threads=1 log.every=1 \
        data.format=synthetic data.synthetic_samples=512 data.micro_batch=16 data.batch_size=64 run.dir="$folder" "$@"
}
for r in 2 4; do
    gpus $r "$BUILD/tests/unit/comm/test_reduce" cuda && ! grep -q SKIPPED out
    ok $? "all collectives on $r ranks"
done
some 1 cpu device=cpu parallel.reproducible=yes &&
    some 1 one device=cuda parallel.reproducible=yes && near cpu one 1e-4 4
ok $? "1 rank: the loss of cpu"

for r in 2 4; do
    some $r many device=cuda parallel.engine=nccl && near cpu many 1e-4 4
    ok $? "$r ranks by NCCL: the loss of cpu"
    some $r many device=cuda parallel.engine=nccl parallel.reproducible=yes parallel.windows=on &&
        [ "$(weights many)" = "$(weights one)" ]
    ok $? "$r ranks by NCCL, reproducible, with windows: the bits of 1 rank"
done
for r in $(cases 2 4); do # the fake refuses what is not captured and launched alike
    some $r whole device=cuda parallel.engine=nccl train.steps=8 && some $r many device=cuda parallel.engine=nccl \
        train.steps=8 parallel.zero=1 checkpoint.every=3 && [ "$(state many)" = "$(state whole)" ] &&
        [ -e many/checkpoints/step-00000003 ] && ! grep -q uniformly out
    ok $? "$r ranks by NCCL with parallel.zero=1, captured, with checkpoints: the bits without it"
    some $r whole device=cuda parallel.engine=nccl train.steps=8 data.micro_batch=$((64 / r)) &&
        some $r many device=cuda parallel.engine=nccl train.steps=8 data.micro_batch=$((64 / r)) parallel.zero=2 \
            checkpoint.every=3 && [ "$(state many)" = "$(state whole)" ] && ! grep -q uniformly out
    ok $? "$r ranks by NCCL with parallel.zero=2, captured, with checkpoints: the bits without it"
done
some 2 many device=cuda parallel.engine=nccl train.steps=20 && ! grep -q ncclCommFinalize out
ok $? "captured steps: the communicator is finalized after the graphs are gone"

some 2 many device=cuda parallel.engine=nccl train.steps=20 cuda.debug=sync && grep -q 'warning.*cuda\.debug' out
ok $? "cuda.debug = sync: runs op by op"
# Captured collectives have to be captured and launched uniformly over all ranks; the fake refuses others.
some 2 many device=cuda train.steps=20 data.micro_batch=32 data.valid= checkpoint.every=6 && ! grep -q uniformly out
ok $? "one micro-batch a rank, checkpoints without validation: uniform graphs"
some 2 uneven device=cuda train.steps=20 data.batch_size=48 && some 1 uneven_cpu device=cpu data.batch_size=48 \
    train.steps=20 && near uneven_cpu uneven 1e-4 20
ok $? "3 micro-batches on 2 ranks: uniform graphs, the loss of cpu"
some 2 many device=cuda train.steps=20 data.micro_batch=32 data.synthetic_samples=768 train.valid_every=7
ok $? "validations of which one rank has more batches: uniform graphs"
# one_fails CALL: it fails on rank 1 once
one_fails() {
    rm -rf many
    HOSTCUDA_DEVICES=2 fakes "$MPIEXEC" -np 2 bash -c "[ \$OMPI_COMM_WORLD_RANK = 0 ] || export HOSTCUDA_FAIL=$1
        exec $TRAINER train $TRAINER_ROOT/configs/mnist_mlp.ini device=cuda train.steps=20 threads=1 log.every=1 \\
        data.format=synthetic data.synthetic_samples=512 data.micro_batch=32 data.batch_size=64 run.dir=many" >out 2>&1
}
some 1 cpu20 device=cpu train.steps=20 data.micro_batch=32
for call in 1 2; do # a capture without collectives comes first
    one_fails cudaGraphInstantiate:$call && grep -q "warning:.*'last'" out && near cpu20 many 1e-4 20
    ok $? "a capture that fails on one rank, call $call: no rank launches that graph"
done
# The first operation of NCCL is the broadcast of the weights.
# times SETTING...: rank 1 is 2 s late between the two all-reduces of step 7. Only that step has this time, exposed
# and busy.
times() {
    HOSTCUDA_NCCL_FAULT=late,rank=1,call=15,ms=2000 some 2 many device=cuda parallel.engine=nccl \
        parallel.bucket_first=256KiB train.steps=10 "$@" ||
        return 1
    ! grep -qE '"comm_(exposed|busy)": *null' many/metrics.jsonl many/summary.json &&
        grep -qE '"comm_exposed": 0\.[0-9]+' many/summary.json &&
        for key in comm_exposed comm_busy; do
            sed -n "s/.*\"step\":\([0-9]*\),.*\"$key\":\([^,]*\),.*/\1 \2/p" many/metrics.jsonl | sed 's/,.*//' >"$key"
            paste -d' ' "$key" <(sed -n 's/.*"step_ms":\([^,}]*\).*/\1/p' many/metrics.jsonl) |
                awk '{ ms = $2 * $3 }
                     $1 == 7 ? ms < 1900 : ms > 1900 { print "step " $1 ": " ms " ms"; bad = 1 }
                     END { exit bad || NR != 10 }' >>out ||
                return 1
        done
}
times data.micro_batch=32
ok $? "captured, one micro-batch a rank: each step has the times of its own all-reduces"

times data.micro_batch=16
ok $? "captured, two micro-batches a rank: the same"
times data.micro_batch=32 capture=no
ok $? "op by op: the same"
HOSTCUDA_NCCL_WINDOWS=0 some 2 many device=cuda parallel.engine=nccl parallel.overlap=no parallel.windows=on &&
    near cpu many 1e-4 4
ok $? "without registered memory, without overlap: the loss of cpu"
# Graphs with collectives between nodes deadlock in NCCL below 2.30.4.
# two_nodes VERSIONS COMMAND...: a rank on each of two nodes, with its version of NCCL
two_nodes() {
    HOSTCUDA_DEVICES=2 HOSTCUDA_TRACE=$PWD/calls fakes "$MPIEXEC" -np 2 -x LD_PRELOAD="$fail_lib" -x FAIL_NODES=1 \
        bash -c 'of=($0) CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_RANK
            export HOSTCUDA_NCCL_VERSION=${of[OMPI_COMM_WORLD_RANK]} CUDA_VISIBLE_DEVICES
            exec "$@"' "$1" "$TRAINER" "${@:2}" device=cuda >out 2>&1
}
steps=("$TRAINER_ROOT/configs/mnist_mlp.ini" train.steps=20 threads=1 log.every=1 data.format=synthetic run.dir=many
    data.synthetic_samples=512 data.micro_batch=32 data.batch_size=64)
sums() { grep -c '^ncclAllReduce' calls.1; }
if can_preload; then
    rm -rf many
    two_nodes "23004 22809" "${steps[@]}" && once out 'warning & NCCL 2.28.9 & 2.30.4' && near cpu20 many 1e-4 20 &&
        [ "$(sums)" -ge 20 ]
    ok $? "two nodes, one with NCCL 2.28: all-reduces op by op, the log asks for 2.30.4, the loss of cpu"
    rm -rf many
    two_nodes "23004 23004" "${steps[@]}" && ! names out 'warning & NCCL' && near cpu20 many 1e-4 20 &&
        [ "$(sums)" -lt 20 ]
    ok $? "two nodes with NCCL 2.30.4: all-reduces in graphs"
    if all; then
        two_nodes "22809 22809" doctor "${steps[@]}"
        names out 'NCCL 2.28.9 & 2.30.4'
        ok $? "doctor asks for it, too"
    fi
fi
TRAINER_FLIP_BIT=1:6 some 2 many device=cuda parallel.engine=nccl train.steps=20 parallel.check=5
[ $? = 75 ] && names out 'error & step 8 & rank 1' && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "a bit of a weight flips on rank 1: code 75, the step and the rank"
DEVICES=1 some 2 many device=cuda
[ $? = 78 ] && grep -q "error:.*ranks 0 and 1.*GPU-.*cuda\.share" out
ok $? "2 ranks on one GPU: code 78, the ranks and the key"
DEVICES=2 some 4 many device=cuda
[ $? = 78 ] && grep -q "error:.* 2 .*4 ranks.*cuda\.share" out
ok $? "4 ranks on two GPUs: code 78, the numbers and the key"
DEVICES=1 some 2 many device=cuda cuda.share=yes && grep -q MPI out && near cpu many 1e-4 4
ok $? "2 ranks on one GPU reduce by MPI"
DEVICES=1 some 2 many device=cuda parallel.engine=nccl cuda.share=yes
[ $? = 78 ] && grep -q "error:.*ncclCommInitRankConfig.*Duplicate GPU" out
ok $? "NCCL refuses two ranks on one GPU: code 78"
real=$(ls "${CUDA_HOME:-/usr/local/cuda}"/lib*/libnccl.so.2 /usr/local/cuda*/lib*/libnccl.so.2 2>/dev/null | head -n 1)
[ -z "$real" ] || [ -e /dev/nvidiactl ] || {
    TRAINER_NCCL_LIBRARY=$real some 2 many device=cuda parallel.engine=nccl
    [ $? = 78 ] && grep -q "error:.*ncclCommInitRankConfig.*rank 0 of 2.*cuda" out
    ok $? "the real NCCL without a GPU: code 78, the rank"
}
TRAINER_NCCL_LIBRARY=$PWD/none some 2 many device=cuda parallel.engine=nccl
[ $? = 78 ] && grep -q "error:.*$PWD/none" out
ok $? "parallel.engine = nccl without NCCL: code 78, the path"

# fault FAULT CODE NAMES...: the exit code, and what the error names, within a minute: ranks that wait would do so for
# longer
fault() {
    local fault=$1 code=$2 most=60 began=$EPOCHREALTIME got
    shift 2
    HOSTCUDA_NCCL_FAULT=$fault some 2 fault device=cuda parallel.engine=nccl parallel.timeout=2s train.steps=50
    got=$?
    took=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
    [ $got = 137 ] && got=$(sed -n 's/^again.*/75/p' fault/verdict) # the launcher ended the job for a signal
    [ "$got" = "$code" ] && awk -v s="$took" -v m="$most" 'BEGIN { exit !(s <= m) }' ||
        { echo "code $got after $took s" >>out; return 1; }
    for name in "$@"; do grep -q "error:.*$name" out || { echo "no '$name'" >>out; return 1; }; done
}
fault init_hang,rank=1 75 ncclCommInitRankConfig "[2-9]\.[0-9] s"
ok $? "initialisation that never ends: code 75 after parallel.timeout"

NCCL_SOCKET_IFNAME=^none0 fault init_error,rank=1 75 "rank 1" ncclCommInitRankConfig "NCCL_SOCKET_IFNAME.*^none0"
ok $? "initialisation that fails: code 75, the rank, and what NCCL_SOCKET_IFNAME is"
fault async_error,rank=1,call=6 75 "rank 1"
ok $? "asynchronous error: code 75, the rank"
grace
fault die,rank=1,call=6 75 "rank 1"
ok $? "a rank that dies: code 75, the rank"
fault late,rank=1,call=7,ms=120000 75 "rank 1" "step 6, collective"
ok $? "a rank that hangs before its sixth collective: code 75, the rank and the step that the host enqueues"
HOSTCUDA_NCCL_FAULT=late,rank=1,call=6,ms=800 some 2 many device=cuda parallel.engine=nccl parallel.timeout=2s &&
    near cpu many 1e-4 4
ok $? "a rank that is late, but not too late: the loss of cpu"
echo "1..$n"
