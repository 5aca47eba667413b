#!/usr/bin/env bash
# TEST timeout=300
# A language model: the same bits on 1 to 4 ranks and after a resume, accumulation with ignored labels, what a run and
# eval say.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/gpt}/tests/support/common.sh"
# 32 windows of 16 tokens less a part of the last one, whose labels are -1, and a second text for validation.
for i in $(seq 1 60); do echo "$((i * 7919 % 1000)) of $i"; done | head -c 505 >text.txt
"$TRAINER" import text text.txt text.h5 --tokenizer bytes --valid-fraction 0 >out 2>&1
ok $? "a text becomes tokens"

cat >gpt.ini <<'INI'
threads = 1
[model]
type = gpt
n_layer = 2
n_head = 2
n_embd = 16
context = 16
dropout = 0.2
[data]
train = text.h5:train
valid = text.h5:train
batch_size = 12
micro_batch = 3
[optimizer]
lr = 0.01
clip_norm = 1
weight_decay = 0.1
[train]
steps = 12
valid_every = 6
[checkpoint]
every = 6
patience = 0
[log]
every = 1
INI
for r in 1 2 3 4; do
    run $r gpt.ini run.dir=exact$r parallel.reproducible=yes
    ok $? "$r ranks train, reproducible"
    [ "$(state exact1)" = "$(state exact$r)" ] && [ "$(losses exact1)" = "$(losses exact$r)" ]
    ok $? "1 and $r ranks: the same bits"
done
run 2 gpt.ini run.dir=fast
near exact1 fast 1e-5 5
ok $? "and without parallel.reproducible within 1e-5 over 5 steps"

first=$(find exact1/checkpoints -mindepth 1 -maxdepth 1 -type d -name 'step-*' ! -name 'step-00000012' | head -n 1)
cp -r exact1 resumed && back_to resumed "${first##*step-}"
run 3 gpt.ini run.dir=resumed parallel.reproducible=yes
[ $? = 0 ] && [ -n "$first" ] && [ "$(state exact1)" = "$(state resumed)" ]
ok $? "resumed on another number of ranks: the same bits"
run 1 gpt.ini run.dir=strict device=strict parallel.reproducible=yes
[ "$(state exact1)" = "$(state strict)" ]
ok $? "the strict device trains to the same bits"
for way in attention block 2; do
    run 1 gpt.ini run.dir=again-$way parallel.reproducible=yes model.recompute=$way
    [ "$(state exact1)" = "$(state again-$way)" ]
    ok $? "model.recompute = $way: the same bits, with dropout"
done
# Every step has all 32 windows, the masked tail among them, in one micro-batch or in four.
run 1 gpt.ini run.dir=whole data.batch_size=32 data.micro_batch=32 model.dropout=0
run 1 gpt.ini run.dir=parts data.batch_size=32 data.micro_batch=8 model.dropout=0 && cp out said
near whole parts 1e-4 10
ok $? "accumulation 4 x 8 = batch 32, ignored labels weigh nothing"

# Blocks of 64 tokens of another text, two of whose three are in the training text, at other positions.
{ printf zzz; head -c 301 text.txt | tail -c 200; } >other.txt
"$TRAINER" import text other.txt other.h5 --tokenizer bytes --valid-fraction 0 >out 2>&1
run 2 gpt.ini run.dir=leak data.valid=other.h5:train train.steps=1 &&
    once out "^warning & data.valid & 2 of 3 & 505 tokens"
ok $? "text that is trained on and validated with is said to be that"
grep -q "^warning.*data.valid is data.train" said
ok $? "and so is the training text as validation"

grep -q 'ppl' said && ! grep -q 'acc ' said && grep -q 'tokens/s' said
ok $? "a run says perplexity and tokens/s, and no accuracy"
tail -n 1 whole/metrics.jsonl | grep -q '"valid_perplexity"' && grep -q '"tokens_per_sec"' whole/summary.json
ok $? "metrics and summary have them"
run 2 eval gpt.ini whole data.test=text.h5:train --json score.json
[ $? = 0 ] && grep -q '^tokens *504 *\( (.*)\)*$' out && grep -q '"tokens": 504' score.json &&
    grep -q '"perplexity"' score.json
ok $? "eval counts tokens, each but the first once, and gives the perplexity"
ok_keys eval_tokens score.json
ok_keys summary_gpt whole/summary.json "$at_times"
ok_keys metrics_gpt whole/metrics.jsonl "$at_times"
ok_records whole LANGUAGE
run 1 gpt.ini run.dir=part train.valid_samples=4 train.steps=6
[ $? = 0 ] && [ "$(grep -c valid_loss part/metrics.jsonl)" = 1 ]
ok $? "train.valid_samples bounds a validation"
run 1 gpt.ini run.dir=bad model.vocab_size=100
[ $? = 65 ] || [ $? = 78 ]
ok $? "a vocabulary smaller than the data's is refused"
# The files with which transformers loads a checkpoint, and the tokenizer, which a resume and eval compare.
grep -q '"model_type": "gpt2"' exact1/checkpoints/latest/config.json &&
    grep -q '^file config.json ' exact1/checkpoints/latest/MANIFEST &&
    grep -q '"tokenizer"' exact1/checkpoints/latest/state.json
ok $? "a checkpoint has config.json, in MANIFEST too, and the tokenizer in state.json"
"$TRAINER" import text text.txt chars.h5 --tokenizer chars --valid-fraction 0 >out 2>&1
run 1 eval exact1 data.test=chars.h5:train
[ $? = 65 ] && grep -q 'chars.h5' out
ok $? "tokens of another tokenizer are refused"
sed -i 's/"n_layer": 2/"n_layer": 3/' resumed/checkpoints/latest/config.json
run 1 eval resumed/checkpoints/latest data.test=text.h5:train
[ $? = 65 ] && grep -q 'config.json' out
ok $? "a config.json that was changed is found"
echo "1..$n"
