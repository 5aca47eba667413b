"""check_trace.py PROFILE_FOLDER RANKS FIRST LAST: the timelines of a profile are what Perfetto expects, and agree.

Prints what is wrong, and fails then: files that are no JSON, events without a field, spans on one track that overlap without
one being inside the other, ops outside of their step, steps of ranks that are not at the same time, different buckets.
"""
import collections
import json
import sys

ROUNDING_US = 0.01  # times in the files have three decimals
folder, ranks, first, last = sys.argv[1], *map(int, sys.argv[2:5])
wrong = []


def check_track(where, spans):
    """Each span is inside one that is still open, or begins where all of them have ended."""
    open_ends = []
    for begin, end, name in sorted(spans, key=lambda s: (s[0], -s[1])):
        while open_ends and open_ends[-1] <= begin + ROUNDING_US:
            open_ends.pop()
        if open_ends and end > open_ends[-1] + ROUNDING_US:
            wrong.append(f"{where}: {name} at {begin} overlaps with the span before it")
        open_ends.append(end)


def read(rank):
    with open(f"{folder}/trace-r{rank:04d}.json", encoding="utf-8") as file:
        trace = json.load(file)
    tracks, steps, ops, buckets = collections.defaultdict(list), {}, [], collections.defaultdict(list)
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M" and "name" in e["args"]}
    if not any(n.startswith(f"rank {rank} (") for n in names) or not {"device", "steps", "communication"} <= names:
        wrong.append(f"rank {rank}: the names of its process and tracks are {names}")
    for event in trace["traceEvents"]:
        if event["ph"] not in "XM" or not event["name"] or event["pid"] != rank or event["ts"] < 0 and event["ph"] == "M":
            wrong.append(f"rank {rank}: {event}")
        if event["ph"] == "M":
            continue
        begin, length, step = event["ts"], event["dur"], event["args"]["step"]
        if length < 0:
            wrong.append(f"rank {rank}: {event}")
        span = (begin, begin + length, event["name"])
        tracks[event["tid"]].append(span)
        if event["cat"] == "step":
            steps[step] = span
        elif event["cat"] in ("op", "wait for buckets") and step > 0:
            ops.append((step, span))
        elif event["cat"] == "bucket":
            buckets[step].append((event["args"]["bucket"], event["args"]["bytes"], span))
    for tid, spans in tracks.items():
        check_track(f"rank {rank}, track {tid}", spans)
    if sorted(steps) != list(range(first, last + 1)) or not ops:
        wrong.append(f"rank {rank}: steps {sorted(steps)}, {len(ops)} ops")
    for step, (begin, end, name) in ops:
        if step in steps and not (steps[step][0] - ROUNDING_US <= begin and end <= steps[step][1] + ROUNDING_US):
            wrong.append(f"rank {rank}: {name} is outside of step {step}")
    return steps, buckets, trace["otherData"]["clock_error_us"], {name for _, (_, _, name) in ops}


traces = [read(rank) for rank in range(ranks)]
for rank, (steps, buckets, error, names) in enumerate(traces):
    for step in range(first, last + 1):
        here, there = steps.get(step), traces[0][0].get(step)
        if here and there and max(here[0], there[0]) > min(here[1], there[1]) + error + ROUNDING_US:
            wrong.append(f"step {step}: rank {rank} has {here}, rank 0 {there}, clocks agree within {error} us")
        mine, of_root = ([b[:2] for b in t[1][step]] for t in (traces[rank], traces[0]))
        if sorted(mine) != sorted(of_root) or (ranks > 1 and not mine):
            wrong.append(f"step {step}: buckets {mine} on rank {rank}, {of_root} on rank 0")
        # No rank has a sum before every rank has begun the step. (Buckets that overlap begin on the track where the one
        # before it ends.)
        for number, _, span in buckets[step]:
            for other_steps, _, other_error, _ in traces:
                if step in other_steps and span[1] < other_steps[step][0] - error - other_error - ROUNDING_US:
                    wrong.append(f"step {step}: bucket {number} of rank {rank} ends before the step of another rank begins")
print("\n".join(wrong[:20]) or f"{ranks} timelines, {sum(len(t[0]) for t in traces)} steps")
sys.exit(1 if wrong else 0)
