#!/usr/bin/env bash
# The test runner, on stand-in tests: a test that it loses, or a failure that it does not see, would make all the others worthless.
set -u
n=0
result() { # STATUS NAME
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/#   /' out; fi
}
mkdir -p tree/tools tree/tests/unit/m tree/tests/cli b/tests/unit/m
cp "$TRAINER_ROOT"/tools/run-tests "$TRAINER_ROOT"/tools/mpi-env tree/tools
unit() { # NAME SOURCE PROGRAM
    printf '%b\n' "$2" >tree/tests/unit/m/test_$1.c
    [ -z "${3-}" ] || { printf '#!/bin/sh\n%b\n' "$3" >b/tests/unit/m/test_$1 && chmod +x b/tests/unit/m/test_$1; }
}
script() { printf '%b\n' "$2" >tree/tests/cli/$1.t; }
clear() { rm -f tree/tests/unit/m/* tree/tests/cli/*; }
run() { tree/tools/run-tests b "$@" >out 2>&1; }

unit a '//TEST np=2 A_WORD=1 args=x y\n// TEST np=3\n' 'echo "$# $*" >>../../count; [ "$1" != x ] || [ "$# $A_WORD" = "2 1" ]'
mkdir -p deep && (cd deep && TMPDIR=$PWD ../tree/tools/run-tests ../b >../out 2>&1)
result $? "every line //TEST is run, with and without a blank"
grep -q '^ok 1 - .*test_a np=2 A_WORD=1 x y' out && grep -q '^ok 2 - .*test_a np=3' out && grep -q '^2 passed, 0 failed, 0 skipped$' out && [ "$(sort deep/count | tr '\n' ' ')" = "0  0  0  2 x y 2 x y " ]
result $? "with its ranks, environment and arguments"
unit b '' 'echo oops; exit 3'
! run && grep -q '^not ok 3' out && grep -q '^# oops' out && grep -q '^2 passed, 1 failed, 0 skipped$' out
result $? "a failure is seen and its output shown"
run -k test_a && grep -q '^1..2$' out
result $? "-k chooses"
! run -k nothing && grep -q 'nothing was run' out && ! run -k test_bc
result $? "nothing run is a failure"
clear; unit c '' 'echo; echo "# skip: no GPU here"; exit 77'; ! run && grep -q '^ok 1 .*# SKIP no GPU here$' out && grep -q '^0 passed, 0 failed, 1 skipped$' out
result $? "a skip says why, and is not a pass"
clear; unit d '//TEST timeout=1' 'sleep 60'; ! run && grep -q 'time limit of 1 s' out
result $? "a time limit"
clear; unit e '//TEST np=2' '[ "$OMPI_COMM_WORLD_RANK" != 1 ]'; ! run && grep -q '^not ok 1' out
result $? "a failing rank"
clear; unit f '//TEST ranks=2' 'true'; ! run && grep -q "cannot read 'ranks=2'" out; result $? "a line that cannot be read"
clear; unit g ''; ! run && grep -q 'not built' out; result $? "a test that is not built"
clear; unit h '' 'touch "$TMPDIR/x" && mkdir -m 0 y && [ "$PWD" = "$TMPDIR" ] && [ -z "${OMP_NUM_THREADS-}" ] && [ -z "${TRAINER_DEVICE-}" ]'
mkdir -p own && OMP_NUM_THREADS=3 TRAINER_DEVICE=x TMPDIR=$PWD/own run && [ -z "$(ls own)" ]; result $? "a folder of its own that is gone afterwards, and no settings from outside"

clear; script a 'echo 1..2; echo ok 1 - a; echo ok 2 - b "# SKIP" none here'; run && grep -q 'skipped in it: b: none here' out; result $? "a shell test"
clear; script a 'echo 1..2; echo ok 1; echo not ok 2 - bad'; ! run && grep -q '1 of 2 not ok' out; result $? "a shell test that says not ok"
clear; script a 'echo 1..2; echo ok 1'; ! run && grep -q '1 of 2 planned' out; result $? "one that ends early"
clear; script a 'echo ok 1; exit 0'; ! run && grep -q 'no plan' out; result $? "one without a plan"
clear; script a 'echo 1..0'; ! run && grep -q 'plan is empty' out; result $? "one with an empty plan"
clear; script a 'echo ok 1; echo 1..1; exit 4'; ! run && grep -q 'exit code 4' out; result $? "one that exits with a code"
clear; script a 'echo "1..0 # SKIP no network"'; ! run && grep -q '# SKIP no network' out; result $? "one that skips"
clear; script a '# TEST timeout=1\necho 1..1; echo ok 1; sleep 60'; ! run && grep -q 'time limit of 1 s' out; result $? "one over its time limit"
echo "1..$n"
