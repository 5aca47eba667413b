# Sourced by shell tests: results as TAP, runs of the program, what a test asks of messages and of runs, cases. Not a
# test itself.
set -u
n=0
ok() { # STATUS NAME: a failure shows the end of ./out and ./err
    local file
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; return; fi
    echo "not ok $n - $2"
    for file in out err; do [ ! -e $file ] || tail -n 40 $file | sed 's/^/#   /'; done
}
# told RUN KEY: a number in the summary of a run
told() { sed -n "s/^ *\"$2\": \([-0-9.e+]*\),*$/\1/p" "$1/summary.json"; }
skip() { # NAME WHY
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}

# Slow tests: `make test` runs the first case of a kind, test-all (TEST_ALL=1) runs all.
all() { [ -n "${TEST_ALL-}" ]; }
cases() { if all; then echo "$@"; else echo "$1"; fi; }

# call CODE ARGUMENTS...: the program ends with this code; its output in ./out and ./err
call() {
    local code=$1
    shift
    "$TRAINER" "$@" >out 2>err
    [ $? = "$code" ]
}
# run RANKS ARGUMENTS...: the program under the launcher, its output in ./out
run() {
    local ranks=$1
    shift
    "$MPIEXEC" -np "$ranks" "$TRAINER" "$@" >out 2>&1
}
# fakes COMMAND...: on the fakes of the CUDA libraries
fakes() { "$TRAINER_ROOT/tests/hostcuda/run" -O "$BUILD" "$@"; }
# grace: from here on, ranks have the second that mpirun gives them before it kills them
grace() { unset OMPI_MCA_odls_base_sigkill_timeout PRTE_MCA_odls_base_sigkill_timeout; }
# until_true COMMAND...: waits (at most 60 s) until it succeeds
until_true() {
    local try
    for try in $(seq 1200); do
        "$@" && return 0
        sleep 0.05
    done
    return 1
}

# With LD_PRELOAD and settings: makes calls of the program slow or fail (tools/faults/fail.c). Not under sanitizers.
fail_lib=$BUILD/libfail.so
can_preload() { [ "$(LD_PRELOAD=$fail_lib "$TRAINER" --version 2>&1)" = "$("$TRAINER" --version)" ]; }
# interrupted SIGNAL CODE FILE NAMES ARGUMENTS...: the program gets the signal when FILE has begun. It ends with this
# code and one error, which has the names, and leaves nothing of FILE. By set -m INT is not ignored. $slow: settings of
# fail_lib that leave time for the signal.
interrupted() {
    local slowed=()
    ! can_preload || slowed=(env LD_PRELOAD="$fail_lib" $slow)
    set -m
    "${slowed[@]}" "$TRAINER" "${@:5}" >out 2>err &
    set +m
    until_true begun_file "$3"
    kill -s "$1" $!
    wait $! 2>/dev/null
    [ $? = "$2" ] && [ -s left ] && [ ! -s out ] &&
        [ "$(wc -l <err)" = 1 ] && names err "trainer: error & $4 & '$3'" &&
        ! ls -d "${3%/}"* >left 2>/dev/null
}
begun_file() { ls -d "${1%/}".part-* >left 2>/dev/null; }

