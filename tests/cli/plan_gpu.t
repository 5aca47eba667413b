#!/usr/bin/env bash
# TEST timeout=6000
# plan --gpu: the real cuDNN, where it is, makes its plans for GPUs that are not here; the fake one where there is
# none. With TEST_ALL: every shipped configuration for every GPU, in fp32 and bf16, which takes a quarter of an hour
# on two cores.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/plan_gpu}/tests/support/common.sh"
export TRAINER_CUDA_PLAN_CACHE=none
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
[ -e "$BUILD/libtrainer_cuda.so" ] || { echo "1..0 # SKIP built without the CUDA toolkit"; exit 0; }
cat >small.ini <<'INI'
[model]
layers = conv 32 3 pad=same, relu, conv 64 3 stride=2 pad=same bias=no, batchnorm, relu, globalpool, linear 10
[data]
train = none
format = synthetic
synthetic_shape = 16x16x3
batch_size = 8
INI
cat >gpt.ini <<'INI'
precision = bf16
[model]
type = gpt
n_layer = 2
n_head = 2
n_embd = 128
context = 128
vocab_size = 300
dropout = 0
attention = flash
[data]
train = none
format = synthetic_tokens
batch_size = 4
INI
# plan GPU CONFIG ARGUMENTS...: writes plan.json
plan() { local gpu=$1 config=$2; shift 2; "$TRAINER" plan "$config" --gpu "$gpu" --json plan.json "$@" >out 2>&1; }
# of PYTHON: an expression over p, the plan
of() { python3 -I -c "import json,sys; p=json.load(open('plan.json')); sys.exit(0 if ($1) else 1)"; }

plan h300 small.ini; [ $? = 2 ] && grep -q "'h300'.*t4|a10g|l4|l40s|a100|h100|h200|b200" out
ok $? "an unknown GPU"
plan v100 small.ini; [ $? = 2 ] && grep -q "'v100'.*7\.5.*device = cpu" out
ok $? "a GPU that is too old: what to do"
"$TRAINER" plan small.ini --warm x >out 2>&1; [ $? = 2 ] && grep -q -- '--warm requires --gpu' out
ok $? "--warm without --gpu"
mkdir lonely && cp "$BUILD/libtrainer_cuda.so" lonely/
TRAINER_CUDA_LIBRARY=$PWD/lonely/libtrainer_cuda.so plan h200 small.ini
[ $? = 78 ] && grep -q 'lonely/trainer-cuda-stub/libcuda.so.1' out
ok $? "without the stub: the message names it"

