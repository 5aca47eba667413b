#!/usr/bin/env bash
# The end of a run: the tests of its best and its last checkpoint, which are those of eval; the baselines beside them;
# scores that were selected on the test samples.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/best}/tests/support/common.sh"

# The classes overlap and the learning rate is high: after some epochs the validation loss rises.
awk 'BEGIN { srand(3); print "a,b,c,kind"
    for (i = 0; i < 400; i++) { k = rand() < 0.6 ? 0 : rand() < 0.7 ? 1 : 2
        print rand() + k / 3 "," rand() + k / 4 "," rand() "," k } }' >t.csv
"$TRAINER" import csv t.csv t.h5 --test-fraction 0.3 >out 2>&1
cat >net.ini <<'INI'
threads = 1
[model]
layers = linear 64, relu, linear 64, relu, linear 3
[data]
train = t.h5
batch_size = 40
micro_batch = 20
[optimizer]
type = adam
lr = 0.03
[train]
epochs = 12
INI
value() { sed -n "s/^ *\"$1\": \([^,]*\),*$/\1/p" "$2" | head -n 1; }
# said WHICH STEP FILE: the loss and the accuracy of a line "test of the WHICH (step STEP)"
said() { sed -n "s/^test of the $1 (step $2)  loss \([0-9.e+-]*\) accuracy \([0-9.]* %\) (.*/\1 \2/p" "$3"; }
# scores FILE: the same of eval, with as many digits
scores() { awk '/^loss/ { loss = $2 } /^accuracy/ { printf "%.4f %s %%\n", loss, $2 }' "$1"; }

for case in '1 0.5' '2 0'; do
    read -r ranks ema <<<"$case"
    run $ranks net.ini run.dir=run optimizer.ema=$ema && cp out told && best=$(value best_step run/summary.json) &&
        last=$(value steps run/summary.json) && [ "$best" -lt "$last" ] && call 0 eval run && cp out best.eval &&
        call 0 eval run --last && cp out last.eval && grep -q "^weights .* best (step $best)$" best.eval &&
        grep -q "^weights .* last (step $last)$" last.eval && ! cmp -s <(scores best.eval) <(scores last.eval) &&
        [ "$(said best "$best" told)" = "$(scores best.eval)" ] &&
        [ "$(said last "$last" told)" = "$(scores last.eval)" ]
    ok $? "$ranks ranks, ema $ema: best (step $best) and last (step $last) are tested as eval does"
    cp run/summary.json summary && rm -r run
done
sed -n 's/^test of the //p' told >out && [ "$(cut -d' ' -f1 out | paste -sd' ')" = "best last" ] &&
    awk -v loss="$(value best_test_loss summary)" -v said="$(said best '[0-9]*' told)" \
        'BEGIN { split(said, s, " "); d = loss - s[1]; exit d > 5e-5 || d < -5e-5 }' &&
    [ "$(value test_selected summary)" = false ] && ! grep -q 'selected on' told &&
    grep -q '"valid_dataset": "t.h5:/valid/x, ' summary
ok $? "the best comes first; its loss is in the summary; a table with test rows has rows to validate with"

# device strict has memory of its own, as a GPU has.
run 1 net.ini run.dir=strict device=strict && cp out told && call 0 eval strict &&
    [ "$(said best '[0-9]*' told)" = "$(scores out)" ]
ok $? "the best is loaded on a device with memory of its own"

for damage in 'rm -r' 'truncate -s 100'; do
    rm -rf cut && cp -r strict cut && rm cut/summary.json
    file=cut/checkpoints/$(readlink cut/checkpoints/best)
    case $damage in truncate*) file=$file/model.safetensors ;; esac
    $damage "$file"
    call 0 net.ini run.dir=cut device=strict && once err '^warning' best && grep -q '^test  loss' err &&
        [ "$(value best_test_loss cut/summary.json)" = null ]
    ok $? "a best checkpoint that is not readable ($damage) is a warning, and the last is tested"
done

call 0 net.ini run.dir=one train.epochs=1 && grep -q '^test  loss' err && ! grep -q '^test of' err &&
    [ "$(value best_test_loss one/summary.json)" = "$(value test_loss one/summary.json)" ] &&
    call 0 eval one && grep -q "^weights .* best and last (step [0-9]*)" out
ok $? "one line if the last is the best"
call 0 net.ini run.dir=none checkpoint.best=no && grep -q '^test  loss' err && ! grep -q '^test of' err &&
    [ "$(value best_test_loss none/summary.json)" = null ]
ok $? "one line without a best"
call 78 eval net.ini one/checkpoints/latest --last && names err 'error & --last'
ok $? "--last expects a run"

