#!/usr/bin/env bash
# TEST timeout=240
# Labels and targets of each position: trained, scored, resumed and predicted, equal on any number of ranks.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/fields}/tests/support/common.sh"
make_fields=$BUILD/tests/train/make_fields
"$make_fields" f.h5 || exit 1
cat >net.ini <<'INI'
threads = 1
[model]
layers =
    conv 8 3 pad=same, relu, save a, maxpool 2
    conv 16 3 pad=same, relu, save b, maxpool 2
    conv 16 3 pad=same, relu
    upsample 2, concat b, conv 16 3 pad=same, relu
    upsample 2, concat a, conv 8 3 pad=same, relu, conv 3 1
[data]
train = f.h5
batch_size = 12
micro_batch = 4
ignore_label = 255
valid_fraction = 0.125
[optimizer]
lr = 0.01
[train]
steps = 24
valid_every = 12
[checkpoint]
best_by = valid_iou
[log]
every = 10
INI
exact=parallel.reproducible=yes
call 0 data f.h5 data.ignore_label=255 && names out "/train/y & 3 & (24, 20)" && grep -q "none: 4.17 %" out
ok $? "trainer data tells classes and positions without one"

run 1 net.ini run.dir=one $exact && run 3 net.ini run.dir=three $exact && [ "$(state one)" = "$(state three)" ]
ok $? "one rank and three train to the same bits"
ok_records one POSITIONS
awk "BEGIN { exit !($(told one best_valid_iou) > 0.8 && $(told one valid_iou) > 0.8) }"
ok $? "a U-Net finds the shapes: IoU $(told one best_valid_iou)"
run 1 eval net.ini one --json scores.json && cp out first && run 3 eval net.ini one && cmp -s out first
ok $? "eval is the same on one rank and three"
ok_keys eval_positions scores.json
run 2 predict net.ini one f.h5:test p.h5 && "$make_fields" scores p.h5 test/y f.h5 >scored &&
    read -r accuracy iou <scored &&
    json "[round(v, 6) for v in [a['accuracy']] + [c['iou'] for c in a['classes']]] == \
        [float(v) for v in '$accuracy $iou'.split()] and a['positions'] == 20 * 23 * 20 \
        and abs(sum(c['iou'] for c in a['classes']) / 3 - a['mean_iou']) < 1e-6" scores.json
ok $? "scores are those of the classes that predict writes"
call 2 predict net.ini one f.h5:test p.csv && names err "trainer: error & 'p.csv' & .h5"
ok $? "they do not fit a table"
run 1 predict net.ini one f.h5:test q.h5 --probabilities && call 0 data q.h5 data.x=probability data.y=prediction &&
    names out "/probability & f32 & (24, 20, 3)"
ok $? "predict --probabilities"

run 2 net.ini run.dir=cut $exact train.steps=12 && run 1 net.ini run.dir=cut $exact && resumed &&
    [ "$(state cut)" = "$(state one)" ] && [ "$(told cut best_valid_iou)" = "$(told one best_valid_iou)" ]
ok $? "a run that goes on ends with the same bits"
run 1 eval net.ini one device=strict && cmp -s out first
ok $? "the strict device scores the same"

# A mask leaves out what data.ignore_label leaves out, and other values may stand for the classes.
run 2 net.ini run.dir=masked $exact data.mask=mask data.ignore_label=none && [ "$(state masked)" = "$(state one)" ]
ok $? "data.mask: the same bits"
values="data.mask=mask data.ignore_label=none data.y=grey data.label_values=0,128,255"
# The values are the names of the classes, which stand before the tensors.
tensors() { tail -c 36000 "$1/checkpoints/latest/model.safetensors" | sha256sum; }
run 2 net.ini run.dir=valued $exact $values && [ "$(tensors valued)" = "$(tensors one)" ] &&
    json "a['data']['class_names'] == ['0', '128', '255']" valued/checkpoints/latest/state.json &&
    once out "0 & 128 & 255 & 4.17"
