# shellcheck shell=bash
# requeue.sh: what the job scripts of this folder share. It is sourced; `train_job "$@"` does the whole job:
#
#   1. stages the data, if STAGE_DIR is set
#   2. starts trainer, and passes USR1 (the warning of --signal=B:USR1@SECONDS) on to it: trainer saves and stops
#   3. decides by trainer's verdict, or by the exit code where there is none, whether to requeue the job
#
# A requeued job continues from its newest checkpoint, because the run folder is named after the job:
# run.dir=runs/CONFIG-JOBID, unless run.dir is among the arguments or in TRAINER_RUN_DIR.
#
# The job is not requeued after scancel, nor after three sessions in a row that saved no new step. A node that was lost
# goes into the job's ExcNodeList if the partition has enough other nodes.
EMPTY_SESSIONS=3

say() { echo "$(date '+%F %T') job ${SLURM_JOB_ID-}: $*"; }

# setting KEY ARGUMENTS...: KEY's value among the arguments KEY=VALUE, else in the environment as TRAINER_KEY
setting() {
    local key=$1 word value
    value=TRAINER_${key^^}
    value=${value//./_}
    value=${!value-}
    shift
    for word in "$@"; do
        case $word in "$key"=*) value=${word#*=} ;; esac
    done
    printf '%s\n' "$value"
}

# newest_step RUN: of the newest checkpoint; nothing if there is none
newest_step() { readlink "$1/checkpoints/latest"; }

# -- data on the disk of each node ----------------------------------------------------------------------------------------

# stage CONFIG ARGUMENTS...: one task per node copies data.train to STAGE_DIR; sets staged to the new data.train
stage() {
    local config=$1 data files
    shift
    data=$(setting data.train "$@")
    data=${data:-$(value_of "$config" data train)}
    files=${data%%:*}
    [ -n "$files" ] || { echo "STAGE_DIR is set, but $config has no data.train" >&2; return 66; }
    say "copying $files to $STAGE_DIR on every node"
    # A glob is expanded on the node. cp -u: a requeued job finds its copy.
    # shellcheck disable=SC2016
    srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpus-per-task=1 \
        bash -c 'mkdir -p "$1" && cp -pu -- $2 "$1/"' stage "$STAGE_DIR" "$files" || return 74
    staged=$STAGE_DIR/${files##*/}${data#"$files"}
}

# -- the decision -----------------------------------------------------------------------------------------------------------

# Codes of a launcher after a rank was killed or could not start; srun ends with 0 after some launches that fail.
launcher_failed() { # CODE NEW_STEP
    case $1 in
        0 | 75 | 13[4-9] | 14[0-3] | 205) return 0 ;;
        1) [ -z "$2" ] ;;
        *) return 1 ;;
    esac
}

# decide CODE: sets verdict (done, again or no) and code
decide() {
    local rest='' new=
    code=$1 verdict=''
    [ ! -s "$verdict_file" ] || read -r verdict rest <"$verdict_file"
    [ "$(newest_step "$run_dir")" = "$step_before" ] || new=1
    case $verdict in
        done) code=0 ;;
        again) code=75 ;;
        no) code=${rest%% *} ;;
        *)
            verdict=no
            if launcher_failed "$code" "$new"; then verdict=again; fi
            say "there is no verdict of trainer" ;;
    esac
    say "verdict: $verdict${rest:+ $rest}, code of $LAUNCHER: $1, newest checkpoint: $(newest_step "$run_dir" || echo none)"
    count_empty "$new"
}

# count_empty NEW: keeps the number of sessions in a row without a new step in a file; sets empty
count_empty() {
    local file=$verdict_file.empty
    empty=0
    [ -n "$1" ] || empty=$(($(cat "$file" 2>/dev/null || echo 0) + 1))
    if [ "$verdict" = again ]; then echo "$empty" >"$file"; else rm -f "$file"; fi
}

# A TERM before the time limit: scancel, or a preemption, after which Slurm itself requeues the job.
was_cancelled() { [ -n "$terminated" ] && [ "$(squeue -h -j "$SLURM_JOB_ID" -o %r)" != TimeLimit ]; }

