#!/usr/bin/env bash
# TEST timeout=400
# The lab pages: their commands run in the small form, and points are counted from what they wrote: a figure that is
# altered or deleted loses its points.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/labs}/tests/support/common.sh"

labs="$TRAINER_ROOT/tools/labs -O $(dirname "$TRAINER")"
unset TRAINER_DEVICE TRAINER_TEST_DATA
python3 --version >/dev/null 2>&1 || { echo "1..0 # SKIP no python3"; exit 0; }

for page in lab1 lab2 lab3 lab4 lab5 inference; do
    $labs --quick --out out $page >log-$page 2>&1
    code=$?
    [ $code = 0 ] && grep -q "^\*\*\|\*\*[0-9]* of [0-9]* points" out/$page/REPORT.md
    ok $? "$page: its commands run, and REPORT.md has the points"
    [ $code = 0 ] || tail -n 15 log-$page | sed 's/^/# /'
done

# points NAME: of the report that is written again from the files
points() { $labs --score --out out "$1" | sed -n "s/^$1 *\([0-9]*\) of.*/\1/p"; }
before=$(points lab1)
mv out/lab1/stages.json kept.json
without=$(points lab1)
sed 's/"optimizer_state": [0-9]*/"optimizer_state": 7/' kept.json >out/lab1/stages.json
altered=$(points lab1)
[ -n "$before" ] && [ "$without" = $((before - 5)) ] && [ "$altered" = $((before - 2)) ]
ok $? "a file that is missing loses 5 points, a figure that is wrong its 2: $before, $without, $altered"

totals=$(awk '/^## lab/ { lab = $2 } /^\| .* \| [0-9]+ \|/ { split($0, c, " \\| "); sum[lab] += c[2] }
    END { print sum["lab1:"], sum["lab2:"], sum["lab3:"], sum["lab4:"], sum["lab5:"] }' \
    "$TRAINER_ROOT/docs/labs/scoring.md")
[ "$totals" = "20 20 25 20 15" ]
ok $? "the points of the rubric: 20 20 25 20 15 (found $totals)"
! $labs nosuch >out.txt 2>&1 && grep -q "'nosuch'" out.txt
ok $? "a page that does not exist is refused"
echo "1..$n"