ok $? "data.label_values: the same bits, and the log has the share of each class"
call 0 data f.h5 $values && names out "0 & 128 & 255 & 4.17"
ok $? "trainer data shows the values, too"

call 0 data f.h5 data.y=rgb && once out "^warning & /train/rgb & data.classes = 0" &&
    call 0 data f.h5 data.y=rgb data.classes=0 && ! grep -q "^warning.*/train/rgb" out
ok $? "colours that may be classes"

# Numbers that look like labels are doubted, unless they are said to be numbers.
sed -e 's/conv 3 1/conv 1 1/' -e '/^best_by/d' -e '/^ignore/d' net.ini >one.ini
call 0 one.ini run.dir=doubt data.y=w train.steps=1 && once err "^warning & f.h5 & -1,0,1 & data.label_values = -1,0,1"
ok $? "three values of floats"
call 0 one.ini run.dir=numbers data.y=w data.classes=0 train.steps=1 && ! grep -q '^warning.*-1,0,1' err &&
    call 0 data f.h5 data.y=w && once out "^warning & -1,0,1 & data.classes = 0"
ok $? "data.classes = 0 says that they are numbers"
call 0 plan net.ini data.format=synthetic data.synthetic_shape=8x8x1 data.targets=position data.label_values=0,128,255
ok $? "data.label_values gives the number of synthetic classes"

# Probabilities of black and white masks have the scores of classes.
masks="data.y=black data.label_values=0,255 data.classes=0 data.ignore_label=none model.loss=binary_cross_entropy"
sed 's/conv 3 1/conv 1 1/' net.ini >masks.ini
run 2 masks.ini run.dir=b $masks && awk "BEGIN { exit !($(told b best_valid_iou) > 0.6) }"
ok $? "a mask by its probability: IoU $(told b best_valid_iou)"
run 1 eval masks.ini b $masks --json b.json && cp out first && run 3 eval masks.ini b $masks && cmp -s out first &&
    run 1 predict b f.h5:test b.h5 && "$make_fields" overlap b.h5 test/black f.h5 >scored &&
    read -r iou dice <scored &&
    json "all(abs(a['mean'][k] - v) < 1e-6 for k, v in (('iou', $iou), ('dice', $dice)))" b.json
ok $? "IoU and Dice are those of the probabilities that predict writes, of at least 1/2"
ok_keys eval_position_probabilities b.json

for loss in $(cases dice_ce dice); do
    run 2 net.ini run.dir=$loss model.loss=$loss && awk "BEGIN { exit !($(told $loss best_valid_iou) > 0.7) }"
    ok $? "$loss: IoU $(told $loss best_valid_iou)"
done
run 2 net.ini run.dir=balanced model.class_weights=balanced train.steps=2 data.valid_fraction=0 \
    data.valid=f.h5:test &&
    json "[w < 0.6 for w in a['data']['class_weights']] == [True, False, False]" \
        balanced/checkpoints/latest/state.json
ok $? "balanced weights of classes"

# Pictures: those of predict, and the strip of the validation, which shows the same.
latest=balanced/checkpoints/latest
if run 2 predict net.ini $latest f.h5:test png/; [ -d png ]; then
    run 1 predict net.ini $latest f.h5:test l.h5 && [ "$("$make_fields" pictures l.h5 prediction png)" = 20 ] &&
        [ "$(ls png | wc -l)" = 20 ] && [ "$(od -An -tu1 -j25 -N1 png/000000.png | tr -d ' ')" = 3 ]
    ok $? "predict writes a folder of PNG files with a palette"
    call 78 predict net.ini $latest f.h5:test png && names err "png & --force" && touch png/notes &&
        call 78 predict net.ini $latest f.h5:test png --force && names err "png & notes" &&
        rm png/notes png/000019.png &&
        call 0 predict net.ini $latest f.h5:test png --force && [ "$(ls png | wc -l)" = 20 ]
    ok $? "--force replaces pictures, and nothing else"
    mkdir here && (cd here && call 2 predict ../net.ini "../$latest" ../f.h5:test . && names err "current folder")
    ok $? "the current folder is not replaced"
    call 2 predict net.ini $latest f.h5:test png --force --probabilities && names err "probabilities & .h5" &&
        call 2 predict net.ini $latest f.h5:test png --force --range 0,1 && names err "range & classes"
    ok $? "what PNG files cannot hold"
    slow="FAIL_CALL=pread FAIL_ON=f.h5 FAIL_AT=0 FAIL_HOW=sleep:20"
    interrupted TERM 143 said/ predict predict balanced f.h5:test said/
    ok $? "predict, TERM: no half of a folder is left"
    mkdir strip
    python3 -I - <<'END' && [ "$("$make_fields" pictures f.h5 test/y strip)" = 4 ]
