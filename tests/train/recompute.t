#!/usr/bin/env bash
# TEST timeout=120
# Chosen layers are computed again in the backward pass: the same bits in less memory; what is no choice is refused.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/recompute}/tests/support/common.sh"

command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }

# arena ARGUMENTS...: bytes of activations that fp32 plans
arena() {
    "$TRAINER" plan "$@" --stages --json plan.json >/dev/null &&
        python3 -I -c 'import json; print(json.load(open("plan.json"))["plans"][0]["arena_bytes"])'
}
# layers A B C: three equal layers with these options
layers() {
    printf '%s\n' 'threads = 1' '[model]' 'layers =' '    conv 8 3 pad=same name=stem, relu' \
        "    conv 16 3 pad=same $1" \
        "    batchnorm $1" "    relu $1" "    conv 16 3 pad=same $2" "    batchnorm $2" "    relu $2" \
        "    conv 16 3 pad=same $3" "    batchnorm $3" "    relu $3" '    globalpool, dropout 0.2, linear 10' '[data]' \
        'format = synthetic' 'train = none' 'synthetic_samples = 96' 'synthetic_shape = 16x16x1' 'batch_size = 24' \
        'micro_batch = 12' '[train]' 'steps = 6' '[parallel]' 'reproducible = yes' >net.ini
}
layers '' '' ''
call 0 net.ini run.dir=kept && kept=$(state kept) all=$(arena net.ini)
ok $? "a run that keeps all activations: $all bytes"
layers recompute=yes recompute=yes ''
call 0 net.ini run.dir=two && [ "$(state two)" = "$kept" ] && two=$(arena net.ini) && [ "$two" -lt "$all" ]
ok $? "layers 1 and 2 are computed again, not 3: the same bits, $two bytes"
call 0 plan net.ini --ops && awk '/^program/ { on = $2 == "last" } on && $2 == "conv" { print $3 }' out >ops
[ "$(grep -cx conv2 ops) $(grep -cx conv3 ops) $(grep -cx conv4 ops)" = '2 2 1' ]
ok $? "the backward pass has the first layer again, not the third"
layers '' '' ''
call 0 net.ini run.dir=two train.steps=8 && [ -e two/summary.json ]
ok $? "a run goes on without the option: it is the same model"

sed -i 's/^    conv 16.*/    residual { conv 16 3 pad=same, batchnorm recompute=yes }/' net.ini
call 78 plan net.ini && names err recompute residual
ok $? "not inside a residual"
cat >gpt.ini <<'END'
threads = 1
[model]
type = gpt
n_layer = 4
n_head = 2
n_embd = 32
context = 16
vocab_size = 64
dropout = 0.1
[data]
format = synthetic_tokens
train = none
synthetic_samples = 32
batch_size = 8
micro_batch = 4
[train]
steps = 4
[parallel]
reproducible = yes
END
call 0 gpt.ini run.dir=gpt-kept && kept=$(state gpt-kept) last=$(arena gpt.ini)
ok $? "a GPT that keeps all activations: $last bytes"
for list in 3-3 0-1 0-1,3 0-3; do
    call 0 gpt.ini run.dir="gpt-$list" model.recompute=$list && [ "$(state "gpt-$list")" = "$kept" ] &&
        bytes=$(arena gpt.ini model.recompute=$list) && [ "$bytes" -lt "$last" ]
    ok $? "blocks $list: the same bits, $bytes bytes"
    [ "$list" = 3-3 ] || last=$bytes
done
[ "$(arena gpt.ini model.recompute=0-3)" = "$(arena gpt.ini model.recompute=block)" ]
ok $? "all blocks in a list are as many as block"
refused=0
for list in 0-4 2-1 0-x , 1,,2 -1; do
    call 78 plan gpt.ini model.recompute=$list && names err model.recompute 0-3,7 || refused=1
done
ok $refused "a list of blocks that there are not, or that is none"
echo "1..$n"
