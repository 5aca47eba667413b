#!/usr/bin/env bash
# log.tensorboard: a run that is killed twice, with validations behind its last checkpoint, has curves in which each
# step is once; torn files, folders that cannot be written. monitor.file at the same time.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/tensorboard}/tests/support/faults.sh"
run_config
sed -i 's/^valid_every = .*/valid_every = 7/; s/^\[data\]/[data]\nvalid_fraction = 0.2/' net.ini
cat >curves.py <<'END'
"""curves.py FOLDER: reads the records of all files; prints each curve, its steps and its values."""
import glob, struct, sys
def varint(b, i):
    n = s = 0
    while True:
        n |= (b[i] & 127) << s; s += 7; i += 1
        if b[i - 1] < 128: return n, i
def fields(b):
    i = 0
    while i < len(b):
        key, i = varint(b, i)
        if key & 7 == 0: v, i = varint(b, i)
        elif key & 7 == 1: v, i = struct.unpack_from("<d", b, i)[0], i + 8
        elif key & 7 == 5: v, i = struct.unpack_from("<f", b, i)[0], i + 4
        else:
            n, i = varint(b, i); v, i = b[i:i + n], i + n
        yield key >> 3, v
curves, starts = {}, 0
for name in sorted(glob.glob(sys.argv[1] + "/events.out.tfevents.*")):
    data, at = open(name, "rb").read(), 0
    while at + 12 <= len(data):
        n = struct.unpack_from("<Q", data, at)[0]
        if at + 16 + n > len(data): break
        event = dict(fields(data[at + 12:at + 12 + n])); at += 16 + n
        starts += 7 in event
        for number, value in fields(event.get(5, b"")):
            value = dict(fields(value))
            if 2 in value: curves.setdefault(value[1].decode(), []).append((event.get(2, 0), value[2]))
print("starts", starts)
for tag, points in sorted(curves.items()):
    steps = [s for s, _ in points]
    print(tag, "ordered" if all(a < b for a, b in zip(steps, steps[1:])) else "WRONG", *steps)
END
curves() { python3 -I curves.py "$1/tensorboard" >found; }
curve() { sed -n "s,^$1 ordered ,,p" found; } # TAG: its steps, if each is once

run 2 net.ini run.dir=whole $exact log.tensorboard=yes monitor.file=auto && curves whole &&
    [ "$(curve train/loss)" = "$(seq -s ' ' 60)" ] && [ "$(curve valid/loss)" = "7 14 21 28 35 42 49 56 60" ] &&
    ! grep -q WRONG found && grep -q '^starts 1' found && [ ! -e whole/metrics.prom ]
ok $? "the curves of a run"

# Killed behind a validation that no checkpoint has: it is done again, and is in the curve once.
past() { # RUN SESSION STEP: a validation of this session at this step or behind it
    awk -v session="\"session\":$2" -v at="$3" 'index($0, session) { begun = 1 }
        begun && /"valid_loss"/ && match($0, /"step":[0-9]+/) && substr($0, RSTART + 7, RLENGTH - 7) >= at { n++ }
        END { exit !n }' "$1/metrics.jsonl" 2>/dev/null
}
session=0
for at in 14 35; do
    FAULT=$slower start 2 net.ini run.dir=killed $exact log.tensorboard=yes monitor.file=auto
    until_true past killed $((session += 1)) $at
    cp killed/metrics.prom "prom$at" 2>/dev/null
    hit KILL 0
    ended
done
printf 'torn' >>"$(ls -d killed/tensorboard/events* | tail -n 1)"
run 2 net.ini run.dir=killed $exact log.tensorboard=yes && curves killed && ! grep -q WRONG found &&
    [ "$(curve train/loss)" = "$(seq -s ' ' 60)" ] && [ "$(curve valid/loss)" = "7 14 21 28 35 42 49 56 60" ]
ok $? "killed twice behind validations: each step is once"
# A reader of theirs goes on to the next file if its own is empty, not if it is gone.
[ "$(find killed/tensorboard -name '*tfevents*' -size +0 | wc -l)" = 1 ] &&
    [ "$(find killed/tensorboard -name '*tfevents*' -size 0 | wc -l)" = 2 ]
