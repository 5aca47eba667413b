#!/usr/bin/env bash
# TEST timeout=300
# A checkpoint that cannot be written: said, trained on, tried again; 74 where the last one fails. What was committed
# stays.
. "${TRAINER_ROOT:?is set by the runner: make test k=faults/disk}/tests/support/faults.sh"
run_config
whole run 1
ok $? "an uninterrupted run"

# said RUN: how often it warns that something about its checkpoints went wrong
said() { messages out "warning & $1/checkpoints" | wc -l; }
steps() { ls "$1/checkpoints" | sed -n 's/^step-0*//p' | tr '\n' ' '; }
# all_but_20 RUN: its checkpoints are of step 10, of some behind 20 (on a slow disk not of each tenth) and of the last
all_but_20() { [[ "$(steps "$1")" =~ ^10\ ([345][0-9]\ )+60\ $ ]]; }

begun once
FAULT="$slow FAIL_CALL=fsync FAIL_ON=step-00000020 FAIL_HOW=ENOSPC FAIL_AT=2" \
    start 2 net.ini run.dir=once $exact checkpoint.keep=0
begin=$(now)
ended
row "the disk is full in one checkpoint" "reported; training continues; the next one is saved"
[ $rc = 0 ] && [ "$(said once)" = 1 ] && names out "warning & 20 & No space left" && all_but_20 once
ok $? "no space in one checkpoint: said once, the others are there"

[ "$(state whole)" = "$(state once)" ]
ok $? "the same bits"
# the two before the last
read -r before newest _ <<<"$(ls once/checkpoints | grep '^step-' | tail -n 3 | tr '\n' ' ')"

# The folder "deep", once "er" is made in it.
LD_PRELOAD=$fail_lib FAIL_CALL=fsync FAIL_ON=/deep FAIL_HOW=EIO FAIL_AT=1 "$TRAINER" net.ini run.dir=deep/er/run \
    $exact >out 2>&1
[ $? = 74 ] && names out "trainer: error & fsync & [^ ]*deep"
ok $? "folders in which the run folder and its parents were made are put on the disk"

begun full
FAULT="$slow FAIL_CALL=write FAIL_ON=.tmp-step- FAIL_HOW=ENOSPC FAIL_AT=20 FAIL_ALWAYS=1" \
    start 2 net.ini run.dir=full $exact
begin=$(now)
ended
row "the disk is full from the second checkpoint on" \
    "reported each time; trains to the end; the last one is tried twice"
[ $rc = 74 ] && [ "$(said full)" -ge 3 ] && [ "$(grep -c 'trainer: error' out)" = 1 ] &&
    names out "trainer: error & 60 & full/checkpoints"
ok $? "no space from the second on: trained to the end, code $rc, said once as an error"

[ "$(steps full)" = "10 " ] && [ -z "$(ls -A full/checkpoints | grep '^\.')" ]
ok $? "the first checkpoint is there, and nothing unfinished"
restarted full 2
ok $? "restarted: the same bits"

# Room is made while the last one is tried again, longer than a rank may be silent.
touch full-disk
FAULT="FAIL_CALL=write FAIL_ON=.tmp-step-00000060 FAIL_HOW=ENOSPC FAIL_AT=0 FAIL_WHILE=$PWD/full-disk" \
    start 2 net.ini run.dir=late $exact checkpoint.every=0 checkpoint.patience=60 parallel.timeout=1
until_named "checkpoint.patience & 60 & late/checkpoints" && sleep 2 && alive "$job" && [ "$(steps late)" = "" ]
held=$?
begin=$(now)
rm full-disk
ended
row "the disk is full for the last checkpoint, until there is room" "reported, retried, saved"
[ $held = 0 ] && [ $rc = 0 ] && [ "$(steps late)" = "60 " ] && [ "$(state whole)" = "$(state late)" ]
ok $? "no space for the last one: tried until there is, code $rc"

# No new file can be written any more, the verdict neither: it goes where room was kept for it.
FAULT="FAIL_CALL=open FAIL_ON=/roomless/verdict.$(hostname) FAIL_HOW=ENOSPC FAIL_AT=1" \
    start 1 net.ini run.dir=roomless train.steps=2
begin=$(now)
ended
row "the disk is full when the verdict is written" "it is written over a file that kept room for it"
[ $rc = 0 ] && [ "$(cat roomless/verdict)" = "$(printf 'done\njob - restart -')" ] &&
    [ "$(ls roomless | grep -c verdict)" = 1 ]
ok $? "no space for a new file: the verdict is there, code $rc"

