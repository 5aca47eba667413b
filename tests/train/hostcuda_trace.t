#!/usr/bin/env bash
# TEST timeout=200
# The library calls of one training step of device cuda, in their order, against golden files: launches, products,
# copies, waits, graphs. GOLDEN_UPDATE=1 writes the files again; check the difference before you commit it.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_trace}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
# trace NAME RANKS SETTING...: the calls of the last step but one, without polls and addresses
trace() {
    local name=$1 ranks=$2
    shift 2
    rm -rf run trace*
    HOSTCUDA_DEVICES=$ranks HOSTCUDA_SEED=0 HOSTCUDA_TRACE=$PWD/trace \
        fakes "$MPIEXEC" -np "$ranks" "$TRAINER" train "$TRAINER_ROOT/configs/mnist_mlp.ini" device=cuda threads=1 \
        data.format=synthetic data.synthetic_samples=256 data.batch_size=8 train.steps=10 train.valid_every=0 \
        checkpoint.every=0 schedule.warmup=0 run.dir=run "$@" >out 2>&1 ||
        return 1
    # A step ends with the two copies of its outcome to the host and the record after them.
    local calls='launch|cudaMemcpyAsync|cudaMemsetAsync|cudaEventRecordWithFlags|cudaStreamWaitEvent'
    calls="$calls|cublasLtMatmul|cudaGraphLaunch|ncclAllReduce"
    grep -E "^($calls) " trace.0 |
        awk '{ print }
             $1 == "cudaMemcpyAsync" && $NF == 2 { to_host++; next }
             $1 == "cudaEventRecordWithFlags" && to_host == 2 { print "-- step" }
             { to_host = 0 }' |
        awk -v RS='-- step\n' '{ step[NR] = $0 } END { printf "%s", step[NR - 2] }' >"$name.txt"
    [ -s "$name.txt" ] || return 1
    golden=$TRAINER_ROOT/tests/golden/cuda_step/$name.txt
    [ -z "${GOLDEN_UPDATE-}" ] || { mkdir -p "${golden%/*}" && cp "$name.txt" "$golden"; }
    diff "$golden" "$name.txt" >out
}
trace op_by_op 1 data.micro_batch=4 capture=no
ok $? "two micro-batches, op by op"

trace captured 1 data.micro_batch=4
ok $? "the same, captured"
trace one_slot 1 data.micro_batch=8
ok $? "one micro-batch, captured"
trace two_ranks 2 data.micro_batch=4 capture=no
ok $? "two ranks, op by op: an all-reduce, and the update after it"
[ "$(grep -c '^cudaGraphLaunch' captured.txt)" = 3 ] && ! grep -q '^cublasLtMatmul' captured.txt
ok $? "captured: three launches a step"
[ "$(grep -c '^cudaGraphLaunch' one_slot.txt)" = 1 ] && ! grep -q '^cublasLtMatmul' one_slot.txt
ok $? "captured, one micro-batch: one launch a step"
echo "1..$n"
