# shellcheck shell=bash
# requeue.sh: what the job scripts of this folder share. It is sourced; `train_job "$@"` does the whole job:
#
#   1. stages the data, if STAGE_DIR is set
#   2. starts trainer, and passes USR1 (the warning of --signal=B:USR1@SECONDS) on to it: trainer saves and stops. In a
#      short job the warning comes too early, and is held back until a sixth of the time limit is left
#   3. decides by trainer's verdict, or by the exit code where there is none, whether to requeue the job
#
# A requeued job continues from its newest checkpoint, because the run folder is named after the job:
# run.dir=runs/CONFIG-JOBID, unless run.dir is among the arguments or in TRAINER_RUN_DIR.
#
# The job is not requeued after scancel, nor after three sessions in a row that saved no new step. A node that was lost
# goes into the job's ExcNodeList if the partition has enough other nodes.
EMPTY_SESSIONS=3

# This job for squeue and scontrol: the job of the last task of an array has the number of the array.
job_id=${SLURM_JOB_ID-}
[ -z "${SLURM_ARRAY_TASK_ID-}" ] || job_id=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID

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

# stage CONFIG ARGUMENTS...: one task per node copies the files of data.train, with their files of labels, to a folder below
# STAGE_DIR that is named by a checksum of their paths, sizes and times; sets staged to the new data.train
stage() {
    local config=$1 data files group='' list path name all='' key
    local -x LC_ALL=C
    shift
    data=$(setting data.train "$@")
    data=${data:-$(value_of "$config" data train)}
    [ -n "$data" ] || { echo "STAGE_DIR is set, but $config has no data.train" >&2; return 66; }
    # As trainer reads it: FILE, FILE:GROUP, or a glob. A file may have such a name.
    files=$data
    [ -e "$data" ] || case $data in *:*) files=${data%:*} group=:${data##*:} ;; esac
    list=("$files")
    [ -e "$files" ] || mapfile -t list < <(compgen -G "$files" | sort)
    for path in "${list[@]:-$files}"; do
        [ -f "$path" ] || { echo "data.train: there is no file '$path' to copy to STAGE_DIR" >&2; return 66; }
        case $path in /*) ;; *) path=$PWD/$path ;; esac
        all+=$path$'\n'
        [[ $path =~ ^(.*)_x(\.[^./]*)$ ]] || continue
        path=${BASH_REMATCH[1]}_y${BASH_REMATCH[2]}
        [ ! -f "$path" ] || all+=$path$'\n'
    done
    # In one folder, the glob must find the same files in the same order.
    if ! name=$(printf '%s\n' "${list[@]##*/}" | sort -cu 2>&1); then
        echo "data.train: STAGE_DIR takes the files of '$files' into one folder, but two of them have the same name, or the" \
            "order of their names is not that of their paths: '${name##*disorder: }'. Rename them, or train without STAGE_DIR" >&2
        return 78
    fi
    all=$(printf %s "$all" | sort -u | tr '\n' '\0' | xargs -0 stat -L --printf='%s %.Y %n\n' --) || return 74
    key=$(printf '%s\n' "$UID" "$all" | sha256sum)
    staged=$STAGE_DIR/${key:0:16}
    say "copying $files to $staged on every node"
    srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpus-per-task=1 \
        bash -c "$(declare -f stage_copy stage_file); stage_copy \"\$1\"" stage "$staged" <<<"$all" || return 74
    staged=$staged/${files##*/}$group
}

# stage_copy FOLDER: on a node, copies the files of standard input there: lines SIZE TIME PATH
stage_copy() {
    local line
    set -o pipefail
    mkdir -p -- "$1" && cd -- "$1" || return
    # One job of the node copies, and others wait for it: any part of a copy is then of a job that was killed.
    exec 9>.lock && flock 9 && rm -f .copy.*
    while IFS= read -r line; do
        # shellcheck disable=SC2086
        stage_file ${line%% /*} "/${line#* /}" || return
    done
}

# stage_file SIZE TIME PATH: copies PATH to this folder, if there is no copy of that size and time. A copy gets its time
# and its name when it is complete.
stage_file() {
    local name=./${3##*/} copy sum try
    [ "$(stat -c '%s %Y' "$name" 2>/dev/null)" != "$1 ${2%.*}" ] || return 0
    copy=$(mktemp ./.copy.XXXXXX) || return
    for try in 1 2 3; do
        sum=$(tee "$copy" <"$3" | cksum) || break
        sync "$copy" || break
        [ "$(stat -L -c '%s %.Y' "$3")" = "$1 $2" ] || { echo "$HOSTNAME: $3 was changed while it was copied" >&2; break; }
        if [ "$sum" = "$(cksum <"$copy")" ] && [ "${sum#* }" = "$1" ]; then
            touch -d "@$2" "$copy" && mv -fT "$copy" "$name" && return
        fi
        echo "$HOSTNAME: the copy of $3 is not equal to it (try $try of 3)" >&2
    done
    rm -f "$copy"
    echo "$HOSTNAME: $3 cannot be copied to $PWD; the disk has $(df -Ph . | awk 'END { print $4 }') free" >&2
    return 74
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
was_cancelled() { [ -n "$terminated" ] && [ "$(squeue -h -j "$job_id" -o %r)" != TimeLimit ]; }

requeue() {
    if [ "$empty" -ge $EMPTY_SESSIONS ]; then
        say "$empty sessions in a row saved no new step: the job is not requeued"
        return 1
    fi
    trap '' TERM # Slurm sends it to this script when it requeues the job
    scontrol requeue "$job_id" || { say "scontrol requeue failed: submit the same command again to continue"; return 1; }
    exclude "$(sed -n 's/^node //p' "$verdict_file" 2>/dev/null)"
}

# exclude NODE: from the requeued job, which must have left the state RUNNING for this
exclude() {
    local node=$1 others facts list try
    [ -n "$node" ] || return 0
    others=$(sinfo -h -N -p "$SLURM_JOB_PARTITION" -t idle,allocated,mixed,completing -o %N | grep -cvx "$node")
    if [ "$others" -lt "$SLURM_JOB_NUM_NODES" ]; then
        say "$node was lost, but there are not enough other nodes to exclude it"
        return
    fi
    facts=$(scontrol show job -o "$job_id")
    case $facts in *ReqNodeList=\(null\)*) ;; *) say "$node was lost, but the job asks for certain nodes"; return ;; esac
    list=$(sed -n 's/.* ExcNodeList=\([^ ]*\).*/\1/p' <<<"$facts")
    [ "$list" != '(null)' ] || list=
    for try in 1 2 3 4 5 6 7 8 9 10; do
        scontrol update JobId="$job_id" ExcNodeList="$list${list:+,}$node" 2>/dev/null &&
            { say "$node is excluded"; return; }
        sleep 0.5
    done
    say "$node was lost, but could not be excluded ($try tries)"
}

