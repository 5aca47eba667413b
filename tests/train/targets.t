#!/usr/bin/env bash
# TEST timeout=240
# Numbers to predict in units of their own: data.target_mean and data.target_std, which checkpoints keep.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/targets}/tests/support/common.sh"
awk 'BEGIN {
    srand(1)
    print "a,b,cost"
    for (i = 0; i < 2000; i++) {
        a = 2 * rand() - 1; b = 2 * rand() - 1
        printf "%f,%f,%f\n", a, b, 500000 + 200000 * a - 100000 * b + 9000 * rand()
    }
}' >n.csv
"$TRAINER" import csv n.csv n.h5 --test-fraction 0.1 >out 2>&1
cat >net.ini <<'INI'
threads = 1
[model]
layers = linear 1
[data]
train = n.h5
batch_size = 48
micro_batch = 8
[optimizer]
lr = 0.05
[train]
epochs = 6
INI
auto="data.target_mean=auto data.target_std=auto"
run 2 net.ini run.dir=raw data.target_mean=0 data.target_std=1 && ! grep -q warning out &&
    awk '/"test_loss":/ { good = $2 + 0 > 1e9 } END { exit !good }' raw/summary.json
ok $? "targets that are not normalised are not learned"

run 2 net.ini run.dir=net && ! grep -q warning out &&
    awk '/"test_loss":/ { good = $2 + 0 < 0.01 && $2 + 0 > 0 } END { exit !good }' net/summary.json
ok $? "normalised by the training data, which is the default, they are"
ok_keys summary_targets net/summary.json "$at_times"
ok_records net TARGETS RANKS
# Of what eval prints: the loss is of normalised targets, MSE and R2 in units of the data.
scores() {
    awk '$1 == "loss" { loss = $2 } $1 == "mean" { good = $4 > 0.99 && $2 > 1 } END { exit !(good && loss < 0.01) }' out
}
run 1 eval net.ini net --json scores.json && scores && cp out one && run 3 eval net.ini net && cmp -s out one
ok $? "eval scores in units of the data, by the numbers in the checkpoint"
ok_keys eval_targets scores.json
mean=$(awk '$1 == "mean" { print $4 }' one) && [ -n "$mean" ] &&
    [ "$(printf "%.4f" "$(told net test_r2)")" = "$mean" ]
ok $? "the run gives the same R2 of its test"

for device in cpu strict; do
    run 3 net.ini run.dir=$device device=$device data.valid_fraction=0.1 train.epochs=3 train.valid_every=1epoch &&
        grep -q 'valid loss [-0-9.e]* R2 0\.[0-9]* ' out && grep -q 'test  loss [-0-9.e]* R2 0\.[0-9]* ' out &&
        last=$(sed -n 's/.*"valid_r2": *\([-0-9.e+]*\).*/\1/p' $device/metrics.jsonl | tail -n 1) &&
        [ "$(printf %.9g "$last")" = "$(told $device valid_r2)" ] &&
        awk "BEGIN { exit !($(told $device best_valid_r2) > 0.9) }"
    ok $? "R2 of validations and the test on $device: $(told $device valid_r2)"
done

cp net/checkpoints/latest/model.safetensors alone.safetensors &&
    run 1 eval net.ini net/checkpoints/latest && grep -v "^weights" out >two &&
    run 2 eval net.ini alone.safetensors && grep -v "^weights" out | cmp -s - two
ok $? "so do weights alone, without their run"
run 1 eval net.ini net $auto && cmp -s out one
ok $? "also where the keys are auto"
run 2 predict net.ini net n.h5 p.h5 && names out "/test/x & n.h5 & FILE:GROUP" &&
    "$TRAINER" data p.h5 data.x=prediction >out 2>&1 && grep -qE "mean (4[5-9]|5[0-5])[0-9]{4}" out
ok $? "predictions are in units of the data"

# They are floats without a mean and a deviation beside them: as inputs they want these.
raw="data.train=p.h5 data.test= data.x=prediction data.y=prediction"
keys=$(sed -n 's/^warning: .* \(data.mean=compute data.std=compute\)$/\1/p' out) && [ -n "$keys" ]
ok $? "inputs in large units: trainer data says which keys to set"
run 2 net.ini run.dir=large $raw $auto train.steps=1 &&
    once out 'warning & [45][0-9.]*e+05 & data.mean=compute & data.std=compute'