if all; then
    # On NFS a file that another process has open cannot be deleted, and its folder goes later.
    cp -r whole held && touch held/.nfs1 held/checkpoints/.nfs2 held/checkpoints/step-00000010/.nfs3
    FAULT="FAIL_CALL=unlink FAIL_ON=/.nfs FAIL_HOW=EBUSY FAIL_AT=0" start 1 net.ini run.dir=held $exact train.steps=61 \
        checkpoint.keep=2
    begin=$(now)
    ended
    row "a file of an old checkpoint is open elsewhere (.nfs*)" "the checkpoint is removed, its folder later"
    [ $rc = 0 ] && [ "$(steps held)" = "60 61 " ] && [ "$(said held)" = 0 ] &&
        run 1 net.ini run.dir=held $exact train.steps=62 checkpoint.keep=2 && [ "$(steps held)" = "61 62 " ] &&
        [ -z "$(ls -d held/checkpoints/.del* 2>/dev/null)" ]
    ok $? "an old checkpoint with a file .nfs*: code $rc, no warning"
fi

# Renamed while it runs, as by somebody who tidies up; another folder may have its name then.
FAULT="$slow" start 2 net.ini run.dir=named $exact
until_lines named/metrics.jsonl 12
begin=$(now)
mv named moved && mkdir named
ended
row "the run folder is renamed while the run is in it" "the job ends at the next checkpoint and says so"
[ $rc = 74 ] && within "$sec" 60 && names out "trainer: error & named" && [ -z "$(ls -A named)" ] &&
    restarted moved 1
ok $? "a run folder that is renamed: code $rc after $sec s, and it goes on under its new name"

touch full-disk
FAULT="FAIL_CALL=write FAIL_ON=.tmp-step-00000060 FAIL_HOW=ENOSPC FAIL_AT=0 FAIL_WHILE=$PWD/full-disk" \
    start 1 net.ini run.dir=never $exact checkpoint.every=0 checkpoint.patience=300
until_named "checkpoint.patience & 300 & never/checkpoints" && hit TERM 0
ended
[ $rc = 74 ] && within $sec 30 && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "asked to stop meanwhile: code $rc"

if all; then
    FAULT="$slow FAIL_CALL=write FAIL_ON=/full2/ FAIL_HOW=ENOSPC FAIL_AT=70 FAIL_ALWAYS=1" \
        start 1 net.ini run.dir=full2 $exact
    begin=$(now)
    ended
    row "no space for any file in the run folder, metrics and log included" "reported; trains to the end"
    [ $rc = 74 ] && once out "warning & metrics.jsonl"
    ok $? "metrics that cannot be written do not end the run: code $rc"
    run 2 net.ini run.dir=full2 $exact && [ "$(state whole)" = "$(state full2)" ]
    ok $? "restarted: the same bits"

    begun stale
    FAULT="$slow FAIL_CALL=rename FAIL_ON=/step-00000020 FAIL_HOW=ESTALE FAIL_AT=1" \
        start 1 net.ini run.dir=stale $exact checkpoint.keep=0
    begin=$(now)
    ended
    row "the rename of a checkpoint fails (ESTALE)" "reported; training continues; the next one is saved"
    [ $rc = 0 ] && [ "$(said stale)" = 1 ] && all_but_20 stale && [ "$(state whole)" = "$(state stale)" ]
    ok $? "a rename that fails: one checkpoint less"

    FAULT="$slow FAIL_CALL=write FAIL_ON=checkpoints FAIL_HOW=short FAIL_AT=0" start 1 net.ini run.dir=short $exact
    begin=$(now)
    ended
    row "every write of a checkpoint is short" "the write is continued"
    [ $rc = 0 ] && [ "$(said short)" = 0 ] && [ "$(state whole)" = "$(state short)" ]
    ok $? "writes that come short are continued"

    # Nothing of a step is written twice: what the validation behind it adds is a link.
    FAULT="FAIL_CALL=mkdir FAIL_ON=.tmp-step-00000013 FAIL_HOW=ENOSPC FAIL_AT=2 FAIL_ALWAYS=1" \
        start 1 net.ini run.dir=twice $exact train.steps=13 train.valid_every=1epoch checkpoint.every=1epoch
    begin=$(now)
    ended
    row "the disk is full after the only checkpoint, during its validation" "the checkpoint becomes the best"
    [ $rc = 0 ] && [ "$(said twice)" = 0 ] && [ "$(readlink twice/checkpoints/best)" = step-00000013 ]
    ok $? "no space for a second copy of a step: none is written"
fi

