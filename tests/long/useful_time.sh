#!/usr/bin/env bash
# useful_time.sh BUILD [--ranks N] [--every SECONDS] [--seconds SECONDS] [--seed N] [CONFIG [KEY=VALUE...]]
# How much of its time a run uses that loses a random rank by kill -9 every 20 s for five minutes, and that is started
# again by a loop with the rules of the job scripts (slurm/requeue.sh). Without CONFIG: configs/gpt_tiny.ini on
# synthetic tokens, with parallel.zero = 1. A short run first tells what a checkpoint costs, from which the interval
# follows (Young 1974). Then the same time without failures and checkpoints, and with both. Prints the samples of
# both, where the time was lost, and whether the steps that count are those of the undisturbed run, with its losses to
# the bit, and use every sample of an epoch once; fails if they do not.
. "$(dirname "$0")/long.sh"
. "$TRAINER_ROOT/slurm/requeue.sh"
shift
ranks=4 every=20 seconds=300 seed=$$
while [ $# -gt 0 ]; do
    case $1 in
        --ranks) ranks=$2 ;;
        --every) every=$2 ;;
        --seconds) seconds=$2 ;;
        --seed) seed=$2 ;;
        *) break ;;
    esac
    shift 2
done
RANDOM=$seed
config=${1-$TRAINER_ROOT/configs/gpt_tiny.ini}
case $config in /*) ;; *) config=$OLDPWD/$config ;; esac
settings=("${@:2}")
[ $# -gt 0 ] || settings=(data.format=synthetic_tokens data.train= data.valid= model.vocab_size=65
    data.synthetic_samples=3000 data.micro_batch=3 parallel.zero=1)
settings+=(log.every=1 train.steps=1000000000 train.valid_every=0 checkpoint.keep=2 threads=1)
# Its ranks end by themselves: mpirun is not to give them a second more.
export OMPI_MCA_odls_base_sigkill_timeout=0 PRTE_MCA_odls_base_sigkill_timeout=0 OMPI_MCA_mpi_yield_when_idle=1

# keep_running RUN SETTINGS...: until the file RUN.stop is there, or a start must not be repeated. RUN.events gets the
# time of each start and end, with the step that its last line of metrics has.
keep_running() {
    run_dir=$1 verdict_file=$1/verdict LAUNCHER=mpirun
    while step_before=$(newest_step "$run_dir"); echo "launch $EPOCHREALTIME" >>"$1.events"; do
        "$MPIEXEC_REAL" -np "$ranks" "$TRAINER" "$config" "${settings[@]}" run.dir="$run_dir" "${@:2}"
        code=$?
        echo "end $EPOCHREALTIME $code $(tail -n 1 "$run_dir/metrics.jsonl" | grep -o '"step":[0-9]*')" >>"$1.events"
        decide "$code"
        [ "$verdict" = again ] && [ ! -e "$1.stop" ] || break
    done
    [ "$verdict" = again ]
}
sleep_until() { sleep "$(awk -v t="$1" -v now="$EPOCHREALTIME" 'BEGIN { print (t > now ? t - now : 0) }')"; }
# train RUN SECONDS EVERY SETTINGS...: EVERY: 0 for no failure
train() {
    local begin=$EPOCHREALTIME i=0 rank
    keep_running "$1" "${@:4}" >"$1.log" 2>&1 &
    job=$!
    while [ "$3" != 0 ] && i=$((i + 1)) && [ $((i * $3)) -lt "$2" ]; do
        sleep_until "$(awk -v b="$begin" -v s=$((i * $3)) 'BEGIN { printf "%.3f", b + s }')"
        rank=$((RANDOM % ranks))
        kill -9 "$(rank_pid $rank)" && echo "kill $EPOCHREALTIME $rank" >>"$1.events"
    done
    sleep_until "$(awk -v b="$begin" -v s="$2" 'BEGIN { printf "%.3f", b + s }')"
    : >"$1.stop"
    until kill -USR1 "$(children $job | awk '{ print $1 }')" 2>/dev/null; do sleep 0.05; done # to mpirun and its ranks
    wait $job || { echo "useful_time: $1 was not to be started again:"; tail -n 20 "$1.log"; exit 1; }
}

train probe 6 0 checkpoint.every=1
last_of() { sed -n "s/.*\"$1\": *\([0-9.e-]*\).*/\1/p" probe/sessions.jsonl | tail -n 1; }
interval=$(awk -v n="$(last_of checkpoints)" -v stall="$(last_of checkpoint_stall_sec)" \
    -v write="$(last_of checkpoint_write_sec)" -v every="$every" \
    'BEGIN { t = sqrt(2 * stall / n * every); printf "%.3f", (t > write ? t : write) }')
echo "$ranks ranks, a failure every $every s, $seconds s, checkpoint.every=${interval}s, seed $seed"
train whole "$seconds" 0 checkpoint.every=0
train run "$seconds" "$every" checkpoint.every="${interval}s"
python3 -I "$TRAINER_ROOT/tests/long/useful_time.py" "$seconds" whole run
code=$?
sed -n 's/.*"step":\([0-9]*\),.*"loss".*/\1/p' run/metrics.jsonl |
    "$BUILD/tests/long/make_epochs" run/checkpoints/latest >epochs || code=1
awk -F'\t' '{ print "samples: " $1 " whole epochs, " $2 " samples not used exactly once; in the last one " $3 \
    " used more than once" }' epochs
exit $code
