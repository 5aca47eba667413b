#!/usr/bin/env bash
# trainer compare: groups of seeds against values computed here, what cannot be ranked, the states of runs, what may be
# missing. It never takes the lock of a run.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/compare}/tests/support/common.sh"
compare() { "$TRAINER" compare "$@" >out 2>&1; }
unset COLUMNS

cat >net.ini <<'INI'
threads = 1
[model]
layers = flatten, linear 16, relu, linear 10
[data]
format = synthetic
synthetic_samples = 400
synthetic_shape = 4x4x1
classes = 10
batch_size = 20
[train]
steps = 30
valid_every = 10
[checkpoint]
every = 0
[log]
every = 10
INI
train() { "$TRAINER" net.ini "run.dir=$1" "${@:2}" >>trained 2>&1; } # DIR SETTINGS...
for seed in 1 2 3; do
    train "runs/low-$seed" train.seed=$seed optimizer.lr=0.0003
    train "runs/high-$seed" train.seed=$seed optimizer.lr=0.01
done
cp -r runs kept

# -- groups
compare runs --json c.json --csv c.csv --out page && cat >check.py <<'PY'
import csv, json, statistics
doc = json.load(open("c.json"))
def lines(name): return [json.loads(l) for l in open(f"runs/{name}/metrics.jsonl")]
def best(name): return min((l["valid_loss"], l["step"]) for l in lines(name) if "valid_loss" in l)
def near(a, b): return abs(a - b) <= 1e-7 * abs(b)
groups = doc["groups"]
assert doc["by"] == "valid_loss" and doc["better"] == "lower" and len(groups) == 2, doc["by"]
assert [float(g["keys"]["optimizer.lr"]) for g in groups] == [0.01, 0.0003], groups[0]["keys"]
for g, lr in zip(groups, ("high", "low")):
    values = [best(f"{lr}-{s}")[0] for s in (1, 2, 3)]
    last = [[l["loss"] for l in lines(f"{lr}-{s}") if "loss" in l][-1] for s in (1, 2, 3)]
    assert g["n"] == 3 and set(g["keys"]) == {"optimizer.lr"}
    assert near(g["mean"]["valid_loss"], statistics.mean(values)), values
    assert near(g["deviation"]["valid_loss"], statistics.stdev(values)), values
    assert near(g["mean"]["loss"], statistics.mean(last)), last
    for r in g["runs"]:
        value, step = best(r["name"])
        assert near(r["figures"]["valid_loss"], value) and r["at_step"] == step, r
        assert r["state"] == "done" and r["steps"] == r["of_steps"] == 30 and r["sec"] > 0
        assert r["seeds"] == {"train.seed": r["name"][-1]}, r
rows = list(csv.DictReader(open("c.csv")))
assert [r["kind"] for r in rows] == ["group", "run", "run", "run"] * 2
assert all(near(float(r["valid_loss"]), best(r["run"])[0]) for r in rows if r["kind"] == "run")
PY
python3 -I check.py >>out 2>&1
ok $? "seeds are one row: mean, sample standard deviation, each run"
ok_keys compare c.json 'groups\[\]\.keys\..*'
compare runs && grep -q '^\* high-[1-3] +2  *0.01  *3 ' out && grep -q '^  low-[1-3] +2  *3e-4  *3 .*  done$' out &&
    [ "$(grep -c '+2' out)" = 2 ]
ok $? "the table: the best row is marked, values are short"
COLUMNS=60 compare runs && ! grep -q '.\{61\}' out && grep -q '^\* high.* done$' out && names out samples_per_sec
ok $? "it fits the terminal, and says what it leaves out"
compare runs --by samples_per_sec --json c.json && json 'a["better"] == "higher" and a["groups"][0]["mean"][
    "samples_per_sec"] >= a["groups"][1]["mean"]["samples_per_sec"]' c.json &&
    compare runs --by best_valid_accuracy --json - && json 'a["by"] == "best_valid_accuracy"' out
ok $? "--by another number, of metrics.jsonl or of summary.json"
compare runs --by valid_los; [ $? = 2 ] && names out "--by valid_los & valid_loss & test_accuracy" &&
    ! names out steps
ok $? "an unknown number: refused with those there are"
mkdir empty && compare empty; [ $? = 66 ] && names out empty && compare nowhere; [ $? = 66 ] && names out nowhere &&
    compare; [ $? = 2 ] && compare runs --out runs/low-1; [ $? = 2 ] && compare runs --json - --csv -; [ $? = 2 ]
ok $? "not a run, no run, a run as --out"
! grep -Eo "(src|href)=[\"']?[^#\"'].{0,20}|url\([\"']?[^#\"'].{0,9}|<script|<link|@import" page/index.html >out &&
    grep -q '<tr class="best">' page/index.html
