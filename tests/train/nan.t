#!/usr/bin/env bash
# A loss that is not finite: the run stops and names the op, or skips that update; no checkpoint of it is ever kept.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/nan}/tests/support/common.sh"
config
run 2 net.ini run.dir=stop optimizer.type=sgd optimizer.lr=1e6 schedule.type=constant optimizer.clip_norm=0 \
    optimizer.ema=0
[ $? = 93 ] && once out "trainer: error & op '[a-z_]*'" && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "on_nan=stop: code 93, and the op is named once"

[ -z "$(ls stop/checkpoints | grep step-)" ]
ok $? "no checkpoint of it"
said=$(sed -n 's/^ *"error": "\(.*\)",*$/\1/p' stop/summary.json)
[ -n "$said" ] && tail -n 1 stop/log.txt | grep -qF "error: $said" && grep -q '"status": "failed"' stop/summary.json
ok $? "the log ends with it, and the summary says so"
ok_records stop FAILED RANKS
run 2 net.ini run.dir=skip optimizer.type=sgd optimizer.lr=1e6 schedule.type=constant optimizer.clip_norm=0 \
    optimizer.ema=0 train.on_nan=skip
ok $? "on_nan=skip: the run ends well"
names out 'warning & step [0-9]* & NaN\|infinite'
ok $? "and says what it skipped"
[ "$(grep -c '"loss":null' skip/metrics.jsonl)" -gt 0 ] && grep -q '"skipped": [1-9]' skip/summary.json &&
    ! grep -q 'loss -*nan  ' out
ok $? "a skipped step is counted, and has no part in the means"
deep='model.layers=flatten, linear 10, linear 10, linear 10, linear 10'
run 1 net.ini run.dir=nan optimizer.type=sgd optimizer.lr=1e6 schedule.type=constant optimizer.clip_norm=0 \
    optimizer.ema=0 train.on_nan=skip "$deep"
[ $? = 93 ] && names out 'trainer: error & step [0-9]* & optimizer.lr' &&
    [ "$(grep -c 'trainer: error' out)" = 1 ] && grep -q '"status": "failed"' nan/summary.json
ok $? "a diverged model is an error: code 93, said once"

grep -q '"skipped": 1[0-9]' nan/summary.json && grep -q '"test_loss": null' nan/summary.json &&
    grep -q '^test  loss' out && ! grep -qE '^test  loss +-?[0-9]' out
ok $? "a test loss that is not finite is said to be that"
run 1 eval net.ini nan "$deep"
[ $? = 0 ] && grep -q '^loss      nan$' out && ! grep -q -- '-nan' out
ok $? "eval says nan, without a sign"
names nan/log.txt 'warning & 1[0-9] & 20 & optimizer.lr'
ok $? "most updates skipped: a warning at the end"
run 2 net.ini run.dir=never optimizer.type=sgd optimizer.lr=1e6 schedule.type=constant optimizer.clip_norm=0 \
    optimizer.ema=0 train.on_nan=skip 'model.layers=flatten, linear 10, linear 10' train.steps=400
[ $? = 93 ] && [ "$(grep -c 'trainer: error' out)" = 1 ] &&
    at=$(messages out 'trainer: error & 100 & train.on_nan' | grep -o 'step [0-9][0-9]*' | tr -d 'step ' |
        sort -n | head -n 1) &&
    grep -q "\"steps\": $((at + 98))," never/summary.json && grep -q '"skipped": 1[0-9][0-9],' never/summary.json
ok $? "100 updates skipped in a row: code 93, and since when"

# One sample of eight spoils the sums of all: its rank says where, and a rank that has another micro-batch last does
# not accuse the metrics.
for i in 1 2 3 4 5 6 7 8; do echo "$i,0,$((i % 2))"; done | sed '8s/^8/1e30/' >bad.csv
"$TRAINER" import csv bad.csv bad.h5 --test-fraction 0 >out 2>&1
ok $? "a file with one large number"
cat >bad.ini <<'INI'
threads = 1
[model]
layers = linear 4, linear 1
loss = mse
[data]
train = bad.h5
classes = 0
shuffle = 0
mean = 0
std = 1
batch_size = 8
micro_batch = 4
[train]
steps = 3
INI
run 2 bad.ini run.dir=bad2
[ $? = 93 ] && names out "\[rank 1 & trainer: error & op 'mse[a-z_]*'" && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "two ranks: the rank with the bad sample names the loss"

run 1 bad.ini run.dir=bad1
[ $? = 93 ] && names out "trainer: error & op 'mse[a-z_]*'"
ok $? "one rank: the op is named"
# The outcome is known one step later there: it is still of the step that failed, and of its last micro-batch.
said() { messages out 'trainer: error & step' | grep -o "step [0-9]*:.*op '[a-z_]*'"; }
here=$(said)
run 1 bad.ini run.dir=bad3 device=strict
[ $? = 93 ] && [ -n "$here" ] && [ "$(said)" = "$here" ]
ok $? "an asynchronous device: the same step and the same op"

run 1 bad.ini run.dir=bad5 data.micro_batch=8
whole=$(said)
run 1 bad.ini run.dir=bad6 data.micro_batch=8 device=strict
[ $? = 93 ] && [ -n "$whole" ] && [ "$(said)" = "$whole" ]
ok $? "one micro-batch, where the next step is enqueued whole: the same step and the same op"
run 2 bad.ini run.dir=bad4 device=strict
[ $? = 93 ] && names out "\[rank 1 & trainer: error & op 'mse[a-z_]*'" && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "two ranks with asynchronous devices: the rank with the bad sample names the loss"
# 12 samples in 3 micro-batches: rank 0 has two, rank 1 has one, and its first is its last.
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "$i,0,$((i % 2))"; done | sed '12s/^12/1e30/' >uneven.csv
"$TRAINER" import csv uneven.csv uneven.h5 --test-fraction 0 >out 2>&1
run 2 bad.ini run.dir=uneven data.train=uneven.h5 data.batch_size=12 parallel.timeout=5s device=strict
[ $? = 93 ] && names out "trainer: error & step 1: & op 'mse[a-z_]*'" && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "asynchronous devices with two and one micro-batches: code 93, the step and the op"

tac bad.csv >first.csv
"$TRAINER" import csv first.csv first.h5 --test-fraction 0 >out 2>&1
run 1 bad.ini run.dir=first data.train=first.h5
[ $? = 93 ] && names out "trainer: error & step 1: & op 'mse[a-z_]*'"
ok $? "an earlier micro-batch: its op is named, too"
run 1 bad.ini run.dir=first2 data.train=first.h5 data.micro_batch=2 device=strict
[ $? = 93 ] && names out "trainer: error & step 1: & op 'mse[a-z_]*'"
ok $? "an asynchronous device, the first of four micro-batches: the same"
echo "1..$n"
