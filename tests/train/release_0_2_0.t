#!/usr/bin/env bash
# TEST timeout=60
# Two run folders of release 0.2.0, a table and u8 images, both with adamw and a moving average of the weights: this
# program resumes them, evaluates them, predicts with them, and ends where 0.2.0 did. Made by 0.2.0 with
# `trainer import csv rows.csv table.h5`, `trainer import synthetic images pictures.h5 --samples 64 --shape 8x8x3
# --classes 4`, `trainer table.ini`, `trainer pictures.ini` and `trainer predict table predict.csv predicted.csv`; the
# losses below are those of 32 steps of 0.2.0.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/release_0_2_0}/tests/support/common.sh"
cp -r "$TRAINER_ROOT/tests/golden/run-0.2.0" old && chmod -R u+w old && cd old || exit

# close FILE FILE: CSV files of the same texts, and of numbers within rounding
close() {
    python3 -I - "$@" <<'PY'
import csv, sys
a, b = [list(csv.reader(open(f))) for f in sys.argv[1:]]
def same(s, t):
    try: return abs(float(s) - float(t)) < 1e-5
    except ValueError: return s == t
sys.exit(len(a) != len(b) or not all(len(p) == len(q) and all(map(same, p, q)) for p, q in zip(a, b)))
PY
}

call 0 predict table predict.csv now.csv && close now.csv predicted.csv
ok $? "the table's rows are predicted as by 0.2.0"
call 0 import csv rows.csv again.h5 && call 0 eval table --split train data.train=again.h5 data.valid_fraction=0
ok $? "the same rows, imported again, fit its checkpoint"
call 0 eval pictures --json eval.json && json 'abs(a["loss"] - 1.12275) < 1e-4 and a["accuracy"] == 0.8' eval.json
ok $? "the images are evaluated as by 0.2.0"

cp -r pictures pictures.shared
ends() { # RUN LOSS VALID_LOSS LAUNCHER...
    "${@:4}" "$TRAINER" "${1%.*}.ini" run.dir="$1" train.steps=32 >out 2>&1 && resumed step-00000020 &&
        json "a['steps'] == 32 and abs(a['loss'] - $2) < 1e-4 and abs(a['valid_loss'] - $3) < 1e-4" "$1/summary.json"
}
ends table 0.596075803 0.661105275 env
ok $? "the table's run resumes and ends as with 0.2.0"
ends pictures 1.12212101 0.9894876 env
ok $? "the run of images resumes and ends as with 0.2.0"
ends pictures.shared 1.12212101 0.9894876 "$MPIEXEC" -np 2 -x TRAINER_PARALLEL_ZERO=1
ok $? "and on 2 ranks that share the optimizer's state"
# Keys that are gone: saved configurations have them.
"$TRAINER" plan table.ini run.dir=table cuda.conv_stats=yes >out 2>&1 && grep -q 'warning: .*cuda.conv_stats' out &&
    ! "$TRAINER" plan table.ini run.dir=table cuda.conv_stats=no 2>&1 | grep cuda.conv_stats
ok $? "a key that has no effect any more is a warning, its default is none"
echo "1..$n"
