#!/usr/bin/env bash
# corrupt.sh BUILD [COUNT [SEED]]
# COUNT (10000) damages of the newest checkpoint of a run, of every file in it: none may be accepted, and the
# checkpoint before it must serve. Then runs on damaged checkpoints go on from the one before, to the same bits.
# CORRUPT_TABLE=FILE: gets a line for every kind of damage.
. "$(dirname "$0")/long.sh"
count=${2:-10000} seed=${3:-$$}
echo "corruptions: $count, seed $seed"
config
sed -i "s,^every = 0,every = 10," net.ini
begin=$(now)
FAULT=$slower start 1 net.ini run.dir=whole $exact checkpoint.keep=0
ended
[ $rc = 0 ] || { cat out; exit 1; }
rm -f whole/checkpoints/latest
cp -r whole/checkpoints whole/kept

"$BUILD/tests/long/make_corruptions" whole "$count" "$seed" >table
code=$?
grep '^#' table
grep -v '^#' table |
    awk -F'\t' '{ printf "  %-44s %6d damaged, %6d refused, %4d without effect, %d accepted\n", $1, $2, $3, $4, $5 }'
[ -z "${CORRUPT_TABLE-}" ] || grep -v '^#' table >>"$CORRUPT_TABLE"
[ $code = 0 ] || { echo "corruptions: failed with code $code"; exit 1; }

RANDOM=$seed bad=0
for f in model.safetensors optimizer.safetensors state.json MANIFEST; do
    rm -rf run && mkdir run && cp -r whole/kept run/checkpoints
    path=run/checkpoints/step-00000020/$f at=$((RANDOM % $(stat -c %s "$path")))
    byte=$(od -An -tu1 -j $at -N 1 "$path")
    # shellcheck disable=SC2059
    printf "\\x$(printf %x $((byte ^ 1 << RANDOM % 8)))" | dd of="$path" bs=1 seek=$at conv=notrunc status=none
    run 2 net.ini run.dir=run $exact && resumed step-00000010 &&
        [ "$(state run)" = "$(cat whole/kept/step-00000020/{model,optimizer}.safetensors | sha256sum)" ] ||
        { bad=$((bad + 1)); echo "  wrong: a run behind byte $at of $f"; tail -n 5 out; }
done
[ $bad = 0 ] && found="the same bits" || found="$bad wrong"
echo "corruptions: $count, none accepted; runs behind them: $found, seed $seed, $SECONDS s"
[ $bad = 0 ]
