#!/usr/bin/env bash
# trainer eval: what it prints against itself, against the run's own numbers, for any number of ranks, and what it
# refuses. How predict ends by a signal.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/eval}/tests/support/common.sh"

on() { local ranks=$1; shift; "$MPIEXEC" -np "$ranks" "$TRAINER" "$@" >out 2>err; }
# value KEY FILE: of the top level of a JSON file written one key a line
value() { sed -n "s/^ *\"$1\": \([^,]*\),*$/\1/p" "$2" | head -n 1; }
near() {
    awk -v a="$1" -v b="$2" -v most="$3" \
        'BEGIN { d = a - b; if (d < 0) d = -d; s = b < 0 ? -b : b; exit !(a != "" && b != "" && d <= most * s) }'
}

cat >net.ini <<'INI'
threads = 1
[model]
layers = conv 4 3x3 pad=same, batchnorm, relu, flatten, linear 10
topk = 3
[data]
format = synthetic
synthetic_samples = 2000
synthetic_shape = 8x8x1
batch_size = 48
micro_batch = 8
[optimizer]
lr = 0.001
[train]
steps = 6
valid_every = 3
[checkpoint]
every = 3
INI
call 0 net.ini run.dir=run && [ -e run/checkpoints/step-00000003 ] && [ -e run/checkpoints/step-00000006 ]
ok $? "a run to evaluate"
ok_keys summary run/summary.json "$at_times"
ok_keys metrics run/metrics.jsonl "$at_times"
ok_keys sessions run/sessions.jsonl
ok_records run TOPK
ok_keys checkpoint run/checkpoints/step-00000006/state.json

call 0 eval net.ini run/checkpoints/step-00000006 --json one.json && cp out one && names out '^weights' step-00000006 6
ok $? "eval of a checkpoint"
ok_keys eval_classes one.json
call 0 eval net.ini run/checkpoints/step-00000006 --json - && cmp -s <(tr -d ' \n' <out) <(tr -d ' \n' <one.json) &&
    [ ! -e - ]
ok $? "--json -: the same on standard output, and nothing else there"
near "$(value loss one.json)" "$(value test_loss run/summary.json)" 1e-6 &&
    near "$(value accuracy one.json)" "$(value test_accuracy run/summary.json)" 1e-12 &&
    near "$(value accuracy one.json)" 0.5 0.9
ok $? "loss and accuracy are the run's own: $(value loss one.json) and $(value accuracy one.json)"

# The table again, from the matrix.
awk 'NF == 10 && $1 == 0 && $10 == 9 { on = 1; next }
     on && NF == 11 {
         for (k = 0; k < 10; k++) {
             c = $(k + 2) == "." ? 0 : $(k + 2)
             support[$1] += c; predicted[k] += c; all += c
             if (k == $1) { hits[k] = c; right += c }
         }
         rows++
     }
     !on && /^accuracy/ { accuracy = $2 } !on && /^samples/ { samples = $2 }
     !on && NF == 5 && /^[0-9]/ { p[$1] = $2; r[$1] = $3; f[$1] = $4; s[$1] = $5; table++ }
     function differs(a, b) { return a - b > 6e-5 || b - a > 6e-5 }
     END {
         for (i = 0; i < 10; i++) {
             wp = predicted[i] ? hits[i] / predicted[i] : 0; wr = support[i] ? hits[i] / support[i] : 0
             wf = wp + wr ? 2 * wp * wr / (wp + wr) : 0
             if (s[i] != support[i] || differs(p[i], wp) || differs(r[i], wr) || differs(f[i], wf)) {
                 print "class " i
                 bad = 1
             }
         }
         exit bad || rows != 10 || table != 10 || all != samples || samples != 250 ||
              differs(accuracy, int(1e4 * right / all + 0.5) / 100)
     }' one
ok $? "precision, recall, F1, support and accuracy follow from the confusion matrix"

on 3 eval net.ini run/checkpoints/step-00000006 --json three.json && cmp -s out one &&
    [ "$(grep -v ranks one.json)" = "$(grep -v ranks three.json)" ]
ok $? "three ranks print and write the same"
on 3 eval net.ini run --split train data.micro_batch=auto data.batch_size=41 --json three.json &&
    call 0 eval net.ini run --split train --json one.json &&
    [ "$(grep -v 'ranks\|loss' one.json)" = "$(grep -v 'ranks\|loss' three.json)" ] &&
    near "$(value loss three.json)" "$(value loss one.json)" 1e-5 && [ "$(value samples one.json)" = 2000 ]
