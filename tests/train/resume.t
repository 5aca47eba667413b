#!/usr/bin/env bash
# TEST timeout=300
# A run that was stopped and resumed is the uninterrupted one, bit for bit, on the same and on another number of ranks.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/resume}/tests/support/common.sh"
config
exact="parallel.reproducible=yes"
run 2 net.ini run.dir=whole $exact
ok $? "an uninterrupted run of 20 steps"

for from in 1 2 3; do
    run $from net.ini run.dir=cut$from $exact checkpoint.every=9 checkpoint.keep=0
    back_to cut$from 00000009
    to=$((from % 3 + 2))
    run $to net.ini run.dir=cut$from $exact
    ok $? "resumed on $to ranks from step 9 on $from"
    resumed step-00000009 && [ -z "$(changed)" ]
    ok $? "it says so"
    [ "$(state whole)" = "$(state cut$from)" ] && [ "$(losses whole)" = "$(losses cut$from)" ]
    ok $? "the same weights, optimizer state and losses"
done
# A run folder stands for its configuration, also where it has been moved to.
run 2 net.ini run.dir=part $exact checkpoint.every=9 checkpoint.keep=0
back_to part 00000009
mv part elsewhere
run 2 elsewhere
[ $? = 0 ] && resumed step-00000009 && [ ! -e part ] && [ "$(state whole)" = "$(state elsewhere)" ]
ok $? "trainer RUN goes on with that run"
mkdir empty
run 1 empty
[ $? = 66 ] && names out 'empty & config.ini' && [ -z "$(ls empty)" ]
ok $? "a folder that is none: code 66"
# Lines that began before the checkpoint are of all their steps.
lines() {
    sed -n 's/.*"step":\([0-9]*\),.*\("loss":[^,]*,"accuracy":[^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"
    grep -o ' epoch [0-9.]* .* %' "$1/log.txt" | tail -n "$2"
    grep -o ' step [0-9]*/20 .* %.*  (' "$1/log.txt" | sort -u
    grep -o '"valid_loss".*"train_loss":[^,}]*' "$1/metrics.jsonl" | sed 's/"valid_sec":[^,]*,//'
    grep '"loss"' "$1/summary.json"
}
# 7: a validation after the checkpoint, of steps before it too.
for every in 0 9 7; do
    run 2 net.ini run.dir=lines$every $exact log.every=4 train.valid_every=$every &&
        run 2 net.ini run.dir=part$every $exact log.every=4 train.valid_every=$every checkpoint.every=9 \
            checkpoint.keep=0 checkpoint.best=no
    back_to part$every 00000009
    run 1 net.ini run.dir=part$every $exact log.every=4 train.valid_every=$every
    [ $? = 0 ] && resumed step-00000009 &&
        lines lines$every 2 >whole.told &&
        lines part$every 2 >part.told &&
        cat whole.told part.told >>out && cmp -s whole.told part.told &&
        [ "$(wc -l <part.told)" = $((every > 0 ? 13 : 8)) ]
    ok $? "resumed within an epoch, valid_every = $every: its line, the metrics and the summary are of all their steps"
done
last=$(sed -n 's/.*"step":20,.*"loss":\([^,]*\),"accuracy".*/\1/p' lines0/metrics.jsonl)
run 2 net.ini run.dir=shown $exact log.every=4 && grep -q " 20/20  loss *$(printf %.4f "$last") " out
ok $? "the progress line shows the mean of the last line of metrics.jsonl, $last"
run 2 net.ini run.dir=fast checkpoint.every=9 checkpoint.keep=0
before=$(state fast)
rm -rf fast/checkpoints/step-00000020 fast/checkpoints/latest
run 2 net.ini run.dir=fast
[ "$before" = "$(state fast)" ]
ok $? "without parallel.reproducible too, on the same number of ranks"

# data.block and data.shuffle follow from the file's layout where they are auto; a file stored anew goes on in the old
# order.
run 2 net.ini run.dir=blocks $exact data.block=5 data.shuffle=37 checkpoint.every=9 checkpoint.keep=0
before=$(state blocks)
rm -rf blocks/checkpoints/step-00000020 blocks/checkpoints/latest
run 2 net.ini run.dir=blocks $exact && [ "$before" = "$(state blocks)" ]
ok $? "data.block and data.shuffle that are auto are those of the checkpoint"

run 2 net.ini run.dir=blocks $exact data.block=6 data.micro_batch=4 train.steps=30
[ $? = 78 ] && names out "trainer: error & data.block & 5 & 6 & data.micro_batch & 8 & 4" &&
    ! names out "trainer: error & data.shuffle"
