#!/usr/bin/env bash
# slurm.sh BUILD [TIMES [PATTERN]]; PATTERN: only the events whose names contain it
# What SLURM does to jobs, on a cluster of five nodes on this machine, with the scripts of slurm/: USR1 under srun at
# 4 and at 16 ranks (TIMES, 20), TERM at the time limit and `scontrol requeue` (a quarter of that), and once each:
# mpirun, scancel, kill -9 of rank 0 and of another, a node that crashes, a node that is marked down, a lock that
# another node holds, three starts without progress, a wrong --mpi. A job that is requeued must end in the bits of a
# run that nothing happened to. SLURM_TABLE=FILE gets a line for every job; tools/make-slurm-doc makes the table of
# docs/slurm.md of it.
. "$(dirname "$0")/long.sh"
export NODES=5
. "$TRAINER_ROOT/tests/support/slurm.sh"
times=${2:-20} only=${3-}
table=${SLURM_TABLE:-$work/table}
: >"$table"
export SLOW=50
run_config
sed -i 's/^micro_batch = .*/micro_batch = 2/' net.ini
run 2 net.ini run.dir=whole $exact || { cat out; exit 1; }

# -- one job ---------------------------------------------------------------------------------------------------------

# first_new JOB: whether a session after the first has said something of a step
first_new() {
    [ -e "job-$1.log" ] &&
        awk '/: session [1-9][0-9]* on / { again = 1 } again && /^epoch/ { found = 1; exit } END { exit !found }' \
            "job-$1.log"
}
verdicts_of() { sed -n 's/.*: verdict: \([a-z]*\).*/\1/p' "job-$1.log"; }
codes_of() { sed -n 's/.*: verdict: .*, code of [a-z]*: \([0-9]*\),.*/\1/p' "job-$1.log"; }
# same_as RUN RUN
same_as() { [ "$(state "$1" 2>/dev/null)" = "$(state "$2" 2>/dev/null)" ] && [ "$(losses "$1")" = "$(losses "$2")" ]; }
# record EVENT JOB SECONDS: a line of the table
record() {
    local job=$2 bits="other bits" crashes
    if same_as "${WHOLE-whole}" "$(run_of "$job")"; then
        bits="same bits"
    elif [ "$(job_state "$job")" != COMPLETED ]; then
        bits=-
    fi
    crashes=$(grep -c 'mca_btl_tcp' "job-$job.log")
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' \
        "$1" "$(verdicts_of "$job" | head -n 1)" "$(codes_of "$job" | head -n 1)" "$(job_state "$job")" \
        "$3" "$(sessions_of "$job")" "$bits" "$crashes" >>"$table"
    [ "$bits" != "other bits" ] || { echo "wrong: $1, job $job"; cp "job-$job.log" "$table.job-$job.log"; }
}
is_wanted() { case $1 in *"$only"*) ;; *) return 1 ;; esac; } # NAME
# event NAME STRIKE OPTIONS of submit...: a job that is struck after step 12, and starts again as soon as SLURM lets it
submit=submit # or gpu_job
event() {
    local name=$1 strike=$2 job begin
    shift 2
    is_wanted "$name" || return 0
    job=$($submit "$@") || return
    at_step "$job" 12
    begin=$(now)
    $strike "$job"
    finish "$name" "$job" "$begin"
}
finish() { # NAME JOB BEGIN
    local sec=- deadline=$((SECONDS + ${most:-200})) state=
    while [ $SECONDS -lt $deadline ]; do
        state=$(job_state "$2")
        [ $sec != - ] || ! first_new "$2" || sec=$(since "$3")
        case $state in PENDING | RUNNING | COMPLETING | '') sleep 0.1 ;; *) break ;; esac
    done
    record "$1" "$2" $sec
}
# side_by_side N COMMAND...: so many at a time, until there were `count` of them
side_by_side() {
    local width=$1 i
    shift
    for ((i = 0; i < count; i++)); do
        while [ "$(jobs -rp | wc -l)" -ge "$width" ]; do sleep 0.2; done
        "$@" &
    done
    wait_events
}
wait_events() { while [ -n "$(jobs -rp)" ]; do wait -n; done; }

# -- the events ------------------------------------------------------------------------------------------------------

