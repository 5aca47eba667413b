#!/usr/bin/env bash
# The set of instructions: TRAINER_ISA, trainer info, the state of a checkpoint, ranks that may use different sets.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/isa}/tests/support/common.sh"
config
unset TRAINER_ISA ONEDNN_MAX_CPU_ISA DNNL_MAX_CPU_ISA
isa_of() { sed -n 's/.*"isa": *"\([^"]*\)".*/\1/p' "$1/checkpoints/latest/state.json"; }

TRAINER_ISA=z80 call 78 net.ini run.dir=none && once err 'error & TRAINER_ISA & z80' && [ ! -e none/checkpoints ]
ok $? "a set that is none"
read -ra sets < <(sed -n "s/.*(\([^)]*\)), found 'z80'.*/\1/p" err | tr -d ,)
best=${sets[-1]} least=${sets[0]}
[ -n "$best" ]
ok $? "the error lists those that may be chosen: ${sets[*]}"
! TRAINER_ISA=z80 run 2 net.ini run.dir=none && once out 'error & TRAINER_ISA & z80'
ok $? "and two ranks report it once"

used() { sed -n 's/^  set  *\([^ ]*\) of \([^ ;]*\);.*/\1 \2/p' out; }
call 0 info && [ "$(used)" = "$best $best" ]
ok $? "info: the processor's set is used"
TRAINER_ISA=$least call 0 info && [ "$(used)" = "$least $best" ] && grep -q '^  set .*TRAINER_ISA' out
ok $? "info: or what TRAINER_ISA allows"

exact="parallel.reproducible=yes"
for set in "${sets[@]}"; do
    TRAINER_ISA=$set call 0 net.ini run.dir="$set" $exact && [ "$(isa_of "$set")" = "$set" ]
    ok $? "trained with $set, which the checkpoint says"
done
if [ "$least" = "$best" ]; then
    skip "ranks with different sets, and a run that goes on with another one" "one set: $best"
else
    # mixed RUN: the first rank may use the best set, the second one the lowest
    mixed() {
        "$MPIEXEC" -np 1 env TRAINER_ISA="$best" "$TRAINER" net.ini run.dir="$1" $exact : \
            -np 1 env TRAINER_ISA="$least" "$TRAINER" net.ini run.dir="$1" $exact >out 2>&1
    }
    mixed mixed && once out "$least & $best" && [ "$(isa_of mixed)" = "$least" ]
    ok $? "ranks that may use different sets use the lower one"
    [ "$(state mixed)" = "$(state "$least")" ]
    ok $? "and train to its bits"
    call 0 net.ini run.dir="$least" $exact train.steps=25 && once err "$least & $best" &&
        [ "$(isa_of "$least")" = "$best" ]
    ok $? "a run goes on with another set, and notes it"
fi
echo "1..$n"
