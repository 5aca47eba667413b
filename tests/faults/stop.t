#!/usr/bin/env bash
# TEST timeout=600
# A rank that is stopped is named and the job ends with 75, within parallel.timeout + 1 s; one that goes on in time is
# left alone. TERM ends a job whose peer hangs, and HUP stops a run as TERM does.
. "${TRAINER_ROOT:?is set by the runner: make test k=faults/stop}/tests/support/faults.sh"
run_config
run 2 net.ini run.dir=whole $exact
ok $? "an uninterrupted run"

# Slow until it is hit: then no time is needed any more.
slowly="FAIL_WHILE=$PWD/slowly"
: >slowly

limit=2
# blamed RANK NAMES: an error line, behind the rank that speaks, names that rank and the rest
blamed() { sed -n 's/.*trainer: error: //p' out >errors && names errors "rank $1 & $2"; }
# named RANK: seconds until an error line names it
named() {
    local try
    for try in $(seq 1000); do
        blamed "$1" collective && { since "$begin"; return; }
        sleep 0.02
    done
    echo 1000
}
for r in $(cases 1 0 2); do
    FAULT=$slower start 3 net.ini run.dir=stop$r $exact parallel.timeout=$limit
    until_lines stop$r/metrics.jsonl 12 && until_there stop$r/checkpoints/step-00000010
    hit STOP $r
    named_sec=$(named $r)
    ended
    row "SIGSTOP of rank $r of 3 in a step, parallel.timeout = $limit s" \
        "named after $named_sec s, the job ends; restarted, the same bits"
    [ $rc = 75 ] && within "$named_sec" 30 && blamed $r "training & step [0-9]* & collective [0-9]*"
    ok $? "SIGSTOP of rank $r: named after $named_sec s, code $rc, over in $sec s"
    # Who hears nothing of the others speaks, too, where the end takes longer than 2.5 s.
    { [ "$(grep -c 'trainer: error' out)" = 1 ] || ! within "$sec" $((limit + 3)); } &&
        until_true gone "$victim"
    ok $? "said once, and nothing is left behind"
    names stop$r/log.txt "error trainer: error & rank $r"
    ok $? "the log has it too"
    restarted stop$r 2
    ok $? "restarted: the same bits"
done

limit=5 pause=1.5
for r in $(cases 0 1); do
    FAULT="$slow $slowly" start 2 net.ini run.dir=pause$r $exact parallel.timeout=$limit
    until_lines pause$r/metrics.jsonl 12
    hit STOP $r
    sleep $pause
    kill -CONT "$victim"
    rm slowly
    ended
    : >slowly
    row "SIGSTOP of rank $r for $pause s, parallel.timeout = $limit s" "no alarm; the run continues to the same bits"
    [ $rc = 0 ] && ! grep -q "trainer: error" out && same pause$r
    ok $? "stopped for $pause s of $limit s: no alarm, the same bits"
done

limit=2
# Rank 0 stands in the last checkpoint, the other waits for it at the end.
FAULT="FAIL_RANK=0 FAIL_SLOW=step-00000060:20 FAIL_CALL=fsync FAIL_ON=step-00000060 FAIL_HOW=stop FAIL_AT=2" \
    start 2 net.ini run.dir=last $exact parallel.timeout=$limit
until_stopped "$(rank_pid 0)"
begin=$(now)
ended
row "SIGSTOP of rank 0 in the last checkpoint, parallel.timeout = $limit s" \
    "named, the job ends; restarted, the same bits"
[ $rc = 75 ] && within $sec 60 && blamed 0 "checkpoint & step 60"
ok $? "SIGSTOP of rank 0 in the last checkpoint: code $rc, over in $sec s"

restarted last 2
ok $? "restarted: the same bits"

# A disk that takes longer than parallel.timeout is no hang.
FAULT="FAIL_RANK=0 FAIL_CALL=fsync FAIL_ON=step-00000060 FAIL_HOW=sleep:3000 FAIL_AT=2" \
    start 2 net.ini run.dir=disk $exact parallel.timeout=2
