#!/usr/bin/env bash
# TEST timeout=200
# cuda.tune on the fakes: the fastest algorithm is used, it is kept in cuda.plan_cache, and all ranks use the one of
# rank 0. Engines that are not deterministic are for cuda.deterministic = no.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_tune}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
unset TRAINER_DEVICE # the configuration has it
cat >net.ini <<'INI'
device = cuda
threads = 1
[model]
layers = conv 8 3 pad=same bias=no, relu, flatten, linear 8, relu, linear 4
[data]
train = none
format = synthetic
synthetic_shape = 8x8x8
synthetic_samples = 64
classes = 4
batch_size = 8
micro_batch = 4
[train]
steps = 6
valid_every = 0
[checkpoint]
every = 0
INI
# run RANKS SETTING...: into out and trace.RANK. SLOW_OF_1: what is slow on rank 1
run() {
    local ranks=$1
    shift
    rm -rf run trace*
    HOSTCUDA_DEVICES=$ranks HOSTCUDA_TRACE=$PWD/trace \
        fakes "$MPIEXEC" -np "$ranks" ./rank "$TRAINER" train net.ini run.dir=run "$@" >out 2>&1
}
cat >rank <<'SH'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" != 1 ] || [ -z "${SLOW_OF_1-}" ] || export HOSTCUDA_SLOW_ALGORITHM="$SLOW_OF_1"
exec "$@"
SH
chmod +x rank
# The algorithm of the last product with a sum of 512, and the engine of the last plan of cuDNN, of rank R
algorithm() { grep '^cublasLtMatmul .* k 512 ' "trace.$1" | tail -n 1 | sed 's/.*algorithm \([0-9]*\).*/\1/'; }
engine() { grep '^cudnnBackendExecute ' "trace.$1" | tail -n 1 | sed 's/.*engine \([0-9]*\).*/\1/'; }
calls() { grep -c '^cublasLtMatmul \|^cudnnBackendExecute ' trace.0; }

run 1 capture=no
ok $? "without cuda.tune"
first="$(algorithm 0) $(engine 0)" untimed=$(calls)
HOSTCUDA_SLOW_ALGORITHM=${first% *} HOSTCUDA_SLOW_ENGINE=${first#* } run 1 capture=no cuda.tune=yes \
    cuda.plan_cache="$PWD/plans"
ok $? "with cuda.tune"
tuned="$(algorithm 0) $(engine 0)"
[ "${tuned% *}" != "${first% *}" ] && [ "${tuned#* }" != "${first#* }" ] && [ "$(calls)" -gt "$untimed" ]
ok $? "the first suggestion ($first) is slow here: another one is used ($tuned)"
run 1 capture=no cuda.tune=yes cuda.plan_cache="$PWD/plans"
ok $? "again"
[ "$(algorithm 0) $(engine 0)" = "$tuned" ] && [ "$(calls)" = "$untimed" ]
ok $? "the choice is kept, and nothing is timed"
HOSTCUDA_FAIL=cudaEventElapsedTime:1+ run 1 capture=no cuda.tune=yes cuda.plan_cache="$PWD/untimed" &&
    names out 'cuda.tune & timed' && [ "$(algorithm 0) $(engine 0)" = "$first" ] &&
    [ "$(($(ls untimed | wc -l) + $(grep -c 'cuda.tune: ' out)))" = "$(ls plans | wc -l)" ]
ok $? "where nothing can be timed, the first is used and not kept"
run 1 capture=no cuda.plan_cache="$PWD/plans"
[ "$(algorithm 0) $(engine 0)" = "$first" ]
ok $? "cuda.tune = no does not use it"
# Of the engines of a filter gradient in f32, 3 is not deterministic; 1 and 0 are. A run has 12 filter gradients.
export HOSTCUDA_SLOW_ENGINE=1,0
disorderly() { grep -c '^cudnnBackendExecute .*engine 3$' trace.0; }
run 1 capture=no cuda.tune=yes cuda.deterministic=no cuda.plan_cache="$PWD/plans" &&
    run 1 capture=no cuda.tune=yes cuda.deterministic=no cuda.plan_cache="$PWD/plans" && [ "$(disorderly)" = 12 ]
ok $? "cuda.deterministic = no: the fastest engine is not deterministic, and is used"
run 1 capture=no cuda.tune=yes cuda.plan_cache="$PWD/plans" && [ "$(disorderly)" = 0 ]
ok $? "yes does not use it"
run 1 capture=no cuda.tune=yes cuda.plan_cache=none && [ "$(disorderly)" = 0 ]
ok $? "nor does it time it"
unset HOSTCUDA_SLOW_ENGINE
HOSTCUDA_SLOW_ALGORITHM=${first% *} SLOW_OF_1=${tuned% *} run 2 capture=no cuda.tune=yes cuda.plan_cache=none
ok $? "two ranks"
[ "$(algorithm 0)" = "${tuned% *}" ] && [ "$(algorithm 1)" = "${tuned% *}" ]
ok $? "rank 1 uses the algorithm of rank 0, though another is faster there"
echo "1..$n"
