#!/usr/bin/env bash
# The scripts of slurm/ and tools/scaling_sweep_local.sh: their help, what they refuse, and sweeps without SLURM.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/scripts}/tests/support/common.sh"
export TRAINER
slurm=$TRAINER_ROOT/slurm local=$TRAINER_ROOT/tools/scaling_sweep_local.sh
for script in "$slurm"/train_*.sh "$slurm/scaling_sweep.sh" "$local"; do
    name=${script##*/}
    "$script" --help >out 2>&1 && grep -q "^$name: " out && grep -q 'CONFIG.ini' out && ! grep -q '^here=' out
    ok $? "$name --help"
    "$script" --nonsense >out 2>&1
    [ $? = 2 ]
    ok $? "$name refuses an unknown option"
done
"$slurm/serve.sh" --help >out 2>&1 && grep -q '^serve.sh: ' out && ! grep -q '^here=' out && {
    "$slurm/serve.sh" --slots 2 >out 2>&1
    [ $? = 2 ]
} && printf '#!/bin/sh\necho "$@" >words; echo http://node7:81 >serve-9.address; sleep 2\n' >program &&
    chmod +x program &&
    SLURM_JOB_ID=9 SLURM_SUBMIT_HOST=login TRAINER=./program LAUNCHER=mpirun MPIRUN_OPTIONS="-np 1" \
        "$slurm/serve.sh" run --slots 2 device=cpu >out 2>&1 &&
    grep -q 'ssh -N -L 8080:node7:81 login$' out && grep -q '^serve run --slots 2 device=cpu .*--token-file' words
ok $? "serve.sh starts a server and says how to reach it"
if command -v shellcheck >/dev/null; then
    (cd "$TRAINER_ROOT" && shellcheck slurm/*.sh tools/scaling_sweep_local.sh tests/slurm/cluster.sh) >out 2>&1
    ok $? "shellcheck finds nothing"
fi

config
key() { sed -n "/^\[${2%.*}\]/,/^\[/s/^${2#*.} *= *//p" "$1/config.ini"; } # RUN SECTION.KEY
"$local" --mode weak --nodes 1,2 --repeat 2 --config net.ini --out weak train.steps=2 >out 2>&1
[ $? = 0 ] && [ "$(key weak/weak-n1-r1 data.batch_size) $(key weak/weak-n2-r2 data.batch_size)" = "48 96" ] &&
    tail -n 1 out | grep -q 'report weak/weak-n\*-r\*/ --out weak/report$'
ok $? "a weak sweep: the batch grows with the nodes"

"$local" --mode strong --nodes 1,2,5 --config net.ini --out strong train.steps=2 >out 2>&1
[ $? = 2 ] && grep -q 'does not divide among 5 ranks' out && [ ! -e strong ]
ok $? "a strong sweep whose batch does not divide is refused before its first run"
"$local" --mode strong --nodes 1,2 --config net.ini --out strong train.steps=2 >out 2>&1
[ "$(key strong/strong-n2-r1 data.batch_size) $(key strong/strong-n2-r1 data.micro_batch)" = "48 24" ]
ok $? "a strong sweep: the batch stays, a micro-batch for each rank"
cp strong/strong-n1-r1/metrics.jsonl kept
"$local" --mode strong --nodes 2,1 --config net.ini --out strong train.steps=4 >out 2>&1
[ $? = 2 ] && grep -q 'strong/strong-n2-r1.*--out' out && cmp strong/strong-n1-r1/metrics.jsonl kept
ok $? "a sweep into folders that have runs is refused"
# SLURM: one node of 4 ranks, and 5 with an option of sbatch; nothing is submitted
"$slurm/scaling_sweep.sh" --mode strong --nodes 1,7 --config net.ini --out new data.batch_size=48 >out 2>&1
[ $? = 2 ] && grep -q 'among 28 ranks' out &&
    "$slurm/scaling_sweep.sh" --mode strong --nodes 1 --config net.ini --out new -- --ntasks-per-node=5 >out 2>&1
[ $? = 2 ] && grep -q 'among 5 ranks' out && [ ! -e new ]
ok $? "and by SLURM, with its number of ranks per node"

"$local" --mode weak --nodes 1,2 --config net.ini --out bad train.steps=2 model.layers="linear 3" data.classes=10 \
    >out 2>&1
[ $? = 1 ] && [ "$(grep -c 'failed, see bad/weak-n[12]-r1.log' out)" = 2 ]
ok $? "a member that fails does not stop the others"
grep -q '^no 78 ' bad/weak-n1-r1/verdict &&
    "$TRAINER" report bad/weak-n*-r*/ --out bad/report >out 2>&1 &&
    [ "$(grep -c '"code": 78' bad/report/summary.json)" = 2 ]
ok $? "the report lists it"
# Short jobs, with the functions of requeue.sh and a squeue of our own.
# in_job AGO LEFT COMMAND...: in a job that began AGO seconds ago and has LEFT seconds
in_job() {
    (
        . "$slurm/requeue.sh"
        now=$(date +%s)
        begun=$(date -d "@$((now - $1))" +%FT%T) over=$(date -d "@$((now + $2))" +%FT%T)
        squeue() { echo "$begun $over"; }
        SLURM_JOB_ID=1 run_dir=short holder=
        job_times
        shift 2
        "$@"
    ) >out 2>&1
}
# warned TIMES: how many USR1 reach a process, of which the first is held back for ever
warned() {
    local victim
    bash -c 'trap "echo got" USR1; echo ready; while :; do sleep 0.1; done' &
    victim=$!
    until_true grep -q ready out # its trap is set
    for _ in $(seq "$1"); do warn "$victim"; sleep 0.3; done
    sleep 1
    kill "$victim" ${holder:+"$holder"}
}
in_job 20 220 warned 1 && ! grep -q '^got' out && grep -qE 'USR1 2[0-9]+ s .* 240 s.* 40 s' out
ok $? "a job of four minutes: Slurm's warning is held back"
in_job 20 220 warned 2 && [ "$(grep -c '^got' out)" = 1 ]
ok $? "a second USR1 is not"
in_job 200 40 warned 1 && grep -q '^got' out && in_job 30 570 warned 1 && grep -q '^got' out &&
    in_job 80000 300 warned 1 && grep -q '^got' out
ok $? "nor one near the end, one that is not Slurm's, or one in a long job"
mkdir short && echo '{"event":"end","first_step_sec": 90.5,"checkpoint_write_sec":20}' >short/sessions.jsonl
in_job 0 240 limit_is_enough
ok $? "a limit that a session fits in"
in_job 0 200 limit_is_enough
[ $? = 1 ] && grep -q '200 s.*231 s.*90.5 s.*20 s.*--time' out
ok $? "a limit that is too short for the next session is refused, with the numbers"
# Staging, with an srun that runs the task here.
export STAGE_DIR="$PWD/local disk"
# staged DATA [COMMAND...]: stages data.train=DATA, after COMMAND; prints the new data.train
staged() {
    (
        . "$slurm/common.sh"
        . "$slurm/requeue.sh"
        srun() { while [[ $1 == --* ]]; do shift; done; "$@"; }
        SLURM_JOB_NUM_NODES=1 SLURM_JOB_ID=7 staged=
        "${@:2}"
        stage net.ini "data.train=$1" >>out 2>&1 || exit
        echo "$staged"
    )
}
left() { find "$STAGE_DIR" -name '.copy.*' | grep .; }
mkdir -p "of a" b/c b/d
seq 2000 >"of a/train_x.h5" && seq 3000 >b/train_x.h5 && touch -d '2020-02-02 02:02:02.5' "of a/train_x.h5"
echo 1 >"of a/train_y.h5"
new=$(staged b/train_x.h5) old=$(staged "of a/train_x.h5")
[ "${old##*/} ${new##*/}" = "train_x.h5 train_x.h5" ] && cmp "$old" "of a/train_x.h5" && cmp "$new" b/train_x.h5 &&
    [ "$(stat -c %Y "$old")" = "$(stat -c %Y "of a/train_x.h5")" ]
ok $? "two jobs stage files of one name: each gets its own, with its time"
cmp "${old%x.h5}y.h5" "of a/train_y.h5" && [ ! -e "${new%x.h5}y.h5" ]
ok $? "the file of labels goes along"
truncate -s 100 "$new" && touch "${new%/*}/.copy.killed" && [ "$(staged b/train_x.h5)" = "$new" ] &&
    cmp "$new" b/train_x.h5 && ! left
ok $? "a cut copy is made again"
inode=$(stat -c %i "$new") && staged "$PWD/b/train_x.h5" >path && [ "$(cat path)" = "$new" ] &&
    [ "$(stat -c %i "$new")" = "$inode" ]
ok $? "a good one is not"
seq 3001 >b/train_x.h5 && later=$(staged b/train_x.h5) && [ "$later" != "$new" ] && cmp "$later" b/train_x.h5
ok $? "a file that was changed is copied beside it"

cp b/train_x.h5 b/c/1.h5 && seq 7 >"b/d/2 2.h5"
all=$(staged "b/[cd]/*.h5:train/a") && [ "${all##*/}" = "a" ] && all=${all%:train/a} && [ "${all##*/}" = "*.h5" ] &&
    cmp "${all%/*}/1.h5" b/c/1.h5 && cmp "${all%/*}/2 2.h5" "b/d/2 2.h5" && [ "$(ls "${all%/*}" | wc -l)" = 2 ]
ok $? "a glob with a group, over two folders"
seq 8 >b/c/a:b.h5 && all=$(staged b/c/a:b.h5) && cmp "$all" b/c/a:b.h5 && seq 9 >'b/c/[1].h5' &&
    all=$(staged 'b/c/[1].h5') && [ "${all##*/}" = '[1].h5' ] && cmp "$all" 'b/c/[1].h5'
ok $? "a colon or brackets in a name"
cp b/c/1.h5 b/d/1.h5 && : >out && staged 'b/?/*.h5' >path
[ $? = 78 ] && grep -q "'1.h5'" out && : >out && { staged 'b/*/none*' >path; [ $? = 66 ]; } && grep -q "none\*'" out
ok $? "equal names in one list, and no file"

for _ in 1 2 3 4; do staged "of a/../b/c/1.h5" & done >paths
wait
[ "$(sort paths | uniq -c | awk '{ print $1 }')" = 4 ] && cmp "$(head -n 1 paths)" b/c/1.h5 && ! left
ok $? "four jobs at the same time"
# A copy that the disk cuts, once and always
cut_once() { tee() { command tee "$1"; [ -e cut ] || truncate -s -1 "$1"; : >cut; }; export -f tee; }
cut_always() { tee() { command tee "$1"; truncate -s -1 "$1"; }; export -f tee; }
seq 10 >b/once.h5 && : >out && all=$(staged b/once.h5 cut_once) && cmp "$all" b/once.h5 && grep -q 'try 1 of 3' out
ok $? "a bad copy is made again"
seq 11 >b/always.h5 && : >out && staged b/always.h5 cut_always >path
[ $? = 74 ] && grep -q 'always.h5' out && ! left && ! find "$STAGE_DIR" -name always.h5 | grep . &&
    { seq 99999 >b/big.h5; staged b/big.h5 ulimit -f 1 >path; [ $? = 74 ]; } && ! left
ok $? "one that stays bad, and a full disk: code 74, and nothing is left"
echo "1..$n"
