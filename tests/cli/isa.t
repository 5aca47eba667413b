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
    skip "ranks with different sets, a run that goes on with another one, equal kernels" "one set: $best"
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
    # With oneDNN held at one set, what is left are our kernels.
    seq 300 >t.txt && call 0 import text t.txt t.h5 --tokenizer bytes --valid-fraction 0
    ok $? "a text becomes tokens"
    for set in "${sets[@]}"; do
        export TRAINER_ISA=$set ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2
        call 0 net.ini run.dir="cnn.$set" $exact \
            model.layers="conv 16 3x3 pad=same, batchnorm, relu, conv 16 3x3 pad=same, gelu, globalpool, linear 10" &&
            call 0 "$TRAINER_ROOT/configs/gpt_char.ini" run.dir="gpt.$set" $exact threads=1 data.train=t.h5:train \
                data.valid=t.h5:train model.n_layer=2 model.n_head=2 model.n_embd=48 model.context=24 \
                data.batch_size=4 train.steps=5 schedule.warmup=0
        ok $? "trained with our kernels for $set and oneDNN's for AVX2"
    done
    unset TRAINER_ISA ONEDNN_MAX_CPU_ISA DNNL_MAX_CPU_ISA
    [ "$(for set in "${sets[@]}"; do state "cnn.$set"; done | sort -u | wc -l)" = 1 ]
    ok $? "the kernels of a convolutional network give the same bits with each set"
    [ "$(for set in "${sets[@]}"; do state "gpt.$set"; done | sort -u | wc -l)" = 1 ]
    ok $? "and those of a GPT"
fi

# Only what is behind the table of x86-64-v4 may have its instructions, also by way of the linker.
wide='%zmm|%[xy]mm(1[6-9]|2[0-9]|3[01])|\{%k[1-7]\}'
if [ -e "$BUILD/isa/x86-64-v4.o" ] && command -v objdump >out; then
    find "$BUILD/src" "$BUILD/isa/x86-64-v3.o" -name '*.o' -print0 | xargs -0 objdump -d | grep -cE "$wide" >out
    [ "$(cat out)" = 0 ] && [ "$(nm -g --defined-only "$BUILD/isa/x86-64-v4.o" | wc -l)" = 1 ] &&
        ! nm "$BUILD/isa/x86-64-v4.o" | grep -q ' [CVWuvw] ' &&
        ! objdump -h "$BUILD/isa/x86-64-v4.o" | grep -q 'init_array\|ctors'
    ok $? "instructions of AVX-512 are behind their table alone"
    objdump -d "$BUILD/isa/x86-64-v4.o" | grep -qE "$wide"
    ok $? "where they are"
else
    skip "instructions of AVX-512 behind their table alone" "a build for one set, or no objdump"
fi
echo "1..$n"
