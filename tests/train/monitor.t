#!/usr/bin/env bash
# monitor.port: the live page, /metrics, /status.json and /healthz of a run that trains, its token, its files, what is
# refused; trainer top of the same runs.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/monitor}/tests/support/faults.sh"
cat >net.ini <<'INI'
threads = 1
[model]
layers = linear 8, relu, linear 4
[data]
format = synthetic
synthetic_samples = 200
synthetic_shape = 8
classes = 4
batch_size = 20
valid_fraction = 0.2
[train]
steps = 10000000
valid_every = 1000
[log]
every = 100
[checkpoint]
every = 0
INI
call 0 net.ini run.dir=first train.steps=10 monitor.port=0 ||
    { ! grep -q libmicrohttpd err || { echo "1..0 # SKIP no libmicrohttpd"; exit 0; }; }
[ -e first/token ] && [ "$(stat -c %a first/token)" = 600 ] && [ ! -e first/monitor ] && [ ! -e first/monitor.json ] &&
    grep -q 'http://127.0.0.1:' first/log.txt && names err monitor
ok $? "a run says where it can be seen; only the token is left"

# get RUN PATH [TOKEN]: the status into ./code, the body into ./body
get() {
    python3 -c 'import sys, urllib.request as u
r = u.Request(open(sys.argv[1] + "/monitor").read().strip() + sys.argv[2])
if len(sys.argv) > 3: r.add_header("Authorization", "Bearer " + sys.argv[3])
try: a = u.build_opener(u.ProxyHandler({})).open(r, timeout=20)
except u.HTTPError as e: a = e
open("code", "w").write(str(a.status)); open("body", "wb").write(a.read())' "$@"
}
gives() { get "${@:2}" && [ "$(cat code)" = "$1" ]; } # CODE RUN PATH [TOKEN]

SLURM_JOB_ID=17 "$TRAINER" net.ini run.dir=long monitor.port=0 >long.out 2>&1 &
long=$!
until_true [ -s long/monitor.json ] && until_lines long/metrics.jsonl 5 && token=$(cat long/token)
gives 401 long / && gives 401 long /metrics 0123456789abcdef0123456789abcdef &&
    gives 401 long /status.json "${token%?}" && gives 404 long /none "$token" && gives 200 long /healthz &&
    [ "$(cat body)" = ok ]
ok $? "a token is required, except for /healthz"

# agree WHAT: the values in ./body are those of the line of that step
agree() { python3 - "$1" <<'END'
import json, sys
text = open("body").read()
if sys.argv[1] == "metrics":
    seen = {l.split("{")[0][8:]: float(l.split()[-1]) for l in text.splitlines() if l[0] != "#"}
    labels = text.splitlines()[2]
    assert 'run="long"' in labels and 'job="17"' in labels and text.endswith("\n"), labels
    seen = {"step": seen["steps_total"], "loss": seen["loss"], "samples_per_sec": seen["samples_per_second"],
            "step_ms": 1e3 * seen["step_seconds"], "steps": seen["steps_planned"]}
else:
    seen = json.loads(text)
    assert seen["healthy"] and seen["ranks"] == 1 and seen["sessions"][-1]["start"]["job"] == "17", seen
    seen = {"steps": seen["steps"], **seen["train"]}
assert seen.pop("steps") == 10000000
for _ in range(200):
    lines = [json.loads(l) for l in open("long/metrics.jsonl") if l.endswith("\n")]
    line = [l for l in lines if l["step"] == seen["step"] and "loss" in l]
    if line: break
assert all(abs(seen[k] - line[0][k]) <= 1e-9 * abs(line[0][k]) for k in ("loss", "samples_per_sec", "step_ms")), seen
END
}
gives 200 long /metrics "$token" && agree metrics
ok $? "/metrics: a line of metrics.jsonl"
if command -v promtool >/dev/null; then
    promtool check metrics <body >promtool 2>&1
    ok $? "and what promtool accepts"
else
    skip "and what promtool accepts" "no promtool"
