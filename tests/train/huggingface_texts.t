#!/usr/bin/env bash
# TEST timeout=120
# What a folder of Hugging Face says beside its weights: a separate output layer, the ends of texts, added tokens, a
# vocabulary that was rounded up; and GPT-2s in the forms of other programs. The tokens are those of transformers 5.24
# for tests/golden/gpt2/plain with these changes (greedy, do_sample=False; for `padded` with suppress_tokens).
. "${TRAINER_ROOT:?is set by the runner: make test k=train/huggingface_texts}/tests/support/common.sh"
golden=$TRAINER_ROOT/tests/golden/gpt2
export PYTHONDONTWRITEBYTECODE=1
cat >make.py <<'PY'
import array, json, os, shutil, struct, sys

def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + size:][slice(*t["data_offsets"])]) for name, t in header.items()}

def write(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))

def transposed(dtype, shape, data):
    values, (rows, columns) = array.array("f", data), shape
    return dtype, [columns, rows], array.array("f", [values[i * columns + j] for j in range(columns)
                                                     for i in range(rows)]).tobytes()

def make(name, change=None, tokens=None, config={}, **files):
    shutil.copytree(sys.argv[1], name)
    tensors = read(name + "/model.safetensors")
    write(name + "/model.safetensors", change(tensors) if change else tensors)
    files["config"] = {**json.load(open(name + "/config.json")), **config}
    if tokens:
        files["vocab"] = {t: i for t, i in json.load(open(name + "/vocab.json")).items() if i < tokens}
        open(name + "/merges.txt", "w").write("#version: 0.2\n")
    for file, content in files.items():
        json.dump(content, open(name + "/" + file + ".json", "w"))

def head(data):
    return lambda tensors: {**tensors, "lm_head.weight": ("F32", [270, 16], data(tensors["transformer.wte.weight"][2]))}

def before(prefix): return lambda tensors: {prefix + name: t for name, t in tensors.items()}
def nanogpt(tensors):
    return {"_orig_mod." + name: transposed(*t) if len(t[1]) == 2 and ".h." in name else t
            for name, t in tensors.items() if not name.endswith(".bias")}

same, other = lambda data: data, lambda data: data[:-4] + data[:4]
separate = {"tie_word_embeddings": False}
make("equal", head(same), config=separate)
make("unused", head(other))
make("separate", head(other), config=separate)
make("headless", config=separate)
make("ends", config={"eos_token_id": [205, 170]})
make("generation", config={"eos_token_id": 5}, generation_config={"eos_token_id": 170})
make("wrong_ends", config={"eos_token_id": "<|endoftext|>"})
make("no_token", config={"eos_token_id": 50256})
make("padded", tokens=257)
named = {"<|im_start|>": 257, "<|im_end|>": 258}
kept = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
make("decoder", tokens=257, config={"eos_token_id": [258, 56]}, tokenizer_config={
    "tokenizer_class": "GPT2Tokenizer", "model_max_length": 1000000000000000019884624838656,
    "added_tokens_decoder": {str(i): {"content": t, **kept} for t, i in named.items()}})
make("older", tokens=257, added_tokens=named)
vocab = json.load(open("older/vocab.json"))
make("json", tokens=257, tokenizer={"model": {"vocab": vocab, "merges": []}, "added_tokens": [
    {"id": i, "content": t} for t, i in {**named, "<|endoftext|>": 256}.items()]})
for name in ("json/vocab.json", "json/merges.txt"): os.remove(name)
make("gaps", tokens=257, added_tokens={"<|im_end|>": 263})
make("twice", tokens=257, added_tokens={"<|im_end|>": 65})
for prefix in ("module.", "student."): make(prefix, before(prefix))
make("nanogpt", nanogpt)
make("bin")
os.rename("bin/model.safetensors", "bin/pytorch_model.bin")
PY
python3 make.py "$golden/plain" >out 2>&1
ok $? "folders"

# tokens FOLDER PROMPT N: of the greedy text
tokens() {
    call 0 generate "$1" --prompt "$2" --tokens "$3" --temperature 0 --json texts.json threads=1 &&
        python3 -c 'import json; t = json.load(open("texts.json"))["texts"][0]; print(*t["tokens"], t["stop"])'
}
plain='32 51 170 32 32 171 29 170 length'
[ "$(tokens equal 'The run' 8)" = "$plain" ] && ! names err lm_head &&
    [ "$(tokens unused 'The run' 8)" = "$plain" ] &&
    names err 'warning & unused & lm_head.weight & tie_word_embeddings'
