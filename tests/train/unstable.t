#!/usr/bin/env bash
# TEST timeout=60
# configs/unstable.ini, on drawn images: only a loss scale lets fp16 train it.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/unstable}/tests/support/common.sh"

command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }

net=("$TRAINER_ROOT/configs/unstable.ini" data.format=synthetic data.train=none data.synthetic_samples=4096
    data.mean=compute data.std=compute data.valid_fraction=0.25 train.epochs=8 checkpoint.every=0 threads=1)
for seed in 1 2 3; do
    for precision in fp32 bf16 fp16; do
        call 0 "${net[@]}" train.seed=$seed precision=$precision run.dir=$precision-$seed &&
            json 'a["valid_accuracy"] > 0.9 and abs(a["valid_accuracy"] - b["valid_accuracy"]) <= 0.01' \
                $precision-$seed/summary.json fp32-$seed/summary.json
        ok $? "seed $seed, $precision: it trains, within 1 % of fp32"
    done
    "$TRAINER" "${net[@]}" train.seed=$seed precision=fp16 optimizer.loss_scale=1 optimizer.loss_scale_growth=0 \
        run.dir=bare-$seed >out 2>&1
    code=$?
    [ $code = 93 ] || { [ $code = 0 ] && json 'a["valid_accuracy"] < 0.2' bare-$seed/summary.json; }
    ok $? "seed $seed, fp16 with a loss scale of 1: code 93 or chance (code $code)"
done
echo "1..$n"
