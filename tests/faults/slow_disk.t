#!/usr/bin/env bash
# A disk that does not answer for seconds: no step waits for a line of metrics.jsonl, of log.txt or of TensorBoard's
# curves, and all of them are there in the end. One that never answers: the run ends all the same.
. "${TRAINER_ROOT:?is set by the runner: make test k=faults/slow_disk}/tests/support/faults.sh"
run_config
pace="FAIL_RANK=0 FAIL_PACE=300"
# longest RUN: the longest time between two training lines in seconds; each line has the time of its step
longest() {
    grep -v valid_loss "$1/metrics.jsonl" | sed -n 's/.*"time":\([0-9.e+-]*\).*/\1/p' |
        awk 'NR > 2 && $1 - last > most { most = $1 - last } { last = $1 } END { print most + 0 }'
}
for file in $(cases metrics.jsonl log.txt tfevents); do
    FAULT="$pace FAIL_CALL=write FAIL_ON=$file FAIL_AT=6 FAIL_HOW=sleep:3000" \
        start 2 net.ini run.dir=slow-$file $exact log.tensorboard=yes checkpoint.every=0 train.steps=30
    begin=$(now)
    ended
    longest=$(longest slow-$file)
    [ $rc = 0 ] && within "$longest" 1.5 && [ "$(losses slow-$file | wc -l)" = 30 ] &&
        grep -q '"status": "done"' slow-$file/summary.json && ! grep -q metrics_lines_lost slow-$file/summary.json
    ok $? "a write to $file takes 3 s: the longest step took ${longest} s"
done
FAULT="$pace FAIL_CALL=write FAIL_ON=metrics.jsonl FAIL_AT=6 FAIL_HOW=sleep:1000000" \
    start 1 net.ini run.dir=never $exact checkpoint.every=0 train.steps=30
begin=$(now)
ended
[ $rc = 0 ] && [ "$(head -n 1 never/verdict)" = 'done' ] && once out "never & 10 s"
ok $? "a write that never returns: the run ends without it"
echo "1..$n"