nothing() { :; }
warn() { on head scancel --signal=USR1 --batch "$1"; }
requeue_it() { on head scontrol requeue "$1"; }
cancel() { on head scancel "$1"; }
kill_rank() { kill -9 "$(job_pid "$1" "${rank:?}")"; }
mark_down() { on head scontrol update NodeName=n2 State=DOWN Reason=test; }
crash() { "$cluster" crash "$c" n2; }
# The job goes on with two of its four nodes.
warn_and_shrink() {
    warn "$1"
    until_true is_pending "$1"
    on head scontrol update JobId="$1" NumNodes=2 NumTasks=8
}
# Another node holds the lock of the run folder when the job starts again.
warn_and_lock() {
    warn "$1"
    until_true is_pending "$1"
    (on n4 flock "$(run_of "$1")/lock" sleep 10) &
    sleep 1
}
# in_session JOB N: it has begun to train
in_session() { awk -v n="$2" '/: session / { s++ } /^epoch/ && s == n { found = 1 } END { exit !found }' "job-$1.log"; }
# No session comes to its first checkpoint.
kill_always() {
    local session
    for session in 1 2 3; do
        until_true in_session "$1" $session
        kill -9 "$(job_pid "$1" 0)"
    done
}
# event_now NAME OPTIONS of submit...: a job that ends without being struck
event_now() {
    local name=$1 job
    shift
    is_wanted "$name" || return 0
    job=$(submit "$@") || return
    finish "$name" "$job" "$(now)"
    last_job=$job
}
# first_session_steps JOB LEAST
first_session_steps() {
    local steps
    steps=$(sed -n 's/.*"last_step": *\([0-9]*\).*/\1/p' "$(run_of "$1")/sessions.jsonl" | head -n 1)
    echo "job $1: the first session made $steps steps"
    [ "$steps" -ge "$2" ] || echo "wrong: fewer than $2 steps" | tee -a short
}

four="--nodes=4 --ntasks-per-node=1"
sixteen="--nodes=4 --ntasks-per-node=4"
two="--nodes=2 --ntasks-per-node=1"
arguments="-- net.ini $exact"
# A job that lasts longer than its time limit of a minute. SLURM's warning and run.until are left out: TERM itself has
# to do. The steps are few enough for the second session to be over before its limit: SLURM would call the job
# TIMEOUT, though it is complete.
long="$exact train.steps=1000 checkpoint.every=0 run.until=none"
limit="--time=1 --signal=B:CONT@1 --nodes=1 --ntasks-per-node=2 -- net.ini $long"

echo "slurm: $times times, load $(cut -d' ' -f1-3 /proc/loadavg)"
count=$times
# shellcheck disable=SC2086
{
    side_by_side 3 event "USR1 to the script, 4 ranks" warn $four $arguments
    count=$(((times + 3) / 4))
    side_by_side 3 event "\`scontrol requeue\`, 4 ranks" requeue_it $four $arguments
    LAUNCHER=mpirun event "USR1 to the script, mpirun, 4 ranks" warn $four $arguments
    event "\`scancel\`" cancel $four $arguments
    rank=0 event "\`kill -9\` of rank 0 of 4" kill_rank $four $arguments
    rank=2 event "\`kill -9\` of rank 2 of 4" kill_rank $four $arguments
    SRUN_MPI=none event_now "\`srun --mpi=none\`" $four $arguments
    SRUN_MPI=pmi2 event_now "\`srun --mpi=pmi2\`" $four $arguments
    event "another node holds the lock for 10 s" warn_and_lock $two $arguments
    SLOW=500 event "three sessions without a checkpoint" kill_always $two $arguments checkpoint.every=0
    event "a node is marked down, with spare nodes" mark_down $two $arguments
    on head scontrol update NodeName=n2 State=RESUME
    event "a node crashes, with spare nodes" crash $two $arguments parallel.timeout=5s
    "$cluster" boot "$c" n2
    until_true eval '[ "$(on head sinfo -h -t idle -o %D)" = $NODES ]'
    count=$times
    side_by_side 1 event "USR1 to the script, 16 ranks" warn $sixteen $arguments
    count=$(((times + 3) / 4))
    SLOW='' run 2 net.ini run.dir=whole_long $long
    SLOW=100 WHOLE=whole_long side_by_side 5 event_now "TERM at the time limit, 2 ranks" $limit

    # Slurm's warning, 5 minutes before the limit, comes at once
    SLOW='' run 2 net.ini run.dir=whole_short $exact train.steps=720
    SLOW=500 WHOLE=whole_short most=700 event_now "six minutes of training, a limit of four" --time=4 $four $arguments \
        train.steps=720
    # at least 0.8 of the limit: of 240 s, in steps of 0.5 s
    ! is_wanted "six minutes" || first_session_steps "$last_job" 384

    # train_4node.sh on fake GPUs, where they were built
    [ ! -e "$BUILD/hostcuda/libtrainer_cuda.so" ] || {
        gpu_config
        fakes "$TRAINER" net.ini run.dir=whole_gpu $exact device=cuda >out 2>&1
        export SLOW=60 WHOLE=whole_gpu submit=gpu_job
        gpus="--nodes=4 -- net.ini $exact device=cuda"
        event "USR1 to the script, 16 GPUs" warn $gpus
        event "USR1 to the script, 16 GPUs, then 8" warn_and_shrink $gpus
        rank=5 event "\`kill -9\` of rank 5 of 16 with GPUs" kill_rank $gpus
        event "a node of 4 with GPUs crashes, with a spare node" crash $gpus parallel.timeout=15s
    }
}
bad=$(grep -c 'other bits' "$table")
echo "slurm: $(wc -l <"$table") jobs, $bad ended in other bits, load $(cut -d' ' -f1-3 /proc/loadavg), $SECONDS s"
[ "$bad" = 0 ] && [ ! -e short ]