# Reading the newest fails: the one before it serves.
cp -r once read
rm -rf read/checkpoints/step-00000060 read/checkpoints/latest
FAULT="FAIL_CALL=pread,read FAIL_ON=$newest FAIL_HOW=EIO FAIL_AT=3 FAIL_ALWAYS=1" start 1 net.ini run.dir=read $exact
begin=$(now)
ended
row "the newest checkpoint cannot be read (EIO)" "reported; the run resumes from the one before it"
[ $rc = 0 ] && names out "read/checkpoints/$newest/[a-z.]*" && resumed "$before" &&
    [ "$(state whole)" = "$(state read)" ]
ok $? "the newest cannot be read: the one before it serves, the same bits"

# It shrinks between its verification and the reading of its weights, while the process stands in front of the
# optimizer's file.
cp -r once shrunk
rm -rf shrunk/checkpoints/step-00000060 shrunk/checkpoints/latest
FAULT="FAIL_CALL=pread FAIL_ON=$newest/optimizer FAIL_HOW=stop FAIL_AT=1" start 1 net.ini run.dir=shrunk $exact
victim=$(rank_pid 0) begin=$(now)
until_stopped "$victim" && truncate -s 1000 "shrunk/checkpoints/$newest/model.safetensors" && kill -CONT "$victim"
ended
row "the newest checkpoint shrinks while it is loaded" "reported; the run resumes from the one before it"
at=shrunk/checkpoints/$newest
[ $rc = 0 ] && names out "warning & $at could not be read & $at/model.safetensors & 1000" &&
    resumed "$before" && [ "$(state whole)" = "$(state shrunk)" ]
ok $? "the newest shrinks while it is loaded: the one before it serves, the same bits"

# init HOW: becomes a single process that starts from weights whose reading fails
init() {
    cp "once/checkpoints/$newest/model.safetensors" init.safetensors
    exec env LD_PRELOAD="$fail_lib" FAIL_CALL=pread FAIL_ON=init.safetensors FAIL_HOW="$1" FAIL_AT=3 "$TRAINER" \
        net.ini run.dir=init model.init=init.safetensors >out 2>&1
}
(init EIO)
rc=$?
[ $rc = 74 ] && once out "trainer: error & init.safetensors"
ok $? "model.init cannot be read: code $rc"

init stop &
victim=$!
until_stopped $victim && truncate -s 1000 init.safetensors && kill -CONT $victim
wait $victim
rc=$?
[ $rc = 65 ] && once out "trainer: error & init.safetensors & 1000"
ok $? "model.init shrinks while it is loaded: code $rc"

