#!/usr/bin/env bash
# TEST timeout=600
# The device cuda on the fakes of the CUDA libraries: kernels and ops against the CPU, and training to the CPU's loss.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
fakes "$BUILD/trainer" info >out 2>&1 && grep -q "^    GPU 0 .*H200.*9\.0.*GPU-" out &&
    grep -q "^    NCCL .*libnccl" out
ok $? "info shows the libraries and the GPU of the fakes"

HOSTCUDA_DEVICES=2 HOSTCUDA_OTHERS=2G HOSTCUDA_MIG=1 HOSTCUDA_TRACE=$PWD/trace fakes "$BUILD/trainer" info >out 2>&1
grep -q "GPU 1 .*MIG.*pid 1 .*2\.0 GiB" out && ! grep -qE "cuda(Malloc|Free|SetDevice)" trace
ok $? "info: partitions, other processes; it opens no GPU"
fakes "$BUILD/tests/unit/device/test_cuda_kernels" >out 2>&1 && ! grep -q skipped out
ok $? "kernels at odd sizes and addresses"
TEST_ONLY=test_attention HOSTCUDA_MODEL=T4 HOSTCUDA_TRACE=$PWD/t4 \
    fakes "$BUILD/tests/unit/device/test_cuda_kernels" >out 2>&1 &&
    grep -q causal_softmax_kernel t4 && grep -q causal_softmax_bwd_kernel t4
ok $? "and on a T4: attention by products and rows of scores"
fakes "$BUILD/tests/unit/device/test_cuda_repeat" >out 2>&1 && ! grep -q skipped out
ok $? "attention, filter gradients and long products: the same bits in ten runs"
# The fake refuses the mask of scores that cudnn-frontend uses with other versions of cuDNN.
for v in 90999 91000; do
    HOSTCUDA_CUDNN_VERSION=$v fakes "$BUILD/tests/unit/device/test_cuda_repeat" >out 2>&1 && ! grep -q skipped out
    ok $? "attention with cuDNN $v: the mask of that version"
done
HOSTCUDA_MODEL=B200 HOSTCUDA_TRACE=$PWD/trace fakes "$BUILD/tests/unit/device/test_cuda_repeat" >out 2>&1 &&
    grep -q 'cudnnBackendExecute ops 21 engine 5$' trace && ! grep -q 'cudnnBackendExecute ops 21 engine 8$' trace
ok $? "the gradient of attention on a B200: the engine for it, by its number and knobs"
fakes "$BUILD/tests/unit/device/test_cuda_ways" >out 2>&1 && ! grep -q skipped out && grep -q 'way 1: epilogue' out
ok $? "GELU in the epilogue of a product"
for t in matmul conv field norm pointwise loss input update sequence head; do
    OP_DEVICE=cuda HOSTCUDA_TRACE=$PWD/trace fakes "$BUILD/tests/unit/graph/test_ops_$t" >out 2>&1
    ok $? "ops: $t"
done
OP_DEVICE=cuda fakes "$BUILD/tests/unit/infer/test_generator" >out 2>&1
ok $? "texts generated alone and among others: the same bits"
# 700 rows of 50,001 logits, four times: one slice on an H200, five where a GPU has 2 GiB, whatever is free.
whole=$(grep -c 'launch.*head_rows_kernel' trace)
HOSTCUDA_MEMORY=2G HOSTCUDA_OTHERS=1G OP_DEVICE=cuda HOSTCUDA_TRACE=$PWD/trace \
    fakes "$BUILD/tests/unit/graph/test_ops_head" >out 2>&1 &&
    [ "$(grep -c 'launch.*head_rows_kernel' trace)" = $((whole + 4 * 4)) ]
ok $? "the head's slices: as few as the memory of the GPU allows"
# 4100 tokens are padded to 4224, of 2 bytes each.
HOSTCUDA_MEMORY=64M HOSTCUDA_CONTEXT=0 OP_DEVICE=cuda HOSTCUDA_TRACE=$PWD/trace \
    fakes "$BUILD/tests/unit/graph/test_ops_head" >out 2>&1 &&
    grep -q 'head_rows_kernel<KEPT_THREADS.* shared 8448$' trace &&
    [ "$(grep -c 'head_rows_kernel<KEPT_THREADS.* shared 40192$' trace)" = 12 ]
ok $? "the head with logits in 16 bits, a row in shared memory, in three slices"
# RANKS FOLDER SETTING...: some steps of a config on synthetic data
some() {
    local ranks=$1 folder=$2; shift 2
    rm -rf "$folder"
    fakes $MPIEXEC -np "$ranks" "$BUILD/trainer" train "$@" data.format=synthetic data.synthetic_samples=1024 \
        run.dir="$folder" threads=1 >out 2>&1
}
mlp="$TRAINER_ROOT/configs/mnist_mlp.ini train.steps=4"
cnn="$TRAINER_ROOT/configs/mnist_cnn.ini train.steps=2 data.batch_size=32 data.micro_batch=16"
# shellcheck disable=SC2086
for r in 1 2; do
    some $r cpu $mlp device=cpu && HOSTCUDA_DEVICES=$r some $r cuda $mlp device=cuda && near cpu cuda 1e-4 1
    ok $? "mnist_mlp on $r ranks trains to the loss of cpu"
done
# A resume without model.freeze: the ranges of the update have states of different ages.
# shellcheck disable=SC2086
for d in cpu cuda; do
    some 1 part-$d $mlp device=$d train.steps=2 'model.freeze=linear1.*' &&
        some 1 thaw-$d $mlp device=$d log.every=1 resume=part-$d
