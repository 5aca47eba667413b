#!/usr/bin/env bash
# trainer bench generate: its table and its JSON form.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/bench_generate}/tests/support/common.sh"
golden=$TRAINER_ROOT/tests/golden/gpt2/plain
# call CODE ARGUMENTS...: ends with this code
call() { local code=$1; shift; "$TRAINER" bench generate "$@" >out 2>err; [ $? = "$code" ]; }

call 0 "$golden" --tokens 4 threads=1 --svg g.svg &&
    for batch in 1 4 16 32 64; do
        grep -Eq "^ +$batch( +[0-9.]+){10}\$" out || echo "no row of $batch"
    done >err &&
    [ ! -s err ]
ok $? "a row for each number of texts"
best=$(awk 'NF == 11 && $1 > 0 && $2 > most { most = $2; best = $1 } END { print best }' out)
grep -q "^best  *batch $best," out && grep -q '^loaded in [0-9.]* s, the process then takes [0-9.]* [KMG]iB$' out
ok $? "the best batch is named; time to load and memory"
grep -q "tokens/s" g.svg && grep -q "next token" g.svg && [ "$(tail -n 1 g.svg)" = "</svg>" ]
ok $? "tokens/s and the time of a token, plotted"

call 0 "$golden" --tokens 4 --prompt 20 --batch 3 --weights bf16 --json b.json threads=1 &&
    [ "$(grep -Ec '^ +[0-9]+ +[0-9.]+ ' out)" = 1 ]
ok $? "--batch: only that"
ok_keys bench_generate b.json
if command -v python3 >/dev/null; then
    python3 -I -c '
import json, sys
b = json.load(open("b.json"))
row, = b["rows"]
ok = b["weights"] == "bf16" and b["tokens"] == 4 and b["read_bytes_per_sec"] > 0 and row["batch"] == 3
ok = ok and 0 < row["tokens_per_sec_lowest"] <= row["tokens_per_sec"] <= row["tokens_per_sec_highest"]
for what in "first_token_sec", "token_sec":
    ok = ok and 0 < row[what] <= row[what + "_p90"] <= row[what + "_p99"]
ok = ok and b["prompt"] == 20 and b["load_sec"] > 0 and b["resident_bytes"] > 1e6
# 4 bytes of vectors and 2 of matrices, read once for the tokens of 3 texts
C, V, layers = 16, 270, 2
read = 2 * (V * C + layers * 12 * C * C) + 4 * (layers * 13 * C + 2 * C)
sys.exit(not (ok and abs(row["weights_bytes_per_sec"] / (read * row["tokens_per_sec_highest"] / 3) - 1) < 1e-6))'
    ok $? "the JSON form: the bytes of the weights by the tokens per second"
else
    skip "the JSON form" "no python3"
fi
call 0 "$golden" --tokens 2 --batch 2 --devices cpu,cpu --json d.json threads=1 &&
    grep -Eq '^ +2 +[0-9.]+  cpu over cpu$' out && grep -q '"kind": *"devices"' d.json &&
    [ "$(grep -c '"load_sec"' d.json)" = 2 ] && [ "$(grep -c '"speedup"' d.json)" = 1 ]
ok $? "--devices: each of them, and the speedup over the first"
ok_keys bench_generate_devices d.json
call 2 "$golden" --devices tpu && names err --devices tpu &&
    call 2 "$golden" --devices cpu,cpu,cpu && names err --devices
ok $? "devices that cannot be"
call 2 "$golden" --batch 65 && names err '--batch' &&
    call 2 "$golden" --tokens 1 && names err '--tokens' &&
    call 2 && names err 'bench generate'
ok $? "numbers that cannot be, no model"

call 66 nowhere && names err nowhere
ok $? "a folder that is missing"
echo "1..$n"
