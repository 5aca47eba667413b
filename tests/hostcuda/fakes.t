#!/usr/bin/env bash
# TEST timeout=400
# The tests of the fakes themselves. Skipped in a build without the CUDA toolkit.
. "${TRAINER_ROOT:?is set by the runner: make test k=hostcuda/fakes}/tests/support/common.sh"
programs=$(ls "$BUILD"/hostcuda/tests/hostcuda/test_* 2>/dev/null | grep -v '\.[a-z]*$')
[ -n "$programs" ] || { echo "1..0 # SKIP built without the CUDA toolkit"; exit 0; }
for program in $programs "$BUILD"/hostcuda/real_link; do
    [ -x "$program" ] || continue
    timeout 120 "$TRAINER_ROOT/tests/hostcuda/run" -O "$BUILD" "$program" >out 2>&1
    ok $? "${program##*/}"
done
echo "1..$n"
