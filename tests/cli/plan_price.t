#!/usr/bin/env bash
# plan --price: time and cost of a run on rented GPUs, on the fakes of the CUDA libraries.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/plan_price}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
cat >net.ini <<'INI'
threads = 1
[model]
layers = flatten, linear 64, relu, linear 4
[data]
format = synthetic
synthetic_samples = 256
synthetic_shape = 4x4x1
classes = 4
batch_size = 32
[train]
steps = 1000
INI
# plan CODE ARGUMENTS...: ends with this code
plan() { local code=$1; shift; fakes "$TRAINER" plan net.ini "$@" >out 2>&1; [ $? = "$code" ]; }

plan 0 --price t4=0.35,h100=3.50 --ranks 2 --json p.json &&
    [ "$(grep -Ec '^(t4|h100) +2 +(0.35|3.50) +yes +[0-9.]+ +[0-9.]+ m?s +[0-9.]+$' out)" = 2 ] &&
    grep -q '^1000 steps, predicted' out
ok $? "a row for each price"
ok_keys plan_price p.json
# the CPU ends such a run in less than ten minutes
grep -Eq '^CPU or GPU: CPU: .* 2 x (t4|h100) ' out
ok $? "a short run needs no GPU"
plan 0 --gpu h100 --price 3.50 --ranks 2 --json g.json && grep -Eq '^h100 +2 +3.50 ' out && grep -q '^CPU or GPU: ' out
ok $? "beside the plan of a GPU"
ok_keys plan_gpu g.json
# 3.2e9 samples with products of 4000 x 4000: days on a CPU
plan 0 --price h100=3.50 train.steps=100000000 model.layers="flatten, linear 4000, relu, linear 4000, relu, linear 4" &&
    grep -Eq '^CPU or GPU: GPU: ' out
ok $? "a long run needs one"
if command -v python3 >/dev/null; then
    python3 -I -c '
import json, sys
p, g = json.load(open("p.json")), json.load(open("g.json"))
near = lambda a, b: abs(a / b - 1) < 1e-6
ok = p["kind"] == "prices" and p["steps"] == 1000 and [r["gpu"] for r in p["prices"]] == ["t4", "h100"]
for r in p["prices"] + g["prices"]:
    ok = ok and near(r["train_sec"], r["step_ms"] / 1e3 * 1000) and r["gpus"] == 2 and r["fits"]
    ok = ok and near(r["cost"], r["train_sec"] / 3600 * 2 * r["per_gpu_hour"])
ok = ok and near(g["prices"][0]["step_ms"], g["step"]["step_ms"]) and g["prices"][0] == p["prices"][1]
sys.exit(not ok)'
    ok $? "the JSON form: steps times the predicted step, hours times GPUs times the price"
else
    skip "the JSON form" "no python3"
fi
plan 2 --price 3.50 && names out --price 3.50 --gpu && plan 2 --price k=1 && names out "'k'" &&
    plan 2 --price h100=-1 && names out h100=-1 && plan 2 --gpu h100 --price 1,2 && names out 1,2 &&
    plan 2 --price h100=1 --ranks 1,2 && names out --price && plan 2 --price h100=1 --stages && names out --stages
ok $? "prices that cannot be"
echo "1..$n"
