#!/usr/bin/env python3
"""Makes tests/golden/gpt2: a small random GPT-2 of transformers in the forms in which such files are found, and what transformers
computes with it.

  plain     as save_pretrained writes it, with a tokenizer of 270 tokens
  f16, bf16 the same weights rounded
  bare      names without the prefix "transformer.", with the masks that older files have
  shards    in several files with an index

expected.json has, for each, the loss per token of text.txt in windows of the context, and for `plain` greedy texts of 100 tokens;
"cropped" is the text of PROMPTS[1] of 180 tokens, each from the last CONTEXT tokens before it. The seed is the first for which no
two best tokens of these texts are closer than 0.0003, so that rounding cannot change them.

usage: make-golden-gpt2.py DIRECTORY
"""
import json
import os
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
CONTEXT, VOCAB, END = 112, 270, 256
PROMPTS = ["The run", "a", "ranks and threads"]


def byte_characters():
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, more = {}, 0
    for byte in range(256):
        table[byte] = chr(byte if byte in plain else 256 + more)
        more += byte not in plain
    return table


def make_tokenizer(text, folder):
    """Byte-pair encoding: the most frequent pair of tokens is merged, again and again."""
    char = byte_characters()
    tokens, merges = [char[b] for b in range(256)] + ["<|endoftext|>"], []
    words = [[char[b] for b in (" " + w).encode()] for w in text.split()]
    while len(tokens) < VOCAB:
        count = {}
        for w in words:
            for pair in zip(w, w[1:]):
                count[pair] = count.get(pair, 0) + 1
        best = max(sorted(count), key=count.get)
        merges.append(best)
        tokens.append(best[0] + best[1])
        words = [join(w, best) for w in words]
    with open(f"{folder}/vocab.json", "w") as f:
        json.dump({t: i for i, t in enumerate(tokens)}, f)
    with open(f"{folder}/merges.txt", "w") as f:
        f.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    return {t: i for i, t in enumerate(tokens)}, merges


def join(word, pair):
    out = []
    for token in word:
        if out and (out[-1], token) == pair:
            out[-1] += token
        else:
            out.append(token)
    return out


def encode(text, vocab, merges):
    """As GPT-2 splits text of letters and single spaces: before each space."""
    char, ids = byte_characters(), []
    for i, w in enumerate(text.split(" ")):
        word = [char[b] for b in ((" " if i else "") + w).encode()]
        for pair in merges:
            word = join(word, pair)
        ids += [vocab[t] for t in word]
    return ids


def make_model(seed):
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2, bos_token_id=END, eos_token_id=END)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (0.15 if "wte" in name else 0.5 if p.dim() > 1 else 0.1) + (1 if "ln_" in name and "weight" in name else 0))
    return model


@torch.no_grad()
def greedy(model, ids, count):
    """The tokens and the smallest distance between the best two scores."""
    ids, gap = list(ids), 1e9
    for _ in range(count):
        best = model(torch.tensor([ids[-CONTEXT:]])).logits[0, -1].topk(2)
        gap = min(gap, float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
    return ids[-count:], gap


@torch.no_grad()
def loss(model, ids):
    total = 0.0
    for first in range(0, len(ids) - 1, CONTEXT):
        x, y = ids[first:first + CONTEXT], ids[first + 1:first + CONTEXT + 1]
        logits = model(torch.tensor([x[:len(y)]])).logits[0].double()
        total += float(torch.nn.functional.cross_entropy(logits, torch.tensor(y), reduction="sum"))
    return total / (len(ids) - 1)


def main():
    out = sys.argv[1]
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(f"{out}/plain")
    words = "the run trains a model on ranks and threads and the loss falls while ranks share gradients"
    text = " ".join(words.split()[i * i % 16] for i in range(120))
    with open(f"{out}/text.txt", "w") as f:
        f.write(text)
    vocab, merges = make_tokenizer(text, f"{out}/plain")
    ids, prompts = encode(text, vocab, merges), [encode(p, vocab, merges) for p in PROMPTS]
    for seed in range(100):
        model = make_model(seed)
        texts = [greedy(model, p, 100 if len(p) <= CONTEXT - 99 else CONTEXT - len(p) + 1) for p in prompts]
        cropped, gap = greedy(model, prompts[1], 180)
        if min([gap] + [gap for _, gap in texts]) > 0.0003 and min(len(set(t)) for t, _ in texts) > 4:
            break
    expected = {"seed": seed, "prompts": [{"prompt": p, "ids": i, "tokens": t} for p, i, (t, _) in zip(PROMPTS, prompts, texts)],
                "cropped": cropped, "loss": {"plain": loss(model, ids)}}
    model.save_pretrained(f"{out}/plain")
    for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        other = make_model(seed).to(dtype)
        other.save_pretrained(f"{out}/{name}")
        expected["loss"][name] = loss(other.float(), ids)
    model.save_pretrained(f"{out}/shards", max_shard_size="20KB")
    bare = {k.removeprefix("transformer."): v for k, v in load_file(f"{out}/plain/model.safetensors").items()}
    for layer in range(2):
        bare[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 4, 4).tril()
    os.makedirs(f"{out}/bare")
    save_file(bare, f"{out}/bare/model.safetensors", metadata={"format": "pt"})
    shutil.copy(f"{out}/plain/config.json", f"{out}/bare")
    for folder in ("plain", "f16", "bf16", "shards"):
        os.unlink(f"{out}/{folder}/generation_config.json")
    with open(f"{out}/expected.json", "w") as f:
        json.dump(expected, f, indent=1)


main()