ok $? "the page needs nothing from elsewhere"
cp page/index.html out
[ "$(grep -c "class='frame'" out)" = 2 ] && grep -q '>Loss, validation<' out && grep -q '>Loss, training<' out &&
    [ "$(grep -o "swatch p-run[0-9].*high-[123]\|swatch p-run[0-9].*low-[123]" out |
        sed -E 's/.*(p-run.).*>(high|low).*/\1 \2/' | paste -sd' ')" = 'p-run1 high p-run2 low' ]
ok $? "its plots: validations and training; the rows of the table are their legend"
"$TRAINER" report runs --out report >out 2>&1 && cp report/index.html out && grep -q '<h2>Comparison' out &&
    ! grep -q '<h2>low-1' out && grep -q '>optimizer.lr\|>lr<' out
ok $? "a report on runs of one number of ranks leads with the comparison"
diff -r runs kept >out
ok $? "no run folder is changed"

# -- losses that cannot be compared
train other/smooth model.label_smoothing=0.1 optimizer.lr=0.01
compare other runs/high-1 --json c.json && json 'a["by"] == "valid_accuracy"' c.json &&
    names out "model.label_smoothing & 0.1"
ok $? "another loss: ranked by accuracy, with the key that differs"
compare other runs/high-1 --by valid_loss; [ $? = 65 ] && names out "model.label_smoothing & smooth & high-1"
ok $? "--by valid_loss is refused then"
mkdir plain && cp -r other/smooth runs/high-1 plain && sed -i 's/"valid_accuracy":[^,]*,//' plain/*/metrics.jsonl &&
    sed -i '/"valid_accuracy"/d' plain/*/summary.json && compare plain
[ $? = 0 ] && names out model.label_smoothing && ! grep -q '^\*' out && compare plain --by valid_loss
[ $? = 65 ] && "$TRAINER" report plain --out p >out 2>&1 &&
    grep -q 'model.label_smoothing' p/index.html && ! grep -q 'swatch p-\|have colours' p/index.html
ok $? "without accuracy: no rank, in a report neither"
train other/limit data.limit=200 optimizer.lr=0.01 && rm -r other/smooth && compare other runs/high-1
[ $? = 0 ] && names out "data.limit & 200 & valid_accuracy"
ok $? "other validation data"

# -- states
state() { # RUN STATE
    json "[r['state'] for g in a['groups'] for r in g['runs'] if r['name'] == '$1'] == ['$2']" c.json
}
wait_lines() { [ "$(cat "$1/metrics.jsonl" 2>>trained | wc -l)" -ge 3 ]; }
long() { "$TRAINER" net.ini "run.dir=$1" train.steps=2000000 optimizer.lr=0.02 "${@:2}" >>trained 2>&1 & }
long s/killed && until_true wait_lines s/killed && kill -9 $! && wait $! 2>/dev/null
long s/live train.seed=2
live=$!
until_true wait_lines s/live && kill -STOP $live
cp -r s/killed s/reused && printf 'process %s on %s since 2020-01-01T00:00:00Z\n' $$ "$(hostname)" >s/reused/lock
cp -r s/killed s/silent && echo 'process 1 on elsewhere since 2020-01-01T00:00:00Z' >s/silent/lock &&
    touch -d '-12 minutes' s/silent/metrics.jsonl s/silent/log.txt
cp -r s/killed s/fresh && echo 'process 1 on elsewhere since 2020-01-01T00:00:00Z' >s/fresh/lock &&
    touch s/fresh/log.txt
mkdir s/pending s/refused && cp s/live/config.ini s/pending && echo 'no 78 bad, "key"' >s/refused/verdict
printf '{"step":99999999,"lo' >>s/killed/metrics.jsonl
compare s runs --json c.json
rc=$?
[ $rc = 0 ] && state killed killed && state live running && state reused killed && state silent unknown &&
    state fresh unknown && state pending pending && state refused failed && state low-1 done
ok $? "killed, running, another process, another host, pending, failed"
grep -q '1 silent 12 min' out && grep -q '1 running?' out && grep -q 'refused.*failed (78)$' out &&
    names out "refused & 78 & \"key\""
ok $? "what the table says of them"
kill -CONT $live && kill -9 $live && wait $live 2>/dev/null
mkdir q && cp -r runs/low-1 'q/a, "b"' && compare q --csv - &&
    [ "$(grep -c '^run,1,"a, ""b""",1' out)" = 1 ] && compare q --json - &&
    json 'a["groups"][0]["runs"][0]["name"] == "a, \"b\""' out
ok $? "names are quoted"

# -- locks: the lock of a run that starts is never taken
(until [ -e enough ]; do "$TRAINER" compare l kept >polled 2>&1; done) &
poller=$!
mkdir l
rc=0
for i in 1 2 3; do train l/r train.steps=$((i * 10)) || rc=$?; done
touch enough
wait $poller
[ $rc = 0 ] && ! grep -rn 'flock\|lockf\|F_SETLK' "$TRAINER_ROOT/src/report" >out
ok $? "runs start while it polls"
echo "1..$n"
