#!/usr/bin/env python3
"""compare_attention.py TRAINER [options]: attention of the program, standard and flash, beside PyTorch's scaled_dot_product_attention on the CPU.

Causal, fp32, one sample, forward and backward, for 256 tokens, twice as many, and so on. The two run in turns, and the best round of each counts.

  --max T      the largest number of tokens (4096)     --threads N  threads (all cores)
  --heads N    heads (12) of --size D channels (64)    --rounds N   rounds (3)

Exit code 77 and a line where PyTorch is absent.
"""
import argparse
import json
import os
import subprocess
import sys
import time

parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("trainer")
for name, default in (("max", 4096), ("threads", len(os.sched_getaffinity(0))), ("heads", 12), ("size", 64), ("rounds", 3)):
    parser.add_argument("--" + name, type=int, default=default)
arguments = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
try:
    import torch
except ImportError:
    print("compare_attention: skipped: PyTorch is not installed (python3 -m pip install torch)", file=sys.stderr)
    sys.exit(77)
from torch.nn.functional import scaled_dot_product_attention


def ours():
    """{(tokens, method): (forward ms, backward ms)} of one round."""
    words = [arguments.trainer, "bench", "attention", "--max", str(arguments.max), "--json", "-", f"threads={arguments.threads}", "device=cpu",
             f"model.n_head={arguments.heads}", f"model.n_embd={arguments.heads * arguments.size}"]
    result = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    return {(row["tokens"], row["attention"]): (row["forward_ms"], row["backward_ms"]) for row in result["rows"]}


def sdpa(tokens, repeats=5):
    """As the model has them: q, k and v are parts of one tensor, and the heads are joined again."""
    width = arguments.heads * arguments.size
    qkv = torch.randn(1, tokens, 3 * width, requires_grad=True)
    seed = torch.randn(1, tokens, width)
    best = [float("inf")] * 2
    for _ in range(repeats):
        qkv.grad = None
        times = [time.perf_counter()]
        q, k, v = (part.view(1, tokens, arguments.heads, arguments.size).transpose(1, 2) for part in qkv.split(width, 2))
        y = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(1, tokens, width)
        times.append(time.perf_counter())
        y.backward(seed)
        times.append(time.perf_counter())
        best = [min(old, 1e3 * (after - before)) for old, before, after in zip(best, times, times[1:])]
    return tuple(best)


torch.set_num_threads(arguments.threads)
best = {}
for _ in range(arguments.rounds):
    found = ours()
    found.update({(tokens, "SDPA"): sdpa(tokens) for tokens in sorted({key[0] for key in found})})
    for key, times in found.items():
        best[key] = [min(pair) for pair in zip(times, best.get(key, times))]
print(f"{'tokens':>8}  {'standard ms':>17}  {'flash ms':>17}  {'SDPA ms':>17}  {'standard/flash':>14}  {'SDPA/flash':>10}")
for tokens in sorted({key[0] for key in best}):
    standard, flash, peer = (best[tokens, method] for method in ("standard", "flash", "SDPA"))
    cells = ("{:8.2f} {:8.2f}".format(*times) for times in (standard, flash, peer))
    print(f"{tokens:>8}  {'  '.join(cells)}  {sum(standard) / sum(flash):>14.2f}  {sum(peer) / sum(flash):>10.2f}")
