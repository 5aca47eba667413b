#!/usr/bin/env bash
# TEST timeout=300
# parallel.zero = 1: each rank has a part of the optimizer's state, and with 2 of the gradients. The bits of 2 ranks
# without it, the losses of more, with parallel.reproducible the bits of any number; one format of checkpoints.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/zero}/tests/support/common.sh"
config
gpt_config
zero="parallel.zero=1"
exact="parallel.reproducible=yes"
# pair NAME RANKS CONFIG SETTINGS...: runs without and with it, NAME.none and NAME.1
pair() {
    run "$2" "$3" run.dir="$1.none" "${@:4}" && run "$2" "$3" run.dir="$1.1" $zero "${@:4}"
    ok $? "$1: $2 ranks train, without and with parallel.zero=1"
}
same() { [ "$(state "$1")" = "$(state "$2")" ] && [ "$(losses "$1")" = "$(losses "$2")" ] &&
    [ "$(scores "$1")" = "$(scores "$2")" ]; }
scores() { grep -o '"valid_loss":[^,]*' "$1/metrics.jsonl"; grep 'test_loss"' "$1/summary.json"; }
same_pair() { same "$1.none" "$1.1"; ok $? "$1: the same bits"; }

# Several micro-batches for each rank, clipping, a moving average in the validations; a network that is smaller than
# the part of one rank.
pair net 2 net.ini train.valid_every=7 && same_pair net
pair gpt 2 gpt.ini optimizer.ema=0.9 && same_pair gpt
[ "$(scores gpt.1 | grep -c '"valid_loss')" = 2 ]
ok $? "gpt: it was validated twice"
pair bf16 2 gpt.ini precision=bf16 optimizer.ema=0.9 && same_pair bf16
run 3 gpt.ini run.dir=gpt3 $zero && run 3 gpt.ini run.dir=gpt3.none && near gpt3 gpt3.none 1e-5 12
ok $? "gpt: 3 ranks, losses within 1e-5"

# moved NAME RANKS SETTINGS...: 4 steps on the ranks with it, 4 on 2 without, 4 on 3 with it: the bits of NAME.whole
moved() {
    local name=$1 ranks=$2
    shift 2
    run 2 gpt.ini run.dir="$name.whole" $exact "$@"
    run "$ranks" gpt.ini run.dir="$name" $exact $zero "$@" train.steps=4 &&
        run 2 gpt.ini run.dir="$name" $exact "$@" train.steps=8 && resumed step-00000004 &&
        run 3 gpt.ini run.dir="$name" $exact $zero "$@" && resumed step-00000008
    ok $? "$name: $ranks ranks with it, resumed on 2 without, resumed on 3 with it"
    [ "$(state "$name")" = "$(state "$name.whole")" ] && [ "$(losses "$name")" = "$(losses "$name.whole")" ]
    ok $? "$name: the bits of an uninterrupted run"
}
moved moved 3

# A tensor that is missing is an error, never zeros; and a resume that is refused leaves the run as it was.
gone=transformer.wte.weight.adam.v
"$BUILD/tests/train/make_without" moved/checkpoints/latest $gone moved/checkpoints 2>out &&
    before=$(cat moved/config.ini moved/checkpoints/*/* | sha256sum) &&
    { run 2 gpt.ini run.dir=moved $zero train.steps=20; [ $? = 78 ]; } &&
    names out "trainer: error & moved/checkpoints/step-00000012 & $gone" &&
    [ "$(grep -c 'trainer: error' out)" = 1 ] &&
    [ "$(cat moved/config.ini moved/checkpoints/*/* | sha256sum)" = "$before" ]
ok $? "moved: without the second moment of one tensor it is refused, and stays as it was"

# Each rank verifies a part of a checkpoint: what rank 1 finds, rank 0 says, and the one before it serves.
damage() { printf 'damaged!' | dd of="$1" bs=1 seek=$(($(stat -c %s "$1") - 8)) conv=notrunc 2>/dev/null; }
cp -r moved parts && damage parts/checkpoints/step-00000012/optimizer.safetensors &&
    run 2 gpt.ini run.dir=parts $exact $zero train.steps=16 && resumed step-00000008 &&
    names out 'parts/checkpoints/step-00000012/optimizer.safetensors & checksum'
ok $? "a damaged part of the newest checkpoint: the one before it serves"
for f in parts/checkpoints/step-*/optimizer.safetensors; do damage "$f"; done
run 2 gpt.ini run.dir=parts $exact $zero train.steps=20
[ $? = 65 ] && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "none is whole: code 65, one error"

# What each rank sends in a step: the parts of 4-byte gradients are scattered, and parts of 4-byte weights or 2-byte
# copies gathered, each (n - 1) / n of them; that is half of an all-reduce. The rest is small.
if command -v python3 >/dev/null; then
    sharded=61440 # elements: 37116 of matrices, each rounded up to 4096, and all to 3 x 4096
    for type in fp32 bf16; do
        run 3 gpt.ini run.dir=sent.$type $zero precision=$type train.steps=3 profile.steps=2:3 &&
            python3 -I -c '
import json, sys
sharded, copy_bytes = int(sys.argv[1]), int(sys.argv[2])
for file in sys.argv[3:]:
    sent = {}
    for e in json.load(open(file))["traceEvents"]:
        if e.get("cat") == "bucket" and e["args"]["step"] == 3:
            sent.setdefault(e["args"]["bucket"], []).append(e["args"]["bytes"])
    rest = sum(sum(sent.pop(b)) for b in (-1, max(sent)))
    scattered, gathered = (sum(b[i] for b in sent.values()) for i in (0, 1))
    print(file, scattered, gathered, rest, len(sent))
    if (scattered, gathered) != (4 * sharded, copy_bytes * sharded) or rest > 0.05 * scattered: sys.exit(1)
' $sharded $([ $type = fp32 ] && echo 4 || echo 2) sent.$type/profile/trace-r000?.json >>out
        ok $? "$type: the bytes of a step"
    done
else
    skip "the bytes of a step" "no python3"
fi

# Overflows are skipped alike.
fp16="precision=fp16 optimizer.loss_scale=268435456 optimizer.loss_scale_growth=2 train.steps=18"
pair fp16 2 gpt.ini $fp16 && grep -q '"overflows":[1-9]' fp16.1/metrics.jsonl && same_pair fp16

run 1 gpt.ini run.dir=alone $zero && run 1 gpt.ini run.dir=alone.none && same alone alone.none
ok $? "one rank shares with nobody"
run 2 net.ini run.dir=strict.none device=strict && run 2 net.ini run.dir=strict device=strict $zero \
    checkpoint.every=5 parallel.check=3 train.valid_every=7 && [ "$(state strict.none)" = "$(state strict)" ]
ok $? "the device strict: the same bits, with a checkpoint while the next step runs"
TRAINER_FLIP_BIT=1:3 run 2 gpt.ini run.dir=flip $zero precision=bf16 parallel.check=1
[ $? = 75 ] && names out "trainer: error & step 3 & rank 1"
ok $? "a copy of a weight that differs on a rank is found"

# -- parallel.zero = 2: with one micro-batch for each rank and shared memory, the bits without it -------------------
two="parallel.zero=2"
# stage_2 NAME RANKS CONFIG SETTINGS...: the bits of a run without it
stage_2() {
    local batch=48
    [ "$3" = net.ini ] || batch=12
    run "$2" "$3" run.dir="$1.none" data.micro_batch=$((batch / $2)) "${@:4}" &&
        run "$2" "$3" run.dir="$1.2" data.micro_batch=$((batch / $2)) $two "${@:4}" && same "$1.none" "$1.2"
    ok $? "$1: $2 ranks with parallel.zero=2: the bits of a run without it"
}
stage_2 gpt4 4 gpt.ini precision=bf16 optimizer.ema=0.9
if all; then
    stage_2 net2 2 net.ini train.valid_every=7
    stage_2 gpt2 2 gpt.ini optimizer.ema=0.9
    stage_2 fp16.2 2 gpt.ini $fp16 && grep -q '"overflows":[1-9]' fp16.2.2/metrics.jsonl
    ok $? "overflows are skipped"
    stage_2 strict2 2 net.ini device=strict checkpoint.every=5 parallel.check=3
    run 3 net.ini run.dir=several3 $two device=strict &&
        run 3 net.ini run.dir=several3.none && near several3 several3.none 1e-5 5
    ok $? "two micro-batches for each rank, on the device strict: losses within 1e-5"
    stage_2 poll2 2 gpt.ini parallel.engine=poll
    stage_2 late2 2 gpt.ini parallel.overlap=no
    stage_2 unfused2 2 gpt.ini fuse=no precision=bf16
    stage_2 frozen2 2 gpt.ini 'model.freeze=transformer.h.0.*'
    stage_2 sgd2 2 net.ini optimizer.type=sgd
    stage_2 few4 4 gpt.ini parallel.bucket=100KiB
    stage_2 tuned2 2 gpt.ini model.init=moved.whole precision=bf16
fi
# With three micro-batches that order is the fixed one, so that all these runs have the same bits.
three="data.micro_batch=4"
run 1 gpt.ini run.dir=whole2 $exact $three
run 3 gpt.ini run.dir=moved2 $two $three train.steps=3 &&
    run 2 gpt.ini run.dir=moved2 $exact $zero $three train.steps=6 && resumed step-00000003 &&
    run 3 gpt.ini run.dir=moved2 $two $three && resumed step-00000006 &&
    [ "$(state whole2)" = "$(state moved2)" ] && [ "$(losses whole2)" = "$(losses moved2)" ]
ok $? "3 ranks with 2, resumed on 2 ranks with 1, on 3 with 2: the bits of an uninterrupted run on 1 without"
run 2 gpt.ini run.dir=several $two optimizer.ema=0.9 && near several gpt.none 1e-5 12
ok $? "three micro-batches for each rank: losses within 1e-5"
run 4 gpt.ini run.dir=refused $two
[ $? = 78 ] && names out "trainer: error & 6 & 4 ranks & data.batch_size = 16 & parallel.zero = 1"
ok $? "six micro-batches for four ranks are refused"
run 2 gpt.ini run.dir=refused $two $exact
[ $? = 78 ] && names out "trainer: error & parallel.reproducible & parallel.zero = 1"
ok $? "sums in a fixed order are refused"
run 2 gpt.ini run.dir=moved2 $two $three train.steps=20
[ $? = 78 ] && names out "trainer: error & 3 & 2 ranks & parallel.zero = 1 & 3 ranks"
ok $? "a resume that would have other micro-batches is refused"

# The plan, with the copy for checkpoints, and what a process takes for a small model.
if all; then
    sed 's/n_embd = 36/n_embd = 512/; s/n_head = 2/n_head = 8/; s/vocab_size = 151/vocab_size = 20000/; s/^dropout.*//
         s/^valid_every.*/valid_every = 0/; s/^micro_batch.*/micro_batch = 1/; s/^steps = .*/steps = 1000/' gpt.ini |
        grep -v '^bucket' >wide.ini
    # pss CONFIG SETTINGS...: the proportional set size of rank 1 of 2 in training, in KiB
    pss() {
        "$MPIEXEC" -np 2 "$TRAINER" "$@" run.dir=wide >out 2>&1 &
        local job=$! pid launcher
        until_true [ -s wide/metrics.jsonl ]
        for launcher in $(cat /proc/$job/task/*/children); do
            for pid in $(cat /proc/"$launcher"/task/*/children); do
                tr '\0' '\n' <"/proc/$pid/environ" | grep -qE '^(PMIX_RANK|OMPI_COMM_WORLD_RANK)=1$' &&
                    sed -n 's/^Pss: *\([0-9]*\) kB/\1/p' "/proc/$pid/smaps_rollup"
            done
        done
        kill "$job"
        wait "$job"
        rm -rf wide
    }
    for stage in 1 2; do
        for type in fp32 bf16; do
            with=(parallel.zero=$stage precision=$type data.batch_size=2)
            planned=$("$TRAINER" plan wide.ini --ranks 2 "${with[@]}" |
                awk '$1 == 2 && $NF == "MiB" { print ($(NF - 5) + $(NF - 1)) * 1024 }') # total and checkpoint
            small=$(pss gpt.ini train.steps=100000 train.valid_every=0 $zero) large=$(pss wide.ini "${with[@]}")
            echo "$stage, $type: planned $planned KiB, $large measured, $small of a small model" >>out
            awk -v p="$planned" -v l="$large" -v s="$small" \
                'BEGIN { d = (p + s) / l - 1; exit !(l > 0 && d < 0.04 && d > -0.04) }'
            ok $? "parallel.zero=$stage, $type: the memory of a rank is planned within 4 %"
        done
    done
fi

# With make test-all: other optimizers, engines and numbers of ranks, frozen parameters, fine-tuning.
if all; then
    for optimizer in sgd adam; do
        pair $optimizer 2 net.ini optimizer.type=$optimizer && same_pair $optimizer
    done
    pair plain 2 gpt.ini optimizer.type=sgd optimizer.momentum=0 && same_pair plain
    pair poll 2 gpt.ini parallel.engine=poll parallel.overlap=no && same_pair poll
    pair unfused 2 gpt.ini fuse=no precision=bf16 && same_pair unfused
    pair frozen 2 gpt.ini 'model.freeze=transformer.h.0.*' && same_pair frozen
    pair uneven 2 gpt.ini data.batch_size=14 && same_pair uneven
    pair tuned 2 gpt.ini model.init=moved.whole precision=bf16 && same_pair tuned
    for r in 3 4; do
        for type in fp32 bf16; do
            run 1 gpt.ini run.dir=$type.one $exact precision=$type &&
                pair $type.$r $r gpt.ini $exact precision=$type && same_pair $type.$r && same $type.one $type.$r.1
            ok $? "$r ranks, $type: the bits of one rank"
            rm -rf $type.one
        done
        run $r net.ini run.dir=net$r $zero && run $r net.ini run.dir=net$r.none && near net$r net$r.none 1e-5 5
        ok $? "net: $r ranks, losses within 1e-5"
    done
    for type in fp32 bf16; do moved $type.moved 4 precision=$type optimizer.ema=0.9; done
fi
echo "1..$n"