ok $? "other batches and another split: the same counts"

on 3 eval net.ini run --split train data.batch_size=16 --json three.json &&
    [ "$(grep -v 'ranks\|loss' one.json)" = "$(grep -v 'ranks\|loss' three.json)" ]
ok $? "more ranks than the batch has micro-batches: the same counts"

# A run's folder alone: the run's own configuration, its data included.
call 0 eval net.ini run/checkpoints/step-00000006 && cp out wanted && mv net.ini away.ini
same=
for path in run/checkpoints/step-00000006 run/checkpoints/latest; do
    call 0 eval $path && grep -v '^weights' out | cmp -s - <(grep -v '^weights' wanted) || same="$same $path"
done
call 0 eval run &&
    on 3 eval run --split train --json three.json && [ "$(value samples three.json)" = 2000 ] && [ -z "$same" ]
ok $? "eval RUN uses the run's own configuration:${same:- all}"

call 0 eval run data.synthetic_samples=800 && grep -q '^samples   100$' out &&
    call 66 eval nowhere && names err nowhere &&
    mkdir bare &&
    call 66 eval bare && grep -q 'bare' err
ok $? "keys on the command line win; a folder without a run is told"
call 0 plan run && grep -q '^work ' out &&
    call 0 plan away.ini &&
    cp out two &&
    call 0 plan run/checkpoints/latest && cmp -s out two
ok $? "plan RUN"
"$TRAINER" import synthetic images own.h5 --samples 60 --shape 8x8x1 >out 2>&1
call 0 predict run own.h5:train p.h5 && grep -q '^60 samples of own.h5' out &&
    call 0 predict away.ini run own.h5:train q.h5 &&
    cmp -s <("$TRAINER" data p.h5 data.x=prediction | grep -o 'values .* std [^ ]*') \
        <("$TRAINER" data q.h5 data.x=prediction | grep -o 'values .* std [^ ]*')
ok $? "predict RUN IN OUT"

"$TRAINER" import synthetic images larger.h5 --samples 60 --shape 12x12x1 >out 2>&1
call 65 eval run data.format=hdf5 data.test=larger.h5:train && names err '(12, 12, 1) & (8, 8, 1)'
ok $? "samples of another shape are called that"
mv away.ini net.ini

best=$(readlink run/checkpoints/best)
same=
call 0 eval net.ini "run/checkpoints/$best" && grep -v '^weights' out >wanted
for path in run run/ run/checkpoints run/checkpoints/best "run/checkpoints/$best/model.safetensors"; do
    call 0 eval net.ini "$path" && grep -v '^weights' out | cmp -s - wanted &&
        grep -q "^weights .*$best" <(sed "s,checkpoints/best,checkpoints/$best," out) ||
        same="$same $path"
done
[ -z "$same" ]
ok $? "a run folder, its checkpoints, the link and the file are the best checkpoint:${same:- all}"

rm run/checkpoints/best
call 0 eval net.ini run && grep -q '^weights .*step-00000006' out
ok $? "without a best one it is the newest"

call 78 eval net.ini run 'model.layers=conv 4 3x3 pad=same, relu, flatten, linear 10' &&
    names err 'trainer: error' batchnorm1.weight && ! names err linear1.weight && [ ! -s out ]
ok $? "weights that the model does not have are named"
call 78 eval net.ini run 'model.layers=conv 6 3x3 pad=same, batchnorm, relu, flatten, linear 10, relu, linear 10' &&
    names err 'trainer: error' conv1.weight 'f32 (6, 3, 3, 1)' 'f32 (4, 3, 3, 1)' linear2.weight
ok $? "weights that differ or are missing are named"
call 78 eval net.ini run 'model.layers=flatten, linear 4' &&
    names err '\[model\]' model.layers 1 "'conv 4 3 pad=same'" "'flatten'" && names err config.ini
ok $? "keys of the checkpoint that do not fit another model are explained"
on 2 eval net.ini run 'model.layers=conv 4 3x3 pad=same, batchnorm, flatten, linear 10' &&
    once err warning model.layers 3 "'relu'" "'flatten'" && [ "$(grep -c warning err)" = 1 ] &&
    call 0 eval net.ini run \
        model.layers=$'conv 4 3 pad=same # the same\nbatchnorm, relu\nflatten\nlinear features=10' &&
    ! grep -q warning err
