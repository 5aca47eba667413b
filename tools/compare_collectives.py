#!/usr/bin/env python3
"""compare_collectives.py [options]: times all-reduce, reduce-scatter and all-gather on this machine, in turns: `trainer bench allreduce` with and
without shared memory, gloo where a python with PyTorch is given, and the copy of what another core has just written.

  --trainer PATH   the program (./trainer)             --before PATH  another build of it, for the column `before`; otherwise the same one
  --ranks LIST     numbers of ranks (2,4,8)                            with TRAINER_SHARED_MEMORY=0
  --rounds N       rounds over all (3): the best median of a size counts
  --max SIZE       the largest size (64M)
  --python PATH    an interpreter with PyTorch, for the column `gloo`
  --json FILE      also writes all numbers there                    --svg FILE  and a plot of them: one panel a collective, ranks by dashes
  --from FILE      measures nothing: prints and plots what --json wrote

MPIEXEC names the launcher (mpirun); as root or in a container, `. tools/mpi-env` first. Rates are in GB/s: bytes of the range / time.
"""
import argparse
import json
import math
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


COLOURS = {"before": "#c05621", "after": "#2b6cb0", "gloo": "#718096", "copy": "#2f855a"}
NAMES = {"before": "MPI", "after": "shared memory", "gloo": "gloo", "copy": "copy"}
DASHES = ("", "6 3", "2 3")
WIDTH, HEIGHT, LEFT, TOP = 300, 240, 52, 48
LABELS = {2: "4", 10: "1 Ki", 20: "1 Mi", 26: "64 Mi"}


def plot(results, path):
    """Log-log: bytes from 4 B to 64 MiB, times from 0.1 us to 1 s."""
    def at(panel, size, us):
        return (LEFT + panel * (WIDTH + LEFT) + WIDTH * (math.log2(size) - 2) / 24, TOP + HEIGHT * (6 - math.log10(max(us, 0.1))) / 7)

    out, ranks = [], sorted({int(r) for per in results.values() for r in per})
    for panel, kind in enumerate(results):
        x, y = at(panel, 4, 1e6)
        out.append(f'<text x="{x}" y="{y - 8}" font-weight="bold">{kind.replace("_", "-")}</text>'
                   f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#a0aec0"/>')
        for power in range(0, 7, 2):
            _, y = at(panel, 4, 10 ** power)
            text = ("1 us", "100 us", "10 ms", "1 s")[power // 2]
            out.append(f'<path d="M{x} {y}h{WIDTH}" stroke="#e2e8f0"/><text x="{x - 4}" y="{y + 4}" text-anchor="end">{text}</text>')
        for power, text in LABELS.items():
            across, y = at(panel, 2 ** power, 0.1)
            out.append(f'<text x="{across}" y="{y + 14}" text-anchor="middle">{text}B</text>')
        for count, best in results[kind].items():
            for column, sizes in best.items():
                points = " ".join(f"{a:.1f},{b:.1f}" for a, b in (at(panel, int(size), us) for size, us in sorted(sizes.items(), key=lambda s: int(s[0]))))
                dash = DASHES[ranks.index(int(count)) % len(DASHES)]
                out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[column]}" stroke-width="1.8" stroke-dasharray="{dash}"/>')
    legend = [(NAMES[column], colour, "") for column, colour in COLOURS.items()] + [
        (f"{count} ranks", "#4a5568", DASHES[i % len(DASHES)]) for i, count in enumerate(ranks)]
    for i, (text, colour, dash) in enumerate(legend):
        x = LEFT + 135 * i
        out.append(f'<path d="M{x} 16h24" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/><text x="{x + 30}" y="20">{text}</text>')
    width, height = len(results) * (WIDTH + LEFT) + 20, TOP + HEIGHT + 24
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" font-family="sans-serif" font-size="11" '
                   'fill="#4a5568"><title>Time of a collective over its bytes</title><rect width="100%" height="100%" fill="#fff"/>'
                   + "\n".join(out) + "</svg>\n")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name, fallback in (("trainer", "./trainer"), ("before", None), ("ranks", "2,4,8"), ("max", "64M"), ("python", None), ("json", None), ("svg", None),
                           ("from", None)):
        parser.add_argument("--" + name, default=fallback)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    saved = vars(arguments)["from"]
    results = json.load(open(saved, encoding="utf-8")) if saved else {}
    print(f"{'kind':<15}{'ranks':>5}{'bytes':>10}{'before us':>12}{'after us':>12}{'gloo us':>12}{'copy us':>12}{'after GB/s':>12}{'of copy':>9}")
    for kind in KINDS:
        for ranks in results.get(kind, {}) if saved else map(int, arguments.ranks.split(",")):
            best = results.get(kind, {}).get(ranks) or measure(arguments, ranks, kind)
            results.setdefault(kind, {})[ranks] = best
            for size, after in sorted(best.get("after", {}).items(), key=lambda row: int(row[0])):
                us = [best.get(column, {}).get(size) for column in ("before", "after", "gloo", "copy")]
                texts = "".join(f"{value:>12.2f}" if value else f"{'-':>12}" for value in us)
                ratio = f"{us[3] / after:>9.2f}" if us[3] else f"{'-':>9}"
                print(f"{kind:<15}{ranks:>5}{size:>10}{texts}{int(size) / after / 1e3:>12.3f}{ratio}", flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    if arguments.svg:
        plot(results, arguments.svg)


if __name__ == "__main__":
    main()
