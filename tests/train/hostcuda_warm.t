#!/usr/bin/env bash
# TEST timeout=300
# The plans of cuDNN on several ranks, on the fakes: each rank restores those it has, and all ranks use those of rank 0.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_warm}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
cat >own <<'SH'
#!/bin/sh
XDG_CACHE_HOME=$PWD/cache$OMPI_COMM_WORLD_RANK exec "$@"
SH
chmod +x own
# some FOLDER SETTING...: steps on two ranks, each with a plan folder of its own
some() {
    local folder=$1; shift
    rm -rf "$folder" trace.*
    HOSTCUDA_DEVICES=2 HOSTCUDA_TRACE=$PWD/trace fakes "$MPIEXEC" -np 2 ./own \
        "$TRAINER" train "$TRAINER_ROOT/configs/mnist_cnn.ini" train.steps=2 threads=1 device=cuda \
        data.format=synthetic data.synthetic_samples=64 data.batch_size=8 data.micro_batch=4 cuda.plan_cache=auto \
        run.dir="$folder" "$@" >out 2>&1
}
# plans RANK: how often the rank finalized an execution plan (5), in whichever way
plans() { grep -c 'cudnnBackendFinalize 5$' "trace.$1"; }
some cold &&
    bits=$(weights cold) &&
    files=$(find cache0 -name '*.plan' | wc -l) && [ "$files" -gt 8 ] &&
    [ "$(find cache1 -name '*.plan' | wc -l)" = "$files" ]
ok $? "no plans: rank 0 makes them, the other takes and keeps them"

some warm && [ "$(weights warm)" = "$bits" ] && [ "$(plans 0)" = "$(plans 1)" ] && [ "$(plans 1)" -le "$files" ]
ok $? "all plans in both folders: each rank restores each once"
damaged=$(grep -la 'convolution backward data' cache1/trainer/cudnn/*.plan | head -n 1)
printf x | dd of="$damaged" bs=1 seek=200 conv=notrunc 2>/dev/null
some damaged && [ "$(weights damaged)" = "$bits" ] && [ "$(plans 1)" -gt "$(plans 0)" ]
ok $? "a damaged plan of rank 1: it begins with its own folder, then takes the plans of rank 0"
rm -rf cache1
some lacking && [ "$(weights lacking)" = "$bits" ] && [ -e cache1 ]
ok $? "rank 1 has none"
echo "1..$n"