import base64, json
strip = json.load(open("balanced/samples.json"))
assert (strip["step"], strip["classes"], strip["unlabelled"]) == (2, 3, True)
assert [s["sample"] for s in strip["samples"]] == [0, 1, 2, 3]
for i, sample in enumerate(strip["samples"]):
    assert base64.b64decode(sample["prediction"]) == open(f"png/{i:06}.png", "rb").read()
    open(f"strip/{i:06}.png", "wb").write(base64.b64decode(sample["target"]))
    assert base64.b64decode(sample["input"])[12:16] == b"IHDR"
END
    ok $? "the strip shows the first samples of the validation"
    call 0 report balanced --out page && [ "$(grep -o 'data:image/png;base64,[A-Za-z0-9+/=]*"' page/index.html |
        wc -l)" = 12 ] && grep -qF 'rgb(128, 0, 0)"></span> 1<' page/index.html && names page/index.html "no label"
    ok $? "and so does the report"
    call 0 import synthetic shapes v.h5 --samples 8 --shape 10x8x9x1 &&
        printf '[model]\nlayers = conv 3 1\n[data]\ntrain = v.h5\nvalid = v.h5:train\nbatch_size = 2\n' >v.ini &&
        run 1 v.ini run.dir=v train.steps=1 && json "len(a['samples']) == 4 and a['class_names'][0] == 'background'" \
        v/samples.json && call 2 predict v v.h5:train volumes/ && names err "(10, 8, 9) & .h5"
    ok $? "of volumes: a slice in the strip, and no PNG files"
else
    skip "pictures" "built without libpng"
fi

# Numbers of each position, of which some are missing.
numbers="data.y=z data.ignore_label=none checkpoint.best_by=valid_loss train.steps=36"
sed 's/conv 3 1/conv 2 1/' net.ini >numbers.ini
run 1 numbers.ini run.dir=z1 $numbers $exact && run 3 numbers.ini run.dir=z3 $numbers $exact &&
    [ "$(state z1)" = "$(state z3)" ] && awk "BEGIN { exit !($(told z1 test_r2) > 0.9) }"
ok $? "targets of positions: R2 $(told z1 test_r2)"
run 1 eval numbers.ini z1 $numbers --json z.json && cp out first && run 3 eval numbers.ini z1 $numbers &&
    cmp -s out first
ok $? "eval is the same on one rank and three"
ok_keys eval_position_targets z.json
run 1 predict numbers.ini z1 f.h5:test z.h5 && "$make_fields" errors z.h5 test/z f.h5 >scored &&
    read -r errors <scored &&
    json "max(abs(v - w) for v, w in zip([t[k] for t in a['targets'] for k in ('rmse', 'mae')], \
        [float(v) for v in '$errors'.split()])) < 3e-6" z.json
ok $? "its errors are those of the numbers that predict writes"

