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
ok_keys generate texts.json

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
# A file whose matrices are in the type that they are held in, and one that is rounded while it is read.
narrow() { # FOLDER TYPE: the model with matrices in BF16 or F16, those of positions excepted
    mkdir "$1" && cp "$golden"/*.json "$golden"/*.txt "$1" && python3 -I -c '
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size, = struct.unpack("<Q", data[:8])
header, base, out = json.loads(data[8:8 + size]), 8 + size, b""
def half(x):
    bits, = struct.unpack("<I", struct.pack("<f", x))
    return struct.pack("<e", x) if sys.argv[3] == "F16" else struct.pack("<H", (bits + 0x7fff + (bits >> 16 & 1)) >> 16)
for name, t in header.items():
    if name == "__metadata__": continue
    values = data[base + t["data_offsets"][0]:base + t["data_offsets"][1]]
    if len(t["shape"]) == 2 and "wpe" not in name:
        values = b"".join(half(x) for x, in struct.iter_unpack("<f", values))
        t["dtype"] = sys.argv[3]
    t["data_offsets"] = [len(out), len(out) + len(values)]
    out += values
text = json.dumps(header).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + out)' \
        "$golden/model.safetensors" "$1/model.safetensors" "$2"
}
for type in bf16 fp16; do
    if ! command -v python3 >/dev/null; then
        skip "$type" "no python3"
        continue
    fi
    narrow $type "$([ $type = bf16 ] && echo BF16 || echo F16)" &&
        generate 1 "$golden" --prompts prompts.txt --tokens 40 --temperature 1 --weights $type &&
        want=$(for i in 1 2 3 4 5; do tokens $i; done) && [ -n "$want" ] &&
        generate 1 $type --prompts prompts.txt --tokens 40 --temperature 1 --weights $type &&
        [ "$want" = "$(for i in 1 2 3 4 5; do tokens $i; done)" ]
    ok $? "a file of $type: the texts of the fp32 file that is rounded"
done
generate 1 "$golden" --prompt a --tokens 30 --temperature 1 --seed 7 && first=$(tokens 1)
generate 1 "$golden" --prompt a --tokens 30 --temperature 1 --seed 7 && [ "$first" = "$(tokens 1)" ]
ok $? "sampling again gives the same text"

generate 1 "$golden" --prompt a --tokens 30 --temperature 1 --seed 8 && [ "$first" != "$(tokens 1)" ]
ok $? "another seed gives another"
generate 1 "$golden" --prompt a --tokens 30 --temperature 1 --top-k 1 &&
    [ "$(tokens 1)" = "$(expected a | cut -d, -f1-30)" ]
ok $? "--top-k 1 is greedy"
generate 1 "$golden" --prompt a --tokens 200 --temperature 0 --no-slide
[ $? = 0 ] && [ "$(tokens 1 | tr ',' '\n' | wc -l)" = 112 ] && grep -q '"stop": "end of the context"' texts.json &&
    grep -q 'end of the context' out
ok $? "--no-slide: a text stops at the end of the context, and the program says so"
generate 1 "$golden" --tokens 5 --temperature 0
[ $? = 0 ] && grep -q '"prompt_tokens": 1' texts.json
ok $? "an empty prompt begins with the end of a text"
long=$(cat "$TRAINER_ROOT/tests/golden/gpt2/text.txt")
run 1 generate "$golden" --prompt "$long" --no-slide
[ $? = 65 ] && grep -q '148\|149' out && grep -q '112' out
ok $? "and a prompt that is longer than the context is refused"
# -- texts past the context
for slide in 1 56; do
    generate 1 "$golden" --prompt a --prompt 'The run' --tokens 180 --temperature 0 --slide $slide --batch 2
    [ $? = 0 ] && [ "$(tokens 1 | tr ',' '\n' | wc -l)" = 180 ] && both=$(tokens 1; tokens 2) &&
        [ "$(tokens 1 | cut -d, -f1-100)" = "$(expected a)" ] && ! grep -q 'end of the context' out
    ok $? "--slide $slide: the text goes on"
    generate 2 "$golden" --prompt a --prompt 'The run' --tokens 180 --temperature 0 --slide $slide --batch 1
    [ $? = 0 ] && [ "$both" = "$(tokens 1; tokens 2)" ]
    ok $? "--slide $slide: alone as in a batch"
    [ $slide = 1 ] && cropped=$(tokens 1)
done
[ "$cropped" = "$(tr -d ' \n' <"${golden%/*}/expected.json" | sed 's/.*"cropped":\[\([0-9,]*\).*/\1/')" ]
ok $? "--slide 1: the tokens that transformers chose from the cropped context"
generate 1 "$golden" --prompt a --tokens 180 --temperature 0
[ $? = 0 ] && [ "$(tokens 1)" = "$(echo "$both" | head -1)" ]
ok $? "half of the context is the default"
generate 1 "$golden" --prompt "$long" --tokens 9 --temperature 0
[ $? = 0 ] && grep -q '1 of 1 .* 112 ' out && first=$(tokens 1) &&
    generate 1 "$golden" --prompt "x $long" --tokens 9 --temperature 0 && [ "$first" = "$(tokens 1)" ]
ok $? "of a longer prompt the last tokens are read, and the program says so"
run 1 generate "$golden" --prompt a --slide 113
[ $? = 2 ] && names out '113 & 112 & model.context'
ok $? "a slide that is longer than the context"
run 1 generate "$golden" --prompt a --slide 2 --no-slide
[ $? = 2 ] && names out '--slide & --no-slide'
ok $? "or none"
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
