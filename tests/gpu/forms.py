#!/usr/bin/env python3
# forms.py OLD.json NEW.json: two results of `trainer bench step --json`, the old and the new forms of kernels: milliseconds of each op.
import json
import sys

runs = [json.load(open(path)) for path in sys.argv[1:3]]
sums = [{}, {}]
for run, ops in zip(runs, sums):
    for op in run["ops"]:
        ops[op["op"]] = ops.get(op["op"], 0) + 1e3 * op["sec_median"]
print("| op | old, ms | new, ms |\n|---|---:|---:|")
for name in sorted(set(sums[0]) | set(sums[1]), key=lambda n: -max(s.get(n, 0) for s in sums)):
    print("| %s | %s |" % (name, " | ".join("%.2f" % s[name] if name in s else "-" for s in sums)))
print("result: old %.2f ms, new %.2f ms" % tuple(1e3 * run["step_sec_median"] for run in runs))
