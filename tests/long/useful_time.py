"""useful_time.py SECONDS WHOLE RUN: the results of useful_time.sh. WHOLE and RUN are run folders, beside which
WHOLE.events and RUN.events have the times of starts, kills and ends."""
import json
import statistics
import sys


def read_lines(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def read_run(name):
    steps = [m for m in read_lines(name + "/metrics.jsonl") if "loss" in m]
    starts = [s for s in read_lines(name + "/sessions.jsonl") if s["event"] == "start"]
    events = [line.split() for line in open(name + ".events")]
    return steps, starts, [(e[0], float(e[1]), e[2:]) for e in events]


seconds = float(sys.argv[1])
whole, _, whole_events = read_run(sys.argv[2])
run, starts, events = read_run(sys.argv[3])
begin = {name: e[0][1] for name, e in (("whole", whole_events), ("run", events))}
done = {"whole": sum(m["unix_time"] <= begin["whole"] + seconds for m in whole),
        "run": sum(m["unix_time"] <= begin["run"] + seconds for m in run)}
step_sec = (whole[done["whole"] - 1]["unix_time"] - whole[0]["unix_time"]) / (done["whole"] - 1)

# Between a failure and the step at which it struck
lost = {"detect": [], "restart": [], "load": [], "replay": []}
parts = {"launcher": [], "exec": [], "MPI": [], "data": [], "plan": [], "other": [], "first step": []}
launches = [t for kind, t, _ in events if kind == "launch"]
ends = [(t, rest) for kind, t, rest in events if kind == "end"]
kills = [t for kind, t, _ in events if kind == "kill"]
for kill in kills:
    end, rest = next(e for e in ends if e[0] > kill)
    launch = next(t for t in launches if t > end)
    start = next(s for s in starts if s["unix_time"] > launch)
    # of the steps that still count
    first = next((m["unix_time"] for m in run if m["session"] == start["session"]),
                 start["unix_time"] + step_sec)
    reached = int(rest[1].split(":")[1]) if len(rest) > 1 else 0
    t = start["startup"]
    lost["detect"].append(end - kill)
    lost["load"].append(t["resume_sec"])
    lost["restart"].append(first - step_sec - end - t["resume_sec"])
    lost["replay"].append(step_sec * (reached - start["first_step"] + 1))
    parts["launcher"].append(start["unix_time"] - t["whole_sec"] - end)
    parts["exec"].append(t["exec_sec"])
    parts["MPI"].append(t["mpi_sec"])
    parts["data"].append(t["data_sec"])
    parts["plan"].append(t["plan_sec"])
    parts["other"].append(t["whole_sec"] - sum(t[k + "_sec"] for k in ("exec", "mpi", "data", "plan", "resume")))
    parts["first step"].append(first - step_sec - start["unix_time"])

batch = json.load(open(sys.argv[2] + "/summary.json"))["batch_size"]
print(f"samples in {seconds:g} s: {done['whole'] * batch} undisturbed, {done['run'] * batch} with {len(kills)} "
      f"failures: useful time {done['run'] / done['whole']:.3f}")
total = step_sec * (done["whole"] - done["run"])
print("\n| lost to | seconds | of each failure, median | most |\n|---|---:|---:|---:|")
for cause, each in lost.items():
    if each:
        print(f"| {cause} | {sum(each):.2f} | {statistics.median(each):.2f} | {max(each):.2f} |")
print(f"| saves and slower steps | {total - sum(map(sum, lost.values())):.2f} | | |")
print(f"| all | {total:.2f} | {total / max(1, len(kills)):.2f} | |")
if kills:
    print("\nof a restart, median: " + ", ".join(f"{k} {statistics.median(v):.3f} s" for k, v in parts.items()))

# The same steps, once each, with the same losses
common = min(len(whole), len(run))
once = [m["step"] for m in run] == list(range(1, len(run) + 1))
other = sum(whole[i]["loss"] != run[i]["loss"] or whole[i]["grad_norm"] != run[i]["grad_norm"] for i in range(common))
print(f"steps: 1 to {len(run)}, {'each once' if once else 'NOT each once'}; {common - other} of {common} have the loss "
      "and the norm of the undisturbed run")
sys.exit(0 if once and other == 0 else 1)
