#!/usr/bin/env bash
# TEST timeout=200
# device = auto on the fakes of the CUDA libraries: the self-test, what it keeps, and what follows where it fails, with
# GPUs allocated to the job and without.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_auto}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
unset CUDA_VISIBLE_DEVICES SLURM_JOB_GPUS TRAINER_DEVICE
export TRAINER_CUDA_PLAN_CACHE=$PWD/plans
# on RANKS SETTING...: two steps of a config, a GPU for each rank
on() {
    local ranks=$1
    shift
    rm -rf run
    HOSTCUDA_DEVICES=${DEVICES:-$ranks} fakes "$MPIEXEC" -np "$ranks" bash -c '
        [ "$OMPI_COMM_WORLD_RANK" != "${WRONG_RANK-}" ] || export HOSTCUDA_WRONG_PRODUCT=1
        exec "$@"' on "$TRAINER" train "$TRAINER_ROOT/configs/mnist_mlp.ini" train.steps=2 threads=1 log.every=1 \
        data.format=synthetic data.synthetic_samples=256 data.valid= data.test= data.batch_size=32 \
        data.micro_batch=16 run.dir=run "$@" >out 2>&1
}
on_cpu() { grep -q '^sequential.*AVX' out; }
on_gpu() { grep -q '^sequential.*H200' out; }
on 1 && on_gpu && grep -qE 'auto: cuda; .*: [0-9]+ kinds of kernel calls' out
ok $? "the self-test passes: the GPU"
on 1 && on_gpu && grep -q 'auto: cuda; its self-test passed earlier' out
ok $? "the next run takes the pass that was kept"
HOSTCUDA_WRONG_PRODUCT=1 on 1 train.seed=3 train.steps=3 && on_gpu
ok $? "settings that choose no kernel are of no matter"
HOSTCUDA_WRONG_PRODUCT=1 on 1 precision=bf16 && on_cpu && grep -q 'warning:.*cpu.*MATMUL bf16.*doctor' out
ok $? "a wrong product, no allocation: the CPU, with the op"
CUDA_VISIBLE_DEVICES=0 HOSTCUDA_WRONG_PRODUCT=1 on 1 precision=bf16
[ $? = 70 ] && grep -q 'error:.*CUDA_VISIBLE_DEVICES.*MATMUL bf16.*device = cpu' out && [ ! -e run/metrics.jsonl ]
ok $? "the same where GPUs were allocated: code 70, the op"
DEVICES=1 on 2 && on_cpu && grep -q 'warning:.*cpu.*ranks 0 and 1' out
ok $? "two ranks on one GPU: the CPU"
WRONG_RANK=1 on 2 precision=bf16 && on_cpu && grep -q 'warning:.*rank 1.*MATMUL bf16' out
ok $? "a wrong product on one of two ranks: the CPU on both"
export TRAINER_CUDA_PLAN_CACHE=none
SLURM_JOB_GPUS=0 WRONG_RANK=1 on 2
[ $? = 70 ] && grep -q 'rank 1.*error:.*SLURM_JOB_GPUS.*MATMUL' out
ok $? "the same in a job with GPUs: code 70 on both, the rank"
fault=cudaMemcpyAsync:20:cudaErrorECCUncorrectable
SLURM_JOB_GPUS=0 HOSTCUDA_FAIL=$fault on 1
[ $? = 75 ] && grep -q 'error:.*SLURM_JOB_GPUS.*cudaErrorECCUncorrectable' out
ok $? "a GPU whose memory fails in the self-test of a job: code 75"
HOSTCUDA_FAIL=$fault on 1 && on_cpu && grep -q 'warning:.*cpu.*cudaErrorECCUncorrectable' out
ok $? "the same without an allocation: the CPU, with the error"
DEVICES=0 SLURM_JOB_GPUS=0 on 1
[ $? = 78 ] && grep -q 'error:.*SLURM_JOB_GPUS.*no GPU.*device = cpu' out && ! grep -q 'device = cpu.*device = cpu' out
ok $? "GPUs were allocated and none is there: code 78"
DEVICES=0 on 1 && on_cpu
ok $? "no GPU: the CPU"
for setting in precision=bf16 precision=fp32; do
    fakes "$TRAINER" doctor "$TRAINER_ROOT/configs/cifar10_resnet20.ini" device=cuda data.format=synthetic data.valid= \
        data.test= data.synthetic_shape=32x32x3 run.dir=run $setting >out 2>&1 &&
        grep -qE '^  CONV_BWD_WEIGHTS .*agrees' out && ! grep -q differs out
    code=$?
    ok $code "doctor device=cuda $setting: the table"
done
HOSTCUDA_WRONG_PRODUCT=1 fakes "$TRAINER" doctor "$TRAINER_ROOT/configs/mnist_mlp.ini" device=cuda \
    data.format=synthetic data.valid= data.test= run.dir=run --json - >out 2>err
[ $? = 70 ] && grep -q '"differs"' out && grep -q '"check": *"self-test"' out
ok $? "doctor finds a wrong product: code 70"
echo "1..$n"
