# Sourced by the tests of SLURM: starts the cluster and has the tools to submit jobs and to look at them. Not a test itself.
. "$TRAINER_ROOT/tests/train/common.sh"
cluster=$TRAINER_ROOT/tests/slurm/cluster.sh
c=$PWD/c
if ! why=$("$cluster" check); then
    case $why in *refused* | *root*) echo "1..0 # SKIP $why"; exit 0 ;; esac
    echo "not ok 1 - $why"
    echo "1..1"
    exit 1
fi
# mpirun in a job finds its nodes by SLURM; and what tools/mpi-env sets for one machine goes for ranks under srun, too.
unset OMPI_MCA_plm OMPI_MCA_rmaps_base_oversubscribe PRTE_MCA_rmaps_default_mapping_policy
export OMPI_MCA_mpi_yield_when_idle=1
# A build elsewhere below /tmp is on the nodes, too.
export SHARED=${BUILD%/*}
OWNER=$$ "$cluster" start "$c" >out 2>&1 || { ok 1 "the cluster starts"; echo "1..$n"; exit 1; }
trap '"$cluster" stop "$c"' EXIT

on() { TMPDIR=/tmp "$cluster" on "$c" "$@"; } # NODE COMMAND...
