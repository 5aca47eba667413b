#!/usr/bin/env bash
# TEST timeout=60
# trainer bench memory: the stages of a run, and the messages of one that is too large; on the CPU, and on the fakes of
# the CUDA libraries, which count what is allocated.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/bench_memory}/tests/support/common.sh"

command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }

cat >net.ini <<'END'
threads = 1
[model]
layers = flatten, linear 2048, relu, linear 2048, relu, linear 10
[data]
format = synthetic
train = none
synthetic_samples = 64
batch_size = 16
micro_batch = 16
END
stages='[a["stages"][s] for s in ("context", "weights", "first_step", "steady", "released")]'
call 0 bench memory net.ini --demo --json m.json && cp out text && grep -Eq '^after release +0 B ' text
ok $? "it prints five stages"
ok_keys bench_memory m.json
call 0 plan net.ini --stages --json p.json &&
    json "[s['allocated_bytes'] for s in $stages] == [0] + 3 * [a['stages']['weights']['allocated_bytes']] + [0] and
       0.9 < a['stages']['weights']['allocated_bytes'] / b['plans'][0]['allocated_bytes'] < 1.1" m.json p.json
ok $? "what is allocated is what is planned"
# The weights, their gradients and AdamW's two moments are touched: 4 x 23 MiB.
json 'a["stages"]["steady"]["reserved_bytes"] > 60 << 20 and a["stages"]["context"]["reserved_bytes"] == 0 and
       a["stages"]["released"]["reserved_bytes"] < a["stages"]["steady"]["reserved_bytes"] / 2' m.json
ok $? "the process grows with the first step, and shrinks after the release"
json '"the run needs" in a["too_large"] and "optimizer.type=sgd" in a["too_large"] and
       "1.0 PiB" in a["no_memory"]' m.json
ok $? "--demo: a run that is too large, with what makes it fit, and an allocation that fails"
call 0 bench memory net.ini --json - && cp out only.json &&
    json '"no_memory" not in a and a["kind"] == "memory"' only.json
ok $? "without --demo nothing runs out"
if [ -e "$BUILD/hostcuda/libtrainer_cuda.so" ]; then
    fakes "$TRAINER" bench memory net.ini device=cuda --demo --json g.json >out 2>&1 &&
        json "all(s['reserved_bytes'] >= s['allocated_bytes'] for s in $stages) and
           a['stages']['released']['free_bytes'] == a['stages']['context']['free_bytes'] and
           'the run needs' in a['too_large'] and 'are free' in a['no_memory']" g.json
    ok $? "device cuda (fakes): what is allocated is taken from the device, and given back"
fi
echo "1..$n"
