#!/usr/bin/env python3
"""make-golden-tokens.py DATA FILE: writes tests/golden/tokens.json for tests/unit/text/test_tokenizer.c.

Needs tiktoken (python3 -m pip install tiktoken), DATA/gpt2/vocab.json, DATA/gpt2/merges.txt and
DATA/text/tinyshakespeare.txt. The file has
    tiktoken         its version
    torture          a text of hard cases, and its ids by GPT-2's vocabulary
    tinyshakespeare  count and CRC-32 of the ids (little-endian 32-bit)
    code_points      the same of "a C1C CC" and a line feed, for every code point C but surrogates
    small            a vocabulary of a few hundred tokens made of the torture text: vocab, merges,
                     and the text's ids
"""
import collections
import json
import random
import struct
import sys
import zlib

import tiktoken

PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
END = "<|endoftext|>"
MERGES = 200


def byte_characters():
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {**{b: chr(b) for b in shown}, **{b: chr(256 + i) for i, b in enumerate(hidden)}}


CHARACTER = byte_characters()
BYTE = {c: b for b, c in CHARACTER.items()}


def encoding(vocab):
    ranks = {bytes(BYTE[c] for c in token): id for token, id in vocab.items() if token != END}
    return tiktoken.Encoding("golden", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={END: vocab[END]})


def encode(e, text):
    return e.encode(text, allowed_special={END})


def checksum(ids):
    return {"count": len(ids), "crc32": zlib.crc32(struct.pack(f"<{len(ids)}I", *ids))}


def torture():
    cases = [
        "", "Hello world", "I'm you're he'll we've they'd it's don't I'M 'S'", "''' 's's'st''re 'relax'", "a'b 'llama 'vel'm'd",
        "  two  spaces   three    four ", "trailing   ", "\n\n\nlines\r\n\r\nof\ttext\t\t\tand tabs\v\f", " \n \n  x \n\n y", "\t \t",
        "1234567890 12.5e-3 0x1F 3/4 \u00bd\u00b2\u2075 \u0661\u0662\u0663 \u2167 \u3007\u4e00",
        "caf\u00e9 cafe\u0301 na\u00efve \u00c5ngstr\u00f6m stra\u00dfe \u01c5 \ufb01 \u02b0\u00aa\u00ba",
        "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f \uc548\ub155 \u041f\u0440\u0438\u0432\u0435\u0442 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u1019\u103c\u1014\u103a\u1019\u102c",
        "\u00a0nbsp\u00a0\u00a0two \u2003em\u2003\u2003 \u3000\u3000ideographic\u0085next\u2028line\u2029par \u200bzero \ufeffbom",
        "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f1e9\U0001f1ea\u2764\ufe0f !!!???... --- *** ((( $$$ \u20ac\u00a3\u00a5 \u2014\u2013\u2026\u201cq\u201d",
        "x" * 300 + " " * 100 + "-" * 200 + "7" * 150 + "\n" * 70, "ab" * 200, "\u00e9" * 100, "_" * 65, "=" * 130 + "a",
        "one" + END + "two " + END + END + " three <|endoftex <|endoftext| >", "\u0000\u0001\u007f control\u001b[0m", "\U0010ffff\ue000\ufffd\U00020000",
        "def f(x):\n    return x**2  # comment\n\tif (a != b) && c[0] == '\\n';", "https://example.org/a?b=c&d=%20e#f", "aA1 bB2_cC3-dD4",
    ]
    draw = random.Random(1)
    alphabet = "aeiostnrl THE'''sdm  \n\t.,1920\u00e9\u4e2d\u3000\u00a0\u0301\u00bd-"
    cases += ["".join(draw.choice(alphabet) for _ in range(draw.randrange(1, 40))) for _ in range(400)]
    return "\n".join(cases)


def small_vocabulary(text):
    """Byte-pair encoding learned from the text, cut at spaces: any merges serve."""
    words = collections.Counter(tuple(bytes([b]) for b in word.encode()) for word in text.replace(" ", "\x00 ").split("\x00"))
    tokens, merges = [bytes([b]) for b in range(256)], []
    while len(merges) < MERGES:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        left, right = max(pairs, key=lambda pair: (pairs[pair], pair))
        if left + right not in tokens:
            tokens.append(left + right)
            merges.append((left, right))
        merged = collections.Counter()
        for word, count in words.items():
            out, at = [], 0
            while at < len(word):
                joined = word[at:at + 2] == (left, right)
                out.append(left + right if joined else word[at])
                at += 2 if joined else 1
            merged[tuple(out)] += count
        words = merged

    def shown(token):
        return "".join(CHARACTER[b] for b in token)

    vocab = {shown(token): id for id, token in enumerate(tokens)}
    vocab[END] = len(vocab)
    return vocab, [f"{shown(left)} {shown(right)}" for left, right in merges]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    data, path = sys.argv[1:]
    with open(f"{data}/gpt2/vocab.json", encoding="utf-8") as file:
        gpt2 = encoding(json.load(file))
    with open(f"{data}/text/tinyshakespeare.txt", encoding="utf-8", newline="") as file:
        shakespeare = file.read()
    text = torture()
    vocab, merges = small_vocabulary(text)
    points = "".join(f"a {chr(c)}1{chr(c)} {chr(c)}{chr(c)}\n" for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    golden = {
        "tiktoken": tiktoken.__version__,
        "torture": {"text": text, "ids": encode(gpt2, text)},
        "tinyshakespeare": checksum(encode(gpt2, shakespeare)),
        "code_points": checksum(encode(gpt2, points)),
        "small": {"vocab": vocab, "merges": merges, "ids": encode(encoding(vocab), text)},
    }
    with open(path, "w", encoding="ascii") as out:
        json.dump(golden, out, separators=(",", ":"))
        out.write("\n")
    print({key: value.get("count", len(value.get("ids", ""))) for key, value in golden.items() if key != "tiktoken"})


if __name__ == "__main__":
    main()