ok $? "weights that fit a model which is another one: a warning, once; none where only the text is another"

cp run/checkpoints/step-00000006/model.safetensors own.safetensors
call 0 eval net.ini run/checkpoints/step-00000006 && grep -v '^weights' out >wanted &&
    call 0 eval net.ini own.safetensors data.std=auto && ! grep -q warning err &&
    grep -v '^weights' out | cmp -s - wanted
ok $? "weights away from their run say how data were normalised"
sed 's/"trainer":/"another":/' own.safetensors >alone.safetensors
on 2 eval net.ini alone.safetensors && once err warning alone.safetensors 127.5 64 data.mean data.std &&
    call 0 eval net.ini alone.safetensors data.mean=127.5 && grep -q warning err &&
    call 0 eval net.ini alone.safetensors data.mean=127.5 data.std=64 model.init_layout=trainer &&
    ! grep -q warning err
ok $? "weights that do not say it: a warning"

on 3 eval net.ini run 'model.layers=conv 6 3x3 pad=same, batchnorm, relu, flatten, linear 10'
[ $? = 78 ] && [ "$(grep -c 'trainer: error' err)" = 1 ]
ok $? "on three ranks it is said once"
call 66 eval net.ini nowhere && names err nowhere && mkdir empty && call 66 eval net.ini empty && names err empty
ok $? "no checkpoint there"
cp -r run/checkpoints/step-00000006 damaged &&
    printf X | dd of=damaged/model.safetensors bs=1 seek=2000 conv=notrunc status=none &&
    call 65 eval net.ini damaged
ok $? "a damaged checkpoint is refused"
# Without test data: those of the validation, unless --split names others.
"$TRAINER" import synthetic digits digits.h5 --samples 100 >out 2>&1
sed 's/^format.*/train = digits.h5:\/train/; /^synthetic/d' net.ini >file.ini
untested="data.valid_fraction=0.2 data.batch_size=8 train.valid_every=6"
call 0 file.ini run.dir=untested $untested && call 0 eval untested --json auto.json && names err warning data.test &&
    names out '^valid' digits.h5 && cp out auto && call 0 eval untested --split valid --json valid.json &&
    [ ! -s err ] && cmp auto out && cmp auto.json valid.json && [ "$(value split auto.json)" = '"valid"' ] &&
    near "$(value loss auto.json)" "$(value best_valid_loss untested/summary.json)" 1e-6 &&
    call 78 eval untested --split test && call 78 eval untested data.valid_fraction=0 &&
    names err data.test data.train '--split train'
ok $? "without test data: the validation data are scored, and it is said"
on 2 eval untested --json two.json && [ "$(grep -c warning err)" = 1 ] && [ "$(value split two.json)" = '"valid"' ]
ok $? "on two ranks: said once"
call 2 eval net.ini &&
    call 2 eval net.ini run --split all && names err all test valid train &&
    call 2 eval net.ini run --jsn x && names err --jsn --json &&
    call 2 eval net.ini run --split && names err '--split auto|test|valid|train'
ok $? "wrong arguments"
call 74 eval net.ini run --json /dev/full/x || call 66 eval net.ini run --json none/x.json
ok $? "a JSON file that cannot be written"
call 65 eval net.ini run data.classes=4 || call 78 eval net.ini run data.classes=4
ok $? "another number of classes"

sed -e 's/linear 10/linear 24/' -e 's/^topk.*//' net.ini >many.ini
call 0 many.ini run.dir=many data.classes=24 &&
    call 0 eval many.ini many --json many.json && grep -qE '^[0-9]+ +[0-9]+ +[0-9]+ +[0-9.]+ %$' out &&
    ! awk 'NF == 24' out | grep -q . && [ "$(value accuracy many.json)" != 1.0 ]
ok $? "more than 20 classes: the most frequent confusions, and data.classes from the checkpoint"

sed -e 's/linear 10/linear 3/' -e 's/^topk.*//' -e 's/^format = synthetic/&\nclasses = 0\nsynthetic_targets = 3/' \
    net.ini >targets.ini
call 0 targets.ini run.dir=targets data.target_mean=0 data.target_std=1 &&
    call 0 eval targets.ini targets --json one.json &&
    cp out one &&
    on 3 eval targets.ini targets && cmp -s out one && [ "$(grep -c '^[012] ' out)" = 3 ]