if [ -e "$BUILD/hostcuda/libtrainer_cuda.so" ]; then
    fake() { fakes "$TRAINER" plan "$1" --gpu h200 --json plan.json "${@:2}" >out 2>&1; }
    HOSTCUDA_CUDNN_VERSION=91000 fake small.ini precision=bf16 && grep -q 'older than 9.11' out &&
        of "all(o['workspace_bytes'] >= 128 << 20 for o in p['ops'] if 'unfolded' not in o['computed_by'])" &&
        of "p['plans_made'] == 0"
    ok $? "a cuDNN before 9.11: upper bounds, and it says so"
    for kind in t4:fp16 a10g:bf16 l4:bf16 l40s:bf16 a100:bf16 h100:bf16 h200:bf16 b200:bf16; do
        fakes "$TRAINER" plan gpt.ini --gpu "${kind%:*}" --json plan.json precision=auto >out 2>&1 &&
            of "p['precision'] == '${kind#*:}'" || break
    done
    ok $? "precision = auto: bf16, and fp16 on a T4"
    fakes "$TRAINER" plan small.ini --gpu t4 precision=fp32 --json plan.json >out 2>&1 &&
        names out 'pinned & 64.0 MiB' && of "p['memory_bytes']['limit'] == 15640000000 * 7 // 8"
    ok $? "an eighth of a T4 stays free, as on one that is there; the pinned memory"
    fake gpt.ini && grep -q 'predicted, not measured' out && cp plan.json one.json &&
        of "p['step']['kind'] == 'prediction' and len(p['step']['assumptions']) > 8" &&
        of "abs(sum(p['step']['groups_ms'].values()) - p['step']['step_ms']) < 1e-6" &&
        of "p['step']['unit'] == 'tokens' and abs(p['step']['per_sec'] * p['step']['step_ms'] - 4 * 128e3) < 1" &&
        of "p['step']['groups_ms']['communication, exposed'] == 0"
    ok $? "the step is predicted, with its sources; the groups add up"
    fake gpt.ini --ranks 4 && of "p['step']['groups_ms']['communication, exposed'] > 0"
    ok $? "with 4 ranks communication is exposed"
    fakes "$TRAINER" plan gpt.ini --gpu a100 --json plan.json >out 2>&1 &&
        json 'a["step"]["step_ms"] > b["step"]["step_ms"]' plan.json one.json &&
        fake gpt.ini precision=fp32 && json 'a["step"]["step_ms"] > b["step"]["step_ms"]' plan.json one.json
    ok $? "an A100 takes longer, and so does fp32"
    fakes "$TRAINER" plan gpt.ini --gpu t4 >out 2>&1; [ $? = 78 ] && grep -q 'bf16.*7\.5.*fp16' out
    ok $? "precision = bf16 is refused on a T4"
    on() { HOSTCUDA_MODEL=$1 fakes "$TRAINER" train gpt.ini device=cuda precision=auto train.steps=1 \
        model.n_layer=1 model.context=16 "run.dir=on_$1" >out 2>&1; }
    on T4 && grep -q 'precision = auto: fp16' out
    ok $? "a T4 trains, in fp16"
    on V100; [ $? = 78 ] && grep -q 'V100.*7\.0.*7\.5.*device = cpu' out
    ok $? "a V100 is refused: what to do"
    HOSTCUDA_CUDNN_VERSION=91000 fake gpt.ini &&
        of "{o['workspace_bytes'] for o in p['ops'] if 'attention' in o['op']} == {2**20 + 8 * 128 * (2 * 128 + 8)}"
    ok $? "and of attention: the scores of its heads"
    fake small.ini data.batch_size=4096 data.micro_batch=auto cuda.memory_limit=0.01 data.synthetic_shape=64x64x3 &&
        of "p['micro_batch'] < 4096 and p['memory_bytes']['total'] <= p['memory_bytes']['limit']"
    ok $? "data.micro_batch = auto is reduced until the plan fits"
    fake small.ini --warm warm && of "p['plans_made'] == 5" &&
        fake small.ini --warm warm && of "p['plans_made'] == 0 and p['plans_restored'] == 5"
    ok $? "plans are kept in a folder, and restored"
    HOSTCUDA_CUDNN_VERSION=91700 fake small.ini --warm warm && of "p['plans_made'] == 5"
    ok $? "not those of another version"
    for f in warm/*.plan; do head -c 200 "$f" >cut && cat cut >"$f"; done
    fake small.ini --warm warm && [ "$(grep -c warning: out)" = 1 ] && of "p['plans_made'] == 5" &&
        fake small.ini --warm warm && of "p['plans_made'] == 0"
    ok $? "damaged plans: one warning, and they are replaced"
    rm -rf warm
    for i in 1 2 3 4; do fakes "$TRAINER" plan small.ini --gpu h200 --warm warm >out$i 2>&1 & done
    wait
    ! grep -q warning out? && [ "$(ls warm | wc -l)" = 5 ] && ! ls warm | grep -qv '^[0-9a-f]*\.plan$'
    ok $? "four at once write the same folder"
    mkdir -p full && : >full/file && fake small.ini --warm full/file && [ "$(grep -c warning: out)" = 1 ]
    ok $? "a folder that cannot be written: one warning"
    HOSTCUDA_TRACE=$PWD/trace HOSTCUDA_DEVICES=2 fakes "$MPIEXEC" -np 2 "$TRAINER" train small.ini \
        device=cuda data.synthetic_samples=64 train.steps=1 run.dir=run >out 2>&1 &&
        grep -q 'cudnnBackendCreateDescriptor.* 4$' trace.0 &&
        grep -q 'cudnnBackendCreateDescriptor.* 5$' trace.1 && ! grep -q 'cudnnBackendCreateDescriptor.* 4$' trace.1
    ok $? "rank 0 chooses; the other ranks take its plans and ask no heuristics"
    fake gpt.ini && of "[o['computed_by'] for o in p['ops'] if 'attention' in o['op']].count('own kernel') == 0" &&
        fake gpt.ini precision=fp32 &&
        of "all('own' in o['computed_by'] for o in p['ops'] if 'attention' in o['op'])" &&
        [ "$(grep -c 'warning: attention' out)" = 1 ]
    ok $? "attention: by cuDNN in bf16; a warning where not"
fi

# The real library. It may be absent although the program was linked with it.
gpt2() { # GPU FOLDER SETTING...
    plan "$1" "$TRAINER_ROOT/configs/gpt2_124m.ini" precision=bf16 data.format=synthetic_tokens data.train=none \
        data.valid= data.micro_batch=8 model.n_layer=1 --warm "${@:2}"
}
if ! gpt2 h200 real; then
    grep -q 'libcudnn' out && { ok 0 "the real cuDNN # SKIP there is none: $(tail -n 1 out)"; echo "1..$n"; exit; }
    cat out; ok 1 "the real cuDNN plans attention for h200"; echo "1..$n"; exit
fi
of "sum('engine' in o['computed_by'] for o in p['ops'] if 'attention' in o['op']) == 2"
ok $? "the real cuDNN plans attention for h200"

mv plan.json made.json
gpt2 h200 real &&
    of "p['plans_made'] == 0 and p['plans_restored'] == 2" &&
    json 'a["plan_sec"] < b["plan_sec"] / 2' plan.json made.json
ok $? "and restores it from its JSON"
# row GPU [DROPOUT]: the row of docs/gpu-plans.md with engine, kernel and workspace of attention, forward and backward
row() {
    local title=${1^^}${2:+, dropout $2} graph="delta, ${2:+dropout, }"
    local kernel='s/.*cudnn_generated_fort_native_sdpa_\(sm[0-9a-z_]*\)_f16_knob_.*/\1/p' at="plans-$1${2-}" way
    [ "$at" != plans-h200 ] || at=real
    gpt2 "$1" "$at" model.dropout="${2:-0}" || return 1
    for way in forward backward; do
        sed -n "$kernel" "$(grep -la "causal attention.*$graph$way " "$at"/*.plan)" | head -n 1 >$way
    done
    python3 -I - "$title" "$(cat forward)" "$(cat backward)" <<'PY'