if all; then
    # One that could not be read for the moment is of another course then: it is not taken for the newest once it can
    # be read again.
    cp -r once moment
    at=$((10#${newest#step-}))
    begin=$(now)
    FAULT="FAIL_CALL=pread,read FAIL_ON=step-00000060 FAIL_HOW=EIO FAIL_AT=3 FAIL_ALWAYS=1" \
        start 2 net.ini run.dir=moment $exact train.steps=$((at + 1)) checkpoint.every=0 optimizer.lr=0.001
    ended
    row "the newest checkpoint cannot be read for a moment" \
        "the run resumes from the one before it, also after later restarts"
    [ $rc = 0 ] && resumed "$newest" &&
        names out "warning & moment/checkpoints/step-00000060 & [a-z-]*-step-00000060" &&
        run 1 net.ini run.dir=moment $exact train.steps=$((at + 2)) optimizer.lr=0.001 &&
        resumed "$(printf 'step-%08d' $((at + 1)))" &&
        [ "$(losses moment | awk '{ print $1 }')" = "$(seq $((at + 2)))" ] &&
        [ -e moment/checkpoints/*-step-00000060/MANIFEST ]
    ok $? "the newest cannot be read for a moment: the run keeps to the one before it"
fi

# An error that ends the run while a checkpoint is being written, which takes seconds: it is not lost with it.
spoilt="optimizer.type=sgd optimizer.lr=1e6 optimizer.clip_norm=0 optimizer.ema=0 schedule.type=constant
    checkpoint.every=1"
FAULT="FAIL_RANK=0 FAIL_SLOW=step-00000001:100" start 2 net.ini run.dir=spoilt $spoilt
begin=$(now)
ended
row "a loss that is not finite while a slow disk gets a checkpoint" "the checkpoint is finished, then the job ends"
[ $rc = 93 ] && [ "$(steps spoilt)" = "1 " ] && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "a loss that is not finite: the checkpoint being written is finished"

"$TRAINER" import synthetic digits digits.h5 --samples 600 >out 2>&1
sed 's/^format = .*/train = digits.h5\nshuffle = 20/; /^synthetic/d; /^classes/d' net.ini >file.ini
unreadable="FAIL_CALL=pread FAIL_ON=digits.h5 FAIL_AT=480 FAIL_ALWAYS=1 FAIL_HOW=EIO"
FAULT="FAIL_RANK=0 FAIL_SLOW=step-00000010:100 $unreadable" \
    start 2 file.ini run.dir=unread
begin=$(now)
ended
row "rank 0 cannot read its data while a slow disk gets a checkpoint" "the checkpoint is finished, then the job ends"
[ $rc = 74 ] && [ "$(steps unread)" = "10 " ] && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "rank 0 alone fails: the checkpoint being written is finished"

# A file system that is really full, where a user may mount one.
cat >really.sh <<'EOS'
mount -t tmpfs -o size=300k tmpfs small || exit
(until [ -e small/run/checkpoints/step-00000004 ]; do sleep 0.02; done
    dd if=/dev/zero of=small/others bs=1k >/dev/null 2>&1) &
FAIL_STEP=30 LD_PRELOAD=$fail_lib \
    "$TRAINER" net.ini run.dir=small/run $exact checkpoint.keep=0 checkpoint.every=4 >out 2>&1
echo "$? $(ls small/run/checkpoints | grep -c '^step-') $(head -n 1 small/run/verdict)"
EOS
mkdir small
export exact fail_lib
if result=$(unshare -rm bash really.sh 2>/dev/null) && read -r rc count verdict <<<"$result" && [ "$count" -gt 0 ]; then
    sec=-
    row "a file system of 300 KiB fills up" "reported each time; trains to the end; saved checkpoints stay"
    [ "$rc" = 74 ] && [ "$(said small/run)" -ge 2 ] && names out "[0-9.]* KiB & small/run/checkpoints" &&
        [[ $verdict = "no 74 "* ]]
    ok $? "a full tmpfs: code $rc, $count checkpoints are there, and the verdict"
else
    ok 0 "a full tmpfs # SKIP no file system can be mounted here"
fi

# Full without being short of space: no inode is left, or files may not become larger.
# How many a run takes before its checkpoints differs: the first number at which a checkpoint finds none.
cat >inodes.sh <<'EOS'
for inodes in $(seq 10 20); do
    mount -t tmpfs -o nr_inodes=$inodes tmpfs inodes || exit
    "$TRAINER" net.ini run.dir=inodes/run $exact checkpoint.keep=0 checkpoint.every=4 >out 2>&1
    code=$?
    [ $code = 74 ] && grep -q 'df -i' out && break
    umount inodes
done
echo $code
EOS
mkdir inodes
if unshare -rm mount -t tmpfs tmpfs inodes 2>/dev/null; then
    rc=$(unshare -rm bash inodes.sh 2>/dev/null)
    [ "$rc" = 74 ] && names out "trainer: error & df -i" && ! grep -q "are free in" out
    ok $? "no inode is left: code $rc"
else
    ok 0 "no inode is left # SKIP no file system can be mounted here"
fi
(export OMPI_MCA_btl=self && ulimit -f 4 && "$TRAINER" net.ini run.dir=limited log.every=60 $exact) >out 2>&1
rc=$?
[ $rc = 74 ] && names out "trainer: error & 4096 & ulimit -f" && ! grep -q "are free in" out
ok $? "files of 4 KiB at most: code $rc"

# Room is looked for before the first step.
cat >room.sh <<'EOS'
mount -t tmpfs -o size=$1 tmpfs room && shift && "$TRAINER" net.ini run.dir=room/run $exact "$@" >out 2>&1
echo "$? $(ls room/run 2>/dev/null | wc -l)"
EOS
mkdir room
# room SIZE ARGUMENTS...: a run in a file system of that size; sets rc, left
room() { read -r rc left <<<"$(unshare -rm bash room.sh "$@" 2>/dev/null)"; }
if unshare -rm mount -t tmpfs tmpfs room 2>/dev/null; then
    room 60k && [ "$rc" = 74 ] && [ "$left" = 0 ] &&
        names out "trainer: error & room/run/checkpoints & 4 & [0-9.]* [KM]iB & checkpoint.keep"
    ok $? "no room for keep = 3 and one more: code $rc before the first step, and no run folder"
    room 60k checkpoint.keep=0 && [ "$rc" = 74 ] &&
        names out "trainer: error & room/run/checkpoints & 1 & run.dir" && ! grep -q checkpoint.keep out
    ok $? "where all are kept: no room for one"
    room 0 && [ "$rc" = 0 ]
    ok $? "a file system that knows no limit: trained"
else
    for what in "no room" "no room for one" "no limit"; do ok 0 "$what # SKIP no file system can be mounted here"; done
fi
echo "1..$n"