done
[ "$(losses thaw-cuda | wc -l)" = 2 ] && near thaw-cpu thaw-cuda 1e-4 2
ok $? "parameters that are no longer frozen train to the loss of cpu"
# shellcheck disable=SC2086
some 1 cpu $cnn device=cpu && some 1 cuda $cnn device=cuda && near cpu cuda 1e-4 1
ok $? "mnist_cnn trains to the loss of cpu"

for i in $(seq 60); do echo "$((i * 7919 % 1000)) of $i"; done >text.txt
"$TRAINER" import text text.txt text.h5 --tokenizer bytes --valid-fraction 0 >out 2>&1
# gpt FOLDER SETTING...: some steps of a small GPT
gpt() {
    local folder=$1
    shift
    fakes "$TRAINER" train "$TRAINER_ROOT/configs/gpt_tiny.ini" data.train=text.h5:train data.valid= data.batch_size=4 \
        model.n_layer=2 model.context=32 train.valid_every=0 schedule.warmup=0 train.steps=6 checkpoint.every=3 \
        threads=1 log.every=1 run.dir="$folder" "$@" >out 2>&1
}
for way in "attention=flash dropout=0" "attention=standard dropout=0.1"; do
    # shellcheck disable=SC2086
    set -- $(printf ' model.%s' $way)
    gpt "cpu-$1" device=cpu "$@" && gpt "cuda-$1" device=cuda "$@" && near "cpu-$1" "cuda-$1" 1e-4 6
    ok $? "gpt_tiny, $way: the loss of cpu"
done
whole=$(weights "cuda-$1")
back_to "cuda-$1" 00000003
gpt "cuda-$1" device=cuda "$@" && resumed && [ "$(weights "cuda-$1")" = "$whole" ]
ok $? "gpt_tiny resumed: the same bits"

# Dropout in the attention of cuDNN: a mask for all samples at a time, or of a small GPU for some. The two plans differ
# in the number of samples alone.
drop=(precision=bf16 model.attention=flash model.dropout=0.2 model.context=128 train.steps=3)
executions() { cat "$1"* | grep -c '^cudnnBackendExecute '; }
gpt cpu-drop device=cpu "${drop[@]}" && HOSTCUDA_TRACE=whole-trace gpt cuda-drop device=cuda "${drop[@]}" &&
    near cpu-drop cuda-drop 1e-3 3
ok $? "gpt_tiny in bf16 with dropout by cuDNN: the loss of cpu"
gpt cuda-new device=cuda "${drop[@]}" cuda.tune=yes && near cpu-drop cuda-new 2e-3 3
ok $? "the same with cuda.tune"
HOSTCUDA_CONTEXT=0 HOSTCUDA_MEMORY=90M HOSTCUDA_TRACE=part-trace gpt cuda-parts device=cuda "${drop[@]}" &&
    [ "$(executions part-trace)" = $((2 * $(executions whole-trace))) ] && [ "$(executions whole-trace)" -gt 0 ] &&
    [ "$(weights cuda-parts)" = "$(weights cuda-drop)" ]
ok $? "masks for two samples at a time: twice the calls, the same bits"

# greedy FOLDER DEVICE ARGUMENTS...: the tokens that the model of FOLDER chooses after three prompts
greedy() {
    local folder=$1 device=$2
    shift 2
    rm -f texts.json
    printf 'ranks\n7919 of 1\nthe longer one of these prompts\n' >prompts.txt
    fakes "$TRAINER" generate "$folder" --prompts prompts.txt --tokens 8 --temperature 0 --json texts.json \
        "device=$device" threads=1 "$@" >out 2>&1
    tr -d ' \n' <texts.json | grep -o '"tokens":\[[0-9,]*\]'
}
for weights in fp32 bf16; do
    want=$(greedy "cuda-$1" cpu --weights $weights) && [ "$(printf '%s\n' "$want" | wc -l)" = 3 ] &&
        [ "$want" = "$(greedy "cuda-$1" cuda --weights $weights)" ] &&
        [ "$want" = "$(greedy "cuda-$1" cuda --weights $weights --batch 1)" ]
    ok $? "gpt_tiny generates the texts of cpu, weights in $weights"
done
# shellcheck disable=SC2086
HOSTCUDA_TRACE=graphs some 1 graphs_on $mlp train.steps=6 device=cuda &&
    some 1 graphs_off $mlp train.steps=6 device=cuda capture=no && grep -q cudaGraphLaunch graphs* &&
    [ -n "$(weights graphs_on)" ] && [ "$(weights graphs_on)" = "$(weights graphs_off)" ]
ok $? "steps captured and launched: the bits of steps that run op by op"

# shellcheck disable=SC2086
HOSTCUDA_MEMORY=1G HOSTCUDA_CONTEXT=900M some 1 none $mlp device=cuda cuda.memory_limit=0.01
[ $? = 71 ] && grep -q "error:" out
ok $? "cuda.memory_limit leaves too little: code 71"
# shellcheck disable=SC2086
HOSTCUDA_FAIL=cublasLtMatmul:3 some 1 none $mlp device=cuda cuda.debug=sync
[ $? = 70 ] && grep -q "error:.*(matmul).*cublasLtMatmul" out
ok $? "a library call that fails: code 70, the op and the call"
HOSTCUDA_DEVICES=0 some 1 none $mlp device=cuda
[ $? = 78 ] && grep -q "GPU" out
ok $? "device = cuda without a GPU: code 78"
echo "1..$n"
