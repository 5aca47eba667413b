#!/usr/bin/env bash
# TEST timeout=120
# Splits that do not belong together: labels with other values, inputs and targets in other units, samples in order.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/splits}/tests/support/common.sh"
# table NAME ROWS FIRST STEP CLASSES [SCALE [SORTED]]: a class k of the rows has the label FIRST + STEP k
table() {
    awk -v rows="$2" -v first="$3" -v step="$4" -v classes="$5" -v scale="${6-1}" -v sorted="${7-}" '
        BEGIN {
            srand(rows + scale)
            print "a,b,label"
            for (i = 0; i < rows; i++) {
                k = sorted ? int(i * classes / rows) : i % classes
                printf "%g,%g,%d\n", scale * (k + rand()), scale * rand(), first + step * k
            }
        }' >"$1.csv"
    "$TRAINER" import csv "$1.csv" "$1.h5" >out 2>&1 || { cat out; exit 1; }
}
cat >net.ini <<'END'
threads = 1
[model]
layers = linear 8, relu, linear 2
[data]
batch_size = 16
micro_batch = 8
[train]
steps = 2
END
# plan NAME NAME ARGUMENTS...: with one table to train on, and the other one for validation
plan() { "$TRAINER" plan net.ini data.train="$1.h5" data.valid="$2.h5:train" "${@:3}" >out 2>&1; }
refused() { [ $? = "$1" ] && once out "trainer: error & $2"; }

table zero 200 0 1 2; table grey 60 0 9 2; table ten 400 0 1 10; table one 100 1 1 10; table some 60 0 1 2
plan zero grey
refused 65 "data.valid & grey.h5 & 0, 9 & data.train & zero.h5 & 0, 1 & 30 & 60 & data.classes = 10"
ok $? "0 and 1 in the training data, 0 and 9 in the validation data"
plan one ten "model.layers=linear 11"; refused 65 "data.valid & 0 to 9 & data.train & 1 to 10 & 40 & 400"
ok $? "labels from 1 on, and from 0 on"
plan ten one "model.layers=linear 10"; refused 65 "data.valid & 1 to 10 & data.train & 0 to 9 & 10 & 100"
ok $? "and the other way around"
plan ten some data.classes=10 "model.layers=linear 10" && ! grep -q "warning.*labels" out
ok $? "fewer classes in the validation data are no mistake"
plan some ten data.classes=10 "model.layers=linear 10" && once out "warning & data.valid & 320 & 400 & 0 to 9 & 0, 1"
ok $? "data.classes says that the training data lack classes"
plan zero ten data.label_values=0,1; refused 65 "data.valid & ten.h5 & data.label_values"
ok $? "a label that is not in data.label_values: which split has it"

import() { "$TRAINER" import csv "$@" >out 2>&1; }
{ echo a,b,label; grep ',1$' zero.csv; } >alone.csv && import alone.csv alone.h5 &&
    plan zero alone && once out "warning & data.valid & alone.h5 & 1 & data.train"
ok $? "one class in the validation data"

# What y is, if it is classes in one file and numbers in the other.
sed 's/,1$/,1.5/' zero.csv >half.csv && import half.csv half.h5 && plan zero half
refused 65 "data.valid & half.h5 & y f32 (1) & data.train & y i32 () & 2 classes & data.classes"
ok $? "an error about y names it"

table wide 200 0 1 2 255
plan zero wide && once out "warning & wide.h5 & inputs" && plan wide zero &&
    once out "warning & zero.h5 & inputs"
ok $? "inputs in other units"
awk -F, -v OFS=, 'NR > 1 { $4 = 5 + $2 / 7 } NR == 1 { $4 = "y" } 1' zero.csv >y.csv
awk -F, -v OFS=, 'NR > 1 { $4 = 1000 * $4 + 7 } 1' y.csv >far.csv
for f in y far; do import $f.csv $f.h5 --drop label --label y --regression; done
plan y far "model.layers=linear 1" && once out "warning & far.h5 & targets" &&
    plan y y "model.layers=linear 1" && ! grep -q "warning.*targets" out
ok $? "targets in other units"
plan y far "model.layers=linear 1, relu" && once out "warning & model.layers & relu & data.target_mean = 0" &&
    plan zero some "model.layers=linear 2, sigmoid" && once out "warning & model.layers & sigmoid"
ok $? "an activation behind the last layer"

call 0 net.ini run.dir=run data.train=zero.h5 && import wide.csv new.h5 --label none --drop label &&
    call 0 predict run new.h5 p.csv && once err "warning & new.h5 & inputs" &&
    call 0 eval run data.test=wide.h5:train && once err "warning & wide.h5 & inputs" &&
    import some.csv new.h5 --label none --drop label --force &&
    call 0 predict run new.h5 p.csv --force && ! grep -q warning err
ok $? "inputs to predict in other units"

table sorted 800 0 1 4 1 sorted
plan sorted sorted data.valid= data.shuffle=0 "model.layers=linear 4" &&
    once out "warning & sorted & data.shuffle = 0 & data.block" &&
    plan sorted sorted data.valid= "model.layers=linear 4" && ! grep -q "warning.*sorted" out
ok $? "samples sorted by label that are not shuffled"
# Texts with as many characters, but other ones.
cat >gpt.ini <<'END'
[model]
type = gpt
n_layer = 1
n_head = 1
n_embd = 8
context = 8
[data]
batch_size = 2
micro_batch = 2
[train]
steps = 1
END
for f in abc xyz; do
    yes "$f" | head -n 100 >$f.txt && "$TRAINER" import text $f.txt $f.h5 --tokenizer chars >out 2>&1
done
call 65 plan gpt.ini data.train=abc.h5 data.valid=xyz.h5 &&
    once err "trainer: error & data.valid & xyz.h5 & data.train & --tokenizer" &&
    call 0 gpt.ini run.dir=abc data.train=abc.h5 && ! grep -q warning.*tokenizer err &&
    call 0 gpt.ini run.dir=xyz data.train=xyz.h5 model.init=abc && once err "warning & model.init & xyz.h5 & abc"
ok $? "tokens of another tokenizer"
echo "1..$n"
