#!/usr/bin/env bash
# trainer data: what it says of files, and of those that are none; and trainer plan, of data.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/data}/tests/support/common.sh"

"$TRAINER" import synthetic digits d.h5 --samples 600 >/dev/null
call 0 data d.h5 && grep -q '^train: 600 ' out && grep -q '^valid: 100 ' out && names out '^test:' valid && [ ! -s err ]
ok $? "splits of one file"
grep -q 'train/x (600, 28, 28, 1) u8,.* (600, 28, 28, 1), checksum' out && grep -q ' pread; .* 1 .* 1.00 ' out
ok $? "layout and cost"
[ "$(sed -n 's/^  labels .* 10 [a-z]*: //p' out | head -1 | tr ',' '\n' | awk '{n += $2} END {print n}')" = 600 ]
ok $? "each class is counted"
call 0 data d.h5 data.layout=nchw && grep -q '^  inputs .* (28, 1, 28) .*channels first' out &&
    call 0 data d.h5 && ! grep -q 'channels first' out
ok $? "channels that are first in the file"
call 0 data d.h5:test && grep -q '^train: 100 ' out && ! grep -q '^valid' out
ok $? "a group"
call 0 data --all d.h5 data.classes=0 data.limit=50 && grep -q '^train: 50 ' out && grep -q ' /train/y, (1)' out
ok $? "keys change what is shown"
call 78 data d.h5 data.layout=nope &&
    call 2 data && names err 'trainer data FILE' &&
    call 2 data --al d.h5 &&
    call 2 data d.h5 --al && names err --al --all
ok $? "wrong calls"
call 0 data --all d.h5 data.limit=50 &&
    cp out before &&
    call 0 data d.h5 --all data.limit=50 &&
    diff <(sed 's|[0-9.]* [KMG]iB/s||' before) <(sed 's|[0-9.]* [KMG]iB/s||' out) &&
    call 0 data d.h5 data.limit=50 --all && grep -q '^train: 50 ' out
ok $? "--all in any place"

: >empty.h5; echo 'no HDF5' >text.h5; head -c 3000 d.h5 >cut.h5; mkdir folder
call 65 data empty.h5 && names err "'empty.h5'" &&
    call 65 data text.h5 && names err "'text.h5'" 'trainer import' &&
    call 65 data cut.h5 &&
    call 66 data folder &&
    call 66 data none.h5
ok $? "files that are none"

call 66 data d.h5:nothing && grep -q 'train/x (600' out && names err "'nothing'"
ok $? "a group that is not there: the list, then the error"
printf 'x0,x1,label\n' >s.csv; for i in $(seq 1 2000); do echo "$i,2,$((i / 200))"; done >>s.csv
"$TRAINER" import csv s.csv s.h5 >/dev/null && call 0 data s.h5 && names out '^warning' s.h5 data.block
ok $? "sorted samples are warned of"
call 0 data s.h5 data.valid_fraction=0.1 && grep -q '^train: 1[78][0-9]* ' out &&
    grep -q '^valid: [12][0-9]* ' out && [ "$(grep -c '^  labels .* 11 [a-z]*: 0: ' out)" = 2 ]
ok $? "data.valid_fraction: samples and labels of both parts"

if [ -x "$BUILD/tests/cli/make_bad_input" ] && (mkdir bad && cd bad && "$BUILD/tests/cli/make_bad_input"); then
    call 0 data bad/words.h5 && grep -q '^  labels .*/y .*class_names' out
    printf '[model]\nlayers = flatten, linear 1\n[data]\ntrain = bad/words.h5\nvalid_fraction = 0.2\n' >words.ini
    call 65 words.ini run.dir=words data.batch_size=8 && once err "^warning & words.h5 & class_names"
    ok $? "labels that are text, told once"
    call 0 data bad/rounded.h5 && once out warning '19999999[0-9.]*' '20000000[0-9.]*' 32-bit 1 &&
        once out warning 1 1700000000 1700000661.5 32-bit '6[0-9.]*' &&
        names out warning 1 data.mean=compute data.std=compute && grep -q 'std 0.70[0-9]* ' out
    ok $? "64-bit numbers that 32-bit floats round away, seen before they are"
    call 0 data bad/rounded.h5 data.x=whole && once out warning 1 2000000000 2000000063 32-bit &&
        [ "$(messages out warning 32-bit | wc -l)" = 2 ]
    ok $? "32-bit integers, too"
    printf '[model]\nlayers = linear 1\n[data]\ntrain = bad/rounded.h5\nbatch_size = 32\nmicro_batch = 8\n' >round.ini
    call 0 plan round.ini data.target_mean=auto data.target_std=auto data.mean=0,1.7e9,101325 data.std=1,200,1 &&
        [ "$(grep -c warning err)" = 2 ] && once err warning '1999[0-9.]*' 32-bit &&
        once err warning 1 '1700[0-9.]*' 32-bit &&
        call 0 plan round.ini data.x=whole && once err warning 1 2000000000 32-bit
    ok $? "a run says it, too, however they are normalised"
    guess=('24 x 6' 24 6 data.layout=nhwc data.layout=nchw)
    call 0 data bad/two.h5 && names out "${guess[@]}" &&
        call 0 data bad/two.h5 data.x=picture && names out '24 x 24' data.layout=nhwc &&
        call 0 data bad/two.h5 data.layout=nhwc && ! grep -q data.layout out && grep -q 'f32 (24, 6), ' out &&
        names out warning data.mean=compute
    ok $? "samples of two dimensions: how they are taken, and what to set for series"

    # 40 of 4096 values are missing: the others have mean 280.4200690 and deviation 3.0172293
    call 0 data bad/packed.h5 && names out 0.01 280 -32767 40 4096 f32 &&
        grep -q ' min 277, max 284, mean 280.42, std 3.01723 ' out
    ok $? "missing and packed values, as netCDF declares them"
    printf '[model]\nlayers = flatten, linear 2\n[data]\nbatch_size = 12\nmicro_batch = 4\n' >packed.ini
    run=(packed.ini data.train=bad/packed.h5 threads=1 parallel.reproducible=yes train.epochs=4)
    "$TRAINER" "${run[@]}" run.dir=one >out 2>&1 && once out missing 40 4096 && grep -q 'accuracy 100' out &&
        "$MPIEXEC" -np 3 "$TRAINER" "${run[@]}" run.dir=three >out 2>&1 && once out missing 40 4096 &&
        "$TRAINER" "${run[@]}" run.dir=two train.epochs=2 >out 2>&1 && "$TRAINER" "${run[@]}" run.dir=two >out 2>&1 &&
        [ "$(sha256sum {one,two,three}/checkpoints/latest/model.safetensors | cut -c1-64 | sort -u | wc -l)" = 1 ]
    ok $? "they train alike on 1 and 3 ranks, and after a stop"
    "$TRAINER" repack bad/packed.h5 re.h5 >out 2>&1 && call 0 eval one data.test=re.h5 && grep -q '100' out &&
        call 0 predict one re.h5 p.csv && [ "$(wc -l <p.csv)" = 65 ]
    ok $? "repack keeps the attributes; eval and predict decode"