ok $? "the files of earlier starts are empty"
find killed/tensorboard -name '*tfevents*' -size 0 -exec touch -d '2 hours ago' {} +
run 2 net.ini run.dir=killed $exact log.tensorboard=yes train.steps=61 && [ "$(ls killed/tensorboard | wc -l)" = 2 ]
ok $? "and go after an hour"
grep -q '^trainer_steps_total{run="killed",job="",host="[^"]*"} [0-9]*$' prom35 &&
    [ "$(tail -c 1 prom35 | wc -l)" = 1 ] &&
    ! grep -qvE '^(# (HELP|TYPE) trainer_[a-z0-9_]+ .*|trainer_[a-z0-9_]+\{[^}]*\} [-+.e0-9]+)$' prom35
ok $? "the file for Prometheus"
if python=$(python_with tensorboard) && [ -n "$python" ]; then
    "$python" - killed/tensorboard >out 2>&1 <<'END'
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
e = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
e.Reload()
assert [s.step for s in e.Scalars("train/loss")] == list(range(1, 62))
assert [s.step for s in e.Scalars("valid/loss")] == [7, 14, 21, 28, 35, 42, 49, 56, 60, 61]
assert b"optimizer.lr" in e.Tensors("config")[0].tensor_proto.string_val[0]
END
    ok $? "as TensorBoard's own reader sees them"
else
    skip "as TensorBoard's own reader sees them" "no Python has tensorboard"
fi

run 2 net.ini run.dir=plain $exact && call 0 report plain whole --tensorboard converted &&
    python3 -I curves.py converted/plain >found &&
    [ "$(curve train/loss)" = "$(seq -s ' ' 60)" ] && [ "$(cat out)" = "$(printf 'converted/%s\n' plain whole)" ]
ok $? "report converts runs that are over"

touch whole/other
run 1 net.ini run.dir=refused train.steps=2 monitor.file=whole/other/metrics.prom &&
    once out "monitor.file & whole/other"
ok $? "a file that cannot be written: said once, and the run goes on"
mkdir -p taken && touch taken/tensorboard
run 1 net.ini run.dir=taken train.steps=2 log.tensorboard=yes && once out "TensorBoard & taken/tensorboard"
ok $? "a folder that cannot be made: the same"

# -- alerts: a window of 0 s is one line
# Two that begin on one line: a command for each, in turn; one that fails is said.
printf '%s\n' 'echo "$TRAINER_ALERT $TRAINER_ALERT_STATE $TRAINER_ALERT_STEP $TRAINER_ALERT_RUN" >>alerts.said' \
    'sleep 0.2; exit 3' >say
run 1 net.ini run.dir=alerts train.steps=30 monitor.window=0 monitor.alert='loss > 0.0001x, grad_norm > 0' \
    monitor.alert_command='sh ./say' && names alerts/log.txt "alert begins & loss > 0.0001x" &&
    grep -q '"alert":"loss > 0.0001x","begins":true' alerts/metrics.jsonl &&
    "$TRAINER" compare alerts >out 2>&1
ok $? "an alert is in the log and in the metrics"
ok_records alerts
grep -q '^loss > 0.0001x begin [0-9]* alerts$' alerts.said &&
    grep -q '^grad_norm > 0 begin [0-9]* alerts$' alerts.said &&
    [ "$(grep -c 'monitor.alert_command .* code 3' alerts/log.txt)" = "$(wc -l <alerts.said)" ]
ok $? "and runs its command, which the end of the run waits for"
run 1 net.ini run.dir=long train.steps=30 monitor.window=0 monitor.alert='grad_norm > 0' \
    monitor.alert_command='echo $$ >long.pid; sleep 600' && ! kill -0 "$(cat long.pid)" 2>/dev/null
ok $? "a command that goes on is ended with the run"
run 1 net.ini run.dir=wrong monitor.alert='stal > 5 %'
[ $? = 78 ] && once out "monitor.alert & stal > 5 % & stall"
ok $? "a rule that is none"
echo "1..$n"
