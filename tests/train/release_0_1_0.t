#!/usr/bin/env bash
# TEST timeout=60
# A run folder of release 0.1.0: this program resumes it, evaluates it, and ends where 0.1.0 did. Made by 0.1.0 with
# `trainer first.ini run.dir=run-0.1.0`; 24 steps of 0.1.0 ended with the loss below.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/release_0_1_0}/tests/support/common.sh"
cp -r "$TRAINER_ROOT/tests/golden/run-0.1.0" old && chmod -R u+w old

"$TRAINER" eval old --json eval.json >out 2>&1
ok $? "its checkpoint is evaluated"
"$TRAINER" old/first.ini run.dir=old train.steps=24 threads=1 >out 2>&1
ok $? "it resumes"
grep -q 'step-00000012\|step 12' out
ok $? "from step 12"
json 'a["steps"] == 24 and abs(a["loss"] - 2.24297675) < 1e-4' old/summary.json
ok $? "and ends with the loss of 0.1.0"
"$TRAINER" old >again 2>&1
ok $? "the folder alone is enough to start it again"
echo "1..$n"
