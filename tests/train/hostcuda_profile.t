#!/usr/bin/env bash
# TEST timeout=240
# profile.steps on device cuda, on the fakes of the CUDA libraries: events of the device make the timelines of two
# ranks, captured steps are traced op by op with the same results, and a rank that waits for a late all-reduce is seen.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_profile}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
# train RUN ARGUMENTS...: two ranks with two micro-batches each
train() {
    HOSTCUDA_DEVICES=2 fakes "$MPIEXEC" -np 2 "$TRAINER" train "$TRAINER_ROOT/configs/mnist_mlp.ini" device=cuda \
        threads=1 data.format=synthetic data.synthetic_samples=256 data.batch_size=16 data.micro_batch=4 \
        train.steps=18 train.valid_every=0 checkpoint.every=0 schedule.warmup=0 run.dir="$1" "${@:2}" >out 2>&1
}
train plain && HOSTCUDA_NCCL_FAULT="late,rank=1,call=15,ms=300" train traced profile.steps=11:16 &&
    [ "$(state plain)" = "$(state traced)" ]
ok $? "a profile changes no bit"
python3 "$TRAINER_ROOT/tests/support/check_trace.py" traced/profile 2 11 16 >out &&
    grep -q '"cat":"copy to device"' traced/profile/trace-r0001.json &&
    grep -q '"ops":"uncaptured"' traced/profile/trace-r0001.json
ok $? "two timelines: tracks, steps and buckets agree"
# The rank that is not late waits for the other one; the late one may spend the time before its own call.
json "a['ops_are_uncaptured'] and max(r['wait_ms'] for r in a['ranks']) > 30 and a['buckets'][0]['bytes'] > 8e5" \
    traced/profile/profile.json
ok $? "a late all-reduce is seen by the rank that waits"
echo "1..$n"
