#!/usr/bin/env bash
# TEST timeout=300
# The job scripts of slurm/ on a cluster of four nodes on this machine: a run that is warned, that gets TERM twice, or
# that loses a rank saves a checkpoint where it can, its job is requeued, and it ends with the bits of a run that
# nothing happened to. The events run side by side.
. "${TRAINER_ROOT:?is set by the runner: make test k=slurm/slurm}/tests/support/slurm.sh"
on head srun -N4 --ntasks-per-node=1 hostname >out 2>&1 && [ "$(sort out | tr '\n' ' ')" = "n1 n2 n3 n4 " ]
ok $? "four nodes run a task each"

run_config
run 2 net.ini run.dir=whole $exact
ok $? "an uninterrupted run"
export SLOW=350 # on a busy machine scancel takes seconds
one() { submit --nodes=1 --exclusive --ntasks-per-node=2 -- net.ini $exact; }
# A GPU fails in the first session only, in a job whose node nobody chose.
cat >broken_gpu <<END
#!/bin/sh
[ -n "\$SLURM_RESTART_COUNT" ] || export HOSTCUDA_FAIL=cudaGraphLaunch:20:cudaErrorECCUncorrectable
exec "$TRAINER_ROOT/tests/hostcuda/run" -O "$BUILD" "$TRAINER" "\$@"
END
chmod +x broken_gpu
broken=
[ ! -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    broken=$(TRAINER=$PWD/broken_gpu SLOW='' submit --nodes=1 --ntasks-per-node=1 -- \
        "$TRAINER_ROOT/configs/mnist_mlp.ini" device=cuda threads=1 train.steps=30 checkpoint.every=5 \
        data.format=synthetic data.synthetic_samples=64 \
        data.batch_size=8 data.micro_batch=8 run.dir=broken)
# A sweep of two members with two ranks, of which the first is warned
SRUN_OPTIONS="--export=ALL,LD_PRELOAD=$fail_lib" FAIL_STEP=$SLOW on head \
    "$TRAINER_ROOT/slurm/sweep_array.sh" net.ini $exact train.seed=1,2 --out sweep -- --gpus-per-node=0 \
    --ntasks-per-node=2 --cpus-per-task=1 --time=10 >out 2>&1
array=$(sed -n 's/^job \([0-9]*\): 2 members.*/\1/p' out)
ok $((${array:-0} == 0)) "a sweep is submitted as an array"
warned=$(one) term=$(one) killed=$(one) mpirun=$(LAUNCHER=mpirun one)

# At the same time: scancel may take longer than a job.
acts=()
until_lines sweep/001/metrics.jsonl 12 && on head scancel --signal=USR1 --batch "${array}_1" & acts+=($!)
at_step "$warned" 12 && on head scancel --signal=USR1 --batch "$warned" & acts+=($!)
at_step "$mpirun" 12 && on head scancel --signal=USR1 --batch "$mpirun" & acts+=($!)
at_step "$term" 12 && on head scancel --signal=TERM "$term" && on head scancel --signal=TERM "$term" & acts+=($!)
at_step "$killed" 12 && kill -9 "$(job_pid "$killed" 1)" & acts+=($!)
wait "${acts[@]}"
if [ -n "$broken" ]; then
    over "$broken"
    cp "job-$broken.log" out
    first=$(sed -n 's/.*: session 0 on \(n[0-9]*\),.*/\1/p' out)
    second=$(sed -n 's/.*: session 1 on \(n[0-9]*\),.*/\1/p' out)
    grep -q "verdict: again" out && grep -q "$first is excluded" out && [ -n "$second" ] && [ "$first" != "$second" ] &&
        [ "$(job_state "$broken")" = COMPLETED ] && grep -qx 'done' broken.verdict
    ok $? "a GPU fails: requeued without its node"
fi
ended_well "$warned"
ok $? "USR1 to the script: saved, requeued, the same bits"

grep -q 'stopped by a signal after step' out && ! grep -q 'no verdict' out
ok $? "by the verdict of trainer"
ended_well "$term"
ok $? "TERM twice: saved, requeued, the same bits"
grep -q 'stopped by a signal after step' out && ! grep -q 'ended at once' out
ok $? "the second TERM ends no rank"
ended_well "$killed"
ok $? "kill -9 of a rank: requeued, the same bits"
grep -q 'verdict: again' out
ok $? "by the verdict or the code"
ended_well "$mpirun"
ok $? "USR1 to the script with mpirun: saved, requeued, the same bits"
over "${array}_1" && over "${array}_2"
cat sweep/00?.log >out
[ "$(cat sweep/00?/verdict | grep -cx done)" = 2 ] && [ "$(grep -c ': session [01] on ' sweep/001.log)" = 2 ] &&
    [ "$(grep -c ': session [01] on ' sweep/002.log)" = 1 ] && grep -q 'resuming from' sweep/001.log && same sweep/001
ok $? "a member is warned: it alone is requeued, the same bits"
echo "1..$n"