fi
{ echo area,price; for i in $(seq 1 40); do echo "$i,$((97339 + 991 * i))"; done; } >house.csv
printf '[model]\nlayers = linear 1\n[data]\ntrain = house.h5\nbatch_size = 20\nmicro_batch = 10\n' >house.ini
"$TRAINER" import csv house.csv house.h5 >out 2>&1 && grep -q '^y: .* data.classes=136980$' out &&
    call 0 data house.h5 && ! names out '^warning' data.classes &&
    call 0 plan house.ini
ok $? "whole numbers of many classes are numbers to predict"

{ echo a,y; for i in $(seq 1 40); do echo "$i,$((1 + i % 3))"; done; } >from1.csv
printf '[model]\nlayers = linear 3\n[data]\ntrain = from1.h5\nbatch_size = 10\n' >from1.ini
"$TRAINER" import csv from1.csv from1.h5 >out 2>&1 &&
    call 78 plan from1.ini && grep -q 'from1.h5:/train/y run from 1 to 3: subtract 1' err &&
    call 65 plan from1.ini data.classes=3 && grep -q 'is 3; .*subtract 1' err &&
    call 0 data from1.h5 && grep -q '^warning: .*subtract 1' out &&
    call 0 plan from1.ini 'model.layers=linear 4' && once err warning from1.h5:/train/y 1 3
ok $? "labels that count from 1: what to do"

{ echo a,y; for i in $(seq 1 40); do echo "$i,0"; done; } >one.csv
"$TRAINER" import csv one.csv one.h5 >out 2>&1 &&
    call 0 data one.h5 && grep -q '^  labels .* 1 [a-z]*: 0: 40' out && names out '^warning' one.h5 &&
    call 78 plan house.ini data.train=one.h5 && names err data.y 0
ok $? "one class alone"

{ echo a,b,target; for i in $(seq 1 3000); do echo "$i,2,123456.7"; done; } >still.csv
"$TRAINER" import csv still.csv still.h5 >out 2>err &&
    call 0 data still.h5 && grep -q 'min 123457, max 123457, mean 123457, std 0 ' out &&
    call 0 data still.h5 data.x=train/y data.y=train/y &&
    grep -q '^warning: the inputs have mean 1.235e+05 .*data.mean=compute' out &&
    call 0 data still.h5 data.x=train/y data.y=train/y data.mean=compute data.std=compute &&
    ! grep -q '^warning' out
ok $? "values that never vary have no deviation, and compute leaves their scale as it is"

{ echo a,target; for i in $(seq 1 60); do echo "$i,${i}000.5"; done; } >far.csv
printf '[model]\nlayers = linear 1\n[data]\ntrain = far.h5\nbatch_size = 30\nmicro_batch = 10\n' >net.ini
"$TRAINER" import csv far.csv far.h5 >out 2>err &&
    call 0 plan net.ini --ranks 1,2,3 data.mean=0 data.std=1 &&
    [ "$(grep -c 'data.target_mean\|data.mean' err)" = 1 ] &&
    [ "$(awk '/^ ranks  slots/ { on = 1; next } /^fits/ { exit } on { print $2 }' out | tr '\n' ' ')" = "3 1-2 1 " ]
ok $? "plan for several numbers of ranks: a warning once, and the slots of all ranks"
echo "1..$n"