ok $? "others that are asked for are refused and named"

# A run that was done and gets longer goes on behind its last validation, with the scores in its summary.
run 2 net.ini run.dir=longer $exact data.valid_fraction=0.2 train.valid_every=10 &&
    run 1 net.ini run.dir=longer $exact data.valid_fraction=0.2 train.valid_every=10 train.steps=30 && resumed &&
    ! grep -q 'starting with' out && validated=$(sed -n 's/.*"step":\([0-9]*\),.*"valid_loss":\([^,]*\),.*/\2 \1/p' \
    longer/metrics.jsonl) && [ "$(cut -d' ' -f2 <<<"$validated" | paste -sd,)" = 10,20,30 ] &&
    [ "$(sort -g <<<"$validated" | head -n 1 | cut -d' ' -f2)" = "$(told longer best_step)" ]
ok $? "a longer run does not validate again"
run 1 net.ini run.dir=worse $exact data.valid_fraction=0.2 train.valid_every=10 train.steps=10 &&
    run 1 net.ini run.dir=worse $exact data.valid_fraction=0.2 train.valid_every=10 train.steps=20 optimizer.lr=100 &&
    resumed && [ "$(told worse best_step)" = 10 ]
ok $? "its only validation so far is its best one"

# The part that is kept for validation is a part of what must agree.
run 2 net.ini run.dir=part $exact data.valid_fraction=0.2 train.valid_every=10 &&
    grep -q '"valid_loss"' part/metrics.jsonl && grep -q '"samples": 480' part/checkpoints/latest/state.json
ok $? "data.valid_fraction: validation without validation data"
run 2 net.ini run.dir=part $exact data.valid_fraction=0.1 train.steps=30
[ $? = 78 ] && names out "trainer: error & data.valid_fraction & 0.2 & 0.1"
ok $? "another part is refused"
# A best of its own: steps that make it worse show whether the loss to beat is another's.
worse="data.valid_fraction=0.2 train.valid_every=10 train.steps=30 optimizer.lr=1"
run 2 net.ini run.dir=heir $exact resume=part $worse && [ "$(readlink heir/checkpoints/best)" = step-00000030 ] &&
    cp -r part same
ok $? "resume=PATH into a new folder: its first validation is its best"
best=$(readlink same/checkpoints/best)
run 2 net.ini run.dir=same $exact resume=../"${PWD##*/}"/same/checkpoints $worse && resumed && [ -n "$best" ] &&
    [ "$(readlink same/checkpoints/best)" = "$best" ]
ok $? "in its own folder its best stays"
run 1 net.ini run.dir=both data.valid_fraction=0.1 data.valid=x.h5
[ $? = 78 ] && names out "trainer: error & data.valid & data.valid_fraction"
ok $? "not beside data.valid"

# A signal: a checkpoint, code 75, and on from there. The launcher hands USR1 to every rank.
"$MPIEXEC" -np 2 "$TRAINER" net.ini run.dir=signal $exact train.steps=100000 log.every=10 >out 2>&1 &
pid=$!
until_true [ -s signal/metrics.jsonl ]
kill -USR1 $pid
wait $pid
[ $? = 75 ] &&
    at=$(readlink signal/checkpoints/latest | sed 's/step-0*//') && once out "step $at & 100000" &&
    ! grep -q "trainer: error" out signal/log.txt
ok $? "USR1: a checkpoint is saved, code 75, said once"

tail -n 1 signal/log.txt >last && names last "$at & 100000"
ok $? "the log ends with the outcome"
# Ctrl-C: the launcher waits so long before it passes that on as TERM, and then before it kills its ranks. Meanwhile it
# reads no output: epochs are long, so that the pipe has room for their lines.
(
    export OMPI_MCA_odls_base_sigkill_timeout=5 PRTE_MCA_odls_base_sigkill_timeout=5
    exec "$MPIEXEC" -np 2 "$TRAINER" net.ini run.dir=ctrl-c $exact train.steps=400000 train.valid_every=500 \
        log.every=10 data.synthetic_samples=6000 >out 2>&1
) &
pid=$!
until_true [ -s ctrl-c/metrics.jsonl ]
kill -INT $pid
wait $pid
tail -n 1 ctrl-c/log.txt >last && ! grep -q "trainer: error" out ctrl-c/log.txt &&
    names last "$(readlink ctrl-c/checkpoints/latest | sed 's/step-0*//') & 400000" &&
    grep -q '"status": "stopped"' ctrl-c/summary.json
ok $? "INT to the launcher: the log has the outcome"

