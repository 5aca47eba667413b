#!/usr/bin/env bash
# `trainer monitor`, and the samples of a run, where there is no GPU.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/monitor}/tests/support/common.sh"
export TRAINER_CUDA_LIBRARY=none # whatever GPUs this machine has
call 0 monitor --csv --count 2 --interval 0.1 && [ "$(wc -l <out)" = 3 ] &&
    head -n 1 out | grep -q '^time,index,name,total_bytes,used_bytes,free_bytes,utilization_ratio,temperature_cel' &&
    awk -F, 'NR > 1 && !($2 == "cpu" && $4 == $5 + $6 && $4 > 2 ^ 28 && $7 <= 1 && $8 $9 == "") { exit 1 }' out
ok $? "--csv: memory and use of the cores"
call 0 monitor --count 1 && grep -qE '^cpu +[0-9]+ cores? +[0-9.]+ [GT]iB ' out
ok $? "a table"
call 2 monitor --interval 0 && names err "interval & 0"
ok $? "an interval of 0 is refused"
set -m
"$TRAINER" monitor --interval 60s >out 2>err &
set +m
until_true grep -q '^cpu' out
kill -s INT $!
wait $!
[ $? = 0 ] && [ ! -s err ]
ok $? "Ctrl-C ends it with code 0"

train="train $TRAINER_ROOT/configs/mnist_mlp.ini device=cpu threads=1 data.format=synthetic
    data.synthetic_samples=64 data.batch_size=8 data.micro_batch=4"
grace
# shellcheck disable=SC2086
run 2 $train train.steps=1000000 train.valid_every=0 log.every=20 monitor.interval=10ms run.dir=r &
has_samples() { # of both ranks
    grep rss_bytes_min r/metrics.jsonl 2>/dev/null |
        grep -qv '"rss_bytes_min": *\([0-9]*\), *"rss_bytes_max": *\1,'
}
until_true has_samples
kill -s TERM "$(sed 's/^process \([0-9]*\) .*/\1/' r/lock)"
wait $!
[ $? = 75 ] && python3 -I - <<'PY'
import json
a = [json.loads(l) for l in open("r/metrics.jsonl")]
s = json.load(open("r/summary.json"))
known = [l for l in a if "cpu_util" in l]
ranks = [l for l in known if l.get("rss_bytes_min", 0) < l.get("rss_bytes_max", 0)]
assert known and all(0 <= l["cpu_util"] <= 99 and 0 <= l["cpu_wait"] <= 99 and l["rss_bytes"] > 1 << 20 for l in known)
assert ranks and all(l["rss_bytes_min"] <= l["rss_bytes"] <= l["rss_bytes_max"] for l in ranks)
assert s["rss_bytes_max"] > 1 << 20 and not any(k.startswith("gpu") for l in a + [s] for k in l)
PY
ok $? "a run on CPUs: memory and cores of its ranks"
core=$(taskset -cp $$ | sed 's/.*[ ,]//; s/.*-//')
set -m
timeout 60 taskset -c "$core" sh -c 'while :; do :; done' &
set +m
# shellcheck disable=SC2086
taskset -c "$core" timeout -s TERM 3 "$TRAINER" $train train.steps=100000000 train.valid_every=0 log.every=1000 \
    monitor.interval=20ms run.dir=shared >out 2>&1
taskset -c "$core" "$TRAINER" doctor >doctor 2>&1
kill -- -$!
"$TRAINER" report shared --out page >out 2>&1 && grep -q 'cores and waited for' page/index.html &&
    grep -q '^warning *cores *.*other programs use the cores' doctor && python3 -I - <<'PY'
import json
s = json.load(open("shared/summary.json"))
assert 0.2 < s["cpu_wait"] < 3 and s["cpu_util"] < 0.8, (s["cpu_wait"], s["cpu_util"])
PY
ok $? "another program on the core of a run: record, report and doctor say so"
# shellcheck disable=SC2086
call 0 $train train.steps=10 monitor.interval=0 run.dir=off && ! grep -q 'rss_bytes\|cpu_util' off/*.json*
ok $? "monitor.interval = 0: no samples"
echo "1..$n"
