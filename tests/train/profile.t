#!/usr/bin/env bash
# TEST timeout=240
# profile.steps: the timelines of all ranks, what the profile says of planted faults, the same results as without it,
# and what is refused.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/profile}/tests/support/common.sh"
timelines() { python3 "$TRAINER_ROOT/tests/support/check_trace.py" "$@" >out; } # FOLDER RANKS FIRST LAST
# says RUN EXPRESSION: true of profile.json as a, with its advice by loss as d
says() {
    python3 -I -c "import json, sys
a = json.load(open(sys.argv[1] + '/profile/profile.json'))
d = {w['loss']: w for w in a['advice']}
print(a['lost_ms'], a['advice'])
sys.exit(0 if $2 else 1)" "$1" >out
}
# planted RANKS "FAIL_... ..." ARGUMENTS...: a run in which calls are slow in some rank
planted() {
    local ranks=$1 setting settings=(-x LD_PRELOAD="$fail_lib")
    for setting in $2; do export "${setting?}"; settings+=(-x "${setting%%=*}"); done
    "$MPIEXEC" -np "$ranks" "${settings[@]}" "$TRAINER" "${@:3}" >out 2>&1
    local rc=$?
    for setting in $2; do unset "${setting%%=*}"; done
    return $rc
}

config
run 3 net.ini run.dir=plain train.valid_every=4 checkpoint.every=4 data.valid_fraction=0.2 &&
    run 3 net.ini run.dir=traced train.valid_every=4 checkpoint.every=4 data.valid_fraction=0.2 profile.steps=4:12 &&
    names out "4 & 12 & 80 %" && [ "$(state plain)" = "$(state traced)" ] && [ ! -e plain/profile ]
ok $? "a profile changes no bit, and the log has it"
ok_keys profile traced/profile/profile.json 'advice\[\]\..*'
ok_keys summary_ranks traced/summary.json "$at_times"
ok_keys metrics_ranks traced/metrics.jsonl "$at_times"
ok_records traced RANKS
timelines traced/profile 3 4 12
ok $? "three timelines: tracks, steps and buckets agree"
grep -q '"cat":"snapshot"' traced/profile/trace-r0000.json &&
    ! grep -q '"cat":"snapshot"' traced/profile/trace-r0001.json &&
    grep -q '"cat":"validation"' traced/profile/trace-r0001.json &&
    grep -q '"name":"conv conv1","cat":"op".*"phase":"forward"' traced/profile/trace-r0001.json &&
    grep -q '"name":"conv_bwd_weights conv1".*"phase":"backward"' traced/profile/trace-r0001.json &&
    grep -q '"phase":"update"' traced/profile/trace-r0002.json && grep -q '"cat":"read"' traced/profile/trace-r0002.json
ok $? "ops by layer and phase, validations, snapshots, the loader"
says traced "a['first_step'] == 4 and a['last_step'] == 12 and len(a['ranks']) == 3 and len(a['buckets']) >= 1 and
    a['ops'] == sorted(a['ops'], key=lambda o: -o['ms']) and 0 < a['utilisation'] <= 1 and
    all(r['compute_ms'] + r['wait_ms'] < r['step_ms'] and r['spans_dropped'] == 0 for r in a['ranks']) and
    abs(sum(o['ms'] for o in a['ops']) - a['ranks'][0]['compute_ms']) < 1e-3 * a['ranks'][0]['compute_ms'] and
    any(o['op'] == 'conv' and o['layer'] == 'conv2' and o['calls'] == 2 and o['gflops'] > 0 for o in a['ops'])"
ok $? "profile.json: ops by their time, which add up to that of the ranks"
call 0 report traced --out page && grep -q '>conv1<' page/index.html && grep -q 'Steps 4 to 12' page/index.html
ok $? "the report has the table"

# -- planted faults; beside other programs, the advice names only the cores, and the times say the same
run 2 net.ini run.dir=late train.steps=12 profile.steps=4:11 parallel.overlap=no parallel.bucket_first=100M \
    model.layers='flatten, linear 2048, relu, linear 1024, relu, linear 10' data.batch_size=4 data.micro_batch=2 \
    data.rotate=0 data.translate=0 optimizer.type=sgd optimizer.ema=0 optimizer.clip_norm=0 &&
    says late "('cores' in d or d['communication']['bucket'] == 0 and
        'parallel.overlap' in d['communication']['text'] and
        'linear1, linear2, linear3' in d['communication']['text']) and a['buckets'][0]['bytes'] > 9e6 and
        a['buckets'][0]['exposed_ms'] > 0.1 * a['step_ms'] and a['lost_ms']['communication'] > 0"
ok $? "a late bucket is named, with its layers"
if can_preload; then
    planted 2 "FAIL_RANK=1 FAIL_PACE=1500" net.ini run.dir=slow train.steps=12 profile.steps=6:9 &&
        says slow "('cores' in d or d['slow_rank']['rank'] == 1 and
            d['slow_rank']['host'] == a['ranks'][1]['host'] and d['slow_rank']['share'] > 0.2) and
            abs(a['lost_ms']['slow_rank'] + a['ranks'][0]['compute_ms'] - a['ranks'][1]['compute_ms']) < 0.01"
    ok $? "a slow rank is named, and by how much"
    "$TRAINER" import synthetic images some.h5 --samples 400 --shape 12x12x1 >out 2>&1
    sed 's/^format = .*/train = some.h5:train/; /^synthetic/d; /^classes/d' net.ini >file.ini
    planted 2 "FAIL_RANK=1 FAIL_CALL=pread FAIL_ON=some.h5 FAIL_AT=0 FAIL_HOW=sleep:20" file.ini run.dir=starved \
        train.steps=14 profile.steps=6:13 data.block=2 data.shuffle=0 &&
        says starved "('cores' in d or d['input']['rank'] == 1 and 'data.workers' in d['input']['text']) and
            a['lost_ms']['input'] > 0 and a['ranks'][1]['data_ms'] > 2 * a['ranks'][0]['data_ms']"
    ok $? "a starved loader is named, with the rank and the key"
fi

# -- what is refused, and what is not
call 78 net.ini run.dir=no profile.steps=10:21 && names err "profile.steps & 20 & '10:21'" && [ ! -e no ]
ok $? "steps behind the end of a new run: before step 1, and no folder is left"
call 0 net.ini run.dir=again train.steps=10 && call 0 net.ini run.dir=again profile.steps=4:8 &&
    once err "profile.steps & 4:8 & 10 & 20" && [ ! -e again/profile ] &&
    call 0 net.ini run.dir=again train.steps=30 profile.steps=15:24 &&
    says again "a['first_step'] == 21 and a['last_step'] == 24"
ok $? "a resumed run profiles what is left of the steps, or says that there are none"
mkdir file && echo >file/profile
call 0 net.ini run.dir=file profile.steps=4:8 && once err "warning & file/profile" && [ -s file/summary.json ]
ok $? "a folder that cannot be written is a warning"
echo "1..$n"
