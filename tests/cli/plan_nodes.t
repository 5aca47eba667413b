#!/usr/bin/env bash
# The timeline of bench step --json, and what trainer plan --nodes predicts from it.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/plan_nodes}/tests/support/common.sh"

command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }

cat >net.ini <<'END'
threads = 1
[model]
layers = flatten, linear 256, relu, linear 256, relu, linear 10
[data]
train = none
format = synthetic
batch_size = 32
micro_batch = 16
END
table() { # RANKS NODES ENGINE US: 1000 and 1000000 bytes
    cat <<END
{"kind": "allreduce", "ranks": $1, "nodes": $2, "engine": "$3", "sizes": [
 {"bytes": 1000, "median_us": $4, "p90_us": $4}, {"bytes": 1000000, "median_us": ${4}00, "p90_us": ${4}00}]}
END
}
# So slow a network that no machine computes for longer than it takes.
table 2 2 thread 1000 >net2.json
table 4 1 thread 10 >inside.json
table 2 1 poll 1000 >poll.json

call 0 bench step net.ini --steps 6 --json p.json parallel.bucket_first=64k parallel.bucket=64k &&
    json 'a["kind"] == "profile" and a["slots"] == 2 and len(a["compute_sec"]) == 6 and
           a["compute_sec"] == sorted(a["compute_sec"])' p.json
ok $? "bench step writes the slots and the computing time of each step"
ok_keys bench_step p.json
json 'len(a["buckets"]) > 1 and a["buckets"][-1]["after_op"] <= len(a["ops"]) - 1 and
       sorted(a["buckets"], key=lambda b: b["after_op"]) == a["buckets"] and
       4 * (784 * 256 + 256 + 256 * 256 + 256 + 2560 + 10) <= sum(b["bytes"] for b in a["buckets"]) < 4 * 275000' p.json
ok $? "and each bucket with its bytes and its place among the ops, on one rank too"
json 'all(o["sec"] <= o["sec_median"] <= o["sec_p95"] for o in a["ops"])' p.json
ok $? "and the best, the median and the 95th percentile of each op"
json 'a["product_gflops"] > 0 and a["copy_gbs"] > 0 and a["update_floor_sec"] > 0 and
       all(abs(o["floor_sec"] - max(o["flops"] / a["product_gflops"], o["bytes"] / a["copy_gbs"]) / 1e9)
           <= 1e-6 * o["floor_sec"] for o in a["ops"])' p.json &&
    [ "$(grep -c '[0-9] x  ' out)" -gt 5 ]
ok $? "and its floor by the rates of a product and of a copy"

call 0 plan net.ini --nodes 1,2,4..16 --network net2.json --profile p.json --json weak.json &&
    json '[r["nodes"] for r in a["rows"]] == [1, 2, 4, 8, 16] and a["kind"] == "prediction" and a["mode"] == "weak" and
           all(r["batch_global"] == 32 * r["nodes"] and r["slots"] == 2 for r in a["rows"]) and
           all(r[k]["low"] <= r[k]["expected"] <= r[k]["high"] for r in a["rows"] for k in ("step_ms", "efficiency"))' \
        weak.json
ok $? "weak scaling: the batch grows with the nodes; low, expected and high ascend"
ok_keys plan_nodes weak.json
json 'a["rows"][0]["efficiency"]["expected"] == 1 and
       a["rows"][0]["comm_exposed_ms"] == 0 and a["rows"][1]["comm_exposed_ms"] > 1 and
       [r["network"] for r in a["rows"]] == ["none", "measured", "fitted", "fitted", "fitted"]' weak.json &&
    grep -Eq '^ +2 +2 +64 +2 x 16 .* measured$' out
ok $? "no communication on one node; the source of the network times is named"
call 0 plan net.ini --nodes 1,2,4 --mode strong --network net2.json --profile p.json --json - &&
    cp out strong.json &&
    json '[(r["batch_global"], r["slots"], r["micro_batch"]) for r in a["rows"]] ==
           [(32, 2, 16), (32, 1, 16), (32, 1, 8)] and a["assumptions"]' strong.json
ok $? "strong scaling keeps the batch; --json - writes only JSON"