begin=$(now)
ended
row "an fsync of 3 s in the last checkpoint, parallel.timeout = 2 s" "no alarm; the run ends normally"
[ $rc = 0 ] && ! grep -q "trainer: error" out && [ "$(state whole)" = "$(state disk)" ]
ok $? "a slow disk: no alarm"

# A rank that MPI waits for: stopped, or not there yet. The other begins to wait when that rank's process is there, so
# that the time that the launcher needs does not count. That rank never is the program: mpirun continues it before it
# kills it, and it would have a word to say.
cat >absent <<END
#!/bin/sh
case \${OMPI_COMM_WORLD_RANK-\$PMIX_RANK} in
1) : >here; [ \$HOW = sleep ] && sleep 60 || kill -STOP \$\$; exit 1 ;;
*) until [ -e here ]; do sleep 0.05; done ;;
esac
exec "$TRAINER" "\$@"
END
chmod +x absent
for how in $(cases stop sleep); do
    rm -f here
    FAULT="HOW=$how TRAINER_PARALLEL_TIMEOUT=1s" TRAINER=$PWD/absent start 2 net.ini run.dir=launch
    begin=$(now)
    ended
    row "rank 1 of 2 does not reach MPI_Init ($how), TRAINER_PARALLEL_TIMEOUT = 1s" "named, the job ends"
    blamed 1 "MPI & process [0-9]*" && [ $rc = 75 ] && once out 'trainer: error' && within "$sec" 100
    ok $? "rank 1 does not reach MPI_Init ($how): named, code $rc, over in $sec s"
done

# TERM while a peer is stopped: the rank cannot stop between steps, and ends by itself. Where the peer stopped behind a
# collective, none of the two is behind the other.
FAULT=$slower start 2 net.ini run.dir=term $exact
until_there term/checkpoints/step-00000010
kill -STOP "$(rank_pid 1)"
hit TERM 0
ended
row "TERM to rank 0 while rank 1 is stopped, parallel.timeout = 300 s" \
    "the job ends by itself; restarted, the same bits"
[ $rc = 75 ] &&
    {
        blamed '[01]' "training & step [0-9]* & collective [0-9]*" ||
            names errors "2 of 2 ranks & training & step [0-9]* & collective [0-9]*"
    }
ok $? "TERM while a peer is stopped: code $rc, over in $sec s"

restarted term 2
ok $? "restarted: the same bits"
# A second INT does not wait for the end of the step, which takes seconds here.
# twice RUN SIGNAL EVERY UNTIL...: a single process that gets the signal twice, the first time then
twice() {
    set -m
    LD_PRELOAD=$fail_lib FAIL_PACE=10000 "$TRAINER" net.ini run.dir=$1 checkpoint.every=$3 >out 2>&1 &
    victim=$!
    set +m
    "${@:4}"
    kill -s "$2" $victim
    sleep 0.2
    kill -s "$2" $victim
    wait $victim 2>/dev/null
    rc=$?
}
twice again INT 1 until_there again/checkpoints/latest
last=$(readlink again/checkpoints/latest)
[ $rc = 130 ] && once out "signal & again/checkpoints/latest & $last" && [ -d "again/checkpoints/$last" ]
ok $? "a second INT: code $rc, and from which checkpoint to go on"

if all; then
    twice none INT 50 until_lines none/metrics.jsonl 1
    [ $rc = 130 ] && once out signal && ! grep -q checkpoints/latest out
    ok $? "a second INT before there is a checkpoint: code $rc"
fi
twice both TERM 50 until_lines both/metrics.jsonl 1
[ $rc = 75 ] && [ -d both/checkpoints/latest/ ] && [ "$(head -n 1 both/verdict)" = again ]
ok $? "a second TERM: a checkpoint is saved, code $rc"