ok $? "a run says so, once"
quiet() { "$TRAINER" "$@" >out 2>&1 && ! grep -q warning out; }
quiet plan net.ini $raw $auto $keys &&
    quiet data p.h5 data.x=prediction $keys &&
    quiet plan net.ini $raw $auto "model.layers=batchnorm, linear 1"
ok $? "not where they are normalised, by the keys or by a layer"
quiet plan net.ini $raw $auto model.layers=$'# no linear before\nflatten, layernorm, linear 1' &&
    ! quiet plan net.ini $raw $auto "model.layers=relu name=norm, linear 1" &&
    ! quiet plan net.ini $raw $auto --ranks 2 && once out "warning & data.mean\(=[0-9.e+]*\)*"
ok $? "by what is a layer, not by words; and a plan for two ranks says it, too"
awk 'BEGIN { print "a,b,label"; for (i = 0; i < 200; i++) print i % 2 "," i % 3 "," i + 500 }' >whole.csv
"$TRAINER" import csv whole.csv whole.h5 >out 2>&1 &&
    ! quiet plan net.ini data.train=whole.h5 data.x=train/y data.y=train/x data.classes=0 "model.layers=linear 2" &&
    names out "warning & 599.5"
ok $? "inputs of whole numbers, too"
awk 'BEGIN {
    for (i = 0; i < 40; i++) {
        for (c = 0; c < 20000; c++) printf "%d,", i ? 4000 + i * c % 1000 : 0
        print i % 2
    }
}' >large.csv
"$TRAINER" import csv large.csv large.h5 >out 2>&1 &&
    ! quiet plan net.ini data.train=large.h5 data.valid_fraction=0.2 data.test= data.batch_size=2 data.micro_batch=2 \
        "model.layers=linear 2" &&
    once out "warning & 20000"
ok $? "large samples are judged by several: the first is blank"

if [ -x "$BUILD/tests/cli/make_bad_input" ] && (mkdir odd && cd odd && "$BUILD/tests/cli/make_bad_input"); then
    run 2 net.ini run.dir=rounded data.train=odd/rounded.h5 data.mean=0,1.7e9,101325 data.std=1,200,1 $auto \
        data.batch_size=32 train.steps=1 &&
        once out "warning & 1999[0-9.]* & 32-bit" && once out "warning & 1 & 1700[0-9.]* & 32-bit"
    ok $? "numbers that 32-bit floats round away: a run of two ranks says it once"
fi

"$TRAINER" import csv n.csv all.h5 >out 2>&1 &&
    run 1 predict net.ini net all.h5 all-p.h5 && names out "^2000 & all.h5:/train/x"
ok $? "a file that has training data alone"

run 2 net.ini run.dir=net $auto train.epochs=8
[ $? = 0 ] && resumed
ok $? "a run goes on with its own numbers"
run 2 net.ini run.dir=net $auto train.epochs=8 data.train=n.h5:test
[ $? = 78 ] && ! grep -q "data.target_mean:" out
ok $? "whatever data it goes on with"
run 2 net.ini run.dir=net train.epochs=9 data.target_mean=7 data.target_std=2
[ $? = 78 ] && names out "trainer: error & data.target_mean & [45][0-9.]* & 7"
ok $? "others are refused and named"
# So is the normalisation of inputs.
run 2 net.ini run.dir=net $auto train.epochs=9 data.mean=0.5
[ $? = 78 ] && names out "trainer: error & data.mean & -*0.0[0-9.e-]*,-*0.0[0-9.e-]* & 0.5,0.5" &&
    ! grep -q "data.std:" out
ok $? "another mean of the inputs is refused and named"
run 2 net.ini run.dir=net $auto train.epochs=9 data.std=3,2
[ $? = 78 ] && names out "trainer: error & data.std & 0.5[0-9.]*,0.5[0-9.]* & 3,2"
ok $? "another deviation, too"
moments() { sed -n 's/.*\("\(mean\|std\)": "[^"]*"\).*/\1/p' net/checkpoints/latest/state.json; }
moments >before
awk -F, 'NR == 1 || NF < 3 { print; next } { print 4 * $1 + 3 "," $2 "," $3 }' n.csv >wide.csv &&
    "$TRAINER" import csv wide.csv wide.h5 --test-fraction 0.1 >out 2>&1 &&
    run 2 net.ini run.dir=net $auto train.epochs=9 data.train=wide.h5 data.test= &&
    moments >after && grep -q '"std": "0.5.*,0.5.*"' after && cmp before after