fi
gives 200 long /status.json "$token" && agree status
ok $? "/status.json: the same"
until_true grep -q valid_loss long/metrics.jsonl && gives 200 long / "$token" && [ "$(grep -c '</svg>' body)" -ge 4 ] &&
    grep -q '>validation<' body && grep -q 'of 10000000' body && grep -q http-equiv body &&
    ! grep -Eq '<script|<link|src=' body && ! grep -q "$token" body
ok $? "the live page"
echo '{"step":7,"classes":2,"samples":[{"sample":3,"input":"AAAA","target":"BBBB","prediction":"CC<C"}]}' \
    >long/samples.json
gives 200 long / "$token" && grep -q 'validation after step 7<' body && grep -q 'base64,BBBB"' body &&
    grep -q 'base64,CC&#60;C"' body && [ "$(grep -c 'src=' body)" = 3 ] && rm long/samples.json
ok $? "with the pictures of a validation"
[ "$(tr -d ' \n' <long/monitor.json)" = \
    "[{\"targets\":[\"$(sed 's,http://,,' long/monitor)\"],\"labels\":{\"run\":\"long\",\"job\":\"17\"}}]" ] &&
    [ "$(grep -rl "$token" long long.out)" = long/token ] && ! grep -aq "$token" /proc/$long/cmdline /proc/$long/environ
ok $? "monitor.json; the token is in its file only"

# -- what is refused, and what a requeued job does instead
port=$(sed 's/.*://' long/monitor)
call 78 net.ini run.dir=no train.steps=10 monitor.port="$port" && names err "error & monitor.port & $port" &&
    [ ! -e no ] &&
    call 78 net.ini run.dir=no train.steps=10 monitor.port=0 monitor.bind=192.0.2.1 &&
    names err 'error & monitor.bind & 192.0.2.1' && [ ! -e no ]
ok $? "a port in use, an address of another machine: before the first step, and no folder is left"
SLURM_RESTART_COUNT=1 call 0 net.ini run.dir=again train.steps=10 monitor.port="$port" &&
    names err "monitor.port & $port" && grep -q 'http://127.0.0.1:' again/log.txt &&
    chmod 644 first/token && call 0 net.ini run.dir=first train.steps=20 monitor.port=0 &&
    names err 'monitor.token_file & first/token & 644'
ok $? "a run that was requeued or resumed warns and trains on"

# -- trainer top
call 0 top first long again && [ "$(sed -n '2p' out | awk '{ print $1, $2 }')" = "long running" ] &&
    grep -q '/10000000 .* 17$' out && grep -q '^first  *done  *20/20 ' out && COLUMNS=40 call 0 top --once long &&
    [ "$(awk 'length > 40' out)" = "" ] && ln -s . runs && call 0 top && grep -q '^again' out &&
    rm runs && call 66 top && names err runs
ok $? "top"
kill -TERM $long
wait $long
rc=$?
[ $rc = 75 ] && [ ! -e long/monitor ] && [ ! -e long/monitor.json ] && [ -s long/token ] && call 0 top long &&
    grep -q '^long  *stopped ' out
ok $? "at the end, its files are removed"

# -- a rank that hangs
start 2 net.ini run.dir=hang monitor.port=0 parallel.timeout=4
until_lines hang/metrics.jsonl 3 && token=$(cat hang/token) && gives 200 hang /status.json "$token" &&
    [ "$(python3 -c 'import json; print(*(r["rank"] for r in json.load(open("body"))["rank_times"]))')" = "0 1" ]
ok $? "the times of each rank"
hit STOP 1
until_true gives 503 hang /healthz && [ "$(sed 's/[0-9.]* s$/N s/' body)" = "no progress for N s" ]
status=$?
kill -s CONT "$victim"
ok $status "/healthz: 503 before the watchdog ends the run"
until_true gives 200 hang /healthz
ok $? "and 200 when it goes on"
hit STOP 1
ended
[ ! -e hang/monitor ] && [ ! -e hang/monitor.json ] && grep -q '^again' hang/verdict
ok $? "the watchdog ends the run: the files that name it are gone"
echo "1..$n"
