#!/usr/bin/env python3
"""compare_collectives.py [options]: times all-reduce, reduce-scatter and all-gather on this machine, in turns: `trainer bench allreduce` with and
without shared memory, gloo where a python with PyTorch is given, and the copy of what another core has just written.

  --trainer PATH   the program (./trainer)             --before PATH  another build of it, for the column `before`; otherwise the same one
  --ranks LIST     numbers of ranks (2,4,8)                            with TRAINER_SHARED_MEMORY=0
  --rounds N       rounds over all (3): the best median of a size counts
  --max SIZE       the largest size (64M)
  --python PATH    an interpreter with PyTorch, for the column `gloo`
  --json FILE      also writes all numbers there

MPIEXEC names the launcher (mpirun); as root or in a container, `. tools/mpi-env` first. Rates are in GB/s: bytes of the range / time.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

KINDS = ("allreduce", "reduce_scatter", "allgather")
GLOO = r"""
import json, os, statistics, sys, time
import torch, torch.distributed as dist
kind, most, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=size)
found, count = [], 1 if kind == "allreduce" else size
while 4 * count <= most:
    whole, part = torch.zeros(count), torch.zeros(max(1, count // size))
    once = {"allreduce": lambda: dist.all_reduce(whole), "allgather": lambda: dist.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole)}[kind]
    times = []
    while sum(times) < 0.2 and len(times) < 200 or len(times) < 8:
        dist.barrier()
        begin = time.perf_counter()
        once()
        sec = torch.tensor([time.perf_counter() - begin])
        dist.all_reduce(sec, op=dist.ReduceOp.MAX)
        times.append(sec.item())
    found.append({"bytes": 4 * count, "median_us": 1e6 * statistics.median(times[3:])})
    count *= 2
if rank == 0: print(json.dumps({"sizes": found}))
"""


def launch(ranks, command, shared=True):
    """The JSON that rank 0 prints; None: it failed."""
    environment = dict(os.environ, OMPI_MCA_mpi_yield_when_idle="1")
    if not shared:
        environment["TRAINER_SHARED_MEMORY"] = "0"
    done = subprocess.run([os.environ.get("MPIEXEC", "mpirun"), "-np", str(ranks)] + command, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, check=False)
    text = done.stdout[done.stdout.find("{"):]
    if done.returncode or not text.startswith("{"):
        print("failed: " + " ".join(command[:4]) + "\n" + done.stderr[-400:], file=sys.stderr)
        return None
    return json.JSONDecoder().raw_decode(text)[0]


def measure(arguments, ranks, kind):
    """{column: {bytes: best median in us}}"""
    best = {}

    def keep(column, result, key="median_us"):
        for row in result["sizes"] if result else ():
            value = row.get(key)
            if value:
                sizes = best.setdefault(column, {})
                sizes[row["bytes"]] = min(value, sizes.get(row["bytes"], value))

    def bench(program, shared):
        which = [] if kind == "allreduce" else ["--kind", kind]
        return launch(ranks, [program, "bench", "allreduce", "--max", arguments.max, "--json", "-", "device=cpu", "threads=1"] + which, shared)

    for _ in range(arguments.rounds):
        after = bench(arguments.trainer, True)
        keep("after", after)
        for row in after["sizes"] if after else ():
            if row["copy_gbs"]:
                row["copy_us"] = row["bytes"] / row["copy_gbs"] / 1e3
        keep("copy", after, "copy_us")
        keep("before", bench(arguments.before, True) if arguments.before else bench(arguments.trainer, False))
        if arguments.python:
            with tempfile.TemporaryDirectory() as folder:
                most = int(arguments.max[:-1]) << {"k": 10, "M": 20, "G": 30}[arguments.max[-1]]
                keep("gloo", launch(ranks, [arguments.python, "-c", GLOO, kind, str(most), folder + "/store"]))
    return best


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name, fallback in (("trainer", "./trainer"), ("before", None), ("ranks", "2,4,8"), ("max", "64M"), ("python", None), ("json", None)):
        parser.add_argument("--" + name, default=fallback)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    results = {}
    print(f"{'kind':<15}{'ranks':>5}{'bytes':>10}{'before us':>12}{'after us':>12}{'gloo us':>12}{'copy us':>12}{'after GB/s':>12}{'of copy':>9}")
    for kind in KINDS:
        for ranks in map(int, arguments.ranks.split(",")):
            best = results.setdefault(kind, {})[ranks] = measure(arguments, ranks, kind)
            for size, after in sorted(best.get("after", {}).items()):
                us = [best.get(column, {}).get(size) for column in ("before", "after", "gloo", "copy")]
                texts = "".join(f"{value:>12.2f}" if value else f"{'-':>12}" for value in us)
                ratio = f"{us[3] / after:>9.2f}" if us[3] else f"{'-':>9}"
                print(f"{kind:<15}{ranks:>5}{size:>10}{texts}{size / after / 1e3:>12.3f}{ratio}", flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