ok $? "auto takes the checkpoint's, not those of another file"

run 1 net.ini run.dir=bad data.target_std=0
[ $? = 78 ] && names out "trainer: error & data.target_std"
ok $? "a deviation of zero is refused"
run 1 net.ini run.dir=bad data.target_mean=1,2,3
[ $? = 78 ] && names out "trainer: error & data.target_mean & 3 & 1"
ok $? "as many numbers as targets"
sed -e 's/^train = .*/format = synthetic\nclasses = 0\nsynthetic_targets = 3\nsynthetic_shape = 5/' \
    -e 's/linear 1/linear 3/' net.ini >three.ini
run 2 three.ini run.dir=three data.target_mean=1,2,3 data.target_std=2 train.steps=3 &&
    grep -q '"target_mean": "1,2,3"' three/checkpoints/latest/state.json &&
    grep -q '"target_std": "2,2,2"' three/checkpoints/latest/state.json
ok $? "a number for each of several"

awk 'BEGIN {
    srand(2)
    for (i = 0; i < 400; i++) {
        a = 2 * rand() - 1
        for (c = 0; c < 100; c++) printf "%g,", 10 ^ (c % 6) * (3 + (c % 7 - 3) * a)
        print a
    }
}' >many.csv
"$TRAINER" import csv many.csv many.h5 >out 2>&1
many="data.train=many.h5 data.test=many.h5:train data.x=train/y data.y=train/x data.mean=0 data.std=1 data.classes=0"
run 2 net.ini run.dir=many $many "model.layers=linear 100" $auto optimizer.lr=0.5 train.epochs=20 &&
    run 2 eval net.ini many $many "model.layers=linear 100" &&
    scores
ok $? "a hundred targets of unlike units have each its own numbers"

wide="data.train=large.h5 data.test= data.x=train/y data.y=train/x data.classes=0 data.batch_size=8 data.micro_batch=4"
run 2 net.ini run.dir=wide $wide "model.layers=linear 20000" train.steps=2 &&
    run 2 net.ini run.dir=wide $wide "model.layers=linear 20000" train.steps=3 &&
    run 1 eval net.ini wide $wide data.test=large.h5 "model.layers=linear 20000"
ok $? "twenty thousand, too, from a checkpoint as well"

# data.mean and data.std that are computed: the same on any number of ranks, and those of the checkpoint from then on.
compute="data.mean=compute data.std=compute"
awk -F, 'NR == 1 { print; next } { print 400 * $1 + 3000 "," $2 "," $3 }' n.csv >far.csv &&
    "$TRAINER" import csv far.csv far.h5 >out 2>&1
"$TRAINER" data far.h5 data.mean=0 data.std=1 >out 2>&1 &&
    names out "^warning & data.mean=compute & data.std=compute" &&
    run 1 net.ini run.dir=single data.train=far.h5 $compute train.steps=2 &&
    moments_of() { grep '"\(mean\|std\)"' "$1/checkpoints/latest/state.json"; } &&
    moments_of single >one.moments &&
    run 3 net.ini run.dir=three-ranks data.train=far.h5 $compute train.steps=2 &&
    moments_of three-ranks | cmp - one.moments && grep -qE '"mean": "(29[89]|300)[0-9.]*,' one.moments &&
    ! grep -q warning out
ok $? "data.mean and data.std = compute"

run 2 net.ini run.dir=single data.train=n.h5 data.limit=2000 $compute train.steps=4 data.test= >/dev/null
moments_of single | cmp -s - one.moments
ok $? "a checkpoint keeps them"
run 1 eval net.ini single data.test=far.h5:train $compute &&
    cp out two &&
    run 1 eval net.ini single data.test=far.h5:train && cmp -s out two
ok $? "and eval takes them from there"
echo "1..$n"
