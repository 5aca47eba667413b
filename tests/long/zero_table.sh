#!/usr/bin/env bash
# zero_table.sh BUILD [STEPS]
# What parallel.zero = 1 and 2 keep, of three models with two optimizers on 1 to 4 ranks: prints the tables of
# docs/large-models.md. "equal": all bits of the checkpoint and of the losses; else the largest relative difference of
# a loss in STEPS (8) steps. Fails where a difference was not promised.
. "$(dirname "$0")/long.sh"
steps=${2:-8}
images="data.format=synthetic data.synthetic_shape=28x28x1 data.classes=10 data.mean=0 data.std=1 data.batch_size=32
    data.micro_batch=8"
tokens="data.format=synthetic_tokens data.valid= model.vocab_size=65 data.batch_size=12 data.micro_batch=3"
declare -A data=([gpt_tiny]=$tokens [mnist_cnn]=$images [mnist_mlp]=$images)
bad=0
same() { [ "$(state "$1")" = "$(state "$2")" ] && [ "$(losses "$1")" = "$(losses "$2")" ]; }
# train RANKS RUN SETTINGS...: of $model and $optimizer
train() {
    # shellcheck disable=SC2086
    run "$1" "$TRAINER_ROOT/configs/$model.ini" ${data[$model]} data.train= data.synthetic_samples=384 threads=1 \
        optimizer.type=$optimizer schedule.type=constant schedule.warmup=0 \
        train.steps="$steps" train.valid_every=0 checkpoint.every=0 \
        checkpoint.patience=0 parallel.bucket_first=64KiB parallel.bucket=256KiB log.every=1 run.dir="$2" "${@:3}" ||
        { echo "zero_table: $model, $optimizer: $* fails:"; grep -A3 "error:" out; exit 1; }
}
# beside MOST RUN RUN...: "equal", or the largest difference of a loss from the first run. MOST: what is promised
beside() {
    local most=$1 first=$2 other largest=equal
    for other in "${@:3}"; do
        same "$first" "$other" || largest=$(paste -d' ' <(losses "$first") <(losses "$other") |
            awk -v m="${largest/equal/0}" -v steps="$steps" '
                { d = $2 - $5; if (d < 0) d = -d; if (d > m * $5) m = d / $5 }
                END { if (NR != steps) m = 1; printf "%.1e", m }')
    done
    row+=" $largest |"
    [ "$largest" = equal ] || awk "BEGIN { exit !($most > 0 && $largest <= $most) }" || bad=1
}
# pair RANKS ZERO SETTINGS...: of this number of ranks, parallel.zero = ZERO beside none
pair() {
    train "$1" none "${@:3}" && train "$1" sharded parallel.zero="$2" "${@:3}"
    beside "$([ "$1" -le 2 ] && echo 0 || echo 1e-5)" none sharded
    rm -rf none sharded
}
echo "| model, optimizer | 1 rank | 2 | 3 | 4 | by MPI: 2 | 3 | 4 | reproducible | resumed |"
echo "|---|---|---|---|---|---|---|---|---|---|"
for model in gpt_tiny mnist_cnn mnist_mlp; do
    for optimizer in sgd adamw; do
        row="| $model, $optimizer |" all=()
        for r in 1 2 3 4; do pair $r 1; done
        export TRAINER_SHARED_MEMORY=0
        for r in 2 3 4; do pair $r 1; done
        unset TRAINER_SHARED_MEMORY
        for r in 1 2 3 4; do
            train $r none.$r $exact && train $r sharded.$r $exact parallel.zero=1
            all+=("none.$r" "sharded.$r")
        done
        beside 0 "${all[@]}"
        train 3 moved $exact parallel.zero=1 train.steps=$((steps / 3)) &&
            train 2 moved $exact train.steps=$((2 * steps / 3)) && train 3 moved $exact parallel.zero=1
        beside 0 none.1 moved
        echo "$row"
        rm -rf moved "${all[@]}"
    done
done
# Stage 2: one micro-batch for each rank. With three micro-batches, the sum in the order of the ranks is that of the
# fixed order, so that a run may be resumed with the same bits on any number of ranks.
echo
echo "| model, optimizer | 1 rank | 2 | 3 | 4 | by MPI: 2 | 3 | 4 | resumed |"
echo "|---|---|---|---|---|---|---|---|---|"
for model in gpt_tiny mnist_cnn mnist_mlp; do
    for optimizer in sgd adamw; do
        row="| $model, $optimizer |"
        for r in 1 2 3 4; do pair $r 2 data.batch_size=24 data.micro_batch=$((24 / r)); done
        export TRAINER_SHARED_MEMORY=0
        for r in 2 3 4; do pair $r 2 data.batch_size=24 data.micro_batch=$((24 / r)); done
        unset TRAINER_SHARED_MEMORY
        three=(data.batch_size=24 data.micro_batch=8)
        train 1 none $exact "${three[@]}"
        train 3 moved "${three[@]}" parallel.zero=2 train.steps=$((steps / 4)) &&
            train 2 moved "${three[@]}" $exact parallel.zero=1 train.steps=$((2 * steps / 4)) &&
            train 3 moved "${three[@]}" parallel.zero=2 train.steps=$((3 * steps / 4)) &&
            train 1 moved "${three[@]}" $exact
        beside 0 none moved
        echo "$row"
        rm -rf none moved
    done
done
[ $bad = 0 ]
