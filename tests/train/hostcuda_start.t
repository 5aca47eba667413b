#!/usr/bin/env bash
# TEST timeout=200
# The start of several ranks on the fakes of the CUDA libraries: pinned memory, windows of NCCL.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_start}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] && nm "$BUILD/hostcuda/libtrainer_cuda.so" | grep -q tr_cuda_nccl ||
    { echo "1..0 # SKIP no build/hostcuda with NCCL: built by make hostcuda where nvcc and nccl.h are"; exit 0; }
# start SETTING...: two ranks start, with weights of about 6 MB; their calls in ./trace.RANK
start() {
    rm -rf trace* run
    HOSTCUDA_DEVICES=2 HOSTCUDA_PEAK=1 HOSTCUDA_TRACE=$PWD/trace fakes "$MPIEXEC" -np 2 "$TRAINER" train \
        "$TRAINER_ROOT/configs/mnist_mlp.ini" device=cuda threads=1 train.steps=1 train.valid_every=0 run.dir=run \
        model.layers="flatten, linear 1800, relu, linear 10" data.format=synthetic data.synthetic_samples=64 \
        data.micro_batch=8 data.batch_size=16 "$@" >out 2>&1
}
# pinned: the most bytes that a rank pins, in ascending order
pinned() { sed -n 's/^hostcuda: at most \([0-9]*\) bytes.*/\1/p' out | sort -n; }
HOSTCUDA_NCCL_VERSION=23102 start && mapfile -t bytes < <(pinned) && [ "${#bytes[@]}" = 2 ] &&
    [ "${bytes[0]}" -lt 1000000 ] && [ "${bytes[1]}" -gt 15000000 ] && [ "$(grep -c '^ncclBroadcast' trace.1)" = 1 ]
ok $? "NCCL moves the weights: only rank 0 pins memory, for its checkpoints"
! grep -q '^ncclCommWindowRegister' trace.1
ok $? "windows are not registered unless they are asked for"
mv run first
start parallel.engine=poll && mapfile -t bytes < <(pinned) && [ "${bytes[0]}" -gt 5000000 ] &&
    near first run 1e-4 1 && ! grep -q '^ncclBroadcast' trace.1
ok $? "MPI moves them through pinned memory: the same loss"
fakes "$TRAINER" plan "$TRAINER_ROOT/configs/mnist_mlp.ini" device=cuda data.format=synthetic >out 2>&1
names out 'pinned & 64.0 MiB'
ok $? "plan prints the pinned memory"

HOSTCUDA_NCCL_VERSION=22809 HOSTCUDA_DEVICES=2 HOSTCUDA_TRACE=$PWD/trace fakes "$MPIEXEC" -np 2 "$TRAINER" \
    bench allreduce device=cuda parallel.windows=on --max 64 >out 2>&1 && ! grep -q hostcuda out &&
    grep -q '^ncclCommWindowRegister' trace.1
ok $? "windows are registered on demand; a probe's is deregistered before its memory is freed"
# registers VERSION VALUE: a rank registers windows
registers() { HOSTCUDA_NCCL_VERSION=$1 start parallel.windows="$2" && grep -q '^ncclCommWindowRegister' trace.1; }
if all; then
    registers 22703 on && registers 23102 on && ! registers 22703 auto && ! registers 23102 off
    ok $? "windows are registered where they are on"
fi

# The plan is made before NCCL takes its memory.
HOSTCUDA_MEMORY=700M HOSTCUDA_NCCL_MEMORY=95M start data.synthetic_samples=4096 data.batch_size=4096 \
    data.micro_batch=auto &&
    read -r after before < <(sed -n 's/.*micro_batch \([0-9]*\) instead of \([0-9]*\):.*/\1 \2/p' out) &&
    [ "$after" -lt "$before" ]
ok $? "NCCL takes memory that the plan had: micro_batch = auto is smaller"
HOSTCUDA_MODEL=T4 HOSTCUDA_NCCL_MEMORY=3G start \
    model.layers="flatten, linear 27000, relu, linear 27000, relu, linear 10"
[ $? = 71 ] && names out 'error & T4 & 11.2 GiB & 10.2 GiB & data.micro_batch'
ok $? "NCCL takes 3 GB of a T4 that the plan had: code 71 before the first step"
echo "1..$n"