value() { sed -n "s/^ *\"$1\": \([0-9.e+]*\),*$/\1/p" ctrl-c/summary.json; }
awk -v epochs="$(value epochs)" -v samples="$(value samples)" \
    'BEGIN { d = epochs - samples / 6000; exit !(samples > 0 && d < 1e-6 * epochs && d > -1e-6 * epochs) }'
ok $? "its summary has the epochs that were done: $(value epochs) of $(value samples) samples"
run 1 net.ini run.dir=signal $exact train.steps=$((at + 20)) optimizer.lr=0.001 optimizer.clip_norm=1.0 \
    data.flip=yes checkpoint.keep=5 data.mean=127.5
ok $? "and the run goes on from it"
[ "$(changed)" = "data.flip no -> yes,optimizer.lr 0.003 -> 0.001,train.steps 100000 -> $((at + 20))" ]
ok $? "what it trains otherwise than before is said: settings that differ, and those alone"

# What must not be continued.
run 1 net.ini run.dir=whole $exact resume=no train.steps=30
[ $? = 78 ] && names out "trainer: error & whole & run.dir & resume = auto"
ok $? "resume=no refuses a folder with checkpoints"
run 2 net.ini run.dir=whole $exact train.steps=30 data.batch_size=96
[ $? = 78 ] && names out "trainer: error & data.batch_size & 48 & 96"
ok $? "another batch size is refused and named"
run 2 net.ini run.dir=whole $exact train.steps=30 \
    'model.layers=conv 4 3x3 pad=same bias=no, batchnorm, relu, globalpool, linear 10'
[ $? = 78 ] &&
    names out "trainer: error & model.layers & 1 & 'conv 8 3 pad=same bias=no' & 'conv 4 3 pad=same bias=no'" &&
    ! grep -q "conv1.weight" out
ok $? "another model is refused, by the layer that differs and not by its tensors"

tail -n 12 whole/log.txt | grep -q "model.layers" && ! grep -q "adam" out && ! grep -q "conv 4" whole/config.ini
ok $? "the log says so, and the run's config.ini stays as it is"
# What is auto is that of the checkpoint, which 36 samples would not be a multiple of.
run 2 net.ini run.dir=whole $exact train.steps=30 data.batch_size=36 data.micro_batch=auto
[ $? = 78 ] && names out "trainer: error & whole/checkpoints/step-00000020 & data.batch_size & 48 & 36" &&
    names out "run.dir & model.init & config.ini" && ! grep -q "micro_batch" out
ok $? "before a micro_batch that is not asked for"
run 1 net.ini run.dir=whole $exact train.steps=30 data.synthetic_shape=12x12x2
[ $? = 78 ] && names out "trainer: error & data.train & (12, 12, 1) & (12, 12, 2)" && ! grep -q "conv1.weight" out
ok $? "samples of another shape are called that"
# Tensors do not tell a relu from a tanh.
net='conv 8 3x3 pad=same bias=no, batchnorm, relu, maxpool 2, conv 8 3x3 pad=same, relu'
net="$net, globalpool, dropout 0.2, linear 10"
differs() { # LAYERS NAMES
    run 1 net.ini run.dir=signal $exact train.steps=$((at + 30)) optimizer.lr=0.001 "model.layers=$1"
    [ $? = 78 ] && names out "trainer: error & model.layers & $2" &&
        names out "model.init = .*/signal/checkpoints/step-[0-9]*"
}
differs "${net/norm, relu/norm, tanh}" "3 & 'relu' & 'tanh'" &&
    differs "${net/0.2/0.3}" "8 & 'dropout 0.2' & 'dropout 0.3'" &&
    differs "${net/same, relu/same}" "6 & 'relu' & 'globalpool'" &&
    differs "$net, dropout 0.1" "10 & 'dropout 0.1'"
ok $? "layers without parameters are compared, too, and the first that differs is named"

run 1 net.ini run.dir=signal $exact train.steps=$((at + 30)) optimizer.lr=0.001 model.label_smoothing=0.1
[ $? = 78 ] && names out "trainer: error & model.label_smoothing & 0 & 0.1"
ok $? "so are other keys of the model"
same='# the same
conv 8 3 bias=no pad=same, batchnorm, relu
maxpool 2x2
conv 8 3 pad=same, relu, globalpool
dropout 0.20, linear features=10'
run 1 net.ini run.dir=signal $exact train.steps=$((at + 30)) optimizer.lr=0.001 "model.layers=$same" \
    model.loss=cross_entropy model.topk=2
