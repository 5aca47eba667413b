"""record_fields.py DEF RUN CONDITION...: what the records in the folder RUN have beside what DEF, src/base/record_fields.def, lists: keys that are
not listed, values of another type, and fields that are missing, or there although their condition does not hold. CONDITION: a WHEN of the list
that holds for the run. Of those in `known` that are not given, none holds; of the others, nothing is known.
"""
import json
import os
import re
import sys

known = {"LANGUAGE", "TARGETS", "POSITIONS", "TOPK", "RANKS", "FAILED"}
holds = {"ALWAYS", *sys.argv[3:]}
types = {"INT": int, "REAL": (int, float), "MEASURED": (int, float), "BOOL": bool, "TEXT": str, "LIST": list, "OBJECT": dict}
listed = {}
rows = re.findall(r"^(?:FIELD|METRIC)\((\w+), (\w+), (\w+), \w+, (\w+),", open(sys.argv[1], encoding="utf-8").read(), re.M)
for record, key, kind, when in rows:
    assert key not in listed.setdefault(record, {}), f"{record} {key} is listed twice"
    listed[record][key] = kind, when
found = set()


def is_right(kind, value):
    if value is None:
        return kind in ("INT", "REAL", "MEASURED", "TEXT")
    if kind == "MEASURED" and float(f"{value:.6g}") != value:
        return False
    return isinstance(value, types[kind]) and (kind == "BOOL" or not isinstance(value, bool))


def check(where, record, values):
    fields = {key: field for name in record.split() for key, field in listed[name].items()}
    for key in values.keys() - fields.keys():
        found.add(f"{where}: {key} is not a field of {record}")
    for key, (kind, when) in fields.items():
        if key not in values:
            if when in holds:
                found.add(f"{where}: {record} lacks {key}")
            continue
        if when in known - holds:
            found.add(f"{where}: {record} has {key}, which is {when}")
        if not is_right(kind, values[key]):
            found.add(f"{where}: {key} is not {kind}: {values[key]}")
        if kind == "OBJECT":
            check(where, key.upper(), values[key])


def lines(name):
    return open(os.path.join(sys.argv[2], name), encoding="utf-8").read().splitlines()


if os.path.exists(os.path.join(sys.argv[2], "summary.json")):  # a run that was killed has none
    check("summary.json", "SUMMARY", json.loads("\n".join(lines("summary.json"))))
for line in map(json.loads, lines("metrics.jsonl")):
    check("metrics.jsonl", "ALERT" if "alert" in line else "VALIDATION" if "valid_loss" in line else "TRAINING", line)
for line in map(json.loads, lines("sessions.jsonl")):
    check("sessions.jsonl", "SESSION " + line["event"].upper(), line)
check("verdict", "VERDICT", dict((line + " ").split(" ", 1) for line in lines("verdict")))
print("\n".join(sorted(found)))
sys.exit(1 if found else 0)
