#!/usr/bin/env bash
# walk.sh BUILD [STRIDE [FIRST [PATTERN]]]
# A run that continues from a checkpoint, reads an HDF5 file and saves twice is repeated with its n-th call failing, n
# = FIRST (1), FIRST + STRIDE (1) and so on until a run passes untouched; behind each that ended otherwise than well a
# restart without fault. Each must end by itself with a code of ours (never 70), and the weights in the end be those
# of a run without faults, bit for bit. Rows of the table whose name contains PATTERN.
. "$(dirname "$0")/long.sh"
stride=${2:-1} first=${3:-1} pattern=${4-}

config
sed -i -e 's/^format = synthetic/format = hdf5\ntrain = data.h5\nworkers = 1/; /^synthetic_/d' \
    -e 's/^steps = .*/steps = 16/; s/^every = 0/every = 4/' net.ini
"$TRAINER" import synthetic images data.h5 --samples 400 --shape 12x12x1 --classes 10 >out 2>&1 || { cat out; exit 1; }

train() { timeout -k 5 300 "$TRAINER" net.ini run.dir="$@" >out 2>&1; }
train whole || { cat out; exit 1; }
train base train.steps=8 || { cat out; exit 1; }
want=$(state whole)
bad=0

complain() { # WHAT
    bad=$((bad + 1)) wrong=$((wrong + 1))
    echo "   n = $n ($(cat said)): $1"
    sed 's/^/      /' out | tail -n 2
}
# strike SETTING...: the run with the fault; sets code
strike() {
    rm -rf run said
    cp -a base run
    local begin=$EPOCHREALTIME
    {
        (export LD_PRELOAD="$fail_lib" FAIL_PACE=40 FAIL_SAY="$work/said" FAIL_AT=$n "$@" && train run)
    } 2>/dev/null
    code=$?
    slowest=$(printf '%s\n' "$(since "$begin")" "$slowest" | sort -n | tail -n 1)
}
judge() { # KILLED
    [ $code = 124 ] && complain "hangs"
    [ $code -ge 128 ] && [ "$code" != "$1" ] && complain "crashes, code $code"
    [ $code = 70 ] && complain "calls it a bug"
    [ $code != 0 ] && [ "$code" != "$1" ] && [ "$(grep -c 'trainer: error' out)" != 1 ] &&
        complain "code $code without one message"
    [ $code = 0 ] && [ "$(state run)" = "$want" ] && return
    # Well, and still "latest" is an older one: a link that could not be made, and that was said.
    [ $code = 0 ] && ! grep -q "^warning" out && complain "ended well, with other weights and without a warning"
    train run || complain "the restart fails with code $?"
    resumed || complain "the restart does not go on"
    [ "$(state run)" = "$want" ] || complain "the restart ends with other weights"
}
# walk NAME SETTING...: a row
walk() {
    local name=$1 killed=-1 calls=0 codes= begin=$SECONDS
    shift
    case $name in *"$pattern"*) ;; *) return ;; esac
    case "$*" in *FAIL_HOW=kill*) killed=137 ;; esac
    wrong=0 slowest=0
    [ "$stride" = 1 ] || name="$name (each ${stride}th n)"
    for ((n = first; ; n += stride)); do
        strike "$@"
        if [ ! -s said ]; then
            [ $code = 0 ] && [ "$(state run)" = "$want" ] || complain "not touched, and still not right"
            break
        fi
        calls=$((calls + 1)) codes="$codes $code"
        judge $killed
    done
    codes=$(tr ' ' '\n' <<<"$codes" | sed '/^$/d' | sort -n | uniq -c |
        awk '{ printf "%s%s x %s", sep, $1, $2; sep = ", " }')
    printf '| %-66s | %5d | %-40s | %5d | %7s |\n' "$name" "$calls" "$codes" "$wrong" "$slowest"
    [ -z "${WALK_TABLE-}" ] ||
        printf '| %s | %d | %s | %d | %s |\n' "$name" "$calls" "$codes" "$wrong" "$slowest" >>"$WALK_TABLE"
}

printf '| %-66s | %5s | %-40s | %5s | %7s |\n' "fault at the n-th call" "calls" "times x exit code" "wrong" "slowest"
files=open,opendir,read,pread,write,fsync,rename,close,mkdir,rmdir,unlink,mmap,ftruncate,symlink,readlink,stat,flock
walk "run folder, any call: EIO" FAIL_CALL=$files FAIL_ON=/run FAIL_HOW=EIO
walk "run folder, this and all later calls: EIO" FAIL_CALL=$files FAIL_ON=/run FAIL_HOW=EIO FAIL_ALWAYS=1
walk "run folder, write fsync mkdir rename: ENOSPC" FAIL_CALL=write,fsync,mkdir,rename FAIL_ON=/run FAIL_HOW=ENOSPC
walk "run folder, write fsync mkdir rename, from n on: ENOSPC" FAIL_CALL=write,fsync,mkdir,rename FAIL_ON=/run \
    FAIL_HOW=ENOSPC FAIL_ALWAYS=1
walk "run folder, open opendir mkdir rename unlink symlink: EACCES" \
    FAIL_CALL=open,opendir,mkdir,rename,unlink,symlink FAIL_ON=/run FAIL_HOW=EACCES
walk "run folder, read pread write: EINTR" FAIL_CALL=read,pread,write FAIL_ON=/run FAIL_HOW=EINTR
walk "run folder, read pread write: half" FAIL_CALL=read,pread,write FAIL_ON=/run FAIL_HOW=short
walk "run folder, any call: killed before it" FAIL_CALL=$files FAIL_ON=/run FAIL_HOW=kill
walk "data file, any call: EIO" FAIL_CALL=$files FAIL_ON=data.h5 FAIL_HOW=EIO
walk "data file, from n on: EIO" FAIL_CALL=$files FAIL_ON=data.h5 FAIL_HOW=EIO FAIL_ALWAYS=1
walk "data file, read pread: half" FAIL_CALL=read,pread FAIL_ON=data.h5 FAIL_HOW=short
walk "thread: none" FAIL_CALL=thread FAIL_HOW=EAGAIN
walk "allocation: none" FAIL_CALL=alloc FAIL_HOW=ENOMEM
walk "allocation: none from n on" FAIL_CALL=alloc FAIL_HOW=ENOMEM FAIL_ALWAYS=1
echo "walk: $([ $bad = 0 ] && echo "nothing wrong" || echo "$bad wrong"), $SECONDS s"
[ $bad = 0 ]