ok $? "an output layer that is not used is compared with the embedding"
for folder in separate headless; do
    call 78 generate $folder --prompt a && names err "error & $folder & lm_head.weight & tie_word_embeddings" || break
done
ok $? "a separate one is refused"

[ "$(tokens ends 'The run' 8)" = '32 51 end of text' ] &&
    [ "$(tokens generation 'The run' 8)" = '32 51 end of text' ] &&
    call 65 generate wrong_ends --prompt a && names err 'wrong_ends & eos_token_id'
ok $? "eos_token_id, a number or a list; generation_config.json overrides"
for folder in equal no_token; do
    call 0 generate $folder --prompt a --tokens 400 --temperature 1 --seed 1 --json $folder.json threads=1 || break
done
json 'a["texts"] == b["texts"] and a["texts"][0]["stop"] == "end of text"' equal.json no_token.json
ok $? "an eos_token_id that no token has: the text ends at the end-of-text token"

[ "$(tokens padded 'The run' 40)" = '32 32 171 32 32 126 108 32 73 34 156 118 214 32 32 32 32 214 73 214 32 29 205 '\
'118 32 88 32 164 205 96 32 214 126 177 32 32 32 164 32 215 length' ] &&
    [ "$(tokens gaps a 40 | cut -d ' ' -f 35-)" = '32 108 32 214 263 177 length' ] &&
    call 0 generate padded --prompt a --prompt The --tokens 100 --temperature 5 --seed 3 threads=1
ok $? "tokens without text are never generated"

marked='The<|im_start|> run<|im_end|>x'
greedy='170 32 126 108 32 96 34 170 32 170 32 32 32 34 214 78 214 32 29 205 32 32 32 32 164 205 96 32 214 220 177 32 '\
'32 32 164 32 205'
for folder in older json; do
    [ "$(tokens $folder "$marked" 39)" = "$greedy 56 96 length" ] && grep -q '"prompt_tokens": 10' texts.json || break
done && [ "$(tokens decoder "$marked" 39)" = "$greedy end of text" ] && call 65 generate twice --prompt a &&
    names err 'twice & <|im_end|> & 65'
ok $? "the text of an added token in a prompt is one token"

call 0 import text "$golden/text.txt" text.h5 --tokenizer gpt2:json --valid-fraction 0 && sed "s/^ *//" >gpt.ini <<'INI'
    threads = 1
    [model]
    type = gpt
    [data]
    train = text.h5:train
    batch_size = 1
    [optimizer]
    lr = 0
    weight_decay = 0
    [train]
    steps = 1
INI
call 0 gpt.ini run.dir=tuned model.init=decoder && [ "$(tokens tuned "$marked" 39)" = "$greedy end of text" ] &&
    call 0 export tuned tuned.safetensors && call 0 gpt.ini run.dir=resumed model.init=tuned.safetensors \
    model.n_layer=2 model.n_head=2 model.n_embd=16 model.context=112 model.vocab_size=270 &&
    python3 - tuned resumed <<'PY'
import json, sys
for run in sys.argv[1:]:
    folder = run + "/checkpoints/latest/"
    ends = json.load(open(folder + "generation_config.json"))["eos_token_id"]
    added = json.load(open(folder + "tokenizer_config.json"))["added_tokens_decoder"]
    assert ends == [258, 56, 256], ends
    assert added["258"]["content"] == "<|im_end|>" and added["257"]["special"] and len(added) == 2, added
PY
ok $? "ends and added tokens stay with the model: in checkpoints, in an exported file, and for transformers"

for prefix in module. student.; do
    call 78 generate $prefix --prompt a && names err "error & '$prefix'" || break
done && call 78 gpt.ini run.dir=bad model.init=nanogpt/model.safetensors &&
    names err "'_orig_mod.' & c_attn.weight & (48, 16) & nanoGPT & biases" && ! names err wpe &&
    call 66 generate bin --prompt a && names err 'bin & pytorch_model.bin & save_pretrained' &&
    call 66 gpt.ini run.dir=bad model.init=bin && names err pytorch_model.bin
ok $? "other names, nanoGPT's order and pytorch_model.bin: what to do"
echo "1..$n"