if [ -d png ]; then
    call 2 predict numbers.ini z1 f.h5:test two/ && names err "1 or 3 & (24, 20, 2) & .h5"
    ok $? "two numbers of a position are no picture"
    run 1 numbers.ini run.dir=grey $numbers data.y=x train.steps=1 model.layers="conv 1 1" &&
        run 2 predict grey f.h5:test greys/ --range -1,1 && grep -q ' -1 is black, 1 is white' out &&
        run 1 predict grey f.h5:test g.h5 && [ "$("$make_fields" pictures g.h5 prediction greys -1 1)" = 20 ]
    ok $? "numbers as grey, by --range"
    run 1 numbers.ini run.dir=unknown $numbers data.y=w train.steps=1 data.valid_fraction=0 data.valid=f.h5:test \
        model.layers="conv 1 1" && rm strip/* && python3 -I - <<'END' &&
import base64, json
strip = json.load(open("unknown/samples.json"))
assert strip["unlabelled"] and all((s["black"], s["white"]) == (-1, 1) for s in strip["samples"])
for i, sample in enumerate(strip["samples"]):
    open(f"strip/{i:06}.png", "wb").write(base64.b64decode(sample["target"]))
END
        [ "$("$make_fields" pictures f.h5 test/w strip -1 1)" = 4 ] && call 0 report unknown --out page &&
        names page/index.html "no value"
    ok $? "numbers that are not known have a colour of their own"
    json "'classes' in a and a['samples'][0]['black'] < a['samples'][0]['white']" grey/samples.json &&
        call 0 report grey --out page && names page/index.html "data:image/png"
    ok $? "and in the strip"
fi

# The network of configs/unet_tiny.ini, on a few small shapes.
tiny="data.train=s.h5 threads=1 data.batch_size=12 data.micro_batch=4 train.steps=16 train.valid_every=8
checkpoint.every=4 log.every=8"
shipped=$TRAINER_ROOT/configs/unet_tiny.ini
# shellcheck disable=SC2086
{
    call 0 import synthetic shapes s.h5 --samples 60 --shape 24x24x1 --classes 3 &&
        run 1 "$shipped" run.dir=t1 $tiny $exact && run 3 "$shipped" run.dir=t3 $tiny $exact &&
        [ "$(state t1)" = "$(state t3)" ]
    ok $? "unet_tiny: one rank and three train to the same bits"
    if can_preload; then
        LD_PRELOAD=$fail_lib FAIL_CALL=rename FAIL_ON=step-00000012 FAIL_HOW=kill FAIL_AT=1 "$TRAINER" \
            "$shipped" run.dir=killed $tiny $exact >out 2>&1
        [ $? = 137 ] && run 2 "$shipped" run.dir=killed $tiny $exact && resumed step-00000008 &&
            [ "$(state killed)" = "$(state t1)" ]
        ok $? "unet_tiny: killed and restarted, it ends with the same bits"
    else
        skip "unet_tiny: killed and restarted, it ends with the same bits" "a build with sanitizers"
    fi
    sed 's/batchnorm/& momentum=0/' "$shipped" >still.ini
    still="$tiny train.steps=1 optimizer.lr=0 optimizer.weight_decay=0 train.valid_every=0"
    call 0 export t1 torch.safetensors --layout torch && call 0 still.ini run.dir=still1 model.init=t1 $still &&
        call 0 still.ini run.dir=still2 model.init=torch.safetensors $still &&
        [ "$(weights still1)" = "$(weights still2)" ] &&
        grep -aq '"convtranspose1.weight": *{[^}]*\[64, *32, *2, *2\]' torch.safetensors
    ok $? "unet_tiny: to PyTorch's order and back"
}
python=$(python_with 'torch, h5py, safetensors')
if [ -n "$python" ]; then
    cat >check.py <<'END'
import h5py, sys, torch, torch_model
from safetensors.torch import load_file
net = torch_model.make_model(torch_model.read_config(sys.argv[1])["model.layers"], (24, 24, 1)).eval()
net.load_state_dict(load_file("torch.safetensors"))
with h5py.File("s.h5") as file, h5py.File("tiny.h5") as predicted, torch.no_grad():
    theirs = net(torch.tensor(file["test/x"][:]).float().movedim(-1, 1) / 255).softmax(1).movedim(1, -1)
    print((torch.tensor(predicted["probability"][:]) - theirs).abs().max(), theirs.std())
    sys.exit(not ((torch.tensor(predicted["probability"][:]) - theirs).abs().max() < 1e-5 and theirs.std() > 0.01))
END
    call 0 predict t1 s.h5:test tiny.h5 --probabilities data.mean=0 data.std=255 &&
        PYTHONPATH=$TRAINER_ROOT/tools PYTHONDONTWRITEBYTECODE=1 "$python" check.py "$shipped" >out 2>err
    ok $? "unet_tiny: PyTorch predicts the same"
else
    skip "unet_tiny: PyTorch predicts the same" "no python with torch, h5py and safetensors"
fi

# What does not fit is told once, with what was found.
refused() { # CODE NAMES ARGUMENTS...
    call "$1" net.ini run.dir=bad "${@:3}" && once err "trainer: error & $2"
}
refused 78 "(12, 10) & (24, 20, 1) & data.targets" data.y=small data.ignore_label=none
ok $? "sizes of x and y that differ"
refused 65 "(12, 10) & (24, 20, 1)" data.y=small data.targets=position
ok $? "also where data.targets requires positions"
refused 78 "0,1,2,255 & 256 & data.label_values & data.ignore_label = 255" data.ignore_label=none
ok $? "a label that may mean none"
refused 78 "0,255 & 256 & data.label_values = 0,255" data.ignore_label=none data.y=black
ok $? "a black and white mask"
refused 65 "f.h5 & /train/grey & 255 & data.label_values" data.ignore_label=none data.y=grey data.label_values=0,128
ok $? "a value that is not listed"
refused 78 "data.label_values & 0,0" data.ignore_label=none data.y=grey data.label_values=0,0
ok $? "a value that is listed twice"
refused 65 "(12, 10) & (24, 20, 1) & data.ignore_label" data.y=small
ok $? "data.ignore_label does not hide sizes that differ"
refused 78 "data.ignore_label & /train/hot & 3 & data.mask" data.y=hot
ok $? "data.ignore_label beside one-hot labels"
refused 78 "data.ignore_label = -1 & u8" data.ignore_label=-1
ok $? "data.ignore_label that no label can have"
refused 65 "f.h5 & /train/y & 2 & 0 to 1 & data.classes & data.label_values" data.classes=2
ok $? "a label out of range"
# shellcheck disable=SC2086
refused 65 "binary_cross_entropy & 0 to 1 & channel 0" $numbers model.loss=binary_cross_entropy model.layers="conv 2 1"
ok $? "a target that is no probability"
refused 65 "/train/small & data.mask & (12, 10) & (24, 20, 1)" data.mask=small
ok $? "a mask of another size"
refused 66 "nothing & data.mask & train/y" data.mask=nothing
ok $? "a mask that is not there"
refused 66 "'maks' & data.y & 'mask' & train/grey" data.y=maks
ok $? "a data set with a name that is nearly right"
refused 78 "'haf' & 'half'" model.layers="conv 8 3 pad=same, save half, conv 8 3 pad=same, concat haf, conv 3 1"
ok $? "a saved tensor with such a name"
refused 78 "(6, 4, 8) & 'b' & (6, 5, 8) & 8 x 8 & 24 x 24" model.layers="conv 8 3 pad=same, save a, maxpool 2,
    residual { conv 8 3 pad=same stride=2 } { conv 8 1 stride=2 }, save b, maxpool 2,
    upsample 2, concat b, upsample 4, concat a, conv 3 1"
ok $? "sizes that poolings and strides do not divide: the multiple, and the next larger sizes"
refused 78 "(24, 20, 4) & (24, 20, 3) & 3 classes" data.classes=3 model.layers="conv 4 1"
ok $? "a wrong number of outputs"
refused 78 "model.loss = mse & 3 classes & data.classes = 0" model.loss=mse
ok $? "a loss of numbers for classes"
echo "1..$n"
