#!/usr/bin/env bash
# TEST timeout=300
# Errors of CUDA and NCCL, planted on the fakes, one of each kind (TEST_ALL=1: each): the exit code, and the node and
# the GPU in the verdict. The table is src/device/cuda/cuda_errors.def, which docs/slurm.md shows.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_faults}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] && nm "$BUILD/hostcuda/libtrainer_cuda.so" | grep -q tr_cuda_nccl ||
    { echo "1..0 # SKIP no build/hostcuda with NCCL: built by make hostcuda where nvcc and nccl.h are"; exit 0; }
# fault RANKS CODE [NAMES...]: a short training ends with this code, which the verdict has, and names them in it
fault() {
    local ranks=$1 code=$2 got name launch=()
    shift 2
    [ "$ranks" = 1 ] || launch=("$MPIEXEC" -np "$ranks")
    HOSTCUDA_DEVICES=$ranks fakes timeout 60 ${launch[@]+"${launch[@]}"} "$TRAINER" train \
        "$TRAINER_ROOT/configs/mnist_mlp.ini" device=cuda threads=1 train.steps=6 train.valid_every=0 \
        checkpoint.every=0 parallel.timeout=5s data.format=synthetic data.synthetic_samples=64 data.micro_batch=8 \
        data.batch_size=32 run.dir=run </dev/null >out 2>&1
    got=$?
    cp run/verdict err
    [ $got = 137 ] && got=$(sed -n 's/^again.*/75/p; s/^no \([0-9]*\).*/\1/p' run/verdict) # the launcher was first
    [ "$got" = "$code" ] || { echo "code $got" >>out; return 1; }
    for name in "$@"; do grep -q "$name" run/verdict || { echo "no '$name'" >>out; return 1; }; done
}
node="^node $(uname -n)\$"
gpu='GPU 0 (0000:.*GPU-'
table=$("$TRAINER_ROOT/tools/make-fault-table" | tr -d '`|')
[ "$(wc -l <<<"$table")" -ge 11 ]
ok $? "the table is read"
# wanted KIND: the first row of a kind, or all
kinds=
wanted() { all || [[ " $kinds " != *" $1 "* ]] && kinds="$kinds $1"; }
while read -r error _ code blames _; do
    case $error in nccl*) continue ;; esac
    wanted "cuda,$code,$blames" || continue
    [ "$blames" = yes ] && named=$node || named="$error"
    rm -rf run
    HOSTCUDA_FAIL=cudaGraphLaunch:2:$error fault 1 "$code" "$named" "$error" "$gpu"
    ok $? "$error: code $code"
done <<<"$table"
for error in $(cases cudaErrorIllegalAddress cudaErrorHardwareStackError cudaErrorLaunchFailure); do
    rm -rf run
    HOSTCUDA_FAIL=cudaGraphLaunch:2:$error fault 1 70 "$error" && ! grep -q '^node' run/verdict
    ok $? "$error, which a kernel can cause: code 70"
done

# Of NCCL by the numbers of its header: 1 is an unhandled CUDA error, 4 and 5 are wrong arguments and usage
# RANK RESULT CODE NAMES...
nccl() { HOSTCUDA_NCCL_FAULT=async_error,rank=$1,call=6,result=$2 fault 2 "${@:3}"; }
while read -r error number code blames _; do
    case $error in cuda*) continue ;; esac
    wanted "nccl,$code,$blames" || continue
    rm -rf run
    nccl 1 "$number" "$code" "$error" 'rank 1 of 2' 'GPU 1 (' && { [ "$blames" = no ] || grep -q "$node" run/verdict; }
    ok $? "$error: code $code"
done <<<"$table"
for number in $(cases 4 5); do
    rm -rf run
    nccl 0 $number 70 && ! grep -q '^node' run/verdict
    ok $? "result $number of NCCL: code 70"
done
rm -rf run
nccl 0 1 75 && ! grep -q '^node' run/verdict
ok $? "a CUDA error that NCCL does not name: code 75"
rm -rf run
HOSTCUDA_FAIL=ncclAllReduce:2:cudaErrorNvlinkUncorrectable@1 fault 2 75 cudaErrorNvlinkUncorrectable "$node" 'GPU 1 ('
ok $? "a call of NCCL fails because the GPU did: the code of CUDA's error, the rank's GPU"

# The same fault again: on this node it may be the GPU, on a second node it is the program.
rm -rf run
again() { HOSTCUDA_FAIL=cudaGraphLaunch:$1:cudaErrorECCUncorrectable fault 1 "${@:2}"; }
again 3 75 "$node" && again 3 75 "$node" && [ "$(grep -c '"event":"fault"' run/sessions.jsonl)" = 2 ]
ok $? "the same fault twice on one node: code 75"
ok_records run FAILED
sed -i 's/"node":"[^"]*"/"node":"other"/' run/sessions.jsonl
again 12 75 "$node"
ok $? "the same fault at another step on a second node: code 75"
sed -i '/"node":"other"/!{/"event":"fault"/d}' run/sessions.jsonl
again 3 70 'other had cudaErrorECCUncorrectable at step' && ! grep -q '^node' run/verdict
ok $? "the same fault at the same step on a second node: code 70"
echo "1..$n"
