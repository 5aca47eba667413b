#!/usr/bin/env bash
# trainer sweep: members of lists, ranges and repeated keys; what it refuses before it writes; stopped and killed sweeps
# that continue; members that diverge, fail, or run elsewhere.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/sweep}/tests/support/common.sh"
cat >net.ini <<'INI'
[model]
layers = linear 8, relu, linear 4
[data]
format = synthetic
synthetic_samples = 200
synthetic_shape = 8
classes = 4
batch_size = 20
valid_fraction = 0.2
[train]
steps = 40
valid_every = 20
INI
# settings OUT KEY: its values, in the order of the members
settings() { python3 -c 'import json, sys
print(*[m["settings"].get(sys.argv[2], "-") for m in json.load(open(sys.argv[1] + "/sweep.json"))["members"]])' "$@"; }
verdicts() { head -qn1 "$1"/0*/verdict | cut -d' ' -f-2 | paste -sd,; }

# -- members
call 0 sweep net.ini optimizer.lr=0.1,0.01 train.seed=1,2 model.layers='linear 4' \
    model.layers='linear 8, relu, linear 4' --out grid &&
    [ "$(settings grid optimizer.lr)" = "0.1 0.1 0.1 0.1 0.01 0.01 0.01 0.01" ] &&
    [ "$(settings grid train.seed)" = "1 1 2 2 1 1 2 2" ] &&
    [ "$(verdicts grid)" = "$(printf 'done,%.0s' {1..7})done" ] &&
    grep -q '^layers = "*linear 4' grid/003/config.ini && grep -qx 'keep = 1' grid/003/config.ini
ok $? "every combination of the values, the last key first"
[ -s grid/compare/index.html ] && grep -q '^\* ' out && grep -q valid_loss out
ok $? "and a comparison of them"
call 0 sweep net.ini optimizer.type=sgd,adam train.seed=01,1 --out names &&
    [ "$(settings names optimizer.type)" = "sgd adam" ]
ok $? "values of a name; equal values count once"
call 0 sweep net.ini optimizer.lr=1e-4..1 data.batch_size=10..40 --random 20 --seed 3 --prepare --out drawn &&
    [ "$(cat out)" = 20 ] && lr=$(settings drawn optimizer.lr) && size=$(settings drawn data.batch_size) &&
    awk -v lr="$lr" -v size="$size" 'BEGIN { split(size, s, " ")
        for (n = split(lr, l, " "); n > 0; n--) { low += l[n] < 1e-2
            if (l[n] < 1e-4 || l[n] > 1 || s[n] < 10 || s[n] > 40 || s[n] != int(s[n])) exit 1 }
        exit low < 5 || low > 15 }'
ok $? "draws within the ranges; the logarithm is uniform"
call 0 sweep net.ini optimizer.lr=1e-4..1 --random 22 --seed 3 --prepare --out more && [ "$(cat out)" = 22 ] &&
    case $(settings more optimizer.lr) in "$lr "*) ;; *) false ;; esac
ok $? "a draw depends on the seed, its number and its key alone"
call 0 sweep --out drawn --member 20 && [ "$(sed -n 1p out)" = net.ini ] && grep -qx run.dir=drawn/020 out
ok $? "the words of a member"

{ cat net.ini && printf '[checkpoint]\nkeep = 3\n'; } >keep.ini
call 0 sweep keep.ini train.seed=1 --prepare --out keep && call 0 sweep --out keep --member 1 && ! grep -q keep= out
ok $? "checkpoint.keep of the configuration, also its default"
"$TRAINER" sweep net.ini optimizer.lr=0.1,0.2 --out both >out1 2>&1 &
call 0 sweep net.ini optimizer.lr=0.3,0.4 --out both
first=$?
wait $!
[ $? = 0 ] && [ $first = 0 ] && [ "$(verdicts both)" = 'done,done,done,done' ] &&
    [ "$(settings both optimizer.lr)" = "$(sed -n 's/^lr = //p' both/00?/config.ini | paste -sd' ')" ]
ok $? "two sweeps into one folder at the same time"
python3 -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$TRAINER" sweep net.ini train.seed=1 --out ignored >out 2>err
ok $? "with SIGCHLD ignored by the parent"

# -- what is refused: nothing is written
refused() { # CODE NAMES ARGUMENTS...
    call "$1" sweep "${@:3}" --out none/deep && names err "$2" && [ ! -e none ]
    ok $? "refused: ${*:3}"
}
refused 2 "optimizer.lr & --random" net.ini optimizer.lr=0.1..1
refused 2 "--random" net.ini optimizer.lr=0.1 --random 3
refused 2 "train.steps=10.5..20" net.ini train.steps=10.5..20 --random 3
refused 78 "002 & nothere" net.ini device=cpu,nothere --prepare
refused 2 "optimizer.lr=1..0.1" net.ini optimizer.lr=1..0.1 --random 3
refused 2 "run.dir" net.ini run.dir=a,b
refused 78 "002 & optimizer.lr & 'x'" net.ini optimizer.lr=0.1,x
refused 78 "optimizer.rl & optimizer.lr" net.ini optimizer.rl=0.1
refused 78 "002 & data.batch_size=500" net.ini data.batch_size=20,500
refused 66 "no.ini" no.ini optimizer.lr=1
refused 2 "--jobs 1000" net.ini optimizer.lr=1 --jobs 1000
refused 2 "CONFIG.ini" optimizer.lr=1
refused 2 "KEY=VALUES" net.ini