[ $? = 0 ] && resumed
ok $? "another way to write the same model goes on"
# Damage: the newest that is whole serves, and what was passed over is said.
cp -r signal damaged
newest=$(readlink damaged/checkpoints/latest)
printf 'damaged!' | dd of="damaged/checkpoints/$newest/model.safetensors" bs=1 seek=900 conv=notrunc 2>/dev/null
run 1 net.ini run.dir=damaged $exact train.steps=$((at + 40)) optimizer.lr=0.001
ok $? "a damaged newest checkpoint: the one before it serves"

grep -q "damaged/checkpoints/$newest/model.safetensors" out && resumed && ! resumed "$newest"
ok $? "and what was passed over is said"
for f in whole/checkpoints/step-*/model.safetensors; do
    printf 'damaged!' | dd of="$f" bs=1 seek=900 conv=notrunc 2>/dev/null
done
run 2 net.ini run.dir=whole $exact train.steps=30
[ $? = 65 ] && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "none is whole: code 65, never a start from scratch"

# A run that is done: nothing is trained, and what it measured stays.
cp fast/summary.json before.json
cp fast/config.ini before.ini
run 2 net.ini run.dir=fast optimizer.lr=0.5
[ $? = 0 ] && names out "warning & 20 & train.steps" && cmp -s fast/summary.json before.json &&
    cmp -s fast/config.ini before.ini
ok $? "a run that is done is left as it is"

# A schedule is as long as the run: a longer one does not begin where the shorter one ended.
cosine="schedule.type=cosine optimizer.lr=0.002"
run 1 net.ini run.dir=cosine $cosine train.steps=8 && run 1 net.ini run.dir=cosine $cosine train.steps=16 &&
    once out "7.61e-05 & step 8 & 0.001 & step 9 & schedule.type = cosine & 8 steps & 16" &&
    run 1 net.ini run.dir=cosine train.steps=24 && ! grep -q "schedule.type = .* steps" out
ok $? "the learning rate that goes up again is named"

# From a checkpoint of another run, into a folder of its own.
run 2 net.ini run.dir=branch resume=fast/checkpoints/step-00000009
[ $? = 0 ] && resumed fast/checkpoints/step-00000009 && [ "$(state branch)" = "$(state fast)" ]
ok $? "resume=PATH goes on from another run's checkpoint"
run 2 net.ini run.dir=branch resume=fast/checkpoints/step-00000009
[ $? = 78 ] && names out "trainer: error & branch & 20 & resume = auto" && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "not where later checkpoints would be taken for its own"
run 2 net.ini run.dir=second resume=fast
[ $? = 0 ] && resumed fast/checkpoints/step-00000020 &&
    run 2 net.ini run.dir=third resume=fast/checkpoints/ train.steps=21 && resumed fast/checkpoints/step-00000020
ok $? "resume=RUN goes on from its newest"
run 2 net.ini run.dir=never checkpoint.every=0.5
[ $? = 78 ] && names out "trainer: error & checkpoint.every & 0.5" && [ ! -e never ] &&
    [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "a period that is none is refused before anything is made"

# Validation data that are damaged: what was trained before they are read for the first time is kept.
cat >table.ini <<'INI'
[model]
layers = linear 2
[data]
train = t.h5
valid = v.h5:train
batch_size = 16
[train]
steps = 20
valid_every = 15
[checkpoint]
every = 0
INI
awk 'BEGIN {
    print "a,b,y"
    for (i = 1; i <= 100; i++) printf "%d,%d,%s\n", i % 7, i == 50 ? 12345 : i % 3, i % 2 ? "odd" : "even"
}' >t.csv
"$TRAINER" import csv t.csv t.h5 >out 2>&1 &&
    cp t.h5 v.h5 &&
    at=$(LC_ALL=C grep -obUaP '\x00\xe4\x40\x46' v.h5 | tail -n 1 | cut -d: -f1) && [ -n "$at" ] &&
    printf '\x00' | dd of=v.h5 bs=1 seek="$((at + 2))" conv=notrunc 2>/dev/null
run 2 table.ini run.dir=unvalid
[ $? = 65 ] && grep -q "checksum" out && [ "$(readlink unvalid/checkpoints/latest)" = step-00000015 ]
ok $? "damaged validation data: a checkpoint of the steps before them"

run 2 table.ini run.dir=unvalid data.valid=t.h5:train && resumed step-00000015
ok $? "and the run goes on from it with others"

# Data under a run. Scores of other validation samples do not compare; copies are the same data.
awk 'BEGIN { srand(2); print "a,b,y"
    for (i = 0; i < 200; i++) { k = i % 2; print k + rand() / 2 "," rand() "," (k ? "odd" : "even") } }' >easy.csv
