#!/usr/bin/env bash
# TEST timeout=300
# precision = bf16 and fp16: they learn as fp32 does, in less memory, and are as exact: on any ranks, resumed, on the
# strict device. tf32 and auto are fp32 on a CPU without instructions for bf16.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/half}/tests/support/common.sh"
config
# Large images and no convolution: a library's workspace for it, which depends on the processor, is as large as the
# images.
arena() {
    "$TRAINER" plan net.ini model.layers="batchnorm, relu, maxpool 2, batchnorm, relu, globalpool, linear 10" \
        data.synthetic_shape=48x48x4 data.micro_batch=48 precision=$1 2>/dev/null |
        awk '/ranks +slots/ { getline; print int($12 * 1024 * ($13 == "MiB" ? 1024 : 1)) }'
}
precision_of() { grep -o '"precision": *"[a-z0-9]*"' "$1/$2" | grep -o '[a-z0-9]*"$' | tr -d '"'; }
run 1 net.ini run.dir=f32
# Without instructions for bf16 the products are emulated; oneDNN of both generations reads one of the two names.
without_bf16() { ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2 run "$@"; }
for type in bf16 fp16; do
    half="precision=$type"
    exact="$half parallel.reproducible=yes"
    run 1 net.ini run.dir=$type.one $half
    ok $? "a run in $type"
    near f32 $type.one 0.02 20 && [ "$(losses f32)" != "$(losses $type.one)" ]
    ok $? "20 steps: losses within 2 % of f32's, and not the same"
    [ "$(precision_of $type.one summary.json)" = $type ]
    ok $? "the summary says so"
    small=$(arena $type) large=$(arena fp32)
    [ "$small" -gt 0 ] && [ "$small" -lt $((large * 6 / 10)) ]
    ok $? "the plan's activations take half of the memory: $small and $large bytes"
    grep -q '"F32"' $type.one/checkpoints/latest/model.safetensors &&
        ! grep -q '"B\?F16"' $type.one/checkpoints/latest/*.safetensors
    ok $? "weights and optimizer state are saved in f32"
    run 1 net.ini run.dir=$type.strict $half device=strict
    [ "$(state $type.one)" = "$(state $type.strict)" ]
    ok $? "the strict device trains to the same bits"
    for r in 1 2 3; do run $r net.ini run.dir=$type.exact$r $exact; done
    [ "$(state $type.exact1)" = "$(state $type.exact2)" ] && [ "$(state $type.exact1)" = "$(state $type.exact3)" ]
    ok $? "1, 2 and 3 ranks, reproducible: the same bits"
    run 2 net.ini run.dir=$type.cut $exact checkpoint.every=9 checkpoint.keep=0
    back_to $type.cut 00000009
    run 3 net.ini run.dir=$type.cut $exact
    ok $? "resumed on 3 ranks from step 9 on 2"
    [ "$(state $type.exact1)" = "$(state $type.cut)" ]
    ok $? "and its end is the uninterrupted run's, bit for bit"
    without_bf16 2 net.ini run.dir=$type.emulated $half
    if "$TRAINER" info | grep -q "x86\|AMD\|Intel"; then
        once out "warning & $type"
        ok $? "a processor without $type: one warning"
    fi
    near $type.one $type.emulated 0.02 20
    ok $? "and the losses are the same within 2 %"
    cp -r $type.one $type.auto
    without_bf16 1 net.ini run.dir=$type.auto train.steps=22 precision=auto
    [ "$(precision_of $type.auto summary.json)" = $type ]
    ok $? "precision = auto: a run that is resumed keeps its checkpoint's"
    run 1 net.ini run.dir=$type.one train.steps=25 precision=fp32
    ok $? "a run goes on in fp32"
    run 1 net.ini run.dir=f32 train.steps=$((n + 20)) $half
    ok $? "and one of fp32 in $type"
done
run 1 net.ini run.dir=plain
without_bf16 2 net.ini run.dir=auto precision=auto
[ "$(precision_of auto summary.json)" = fp32 ] && [ "$(grep -c 'precision = auto: fp32' out)" = 1 ]
ok $? "precision = auto: fp32 where no instructions for bf16 are"

run 1 net.ini run.dir=tf32 precision=tf32
[ "$(grep -c 'precision = tf32:' out)" = 1 ] && [ "$(precision_of tf32 summary.json)" = tf32 ] &&
    [ "$(state tf32)" = "$(state plain)" ]
ok $? "precision = tf32 on a CPU: one note, and the bits of fp32"
echo "1..$n"
