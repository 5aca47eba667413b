#!/usr/bin/env bash
# TEST timeout=300
# The pages of docs/labs: their commands run in the small form, write reports, and the points follow from the figures.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/labs}/tests/support/common.sh"
command -v python3 >/dev/null || { skip "the labs" "no python3"; echo 1..1; exit 0; }
command -v curl >/dev/null && command -v pgrep >/dev/null || { skip "the labs" "no curl or pgrep"; echo 1..1; exit 0; }
labs=$TRAINER_ROOT/tools/labs
build=$(dirname "$TRAINER")
unset TRAINER_TEST_DATA TRAINER_DEVICE

# points FOLDER [NAME]: "met missed" of all pages, or of one
points() {
    "$labs" -O "$build" --score --out "$@" | sed -n '$s/^all  *\([0-9]*\) of \([0-9]*\) points.*/\1 \2/p'
}

for name in lab1 lab2 lab3 lab4 lab5 inference; do
    "$labs" -O "$build" --quick --out made "$name" >out 2>&1
    ok $? "the commands of $name end as they should"
done

for name in lab1 lab2 lab3 lab4 lab5 inference; do
    grep -q '^!\[.*svg' "made/$name/REPORT.md" || [ "$name" = lab2 ] || echo "$name: no plot"
    ! grep '^!\[\(The plot\|.*svg\]\)' "made/$name/REPORT.md" || echo "$name: a plot without a caption"
    grep '^\* .*[{}]' "made/$name/REPORT.md" && echo "$name: a form"
    grep -q 'device cpu, data: drawn digits' "made/$name/REPORT.md" || echo "$name: no device or data"
done >out
[ ! -s out ]
ok $? "each page has a report, with plots, its device and its data"

json 'a == {"code": 71, "repaired": 0}' made/lab4/repaired.json
ok $? "lab4: the smaller program is refused, and trains after its repair"
json 'a == {"code": 71, "repaired": 0}' made/lab4/sharded.json
ok $? "lab4: ranks that have no memory for the whole state train with parts of it"

# As they are pasted: the first block finds the repository and the program, and no path depends on the folder.
for name in lab1 lab2 lab3 lab4 lab5 inference; do
    first=$(sed -n '/^```sh/,/^```/p' "$TRAINER_ROOT/docs/labs/$name.md" | sed -n 2p)
    (export TMPDIR="$PWD" && cd "$TRAINER_ROOT" && unset LABS && eval "$first" &&
        [ "$LABS" = "$TRAINER_ROOT" ] && [ "${PATH%%:*}" = "$LABS" ] && [ "$PWD" != "$LABS" ]) ||
        echo "$name: its first block"
    sed -n '/^```sh/,/^```/p' "$TRAINER_ROOT/docs/labs/$name.md" | grep -E '(^|[ "])configs/' && echo "$name: a path"
done >out 2>&1
[ ! -s out ]
ok $? "the commands of the pages can be pasted"

python3 -I - "$TRAINER_ROOT/docs/labs/scoring.md" >out 2>&1 <<'E2'
import re, sys
sums, wanted, groups = {}, {}, {}
for line in open(sys.argv[1]):
    if line.startswith("### "):
        heading = line.strip()
        groups[heading] = 0
    if line.startswith("## "):
        name, wanted[name] = re.match(r"## (\w+): (\d+) points", line).groups()[0], int(re.search(r": (\d+)", line)[1])
    cells = line.split("|")
    if len(cells) == 8 and cells[2].strip().isdigit():
        sums[name] = sums.get(name, 0) + int(cells[2])
        groups[heading] += int(cells[2])
print(sums, wanted, groups)
sys.exit(not (sums == wanted == {"lab1": 20, "lab2": 20, "lab3": 25, "lab4": 20, "lab5": 15} and
              all(heading.endswith(f": {points}") for heading, points in groups.items()) and
              sorted(groups.values()) == 17 * [5] + [7, 8]))
E2
ok $? "the points are 20, 20, 25, 20 and 15, divided as in the lesson's rubric"

all=$(points made)
echo "$all" >out
[ "${all#* }" = 88 ] && [ "${all% *}" -ge 40 ]
ok $? "points are counted again from the files: 88 without a GPU"

# Each figure that is met: without its file, and with other values in it, the points go.
python3 -I - "$labs" made >out 2>&1 <<'E2'
import importlib.machinery, importlib.util, json, os, shutil, sys
loader = importlib.machinery.SourceFileLoader("labs", sys.argv[1])
labs = importlib.util.module_from_spec(importlib.util.spec_from_loader("labs", loader))
loader.exec_module(labs)
count = 0

def other(value):
    """The same structure with other numbers."""
    global count
    if isinstance(value, dict):
        return {k: other(v) for k, v in value.items()}
    if isinstance(value, list):
        return [other(v) for v in value]
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        count += 1
        return -(value + 3.0 ** (count % 17) * 1000)
    return value

def empty(value):
    """The same structure without the elements of its lists and innermost objects."""
    if isinstance(value, dict) and any(isinstance(v, (dict, list)) for v in value.values()):
        return {k: empty(v) for k, v in value.items()}
    return type(value)() if isinstance(value, (dict, list)) else value

failed = tried = 0
for name in labs.NAMES:
    for row in labs.score(name, os.path.join(sys.argv[2], name))[0]:
        if row["state"] != "met":
            continue
        tried += 1
        path = os.path.join(sys.argv[2], name, row["file"])
        os.makedirs(os.path.dirname("copy/" + row["file"]), exist_ok=True)
        def is_met(text):
            with open("copy/" + row["file"], "w") as file:
                file.write(text)
            return labs.is_met(labs.figure_of(row, "copy"), row["range"])
        text = open(path).read()
        changed = [json.dumps(f(json.loads(text))) for f in (other, empty)] if path.endswith(".json") else [""]
        kept = is_met(text)
        gone = [not is_met(c) for c in changed]
        shutil.rmtree("copy")
        deleted = not labs.is_met(labs.figure_of(row, "copy"), row["range"])
        if not (kept and any(gone) and deleted):
            print(name, row["sentence"], kept, gone, deleted)
            failed += 1
print(tried, "criteria")
sys.exit(failed > 0 or tried < 20)
E2
ok $? "no point without its figure, in the right range"

cp -r made copied && rm copied/lab3/ranks.json && sed -i 's/"code": 71/"code": 0/' copied/lab4/oom.json
[ "$(points copied)" = "$((${all% *} - 6)) 88" ]
ok $? "a figure that is deleted and one that is altered cost their points"
"$labs" lab9 >out 2>&1
[ $? = 1 ] && grep -q "no lab 'lab9'" out
ok $? "an unknown lab is refused"
echo "1..$n"
