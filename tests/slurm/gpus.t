#!/usr/bin/env bash
# TEST timeout=300
# sbatch slurm/train_4node.sh on four nodes with four GPUs each, which are fakes: a job that is warned is requeued, and
# ends with the bits of one GPU that nothing happened to. tests/long/slurm.sh strikes such jobs in every other way.
. "${TRAINER_ROOT:?is set by the runner: make test k=slurm/gpus}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] && nm "$BUILD/hostcuda/libtrainer_cuda.so" | grep -q tr_cuda_nccl ||
    { echo "1..0 # SKIP no build/hostcuda with NCCL: built by make hostcuda where nvcc and nccl.h are"; exit 0; }
. "$TRAINER_ROOT/tests/support/slurm.sh"
gpu_config
fakes "$TRAINER" net.ini device=cpu run.dir=cpu $exact >out 2>&1 &&
    exact="$exact device=cuda" whole fakes "$TRAINER" >out 2>&1 &&
    near cpu whole 1e-4 24
ok $? "one GPU: the loss of cpu"
export SLOW=60
warned=$(gpu_job --nodes=4 -- net.ini $exact device=cuda)
at_step "$warned" 6 && on head scancel --signal=USR1 --batch "$warned"
ended_well "$warned"
rc=$?
# Beside 16 ranks on few cores, scancel may take longer than the job.
if [ $rc != 0 ] && grep -q 'verdict: done' out && ! grep -q 'verdict: again' out; then
    skip "16 GPUs, USR1 to the script: saved, requeued, the bits of one GPU" "the signal came after the end of the job"
    echo "1..$n"
    exit 0
fi
[ $rc = 0 ]
ok $? "16 GPUs, USR1 to the script: saved, requeued, the bits of one GPU"
# On a machine that is very busy SLURM may lose a node before its ranks have stopped.
grep -q '^16 ranks.*24 steps' out && grep -q 'verdict: again' out
ok $? "as 16 ranks, by the verdict of trainer"
echo "1..$n"