# -- more members, and a configuration that changed
sed 's/^steps = .*/steps = 60/' net.ini >other.ini
call 78 sweep other.ini --out grid && names err "other.ini & train.steps & 60 & 40"
ok $? "a configuration that changed"
stat -c %Y.%i grid/00*/summary.json >before
call 0 sweep net.ini optimizer.lr=0.1,0.03 train.seed=1 --out grid && names err "009 & optimizer.lr=0.03" &&
    ! names err "001" && [ "$(settings grid optimizer.lr | wc -w)" = 9 ] &&
    [ "$(stat -c %Y.%i grid/00[1-8]/summary.json)" = "$(cat before)" ]
ok $? "a new value adds members; those that are done stay"
mkdir -p other && cp -r grid/001 other/
call 78 sweep net.ini optimizer.lr=0.5 --out other && names err "other" && [ ! -e other/sweep.json ] &&
    call 78 sweep net.ini optimizer.lr=0.5 --out grid/001 && names err "grid/001"
ok $? "a folder with runs, or of one, is no folder for a sweep"
cp grid/sweep.json other/ && rm -r other/001 && cp -r grid/005 other/001
call 78 sweep --out other && names err "other/001 & optimizer.lr = 0.01 & 0.1"
ok $? "a member's folder with another run"

# -- data that changed
awk 'BEGIN { print "a,b,y"; for (i = 0; i < 100; i++) print i % 7 "," i % 3 "," (i % 2 ? "odd" : "even") }' >t.csv
"$TRAINER" import csv t.csv t.h5 >out 2>&1 && "$TRAINER" repack t.h5 again.h5 >out 2>&1
sed -e 's/^format.*/train = t.h5/; /synthetic/d; /classes/d; s/linear 4/linear 2/' net.ini >table.ini
call 0 sweep table.ini data.valid_fraction=0.2 --out data && cp again.h5 t.h5 &&
    call 0 sweep table.ini data.valid_fraction=0.4 --out data && [ "$(verdicts data)" = done,done ]
ok $? "more members on a copy of the data"
sed 's/^3,1,odd/3,1,even/' t.csv >other.csv && "$TRAINER" import csv other.csv t.h5 --force >out 2>&1
call 78 sweep table.ini data.valid_fraction=0.5 --out data && names err "001 & data & --out" && [ ! -e data/003 ] &&
    call 78 sweep --out data && cp again.h5 t.h5 && call 0 sweep --out data
ok $? "other data are refused"
call 0 sweep table.ini train.seed=1 --prepare --out fixed && "$TRAINER" import csv other.csv t.h5 --force >out 2>&1 &&
    call 0 sweep --out fixed
ok $? "not before a member has results"

# -- members that diverge, that fail, that run elsewhere
call 0 sweep net.ini optimizer.type=sgd optimizer.lr=0.1,1e6 --out bad && [ "$(verdicts bad)" = "done,no 93" ] &&
    call 0 sweep --out bad && ! names err "002"
ok $? "a run that diverged is a result"
mkdir -p late && ln -s /dev/full late/002.log
call 0 sweep net.ini train.seed=1,2 --out late
ok $? "a full disk of the output of a member loses only that"
cp net.ini data.ini
sed -i 's/^format.*/train = file.h5/; /synthetic/d; /classes/d' data.ini
call 0 import synthetic images file.h5 --samples 100 --shape 4x4x1 --classes 3
call 78 sweep data.ini model.layers='linear 3' model.layers='linear 2' --out fails
ok $? "all members are planned before the first one runs"
call 0 sweep net.ini train.seed=1 --prepare --out taken
mkdir -p taken/001
(exec 9>taken/001/lock && flock 9 && touch held && exec sleep 30) &
holder=$!
until_true test -e held
call 75 sweep --out taken && [ "$(grep -c '^001' err)" = 2 ]
ok $? "a member that runs elsewhere is tried again at the end"
kill $holder
call 0 sweep --out taken
ok $? "and is trained when it is free"

if [ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] && [ "$(nproc)" -gt 1 ]; then
    HOSTCUDA_DEVICES=1 fakes "$TRAINER" sweep net.ini device=cuda train.seed=1,2 --jobs 2 --out gpus >out 2>err
    [ $? = 2 ] &&
    HOSTCUDA_DEVICES=2 fakes "$TRAINER" sweep net.ini device=cuda train.seed=1,2 --jobs 2 --out gpus >out 2>err &&
        [ "$(verdicts gpus)" = done,done ]
    ok $? "each member has its own GPU"
fi

# -- stopped and killed
sed -i 's/^steps = .*/steps = 100000/; s/^synthetic_samples = .*/synthetic_samples = 2000/' net.ini
members() { pgrep -f -- "train net.ini .*run.dir=$1/"; }
begun() { [ "$(cat "$1"/00[12]/metrics.jsonl 2>/dev/null | wc -l)" -gt 2 ]; }
gone() { ! members "$1" >left; }
set -m # else the shell ignores INT for its jobs
for how in INT KILL; do
    "$TRAINER" sweep net.ini train.seed=1,2,3 train.steps=1000000 --out "$how" 2>err >out &
    sweep=$!
    until_true begun "$how"
    kill -s $how $sweep
    wait $sweep 2>/dev/null
    code=$?
    until_true gone "$how" && case $how in INT) [ $code = 75 ] ;; *) true ;; esac &&
        [ "$(head -qn1 "$how/001/verdict")" = again ] && [ ! -e "$how/002" ] && [ -e "$how/001/checkpoints/latest" ]
    ok $? "$how: the members save and stop"
done
echo "1..$n"
