#!/usr/bin/env bash
# TEST timeout=60
# trainer plan --fixes: each row is the plan of the run with its settings; and the error of a run that is too large
# names the settings that make it fit.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/plan_fixes}/tests/support/common.sh"

command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }

lab=$TRAINER_ROOT/configs/oom_lab.ini
call 0 plan "$lab" --fixes --memory 80GiB --json f.json && grep -q 'data.micro_batch=1 ' out
ok $? "the lab's model, which no machine of the tests has memory for"
json '850 < a["now"]["bytes"] / 2**30 < 1000 and not a["now"]["fits"] and a["least"]["fits"] and
       a["least"]["bytes"] == [r for r in a["rows"] if r["used"]][-1]["together"]["bytes"]' f.json
ok $? "it needs 850 to 1000 GiB, and fits in 80 GiB with all remedies that are used"
ok_keys plan_fixes f.json
json 'all(any(w in r["settings"] for r in a["rows"])
           for w in ("data.batch_size=1", "data.micro_batch=1", "recompute=block", "recompute=4", "precision=bf16",
                     "optimizer.type=sgd")) and
       [r["shared_by"] for r in a["rows"] if r["computed"]] == [2, 4, 8]' f.json
ok $? "a row for each remedy; only the shared state is computed"

# every planned row, alone, is what a plan with its settings says
small=(model.n_layer=4 model.n_head=4 model.n_embd=64 model.context=64 model.vocab_size=256 data.batch_size=8
    data.micro_batch=8 data.synthetic_samples=64 model.attention=standard threads=1)
call 0 plan "$lab" "${small[@]}" --fixes --json s.json
python3 -I -c 'import json
for r in json.load(open("s.json"))["rows"]:
    if not r["computed"]: print(r["alone"]["bytes"], r["settings"])' >rows
same=0
while read -r bytes settings; do
    [ "${settings#*bf16}" = "$settings" ] && plan=0 || plan=1
    # shellcheck disable=SC2086
    call 0 plan "$lab" "${small[@]}" $settings --stages --json p.json &&
        json "a['plans'][$plan]['allocated_bytes'] == $bytes" p.json || same=1
done <rows
[ $same = 0 ] && [ "$(wc -l <rows)" -ge 6 ] && grep -q 'attention=flash' rows
ok $? "each row is the plan of the run with its settings"
json 'all(20 < r["alone"]["extra_flops_percent"] < 40 for r in a["rows"] if "recompute" in r["settings"]) and
       all(abs(r["alone"]["extra_flops_percent"]) < 3 for r in a["rows"] if "recompute" not in r["settings"])' s.json
ok $? "recomputation costs about one more forward pass, the others little"

# stages SETTINGS...: the stages of ZeRO that are named on 2 ranks, and which of them is used
stages() {
    call 0 plan "$lab" "${small[@]}" model.n_embd=128 --ranks 2 --fixes --json two.json data.micro_batch=1 "$@" &&
        python3 -I -c 'import json
rows = [r for r in json.load(open("two.json"))["rows"] if "zero" in r["settings"]]
print(*(r["settings"][-1] + ("+" if r["used"] else "") for r in rows))'
}
[ "$(stages parallel.bucket=100KiB data.batch_size=4)" = "1 2+" ]
ok $? "the gradients are sharded, too, if that takes less memory"
[ "$(stages data.batch_size=4)" = "1+" ] && [ "$(stages parallel.bucket=100KiB data.batch_size=5)" = "1+" ]
ok $? "not if two buckets have them all, nor with other numbers of micro-batches on each rank"
call 71 "$lab" run.dir=lab && [ ! -e lab ] &&
    grep -q '^  data.micro_batch=1 model.recompute=2 optimizer.type=sgd optimizer.momentum=0' err
ok $? "a run that nothing makes fit: the least that it needs"
# One micro-batch of 65536 samples of 256 KiB, on a machine with less than 1 TiB; one of 1 fits.
printf '%s\n' '[model]' 'layers = flatten, linear 10' '[data]' 'train = none' 'format = synthetic' \
    'synthetic_shape = 256x256x64' >big.ini
call 71 big.ini run.dir=big data.batch_size=65536 data.micro_batch=65536 data.synthetic_samples=65536 &&
    grep -q '^  data.micro_batch=1: ' err && ! grep -q '^  optimizer.type=sgd' err
ok $? "a run that smaller micro-batches make fit: the error names them, and no setting that does not help"
printf '%s\n' '[model]' 'layers = conv 4 3x3, batchnorm, globalpool, linear 10' '[data]' 'train = none' \
    'format = synthetic' 'synthetic_shape = 32x32x3' 'synthetic_samples = 64' 'batch_size = 16' >norm.ini &&
    call 0 plan norm.ini --fixes --json n.json data.micro_batch=16 && ! grep -q 'micro_batch=1 ' out &&
    json '"data.micro_batch=2" in [r["settings"] for r in a["rows"]] and
          all(r["alone"]["bytes"] < a["now"]["bytes"] for r in a["rows"] if not r["computed"])' n.json &&
    call 0 plan norm.ini --fixes data.micro_batch=2 && ! grep -q 'data.micro_batch' out
ok $? "no micro-batch of one sample with batch normalisation, and nothing larger than the run"
tiny=("$TRAINER_ROOT/configs/gpt_tiny.ini" data.format=synthetic_tokens data.train= data.valid= model.vocab_size=66)
call 0 plan "${tiny[@]}" && cp out brief && call 0 plan "${tiny[@]}" --verbose &&
    [ "$(wc -l <brief)" -lt 40 ] && grep -q '^fits ' brief && sed -n '1,3p' brief | grep -q '^memory per rank' &&
    [ "$(sed -n 's/^  transformer\.h\.\*\.attn\.c_attn\.weight  *4 x .* \([0-9]*\) *$/\1/p' brief)" = \
        "$(awk '/^  transformer\.h\.[0-9]*\.attn\.c_attn\.weight/ { sum += $NF } END { print sum }' out)" ] &&
    [ "$(grep '^  in all' brief)" = "$(grep '^  in all' out)" ] && call 2 plan "${tiny[@]}" --verbose --stages
ok $? "the memory first; parameters by groups, whose sums are those of --verbose"
json '[r["settings"] for r in a["rows"]][-1].startswith("data.batch_size") and
       all(x < y for x, y in zip(*[[i for i, r in enumerate(a["rows"]) if w in r["settings"]][:1] for w in
           ("micro_batch=1", "recompute")])) and
       max(i for i, r in enumerate(a["rows"]) if r["computed"]) < min(i for i, r in enumerate(a["rows"])
           if "bf16" in r["settings"])' f.json
ok $? "remedies by what they cost: exact ones, then more FLOPs, fewer digits, another training"
call 2 plan "$lab" --fixes --stages && names err --stages --fixes &&
    call 0 plan big.ini --fixes && call 2 plan "$lab" --memory 1GiB && names err --memory --fixes
ok $? "options that exclude each other; models of other types"
echo "1..$n"
