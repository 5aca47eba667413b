#!/usr/bin/env python3
"""telemetry.py FILE.csv ...: least, mean and largest value of what `nvidia-smi --query-gpu=... --format=csv,nounits -l 1` wrote.

One table in Markdown for each file. Reasons why the clock was low are a mask: the share of the samples that had each. The names of its
bits are NVML's (nvmlClocksEventReasons). Exit code 77: no sample.
"""
import csv
import os
import sys

REASONS = ["GPU idle", "clocks set by an application", "power cap", "hardware slowdown", "sync boost", "software thermal slowdown",
           "hardware thermal slowdown", "power brake", "display clocks"]


def read(path):
    """Column name -> values as text."""
    with open(path) as file:
        rows = list(csv.reader(file, skipinitialspace=True))
    rows = [row for row in rows if rows and len(row) == len(rows[0])]
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])} if rows else {}


def numbers(values):
    found = []
    for value in values:
        try:
            found.append(float(value))
        except ValueError:  # [N/A]: this GPU does not have it
            pass
    return found


def reasons(values):
    masks = [int(v, 16) for v in values if v.startswith("0x")]
    shares = {name: sum(mask >> bit & 1 for mask in masks) / len(masks) for bit, name in enumerate(REASONS)} if masks else {}
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items() if share) or "none"


def table(path, columns):
    samples = max(len(values) for values in columns.values())
    name = os.path.basename(path)[:-len(".csv")].partition("-")[2]
    lines = [f"### Telemetry during {name}, {samples} samples", "", "| | least | mean | largest |", "|---|---|---|---|"]
    for column, values in columns.items():
        found = numbers(values)
        if found and "reasons" not in column:
            lines.append(f"| {column} | {min(found):g} | {sum(found) / len(found):.1f} | {max(found):g} |")
    low = [reasons(values) for column, values in columns.items() if "reasons" in column]
    return lines + [""] + [f"Reasons for a low clock: {text}" for text in low] + [""], samples


def main():
    total = 0
    for path in sys.argv[1:]:
        columns = read(path)
        if columns and any(columns.values()):
            lines, samples = table(path, columns)
            total += samples
            print("\n".join(lines))
    if not total:
        print("no samples of nvidia-smi")
        sys.exit(77)


main()
