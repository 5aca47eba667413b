#!/usr/bin/env bash
# TEST timeout=240
# Files that hold one sample each, in the form of DeepCAM's: trained with balanced weights, scored and predicted, equal
# on any number of ranks; what is wrong with one of them is told once.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/file_samples}/tests/support/common.sh"
make_fields=$BUILD/tests/train/make_fields
for set in "train- 32" "valid- 4" "test- 4"; do
    # shellcheck disable=SC2086
    "$make_fields" climate $set 48 72 || exit 1
done
cat >net.ini <<'INI'
threads = 1
[model]
class_weights = balanced
layers =
    conv 8 3 pad=same, relu, save a, maxpool 2
    conv 16 3 pad=same, relu
    upsample 2, concat a, conv 8 3 pad=same, relu, conv 3 1
[data]
train = train-*.h5
valid = valid-*.h5
test = test-*.h5
sample = file
ignore_label = 255
mean = compute
std = compute
batch_size = 6
micro_batch = 2
[optimizer]
lr = 0.01
[train]
steps = 24
valid_every = 12
[checkpoint]
best_by = valid_iou
[log]
every = 1
INI
call 0 data 'train-*.h5' data.sample=file data.ignore_label=255 &&
    names out "train: 32 & /climate/data & f32 (48, 72, 16)" "" &&
    names out "/climate/labels_0 & 3 & (48, 72)" && grep -q '0: 96.* %.*none: 2.08 %' out
ok $? "trainer data tells the shares of the classes"

exact=parallel.reproducible=yes
run 1 net.ini run.dir=one && run 2 net.ini run.dir=two && run 3 net.ini run.dir=three &&
    near two one 1e-5 24 && near three one 1e-5 24
ok $? "one, two and three ranks have the same losses"
json "[round(w, 1) for w in a['data']['class_weights']][0] < 0.4 < 10 < a['data']['class_weights'][1]" \
    one/checkpoints/latest/state.json
ok $? "the weights of the classes are balanced"
run 1 net.ini run.dir=same1 $exact && run 3 net.ini run.dir=same3 $exact && [ "$(state same1)" = "$(state same3)" ]
ok $? "one rank and three train to the same bits"
awk "BEGIN { exit !($(told one best_valid_iou) > 0.6) }"
ok $? "rare classes are found: IoU $(told one best_valid_iou)"

run 3 eval net.ini one --json scores.json && run 2 predict net.ini one 'test-*.h5' p.h5 &&
    "$make_fields" scores p.h5 climate/labels_0 test-*.h5 >scored && read -r accuracy iou <scored &&
    json "[round(v, 6) for v in [a['accuracy']] + [c['iou'] for c in a['classes']]] == \
        [float(v) for v in '$accuracy $iou'.split()] and a['positions'] == 4 * 47 * 72" scores.json
ok $? "scores are those of the classes that predict writes"
run 2 net.ini run.dir=part data.valid= data.valid_fraction=0.125 train.steps=4 train.valid_every=4 &&
    awk "BEGIN { exit !($(told part valid_loss) > 0) }"
ok $? "a part of the files for validation"

# refused CODE NAMES ARGUMENTS...: by both ranks together, told once
refused() {
    rm -rf bad
    run 2 net.ini run.dir=bad "${@:3}"
    [ $? = "$1" ] && once out "trainer: error & $2"
}
# odd ARGUMENTS...: the files for training, of which one in the middle is another one
mkdir odd && cp train-*.h5 odd
odd() { "$make_fields" climate odd/other 1 "$@" && mv odd/other0000.h5 odd/train-0016.h5; }
in_odd="data.train=odd/train-*.h5 data.classes=3"
# shellcheck disable=SC2086
{
    odd 48 70 &&
        refused 65 "odd/train-0000.h5 & odd/train-0016.h5 & /climate/data & (48, 72, 16) f32 & (48, 70, 16) f32" $in_odd
    ok $? "files of different shapes"
    odd 48 72 24 && refused 65 "odd/train-0016.h5 & /climate/labels_0 & (48, 72) i64 & (24, 72) i64" $in_odd
    ok $? "a file whose x and y have different sizes"
    odd 48 72 48 3 && refused 65 "odd/train-0016.h5 & /climate/labels_0 & 3 & 0 to 2 & data.classes" $in_odd
    ok $? "a label out of range"
    ln -sf nothing.h5 odd/train-0016.h5 && refused 66 "data.train & odd/train-0016.h5" $in_odd
    ok $? "a file that is missing"
}
"$make_fields" climate small- 8 48 72 24
refused 65 "small-0000.h5 & (48, 72, 16) & (24, 72) & data.targets" "data.train=small-*.h5" data.targets=position
ok $? "x and y of different sizes in all files"

# Of many files, the header of one is read with its sample: the rank that finds it tells it.
mkdir many && "$make_fields" climate many/f 320 8 8 && "$make_fields" climate many/other 1 8 10
many="data.train=many/f*.h5 data.valid= data.test= data.classes=3 train.valid_every=0 train.steps=60"
# shellcheck disable=SC2086
run 2 net.ini run.dir=many1 $many && mv many/other0000.h5 many/f0300.h5 &&
    refused 65 "many/f0000.h5 & many/f0300.h5 & /climate/data & (8, 8, 16) f32 & (8, 10, 16) f32" $many
ok $? "a file that is read later"
echo "1..$n"