# messages FILE NAMES...: the messages of FILE that have all of the names, in any order; fails where there is none.
# Names are keys, values, paths and numbers, each a basic regular expression that begins and ends where a word does;
# one argument may list several, with " & " between them. The words around them are free to change. A message is a
# line with the indented lines below it.
messages() {
    local found name
    found=$(sed -e ':a' -e '$!N' -e 's/\n[ \t][ \t]*/ /' -e ta -e 'P;D' -- "$1")
    shift
    while IFS= read -r name; do
        found=$(grep -awe "$name" <<<"$found") || return 1
    done < <(printf '%s\n' "${@// & /$'\n'}")
    printf '%s\n' "$found"
}
names() { messages "$@" >/dev/null; }
# once FILE NAME...: exactly one message has them
once() { [ "$(messages "$@" | wc -l)" = 1 ]; }
# python_with MODULES: a Python that has them, where there is one
python_with() {
    local python
    for python in python3 /opt/venv/bin/python; do
        "$python" -c "import $1" 2>/dev/null && { echo "$python"; return; }
    done
}
# json EXPRESSION FILE [FILE]: a Python expression of the files' content, a and b, is true
json() {
    python3 -I -c "import json, sys
a, b = [json.load(open(f)) for f in (sys.argv[1:] * 2)[:2]]
sys.exit(0 if $1 else 1)" "${@:2}"
}
# ok_keys NAME FILE [LEFT_OUT]: the keys of FILE are those that tests/golden/keys/NAME lists. LEFT_OUT: json_keys.py.
# KEYS=write: lists them anew, after a change that is meant.
at_times='mfu|tflops|(cpu|gpu|rss|compute|data_stall|wait|slowest|mem)_.*' # of a run: by intervals of time
ok_keys() {
    local listed=$TRAINER_ROOT/tests/golden/keys/$1
    command -v python3 >/dev/null || { skip "the keys of $1" "no python3"; return; }
    python3 -I "$TRAINER_ROOT/tests/support/json_keys.py" "${@:2}" >keys.found && {
        [ "${KEYS-}" != write ] || cp keys.found "$listed"
        diff "$listed" keys.found >err
    }
    ok $? "the keys of $1 are those of tests/golden/keys"
}
# ok_records RUN CONDITION...: the records in the run folder are those of src/base/record_fields.def. CONDITION: a WHEN
# of the list that holds for this run.
ok_records() {
    local list=$TRAINER_ROOT/src/base/record_fields.def
    command -v python3 >/dev/null || { skip "the records of $1" "no python3"; return; }
    python3 -I "$TRAINER_ROOT/tests/support/record_fields.py" "$list" "$@" >err 2>&1
    ok $? "the records of $1 are those that src/base/record_fields.def lists"
}

weights() { sha256sum <"$1/checkpoints/latest/model.safetensors"; }
state() { cat "$1/checkpoints/latest/model.safetensors" "$1/checkpoints/latest/optimizer.safetensors" | sha256sum; }
# resumed [CHECKPOINT]: the run in ./out names the checkpoint (this one) that it goes on from: what warnings name are
# others, or files in one
resumed() { grep -v 'warning\|error' out | grep -qE "${1-step-[0-9]+}(\$|[^/0-9])"; }
# changed: the keys that it says it has otherwise than that checkpoint
changed() { grep -o '[a-z_]*\.[a-z_]* [^ ]* -> [^ ,]*' out | paste -sd,; }
# back_to RUN STEP: leaves only this checkpoint. Others are of the step at which the writer was idle again, on a slow
# disk a later one.
back_to() { find "$1/checkpoints" -mindepth 1 -maxdepth 1 ! -name "step-$2" -exec rm -rf {} +; }
# losses RUN: "step loss grad_norm" of every training line of its metrics
losses() {
    sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2 \3/p' "$1/metrics.jsonl" |
        grep -v valid
}
# near RUN RUN RELATIVE STEPS: the losses of the first steps differ by at most this
near() {
    paste -d' ' <(losses "$1") <(losses "$2") | head -n "$4" |
        awk -v most="$3" -v steps="$4" '
            { d = $2 - $5; if (d < 0) d = -d }
            d > most * $5 || $1 != $4 { print "step " $1 ": " $2 " and " $5; bad = 1 }
            END { if (NR != steps) { print NR " steps of " steps; bad = 1 }; exit bad }' >>out
}
# A small convolutional network with everything that keeps state: batch-norm, dropout, augmentation, AdamW, clipping,
# a moving average.
config() {
    cat >net.ini <<'INI'
threads = 1
[model]
layers =
    conv 8 3x3 pad=same bias=no, batchnorm, relu, maxpool 2
    conv 8 3x3 pad=same, relu, globalpool, dropout 0.2, linear 10
[data]
format = synthetic
synthetic_samples = 600
synthetic_shape = 12x12x1
classes = 10
batch_size = 48
micro_batch = 8
rotate = 10
translate = 0.1
[optimizer]
lr = 0.003
clip_norm = 1
ema = 0.9
[train]
steps = 20
valid_every = 0
[checkpoint]
every = 0
patience = 0
[log]
every = 1
INI
}
# A small language model of which 2 to 4 ranks have parts (parallel.zero).
gpt_config() {
    cat >gpt.ini <<'INI'
threads = 1
[model]
type = gpt
n_layer = 2
n_head = 2
n_embd = 36
context = 16
dropout = 0.1
vocab_size = 151
[data]
format = synthetic_tokens
synthetic_samples = 96
batch_size = 12
micro_batch = 2
[optimizer]
lr = 0.01
clip_norm = 0.5
weight_decay = 0.1
[train]
steps = 12
valid_every = 6
[checkpoint]
every = 0
patience = 0
[parallel]
bucket_first = 1
bucket = 1
[log]
every = 1
INI
}
