#!/usr/bin/env bash
# trainer data: what it says of files, and of those that are none; and trainer plan, of data.
set -u
n=0
result() { # STATUS NAME
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/#   /' out err; fi
}
# call CODE ARGUMENTS...: ends with this code
call() { local code=$1; shift; "$TRAINER" "$@" >out 2>err; [ $? = "$code" ]; }

"$TRAINER" import synthetic digits d.h5 --samples 600 >/dev/null
call 0 data d.h5 && grep -q '^train: 600 samples' out && grep -q '^valid: 100 samples' out && grep -q '^test: the same as valid' out && [ ! -s err ]
result $? "splits of one file"
grep -q 'train/x (600, 28, 28, 1) u8, chunks of (600, 28, 28, 1), checksum' out && grep -q 'reading    pread; .* takes 1 read and 1.00' out
result $? "layout and cost"
[ "$(sed -n 's/^  labels .* 10 classes: //p' out | head -1 | tr ',' '\n' | awk '{n += $2} END {print n}')" = 600 ]
result $? "each class is counted"
call 0 data d.h5:test && grep -q '^train: 100 samples' out && ! grep -q '^valid' out
result $? "a group"
call 0 data --all d.h5 data.classes=0 data.limit=50 && grep -q '^train: 50 samples' out && grep -q 'targets    /train/y, (1)' out
result $? "keys change what is shown"
call 78 data d.h5 data.layout=nope && call 2 data && grep -q 'usage: trainer data FILE' err && call 2 data --al d.h5 && call 2 data d.h5 --al && grep -q 'did you mean --all?' err
result $? "wrong calls"
call 0 data --all d.h5 data.limit=50 && cp out before && call 0 data d.h5 --all data.limit=50 && diff <(sed 's|read at.*||' before) <(sed 's|read at.*||' out) && call 0 data d.h5 data.limit=50 --all && grep -q '^train: 50 samples' out
result $? "--all in any place"
: >empty.h5; echo 'no HDF5' >text.h5; head -c 3000 d.h5 >cut.h5; mkdir folder
call 65 data empty.h5 && grep -q 'is empty' err && call 65 data text.h5 && grep -q 'not an HDF5 file' err && call 65 data cut.h5 && call 66 data folder && call 66 data none.h5
result $? "files that are none"
call 66 data d.h5:nothing && grep -q 'train/x (600' out && grep -q "group 'nothing'" err
result $? "a group that is not there: the list, then the error"
printf 'x0,x1,label\n' >s.csv; for i in $(seq 1 2000); do echo "$i,2,$((i / 200))"; done >>s.csv
"$TRAINER" import csv s.csv s.h5 >/dev/null && call 0 data s.h5 && grep -q 'sorted by label' out
result $? "sorted samples are warned of"
call 0 data s.h5 data.valid_fraction=0.1 && grep -q '^train: 1[78][0-9]* samples' out && grep -q '^valid: [12][0-9]* samples' out && [ "$(grep -c ' 11 classes: 0: ' out)" = 2 ]
result $? "data.valid_fraction: samples and labels of both parts"

if [ -x "$BUILD/tests/cli/make_bad_input" ] && (mkdir bad && cd bad && "$BUILD/tests/cli/make_bad_input"); then
    call 0 data bad/words.h5 && grep -q 'labels     none: /y holds text, not numbers; .*class_names' out
    result $? "labels that are text"
    call 0 data bad/rounded.h5 && grep -q '^warning: the targets are from 19999999[0-9.]* to 20000000[0-9.]*, and 32-bit floats round them by up to 1, .*add it to predictions' out &&
        grep -q '^warning: the inputs (column 1, counted from 0) are from 1700000000 to 1700000661.5, and 32-bit floats round them by up to 6[0-9.]*, before' out &&
        grep -q '^warning: the inputs (channel 1, one of [23] .*1.7e+09.*data.mean=compute data.std=compute$' out && grep -q 'std 0.70[0-9]* (all samples' out
    result $? "64-bit numbers that 32-bit floats round away, seen before they are"
    call 0 data bad/rounded.h5 data.x=whole && grep -q 'inputs (column 1, counted from 0) are from 2000000000 to 2000000063, and 32-bit' out && ! grep -q 'column 0' out
    result $? "32-bit integers, too"
    printf '[model]\nlayers = linear 1\n[data]\ntrain = bad/rounded.h5\nbatch_size = 32\nmicro_batch = 8\n' >round.ini
    call 0 plan round.ini data.target_mean=auto data.target_std=auto data.mean=0,1.7e9,101325 data.std=1,200,1 && [ "$(grep -c warning err)" = 2 ] &&
        grep -q 'the targets are from 1999.*32-bit' err && grep -q 'the inputs (column 1.* are from 1700.*32-bit' err && call 0 plan round.ini data.x=whole && grep -q 'the inputs (column 1.* are from 2000000000' err
    result $? "a run says it, too, however they are normalised"
    guess='taken as images of 24 x 6 with one channel; series of 24 steps of 6 channels are data.layout=nhwc, of 6 steps of 24 channels data.layout=nchw'
    call 0 data bad/two.h5 && grep -q "^             $guess$" out && call 0 data bad/two.h5 data.x=picture && grep -q 'taken as images of 24 x 24' out &&
        call 0 data bad/two.h5 data.layout=nhwc && ! grep -q 'taken as' out && grep -q 'f32 (24, 6), ' out && grep -q '^warning: the inputs (channel [0-5], one of [1-6] ' out
    result $? "samples of two dimensions: how they are taken, and what to set for series"
