#!/usr/bin/env bash
# TEST timeout=60
# Registers, spills and shared memory of the CUDA kernels, as ptxas reported them in this build, against the table of
# its nvcc: tests/golden/kernel_resources. `make kernel-resources` writes the table.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/kernel_resources}/tests/support/common.sh"
command -v c++filt >/dev/null || { echo "1..0 # SKIP no c++filt"; exit 0; }
tool=$TRAINER_ROOT/tools/kernel-resources
# A build of two kernels, by an nvcc of version 9.9.9
mkdir -p made/src/device/cuda/kernels
printf '#!/bin/sh\necho "Cuda compilation tools, release 9.9, V9.9.9"\n' >nvcc
chmod +x nvcc
# said REGISTERS SPILLED: what ptxas prints
said() {
    for kernel in _Z5firstIfLi4EEvPKT_ _Z6secondi; do
        echo "ptxas info    : Compiling entry function '$kernel' for 'sm_90'"
        echo "ptxas info    : Function properties for $kernel"
        echo "    0 bytes stack frame, $2 bytes spill stores, $2 bytes spill loads"
        echo "ptxas info    : Used $1 registers, used 1 barriers, 1024 bytes smem"
    done >made/src/device/cuda/kernels/cuda_made.cu.ptxas
}
check() { NVCC=$PWD/nvcc "$tool" --check made table >out 2>&1; }
line() { printf 'sm_90\tcuda_made\t%s\t40\t0\t1024\t256\t48/64\n' "$1"; }
said 40 0
check; [ $? = 77 ] && grep -q '9\.9\.9' out
ok $? "no table for this nvcc: said, and not an error"
{ line 'first<float, 4>'; line second; } >table
check && [ ! -s out ] && said 44 0 && check
ok $? "as in the table, and up to 10 % more registers"
said 45 0
check; [ $? = 1 ] && grep -qF 'first<float, 4>: 45 registers, 40 in' out && grep -q 'make kernel-resources' out
ok $? "over 10 % more registers"
said 40 8
check; [ $? = 1 ] && grep -q 'second: spills 8 bytes' out
ok $? "a spill"
said 40 0
line second >table
check; [ $? = 1 ] && grep -qF 'first<float, 4>: not in the table' out
ok $? "a kernel that the table lacks"

if [ ! -e "$BUILD/src/device/cuda/kernels/cuda_rows.cu.ptxas" ]; then
    skip "the kernels of this build" "built without nvcc"
else
    "$tool" --check "$BUILD" >out 2>&1
    case $? in
    0) ok 0 "the kernels of this build $(tr '\n' ' ' <out)" ;;
    77) skip "the kernels of this build" "$(tail -n 1 out)" ;;
    *) ok 1 "the kernels of this build" ;;
    esac
fi
echo "1..$n"
