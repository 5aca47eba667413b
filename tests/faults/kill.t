#!/usr/bin/env bash
# TEST timeout=300
# kill -9 of each rank in the steps, and of rank 0 at each kind of call in a checkpoint: the job is over, and the
# restart ends in the same bits.
. "${TRAINER_ROOT:?is set by the runner: make test k=faults/kill}/tests/support/faults.sh"
run_config
whole run 2
ok $? "an uninterrupted run"

# Before there is a checkpoint nothing is lost but time; rank 0 may save one when mpirun's CONT comes.
FAULT=$slower start 2 net.ini run.dir=early $exact checkpoint.every=0
until_lines early/metrics.jsonl 3
hit KILL 1
ended
row "kill -9 of rank 1 of 2 before the first checkpoint" "the job ends; restarted, the same bits"
[ $rc = 137 ] && ! ls early/checkpoints 2>/dev/null | grep -q '^step-00000060'
ok $? "kill -9 of rank 1 before the first checkpoint: code $rc, over in $sec s"

run 3 net.ini run.dir=early $exact && same early
ok $? "restarted: the same bits"

for r in $(cases 1 0 2); do
    FAULT=$slower start 3 net.ini run.dir=steps$r $exact
    until_there steps$r/checkpoints/step-00000010
    hit KILL $r
    ended
    row "kill -9 of rank $r of 3 in a step" "the job ends; restarted, the same bits"
    [ $rc = 137 ] && within $sec 30
    ok $? "kill -9 of rank $r: code $rc, over in $sec s"
    restarted steps$r 2
    ok $? "restarted: the same bits"
done

# In the second checkpoint, and behind it.
in_checkpoint="rename:step-00000020:1 write:step-00000020:5 fsync:step-00000020:4"
# shellcheck disable=SC2086
for at in $(cases $in_checkpoint symlink:/checkpoints/:1 unlink:.del-step:1); do
    IFS=: read -r call text count <<<"$at"
    begun $call
    FAULT="$slow FAIL_CALL=$call FAIL_ON=$text FAIL_HOW=kill FAIL_AT=$count FAIL_SAY=$PWD/said" \
        start 2 net.ini run.dir=$call $exact
    ended
    [ $rc = 137 ] && grep -q "^$call $count " said
    ok $? "rank 0 dies in $call $count of $text"
    rm -f said
    restarted $call 3
    ok $? "restarted: the same bits"
done

# Rank 0 stands in the middle of a checkpoint when another dies.
begun stands
FAULT="$slow FAIL_CALL=fsync FAIL_ON=step-00000020 FAIL_HOW=stop FAIL_AT=2" start 2 net.ini run.dir=stands $exact
until_stopped "$(rank_pid 0)"
hit KILL 1
ended
row "kill -9 of rank 1 while rank 0 is stopped in a checkpoint" "the job ends; restarted, the same bits"
[ $rc = 137 ] && within $sec 30
ok $? "kill -9 of rank 1 while rank 0 is stopped in a checkpoint: code $rc, over in $sec s"

restarted stands 2
ok $? "restarted: the same bits"
echo "1..$n"
