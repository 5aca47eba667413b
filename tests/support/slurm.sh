# Sourced by the tests of SLURM: starts the cluster, and has the tools to submit jobs, to strike them and to look at
# them. Not a test itself.
. "$TRAINER_ROOT/tests/support/faults.sh"
cluster=$TRAINER_ROOT/tests/slurm/cluster.sh
c=$PWD/c
if ! why=$("$cluster" check); then
    case $why in *refused* | *root*) echo "1..0 # SKIP $why"; exit 0 ;; esac
    echo "not ok 1 - $why"
    echo "1..1"
    exit 1
fi
# mpirun in a job finds its nodes by SLURM; and what tools/mpi-env sets for one machine is for ranks under srun, too.
unset OMPI_MCA_plm OMPI_MCA_rmaps_base_oversubscribe PRTE_MCA_rmaps_default_mapping_policy
export OMPI_MCA_mpi_yield_when_idle=1
# A build elsewhere below /tmp is on the nodes, too.
export SHARED="${BUILD%/*} ${SHARED-}"
export TRAINER
OWNER=$$ "$cluster" start "$c" >out 2>&1 || { ok 1 "the cluster starts"; echo "1..$n"; exit 1; }
trap '"$cluster" stop "$c"; ! declare -F remove_work >/dev/null || remove_work' EXIT
job_script=$TRAINER_ROOT/slurm/train_cpu.sh

on() { TMPDIR=/tmp "$cluster" on "$c" "$@"; } # NODE COMMAND...
# submit OPTIONS of sbatch... -- ARGUMENTS of the job script...: prints the job's number. With SLOW=MS a step takes
# so much longer.
submit() {
    local options=() preload=
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    [ -z "${SLOW-}" ] || preload="--export=ALL,LD_PRELOAD=$fail_lib"
    SRUN_OPTIONS="$preload ${under-}" MPIRUN_OPTIONS="--bind-to none ${SLOW:+-x LD_PRELOAD=$fail_lib}" \
        FAIL_STEP=${SLOW:-0} \
        on head sbatch --parsable --cpus-per-task=1 --time=10 --output=job-%j.log --job-name=trainer \
        "${options[@]}" "$job_script" "$@"
}
# gpu_config: a network that the fakes of the CUDA libraries train fast, as net.ini
gpu_config() {
    export HOSTCUDA_DEVICES=4 HOSTCUDA_NCCL_DIR=/run # in memory, and the cluster's own: all of its nodes have it
    run_config
    sed -i '/^layers/,/^\[data/c layers = flatten, linear 16, relu, dropout 0.2, linear 10\n[data]
        s/^steps = .*/steps = 24/; s/^every = 10/every = 8/; s/^micro_batch = .*/micro_batch = 3/' net.ini
}
# gpu_job: as submit, of train_4node.sh on the fakes of the CUDA libraries; device=cuda is among the arguments
gpu_job() {
    under="$TRAINER_ROOT/tests/hostcuda/run -O $BUILD" \
        job_script=$TRAINER_ROOT/slurm/train_4node.sh submit "$@"
}
# The state of a job as SLURM has it, also when it is over
job_state() { on head scontrol show job -o "$1" 2>/dev/null | grep -o 'JobState=[A-Z_]*' | cut -d= -f2; }
# job_pid JOB RANK: the process of a rank, once it is there
job_pid() {
    local try pid vars
    for try in $(seq 600); do
        for pid in $(pgrep -x trainer); do
            # under mpirun a rank has both of the last two
            vars=$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ")
            grep -qx "SLURM_JOB_ID=$1" <<<"$vars" && grep -qxE "(PMIX_RANK|OMPI_COMM_WORLD_RANK)=$2" <<<"$vars" &&
                { echo "$pid"; return; }
        done
        sleep 0.05
    done
    return 1
}
run_of() { echo "runs/net-$1"; } # JOB
# at_step JOB N: waits for so many lines of its metrics
at_step() { until_lines "$(run_of "$1")/metrics.jsonl" "$2"; }
is_pending() { [ "$(job_state "$1")" = PENDING ]; }
# over JOB: waits until it has ended for good. SLURM holds a requeued job back for some seconds, until the former one
# is forgotten on the nodes.
over() {
    local deadline=$((SECONDS + 120))
    while [ $SECONDS -lt $deadline ]; do
        case $(job_state "$1") in PENDING | RUNNING | COMPLETING | '') sleep 0.1 ;; *) return 0 ;; esac
    done
    return 1
}
sessions_of() { grep -c ': session [0-9]* on ' "job-$1.log"; }
# ended_well JOB: completed, with the verdict done, after a restart from a checkpoint, with the bits of the run that
# nothing happened to
ended_well() {
    cp "job-$1.log" out
    over "$1"
    cat "job-$1.log" "$(run_of "$1").verdict" >out 2>&1
    [ "$(job_state "$1")" = COMPLETED ] && grep -qx 'done' "$(run_of "$1").verdict" &&
        grep -q 'resuming from' out && same "$(run_of "$1")"
}
