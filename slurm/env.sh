# shellcheck shell=bash
# env.sh: the settings of a site. The job scripts of this folder source it. Edit it once, or set these variables in the
# environment of sbatch.

# The program. A relative path starts at the folder where sbatch was called.
[ -n "${TRAINER-}" ] || [ -x ./trainer ] || TRAINER=$(command -v trainer || true)   # installed
TRAINER=${TRAINER:-./trainer}

# Modules. The MPI must be the one that trainer was built with.
# module load gcc openmpi hdf5 cuda

# srun or mpirun. Both start one rank per task of the job.
LAUNCHER=${LAUNCHER:-srun}
# How srun connects to MPI: `srun --mpi=list` shows the choices. Open MPI needs pmix; MPICH and Intel MPI use pmi2.
SRUN_MPI=${SRUN_MPI:-pmix}

# Network interfaces, where MPI or NCCL chooses a wrong one: `ip -brief address` shows the names.
# export OMPI_MCA_btl_tcp_if_include=ib0
# export NCCL_SOCKET_IFNAME=ib0

# A folder on the disk of each node. If it is set, the files of data.train are copied below it before the launch.
STAGE_DIR=${STAGE_DIR:-}

# Starts trainer on all tasks of the job. Slurm 22.05 to 23.02 do not pass --cpus-per-task from sbatch to srun, so it is
# repeated. --gpu-bind=none lets every rank see all GPUs of its node, which NCCL needs for direct copies between them.
launch() { # ARGUMENTS of trainer...
    local cores=${SLURM_CPUS_PER_TASK:-1}
    case $LAUNCHER in
        srun)
            # shellcheck disable=SC2086
            exec srun --mpi="$SRUN_MPI" --cpus-per-task="$cores" --cpu-bind=cores --gpu-bind=none \
                --kill-on-bad-exit=1 ${SRUN_OPTIONS-} "$TRAINER" "$@" ;;
        mpirun)
            # Open MPI 4: mpirun kills the ranks 1 s after a TERM, too soon to save a checkpoint; with a longer time it
            # would also take that time to end after a rank's exit code of 75.
            export OMPI_MCA_odls_base_sigkill_timeout=25 OMPI_MCA_orte_abort_on_non_zero_status=0
            # shellcheck disable=SC2086
            exec mpirun ${MPIRUN_OPTIONS---map-by slot:PE=$cores --bind-to core} "$TRAINER" "$@" ;;
        *)
            echo "env.sh: LAUNCHER=$LAUNCHER: expected srun or mpirun" >&2
            exit 2 ;;
    esac
}
