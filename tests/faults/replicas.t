#!/usr/bin/env bash
# TEST timeout=120
# A bit of a weight flips on one rank: the ranks find it before a checkpoint of it, and at every parallel.check steps.
. "${TRAINER_ROOT:?is set by the runner: make test k=faults/replicas}/tests/support/faults.sh"
run_config
sed -i 's/^steps = .*/steps = 30/' net.ini
whole run 2
ok $? "an uninterrupted run"

# flipped RANK:STEP RANKS CODE ARGUMENTS...: a bit flips before the first comparison from that step on; one error
flipped() {
    begin=$(now)
    FAULT="TRAINER_FLIP_BIT=$1 ${hidden-}" start "$2" net.ini $exact "${@:4}"
    ended
    [ "$rc" = "$3" ] && [ "$(grep -c 'trainer: error' out)" = 1 ]
}
differ() { once out "trainer: error & step $1 & rank $2"; } # STEP RANK
has_saved() { ls "$1/checkpoints/step-$2" >left 2>/dev/null; } # RUN STEP
node="^node $(uname -n)\$"

flipped 1:15 2 75 run.dir=two && differ 20 1 && ! grep -q '^node' two/verdict && ! has_saved two 00000020
row "a bit of a weight flips on rank 1 of 2" "the job ends before a checkpoint of it; restarted, the same bits"
ok $? "2 ranks: code 75 before a checkpoint of it, and no node, because there is no majority"
cp -r two again
restarted two 3
ok $? "restarted: the same bits"
# Notes the code of each rank, also where the launcher ends it.
cat >coded <<SH
#!/bin/sh
trap : TERM
"$TRAINER" "\$@"
code=\$?
echo \$code >>codes
exit \$code
SH
chmod +x coded
hidden="FAIL_CALL=open FAIL_ON=sessions.jsonl FAIL_AT=0 FAIL_HOW=ENOENT FAIL_RANK=1" # as on a slow file system
TRAINER=./coded flipped 1:15 2 70 run.dir=again device=strict checkpoint.every=1ms &&
    names again/verdict 'no 70 & session 1' && ! has_saved again '0000001[5-9]' && grep -q '^70$' codes &&
    ! grep -q '^75$' codes
ok $? "again, in checkpoints by time, of which rank 0 alone knows, on an asynchronous device: 70, and 75 of no rank"
hidden=

flipped 2:15 3 75 run.dir=three checkpoint.every=0 parallel.check=7 && differ 21 2 && grep -q "$node" three/verdict &&
    grep -q '"fault":"different replicas","node":"[^"]' three/sessions.jsonl
row "a bit of a weight flips on rank 2 of 3" "the job ends, and the verdict names its node; restarted, the same bits"
ok $? "3 ranks: code 75 at the next multiple of parallel.check, and the node of the minority"
cp -r three other
if all; then
    flipped 0:25 3 75 run.dir=three && differ 30 0 && grep -q "$node" three/verdict
    ok $? "3 ranks, again on the same node: code 75"
    sed -i 's/"node":"[^"]*"/"node":"other"/' other/sessions.jsonl
    flipped 2:25 3 70 run.dir=other && names other/verdict 'no 70 & other' && ! grep -q '^node' other/verdict
    ok $? "3 ranks, again on another node: code 70"
    flipped 1:8 2 75 run.dir=last checkpoint.every=0 && differ 30 1 && ! has_saved last '*'
    ok $? "the last checkpoint"
    flipped 1:8 2 75 run.dir=valid checkpoint.every=0 train.valid_every=10 data.valid_fraction=0.2 && differ 10 1
    ok $? "a checkpoint before a validation"
    run 2 net.ini run.dir=off $exact parallel.check=0 && same off &&
        TRAINER_FLIP_BIT=1:8 run 2 net.ini run.dir=never $exact parallel.check=0
    ok $? "parallel.check = 0: never"
fi
echo "1..$n"
