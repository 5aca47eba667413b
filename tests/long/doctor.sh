#!/usr/bin/env bash
# doctor.sh BUILD
# trainer doctor on a cluster of four nodes on this machine: healthy, a wrong --mpi, a slow node, a slow link, a
# folder that only one node has. DOCTOR_OUT=FILE gets the outputs.
. "$(dirname "$0")/long.sh"
. "$TRAINER_ROOT/tests/support/slurm.sh"
export OMP_WAIT_POLICY=passive
# doctor RANKS... OPTIONS of srun..., -- ARGUMENTS; a launch that crashed inside MPI_Init is repeated; output in ./out
doctor() {
    local options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    for _ in 1 2 3 4; do
        timeout 120 "$cluster" on "$c" head srun "${options[@]}" "$TRAINER" doctor "$@" >out 2>&1
        rc=$?
        grep -q 'mca_btl_tcp\|Segmentation fault' out || break
    done
    { echo; echo "\$ srun ${options[*]} trainer doctor $*   # exit code $rc"; cat out; } >>"${DOCTOR_OUT:-/dev/null}"
    return $rc
}
four="--nodes=4 --ntasks-per-node=1 --cpus-per-task=1"

# shellcheck disable=SC2086
{
    doctor $four --mpi=pmix -- && [ "$(grep -cE '^ +[0-3] +n[1-4] ' out)" = 4 ] && ! grep -q '^error' out &&
        grep -qE '^(ok|warning) *network' out
    # other programs on this machine may slow a link: a warning
    ok $? "healthy, four nodes: a row for each rank, no error"
    doctor --nodes=2 --ntasks-per-node=4 --cpus-per-task=1 --mpi=pmix -- &&
        [ "$(grep -cE '^ +[0-7] +n[1-2] ' out)" = 8 ]
    ok $? "healthy, two nodes with four ranks each"
    doctor $four --mpi=none --
    names out "error & launch & 4 & --mpi=pmix"
    ok $? "srun --mpi=none: the remedy is named"
    [ "$(grep -c '^error' out)" = 1 ] && grep -q 'exit code 78' out
    ok $? "by one rank, with code 78"
    doctor $four --mpi=pmi2 --
    names out "4 & --mpi=pmix"
    ok $? "srun --mpi=pmi2: the remedy is named"

    # As in the shell of srun --pty: the other tasks do not come.
    # shellcheck disable=SC2016
    TRAINER_PARALLEL_TIMEOUT=11s timeout 120 "$cluster" on "$c" head srun --nodes=1 --ntasks=4 --mpi=pmix \
        bash -c '[ "$SLURM_PROCID" != 0 ] || exec "$TRAINER" doctor' >out 2>&1
    names out "warning & 10 s & 4 tasks & --overlap --ntasks=4 & --overlap --ntasks=1"
    ok $? "one of four tasks comes: after 10 s, the remedy"
    names out "error & 11.0 s & 4 processes of n[1-4] only 1"
    ok $? "at the limit, the tasks that are missing"

    if on head tc qdisc add dev v-n3 root tbf rate 40mbit burst 32kbit latency 400ms 2>out; then
        doctor $four --mpi=pmix -- && names out "warning & network & n3"
        ok $? "the network of n3 has 40 Mbit/s: n3 is named, code 0"
        doctor --nodes=2 --nodelist=n3,n4 --ntasks-per-node=1 --mpi=pmix -- && names out "warning & network & n3 & n4"
        ok $? "of two nodes the link is named"
        on head tc qdisc del dev v-n3 root
    else
        for what in "a slow node" "a slow link"; do ok 0 "$what # SKIP tc cannot set up tbf here"; done
    fi
    mkdir -p here
    doctor $four --mpi=pmix -- run.dir=/dev/shm/run && names out "warning & locks & /dev/shm & n2"
    ok $? "a folder that other nodes do not see: named with one of them"
}
echo "1..$n"