fi
{ echo area,price; for i in $(seq 1 40); do echo "$i,$((97339 + 991 * i))"; done; } >house.csv
printf '[model]\nlayers = linear 1\n[data]\ntrain = house.h5\nbatch_size = 20\nmicro_batch = 10\n' >house.ini
"$TRAINER" import csv house.csv house.h5 >out 2>&1 && call 0 data house.h5 && grep -q 'of these 136980 have no sample.*numbers to predict, set data.classes=0' out && ! grep -q 'label 0' out &&
    call 78 plan house.ini && grep -q '1 value a sample, data.y has 136980 classes (the largest label, 136979, is that of sample 39 of house.h5:/train/y: .*; if they are numbers to predict, set data.classes = 0)' err && call 0 plan house.ini data.classes=0
result $? "whole numbers that are no classes: what to set"
{ echo a,y; for i in $(seq 1 40); do echo "$i,$((1 + i % 3))"; done; } >from1.csv
printf '[model]\nlayers = linear 3\n[data]\ntrain = from1.h5\nbatch_size = 10\n' >from1.ini
"$TRAINER" import csv from1.csv from1.h5 >out 2>&1 && call 78 plan from1.ini && grep -q 'from1.h5:/train/y run from 1 to 3: subtract 1' err &&
    call 65 plan from1.ini data.classes=3 && grep -q 'is 3; .*subtract 1' err && call 0 data from1.h5 && grep -q '^warning: .*subtract 1' out
result $? "labels that count from 1: what to do"
{ echo a,y; for i in $(seq 1 40); do echo "$i,0"; done; } >one.csv
"$TRAINER" import csv one.csv one.h5 >out 2>&1 && call 0 data one.h5 && grep -q ' 1 class: 0: 40' out && grep -q 'from one class nothing can be learnt' out &&
    call 78 plan house.ini data.train=one.h5 && grep -q 'data.y has one class, 0,' err
result $? "one class alone"

{ echo a,b,target; for i in $(seq 1 3000); do echo "$i,2,123456.7"; done; } >still.csv
"$TRAINER" import csv still.csv still.h5 >out 2>err && call 0 data still.h5 && grep -q 'min 123457, max 123457, mean 123457, std 0 ' out && call 0 data still.h5 data.x=train/y data.y=train/y && grep -q '^warning: the inputs have mean 1.235e+05 .*data.mean=compute' out && call 0 data still.h5 data.x=train/y data.y=train/y data.mean=compute data.std=compute && ! grep -q '^warning' out
result $? "values that never vary have no deviation, and compute leaves their scale as it is"

{ echo a,target; for i in $(seq 1 60); do echo "$i,${i}000.5"; done; } >far.csv
printf '[model]\nlayers = linear 1\n[data]\ntrain = far.h5\nbatch_size = 30\nmicro_batch = 10\n' >net.ini
"$TRAINER" import csv far.csv far.h5 >out 2>err && call 0 plan net.ini --ranks 1,2,3 data.mean=0 data.std=1 && [ "$(grep -c 'the inputs have mean' err)" = 1 ] &&
    [ "$(awk '/^ ranks  slots/ { on = 1; next } on { print $2 }' out | tr '\n' ' ')" = "3 1-2 1 " ]
result $? "plan for several numbers of ranks: a warning once, and the slots of all ranks"
echo "1..$n"
