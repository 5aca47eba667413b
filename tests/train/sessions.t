#!/usr/bin/env bash
# sessions.jsonl and the times of all ranks in metrics.jsonl, over a stop and a restart.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/sessions}/tests/support/faults.sh"
run_config
value() { sed -n "$2p" "$1" | grep -o "\"$3\":[^,}]*" | head -n 1 | cut -d: -f2-; } # FILE LINE KEY

FAULT=$slow start 2 net.ini run.dir=run $exact
until_lines run/metrics.jsonl 12
hit USR1 0
ended
f=run/sessions.jsonl
[ $rc = 75 ] && [ "$(wc -l <$f)" = 2 ] &&
    [ "$(value $f 1 event) $(value $f 2 event) $(value $f 2 verdict)" = '"start" "end" "again"' ]
ok $? "a line at the start and one at the end, code $rc"

last=$(value $f 2 last_step)
[ "$(value $f 1 ranks) $(value $f 1 first_step)" = "2 1" ] && [ "$last" -ge 12 ] &&
    [ "$(value $f 2 checkpoints)" -ge 1 ]
ok $? "ranks, steps, checkpoints"
for key in exec_sec mpi_sec data_sec plan_sec resume_sec whole_sec; do value $f 1 $key; done |
    awk '{ if (!($1 >= 0)) bad = 1; if (NR < 6) sum += $1; whole = $1 } END { exit bad || NR != 6 || sum > whole }'
ok $? "the parts of the start-up are within the whole"
# Slow, so that every rank has told of its times by the last line.
export SLURM_JOB_ID=17 SLURM_RESTART_COUNT=3
FAULT=$slower start 3 net.ini run.dir=run $exact
begin=$(now)
ended
unset SLURM_JOB_ID SLURM_RESTART_COUNT
[ $rc = 0 ] && [ "$(wc -l <$f)" = 4 ] &&
    [ "$(value $f 3 session) $(value $f 3 job) $(value $f 3 restart) $(value $f 3 first_step)" = \
        "2 \"17\" 3 $((last + 1))" ] &&
    [ "$(value $f 4 verdict)" = '"done"' ]
ok $? "the second session: job, restart, first step"

# The copy of a checkpoint is in the time of the step behind it. The session's first one is exactly where it is due:
# the writer is idle.
grep ".step.:$((last / 10 * 10 + 11))," run/metrics.jsonl >line
for key in unix_time session step_ms step_ms_p95 compute data_stall comm_exposed comm_busy checkpoint; do
    value line 1 $key
done >values
grep '"wait_min"' run/metrics.jsonl | tail -n 1 >line # not all lines have shares of all ranks
for key in compute_min compute_max data_stall_min data_stall_max wait_min wait_max slowest_rank; do
    value line 1 $key
done >>values
cp values out
awk 'function near(a, b) { return a - b < 0.0002 && b - a < 0.0002 }
     { v[NR] = $1 }
     END {
         exit !(NR == 16 && v[2] == 2 && v[3] > 0 && v[3] <= v[4] && v[10] <= v[11] && v[12] <= v[13] &&
                v[14] <= v[15] && v[16] < 3 && v[9] > 0 && near(v[5] + v[6] + v[7] + v[9], 1))
     }' values
ok $? "metrics: step times, shares, and those of all ranks"

# The verdict of the job before names it.
cp run/verdict kept && call 66 net.ini run.dir=run $exact data.format=hdf5 data.train=typo.h5 &&
    cmp -s run/verdict kept && grep -q '^job 17 restart 3' kept &&
    call 0 net.ini run.dir=run $exact train.steps=61 && [ "$(cat run/verdict)" = "$(printf 'done\njob - restart -')" ]
ok $? "a run that is done stays done, until it goes on"

grep -q '"mfu":null' line && grep -qE '"tflops":[0-9.e-]+' line && grep -q '"mfu": null' run/summary.json
ok $? "the rate, but no share of a peak on a CPU"
echo "1..$n"
