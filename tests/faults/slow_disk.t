#!/usr/bin/env bash
# A disk that does not answer for seconds: no step waits for a line of metrics.jsonl, of log.txt or of TensorBoard's
# curves, and all of them are there in the end. One that never answers: the run ends all the same.
. "${TRAINER_ROOT:?is set by the runner: make test k=faults/slow_disk}/tests/support/faults.sh"
run_config
pace="FAIL_RANK=0 FAIL_STEP=20"
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
    [ $rc = 0 ] && within "$longest" 2.5 && [ "$(losses slow-$file | wc -l)" = 30 ] &&
        grep -q '"status": "done"' slow-$file/summary.json && ! grep -q metrics_lines_lost slow-$file/summary.json
    ok $? "a write to $file takes 3 s: the longest step took ${longest} s"
done
# Side by side, because each takes some seconds to give up.
jobs=()
for file in metrics.jsonl log.txt; do
    (FAULT="$pace FAIL_CALL=write FAIL_ON=$file FAIL_AT=6 FAIL_HOW=sleep:1000000" \
        start 1 net.ini run.dir=never-$file $exact checkpoint.every=0 train.steps=30
    wait "$job") &
    jobs+=($!)
done
# The last files take longer than a rank may be silent, and the others wait for rank 0.
for file in summary.json verdict; do
    (FAULT="FAIL_CALL=fsync FAIL_ON=/end-$file/$file FAIL_HOW=sleep:8000 FAIL_AT=1" \
        start 2 net.ini run.dir=end-$file train.steps=2 checkpoint.every=0 parallel.timeout=5
    wait "$job") &
    jobs+=($!)
done
# A pipe that nobody reads, with room for 4 KiB.
mkfifo pipe && exec 8<>pipe
dd if=/dev/zero bs=4096 count=15 2>/dev/null >&8
"$TRAINER" net.ini run.dir=unread $exact checkpoint.every=0 2>&8 >&8 &
jobs+=($!)
status=0
for job in "${jobs[@]}"; do wait "$job" || status=1; done
[ $status = 0 ] && [ "$(head -n 1 never-metrics.jsonl/verdict)" = 'done' ] &&
    [ "$(head -n 1 never-log.txt/verdict)" = 'done' ]
ok $? "a write to metrics.jsonl or log.txt that never returns: the run ends without it"
[ "$(head -n 1 unread/verdict)" = 'done' ] && [ "$(losses unread | wc -l)" = 60 ] && grep -q '"log_lines_lost"' \
    unread/summary.json && grep -q 'run folder unread' unread/log.txt
ok $? "standard error that nobody reads: the files are whole"
[ $status = 0 ] && [ "$(head -n 1 end-summary.json/verdict)" = 'done' ] &&
    [ "$(head -n 1 end-verdict/verdict)" = 'done' ]
ok $? "the summary and the verdict take 8 s, parallel.timeout is 5 s: the run ends as usual"
echo "1..$n"
