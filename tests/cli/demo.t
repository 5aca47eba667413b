#!/usr/bin/env bash
# tools/demo ends well only where the network learnt: run with stand-ins for the program and the launcher.
set -u
. "$TRAINER_ROOT/tests/support/names.sh"
n=0
result() { # STATUS NAME
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/#   /' out; fi
}
mkdir tools b
cp "$TRAINER_ROOT/tools/demo" "$TRAINER_ROOT/tools/mpi-env" tools
printf '#!/bin/sh\nshift 2; exec "$@"\n' >mpirun
cat >b/trainer <<'END'
#!/bin/sh
case $1 in import | generate) exit 0 ;; esac
for a; do case $a in run.dir=*) run=${a#run.dir=} ;; esac; done
mkdir -p "$run"
[ -z "$FAKE_ACCURACY" ] || printf '{\n  "valid_accuracy": 0.99,\n  "test_accuracy": %s,\n  "x": 1\n}\n' "$FAKE_ACCURACY" >"$run/summary.json"
END
chmod +x mpirun b/trainer
demo() { FAKE_ACCURACY=$1 MPIEXEC=$PWD/mpirun tools/demo b >out 2>&1; }

demo 0.973 && names out '97.30 %'
result $? "a network that learnt"
! demo 0.5 && names out 0.5 0.9 'runs/demo-[^ ]*/log.txt'
result $? "one that did not"
! demo nan
result $? "an accuracy that is no number"
! demo ""
result $? "no summary"
echo "1..$n"
