#!/usr/bin/env bash
# TEST timeout=300
# precision = fp16: overflows that a scale above the limit injects are skipped and recovered from, alike on any ranks,
# over a resume, on the devices strict and (the fakes of) cuda.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/loss_scale}/tests/support/common.sh"
config
# From 2^30 the scale falls by halves; every third good step doubles it, until the next overflow.
fp16="precision=fp16 optimizer.loss_scale=1073741824 optimizer.loss_scale_growth=3 train.steps=24"
exact="$fp16 parallel.reproducible=yes"
skips() { grep -o '^step [0-9]*: .*overflow.*' out | grep -o '^step [0-9]*' | tr -dc '0-9\n' | paste -sd,; }
run 1 net.ini run.dir=one $exact
ok $? "a run whose scale is too high at first does not stop, although train.on_nan = stop"

steps=$(skips)
[ "$(echo "$steps" | tr , '\n' | wc -l)" -ge 8 ] && case $steps in 1,2,3,*) true ;; *) false ;; esac
ok $? "it skips steps: $steps"
last=${steps##*,}
[ "$last" -gt 12 ] && [ "$last" -lt 24 ] && grep -q "$(printf '"step":%d,.*"loss_scale":' "$last")" one/metrics.jsonl
ok $? "the scale grows back, and step $last overflows again"
grep -qa '"loss_scale":{' one/checkpoints/latest/optimizer.safetensors
ok $? "the scale is in the checkpoint"
for r in 2 4; do
    run $r net.ini run.dir=$r $exact
    [ "$(state one)" = "$(state $r)" ] && [ "$(skips)" = "$steps" ]
    ok $? "$r ranks skip the same steps, and end with the same bits"
done
# Step 5 lies in the fall, the one before the last overflow in the growth.
for from in 5 $((last - 1)); do
    run 4 net.ini run.dir=cut$from $exact checkpoint.every=$from checkpoint.keep=0
    back_to cut$from "$(printf %08d "$from")"
    run 2 net.ini run.dir=cut$from $exact
    [ "$(skips)" = "$(echo "$steps" | tr , '\n' | awk -v from="$from" '$1 > from' | paste -sd,)" ] &&
        [ "$(state cut$from)" = "$(state one)" ]
    ok $? "resumed at step $from: the same bits"
done
run 1 net.ini run.dir=strict $exact device=strict
[ "$(state strict)" = "$(state one)" ]
ok $? "the strict device: the same bits"

run 2 net.ini run.dir=bad precision=fp16 optimizer.loss_scale=16 optimizer.lr=1e6
code=$?
[ $code = 93 ] && names out 'trainer: error' 'step 2' && ! grep -q '^step .*overflow' out
ok $? "a loss that is not finite is no overflow: the run stops at once, code 93"
if [ -e "$BUILD/hostcuda/libtrainer_cuda.so" ]; then
    # gpus RANKS ARGUMENTS...
    gpus() { HOSTCUDA_DEVICES=$1 fakes "$MPIEXEC" -np "$1" "$TRAINER" "${@:2}" device=cuda >out 2>&1; }
    small="data.micro_batch=24 train.steps=16"
    for r in 1 2; do
        gpus $r net.ini run.dir=cuda$r $fp16 $small
        [ $? = 0 ] && [ "$(skips | tr , '\n' | wc -l)" -ge 6 ]
        ok $? "device cuda, $r ranks: overflows are skipped: $(skips)"
    done
    cp -r cuda1 whole
    rm -rf cuda1
    gpus 1 net.ini run.dir=cuda1 $fp16 $small checkpoint.every=7 checkpoint.keep=0
    back_to cuda1 00000007
    gpus 1 net.ini run.dir=cuda1 $fp16 $small
    [ "$(state cuda1)" = "$(state whole)" ]
    ok $? "device cuda, resumed in the fall: the same bits"
fi
echo "1..$n"
