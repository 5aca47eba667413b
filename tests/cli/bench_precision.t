#!/usr/bin/env bash
# trainer bench precision: its table and its JSON form.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/bench_precision}/tests/support/common.sh"

cat >net.ini <<'INI'
threads = 1
[model]
layers = flatten, linear 16, relu, linear 4
[data]
format = synthetic
synthetic_samples = 256
synthetic_shape = 4x4x1
classes = 4
batch_size = 32
[train]
steps = 12
INI
call 0 bench precision net.ini --json a.json optimizer.loss_scale=1073741824 &&
    [ "$(grep -Ec '^(fp32|bf16|fp16) +[0-9.]+ +[0-9.]+ +[0-9.]+ % ' out)" = 3 ]
ok $? "a row for each type"

if command -v python3 >/dev/null; then
    python3 -I -c '
import json, sys
a = json.load(open("a.json"))
r = {row["precision"]: row for row in a["rows"]}
ok = a["kind"] == "precision" and list(r) == ["fp32", "bf16", "fp16"]
ok = ok and all(x["steps"] == 12 and x["finite"] and x["step_ms"] > 0 for x in r.values())
ok = ok and r["fp16"]["overflows"] > 0 == r["fp32"]["overflows"]
sys.exit(0 if ok and abs(r["bf16"]["loss"] - r["fp32"]["loss"]) < 0.05 else 1)'
    ok $? "the JSON form: the same run in each type, and the overflows of fp16"
else
    skip "the JSON form" "no python3"
fi
"$MPIEXEC" -np 2 "$TRAINER" bench precision net.ini --types fp16,tf32 --steps 3 --json - >out 2>err
[ "$(grep -o '"precision": *"[a-z0-9]*"' out | grep -o '[a-z]*[0-9]*"$' | paste -sd,)" = 'fp16",tf32"' ] &&
    grep -q '"steps": *3' out && grep -q '"ranks": *2' out
ok $? "--types, --steps, on 2 ranks"

call 2 bench precision net.ini --types fp8 && names err --types fp8 &&
    call 2 bench precision &&
    call 2 bench precision net.ini --steps 0 && names err --steps 0
ok $? "arguments that cannot be"
echo "1..$n"
