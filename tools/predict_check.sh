#!/bin/bash
# predict_check.sh: compares predicted with measured step times on this machine.
#
#   tools/predict_check.sh [--runs N] [--ranks N] [--mode weak|strong] [--config CONFIG.ini] [--steps N] [KEY=VALUE ...]
#
# Each run measures a step on 1 rank, the all-reduce on N ranks (default 2), and a training on N ranks, each with one
# thread per rank, and prints the predicted and the measured median step time and the error of the prediction. The
# default is 10 runs of configs/mnist_cnn.ini with synthetic data in strong scaling. All ranks are on this machine, and
# none is bound to a core. The error shows the accuracy of the model only on a machine that does nothing else.
here=$(cd "$(dirname "$0")/.." && pwd)
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
TRAINER=${TRAINER:-$here/trainer}
runs=10 ranks=2 mode=strong steps=30 config=$here/configs/mnist_cnn.ini keys=()
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --runs | --ranks | --mode | --config | --steps)
            [ $# -gt 1 ] || { echo "predict_check.sh: $1 needs a value" >&2; exit 2; }
            printf -v "${1#--}" %s "$2"; shift 2 ;;
        [a-z]*=*) keys+=("$1"); shift ;;
        *) echo "predict_check.sh: unknown argument $1; see predict_check.sh --help" >&2; exit 2 ;;
    esac
done
[ ${#keys[@]} -gt 0 ] || keys=(data.format=synthetic data.train=none data.synthetic_samples=512)
keys+=(threads=1)
. "$here/tools/mpi-env"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
one=("${MPIEXEC:-mpirun}" --bind-to none -np 1) launch=("${MPIEXEC:-mpirun}" --bind-to none -np "$ranks")
[ "$ranks" -le "$(nproc)" ] || launch+=(--oversubscribe)

# number KEY FILE: the last number of that key
number() { grep -o "\"$1\": *[0-9.e+-]*" "$2" | tail -n 1 | sed 's/.*: *//'; }
fail() { echo "predict_check.sh: $1 failed:" >&2; tail -n 5 "$work/log" >&2; exit 1; }

# measure: sets low, expected, high and measured, in ms
measure() {
    local batch run=()
    "${one[@]}" "$TRAINER" bench step "$config" --steps "$steps" --json "$work/profile.json" "${keys[@]}" >"$work/log" 2>&1 || fail "bench step"
    "${launch[@]}" "$TRAINER" bench allreduce "$config" --max 4M --json "$work/network.json" "${keys[@]}" >"$work/log" 2>&1 || fail "bench allreduce"
    batch=$(number batch_size "$work/profile.json")
    [ "$mode" = strong ] || run=("data.batch_size=$((batch * ranks))")
    rm -rf "$work/run"
    "${launch[@]}" "$TRAINER" train "$config" "${keys[@]}" "${run[@]}" "train.steps=$steps" "log.every=$steps" train.valid_every=0 \
        checkpoint.every=0 "run.dir=$work/run" >"$work/log" 2>&1 || fail "train"
    "$TRAINER" plan "$config" --nodes "$ranks" --mode "$mode" --profile "$work/profile.json" --network "$work/network.json" \
        --json "$work/plan.json" "${keys[@]}" >"$work/log" 2>&1 || fail "plan"
    read -r low expected high < <(tr -d '\n ' <"$work/plan.json" |
        sed 's/.*"step_ms":{"expected":\([^,]*\),"high":\([^,]*\),"low":\([^}]*\)}.*/\3 \1 \2/')
    measured=$(number step_ms "$work/run/metrics.jsonl")
}

printf '%4s %10s %10s %10s %12s %8s %6s\n' run "low ms" "expected" "high" "measured ms" "error %" load
for ((i = 1; i <= runs; i++)); do
    measure
    read -r load _ </proc/loadavg
    awk -v i="$i" -v l="$low" -v e="$expected" -v h="$high" -v m="$measured" -v load="$load" \
        'BEGIN { printf "%4d %10.2f %10.2f %10.2f %12.2f %8.1f %6s\n", i, l, e, h, m, 100 * (e - m) / m, load }'
done | tee "$work/table"
awk '{ e = $6 < 0 ? -$6 : $6; print e, ($5 >= $2 && $5 <= $4) }' "$work/table" | sort -n |
    awk '{ e[NR] = $1; inside += $2 }
         END { m = NR % 2 ? e[(NR + 1) / 2] : (e[NR / 2] + e[NR / 2 + 1]) / 2
               printf "error: median %.1f %%, least %.1f %%, most %.1f %%; %d of %d within the band\n", m, e[1], e[NR], inside, NR }'
