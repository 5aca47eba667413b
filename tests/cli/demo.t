#!/usr/bin/env bash
# tools/demo ends well only where the network learnt: run with stand-ins for the program and the launcher.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/demo}/tests/support/common.sh"

mkdir tools b
cp "$TRAINER_ROOT/tools/demo" "$TRAINER_ROOT/tools/demo-stories" "$TRAINER_ROOT/tools/mpi-env" tools
printf '#!/bin/sh\nshift 2; exec "$@"\n' >mpirun
cat >b/trainer <<'END'
#!/bin/sh
case $1 in import) exit 0 ;; generate) echo 'One day a small fox mept to the river. It w'; exit 0 ;; esac
for a; do case $a in run.dir=*) run=${a#run.dir=} ;; esac; done
mkdir -p "$run"
[ -n "$FAKE_ACCURACY" ] || exit 0
printf '{\n  "valid_accuracy": 0.99,\n  "test_accuracy": %s,\n  "x": 1\n}\n' "$FAKE_ACCURACY" >"$run/summary.json"
END
chmod +x mpirun b/trainer
demo() { FAKE_ACCURACY=$1 MPIEXEC=$PWD/mpirun tools/demo b >out 2>&1; }

demo 0.973 && names out '97.30 % & 9 of the 10 words'
ok $? "a network that learnt; the words of the story, but for the last one, are counted"
! demo 0.5 && names out 0.5 0.9 'runs/demo-[^ ]*/log.txt'
ok $? "one that did not"
! demo nan
ok $? "an accuracy that is no number"
! demo ""
ok $? "no summary"
echo "1..$n"