# -- the job ----------------------------------------------------------------------------------------------------------------

# Slurm's warning comes up to a minute early, and at once in a job that is shorter than that.
WARNING_SECONDS=360

# job_times: sets start and end, in seconds since 1970; end is empty for a job without a time limit
job_times() {
    local from until
    end=
    read -r from until < <(squeue -h -j "$job_id" -o '%S %e')
    [ -n "${until-}" ] && start=$(date -d "$from" +%s 2>/dev/null) || return 0
    end=$(date -d "$until" +%s 2>/dev/null) || end=
}

# last_of RUN KEY: its number in the last line of sessions.jsonl that has it
last_of() { sed -n "s/.*\"$2\": *\([0-9.]*\).*/\1/p" "$1/sessions.jsonl" 2>/dev/null | tail -n 1; }

# limit_is_enough: whether a session can come further than its first step; says the numbers if not
limit_is_enough() {
    local first write need
    [ -n "$end" ] || return 0
    first=$(last_of "$run_dir" first_step_sec) write=$(last_of "$run_dir" checkpoint_write_sec)
    [ -n "$first" ] || return 0
    # as trainer's own margin before run.until: two checkpoints and 10 s
    need=$(awk -v f="$first" -v w="${write:-0}" 'BEGIN { printf "%.0f", 2 * f + 2 * w + 10 }')
    [ $((end - start)) -lt "$need" ] || return 0
    say "the time limit is $((end - start)) s, and a session of this run needs $need s: twice the ${first} s until its first" \
        "step, and 10 s and two checkpoints of ${write:-0} s to stop. Submit the same command with a longer --time; the run" \
        "continues from its newest checkpoint"
    return 1
}

# warn PID: passes USR1 on to trainer. The first one is held back if it may be Slurm's warning and comes too early.
warn() {
    local left limit
    if [ -n "$end" ] && [ -z "$holder" ]; then
        left=$((end - $(date +%s))) limit=$((end - start))
        if [ $left -le $WARNING_SECONDS ] && [ $((6 * left)) -gt $limit ]; then
            say "USR1 $left s before the end of $limit s: it is held back until $((limit / 6)) s are left; a second USR1 is not"
            (sleep $((left - limit / 6)); kill -USR1 "$1") 2>/dev/null &
            holder=$!
            return
        fi
    fi
    say "USR1: trainer saves and stops"
    kill -USR1 "$1" 2>/dev/null
}

# Slurm before 23.02 does not say in the environment when the job will end, and run.until needs it.
pass_end_time() {
    [ -z "${SLURM_JOB_END_TIME-}${TRAINER_RUN_UNTIL-}" ] && [ -n "$end" ] || return 0
    export TRAINER_RUN_UNTIL="$end"
}

# run_trainer ARGUMENTS...: until it ends; sets code
run_trainer() {
    local pid
    terminated='' holder=''
    launch "$@" &
    pid=$!
    # A signal ends a wait: wait again until the launcher is gone.
    trap 'warn $pid' USR1
    trap 'terminated=1' TERM
    while :; do
        wait $pid
        code=$?
        kill -0 $pid 2>/dev/null || break
        [ -z "$terminated" ] || { await_verdict $pid; break; }
    done
    [ -z "$holder" ] || kill "$holder" 2>/dev/null
}

# After TERM there is only KillWait (30 s), of which mpirun takes more than its ranks: their verdict is enough.
await_verdict() { # PID
    # A provisional one is written before the ranks save.
    while kill -0 "$1" 2>/dev/null && { [ ! -s "$verdict_file" ] || grep -qx provisional "$verdict_file"; }; do
        sleep 0.2
    done
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
    job_times
    pass_end_time
    limit_is_enough || exit 78
    word=
    [ -z "$STAGE_DIR" ] || { stage "$@" || exit; word=data.train=$staged; }
    say "session ${SLURM_RESTART_COUNT:-0} on $SLURM_JOB_NODELIST, run folder $run_dir"
    run_trainer "$@" ${word:+"$word"}
    decide "$code"
    [ ! -s "$verdict_file" ] || [ ! -d "$run_dir" ] || cp "$verdict_file" "$run_dir/verdict"
    if [ "$verdict" = again ] && was_cancelled; then
        say "cancelled: not requeued"
    elif [ "$verdict" = again ]; then
        requeue
    fi
    exit "$code"
}
