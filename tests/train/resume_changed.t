#!/usr/bin/env bash
# Runs that go on with other parameters frozen, another optimizer, or with or without a moving average.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/resume_changed}/tests/support/common.sh"
awk 'BEGIN {
    print "a,b,c,y"
    for (i = 0; i < 16; i++)
        printf "%g,%g,%g,%g\n", i % 5 - 2, i * 3 % 7 / 2 - 1.5, i * 5 % 11 / 4 - 1, (i % 4 - 1.5) * (i % 3 - 0.5)
}' >t.csv
call 0 import csv t.csv t.h5
cat >net.ini <<'INI'
threads = 1
[model]
layers = linear 4 name=first, tanh, linear 1 name=last
[data]
train = t.h5
valid = t.h5:train
mean = 0
std = 1
target_mean = 0
target_std = 1
shuffle = 0
batch_size = 16
micro_batch = 8
[optimizer]
lr = 0.05
weight_decay = 0.1
[train]
valid_every = 1
[checkpoint]
every = 0
keep = 0
[log]
every = 1
INI
exact="parallel.reproducible=yes"
to() { # RUN STEPS SETTING...: the run goes on to this step
    call 0 net.ini run.dir="$1" train.steps="$2" "${@:3}"
}
# "step loss" of every validation
valid_losses() { sed -n 's/.*"step":\([0-9]*\),.*"valid_loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }

# Losses of training and validation by PyTorch 2 in double precision: AdamW with weight_decay 0.1 for the weights and 0
# for the biases, from the initial weights of this run. requires_grad is False for first.* in steps 1 to 4 and for
# last.weight in steps 9 to 12, whose entry in optimizer.state is deleted then. From step 5 to 14, the validation uses
# the average d a + (1 - d) w with d = min(0.9, (1 + t) / (10 + t)), which begins at the weights w. (The validation of
# the last step before a change is repeated with the settings after it.)
cat >torch <<'END'
1 0.9763976 0.9349761
2 0.9349761 0.9212138
3 0.9212138 0.9219824
4 0.9219824 0.9219093
5 0.9219093 0.8994260
6 0.8860189 0.8708829
7 0.8502275 0.8395991
8 0.8134369 -
9 0.7771847 0.7759704
10 0.7554624 0.7563271
11 0.7373125 0.7392504
12 0.7213039 0.7241121
13 0.7066718 0.7015882
14 0.6741718 -
15 0.6535964 0.6399413
16 0.6399413 0.6278052
17 0.6278052 0.6144359
18 0.6144359 0.5963821
END
to run 4 'model.freeze=first.*' && to run 8 optimizer.ema=0.9 && cp err changed.out &&
    to run 12 optimizer.ema=0.9 model.freeze=last.weight && to run 14 optimizer.ema=0.9 && to run 18
ok $? "other parameters are frozen, and an average begins and ends"
mv changed.out out
[ "$(changed)" = "model.freeze first.* -> '',optimizer.ema 0 -> 0.9,train.steps 4 -> 8" ]
ok $? "the log names the keys"
paste -d' ' torch <(losses run) <(valid_losses run) | awk '
    function far(a, b) { return b != "-" && ((a - b) > 1e-5 || (b - a) > 1e-5) }
    $1 != $4 || $1 != $7 || far($5, $2) || far($8, $3) { print; bad = 1 }
    END { exit bad || NR != 18 }' >out
ok $? "the losses are PyTorch's"

# The number of updates of each parameter is kept: a stop after the change alters nothing, nor do other ranks.
to one 4 'model.freeze=first.*' $exact && cp -r one two && cp -r one strict && to one 8 optimizer.ema=0.9 $exact &&
    run 2 net.ini run.dir=two train.steps=6 optimizer.ema=0.9 $exact && to two 8 optimizer.ema=0.9 $exact &&
    [ "$(state one)" = "$(state two)" ] && [ "$(losses one)" = "$(losses two)" ] &&
    json "a['updates_before'] == {'first.weight': 4, 'first.bias': 4}" two/checkpoints/latest/state.json
ok $? "the same bits on two ranks, and stopped in between"
to strict 8 optimizer.ema=0.9 $exact device=strict && [ "$(losses one)" = "$(losses strict)" ]
ok $? "and on a device with its own memory"
! grep -q updates_before one/checkpoints/step-00000004/state.json
ok $? "checkpoints of runs without a change record no such numbers"

# A loss scale that overflows: a skipped step is no update.
for precision in $(cases fp16 bf16); do
    half="precision=$precision optimizer.loss_scale=1048576"
    # shellcheck disable=SC2086
    to $precision 4 'model.freeze=first.*' $half && cp -r $precision $precision-cut && to $precision 8 $half &&
        to $precision-cut 6 $half && to $precision-cut 8 $half && [ "$(state $precision)" = "$(state $precision-cut)" ]
    ok $? "$precision: the same bits, stopped in between"
done
! all || losses bf16 | tail -n 4 | awk 'NR == FNR { want[$1] = $2; next }
    { d = $2 / want[$1] - 1; if (d > 0.01 || d < -0.01) bad = 1 } END { exit bad || FNR != 4 }' torch -
ok $? "bf16: the losses are near PyTorch's"
skipped=$(sed -n 's/.*"step":4,.*"overflows":\([0-9]*\).*/\1/p' fp16/metrics.jsonl)
[ "$skipped" -gt 0 ] && [ "$skipped" -lt 4 ] &&
    json "a['updates_before']['first.bias'] == 4 - $skipped" fp16/checkpoints/latest/state.json
ok $? "fp16: $skipped of 4 steps were skipped and do not count"

# Another optimizer begins as in a new run with these weights.
sgd="optimizer.type=sgd optimizer.momentum=0.9"
# shellcheck disable=SC2086
to other 4 && to other 8 $sgd && to other 12 &&
    to sgd 4 model.init=other/checkpoints/step-00000004 $sgd &&
    to adamw 4 model.init=other/checkpoints/step-00000008
ok $? "another optimizer, and back"
step_losses() { losses "$1" | cut -d' ' -f2-; }
[ "$(step_losses other | sed -n 5,8p)" = "$(step_losses sgd)" ] &&
    [ "$(step_losses other | sed -n 9,12p)" = "$(step_losses adamw)" ] && [ "$(losses sgd | wc -l)" = 4 ]
ok $? "its state is new: the bits of new runs from these weights"

# Without the average, the run goes on with the trained weights.
to averaged 2 optimizer.ema=0.9 && to averaged 4 &&
    cmp {averaged,other}/checkpoints/step-00000004/model.safetensors &&
    cmp {averaged,other}/checkpoints/step-00000004/optimizer.safetensors
ok $? "an average that ends leaves no trace"
echo "1..$n"
