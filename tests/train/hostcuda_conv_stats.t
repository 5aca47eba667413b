#!/usr/bin/env bash
# TEST timeout=200
# cuda.conv_stats on the fakes: convolutions give the sums of batch normalisation, in bf16 and fp16, if asked to.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_conv_stats}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
unset TRAINER_DEVICE # the configuration has it
cat >net.ini <<'INI'
device = cuda
threads = 1
[model]
layers = conv 16 3 pad=same bias=no, batchnorm, relu
    residual { conv 16 3 pad=same bias=no, batchnorm, relu, conv 16 3 pad=same bias=no, batchnorm }, relu
    conv 16 3 pad=same, batchnorm, relu, globalpool, linear 4
[data]
format = synthetic
synthetic_shape = 8x8x3
synthetic_samples = 64
classes = 4
batch_size = 16
micro_batch = 8
[train]
steps = 6
[log]
every = 1
INI
# fused SETTING...: how many convolutions of the program `last` give sums
fused() {
    fakes "$TRAINER" plan net.ini --ops "$@" >out 2>&1 &&
        awk '/^program/ { p = $2 } / fused: conv/ && p == "last" { n = substr($6, 2) } END { print n + 0 }' out
}
[ "$(fused precision=bf16)" = 0 ] && [ "$(fused precision=fp32 cuda.conv_stats=yes)" = 0 ]
ok $? "not by default, and not in fp32"

for p in bf16 fp16; do
    [ "$(fused precision=$p cuda.conv_stats=yes)" = 3 ]
    ok $? "$p: the convolutions without bias"
    rm -rf with without
    HOSTCUDA_TRACE=$PWD/trace \
        fakes "$TRAINER" train net.ini precision=$p cuda.conv_stats=yes run.dir=with >out 2>&1 &&
        fakes "$TRAINER" train net.ini precision=$p run.dir=without >out 2>&1 && near without with 2e-2 6
    ok $? "$p: the loss of training without it"
done
echo "1..$n"
