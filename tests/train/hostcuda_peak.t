#!/usr/bin/env bash
# TEST timeout=200
# The peak of a GPU on the fakes: measured for each type, kept in the plan cache, and the mfu of runs.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_peak}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
# run FOLDER SETTING...
run() {
    local folder=$1; shift
    fakes "$TRAINER" train "$TRAINER_ROOT/configs/mnist_mlp.ini" device=cuda train.steps=3 log.every=1 threads=1 \
        data.format=synthetic data.synthetic_samples=64 data.batch_size=8 data.micro_batch=8 \
        cuda.plan_cache="$PWD/plans" run.dir="$folder" "$@" >out 2>&1
}
for p in fp32 tf32 bf16 fp16; do
    run "$p" precision=$p cuda.measure_peak=yes && grep -q '"mfu": [0-9]' "$p/summary.json" &&
        grep -q '"mfu": *[0-9]' "$p/metrics.jsonl"
    ok $? "$p: the share of the peak"
done
[ "$(cat plans/*.plan | grep -ac '^peak of [a-z0-9]*: NVIDIA H200.*, driver [0-9]')" = 4 ]
ok $? "one rate for each type in the plan cache"

HOSTCUDA_TRACE=$PWD/trace run again precision=bf16 cuda.measure_peak=yes &&
    grep -q '"mfu": [0-9]' again/summary.json && ! grep -q cudaEventElapsedTime trace
ok $? "the second run does not measure"
run none precision=bf16 cuda.measure_peak=no && grep -q '"mfu": null' none/summary.json &&
    grep -q '"tflops": [0-9]' none/summary.json
ok $? "cuda.measure_peak = no: no mfu"
echo "1..$n"