import json, re, sys
p = json.load(open("plan.json"))
def size(n):
    return f"{n} B" if n < 1024 else f"{n / 2**10:.1f} KiB" if n < 1 << 20 else f"{n / 2**20:.1f} MiB"
cells = []
for op, kernel in zip(("attention", "attention_bwd"), sys.argv[2:]):
    o = next(o for o in p["ops"] if o["op"] == op)
    cells.append(f"{re.search('[0-9]+', o['computed_by'])[0]}, {kernel}, {size(o['workspace_bytes'])}")
print(f"| {sys.argv[1]} | {' | '.join(cells)} |")
PY
}
if grep -qa '^cudnn 919[0-9][0-9] ' real/*.plan; then
    { row a100 && row h200 && row b200 && row h200 0.2; } >rows && ! grep -vFxf "$TRAINER_ROOT/docs/gpu-plans.md" rows
    ok $? "engines, kernels and workspaces of attention are those of docs/gpu-plans.md"
else
    ok 0 "attention as in docs/gpu-plans.md # SKIP that is for cuDNN 9.19"
fi
plan a100 small.ini --warm real && of "sum('engine' in o['computed_by'] for o in p['ops']) >= 4"
ok $? "convolutions in fp32 for a100"

# Every shipped configuration.
if [ -n "${TEST_ALL-}" ]; then
    "$TRAINER_ROOT/tools/plan-table" "$TRAINER" "$PWD/real" >out
    ok $? "cuDNN plans every shipped configuration for A100, H200 and B200"
    "$TRAINER_ROOT/tools/plan-table" "$TRAINER" "$PWD/real" >again && ! grep -vE '\| 0, [0-9]+ \||^\|-|GPU' again &&
        diff <(sed 's/| [0-9]*, [0-9]* |//' out) <(sed 's/| [0-9]*, [0-9]* |//' again)
    ok $? "and restores every plan, with the same engines and workspaces"
fi
echo "1..$n"