ok $? "targets of a regression, the same on three ranks"

awk 'function distance(a, b) { return a < b ? b - a : a - b }
     /^loss/ { loss = $2 }
     /^[012] / { mse += $2 / 3; r2 += $4 / 3 }
     /^mean/ {
         good = distance($2, mse) < 1e-5 * mse && distance($4, r2) < 1e-4 && distance($2, loss) < 1e-5 * loss
     }
     END { exit !good }' one
ok $? "their mean squared error is the loss"
call 0 eval targets.ini targets optimizer.ema=0 && cmp -s out one
ok $? "no average, no difference"

sed 's/^lr = .*/&\nema = 0.5/' net.ini >ema.ini
call 0 ema.ini run.dir=ema &&
    call 0 eval ema.ini ema/checkpoints/latest --json ema.json &&
    near "$(value loss ema.json)" "$(value test_loss ema/summary.json)" 1e-6 && names err optimizer.ema &&
    grep -v '^weights' out >wanted &&
    call 0 net.ini run.dir=last &&
    call 0 eval net.ini last/checkpoints/latest && ! grep -v '^weights' out | cmp -s - wanted
ok $? "optimizer.ema: the averaged weights are evaluated"

cp ema/checkpoints/latest/model.safetensors away.safetensors
same=
for path in ema/checkpoints/latest ema/checkpoints/latest/model.safetensors away.safetensors; do
    for decay in 0.5 0; do
        call 0 eval ema.ini $path optimizer.ema=$decay && grep -v '^weights' out | cmp -s - wanted ||
            same="$same $path with $decay"
    done
done
[ -z "$same" ]
ok $? "and they are what the model's file holds, wherever it is and whatever the configuration says:${same:- all}"

{ echo 'a,b,kind'; for i in $(seq 1 30); do echo "$i,$((i % 7)),é"; echo "$i,$((i % 5)),e"; done; } >names.csv
cat >names.ini <<'INI'
[model]
layers = linear 2
[data]
train = names.h5
test = names.h5:train
batch_size = 10
[train]
steps = 1
INI
"$TRAINER" import csv names.csv names.h5 >out 2>&1 && call 0 names.ini run.dir=named && call 0 eval names.ini named &&
    [ "$(LC_ALL=C sed -n 's/\xc3\xa9/e/; /^[01] e  /p' out | awk '{ print length }' | sort -u | wc -l)" = 2 ]
ok $? "names with letters of several bytes stand in their columns"

# The longest name decides the width.
printf 'a,b,kind\n1,2,cat\n3,4,Kühl\n5,6,dog\n7,8,a class with a name that is rather long\n' >wide.csv
cat >wide.ini <<'INI'
[model]
layers = linear 4
[data]
train = wide.h5
batch_size = 2
micro_batch = 1
[train]
steps = 2
INI
call 0 import csv wide.csv wide.h5 &&
    call 0 wide.ini run.dir=wide &&
    call 0 eval wide.ini wide data.test=wide.h5:train && grep -q '^class \{38\}precision' out &&
    grep -q '^0 Kühl \{40\}[01]\.' out && grep -q '^1 a class with a name that is rather long \{5\}[01]\.' out &&
    grep -q '^2 cat \{41\}[01]\.' out && grep -q '^3 dog \{41\}[01]\.' out
ok $? "columns are aligned with long names"

"$TRAINER" import synthetic images few.h5 --samples 30 --shape 8x8x1 >out 2>&1 &&
    cp few.h5 kept.h5 &&
    "$TRAINER" predict net.ini run kept.h5:train few.h5 data.train=few.h5:train --force >out 2>err
[ $? = 2 ] && names err few.h5 data.train && cmp -s kept.h5 few.h5
ok $? "predict does not replace data, whatever is forced"

slow="FAIL_CALL=pread FAIL_ON=many.h5 FAIL_AT=0 FAIL_HOW=sleep:20"
samples=3000
can_preload || samples=300000
"$TRAINER" import synthetic images many.h5 --samples $samples --shape 8x8x1 >out 2>&1
long="predict net.ini run many.h5:train said.h5 data.batch_size=1 data.micro_batch=1"
interrupted TERM 143 said.h5 predict $long && interrupted INT 130 said.h5 predict $long
ok $? "predict, TERM and Ctrl-C: no half of a file is left, and the shell sees the signal"
echo "1..$n"