# newest RUN: the step of its newest checkpoint
newest() { readlink "$1/checkpoints/latest" | sed 's/step-0*//'; }
# What mpirun sends on Ctrl-C: CONT at once, TERM after a second, KILL after two. CONT alone also follows Ctrl-Z.
# said RUN: its verdict is provisional and names its newest checkpoint, which is whole
said() {
    local step
    step=$(sed -n 's/^reason .*(\(step-[0-9]*\))$/\1/p' "$1/verdict") && [ "$(sed -n 1,2p "$1/verdict")" = "again
provisional" ] && [ "$step" = "$(readlink "$1/checkpoints/latest")" ] && [ -s "$1/checkpoints/$step/MANIFEST" ]
}
FAULT=$slow start 2 net.ini run.dir=cont $exact checkpoint.every=0
until_lines cont/metrics.jsonl 5
hit CONT 0
until_true said cont
ok $? "CONT: a checkpoint is saved, and a provisional verdict names it: $(newest cont)"
ended
[ $rc = 0 ] && ! grep -q "trainer: error" out && [ "$(head -n 1 cont/verdict)" = "done" ] && same cont
ok $? "the run goes on to its end, code $rc, the same bits"

FAULT="$slower FAIL_CALL=fsync FAIL_ON=step- FAIL_AT=6 FAIL_ALWAYS=1 FAIL_HOW=sleep:9000" \
    start 2 net.ini run.dir=ctrl-c $exact
until_there ctrl-c/checkpoints/step-00000010
ranks="$(rank_pid 0) $(rank_pid 1)" begin=$(now)
for signal in CONT TERM KILL; do
    # shellcheck disable=SC2086
    kill -s $signal $ranks
    [ $signal = KILL ] || sleep 1
done
ended
row "CONT, TERM and KILL to 2 ranks, 1 s apart, as mpirun on Ctrl-C; checkpoints take longer" \
    "the verdict names the newest checkpoint; restarted, the same bits"
said ctrl-c && [ "$(newest ctrl-c)" = 10 ] && restarted ctrl-c 2
ok $? "CONT, TERM, KILL while a checkpoint is written: code $rc, and the run resumes from the one before it"
# A closed terminal: HUP, more than one, and nobody reads any more what is printed.
FAULT=$slower start 2 net.ini run.dir=hup $exact
until_there hup/checkpoints/step-00000010
hit HUP 1
ended
row "HUP to rank 1 of 2" "the job ends after the step, with a checkpoint; restarted, the same bits"
[ $rc = 75 ] && names out "$(newest hup) & 60"
ok $? "HUP to a rank: a checkpoint is saved, code $rc"

restarted hup 2
ok $? "restarted: the same bits"
# closed RUN COMMAND...: a single process in the background whose terminal is closed in its third step; sets rc
closed() {
    local dir=$1
    shift
    env LD_PRELOAD="$fail_lib" FAIL_STEP=50 "$slowly" "$@" "$TRAINER" net.ini run.dir="$dir" $exact \
        > >(exec head -n 1 >/dev/null) 2>&1 &
    victim=$!
    until_lines "$dir/metrics.jsonl" 3
    kill -HUP $victim
    sleep 0.05
    kill -HUP $victim 2>/dev/null
    rm slowly
    wait $victim
    rc=$?
    : >slowly
}
# early SIGNAL: a single process that gets the signal as soon as it catches TERM; sets rc
early() {
    rm -rf early
    "$TRAINER" net.ini run.dir=early >out 2>&1 &
    victim=$!
    until grep -qs trainer "/proc/$victim/comm" && grep -qs 'SigCgt:.*[4-7c-f]...$' "/proc/$victim/status"; do :; done
    kill -s "$1" $victim
    wait $victim
    rc=$?
}
for signal in $(cases USR1 TERM); do
    early $signal
    [ $rc = 75 ] && [ "$(readlink early/checkpoints/latest)" = step-00000001 ] &&
        [ "$(head -n 1 early/verdict)" = again ]
    ok $? "$signal as the program starts: saved after the first step, code $rc"
done
closed alone env
tail -n 1 alone/log.txt >outcome
[ $rc = 75 ] && names alone/log.txt HUP && names outcome "$(newest alone) & 60"
ok $? "HUP to a single process whose output goes nowhere: code $rc, and the log has the outcome"

restarted alone 2
ok $? "restarted: the same bits"
closed nohup nohup
[ $rc = 0 ] && same nohup
ok $? "under nohup it trains on: code $rc, the same bits"

# A validation is given up: no line of it, no best; the restart makes up for it. The scoring of the test data
# likewise. What is scored is in a file that is read slowly until the signal was sent; the first reads, about 50 in
# each rank, are those of the start.
"$TRAINER" import synthetic digits digits.h5 --samples 600 >out 2>&1 &&
    "$TRAINER" import synthetic digits scored.h5 --samples 1200 >>out 2>&1
sed -e 's/^format = .*/train = digits.h5:train\nvalid = scored.h5:train\ntest = scored.h5:train/' \
    -e '/^synthetic/d; /^classes/d' net.ini >long.ini
long="train.steps=12 train.valid_every=10 checkpoint.every=0"
valids() { sed -n 's/.*"step":\([0-9]*\),.*\("valid_loss":.*\),"valid_sec":[^,]*,/\1 \2 /p' "$1/metrics.jsonl"; }
told() {
    valids "$1"
    readlink "$1/checkpoints/best"
    grep -E '"(loss|valid_loss|valid_accuracy|test_loss|test_accuracy|status)":' "$1/summary.json"
    grep -o ' epoch [0-9.]* .* %' "$1/log.txt" | tail -n 1
}
has_valid() { valids long | grep -q "^$1 "; }
until_valid() { until_true has_valid "$1"; } # STEP: of the run "long"
# given_up SIGNAL RANK STEP WHAT LINES UNTIL...: what the run "long" says when it gets the signal then, and how many
# validations it has
given_up() {
    FAULT="$slowly FAIL_CALL=pread FAIL_ON=scored.h5 FAIL_AT=60 FAIL_ALWAYS=1 FAIL_HOW=sleep:50" \
        start 2 long.ini run.dir=long $exact $long
    victim=$(rank_pid "$2") # before: the moment is short
    "${@:6}"
    begin=$(now)
    kill -s "$1" "$victim"
    rm slowly
    ended
    : >slowly
    row "$1 to rank $2 of 2 in $4" "given up; a checkpoint is saved; restarted, the same bits"
    [ $rc = 75 ] && names out "$3 & 12" && [ "$(valids long | wc -l)" = "$5" ] &&
        [ "$(readlink long/checkpoints/latest)" = step-000000$3 ]
    ok $? "$1 to rank $2 in $4: given up at step $3, code $rc"
}
run 2 long.ini run.dir=uncut $exact $long
ok $? "a run with validations"

given_up TERM 1 10 "its validation" 0 until_there long/checkpoints/step-00000010
[ ! -e long/checkpoints/best ] && [ ! -e long/checkpoints/step-00000011 ]
ok $? "no checkpoint is called the best by it"
if all; then
    given_up USR1 0 12 "its validation" 1 until_there long/checkpoints/step-00000012
    given_up HUP 1 12 "the test" 2 until_valid 12
fi
run 1 long.ini run.dir=long $exact $long
[ $? = 0 ] && [ "$(state uncut)" = "$(state long)" ] && [ "$(losses uncut)" = "$(losses long)" ]
ok $? "restarted to the end: the same bits"

told uncut >uncut.told &&
    told long >long.told && [ -s uncut.told ] &&
    cat uncut.told long.told >>out && cmp -s uncut.told long.told
ok $? "the same validations, best, epoch and summary"
cp long/metrics.jsonl before
run 1 long.ini run.dir=long $exact $long && cmp before long/metrics.jsonl >>out &&
    told long >again.told && diff uncut.told again.told >>out
ok $? "restarted once more: nothing is left to validate"

# An error that all ranks agree on, while the rank that prints it is slow: the others wait for it. 5 s is longer than
# a rank without others waits.
spoilt="optimizer.type=sgd optimizer.lr=1e6 schedule.type=constant optimizer.clip_norm=0 optimizer.ema=0"
FAULT="FAIL_RANK=0 FAIL_SLOW=late/verdict:5000" start 2 net.ini run.dir=late $spoilt
begin=$(now)
ended
row "a loss that is not finite, and rank 0 takes 5 s to write the verdict" "the other rank waits for it"
[ $rc = 93 ] && [ "$(head -c 5 late/verdict)" = "no 93" ] && [ "$(grep -c 'trainer: error' out)" = 1 ]
ok $? "rank 0 is slow with its last words: the verdict is there, code $rc"
echo "1..$n"
