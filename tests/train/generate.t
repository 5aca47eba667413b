#!/usr/bin/env bash
# TEST timeout=120
# Continuing texts: as transformers does, the same on any batch and number of ranks, where a text ends, and what is
# refused.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/generate}/tests/support/common.sh"
golden=$TRAINER_ROOT/tests/golden/gpt2/plain
# expected PROMPT: the greedy tokens that transformers chose; tokens N: those of text N in texts.json; both on one line
expected() {
    tr -d ' \n' <"$TRAINER_ROOT/tests/golden/gpt2/expected.json" |
        sed -n "s/.*\"prompt\":\"$1\",\"ids\":\[[0-9,]*\],\"tokens\":\[\([0-9,]*\)\].*/\1/p"
}
tokens() { tr -d ' \n' <texts.json | grep -o '"tokens":\[[0-9,]*\]' | sed -n "$1s/.*\[\(.*\)\]/\1/p"; }
# generate RANKS ARGUMENTS...: its JSON in texts.json, what it prints in ./out. On one thread: a rank's threads are
# its share of the cores, and a sum may be rounded otherwise on another number of them.
generate() {
    local ranks=$1
    shift
    rm -f texts.json
    run "$ranks" generate "$@" --json texts.json threads=1
}
generate 1 "$golden" --prompt 'The run' --prompt a --tokens 100 --temperature 0
[ $? = 0 ] && [ -n "$(tokens 1)" ] && [ "$(tokens 1)" = "$(expected Therun)" ] && [ "$(tokens 2)" = "$(expected a)" ]
ok $? "100 greedy tokens are those of transformers"

generate 1 "$golden" --prompt 'The run' --prompt a --tokens 100 --temperature 0 device=strict
[ $? = 0 ] && [ "$(tokens 2)" = "$(expected a)" ]
ok $? "also on the strict device"
printf 'The run\na\nranks and threads\nthe loss falls\nthe\n' >prompts.txt
ways=(
    '--temperature 0'
    '--temperature 1 --seed 7'
    '--temperature 1.2 --top-k 40 --top-p 0.9 --seed 7'
    '--temperature 0 --weights bf16'
)
for way in "${ways[@]}"; do
    # shellcheck disable=SC2086
    generate 1 "$golden" --prompts prompts.txt --tokens 40 --batch 1 $way
    one=$(for i in 1 2 3 4 5; do tokens $i; done)
    for other in '1 4' '2 2' '3 1'; do
        # shellcheck disable=SC2086
        generate "${other% *}" "$golden" --prompts prompts.txt --tokens 40 --batch "${other#* }" $way
        [ $? = 0 ] && [ -n "$one" ] && [ "$one" = "$(for i in 1 2 3 4 5; do tokens $i; done)" ]
        ok $? "$way: the same texts on ${other% *} ranks in batches of ${other#* }"
    done
done
generate 1 "$golden" --prompt a --tokens 30 --temperature 1 --seed 7 && first=$(tokens 1)
generate 1 "$golden" --prompt a --tokens 30 --temperature 1 --seed 7 && [ "$first" = "$(tokens 1)" ]
ok $? "sampling again gives the same text"

generate 1 "$golden" --prompt a --tokens 30 --temperature 1 --seed 8 && [ "$first" != "$(tokens 1)" ]
ok $? "another seed gives another"
generate 1 "$golden" --prompt a --tokens 30 --temperature 1 --top-k 1 &&
    [ "$(tokens 1)" = "$(expected a | cut -d, -f1-30)" ]
ok $? "--top-k 1 is greedy"
generate 1 "$golden" --prompt a --tokens 200 --temperature 0
[ $? = 0 ] && [ "$(tokens 1 | tr ',' '\n' | wc -l)" = 112 ] && grep -q '"stop": "end of the context"' texts.json &&
    grep -q 'end of the context' out
ok $? "a text stops at the end of the context, and the program says so"
generate 1 "$golden" --tokens 5 --temperature 0
[ $? = 0 ] && grep -q '"prompt_tokens": 1' texts.json
ok $? "an empty prompt begins with the end of a text"
run 1 generate "$golden" --prompt "$(cat "$TRAINER_ROOT/tests/golden/gpt2/text.txt")"
[ $? = 65 ] && grep -q '148\|149' out && grep -q '112' out
ok $? "a prompt that is longer than the context is refused"
run 1 generate "$golden" --prompt a --tokens 0
[ $? = 2 ] && grep -q -- "--tokens '0'" out
ok $? "and a bad option"
# A run with a tokenizer of its own.
printf 'abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc\n' >text.txt
"$TRAINER" import text text.txt text.h5 --tokenizer chars --valid-fraction 0 >out 2>&1
cat >gpt.ini <<'INI'
threads = 1
[model]
type = gpt
n_layer = 1
n_head = 2
n_embd = 20
context = 24
[data]
train = text.h5:train
batch_size = 2
[optimizer]
lr = 0.01
[train]
steps = 100
[run]
dir = run
INI
run 1 gpt.ini
run 1 generate run --prompt ab --tokens 12 --temperature 0
[ $? = 0 ] && grep -q '^abcabcabcabcab$' out && grep -q 'tokens/s' out
ok $? "a run continues what it learned"

run 1 generate run/checkpoints/latest/model.safetensors --prompt ab
[ $? = 66 ] || [ $? = 78 ]
ok $? "a file of weights without a configuration is refused"
run 1 generate run --prompt xyz
[ $? = 65 ] && grep -q "'x' (U+0078)" out
ok $? "so is a character that the tokenizer does not know"
echo "1..$n"