call 0 plan net.ini --nodes 1,2 --ranks-per-node 4 --network net2.json --network-inside inside.json \
    --profile p.json --json r4.json data.batch_size=128 &&
    json '[r["ranks"] for r in a["rows"]] == [4, 8] and a["rows"][0]["comm_exposed_ms"] > 0 and
           a["rows"][1]["comm_exposed_ms"] > a["rows"][0]["comm_exposed_ms"]' r4.json
ok $? "several ranks per node add the time inside a node"
call 0 plan net.ini --nodes 2 --network poll.json --profile p.json --json poll.out &&
    json 'a["rows"][0]["comm_exposed_ms"] > b["rows"][1]["comm_exposed_ms"]' poll.out weak.json
ok $? "nothing is hidden by an engine that polls"

call 2 plan net.ini --nodes 2 && names err --network --profile &&
    call 2 plan net.ini --nodes 2 --network net2.json --profile p.json --ranks-per-node 2 &&
    names err --network-inside &&
    call 2 plan net.ini --nodes 4..2 && names err --nodes '4\.\.2' &&
    call 2 plan net.ini --nodes 2 --mode fast --network net2.json --profile p.json &&
    names err --mode fast
ok $? "options that are missing or wrong"

call 2 plan net.ini --nodes 0 && names err '0.: .* 1000000' &&
    call 2 plan net.ini --nodes '' &&
    call 2 plan net.ini --network net2.json && names err --network --nodes &&
    call 2 plan net.ini --mode weak && names err --mode --nodes &&
    call 2 plan net.ini --nodes 2 --stages && names err --stages --nodes &&
    call 2 plan net.ini --ops --stages && names err --ops --stages &&
    call 2 plan net.ini --largest n_layer --memory 1G --fixes && names err --largest --fixes &&
    call 2 plan net.ini --json x.json && names err --json '--stages[|].*[|]--nodes' &&
    call 2 plan net.ini --nodes 2 --ranks 2 && names err --ranks --ranks-per-node
ok $? "an option of another mode is refused"

call 78 plan net.ini --nodes 2 --network net2.json --profile p.json precision=bf16 &&
    names err p.json precision fp32 bf16 &&
    call 78 plan net.ini --nodes 2 --network net2.json --profile p.json 'model.layers=flatten, linear 10' &&
    names err p.json model.layers
ok $? "a profile of another model or precision is refused"
call 78 plan net.ini --nodes 2 --network net2.json --profile p.json data.micro_batch=8 &&
    names err p.json data.micro_batch 16 8 &&
    call 78 plan net.ini --nodes 2 --network net2.json --profile p.json threads=2 && names err p.json threads 1 2 &&
    call 0 plan net.ini --nodes 2 --network net2.json --profile p.json data.micro_batch=auto threads=auto
ok $? "as is one of another micro-batch or number of threads; auto is as measured"
json 'a["parameters"] == 269322 and a["precision"] == "fp32" and a["threads"] == 1' weak.json
ok $? "the prediction names its model, precision and threads"
call 66 plan net.ini --nodes 2 --network absent.json --profile p.json && names err absent.json &&
    call 65 plan net.ini --nodes 2 --network p.json --profile p.json && names err p.json nodes
ok $? "files that are absent or of another kind"
# replay FOLDER ARGUMENTS...: 10 steps on 2 ranks
replay() { timeout 60 $MPIEXEC -np 2 "$BUILD/tools/replay" p.json "$@" --steps 10 >out 2>err; }
replay sleep && [ "$(wc -l <sleep/metrics.jsonl)" = 10 ] &&
    json 'a["kind"] == "replay" and a["status"] == "done" and a["ranks"] == 2 and a["batch_size"] == 64' \
        sleep/summary.json
ok $? "a replay leaves a run folder"

replay slow --network net2.json --mode strong &&
    json 'a["batch_size"] == 32 and a["step_ms"] * 1.01 > b["rows"][1]["step_ms"]["low"] and a["comm_exposed"] > 0.1' \
        slow/summary.json strong.json
ok $? "a replay with a modelled network takes at least the time predicted without waiting"
echo "1..$n"
