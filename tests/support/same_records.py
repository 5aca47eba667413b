"""same_records.py RUN RUN: what two runs recorded is valid JSON and the same, apart from dates, times and rates."""
import json
import re
import sys

MEASURED = re.compile(r"(.*_)?(sec|seconds|ms|p95|bytes|time|age|date|stall|mfu|tflops|util|pid|started|finished)(_.*)?|"
                      r"(compute|comm|wait|slowest|cpu|gpu|rss|mem|.*_per)(_.*)?|checkpoint|run_id|id")


def fixed(value):
    """The value without what is measured."""
    if isinstance(value, dict):
        return {key: fixed(inner) for key, inner in value.items() if not MEASURED.fullmatch(key)}
    return [fixed(inner) for inner in value] if isinstance(value, list) else value


def records(run):
    for line in open(run + "/metrics.jsonl"):
        yield "metrics.jsonl", json.loads(line)
    for name in ("summary.json", "checkpoints/latest/state.json"):
        yield name, json.load(open(run + "/" + name))


runs = [[(name, fixed(record)) for name, record in records(run)] for run in sys.argv[1:3]]
if runs[0] != runs[1] or len(runs[0]) < 3:
    print(f"{len(runs[0])} and {len(runs[1])} records")
    for (name, a), (_, b) in zip(*runs):
        print(name, {key: (a.get(key), b.get(key)) for key in a.keys() | b.keys() if a.get(key) != b.get(key)})
    sys.exit(1)
