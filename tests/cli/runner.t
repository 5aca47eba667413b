#!/usr/bin/env bash
# The test runner, on stand-in tests: a test that it loses, or a failure that it does not see, would make all the
# others worthless.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/runner}/tests/support/common.sh"

mkdir -p tree/tools tree/tests/unit/m tree/tests/cli b/tests/unit/m
cp "$TRAINER_ROOT"/tools/run-tests "$TRAINER_ROOT"/tools/mpi-env "$TRAINER_ROOT"/tools/mpiexec tree/tools
unit() { # NAME SOURCE PROGRAM
    printf '%b\n' "$2" >tree/tests/unit/m/test_$1.c
    [ -z "${3-}" ] || { printf '#!/bin/sh\n%b\n' "$3" >b/tests/unit/m/test_$1 && chmod +x b/tests/unit/m/test_$1; }
}
script() { printf '%b\n' "$2" >tree/tests/cli/$1.t; }
clear() { rm -f tree/tests/unit/m/* tree/tests/cli/*; }
run() { tree/tools/run-tests b "$@" >out 2>&1; }

unit a '//TEST np=2 A_WORD=1 args=x y\n// TEST np=3\n' \
    'echo "$# $*" >>../../../count; [ "$1" != x ] || [ "$# $A_WORD" = "2 1" ]'
mkdir -p deep && (cd deep && TMPDIR=$PWD ../tree/tools/run-tests ../b >../out 2>&1)
ok $? "every line //TEST is run, with and without a blank"
grep -q '^ok 1 - .*test_a np=2 A_WORD=1 x y' out && grep -q '^ok 2 - .*test_a np=3' out &&
    grep -q '^2 passed, 0 failed, 0 skipped$' out &&
    [ "$(sort deep/count | tr '\n' ' ')" = "0  0  0  2 x y 2 x y " ]
ok $? "with its ranks, environment and arguments"
unit b '' 'echo oops; exit 3'
! run && grep -q '^not ok 3' out && grep -q '^# oops' out && grep -q '^2 passed, 1 failed, 0 skipped$' out
ok $? "a failure is seen and its output shown"
run -k test_a && grep -q '^1..2$' out
ok $? "-k chooses"
! run -k nothing && names out "'nothing'" && ! run -k test_bc
ok $? "nothing run is a failure"
clear
for t in c d; do
    unit $t '' \
        "touch ../../$t; "'for _ in $(seq 600); do [ -e ../../c ] && [ -e ../../d ] && exit 0; sleep 0.05; done; exit 1'
done
run && [ "$(grep -o 'test_. ' out | tr '\n' ' ')" = "test_c  test_d  " ] && grep -q '^2 passed' out
ok $? "two at once, shown in their order"

[ "$(grep -cE '^# +[0-9.]+ s, user [0-9.]+, system [0-9.]+: tests/.*/test_[cd].c$' out)" = 2 ] &&
    tail -n 1 out | grep -q '^2 passed, 0 failed, 0 skipped$'
ok $? "the slowest files, then the result"
unit b '' 'kill -9 $(cut -d" " -f4 /proc/$PPID/stat)'; ! run && grep -q '^not ok' out && grep -q ' 1 failed' out
ok $? "one whose runner is killed is a failure"
clear
unit a '' 'exit 0'
unit b '//TEST\n//TEST timeout=130' 'exit 0'
script c '# TEST timeout=140\necho 1..1; echo ok 1'
run -j 1 && [ "$(grep -oE '^ok .*(test_.|c.t) ' out | sed 's|.*/||' | tr '\n' ' ')" = "c.t  test_b  test_b  test_a  " ]
ok $? "the longest time limit first"
clear
unit c '' 'echo; echo "# skip: no GPU here"; exit 77'
! run && grep -q '^ok 1 .*# SKIP no GPU here$' out && grep -q '^0 passed, 0 failed, 1 skipped$' out
ok $? "a skip says why, and is not a pass"
clear
unit r '' 'echo "a.c:1: runtime error: too far" >"${UBSAN_OPTIONS##*log_path=}.1"'
! run && grep -q '^# .*too far' out && grep -q '1 failed' out
ok $? "a report of a sanitizer is a failure, whatever the exit code"
clear
unit r '' 'echo "WARNING: AddressSanitizer failed to allocate" >"${ASAN_OPTIONS##*log_path=}.1"'
run
ok $? "but not each of its notes"
clear; unit d '//TEST timeout=1' 'sleep 60'; ! run && names out '^#' '1 s'
ok $? "a time limit"
clear; unit e '//TEST np=2' '[ "$OMPI_COMM_WORLD_RANK" != 1 ]'; ! run && grep -q '^not ok 1' out
ok $? "a failing rank"
clear; unit f '//TEST ranks=2' 'true'; ! run && names out "'ranks=2'"; ok $? "a line that cannot be read"
clear; unit g ''; ! run && names out 'make test-programs'; ok $? "a test that is not built"
clear
unit h '' \
    'touch "$TMPDIR/x" && mkdir -m 0 y && [ "$PWD" = "$TMPDIR" ] && [ "${OMP_NUM_THREADS-}${TRAINER_DEVICE-}" = cpu ]'
mkdir -p own && OMP_NUM_THREADS=3 TRAINER_DEVICE=x TMPDIR=$PWD/own run && [ -z "$(ls own)" ]
ok $? "a folder of its own that is gone afterwards, and no settings from outside"

# Something of the first test's still clears up when it is over, as a launcher may: whatever that leaves is not in the
# next one's way.
printf '#!/bin/sh\necho "cannot read a folder that is just being removed" >&2; exit 1\n' >chmod
cp chmod rm
\chmod +x chmod rm
mkdir -p failing && mv chmod rm failing
clear; unit h '//TEST\n//TEST' '[ -z "$(ls -A)" ] && touch x'
PATH=$PWD/failing:$PATH run && grep -q '^2 passed' out
ok $? "an empty folder also where the last one could not be removed"

clear
script a 'echo 1..2; echo ok 1 - a; echo ok 2 - b "# SKIP" none here'
run && names out 'b: none here'
ok $? "a shell test"
clear
script a 'echo 1..2; echo ok 1; echo not ok 2 - bad'
! run && names out '^#' 1 2 && grep -q '^not ok 1' out
ok $? "a shell test that says not ok"
clear
script a 'echo 1..2; echo ok 1'
! run && names out '^#' 1 2 && grep -q '^not ok 1' out
ok $? "one that ends early"
clear; script a 'echo ok 1; exit 0'; ! run && grep -q '^not ok 1' out; ok $? "one without a plan"
clear; script a 'echo 1..0'; ! run && grep -q '^not ok 1' out; ok $? "one with an empty plan"
clear; script a 'echo ok 1; echo 1..1; exit 4'; ! run && names out '^#' 4; ok $? "one that exits with a code"
clear; script a 'echo "1..0 # SKIP no network"'; ! run && grep -q '# SKIP no network' out; ok $? "one that skips"
clear
script a '# TEST timeout=1\necho 1..1; echo ok 1; sleep 60'
! run && names out '^#' '1 s'
ok $? "one over its time limit"

# A shell test that is started by hand says how it is started, and touches nothing.
mkdir hand
for t in $(cd "$TRAINER_ROOT" && find tests -name '*.t'); do
    (cd hand && env -u TRAINER_ROOT -u BUILD bash "$TRAINER_ROOT/$t") >out 2>&1 && echo "$t: code 0"
    [ "$(grep -c "make test k=$(sed 's|^tests/||; s|\.t$||' <<<"$t")$" out)" = 1 ] && [ "$(wc -l <out)" = 1 ] &&
        [ -z "$(ls -A hand)" ] ||
        echo "$t"
done >by-hand
cp by-hand out
[ ! -s by-hand ]
ok $? "a shell test that is started by hand"

# A launcher that crashes as Open MPI's does: behind its report on the job, without one, as often as it is told; and a
# rank that crashes.
cat >launcher <<'SH'
#!/bin/bash
case $1 in
    exit) exit "$2" ;;
    rank) echo "[host:1] *** Process received signal ***" >&2; exit 139 ;;
    signal) trap 'exit 7' "$2"; : >ready; while :; do sleep 0.05; done ;;
    reported) printf '%b\n' "$2" >&2 ;;
    preload) echo "$LD_PRELOAD" >&2; exit 0 ;;
    zero) printf 'a\0b\n' >&2; exit 0 ;;
    hang) sleep 2 & wait; printf '%b\n' "$2" >&2; exec sleep 100 ;;
    first) echo >>"$COUNT"; [ "$(wc -l <"$COUNT")" -gt "$2" ] && exit "$3" ;;
