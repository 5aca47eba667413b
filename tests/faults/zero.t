#!/usr/bin/env bash
# TEST timeout=300
# parallel.zero = 1, where every rank writes its pieces of a checkpoint: a rank that is killed in one, or cannot write,
# leaves the one before, and the restart, on other ranks, without it, ends in the same bits.
. "${TRAINER_ROOT:?is set by the runner: make test k=faults/zero}/tests/support/faults.sh"
gpt_config
sed 's/^every = 0/every = 4/; s/^valid_every = .*/valid_every = 0/; s/^lr = .*/&\nema = 0.9/' gpt.ini >net.ini
zero="parallel.zero=1"
second=step-00000008
# Slow enough that each checkpoint is written
steady="FAIL_STEP=60"
begun() { cp -r whole "$1" && back_to "$1" 00000004; }
steps() { ls -A "$1/checkpoints" | sed -n 's/^step-0*//p; /^\./p' | tr '\n' ' '; }
FAULT=$steady whole run 2
ok $? "an uninterrupted run without it"

# died NAME RANK CALL TEXT COUNT: the rank dies at this call of the second checkpoint
died() {
    begun "$1"
    FAULT="$steady FAIL_RANK=$2 FAIL_CALL=$3 FAIL_ON=$4 FAIL_HOW=kill FAIL_AT=$5 FAIL_SAY=$PWD/said" \
        start 3 net.ini run.dir="$1" $exact $zero
    begin=$(now)
    ended
    [ $rc = 137 ] && grep -q "^$3 $5 " said && [ ! -e "$1/checkpoints/$second" ]
    ok $? "rank $2 of 3 dies in $3 $5 of $4"
    rm -f said
    restarted "$1" 2
    ok $? "restarted on 2 ranks without it: the same bits"
}
died part 1 fsync .tmp-$second 2
if all; then
    died piece 2 write .tmp-$second 3
    died folder 1 mkdir .tmp-$second 1
    died header 0 write .tmp-$second 1
    died reads 0 pread .tmp-$second 3
    died commit 0 rename $second 1
fi

# A rank cannot write its part: said by it and by rank 0, and the next one is saved.
begun full
FAULT="$steady FAIL_RANK=1 FAIL_CALL=write FAIL_ON=.tmp-$second FAIL_HOW=ENOSPC FAIL_AT=2" \
    start 2 net.ini run.dir=full $exact $zero checkpoint.keep=0
begin=$(now)
ended
[ $rc = 0 ] && names out "warning & rank 1 & .tmp-$second-[^ ]* & No space left" &&
    names out "warning & 8 & full/checkpoints & Rank 1" && [ "$(steps full)" = "4 12 " ] && same full
ok $? "rank 1 has no space in one checkpoint: the last one is saved, with the same bits, and nothing is left over"

if all; then
    touch full-disk
    FAULT="FAIL_RANK=1 FAIL_CALL=write FAIL_ON=.tmp-step-00000012 FAIL_HOW=ENOSPC FAIL_AT=0 FAIL_WHILE=$PWD/full-disk" \
        start 2 net.ini run.dir=late $exact $zero checkpoint.every=0 checkpoint.patience=60
    until_named "checkpoint.patience & Rank 1"
    rm full-disk
    begin=$(now)
    ended
    [ $rc = 0 ] && [ "$(steps late)" = "12 " ] && same late
    ok $? "rank 1 has no space for the last one: all try again, until there is"
fi

FAULT="FAIL_RANK=0 FAIL_CALL=mkdir FAIL_ON=made/checkpoints FAIL_HOW=EIO FAIL_AT=3 FAIL_ALWAYS=1" \
    start 2 net.ini run.dir=made $exact $zero checkpoint.every=0 checkpoint.patience=0
begin=$(now)
ended
[ $rc = 74 ] && names out "trainer: error & 12 & made/checkpoints & Input/output error" && [ -z "$(steps made)" ]
ok $? "rank 0 cannot write at all: what the others have written goes, code $rc"

# Ranks that come to a load apart wait for each other.
if all; then
    begun late_rank
    start 3 net.ini run.dir=late_rank $exact $zero
    late=$(rank_pid 2)
    kill -s STOP "$late"
    sleep 3
    begin=$(now)
    kill -s CONT "$late"
    ended
    [ $rc = 0 ] && resumed step-00000004 && same late_rank
    ok $? "one of 3 ranks comes 3 s late to the load: the same bits"
fi

# The validation after step 4 is the best, because the learning rate is far too large after it. The first two
# opens are those of the resume, which verifies and reads.
best="run.dir=best $zero train.valid_every=4 optimizer.ema=0"
start 2 net.ini $best train.steps=4 && ended
FAULT="FAIL_RANK=1 FAIL_CALL=open FAIL_ON=step-00000004/MANIFEST FAIL_HOW=EIO FAIL_AT=3" \
    start 2 net.ini $best train.steps=8 optimizer.lr=2
begin=$(now)
ended
[ $rc = 0 ] && names out "warning & best & rank 1 & step-00000004/MANIFEST" && grep -q '^test  loss' out &&
    grep -q '"best_step": 4,' best/summary.json && grep -q '"best_test_loss": null' best/summary.json
ok $? "rank 1 cannot read the best checkpoint at the end: a warning, as without it"

FAULT="FAIL_RANK=1 FAIL_CALL=open FAIL_ON=.tmp-shared FAIL_HOW=ENOENT FAIL_AT=1" \
    start 2 net.ini run.dir=apart $exact $zero
begin=$(now)
ended
[ $rc = 78 ] && [ "$(grep -c 'trainer: error' out)" = 1 ] &&
    names out "trainer: error & rank 1 & apart/checkpoints & parallel.zero"
ok $? "a rank that does not see the folder of rank 0: code $rc before the first step"
FAULT="FAIL_RANK=1 FAIL_CALL=open FAIL_ON=step-00000012/MANIFEST FAIL_HOW=ENOENT FAIL_AT=2" \
    start 2 net.ini run.dir=full $exact $zero train.steps=13
begin=$(now)
ended
[ $rc = 78 ] && [ "$(grep -c 'trainer: error' out)" = 1 ] && names out "trainer: error & rank 1 & step-00000012"
ok $? "a rank that does not see the checkpoint to resume: code $rc"
FAULT="FAIL_RANK=1 FAIL_CALL=open FAIL_ON=step-00000012/MANIFEST FAIL_HOW=EIO FAIL_AT=1" \
    start 2 net.ini run.dir=full $exact $zero train.steps=13
begin=$(now)
ended
[ $rc = 0 ] && resumed step-00000012
ok $? "a rank that cannot verify its part: rank 0 reads all of the checkpoint, and the run goes on"
echo "1..$n"
