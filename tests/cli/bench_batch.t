#!/usr/bin/env bash
# trainer bench batch: its table, the knee, its JSON form and its plot.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/bench_batch}/tests/support/common.sh"

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
INI
call 0 bench batch net.ini --sizes 8,32,128 --steps 20 --json b.json --svg b.svg &&
    [ "$(grep -Ec '^ +(8|32|128) +[0-9.]+ +[0-9.]+ +[0-9.]+ KiB +[0-9.]+$' out)" = 3 ] &&
    grep -Eq '^knee +batch (8|32|128):' out && grep -q "samples/s" out
ok $? "a row for each size, and the knee"
ok_keys bench_batch b.json
call 0 bench batch net.ini --sizes 8 --steps 3 && grep -Eq '^knee +batch 8: .* may be faster$' out
ok $? "a knee at the largest size is none yet"
grep -q "samples/s" b.svg && grep -q "memory (MiB)" b.svg && [ "$(tail -n 1 b.svg)" = "</svg>" ]
ok $? "rate and memory, plotted"
if command -v python3 >/dev/null; then
    python3 -I -c '
import json, sys
b = json.load(open("b.json"))
rows = b["rows"]
best = max(r["per_sec"] for r in rows)
near = lambda a, b: abs(a / b - 1) < 1e-3
ok = b["kind"] == "batch" and b["unit"] == "samples" and [r["batch_size"] for r in rows] == [8, 32, 128]
ok = ok and all(near(r["per_sec"], r["batch_size"] / r["step_sec"]) for r in rows)
ok = ok and all(near(r["efficiency"], r["per_sec"] / best) for r in rows)
ok = ok and b["knee"] == min(r["batch_size"] for r in rows if r["per_sec"] >= 0.8999 * best)
ok = ok and rows[0]["memory_bytes"] < rows[2]["memory_bytes"] and all(r["fits"] for r in rows)
sys.exit(not ok)'
    ok $? "the JSON form: rates, their share of the highest, the knee"
else
    skip "the JSON form" "no python3"
fi

call 0 bench batch "$TRAINER_ROOT/configs/gpt2_124m.ini" --tokens --sizes 1,2 --steps 2 --json t.json \
    data.format=synthetic_tokens model.init=none model.n_layer=1 model.n_head=2 model.n_embd=16 model.vocab_size=64 \
    model.context=32 threads=1 && grep -q "tokens/s" out && grep -q '"unit": *"tokens"' t.json &&
    awk '/^ +[12] / { per_step = $3 * $2 / 1e3 / $1; if (per_step < 31 || per_step > 33) exit 1; rows++ }
        END { exit rows != 2 }' out
ok $? "--tokens: those of the context, times the batch"
"$MPIEXEC" -np 2 "$TRAINER" bench batch net.ini --sizes 8,16 --steps 3 --json - >out 2>err &&
    grep -q '"ranks": *2' out && [ "$(grep -c '"fits": *true' out)" = 2 ]
ok $? "on 2 ranks"

# 2^24 samples x 1000 activations x 4 bytes x 2: more than 120 GiB
if [ "$(awk '/^MemTotal/ { print int($2 / 1048576) }' /proc/meminfo)" -lt 64 ]; then
    call 0 bench batch net.ini --sizes 32,16777216 --steps 3 --json m.json data.synthetic_samples=16777216 \
        model.layers="flatten, linear 1000, relu, linear 4" &&
        grep -Eq '^16777216 .* too large' out && grep -q '"fits": *false' m.json && grep -q '"knee": *32' m.json
    ok $? "a size that does not fit is marked"
else
    skip "a size that does not fit is marked" "64 GiB of memory"
fi
call 2 bench batch net.ini --tokens --sizes 8 --steps 1 && names err --tokens net.ini &&
    call 2 bench batch net.ini --sizes 16,8 && names err --sizes 16 8 &&
    call 2 bench batch && call 2 bench batch net.ini --steps 0 && names err --steps
ok $? "arguments that cannot be"
"$MPIEXEC" -np 2 "$TRAINER" bench batch net.ini --sizes 7 >out 2>&1
[ $? = 2 ] && names out "2 ranks" 7
ok $? "a size that the ranks cannot share"
echo "1..$n"
