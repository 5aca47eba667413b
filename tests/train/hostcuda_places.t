#!/usr/bin/env bash
# TEST timeout=300
# Where GPUs are, and names for profilers, on the fakes of the CUDA libraries: rows of info, findings of doctor,
# ranges, hangs of NCCL.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_places}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
mlp="$TRAINER_ROOT/configs/mnist_mlp.ini threads=1
    data.format=synthetic data.synthetic_samples=64 data.batch_size=8 data.micro_batch=4"

HOSTCUDA_DEVICES=4 HOSTCUDA_NUMA=1 HOSTCUDA_NEAR=0 fakes "$TRAINER" info >out 2>&1 &&
    [ "$(grep -c 'near cores 0; 18 NVLinks' out)" = 4 ] && grep -Eq '^    P2P +6 of 6 pairs .*6 by NVLink' out &&
    ! grep -q '^    visible' out
ok $? "info: cores near each GPU, NVLinks, pairs with P2P"
HOSTCUDA_DEVICES=4 HOSTCUDA_NO_P2P=1 CUDA_VISIBLE_DEVICES=2 fakes "$TRAINER" info >out 2>&1 &&
    grep -Eq '^    P2P +2 of 6 pairs .*0-2, 0-3, 1-2, 1-3' out && grep -Eq '^    visible +1 of 4 ' out
ok $? "info: pairs without P2P; hidden GPUs"
HOSTCUDA_DEVICES=2 fakes env LD_LIBRARY_PATH="$BUILD/hostcuda/nvml_old:$BUILD/hostcuda" "$TRAINER" info >out 2>&1
grep -q '^    GPU 1 .*H200' out && grep -q 'near cores ?; ? NVLinks' out && ! grep -q ' P2P ' out
ok $? "info: a driver without some functions of NVML; the rest is reported"
# doctor RANKS: its findings about GPUs
doctor() { fakes "$MPIEXEC" -np "$1" "$TRAINER" doctor run.dir=d device=cuda --json doctor.json >out 2>&1; }
HOSTCUDA_DEVICES=2 doctor 2
grep -q '"gpus"' doctor.json && ! grep -q -- --gpus-per-task out
ok $? "doctor: ranks near their GPUs, which see each other"
core=$(($(nproc --all) + 100))
HOSTCUDA_DEVICES=2 HOSTCUDA_NEAR=$core doctor 2
grep -q "near cores $core" out && grep -q 'rank 0' out
ok $? "doctor: a rank whose cores are far from its GPU"
# Two cores that this test may use; each rank has one, and the GPUs are near them in the other order.
read -r low high < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0))[:2])')
cat >pin <<SH
#!/bin/sh
[ "\$OMPI_COMM_WORLD_LOCAL_RANK" = 0 ] && core=$low || core=${high-}
exec taskset -c "\$core" "\$@"
SH
chmod +x pin
if [ -n "${high-}" ]; then
    HOSTCUDA_DEVICES=2 HOSTCUDA_NEAR=$high,$low HOSTCUDA_TRACE=trace fakes "$MPIEXEC" -np 2 --bind-to none ./pin \
        "$TRAINER" doctor run.dir=d device=cuda >out 2>&1 && ! grep -q 'warning *gpus' out &&
        grep -qx 'cudaSetDevice 1' trace.0 && grep -qx 'cudaSetDevice 0' trace.1
    ok $? "each rank takes the GPU near its cores"
else
    skip "each rank takes the GPU near its cores" "one core"
fi
cat >bind <<'SH'
#!/bin/sh
CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec "$@"
SH
chmod +x bind
HOSTCUDA_DEVICES=2 fakes "$MPIEXEC" -np 2 ./bind "$TRAINER" doctor run.dir=d device=cuda >out 2>&1
grep -q '1 of 2 GPUs' out && grep -q -- --gpus-per-task out
ok $? "doctor: ranks that do not see each other's GPUs"

if [ -e "$BUILD/hostcuda/libnvtx_log.so" ]; then
    # shellcheck disable=SC2086
    NVTX_INJECTION64_PATH=$BUILD/hostcuda/libnvtx_log.so fakes "$TRAINER" train $mlp device=cuda capture=no \
        cuda.debug=nvtx train.steps=2 run.dir=r >out 2>&1 &&
        [ "$(grep -c '^nvtx: conv\|^nvtx: matmul linear1' out)" -ge 6 ] && ! grep -q '^nvtx:  ' out
    ok $? "ranges have the names of ops and layers, and end"
    # shellcheck disable=SC2086
    NVTX_INJECTION64_PATH=$BUILD/hostcuda/libnvtx_log.so fakes "$TRAINER" train $mlp device=cuda train.steps=1 \
        run.dir=s >out 2>&1 &&
        ! grep -q '^nvtx:' out
    ok $? "no ranges unless asked for"
fi
# shellcheck disable=SC2086
HOSTCUDA_DEVICES=2 HOSTCUDA_NCCL_FAULT=late,rank=1,call=3,ms=60000 fakes "$MPIEXEC" -np 2 "$TRAINER" bench step \
    $mlp device=cuda parallel.timeout=5s >out 2>&1
[ $? = 75 ] && grep -q "error: NCCL: collective .* of 2 " out
ok $? "no watchdog: a collective that hangs ends with code 75"
echo "1..$n"
