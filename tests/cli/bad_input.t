#!/usr/bin/env bash
# TEST timeout=400
# Every bad input of bad_input.table: the exit code, one message on one rank that names what is at fault and what to
# do, no hang, no checkpoint lost.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/bad_input}/tests/support/common.sh"
here=$TRAINER_ROOT/tests/cli

# -- what is bad -----------------------------------------------------------------------------------------------------
"$BUILD/tests/cli/make_bad_input" || exit 1
H5=(data.format=hdf5 data.batch_size=16 run.dir=new)
cat >net.ini <<'INI'
threads = 1
[model]
layers = conv 4 3x3 pad=same, relu, flatten, linear 10
[data]
format = synthetic
synthetic_samples = 200
synthetic_shape = 8x8x1
batch_size = 48
micro_batch = 8
[train]
steps = 4
[checkpoint]
every = 2
INI
printf '[model]\nlayer = conv 3\n[dota]\nbatch_size = 8\n[train]\nsteps = several\n' >wrong.ini
mkdir folder shut idx && chmod 555 shut
cp net.ini secret.ini && cp good.h5 secret.h5 && chmod 000 secret.ini secret.h5
: >empty.h5
head -c 5000 good.h5 >cut.h5
at=$(($(grep -abo "$(printf '\r\r\r\r\r\r\r\r')" damaged.h5 | tail -n 1 | cut -d: -f1) + 0))
printf X | dd of=damaged.h5 bs=1 seek="$at" conv=notrunc status=none
for f in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte; do
    echo 'no IDX' >idx/$f
done
printf '1,2,0\n3,4,1\n5,1\n' >short.csv
mkfifo pipe.csv
printf 'CDF\1\0\0\0\0' >old.nc
printf '1,2,0\n,4,1\n' >blank.csv
printf '1,2,ant\n3,4,NA\n' >unlabelled.csv
printf 'len,len,kind\n1,2,x\n' >twice.csv
printf 'day,b,y\n2024-01-31,2,1\n' >dates.csv
printf '\3757zXZ\0' >table.csv.xz
printf 'a;b;kind\n1,5;2;x\n' >semicolons.csv
: >empty.txt; printf '{"text":"abc"}\n{"text":abc}\n' >bad.jsonl; printf '\1\0\54\1' >wide.bin
printf '\50\265\57\375' >text.zst
for id in 1 2 3 4 5 6 7; do printf "\\$id\\1\\0\\0\\$id\\2\\0\\0\\$id\\3\\0\\0\\$id\\4\\0\\0"; done >u32.bin
printf "some text" >some.txt
"$TRAINER" import text some.txt tokens.h5 --tokenizer bytes >out 2>&1 || { cat out; exit 1; }
printf 'a,y\n1,2.5\n2,1e300\n' >beyond.csv
printf 'a,b,Gr\366\337e\n1,2,0\n' >latin1.csv
printf '1,2,ant\n3,4,bee\n' >ants.csv
printf '1,2,bee\n3,4,cat\n' >bees.csv
for f in ants bees; do "$TRAINER" import csv $f.csv $f.h5 >out 2>&1 || { cat out; exit 1; }; done
"$TRAINER" net.ini run.dir=kept >out 2>&1 || { cat out; exit 1; }
kept=$(cat kept/checkpoints/step-*/* | sha256sum)
cp -r kept half && cp -r kept lost && mkdir busy
for f in half/checkpoints/step-00000004 lost/checkpoints/step-0000000[24]; do
    printf X | dd of=$f/model.safetensors bs=1 seek=900 conv=notrunc status=none
done
exec 9>busy/lock && flock 9

# -- running a line --------------------------------------------------------------------------------------------------
may_not=() # root passes permissions by, unless it gives up that capability
denied() {
    local may_not=(setpriv --bounding-set=-dac_override,-dac_read_search)
    [ "$(id -u)" = 0 ] || may_not=()
    "$@"
}
trainer() {
    local launcher=()
    [ "$ranks" = - ] || [ "$ranks" = 1 ] || launcher=("$MPIEXEC" -np "$ranks")
    timeout -k 5 60 "${may_not[@]}" "${launcher[@]}" "$TRAINER" "$@" >out 2>err </dev/null 9>&-
}
# What the program said from its first warning or error on, up to where a run names its folder: without the launcher's
# words, ranks and folders.
said() { # RUN.DIR
    if grep -q 'trainer: error' err; then cat err; else cat err out; fi |
        awk '/^----------------------------------/ { launcher = !launcher; next } !launcher && !/^\[[^ ]*:[0-9]+\]/' |
        sed -n '/^warning\|trainer: error/,$p' | awk -v dir="$1" 'dir != "" && $NF == dir { exit } 1' |
        sed -e 's/^\[rank [0-9]* [^ ]*\] //' -e "s,$PWD/,,g"
}

check() { # WHAT CODE COMMAND NAMES
    local status message errors dir
    dir=$(sed -n 's/.* run\.dir=\([^ ]*\).*/\1/p' <<<"$3")
    eval "${3/ H5 / \"\$\{H5[@]\}\" }"
    status=$?
    [ "$status" != 78 ] || [ ! -e new ]
    ok $? "$1: no folder for a run that cannot be"
    rm -rf new
    message=$(said "$dir")
    tr '\n' ' ' <<<"$message" >message
    errors=$(cat out err | grep -c 'trainer: error')
    [ "$status" = "$2" ] && [ "$errors" = $(($2 != 0)) ] && names message "$4"
    ok $? "$1: code $status, $errors message(s) of $ranks rank(s)"
}

lines=0
no_denied=
if [ "$(id -u)" = 0 ] &&
    ! setpriv --bounding-set=-dac_override,-dac_read_search bash -c '! cat secret.ini' >out 2>&1; then
    no_denied="root passes permissions by, and setpriv cannot keep it from that"
fi
while IFS= read -r line; do
    case $line in
        '#'* | '') continue ;;
    esac
    what=${line%% | *} rest=${line#* | }
    ranks=${rest%% | *} rest=${rest#* | }
    code=${rest%% | *} rest=${rest#* | }
    command=${rest%% | *} named=${rest#* | }
    # Two ranks take five times as long as one: without TEST_ALL every tenth line has two.
    if [ "$ranks" = 2 ] && ! all; then [ $((lines++ % 10)) = 0 ] || ranks=1; fi
    case $command in denied*) [ -z "$no_denied" ] || { skip "$what" "$no_denied"; continue; } ;; esac
    case $what in
        *'than the disk holds')
            [ "$(df -P . | awk 'END { print $2 }')" != 0 ] ||
                { skip "$what" "this file system does not say how much it holds"; continue; }
            ;;
    esac
    check "$what" "$code" "$command" "$named"
done <"$here/bad_input.table"

[ "$(cat kept/checkpoints/step-*/* | sha256sum)" = "$kept" ]
ok $? "no checkpoint was lost or changed"
echo "1..$n"
