#!/usr/bin/env bash
# Training on an asynchronous device: the same checkpoints as on the CPU, bit for bit, saved while the next step runs;
# stopped, resumed, validated.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/strict}/tests/support/common.sh"
config
often="checkpoint.every=3 checkpoint.keep=0 train.valid_every=7"
sums() {
    for c in "$1"/checkpoints/step-*; do
        echo "${c##*/} $(cat "$c/model.safetensors" "$c/optimizer.safetensors" | sha256sum)"
    done
}
# Steps are slow enough for each checkpoint to be on the disk before the next one is due.
slow_run() {
    local slow=()
    ! can_preload || slow=(-x LD_PRELOAD="$fail_lib" -x FAIL_STEP=30)
    "$MPIEXEC" -np 1 "${slow[@]}" "$TRAINER" "$@" >out 2>&1
}
slow_run net.ini run.dir=cpu $often
ok $? "cpu: checkpoints every 3 steps"

slow_run net.ini run.dir=strict device=strict $often
ok $? "strict: likewise"
[ "$(sums cpu | wc -l)" -ge 3 ] && [ "$(sums cpu | join - <(sums strict) | awk '$2 != $4')" = "" ] &&
    [ "$(state cpu)" = "$(state strict)" ]
ok $? "checkpoints of the same step have the same bits"
[ "$(losses cpu)" = "$(losses strict)" ] && [ "$(losses cpu | wc -l)" -ge 20 ]
ok $? "and so have all losses"
# One micro-batch: the forward pass and the update are one executable, except where a checkpoint is due.
slow_run net.ini run.dir=cpu1 $often data.micro_batch=48 &&
    slow_run net.ini run.dir=strict1 device=strict $often data.micro_batch=48
[ $? = 0 ] && [ "$(sums cpu1 | wc -l)" -ge 3 ] &&
    [ "$(sums cpu1 | join - <(sums strict1) | awk '{ n++ } $2 != $4 { n = 0; exit } END { print n }')" -ge 3 ] &&
    [ "$(losses cpu1)" = "$(losses strict1)" ] && [ "$(state cpu1)" = "$(state strict1)" ]
ok $? "one micro-batch: the same checkpoints and losses"

run 2 net.ini run.dir=two parallel.reproducible=yes
run 2 net.ini run.dir=two-strict device=strict parallel.reproducible=yes checkpoint.every=4
[ $? = 0 ] && [ "$(state two)" = "$(state two-strict)" ]
ok $? "two ranks: the same bits"
run 1 net.ini run.dir=half device=strict checkpoint.every=5 checkpoint.keep=0
last=$(ls half/checkpoints | grep step- | sort | sed -n 1p)
back_to half "${last#step-}" && run 1 net.ini run.dir=half device=strict
[ $? = 0 ] && resumed "$last" && [ "$(state half)" = "$(state cpu)" ]
ok $? "resumed from a checkpoint that was saved during a step: the same bits"
echo "1..$n"