call 0 net.ini run.dir=same data.valid=t.h5:test && once err 'test of the best' 'selected on' &&
    ! names err 'test of the last & selected on' && [ "$(value test_selected same/summary.json)" = true ] &&
    call 0 eval same && grep -q '^samples .*selected on' out && call 0 eval same --last &&
    ! grep -q 'selected on' out
ok $? "the best that was chosen by the test samples is said to be that"
call 0 net.ini run.dir=stops data.valid=t.h5:test train.patience=2 && once err 'test of the last' 'selected on' &&
    call 0 eval stops --last && grep -q '^samples .*selected on' out
ok $? "and the last, if train.patience ended the run"
call 0 net.ini run.dir=part data.valid= data.valid_fraction=0.2 data.test=t.h5:train &&
    [ "$(value test_selected part/summary.json)" = true ]
ok $? "a part of the test samples chose it"

# Samples of the validation that are also trained on: 60 of 120, and none; the whole; rows that are twice in one table.
train=$("$TRAINER" data t.h5 | sed -n 's/^  train\/x (\([0-9]*\), .*/\1/p')
awk -F, -v OFS=, 'BEGIN { srand(5) } NR == 1 || NR > 341 { print; if (NR > 1) print rand(), rand(), rand(), 0 }' \
    t.csv >leak.csv
for f in all:t leak:leak; do "$TRAINER" import csv ${f#*:}.csv ${f%:*}.h5 >out 2>&1; done
leak="run.dir=leak data.train=all.h5 data.valid=leak.h5:train"
# shellcheck disable=SC2086
call 0 net.ini $leak train.epochs=1 &&
    once err "^warning & data.valid & 60 of 120 samples & 400 samples"
ok $? "samples that are in both are counted"
# shellcheck disable=SC2086
call 0 net.ini $leak train.epochs=2 && ! grep -q '^warning.*60 of 120' err
ok $? "once: not where the run goes on"
call 0 net.ini run.dir=apart && ! grep -q "^warning.*\(data.valid\|data.test\)" err
ok $? "none are in both"
call 0 net.ini run.dir=self data.valid=t.h5:train train.epochs=1 && once err "^warning & data.valid & data.train" &&
    run 2 net.ini run.dir=both data.test=./t.h5:train train.epochs=1 &&
    once out "^warning & data.test & $train of $train"
ok $? "the training data as validation, or under another name as test"
{ cat t.csv; tail -n +2 t.csv; } >twice.csv
"$TRAINER" import csv twice.csv twice.h5 >out 2>&1
call 0 net.ini run.dir=twice data.train=twice.h5 data.valid_fraction=0.2 train.epochs=1 &&
    once err "^warning & data.valid"
ok $? "rows that are twice in the file, on both sides of data.valid_fraction"

# The share of the most frequent class, counted in the table.
awk -F, 'NR > 1 { n[$4]++ }
    END { for (k in n) if (n[k] > most) most = n[k]; printf "%.2f\n", 100 * most / (NR - 1) }' t.csv >most
call 0 eval net.ini strict --json eval.json data.test=all.h5:train &&
    grep -q "^accuracy .*(.* $(cat most) %)" out &&
    awk -v a="$(value baseline_accuracy eval.json)" -v b="$(cat most)" \
        'BEGIN { d = 100 * a - b; exit d > .006 || d < -.006 }'
ok $? "the share of the most frequent class stands beside the accuracy"
# Two ranks, targets of large values: the loss of their mean, as the loss is that of normalised targets.
awk 'BEGIN { srand(5); for (i = 0; i < 300; i++) { x = rand(); print x "," 1000 + 10 * x + rand() } }' >n.csv
"$TRAINER" import csv n.csv n.h5 >out 2>&1
run 2 net.ini run.dir=n data.train=n.h5:train data.test=n.h5:train 'model.layers=linear 8, relu, linear 1' \
    train.epochs=3 && grep -q '^test  loss .* mean: loss 1\.00' out && call 0 eval n --json eval.json &&
    awk -v a="$(value baseline_loss eval.json)" 'BEGIN { exit a < 0.99 || a > 1.01 }' &&
    [ "$(value baseline_accuracy eval.json)" = null ]
ok $? "the loss of predicting the mean stands beside the loss"
# Batch normalisation of ten samples; of one, it is refused (tests/cli/bad_input.table).
awk 'BEGIN { srand(4); print "a,b,kind"; for (i = 0; i < 300; i++) print i % 3 + rand() / 2 "," rand() "," i % 3 }' \
    >b.csv
"$TRAINER" import csv b.csv b.h5 >out 2>&1
call 0 net.ini run.dir=norm data.train=b.h5 data.micro_batch=10 train.epochs=20 optimizer.lr=0.01 \
    'model.layers=linear 16, batchnorm, relu, linear 3' && call 0 eval norm --last data.test=b.h5:train &&
    grep -q '^accuracy *100.00 %' out
ok $? "batch normalisation of micro-batches of ten samples learns"
echo "1..$n"
