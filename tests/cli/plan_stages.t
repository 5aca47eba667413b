#!/usr/bin/env bash
# TEST timeout=120
# trainer plan --stages and --largest: the memory of a run, without running it, beside what a run takes.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/plan_stages}/tests/support/common.sh"

command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }

cat >gpt.ini <<'END'
threads = 1
[model]
type = gpt
n_layer = 2
n_head = 4
n_embd = 64
context = 64
vocab_size = 256
[data]
format = synthetic_tokens
synthetic_samples = 16
train = none
batch_size = 4
micro_batch = 4
[train]
steps = 2
END
call 0 plan gpt.ini --stages --json s.json &&
    cp out text &&
    json '[p["precision"] for p in a["plans"]] == ["fp32", "bf16", "fp16"] and
           all(sum(v for k, v in s.items() if k != "total") == s["total"] <= p["allocated_bytes"]
               for p in a["plans"] for s in p["stages"].values())' s.json
ok $? "the kinds of each stage sum to its total, which the allocated memory holds"
ok_keys plan_stages s.json

# 2 x (12 C C + 13 C) + 2 C + (V + T) C parameters
json 'all(s["parameters"] == 4 * (2 * (12 * 64 * 64 + 13 * 64) + 128 + (256 + 64) * 64) and
           0 <= s["optimizer_state"] - 2 * s["parameters"] < 4096
           for s in (p["stages"]["loaded"] for p in a["plans"]))' s.json
ok $? "the parameters of a GPT, and two numbers of optimizer state for each"
json 'all(p["stages"]["loaded"]["forward_activations"] == 0 < p["stages"]["forward_end"]["forward_activations"] and
           p["stages"]["forward_end"]["backward_activations"] == 0 and p["peak_op_index"] > 0 and p["peak_op"]
           for p in a["plans"]) and
       all(half["stages"]["forward_end"]["forward_activations"] <
           0.6 * a["plans"][0]["stages"]["forward_end"]["forward_activations"] for half in a["plans"][1:])' s.json
ok $? "activations grow in the forward pass, and are smaller in bf16 and fp16"
for precision in fp32 bf16 fp16; do
    call 0 gpt.ini run.dir="run-$precision" precision=$precision
done
json 'all(abs(run["memory_arena_bytes"] / p["arena_bytes"] - 1) < 0.02
           for p in a["plans"] for run in [json.load(open("run-%s/summary.json" % p["precision"]))])' s.json
ok $? "a run allocates the planned arena"

# 140 MiB, of which the checkpoint's copy of the state is not in the arena. What a library's kernels take besides
# (their code, packed weights) depends on the processor.
big=(model.n_embd=256 model.context=256 data.batch_size=8 data.micro_batch=8 train.steps=1)
call 0 plan gpt.ini --stages --json big.json "${big[@]}" && call 0 gpt.ini run.dir=run-big "${big[@]}" &&
    json '0.8 < (b["memory_peak_bytes"] - b["memory_base_bytes"]) / b["memory_planned_bytes"] < 1.4 and
           abs(b["memory_arena_bytes"] / a["plans"][0]["arena_bytes"] - 1) < 0.02' big.json run-big/summary.json
ok $? "the memory that the process takes is about what was planned"

call 0 plan gpt.ini --largest n_layer --memory 64MiB --json l.json &&
    json 'all(r["bytes"] <= a["memory_bytes"] < r["next_bytes"] and r["value"] >= 2 for r in a["rows"]) and
           a["memory_bytes"] == 64 << 20' l.json
ok $? "the largest n_layer fits, and one more does not"
ok_keys plan_largest l.json
layers=$(python3 -I -c 'import json; print(json.load(open("l.json"))["rows"][0]["value"])')
call 0 plan gpt.ini --stages --json - "model.n_layer=$layers" &&
    cp out f.json && json 'a["plans"][0]["allocated_bytes"] == b["rows"][0]["bytes"]' f.json l.json
ok $? "and needs what its own plan says"
call 0 plan gpt.ini --largest n_embd --memory 64MiB --json - &&
    cp out e.json && json 'all(r["value"] % 32 == 0 and r["value"] >= 64 for r in a["rows"])' e.json &&
    call 0 plan gpt.ini --largest micro_batch --memory 16MiB data.synthetic_samples=4096 && grep -q '^fp32 ' out &&
    grep -q '^bf16 ' out && grep -q '^fp16 ' out
ok $? "n_embd in heads of a multiple of 8, and micro_batch"
call 0 plan gpt.ini --largest micro_batch --memory 64GiB --ranks 2 data.synthetic_samples=100 --json most.json &&
    names out 'fp32 *50' && grep -q '"next_bytes": *null' most.json
ok $? "micro_batch is at most the samples of a rank"
call 0 plan "$TRAINER_ROOT/configs/gpt2_1558m.ini" --stages data.format=synthetic_tokens data.train=none data.valid= &&
    grep -q 'precision = bf16' out
ok $? "the plan of a model that this machine may have no memory for"
call 2 plan gpt.ini --largest n_layer && names err --memory &&
    call 2 plan gpt.ini --largest depth --memory 1G && names err depth n_layer &&
    call 2 plan gpt.ini --largest n_layer --memory lots && names err --memory lots &&
    call 71 plan gpt.ini --largest n_layer --memory 1k && names err model.n_layer
ok $? "what is missing, unknown or too small"
printf '[model]\nlayers = flatten, linear 10\n[data]\ntrain = none\nformat = synthetic\n' >mlp.ini
call 78 plan mlp.ini --largest n_layer --memory 1G && names err n_layer gpt &&
    call 0 plan mlp.ini --stages && grep -q 'peak of backward' out
ok $? "models of other types have stages, but no n_layer"
call 0 plan gpt.ini --stages --svg s.svg && call 0 plan gpt.ini --recompute-sweep --svg r.svg --json r.json &&
    python3 -I -c 'import sys, xml.dom.minidom as x
sys.exit([len(x.parse(f).getElementsByTagName("svg")) for f in ("s.svg", "r.svg")] != [1, 1])' &&
    [ "$(grep -c "class='frame'" s.svg) $(grep -c "class='frame'" r.svg)" = "2 1" ]
ok $? "plots: memory by stage and over the ops, and by model.recompute"
ok_keys plan_recompute r.json
same=0
for every in none 1 2; do
    call 0 plan gpt.ini --stages --json p.json model.recompute=$every &&
        json "a['plans'][0]['allocated_bytes'] == [r['bytes'] for r in b['rows'] if r['every'] == ${every/none/0}][0]" \
            p.json r.json || same=1
done
[ $same = 0 ] && json 'a["best"] in (1, 2) and [r["every"] for r in a["rows"]] == [0, 1, 2] and
    a["rows"][1]["predicted_step_ms"] > a["rows"][0]["predicted_step_ms"]' r.json
ok $? "each row of --recompute-sweep is the plan of its interval; the least memory is best"
call 0 plan gpt.ini --recompute-sweep --memory 1GiB --gpu a100 --json r.json && json 'a["best"] == 0' r.json &&
    call 2 plan gpt.ini --recompute-sweep --stages && names err --stages --recompute-sweep &&
    call 2 plan gpt.ini --svg x.svg && names err --svg
ok $? "in enough memory nothing is computed again"
echo "1..$n"
