#!/usr/bin/env bash
# trainer bench attention: its table and its JSON form.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/bench_attention}/tests/support/common.sh"

call 0 bench attention --max 512 --json a.json --svg a.svg threads=1 model.n_head=2 model.n_embd=32 &&
    grep -Eq '^ +256 +standard +[0-9.]+ +[0-9.]+ ' out && grep -Eq '^ +512 +flash +[0-9.]+ +[0-9.]+ ' out
ok $? "a row for each number of tokens and method"
ok_keys bench_attention a.json
grep -q "memory (MiB)" a.svg && [ "$(grep -c "backward (ms)" a.svg)" = 1 ] && [ "$(tail -n 1 a.svg)" = "</svg>" ]
ok $? "time and memory, plotted"
if command -v python3 >/dev/null; then
    # standard keeps heads x T x T probabilities; flash nothing of that size
    python3 -I -c '
import json, sys
a = json.load(open("a.json"))
bytes = {(r["tokens"], r["attention"]): r["memory_bytes"] for r in a["rows"]}
ok = a["kind"] == "attention" and a["heads"] == 2 and len(bytes) == 4
ok = ok and all(r["forward_ms"] > 0 and r["backward_ms"] > 0 for r in a["rows"])
flash = [r for r in a["rows"] if r["attention"] == "flash"]
# the two sum in another order: rounding alone, and not twice the same values
ok = ok and all(0 < r[k] < 1e-4 for r in flash for k in ("output_difference", "gradient_difference"))
sys.exit(0 if ok and all(bytes[t, "standard"] >= 2 * t * t * 4 > bytes[t, "flash"] for t in (512,)) else 1)'
    ok $? "standard attention takes the memory of its probabilities, flash does not; the same values"
else
    skip "the JSON form" "no python3"
fi
call 0 bench attention --max 256 threads=1 model.n_head=2 model.n_embd=32 precision=bf16 &&
    awk '$2 == "flash" { if ($9 > 0.1 || $10 > 0.5) exit 1; found = 1 } END { exit !found }' out
ok $? "in bf16 to the rounding of bf16"
call 2 bench attention --max 100 && names err --max 100 &&
    call 78 bench attention model.n_head=5 model.n_embd=32 && names err model.n_head model.n_embd
ok $? "numbers that cannot be"
echo "1..$n"