esac
echo "[host:$$] *** Process received signal ***" >&2
kill -SEGV $$
SH
chmod +x launcher
export COUNT=$PWD/tries
launch() {
    rm -f marked tries
    MPIEXEC_REAL=$PWD/launcher MPIEXEC_CRASHED=$PWD/marked "$TRAINER_ROOT"/tools/mpiexec "$@" >out 2>&1
}
launch exit 75
[ $? = 75 ] && [ ! -e marked ] && ! launch exit 3 && launch exit 0
ok $? "tools/mpiexec has the launcher's code"

MPIEXEC_PRELOAD=$fail_lib launch preload && grep -qxF "$fail_lib" out
ok $? "ranks get the library of MPIEXEC_PRELOAD"
launch zero && [ "$(od -An -c out | tr -d ' ')" = 'ab\n' ]; ok $? "its zero bytes are left out"
launch reported 'MPI_ABORT was invoked on rank 1 in communicator X\nwith errorcode 65.'
[ $? = 65 ] && [ ! -e marked ]
ok $? "of one that crashes behind MPI_Abort the job's"
launch reported '  Process name: [[1,1],0]\n  Exit code:    74'; [ $? = 74 ]; ok $? "behind an exit code that one"
launch reported 'mpirun noticed that process rank 0 with PID 0 on node n exited on signal 9 (Killed).'
[ $? = 137 ] && [ ! -e marked ]
ok $? "behind a signal that one"
launch reported 'nothing of use'
[ $? = 139 ] && [ -e marked ]
ok $? "and of one that did not report its own, with a mark"
MPIEXEC_PATIENCE=2 launch hang 'with errorcode 75.'
[ $? = 75 ] && [ ! -e marked ]
ok $? "one that hangs when its ranks are gone is ended: the job's code"
MPIEXEC_PATIENCE=2 launch hang 'nothing of use'
[ $? = 137 ] && [ -e marked ]
ok $? "and with a mark where it reported none"
launch rank; [ $? = 139 ] && [ ! -e marked ]; ok $? "a rank that crashes is not taken for it"
for signal in USR1 INT; do
    rm -f ready
    MPIEXEC_REAL=$PWD/launcher "$TRAINER_ROOT"/tools/mpiexec signal $signal >out 2>&1 & job=$!
    for _ in $(seq 600); do [ -e ready ] && break; sleep 0.05; done
    kill -$signal $job; wait $job; [ $? = 7 ]; ok $? "it hands $signal on"
done
twice() { rm -f tries; MPIEXEC_REAL=$PWD/launcher run; }
clear
script a 'echo 1..1; "$MPIEXEC" first 2 0 && echo ok 1 || echo not ok 1'
twice && grep -q '^ok 1 .*# try 3' out
ok $? "a test is run again behind such a crash, and its line says so"

clear
script a 'echo 1..1; "$MPIEXEC" first 9 0 && echo ok 1 || echo not ok 1'
! twice && [ "$(wc -l <tries)" = 3 ]
ok $? "three times at most"
clear
script a 'echo 1..1; "$MPIEXEC" first 1 5 && echo ok 1 || echo not ok 1'
! twice && [ "$(wc -l <tries)" = 2 ]
ok $? "and a failure of the program's stays one"
clear
unit i '//TEST np=2' 'true'
(
    export MPIEXEC_REAL=$PWD/crashing
    printf '#!/bin/sh\nexec %s/launcher first 1 0\n' "$PWD" >crashing && chmod +x crashing
    rm -f tries
    run
) &&
    grep -q '^ok 1 .*# try 2' out
ok $? "units too"
echo "1..$n"
