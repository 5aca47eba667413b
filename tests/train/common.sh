# Sourced by the tests of training runs: TAP, running the program, comparing runs. Not a test itself.
. "$TRAINER_ROOT/tests/support/tap.sh"

# run RANKS ARGUMENTS...: the program under the launcher, its output in ./out
run() {
    local ranks=$1
    shift
    "$MPIEXEC" -np "$ranks" "$TRAINER" "$@" >out 2>&1
}
weights() { sha256sum <"$1/checkpoints/latest/model.safetensors"; }
state() { cat "$1/checkpoints/latest/model.safetensors" "$1/checkpoints/latest/optimizer.safetensors" | sha256sum; }
# resumed [CHECKPOINT]: the run in ./out names the checkpoint (this one) that it goes on from: what warnings name are others, or files in one
resumed() { grep -v 'warning\|error' out | grep -qE "${1-step-[0-9]+}(\$|[^/0-9])"; }
# changed: the keys that it says it has otherwise than that checkpoint
changed() { grep -o '[a-z_]*\.[a-z_]* [^ ]* -> [^ ,]*' out | paste -sd,; }
# back_to RUN STEP: leaves only this checkpoint. Others are of the step at which the writer was idle again, on a slow disk a later one.
back_to() { find "$1/checkpoints" -mindepth 1 -maxdepth 1 ! -name "step-$2" -exec rm -rf {} +; }
# losses RUN: "step loss grad_norm" of every training line of its metrics
losses() { sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2 \3/p' "$1/metrics.jsonl" | grep -v valid; }
# near RUN RUN RELATIVE STEPS: the losses of the first steps differ by at most this
near() {
    paste -d' ' <(losses "$1") <(losses "$2") | head -n "$4" | awk -v most="$3" -v steps="$4" '
        { d = $2 - $5; if (d < 0) d = -d; if (d > most * $5 || $1 != $4) { print "step " $1 ": " $2 " and " $5; bad = 1 } }
        END { if (NR != steps) { print NR " steps of " steps; bad = 1 }; exit bad }' >>out
}
# A small convolutional network with everything that keeps state: batch-norm, dropout, augmentation, AdamW, clipping, a moving average.
config() {
    cat >net.ini <<'INI'
threads = 1
[model]
layers = conv 8 3x3 pad=same bias=no, batchnorm, relu, maxpool 2, conv 8 3x3 pad=same, relu, globalpool, dropout 0.2, linear 10
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
