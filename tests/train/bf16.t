#!/usr/bin/env bash
# TEST timeout=300
# precision = bf16: learns as f32 does, in less memory, and is as exact: on any ranks, resumed, on the strict device.
. "$TRAINER_ROOT/tests/train/common.sh"
config
half="precision=bf16"
exact="$half parallel.reproducible=yes"
run 1 net.ini run.dir=f32
run 1 net.ini run.dir=one $half
ok $? "a run in bf16"
# Products that are emulated want f32 copies of their operands.
names out "warning & bf16" && most=10 || most=8
near f32 one 0.02 20 && ! near f32 one 1e-5 20
ok $? "20 steps: losses within 2 % of f32's, and not the same"
grep -q '"precision": *"bf16"' one/summary.json
ok $? "the summary says so"
arena() { "$TRAINER" plan net.ini precision=$1 | awk '/ranks +slots/ { getline; print int($12 * 1024 * ($13 == "MiB" ? 1024 : 1)) }'; }
"$TRAINER" plan net.ini >out
[ "$(arena bf16)" -lt "$(($(arena fp32) * most / 10))" ]
ok $? "the plan's activations are smaller, by a fifth or more where products of bf16 have instructions: $(arena bf16) and $(arena fp32) bytes"
grep -q '"F32"' one/checkpoints/latest/model.safetensors && ! grep -q BF16 one/checkpoints/latest/*.safetensors
ok $? "weights and optimizer state are saved in f32"
run 1 net.ini run.dir=strict $half device=strict
[ "$(state one)" = "$(state strict)" ]
ok $? "the strict device trains to the same bits"
for r in 1 2 3; do run $r net.ini run.dir=exact$r $exact; done
[ "$(state exact1)" = "$(state exact2)" ] && [ "$(state exact1)" = "$(state exact3)" ]
ok $? "1, 2 and 3 ranks, reproducible: the same bits"
run 2 net.ini run.dir=cut $exact checkpoint.every=9 checkpoint.keep=0
back_to cut 00000009
run 3 net.ini run.dir=cut $exact
ok $? "resumed on 3 ranks from step 9 on 2"
[ "$(state exact1)" = "$(state cut)" ]
ok $? "and its end is the uninterrupted run's, bit for bit"
run 1 net.ini run.dir=one train.steps=25 precision=fp32
ok $? "a run goes on in the other precision"
# Without instructions for bf16 the products are emulated; oneDNN of both generations reads one of the two names.
export ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2
run 2 net.ini run.dir=emulated $half
if "$TRAINER" info | grep -q "x86\|AMD\|Intel"; then
    once out "warning & bf16"
    ok $? "a processor without bf16: one warning"
fi
near one emulated 0.02 20
ok $? "and the losses are the same within 2 %"
echo "1..$n"
