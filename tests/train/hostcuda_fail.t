#!/usr/bin/env bash
# TEST timeout=400
# A call of the CUDA libraries fails, at some places of a short training on the fakes; tools/test-all takes every place.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_fail}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
"$TRAINER_ROOT/tests/hostcuda/fail_each" "$BUILD" 1 20 >out 2>&1
ok $? "1 rank: code, error, nothing left"

"$TRAINER_ROOT/tests/hostcuda/fail_each" "$BUILD" 2 6 >out 2>&1
ok $? "2 ranks: code, error"
echo "1..$n"
