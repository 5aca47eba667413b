#!/usr/bin/env bash
# TEST timeout=600
# trainer doctor: healthy launches end with 0, each fault is named with its verdict, and errors have their exit code.
# tests/long/doctor.sh has the faults of a cluster.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/doctor}/tests/support/common.sh"
config
mkdir -p empty && cd empty || exit 1
# finding VERDICT CHECK [NAMES]: the report in ./out has it
finding() { grep "^$1 *$2 " out >found && { [ $# = 2 ] || names found "$3"; }; }
alone() { "$TRAINER" doctor "$@" >out 2>&1; }

alone
[ $? = 0 ] &&
    finding ok launch 1 &&
    finding ok versions "$("$TRAINER" --version | sed 's/^trainer //; s/[.+]/./g')" &&
    finding ok folder "$PWD" &&
    finding ok locks
ok $? "healthy without a launcher"

[ -z "$(ls -A | grep -vx 'out\|found')" ]
ok $? "it leaves no file behind"
for ranks in 2 4; do
    run $ranks doctor
    [ $? = 0 ] && ! grep -q '^error' out && [ "$(grep -cE "^ +[0-9]+ +$(hostname) " out)" = $ranks ] &&
        finding ok all-reduce &&
        finding ok network
    ok $? "healthy on $ranks ranks: a row for each"
done
run 2 doctor ../net.ini
[ $? = 0 ] && finding ok config 2 && finding ok room '[0-9.]* [KMGT]iB'
ok $? "with a configuration it is planned, and the size of a checkpoint told"

OMP_WAIT_POLICY=passive "$TRAINER" doctor --json - >out 2>err && cp out found.json &&
    grep -q '"kind": "doctor"' out && grep -q '"code": 0' out &&
    grep -q '"rank": 0' out && grep -q '"cores": "[0-9]' out
ok $? "--json -: the keys of the JSON form"
ok_keys doctor found.json 'ranks\[\]\.report\..*'
grep -q '"waits": ".*OMP_WAIT_POLICY' found.json
ok $? "who decides how threads wait"

if [ "$(nproc)" -ge 2 ] && core=$(taskset -cp $$ | grep -oE '[0-9]+' | tail -n 1) 2>/dev/null; then
    "$MPIEXEC" -np 2 --bind-to none taskset -c "$core" "$TRAINER" doctor >out 2>&1
    [ $? = 0 ] && finding warning cores "2 & ($core)"
    ok $? "two ranks on one core: a warning"
    "$MPIEXEC" -np 1 --bind-to none taskset -c "$core" "$TRAINER" doctor threads=1 : -np 1 "$TRAINER" doctor \
        threads=1 >out 2>&1
    [ $? = 0 ] && finding warning cores "0 & 1 & $core"
    ok $? "two ranks that overlap: both are named"
else
    for what in "one core" "overlap"; do ok 0 "$what # SKIP one core, or no taskset"; done
fi

"$MPIEXEC" -np 2 bash -c 'ulimit -f 512; exec "$TRAINER" doctor' >out 2>&1
[ $? = 74 ] && finding error folder "$PWD/.*"
ok $? "1 MiB cannot be written: 74"
mkdir -p full
cat >full.sh <<'EOS'
mount -t tmpfs -o size="$1" tmpfs full && shift && "$TRAINER" doctor run.dir=full/run "$@" >out 2>&1
EOS
if unshare -rm mount -t tmpfs tmpfs full 2>/dev/null; then
    unshare -rm bash full.sh 300k
    [ $? = 74 ] && finding error folder "No space left on device"
    ok $? "a full file system: 74"
    unshare -rm bash full.sh 2m ../net.ini "model.layers=flatten, linear 4000, linear 10"
    [ $? = 74 ] && finding ok folder && finding error room "2.0 MiB & $PWD/full & [0-9.]* MiB"
    ok $? "no room for one checkpoint: 74"
    # shellcheck disable=SC2016
    unshare -rm bash -c 'mount -t tmpfs -o ro tmpfs full && PMI_SIZE=1 TMPDIR=$PWD/full "$TRAINER" doctor' >out 2>&1
    [ $? = 77 ] && finding error temporary "$PWD/full & TMPDIR"
    ok $? "no file can be made in the folder for temporary files: 77"
    env -u OMPI_MCA_btl_vader_single_copy_mechanism \
        "$MPIEXEC" -np 1 "$TRAINER" doctor : -np 1 unshare -r "$TRAINER" doctor >out 2>&1
    [ $? = 0 ] && finding warning namespaces "0 & 1" && names out OMPI_MCA_btl_vader_single_copy_mechanism=none
    ok $? "ranks in different user namespaces: a warning"
    OMPI_MCA_btl_vader_single_copy_mechanism=none \
        "$MPIEXEC" -np 1 "$TRAINER" doctor : -np 1 unshare -r "$TRAINER" doctor >out 2>&1
    [ $? = 0 ] && ! grep -q namespaces out
    ok $? "with its remedy: none"
else
    for what in "full" "no room" "temporary" "namespaces" "no single copies"; do
        skip "$what" "no file system can be mounted here"
    done
fi
alone run.dir=/proc/none/run
[ $? != 0 ] && finding error folder /proc
ok $? "a folder in which no file can be made"

# Another version, of the same length.
version=$("$TRAINER" --version | sed 's/.* //')
other=$(tr '0-9' '1-90' <<<"$version")
LC_ALL=C sed "s/${version//./\\.}/$other/g" "$TRAINER" >other &&
    chmod +x other && [ "$(./other --version)" = "trainer $other" ] &&
    "$MPIEXEC" -np 1 "$TRAINER" doctor : -np 1 ./other doctor >out 2>&1
[ $? = 78 ] && finding error versions "trainer & ${version//./\\.} & ${other//./\\.}"
ok $? "another version of trainer on rank 1: 78"

rm -f other

# srun without a PMI, and tasks that MPI takes for singletons
SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$TRAINER" doctor >out 2>&1
[ $? = 78 ] && finding error launch "2 & --mpi=pmix"
ok $? "srun without PMIx: 78 with the remedy"
SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 "$TRAINER" doctor >out 2>&1
[ $? = 78 ] && [ ! -s out ]
ok $? "only the first task reports"
PMI_SIZE=3 PMI_RANK=0 "$TRAINER" doctor >out 2>&1
[ $? = 78 ] && finding error launch "3 & --mpi=pmix"
ok $? "singletons: 78 with the remedy"

alone optimizer.lrr=1
[ $? = 78 ] && finding error config && names out "optimizer.lrr & optimizer.lr"
ok $? "a bad key: 78"
alone ../net.ini data.format=hdf5 data.train=none.h5
[ $? = 66 ] && finding error config none.h5 && finding ok folder
ok $? "data that are missing: 66, and the other checks are made"
alone --jsn x
[ $? = 2 ] && names out "--jsn & --json"
ok $? "an unknown option"
echo "1..$n"