awk -F, 'BEGIN { OFS = "," } NR % 4 == 2 { $3 = $3 == "odd" ? "even" : "odd" } 1' easy.csv >hard.csv
for f in easy hard; do "$TRAINER" import csv $f.csv $f.h5 >out 2>&1; done
"$TRAINER" repack easy.h5 again.h5 >out 2>&1
sed -e 's/^train = .*/train = easy.h5/' -e 's/^valid = .*/valid = easy.h5:train/' -e 's/^every = 0/every = 10/' \
    -e 's/^valid_every.*/valid_every = 10/' table.ini >easy.ini
data="threads=1 train.patience=3 optimizer.lr=0.01 checkpoint.keep=1"
number() { sed -n "s/^ *\"$1\": \([0-9.]*\),*$/\1/p" summary; }
call 0 easy.ini run.dir=easy $data && rm -rf copy hard && cp -r easy copy && cp -r easy hard &&
    cp easy.h5 other.h5 && data+=" data.train=again.h5" &&
    call 0 easy.ini run.dir=copy $data train.steps=40 data.valid=other.h5:train &&
    ! names err warning && ! names err train.patience && cp copy/summary.json summary && [ "$(number steps)" = 40 ]
ok $? "copies, with other chunks and under another name, are the same data"
call 0 easy.ini run.dir=hard $data train.steps=200 data.valid=hard.h5:train &&
    [ "$(messages err train.patience | wc -l)" = 2 ] &&
    cp hard/summary.json summary && [ "$(number best_step)" -gt 40 ] && [ "$(number steps)" -gt 70 ] &&
    [ "$(readlink hard/checkpoints/best)" = "$(printf step-%08d "$(number best_step)")" ] &&
    [ "$(find hard/checkpoints -name 'step-*' | wc -l)" -le 2 ] &&
    awk -v loss="$(number best_valid_loss)" 'BEGIN { exit loss < 0.5 }'
ok $? "other validation data: the best and train.patience begin anew, and the earlier best is not kept"
call 0 compare hard --json c.json &&
    json 'a["groups"][0]["runs"][0]["at_step"] == b["best_step"]' c.json hard/summary.json
ok $? "compare takes the best of the present validation data"
call 0 easy.ini run.dir=copy $data train.steps=50 train.valid_samples=90 && once err train.patience
ok $? "a part of them, too"
call 0 easy.ini run.dir=copy $data train.steps=60 data.train=hard.h5 &&
    names err 'warning & data.train & again.h5:/train/x'
ok $? "other training data: a warning"

# Fine-tuning: what fits is taken over, the rest is initialised and named.
run 1 net.ini run.dir=tuned model.init=fast data.classes=5 'model.freeze=conv*' train.steps=3 \
    "model.layers=${net/linear 10/linear 5}"
ok $? "model.init starts from another model's weights"
names out "linear1.weight & f32 (5, 8) & f32 (10, 8)"
ok $? "and says what was left as initialised"

# More channels than a file has mean and std for: the weights' own serve, and what is given comes first.
"$TRAINER" import synthetic images wide.h5 --samples 60 --shape 1x1x4097 >out 2>&1
sed -e 's/^layers.*/layers = flatten, linear 10/' -e 's/^train = .*/train = wide.h5/' -e '/^valid = /d' \
    -e 's/^valid_every.*/valid_every = 0/' table.ini >wide.ini
run 1 wide.ini run.dir=wide data.mean=127 data.std=64
first=$(sed -n 's/.*"test_loss": \([^,]*\),/\1/p' wide/summary.json)
run 2 wide.ini run.dir=wider model.init=wide optimizer.lr=0 train.steps=1
[ $? = 0 ] && once out "model.init & data.mean = 127 & data.std = 64" &&
    grep -q '"mean": "127"' wider/checkpoints/latest/state.json && [ -n "$first" ] &&
    awk -v a="$first" -v b="$(sed -n 's/.*"test_loss": \([^,]*\),/\1/p' wider/summary.json)" \
        'BEGIN { d = a - b; exit !(d < 1e-5 * a && d > -1e-5 * a) }'
ok $? "model.init: inputs without mean and std are normalised as in the training of the weights"

run 1 wide.ini run.dir=given model.init=wide optimizer.lr=0 train.steps=1 data.mean=120
[ $? = 0 ] && ! names out "model.init & data.mean" && grep -q '"mean": "120"' given/checkpoints/latest/state.json
ok $? "not where data.mean is given"
echo "1..$n"
