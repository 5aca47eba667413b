#!/usr/bin/env bash
# TEST timeout=400
# With transformers itself (PYTHON names an interpreter that has it): a random GPT-2 of its read here, and a model
# trained here read there.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/transformers}/tests/support/common.sh"
python=${PYTHON:-python3} golden=$TRAINER_ROOT/tests/golden/gpt2
"$python" -c '
import importlib.util, sys
sys.exit(not all(importlib.util.find_spec(name) for name in ("torch", "transformers", "safetensors")))' 2>/dev/null ||
    { echo "1..0 # SKIP no transformers in $python"; exit 0; }
export PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
cat >hf.py <<'PY'
import json, os, shutil, sys
import numpy, torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

def load(folder):
    return GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()

def save(tensors, name):
    os.makedirs(name, exist_ok=True)
    save_file(tensors, name + "/model.safetensors", {"format": "pt"})

def make():
    torch.manual_seed(5)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=270, n_positions=128, n_embd=48, n_layer=3, n_head=4,
                                       initializer_range=0.1, bos_token_id=256, eos_token_id=256))
    for parameter in model.parameters():  # biases and gains too
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained("plain")
    model.save_pretrained("shards", max_shard_size="50KB")
    tensors = load_file("plain/model.safetensors")
    save({name: t.half() for name, t in tensors.items()}, "f16")
    save({name.removeprefix("transformer."): t for name, t in tensors.items()}, "bare")
    save({name: t for name, t in tensors.items() if name != "transformer.h.1.mlp.c_fc.bias"}, "missing")
    save({name: t[:-1].contiguous() if name == "transformer.h.2.ln_1.weight" else t
          for name, t in tensors.items()}, "shape")
    for name in ("f16", "bare", "missing", "shape"):
        shutil.copy("plain/config.json", name)
    torch.randint(270, (128,), dtype=torch.int32).numpy().tofile("ids")

def logits(folder, file):
    """Each logit within 1e-4 of the largest."""
    ids = torch.from_numpy(numpy.fromfile("ids", numpy.int32).astype(numpy.int64))
    with torch.no_grad():
        expected = load(folder)(ids[None]).logits[0].numpy()
    found = numpy.fromfile(file, numpy.float32).reshape(expected.shape)
    return numpy.abs(found - expected).max() / numpy.abs(expected).max() < 1e-4

def text(folder, prompt, file):
    """100 greedy tokens."""
    ids = torch.tensor([AutoTokenizer.from_pretrained(folder)(prompt)["input_ids"]])
    with torch.no_grad():
        out = load(folder).generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                    max_new_tokens=100, pad_token_id=256)
    expected = out[0, ids.shape[1]:].tolist()
    return len(expected) == 100 and json.load(open(file))["texts"][0]["tokens"] == expected

def verify():
    """A line "NAME 1" for each that holds."""
    for name in ("plain", "shards", "f16", "bare"):
        print(name, int(logits("f16" if name == "f16" else "plain", name + ".logits")))
    print("back", int(logits("tuned/checkpoints/latest", "tuned.logits")))
    print("text", int(text("tuned/checkpoints/latest", "The run", "texts.json")))

globals()[sys.argv[1]](*sys.argv[2:])
PY
"$python" hf.py make >out 2>&1
ok $? "transformers makes a GPT-2"
for form in plain shards f16 bare missing shape; do cp "$golden"/plain/{vocab.json,merges.txt} $form; done
"$TRAINER" import text "$golden/text.txt" text.h5 --tokenizer "gpt2:$golden/plain" --valid-fraction 0 >out 2>&1
cat >gpt.ini <<'INI'
threads = 1
[model]
type = gpt
[data]
train = text.h5:train
batch_size = 1
[optimizer]
lr = 0.001
[train]
steps = 1
INI
# logits RUN FILE: those of its checkpoint
logits() {
    "$BUILD/tests/train/make_logits" "$1/checkpoints/latest/model.safetensors" ids model.n_layer=3 model.n_head=4 \
        model.n_embd=48 model.context=128 model.vocab_size=270 >"$2" 2>out
}
for form in plain shards f16 bare; do
    # with the learning rate 0 the weights stay what was read
    run 1 gpt.ini run.dir=of-$form model.init=$form optimizer.lr=0 && logits of-$form $form.logits
    ok $? "$form: read"
done
run 1 gpt.ini run.dir=bad model.init=missing
[ $? = 78 ] && names out 'transformer.h.1.mlp.c_fc.bias & 192 & missing'
ok $? "a tensor that is missing is named"

run 1 gpt.ini run.dir=bad model.init=shape
[ $? = 78 ] && names out 'transformer.h.2.ln_1.weight & (48) & (47) & shape'
ok $? "so is one of another shape"
run 2 gpt.ini run.dir=tuned model.init=plain data.batch_size=2 train.steps=20 && logits tuned tuned.logits
ok $? "a model trained further"
run 1 generate tuned --prompt 'The run' --tokens 100 --temperature 0 --json texts.json
ok $? "continues a text"
"$python" hf.py verify >verified 2>out
for form in plain shards f16 bare; do
    grep -q "^$form 1\$" verified
    ok $? "$form: the logits of transformers"
done
grep -q '^back 1$' verified
ok $? "the checkpoint as it is: the same logits there"

grep -q '^text 1$' verified
ok $? "and the same 100 greedy tokens, with its tokenizer"
echo "1..$n"
