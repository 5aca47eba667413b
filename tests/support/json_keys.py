"""The keys of JSON files, one path a line, sorted: "rows[].step_sec". Lines of JSON (.jsonl) count together. A second argument
is a regular expression: a path that it matches whole is not listed, nor what is below it: names of data, what depends on times.
"""
import json
import re
import sys


def paths(value, path, names):
    if isinstance(value, list):
        for item in value:
            yield from paths(item, path + "[]", names)
    elif isinstance(value, dict):
        for key, item in value.items():
            below = f"{path}.{key}" if path else key
            if not re.fullmatch(names, below):
                yield below
                yield from paths(item, below, names)


text = open(sys.argv[1], encoding="utf-8").read()
values = [json.loads(line) for line in text.splitlines()] if sys.argv[1].endswith(".jsonl") else [json.loads(text)]
print("\n".join(sorted(set(p for v in values for p in paths(v, "", sys.argv[2] if len(sys.argv) > 2 else "(?!)")))))
