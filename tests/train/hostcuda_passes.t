#!/usr/bin/env bash
# TEST timeout=300
# Passes over memory on the fakes: convolutions of few channels by unfolded images, normalisations and sums over rows
# with several rows in flight, gradients of biases by the records before them.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_passes}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
# launches KERNEL...: whether the trace has each of them
launches() {
    local kernel
    for kernel in "$@"; do grep -q "^launch.*$kernel" trace || return 1; done
}
TEST_ONLY=test_wide_rows HOSTCUDA_TRACE=$PWD/trace \
    fakes "$BUILD/tests/unit/device/test_cuda_kernels" >out 2>&1 &&
    launches column_ahead_kernel layernorm_once_kernel \
        'normalize_kernel<.*PASS_AHEAD' 'dx_kernel<.*DX_AHEAD'
ok $? "normalisations and sums over rows: the results of the CPU"
TEST_ONLY=test_first_layers HOSTCUDA_TRACE=$PWD/trace fakes "$BUILD/tests/unit/device/test_cuda_kernels" >out 2>&1
code=$?
whole=$(grep -c '^launch.*unfold_kernel' trace)
TEST_ONLY=test_first_layers HOSTCUDA_CONTEXT=0 HOSTCUDA_MEMORY=64M HOSTCUDA_TRACE=$PWD/trace \
    fakes "$BUILD/tests/unit/device/test_cuda_kernels" >out 2>&1 && [ $code = 0 ] && [ "$whole" = 6 ] &&
    [ "$(grep -c '^launch.*unfold_kernel' trace)" -gt "$whole" ]
ok $? "convolutions of few channels: the results of the CPU, in one slice and in several"
TEST_ONLY=test_first_layers HOSTCUDA_FAIL=cublasLtMatmulAlgoGetHeuristic:1 \
    fakes "$BUILD/tests/unit/device/test_cuda_kernels" >out 2>&1
[ $? != 0 ] && grep -q 'cublasLtMatmulAlgoGetHeuristic' out
ok $? "and an error of cuBLASLt is no missing algorithm"
TEST_ONLY=test_sums fakes "$BUILD/tests/unit/device/test_cuda_repeat" >out 2>&1 && ! grep -q skipped out
ok $? "the same bits in ten runs"

seq 400 >text.txt
"$TRAINER" import text text.txt text.h5 --tokenizer bytes --valid-fraction 0 >out 2>&1
gpt="$TRAINER_ROOT/configs/gpt_tiny.ini data.train=text.h5:train data.valid= data.batch_size=4 data.micro_batch=2
    model.n_layer=2 model.context=32 model.n_embd=128 model.dropout=0 model.bias=yes train.valid_every=0
    schedule.warmup=0 train.steps=4 log.every=1 threads=1"
# run FOLDER SETTING...
run() {
    local folder=$1
    shift
    rm -rf "$folder"
    # shellcheck disable=SC2086
    fakes "$TRAINER" train $gpt run.dir="$folder" "$@" >out 2>&1
}
# shellcheck disable=SC2086
sums() { # SETTING...: the sums over rows that another record gives, in each program with a backward pass
    fakes "$TRAINER" plan $gpt device=cuda --ops "$@" 2>out |
        sed -n 's/.*fused: gradient + column_sum (\([0-9]*\) times).*/\1/p'
}
[ "$(sums | sort -u)" = 6 ]
ok $? "two layers: biases of both c_proj and of c_fc"
run cpu device=cpu precision=bf16 && run gpu device=cuda precision=bf16  && near cpu gpu 2e-2 4
ok $? "the loss of the CPU"
whole=$(weights gpu)
run gpu device=cuda precision=bf16 && [ "$(weights gpu)" = "$whole" ]
ok $? "the same bits again"
echo "1..$n"
