#!/usr/bin/env python3
"""compare-unicode.py: compares src/text/unicode_ranges.inc with what other programs take for \\p{L}, \\p{N} and \\s.

Prints for tiktoken and regex how many code points (but surrogates) of each class
differ, and how many of these are not assigned in the pinned version: such a difference comes from a
newer version of Unicode, and shows in texts with characters that GPT-2 was never trained on.
"""
import importlib
import os
import re
import sys
import unicodedata

CLASSES = {"LETTER": r"\p{L}", "NUMBER": r"\p{N}", "SPACE": r"\s"}
CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ours():
    path = os.path.join(os.path.dirname(__file__), "..", "src", "text", "unicode_ranges.inc")
    with open(path, encoding="ascii") as file:
        text = file.read()
    found = {kind: set() for kind in CLASSES}
    for first, last, kind in re.findall(r"\{0x([0-9A-F]+), 0x([0-9A-F]+), TR_UNICODE_(\w+)\}", text):
        found[kind].update(range(int(first, 16), int(last, 16) + 1))
    return re.search(r'UNICODE_VERSION "(.*)"', text)[1], found


def by_tiktoken(module, pattern):
    ranks = {bytes([b]): b for b in range(256)}
    encoding = module.Encoding("class", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return {c for c in CODES if encoding.encode_ordinary(chr(c))}


def by_regex(module, pattern):
    compiled = module.compile(pattern)
    return {c for c in CODES if compiled.match(chr(c))}


def main():
    version, table = ours()
    print(f"Unicode {version}: " + ", ".join(f"{len(table[k])} of {p}" for k, p in CLASSES.items()))
    for name, members in (("tiktoken", by_tiktoken), ("regex", by_regex)):
        try:
            module = importlib.import_module(name)
        except ImportError:
            print(f"{name}: not installed")
            continue
        differ = {p: members(module, p) ^ table[k] for k, p in CLASSES.items()}
        print(f"{name} {module.__version__}: " + ", ".join(f"{len(d)} of {p} differ" for p, d in differ.items()))
        odd = sorted(set().union(*differ.values()))
        try:
            database = importlib.import_module("unicodedata2")
        except ImportError:
            database = unicodedata
        if odd and database.unidata_version == version:
            new = sum(database.category(chr(c)) == "Cn" for c in odd)
            print(f"  {new} of these {len(odd)} are not assigned in Unicode {version}; others: "
                  f"{[hex(c) for c in odd if database.category(chr(c)) != 'Cn'][:10]}")


if __name__ == "__main__":
    sys.exit(main())
