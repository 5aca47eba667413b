#!/usr/bin/env bash
# TEST timeout=300
# The same run on 1 to 4 ranks: the same samples in the same steps, the same losses, and with parallel.reproducible
# the same bits.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/ranks}/tests/support/common.sh"
config
for r in 1 2 3 4; do
    run $r net.ini run.dir=fast$r
    ok $? "$r ranks train"
    run $r net.ini run.dir=exact$r parallel.reproducible=yes
    ok $? "$r ranks train, reproducible"
done
for r in 2 3 4; do
    near fast1 fast$r 1e-5 5
    ok $? "1 and $r ranks: losses within 1e-5 over 5 steps"
    [ "$(state exact1)" = "$(state exact$r)" ] && [ "$(losses exact1)" = "$(losses exact$r)" ]
    ok $? "1 and $r ranks, reproducible: the same bits"
done
run 3 net.ini run.dir=late3 parallel.overlap=no parallel.engine=poll
[ "$(state fast3)" = "$(state late3)" ]
ok $? "overlapped = not overlapped, thread or polling"

for engine in poll thread; do
    TRAINER_SHARED_MEMORY=0 run 2 net.ini run.dir=apart$engine parallel.engine=$engine &&
        names out TRAINER_SHARED_MEMORY=0 && ! grep -q "shared memory" fast2/log.txt &&
        [ "$(state fast2)" = "$(state apart$engine)" ] && [ "$(losses fast2)" = "$(losses apart$engine)" ]
    ok $? "two ranks, gradients reduced in shared memory or by MPI ($engine): the same bits"
done
gpt2="$TRAINER_ROOT/configs/gpt2_124m.ini data.format=synthetic_tokens data.batch_size=2 data.micro_batch=1"
# shellcheck disable=SC2086
call 78 plan $gpt2 --ranks 2 parallel.bucket=1 && once err "trainer: error & parallel.bucket = 1 & 10000 & 49778" &&
    call 0 plan $gpt2 --ranks 2 parallel.bucket=49778
ok $? "too many buckets are refused"
run 3 net.ini run.dir=never schedule.warmup=abc
[ $? = 78 ] && once out "trainer: error & schedule.warmup & 'abc'"
ok $? "an error of all ranks is told once"
run 2 net.ini run.dir=small parallel.bucket_first=256 parallel.bucket=1k
near small fast2 1e-5 5
ok $? "many small buckets train alike"
run 1 net.ini run.dir=strict device=strict
[ "$(state fast1)" = "$(state strict)" ]
ok $? "the strict device trains to the same bits: no event is missing, nothing dead is read"
run 2 net.ini run.dir=strict2 device=strict
near strict2 fast2 1e-5 5
ok $? "two ranks on the strict device, through staged reductions"
run 7 net.ini run.dir=many
[ $? = 78 ] && names out "trainer: error & 7 & 6" && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "more ranks than micro-batches: one message, code 78"
# A container sees all cores of its machine, and may be granted the time of one.
cat >limited.sh <<'SH'
mount -t tmpfs tmpfs /sys/fs/cgroup && echo "100000 100000" >/sys/fs/cgroup/cpu.max &&
    "$TRAINER" net.ini run.dir=limited threads=auto train.steps=1 >out 2>&1
echo $?
SH
if [ "$(unshare -rm bash limited.sh 2>/dev/null)" = 0 ]; then
    grep -q '"threads": 1,' limited/summary.json
    ok $? "a limit of processors' time counts as much as the cores do"
else
    ok 0 "a limit of processors' time # SKIP no control group can be made up here"
fi
# Ranks whose files of one name differ, as copies on the disks of nodes may.
"$TRAINER" import synthetic digits long.h5 --samples 200 >out 2>&1 &&
    "$TRAINER" import synthetic digits short.h5 --samples 150 >>out 2>&1
ok $? "two files of unlike lengths"

sed 's/^format = .*/train = copy.h5/; /^synthetic/d; /^classes/d' net.ini >file.ini
mkdir -p a b && ln -sf ../long.h5 a/copy.h5 && ln -sf ../short.h5 b/copy.h5
cat >rank <<'SH'
#!/bin/sh
[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" = 0 ] && cd a || cd b
exec "$TRAINER" ../file.ini run.dir=differ
SH
chmod +x rank
"$MPIEXEC" -np 2 ./rank >out 2>&1
[ $? = 65 ] && names out "trainer: error & 2 & rank 0" && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "ranks with unlike data do not begin"

# One micro-batch of 32 against four of 8, on 32 samples, so that a step has all of them either way; no batch-norm,
# whose statistics are of a micro-batch, and no dropout.
cat >sum.ini <<'INI'
threads = 1
[model]
layers = flatten, linear 32, gelu, linear 10
[data]
format = synthetic
synthetic_samples = 32
synthetic_shape = 12x12x1
classes = 10
batch_size = 32
[train]
steps = 10
[log]
every = 1
INI
run 1 sum.ini run.dir=whole data.micro_batch=32
run 1 sum.ini run.dir=parts data.micro_batch=8
near whole parts 1e-4 10
ok $? "accumulation 4 x 8 = batch 32"

# Three slots on two ranks: one rank adds up and the other does not, so each finishes a layer's weight and bias in
# another order.
run 2 sum.ini run.dir=uneven data.synthetic_samples=96 data.batch_size=24 data.micro_batch=8 \
    parallel.bucket_first=18000 parallel.bucket=18000
ok $? "uneven ranks reduce their buckets in one order"
run 1 sum.ini run.dir=alone data.synthetic_samples=96 data.batch_size=24 data.micro_batch=8
near uneven alone 1e-4 10
ok $? "and train as one rank does"

# A batch that the ranks do not share evenly may have no divisor but 1.
run 3 net.ini run.dir=prime data.batch_size=31 data.micro_batch=auto train.steps=2
[ $? = 0 ] && once out "warning & data.batch_size = 31 & 3 & data.batch_size = 33"
ok $? "data.micro_batch = auto that falls to 1 is said once, with the remedy"

# Processes that no launcher started do not start MPI: they have no folder, which one of Open MPI's would remove while
# another makes it, and listen to nobody.
mkdir folder
alone() { TMPDIR=$PWD/folder "$TRAINER" net.ini "$@"; }
alone run.dir=single >out 2>&1 && [ "$(state single)" = "$(state fast1)" ] && [ "$(losses single)" = "$(losses fast1)" ]
ok $? "one rank of mpirun and a process without a launcher: the same bits"
for p in 1 2 3 4 5; do
    for i in 1 2; do alone run.dir=beside$p$i train.steps=1 >beside$p.log 2>&1 || echo "$p$i" >>failed; done &
done
wait
[ ! -e failed ] && [ "$(cat beside??/verdict | grep -cx done)" = 10 ]
ok $? "five loops of short runs beside each other"
listening() { # PID
    find "/proc/$1/fd" -lname 'socket:*' -printf '%l\n' | tr -dc '0-9\n' >sockets
    awk 'NR == FNR { own[$1] } $4 == "0A" && $10 in own' sockets "/proc/$1/net/tcp" "/proc/$1/net/tcp6"
}
TMPDIR=$PWD/folder "$TRAINER" net.ini run.dir=open train.steps=1000000 >out 2>&1 &
until_true [ -s open/metrics.jsonl ] && [ "$(ls folder)$(listening $!)" = "" ]
ok $? "no folder, and no socket that listens"
kill $!
wait $!
[ $? = 75 ] && [ -z "$(ls folder)" ]
ok $? "TERM ends it with code 75"
echo "1..$n"
