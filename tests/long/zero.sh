#!/usr/bin/env bash
# zero.sh BUILD [KILLS [CORRUPTIONS [SEED]]]
# Checkpoints that several ranks write (parallel.zero = 1). KILLS (100) runs of 2 to 4 ranks, of which a random one is
# killed at a random call in a checkpoint or at a random moment: a restart on other ranks, with or without it, must end
# in the bits of a run that nothing happened to. Then CORRUPTIONS (1000) damages of a checkpoint of 3 ranks, of every
# file in it: none may be accepted, and the one before it must serve.
. "$(dirname "$0")/long.sh"
kills=${2:-100} corruptions=${3:-1000} seed=${4:-$$}
RANDOM=$seed
echo "zero: $kills kills, $corruptions corruptions, seed $seed"
gpt_config
sed 's/^every = 0/every = 2/; s/^valid_every = .*/valid_every = 5/; s/^lr = .*/&\nema = 0.9/' gpt.ini >net.ini
zero="parallel.zero=1"
steady="FAIL_STEP=40"
whole run 2 || { cat out; exit 1; }
draw() { drawn=$((RANDOM % $1)); } # not in a subshell: its RANDOM would be forgotten
calls=(write:40 fsync:12 open:20 mkdir:6 pread:60 rename:6)
bad=0 hit=0 late=0
wrong() { # WHAT
    bad=$((bad + 1))
    echo "   wrong: $1 (rank $victim of $ranks at $moment, restarted on $again $with)"
    sed 's/^/      /' out | tail -n 5
}
one() {
    rm -rf run
    cp -r whole run && back_to run 00000002
    draw 3 && ranks=$((2 + drawn))
    draw 4 && again=$((1 + drawn))
    draw 2 && with=$([ $drawn = 0 ] && echo $zero)
    draw "$ranks" && victim=$drawn
    draw ${#calls[@]}
    local call=${calls[drawn]}
    draw "${call#*:}"
    moment="${call%:*} $((1 + drawn))"
    FAULT="$steady FAIL_RANK=$victim FAIL_CALL=${call%:*} FAIL_ON=/checkpoints/ FAIL_HOW=kill FAIL_AT=${moment#* }" \
        start $ranks net.ini run.dir=run $exact $zero
    if [ $((RANDOM % 4)) = 0 ]; then
        moment="any time, or $moment"
        sleep "$(awk -v ms=$((RANDOM % 1500)) 'BEGIN { print ms / 1000 }')"
        kill -9 "$(rank_pid $victim)" 2>/dev/null
    fi
    begin=$(now)
    ended
    [ $rc != 0 ] || return 1
    [ $rc = 137 ] || [ $rc = 75 ] || wrong "code $rc"
    run $again net.ini run.dir=run $exact $with || wrong "the restart fails with code $?"
    resumed || wrong "the restart begins anew"
    same || wrong "the restart ends in other bits"
    [ -z "$(find run/checkpoints -name '.*' -mindepth 1)" ] || wrong "something unfinished stays"
}
same() { [ "$(state whole)" = "$(state run)" ] && [ "$(losses whole)" = "$(losses run)" ]; }
while [ $hit -lt "$kills" ]; do
    if one; then hit=$((hit + 1)); else late=$((late + 1)); fi
    [ $late -le $((2 * kills + 20)) ] || { echo "zero: most come too late"; exit 1; }
done
echo "kills: $hit, $bad wrong, $late came too late, $SECONDS s"

FAULT=$steady start 3 net.ini run.dir=damaged $exact $zero checkpoint.keep=0 train.steps=4
begin=$(now)
ended
[ $rc = 0 ] || { cat out; exit 1; }
rm -f damaged/checkpoints/latest
cp -r damaged/checkpoints damaged/kept
"$BUILD/tests/long/make_corruptions" damaged "$corruptions" "$seed" >table
code=$?
grep '^#' table
grep -v '^#' table |
    awk -F'\t' '{ printf "  %-44s %6d damaged, %6d refused, %4d without effect, %d accepted\n", $1, $2, $3, $4, $5 }'
for f in model.safetensors optimizer.safetensors state.json MANIFEST; do
    rm -rf run && mkdir run && cp -r damaged/kept run/checkpoints
    path=run/checkpoints/step-00000004/$f at=$((RANDOM % $(stat -c %s "$path")))
    byte=$(od -An -tu1 -j $at -N 1 "$path")
    # shellcheck disable=SC2059
    printf "\\x$(printf %x $((byte ^ 1 << RANDOM % 8)))" | dd of="$path" bs=1 seek=$at conv=notrunc status=none
    run 2 net.ini run.dir=run $exact $zero && resumed step-00000002 && [ "$(state run)" = "$(state whole)" ] ||
        { bad=$((bad + 1)); echo "  wrong: a run behind byte $at of $f"; tail -n 5 out; }
done
echo "zero: $hit kills, $corruptions corruptions, $bad wrong, code $code, seed $seed, $SECONDS s"
[ $bad = 0 ] && [ $code = 0 ]