requeue() {
    if [ "$empty" -ge $EMPTY_SESSIONS ]; then
        say "$empty sessions in a row saved no new step: the job is not requeued"
        return 1
    fi
    trap '' TERM # Slurm sends it to this script when it requeues the job
    scontrol requeue "$SLURM_JOB_ID" || { say "scontrol requeue failed: submit the same command again to continue"; return 1; }
    exclude "$(sed -n 's/^node //p' "$verdict_file" 2>/dev/null)"
}

# exclude NODE: from the requeued job, which must have left the state RUNNING for this
exclude() {
    local node=$1 others list try
    [ -n "$node" ] || return 0
    others=$(sinfo -h -N -p "$SLURM_JOB_PARTITION" -t idle,allocated,mixed,completing -o %N | grep -cvx "$node")
    if [ "$others" -lt "$SLURM_JOB_NUM_NODES" ]; then
        say "$node was lost, but there are not enough other nodes to exclude it"
        return
    fi
    list=$(scontrol show job -o "$SLURM_JOB_ID" | sed -n 's/.* ExcNodeList=\([^ ]*\).*/\1/p')
    [ "$list" != '(null)' ] || list=
    for try in 1 2 3 4 5 6 7 8 9 10; do
        scontrol update JobId="$SLURM_JOB_ID" ExcNodeList="$list${list:+,}$node" 2>/dev/null &&
            { say "$node is excluded"; return; }
        sleep 0.5
    done
    say "$node was lost, but could not be excluded ($try tries)"
}

# -- the job ----------------------------------------------------------------------------------------------------------------

# Slurm before 23.02 does not say in the environment when the job will end, and run.until needs it.
pass_end_time() {
    local end
    [ -z "${SLURM_JOB_END_TIME-}${TRAINER_RUN_UNTIL-}" ] || return 0
    end=$(squeue -h -j "$SLURM_JOB_ID" -o %e) && export TRAINER_RUN_UNTIL="$end"
}

# run_trainer ARGUMENTS...: until it ends; sets code
run_trainer() {
    local pid
    terminated=
    launch "$@" &
    pid=$!
    # A signal ends a wait: wait again until the launcher is gone.
    trap 'say "USR1: trainer saves and stops"; kill -USR1 $pid 2>/dev/null' USR1
    trap 'terminated=1' TERM
    while :; do
        wait $pid
        code=$?
        kill -0 $pid 2>/dev/null || break
        [ -z "$terminated" ] || { await_verdict $pid; break; }
    done
}

# After TERM there is only KillWait (30 s), of which mpirun takes more than its ranks: their verdict is enough.
await_verdict() { # PID
    while kill -0 "$1" 2>/dev/null && [ ! -s "$verdict_file" ]; do sleep 0.2; done
    code=75
}

train_job() { # ARGUMENTS of the job script...
    local config=${1-} name word
    case $config in
        '' | -*) usage "$0"; [ "$config" = --help ] || [ "$config" = -h ]; exit $(($? * 2)) ;;
    esac
    [ -n "${SLURM_JOB_ID-}" ] || { echo "${0##*/}: not in a job; submit it with sbatch (see ${0##*/} --help)" >&2; exit 2; }
    name=${config##*/}
    run_dir=$(setting run.dir "${@:2}")
    run_dir=${run_dir:-runs/${name%.ini}-$SLURM_JOB_ID}
    verdict_file=$(setting run.verdict "${@:2}")
    verdict_file=${verdict_file:-$run_dir.verdict}
    export TRAINER_RUN_DIR=$run_dir TRAINER_RUN_VERDICT=$verdict_file
    mkdir -p "$(dirname "$verdict_file")"
    rm -f "$verdict_file"
    step_before=$(newest_step "$run_dir")
    pass_end_time
    word=
    [ -z "$STAGE_DIR" ] || { stage "$@" || exit; word=data.train=$staged; }
    say "session ${SLURM_RESTART_COUNT:-0} on $SLURM_JOB_NODELIST, run folder $run_dir"
    run_trainer "$@" ${word:+"$word"}
    decide "$code"
    if [ "$verdict" = again ] && was_cancelled; then
        say "cancelled: not requeued"
    elif [ "$verdict" = again ]; then
        requeue
    fi
    exit "$code"
}
