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
ok_keys bench_precision a.json 'rows\[\]\.reasons\..*'
# The losses of configs/unstable.ini are about 1e-7.
cp out table && call 0 bench precision net.ini --steps 12 --types fp32 'model.class_weights=1e-6,1e-6,1e-6,1e-6' &&
    awk 'FNR == NR && $1 == "fp32" && !large { large = $2 }
         FNR < NR && $1 == "fp32" { r = $2 / large; exit !(r > 9e-7 && r < 1.1e-6) }' table out
ok $? "a small loss has digits"
cp table out
[ "$(grep -Ec '^(bf16|fp16) +[0-9.]+ x +(yes|no) +[0-9.]+ % +(yes|no) +[-+][0-9.]+ % +(yes|no)$' out)" = 2 ] &&
    grep -q '^bf16, memory: ' out
ok $? "what each type brings in comparison with fp32"

if command -v python3 >/dev/null; then
    python3 -I -c '
import json, sys
a = json.load(open("a.json"))
r = {row["precision"]: row for row in a["rows"]}
ok = a["kind"] == "precision" and list(r) == ["fp32", "bf16", "fp16"]
ok = ok and all(x["steps"] == 12 and x["finite"] and x["step_ms"] > 0 for x in r.values())
ok = ok and r["fp16"]["overflows"] > 0 == r["fp32"]["overflows"]
near = lambda a, b: abs(a / b - 1) < 1e-6
for name in "bf16", "fp16":
    x, base = r[name], r["fp32"]
    ok = ok and near(x["speedup"], base["step_ms"] / x["step_ms"])
    ok = ok and near(x["memory_ratio"], x["memory_bytes"] / base["memory_bytes"])
    ok = ok and abs(x["accuracy_difference"] - (x["accuracy"] - base["accuracy"])) < 1e-9
    ok = ok and x["met"] == {"speed": x["speedup"] >= 1.8, "memory": x["memory_ratio"] <= 0.55,
                             "accuracy": abs(x["accuracy_difference"]) < 0.01}
    ok = ok and set(x["reasons"]) == {goal for goal in x["met"] if not x["met"][goal]}
# parameters, their gradients and moments stay in fp32
ok = ok and "fp32" in r["bf16"]["reasons"]["memory"] and "met" not in r["fp32"]
sys.exit(0 if ok and abs(r["bf16"]["loss"] - r["fp32"]["loss"]) < 0.05 else 1)'
    ok $? "the JSON form: the same run in each type, the overflows of fp16, what is met and why not"
else
    skip "the JSON form" "no python3"
fi
"$MPIEXEC" -np 2 "$TRAINER" bench precision net.ini --types fp16,tf32 --steps 3 --json - >out 2>err
[ "$(grep -o '"precision": *"[a-z0-9]*"' out | grep -o '[a-z]*[0-9]*"$' | paste -sd,)" = 'fp16",tf32"' ] &&
    grep -q '"steps": *3' out && grep -q '"ranks": *2' out && ! grep -q '"met"' out
ok $? "--types, --steps, on 2 ranks; no comparison without fp32"

call 2 bench precision net.ini --types fp8 && names err --types fp8 &&
    call 2 bench precision &&
    call 2 bench precision net.ini --steps 0 && names err --steps 0
ok $? "arguments that cannot be"
echo "1..$n"
