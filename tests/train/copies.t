#!/usr/bin/env bash
# The half-precision copies of parameters: they follow the parameters through update, skipped steps, loading and the
# moving average.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/copies}/tests/support/common.sh"
config
half="data.valid=synthetic data.test=none"
scores() { sed -n 's/.*"valid_loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
ops() {
    "$TRAINER" plan net.ini --ops "$@" >out 2>&1 &&
        awk '/^program/ { p = $2 }
             /^ +[0-9]+ +cast / { n[p]++ }
             / fused: optimizer/ { f[p] = substr($5, 2) }
             END { print n["last"] + 0, n["update"] + 0, f["update"] + 0, n["copies"] + 0 }' out
}
# of the loss and its gradient; without fusion also of the input
[ "$(ops precision=bf16)" = "2 0 1 1" ]
ok $? "no program casts a weight; the optimizer writes the copies: $(ops precision=bf16)"

[ "$(ops precision=bf16 fuse=no)" = "3 1 0 1" ]
ok $? "fuse = no: update casts them after it: $(ops precision=bf16 fuse=no)"
[ "$(ops precision=fp32)" = "0 0 0 0" ]
ok $? "fp32: there are none"
nets=(
    "precision=bf16"
    "precision=fp16"
    "precision=bf16 device=strict"
    "precision=bf16 optimizer.type=sgd"
    "precision=fp16 optimizer.loss_scale=1073741824"
)
for net in "${nets[@]}"; do
    rm -rf yes no every
    run 1 net.ini run.dir=yes $net $half &&
        run 1 net.ini run.dir=no $net $half fuse=no && [ "$(state yes)" = "$(state no)" ]
    ok $? "$net: the same bits with the cast apart"
    run 1 net.ini run.dir=every $net $half train.valid_every=5 && [ "$(state yes)" = "$(state every)" ]
    ok $? "$net: evaluations of the average do not change the training"
    "$TRAINER" eval every --split valid --json eval.json >out 2>&1 &&
        [ "$(scores every | tail -n1 | xargs printf %.7g)" = \
            "$(sed -n 's/^ "loss": \(.*\),/\1/p' eval.json | xargs printf %.7g)" ]
    ok $? "$net: the last validation is the score of its checkpoint"
done
echo "1..$n"
