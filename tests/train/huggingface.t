#!/usr/bin/env bash
# TEST timeout=120
# A GPT-2 of transformers (tests/golden/gpt2, from tools/make-golden-gpt2.py) as model.init: the same loss in every
# form of its files.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/huggingface}/tests/support/common.sh"
golden=$TRAINER_ROOT/tests/golden/gpt2
"$TRAINER" import text "$golden/text.txt" text.h5 --tokenizer "gpt2:$golden/plain" --valid-fraction 0 >out 2>&1
ok $? "the text as tokens of the model"

cat >gpt.ini <<'INI'
threads = 1
[model]
type = gpt
[data]
train = text.h5:train
test = text.h5:train
batch_size = 1
[optimizer]
lr = 0.001
[train]
steps = 1
INI
expected() { sed -n "s/^ *\"$1\": \([0-9.]*\),*$/\1/p" "$golden/expected.json"; }
loss() { sed -n 's/^ *"loss": \([0-9.]*\),*$/\1/p' score.json; }
for form in plain f16 bf16 bare shards; do
    case $form in bare | shards) want=$(expected plain) ;; *) want=$(expected $form) ;; esac
    rm -f score.json
    run 1 eval gpt.ini "$golden/$form" model.init="$golden/$form" --json score.json
    [ $? = 0 ] && awk -v a="$want" -v b="$(loss)" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-5 && d > -1e-5) }'
    ok $? "$form: the loss of transformers, $want"
done
run 2 gpt.ini run.dir=tuned model.init="$golden/plain" data.batch_size=2
[ $? = 0 ] && grep -q '^n_embd = 16$' tuned/config.ini && grep -q '^context = 112$' tuned/config.ini &&
    grep -q '"vocab_size": 270' tuned/checkpoints/latest/config.json
ok $? "training begins with it, and its sizes are the run's"

for ranks in 1 2; do
    run $ranks gpt.ini run.dir=same$ranks model.init="$golden/plain" data.batch_size=2 data.micro_batch=1 \
        parallel.reproducible=yes optimizer.ema=0.9
done
[ -n "$(weights same1)" ] && [ "$(weights same1)" = "$(weights same2)" ]
ok $? "two ranks, which both read it, train the weights of one"

run 1 gpt.ini run.dir=missing model.init="$golden/plain" model.n_layer=3
[ $? = 78 ] && names out "model.n_layer = 3 & 2 & auto" && ! grep -q 'transformer\.\|n_embd' out
ok $? "more blocks than the folder has: the key is named, and no tensors"
run 1 gpt.ini run.dir=shape model.init="$golden/plain" model.n_embd=32 model.vocab_size=300
[ $? = 78 ] && names out "model.n_embd = 32 & 16 & model.vocab_size = 300 & 270" && ! grep -q 'transformer\.' out
ok $? "so are several sizes"
run 1 "$TRAINER_ROOT/configs/gpt2_124m.ini" run.dir=sizes model.init="$golden/plain" data.train=text.h5:train \
    data.valid= data.batch_size=1 train.steps=1 schedule.warmup=0 threads=1
[ $? = 0 ] && grep -q '^n_layer *= *2$' sizes/config.ini && grep -q '^context *= *112$' sizes/config.ini
ok $? "the sizes of configs/gpt2_124m.ini are those of the folder"
mkdir other && cp "$golden"/plain/* other && sed -i 's/gelu_new/relu/' other/config.json
run 1 gpt.ini run.dir=other model.init=other
[ $? = 78 ] && grep -q 'activation_function' out
ok $? "a model with other options is refused"
rm -rf other && cp -r "$golden/shards" other && rm other/model-00002-of-*
run 1 gpt.ini run.dir=shard model.init=other
[ $? = 66 ] && grep -q 'model-00002' out
ok $? "a shard that is missing is named"
echo "1..$n"
