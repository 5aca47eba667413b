#!/usr/bin/env bash
# Merged operations: plan --ops lists them, and training has the same bits with and without them.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/fuse}/tests/support/common.sh"
cat >net.ini <<'INI'
threads = 1
[model]
layers = conv 8 3 pad=same bias=no, batchnorm, relu
    residual { conv 8 3 pad=same bias=no, batchnorm, relu, conv 8 3 pad=same bias=no, batchnorm }, relu
    residual { conv 16 3 pad=same stride=2 bias=no, batchnorm } { conv 16 1 stride=2 bias=no, batchnorm }, relu
    globalpool, linear 4
[data]
format = synthetic
synthetic_shape = 8x8x3
synthetic_samples = 64
classes = 4
batch_size = 16
micro_batch = 4
[train]
steps = 6
INI
fused() {
    "$TRAINER" plan net.ini --ops "$@" >out 2>&1 &&
        awk '/^program/ { p = $2 }
             / fused: / { n[p " " $2 " " $4] = substr($5, 2) }
             END {
                 exit !(n["last batchnorm_train add"] == 2 && n["last act_bwd batchnorm_bwd"] == 2 &&
                        n["last gradient accumulate"] > 10)
             }' out
}
fused
ok $? "plan --ops lists what was merged"

"$TRAINER" plan net.ini --ops precision=bf16 data.rotate=10 >out 2>&1 &&
    awk '/^program/ { p = $2 }
         /fused: (cast_normalize [+] augment|input [+] cast) \(1 times\)/ { n[p]++ }
         END { exit !(n["last"] == 2 && n["eval"] == 1) }' out
ok $? "the input of last is one record, as is that of eval, which does not augment"
! fused fuse=no && ! grep -q fused: out
ok $? "fuse = no: nothing"
nets=(
    "device=cpu"
    "device=strict"
    "device=cpu precision=bf16"
    "device=cpu precision=fp16"
    "device=cpu parallel.reproducible=yes"
    "device=cpu data.micro_batch=16"
    "device=cpu precision=bf16 data.rotate=10 data.translate=0.1 data.crop_pad=1"
    "device=strict precision=fp16 data.crop_pad=2 data.flip=yes"
)
for net in "${nets[@]}"; do
    rm -rf yes no
    run 1 net.ini run.dir=yes $net && run 1 net.ini run.dir=no $net fuse=no && [ "$(state yes)" = "$(state no)" ]
    ok $? "$net: the same bits"
done
run 2 net.ini run.dir=two parallel.reproducible=yes &&
    run 1 net.ini run.dir=one parallel.reproducible=yes fuse=no && [ "$(state two)" = "$(state one)" ]
ok $? "two ranks with it, one without: the same bits"
echo "1..$n"
