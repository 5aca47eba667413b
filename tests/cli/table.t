#!/usr/bin/env bash
# Tables as people have them: texts, missing cells, ids and columns to leave out in import csv; predict and eval on
# other tables, against Python on the same weights.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/table}/tests/support/common.sh"

# table.csv: 120 rows with an id, holes, a column of texts, an ordered one, and one to leave out
awk 'BEGIN {
    srand(4); split("red green blue", colour, " "); split("S M L", size, " ")
    print "id,age,colour,size,weight,junk,kind"
    for (i = 0; i < 120; i++) {
        age = i % 11 == 3 ? "" : sprintf("%.3f", 20 + 40 * rand()); c = colour[1 + int(3 * rand())]
        w = i % 17 == 5 ? "NA" : sprintf("%.4f", 2 * rand() - 1)
        print "p" i "," age "," (i % 13 == 7 ? "" : c) "," size[1 + int(3 * rand())] "," w "," i "," \
            ((c == "red") + w > 0.4 ? "yes" : "no")
    }
}' >table.csv
# shuffled ROWS: its last rows with the columns in another order, without the label and the column left out
shuffled() {
    { head -n 1 table.csv; tail -n "$1" table.csv; } | awk -F, '{ print $5 "," $1 "," $4 "," $3 "," $2 }'
}
shuffled 40 >new.csv
options='--id id --drop junk --ordinal size --missing mean --missing-indicator --test-fraction 0.25'

call 65 import csv table.csv t.h5 --id id --drop junk &&
    names err "'table.csv' & 2 ('age') & 11 & 120 & line 5 & 3 ('colour') & 9 & line 9 & 5 ('weight') & --missing" &&
    [ ! -e t.h5 ]
ok $? "missing cells are refused: columns, counts and first lines"
call 0 import csv table.csv t.h5 $options && call 0 data t.h5 &&
    grep -q '^  test/id (30) strings' out && grep -q '^  train/x (78, 9)' out &&
    grep -q 'named age, age missing, colour=blue, colour=green, colour=red, colour missing, size, weight, w' out &&
    grep -q 'normalised with mean [^ ]*, 0, 0, 0, 0, 0, [^ ]*, [^ ]* and std [^ ]*, 1, 1, 1, 1, 1, [^ ]*, [^ ]*, ' out
ok $? "categories and indicators become inputs that are not normalised; the id is beside them"

cat >net.ini <<'INI'
threads = 1
[model]
layers = linear 2
[data]
train = t.h5
batch_size = 13
[optimizer]
lr = 0.05
[train]
epochs = 10
INI
call 0 net.ini run.dir=run && call 0 predict run new.csv out.csv && names out '^40 & new.csv' &&
    [ "$(head -n 1 out.csv)" = id,prediction,probability_no,probability_yes ] &&
    cmp -s <(cut -d, -f1 out.csv) <(cut -d, -f2 new.csv)
ok $? "predict: columns by their names, ids in the output"

# Labels 1 and 2, which data.label_values makes the classes 0 and 1, also in a table that eval reads by itself.
awk 'BEGIN { srand(2); print "a,b,y"; for (i = 0; i < 90; i++) { a = rand(); print a "," rand() "," 1 + (a > .5) } }' \
    >count.csv
call 0 import csv count.csv count.h5 && call 0 net.ini run.dir=count data.train=count.h5 data.label_values=1,2 \
    data.batch_size=15 train.epochs=30 && call 0 eval count data.test=count.h5:train --json h5.json &&
    call 0 eval count data.test=count.csv --json csv.json &&
    json "a['accuracy'] == b['accuracy'] > 0.9 and [c['name'] for c in a['classes']] == ['1', '2']" h5.json csv.json &&
    call 0 predict count count.csv p.csv && [ "$(cut -d, -f2 p.csv | sort -u | paste -sd,)" = 1,2,prediction ]
ok $? "data.label_values: a table is read as the file that it became"

cat >check.py <<'PY'
# The probabilities of out.csv from the columns in state.json, the table and the weights.
import csv, json, math, struct, sys
folder = "run/checkpoints/best/"
data = json.load(open(folder + "state.json"))["data"]
columns, blob = json.loads(data["columns"]), open(folder + "model.safetensors", "rb").read()
size = struct.unpack("<Q", blob[:8])[0]
head = json.loads(blob[8:8 + size])
def tensor(end):
    t = next(v for k, v in head.items() if k.endswith(end))
    a, b = t["data_offsets"]
    return struct.unpack("<%df" % ((b - a) // 4), blob[8 + size + a:8 + size + b])
weight, bias = tensor("weight"), tensor("bias")
mean, std = ([float(v) for v in data[k].split(",")] for k in ("mean", "std"))
for row, out in zip(csv.DictReader(open("new.csv")), csv.DictReader(open("out.csv"))):
    x = []
    for c in columns["inputs"]:
        cell = row[c["name"]]
        missing = cell in ("", "NA")
        if c["kind"] == "number": x.append(c["fill"] if missing else float(cell))
        elif c["kind"] == "one-hot": x += [float(cell == k) for k in c["categories"]]
        else: x.append(float(c["categories"].index(cell)))
        if c.get("indicator"): x.append(float(missing))
    x = [(v - m) / s for v, m, s in zip(x, mean, std)]
    scores = [bias[k] + sum(w * v for w, v in zip(weight[k * len(x):], x)) for k in (0, 1)]
    most = max(scores)
    p = [math.exp(s - most) for s in scores]
    found = [float(out["probability_no"]), float(out["probability_yes"])]
    if any(abs(a - b / sum(p)) > 1e-5 for a, b in zip(found, p)): sys.exit("%s: %s, not %s" % (row, found, p))
    if out["prediction"] != ("yes" if found[1] > found[0] else "no"): sys.exit("class of %s" % row)
PY
python3 -I check.py 2>err
ok $? "the probabilities are those of Python from the same weights"
# The values for missing cells are those of the training rows, which are not told apart here: the mean of the rest.
awk -F, 'NR > 1 && $2 != "" { n++; s += $2 } END { print s / n }' table.csv >mean.txt &&
    call 0 import csv table.csv all.h5 --id id --drop junk --missing mean &&
    awk -v mean="$(cat mean.txt)" -v found="$(grep -ao '"name":"age","kind":"number","fill":[0-9.]*' all.h5 |
        sed 's/.*://')" 'BEGIN { d = mean - found; exit !(d < 1e-3 && d > -1e-3) }'
ok $? "the fill value is the mean of the rows"

"$MPIEXEC" -np 2 "$TRAINER" predict run new.csv two.csv >out 2>err && cmp -s two.csv out.csv &&
    call 0 predict run new.csv out.h5 && call 0 data out.h5 data.x=probability && names out 'columns/id (40) strings'
ok $? "two ranks write the same; an HDF5 file has the ids, too"
call 0 predict run t.h5:test h5.csv && [ "$(head -n 1 h5.csv)" = id,prediction,probability_no,probability_yes ] &&
    { head -n 1 table.csv; cut -d, -f1 h5.csv | tail -n +2 | while read -r id; do grep "^$id," table.csv; done; } \
        >again.csv && call 0 predict run again.csv again_out.csv && cmp -s again_out.csv h5.csv &&
    call 0 predict run t.h5:test ids.h5 && call 0 data ids.h5 data.x=probability && names out 'columns/id (30) strings'
ok $? "predict on the imported file: its ids are in the output, too"
call 0 eval run --json h5.json && call 0 eval run data.test=table.csv --json csv.json &&
    json 'b["samples"] == 120 and a["samples"] == 30' h5.json csv.json &&
    { head -n 1 table.csv; tail -n 40 table.csv; } >tail.csv && call 0 eval run data.test=tail.csv --json tail.json &&
    awk -F, 'NR == FNR { truth[$1] = $7; next } truth[$1] == $2 { good++ } END { print good / 40 }' tail.csv out.csv \
        >good.txt && json "abs(a['accuracy'] - $(cat good.txt)) < 1e-9" tail.json
ok $? "eval on a table: the accuracy is that of the predictions"

# refused CODE NAMES COMMAND...: with one error that has the names, and nothing written
refused() {
    call "$1" "${@:3}" && [ "$(grep -c 'trainer: error' err)" = 1 ] && names err "$2" && ! ls none* >/dev/null 2>&1
}
sed 's/colour/color/' new.csv >odd.csv && refused 65 "'odd.csv' & 1 & colour & color" predict run odd.csv none.csv &&
    sed '5s/[^,]*$/old/' new.csv >odd.csv &&
    refused 65 "'odd.csv' & 5 & 5 ('age') & 'old'" predict run odd.csv none.csv &&
    sed '5s/$/,1/' new.csv >odd.csv && refused 65 "'odd.csv' & 5 & 6 & 5" predict run odd.csv none.csv &&
    sed '1s/$/,age/; 2,$s/$/,1/' new.csv >odd.csv &&
    refused 65 "'odd.csv' & 'age' & 5 & 6" predict run odd.csv none.csv &&
    refused 65 "'new.csv' & kind" eval run data.test=new.csv &&
    sed '3s/no$/maybe/; 3s/yes$/maybe/' table.csv >odd.csv &&
    refused 65 "'odd.csv' & 3 & 'kind' & 2 & no, yes & 'maybe'" eval run data.test=odd.csv &&
    refused 66 "'none.csv'" predict run none.csv out2.csv &&
    refused 2 "'none.txt' & .csv & .h5" predict run new.csv none.txt && cp out.csv kept.csv &&
    refused 78 "'out.csv' & --force" predict run new.csv out.csv && cmp -s out.csv kept.csv &&
    refused 65 "'new.csv' & import csv" net.ini run.dir=none data.train=new.csv
ok $? "what a table lacks is named: column, line, class, ending; nothing is written"
sed 's/red/pink/' new.csv >odd.csv && call 0 predict run odd.csv pink.csv &&
    call 0 import csv table.csv strict.h5 $options --unknown error &&
    call 0 net.ini run.dir=strict data.train=strict.h5 train.epochs=1 &&
    refused 65 "'odd.csv' & 'colour' & 'pink' & blue, green, red & --unknown" predict strict odd.csv none.csv
ok $? "an unknown category has its own code, or is refused if asked"

call 0 import csv table.csv median.h5 $options --missing median &&
    call 65 eval run data.test=median.h5 && names err "median.h5 & 'age' & data.test" &&
    call 65 net.ini run.dir=run data.train=median.h5 train.epochs=11
ok $? "a table that was imported otherwise is refused, to score and to go on with"
call 78 import csv table.csv e.h5 --drop nothing && names err "--drop & 'nothing'" &&
    call 2 import csv table.csv e.h5 --drop junk --id junk && names err "6 & 'junk' & --id" &&
    call 2 import csv table.csv e.h5 --missing-indicator && names err --missing &&
    call 2 import csv table.csv e.h5 --target age --label kind && names err '--target & --label' &&
    { echo 'name,street,y'; seq 1100 | awk '{ print "a" $1 % 30 ",s" $1 "," $1 % 2 }'; } >wide.csv &&
    call 65 import csv wide.csv e.h5 && names err "1002 & 'street' & 1000 & --drop" &&
    { echo 'name,street,y'; seq 1100 | awk '{ print "a" $1 % 200 ",s" $1 % 900 "," $1 % 2 }'; } >wide.csv &&
    call 65 import csv wide.csv e.h5 && names err "1100 & 1000 & 'street' & 900 & --ordinal" && [ ! -e e.h5 ] &&
    call 0 import csv wide.csv wide.h5 --ordinal street && call 0 data wide.h5 && names out '/train/x & (201)'
ok $? "options that do not fit; too many categories: the widest column is named"
seq 60 | awk 'BEGIN { print "name,a,y" } { print "n" ($1 < 59 ? $1 : 58) "," $1 % 7 / 2 "," $1 % 3 }' >people.csv &&
    call 65 import csv people.csv e.h5 && [ ! -e e.h5 ] &&
    names err "1 ('name') & 58 & 60 & --drop & --id & --one-hot" &&
    call 0 import csv people.csv people.h5 --one-hot name && call 0 data people.h5 && names out '/train/x & (60, 59)'
ok $? "a column whose texts are nearly all different is refused, unless it is chosen"

seq 40 | awk 'BEGIN { print "a,b,y" } { print ($1 == 7 ? 5 : "") "," $1 % 3 "," $1 % 2 }' >rare.csv
for seed in $(seq 0 9); do # the only value of a is in the test rows of about half of the seeds
    call 65 import csv rare.csv rare.h5 --missing mean --test-fraction 0.5 --seed "$seed" && break
    rm -f rare.h5
done
names err "'rare.csv' & 1 ('a') & --drop" && [ ! -e rare.h5 ]
ok $? "a column whose training rows have no value is refused"

seq 60 | awk 'BEGIN { print "a,b,up,down" } { print $1 % 7 "," $1 % 5 "," $1 % 7 + 0.5 "," 100 - $1 % 5 }' >two.csv
call 0 import csv two.csv two.h5 --target up,down &&
    printf '[model]\nlayers = linear 2\n[data]\ntrain = two.h5\nbatch_size = 10\n[optimizer]\nlr = 0.05\n' >two.ini &&
    printf '[train]\nepochs = 100\n' >>two.ini && call 0 two.ini run.dir=two &&
    call 0 predict two two.csv two_out.csv &&
    [ "$(head -n 1 two_out.csv)" = up,down,prediction_up,prediction_down ] &&
    awk -F, 'NR > 1 && ($1 - $3 > 0.1 || $3 - $1 > 0.1 || $2 - $4 > 0.1 || $4 - $2 > 0.1) { bad = 1 }
        END { exit bad || NR != 61 }' two_out.csv && call 0 eval two data.test=two.csv --json two.json &&
    call 0 eval two data.test=two.csv && grep -q '^up  *[0-9]' out && grep -q '^down  *[0-9]' out &&
    json '[t["name"] for t in a["targets"]] == ["up", "down"]' two.json
ok $? "several targets, in the units of the table"
# As pandas writes a table with its index: the first column has no name.
awk '{ print (NR > 1 ? NR : "") "," $0 ",k/l" }' two.csv >index.csv && call 0 predict two index.csv index_out.csv &&
    [ "$(head -n 1 index_out.csv)" = ,up,down,k/l,prediction_up,prediction_down ] &&
    [ "$(cut -d, -f1-4 index_out.csv | sed -n 3p)" = "$(cut -d, -f1,4-6 index.csv | sed -n 3p)" ] &&
    call 0 predict two index.csv index.h5 && call 0 data index.h5 data.x=prediction &&
    names out 'columns/column 1 (60) strings & columns/k_l (60)'
ok $? "a column without a name keeps its place in the output"
seq 40 | awk '{ print $1 % 7 "," ($1 % 2 ? "x" : "y") "," $1 % 2 }' >bare.csv && call 0 import csv bare.csv bare.h5 &&
    call 0 net.ini run.dir=bare data.train=bare.h5 && cut -d, -f1,2 bare.csv >inputs.csv &&
    call 0 predict bare inputs.csv a.csv && call 0 predict bare bare.csv b.csv && cmp -s a.csv b.csv &&
    call 0 eval bare data.test=bare.csv
ok $? "a table without a header: columns by their place"

# An index beside noise, in rows sorted by class, as pandas writes it: with the index, a model would know the classes.
awk 'BEGIN { srand(2); print ",noise,kind"
    for (i = 0; i < 60; i++) printf "%d,%.3f,%s\n", i, rand(), substr("xyz", 1 + int(i / 20), 1) }' >sorted.csv
call 0 import csv sorted.csv sorted.h5 && once err 'column 1' && call 0 data sorted.h5 &&
    names out 'train/x & (60, 1)' &&
    call 0 net.ini run.dir=sorted data.train=sorted.h5 'model.layers=linear 3' train.epochs=60 &&
    call 0 predict sorted sorted.csv guess.csv && call 0 eval sorted data.test=sorted.csv --json sorted.json &&
    json "a['accuracy'] < 0.6 and abs(a['accuracy'] - $(python3 -I -c '
import csv
pairs = zip(csv.DictReader(open("sorted.csv")), csv.DictReader(open("guess.csv")))
print(sum(t["kind"] == p["prediction"] for t, p in pairs) / 60)')) < 1e-9" sorted.json
ok $? "an index without a name is no input"
seq 20 | awk 'BEGIN { print "id,a,y" } { print $1 "," $1 % 3 + $1 / 8 "," $1 % 2 }' >id.csv
call 0 import csv id.csv id.h5 &&
    once err "^warning & 'id.csv' & 1 ('id') & --drop id & --id id" && call 0 import csv id.csv id.h5 --id id --force &&
    ! grep -q '^warning' err
ok $? "a column with a name that counts the rows is pointed out"

# What a table of 0.2.0 took for an input or a category remains one. The twin has other names of the same length.
awk 'BEGIN { print "Index,col,kind"
    for (i = 0; i < 60; i++) print i "," (i % 4 ? "a" : "(NA)") "," (i < 30 ? "x" : "y") }' >twin.csv
sed 's/Index/index/; s/(NA)/<NA>/' twin.csv >old.csv && call 0 import csv twin.csv twin.h5 &&
    LC_ALL=C sed 's/Index/index/g; s/(NA)/<NA>/g' twin.h5 >old.h5 && for f in twin old; do
        call 0 net.ini run.dir=$f data.train=$f.h5 && call 0 predict $f $f.csv $f.out.csv || break
    done && cmp -s twin.out.csv old.out.csv && ! grep -q warning err &&
    call 0 data old.h5 && names out 'named index, col=<NA>, col=a'
ok $? "an index and a missing word that a checkpoint has learned are read as it learned them"
for word in '<NA>' NaT nan '\\N' NULL; do
    sed "s/NA/$word/" new.csv >word.csv && call 0 predict run word.csv word.out.csv && cmp -s word.out.csv out.csv ||
        break
    rm word.out.csv
done && [ ! -e word.out.csv ]
ok $? "predict: every word for a missing value is one"
seq 60 | awk 'BEGIN { print "2019,2020,label" } { print $1 % 7 "," $1 % 5 "," substr("xyz", 1 + $1 % 3, 1) }' >years.csv
call 0 import csv years.csv years.h5 && names err "'label' & --header no" && call 0 data years.h5 &&
    names out 'train/x & (60, 2)' && names out 'named 2019, 2020' &&
    call 0 net.ini run.dir=years data.train=years.h5 'model.layers=linear 3' && cut -d, -f2,1 years.csv >ask.csv &&
    call 0 predict years ask.csv ask.out.csv && [ "$(wc -l <ask.out.csv)" = 61 ]
ok $? "a header of numbers: 60 rows, not 61"

sed 's/red/pink/' new.csv >odd.csv && call 0 predict run odd.csv pink2.csv &&
    line=$(grep -n pink odd.csv | sed 's/:.*//; q') &&
    once err "^warning & 'odd.csv' & 4 ('colour') & $(grep -c pink odd.csv) & 40 & 'pink' & line $line"
ok $? "categories that the training rows lack: one warning, with the number of rows"
sed '3s/[^,]*$/old/; 5s/[^,]*$/1e99/; 6s/^[^,]*/x/; 7s/^[^,]*/inf/' new.csv >odd.csv &&
    refused 65 "'odd.csv' & 5 ('age') & 'old' & line 3 & 1 & 1 ('weight') & 'x' & line 6" \
        predict run odd.csv none.csv &&
    sed '3s/^\([^,]*\),[^,]*/\1,old/; 4s/[^,]*$/maybe/; 6s/[^,]*$/NA/' table.csv >odd.csv &&
    refused 65 "'odd.csv' & 2 ('age') & 'old' & line 3 & 7 ('kind') & 2 & no, yes & 'maybe' & line 4 & 1" \
        eval run data.test=odd.csv &&
    xz -c new.csv >new.csv.xz && refused 65 "'new.csv.xz' & xz -dk" predict run new.csv.xz none.csv &&
    tail -n +2 new.csv >odd.csv &&
    refused 65 "'odd.csv' & 1 & age, colour, size, weight" predict run odd.csv none.csv &&
    sed '1i a,b' inputs.csv >odd.csv && refused 65 "'odd.csv' & column 1 & 'a' & line 1" predict bare odd.csv none.csv
ok $? "all columns that do not fit are named at once"

seq 2000 | awk '{ print $1 % 7 "," ($1 % 2 ? "x" : "y") }' >many.csv
slow="FAIL_CALL=pread FAIL_ON=many.h5 FAIL_AT=0 FAIL_HOW=sleep:20"
if can_preload; then
    call 0 import csv many.csv many.h5 --label none &&
        interrupted TERM 143 left.csv predict predict bare many.h5:train left.csv data.batch_size=1 data.block=1
    ok $? "a signal leaves no part of the CSV file"
else
    skip "a signal leaves no part of the CSV file" "no libfail.so under sanitizers"
fi

# 40 rows, each of them twice: of the 16 rows held out, some have the inputs of a row for training.
for copy in 1 2; do
    seq 40 | awk '{ print $1 / 8 "," $1 % 3 "," ($1 % 2 ? "Yes" : $1 % 4 ? "no" : "no ") }'
done >rows.csv
{ echo 'a,b,label'; sed 's/no $/"no "/' rows.csv; } >twice.csv
call 0 import csv twice.csv twice.h5 --test-fraction 0.1 && once err "^warning & 'twice.csv' & [0-9]* & 16" &&
    once err "^warning & 'no' (20 rows) & 'no ' (20 rows)"
ok $? "rows that are in two groups, and labels that differ in blanks, get a warning"
# The second of a pair has a capital, a blank that does not break lines, a Greek and a Latin capital; five pairs in all.
{ echo 'a,y'; for y in ant Ant bee $'bee\302\240' $'\316\264' $'\316\224' $'\303\251' $'\303\211' $'caf\303\251' \
    $'CAF\303\211' other another; do echo "1,$y"; echo "2,$y"; done; } >alike.csv
call 0 import csv alike.csv alike.h5 && once err "^warning & 'alike.csv' & 5 & 'Ant' (2 rows) & 'ant' & \.\.\." &&
    [ "$(grep -o ' and .[^ ]*. (2 rows)' err | wc -l)" = 3 ]
ok $? "three pairs of alike labels are named, all are counted"
awk 'BEGIN { print "mass,y"; for (i = 0; i < 60; i++) print i % 25 " kg," i % 2 }' >units.csv
call 0 import csv units.csv units.h5 && once err "^warning & 'units.csv' & 1 ('mass') & 25 & '0 kg' & --one-hot" &&
    call 0 import csv units.csv units.h5 --one-hot mass --force && ! grep -q '^warning' err
ok $? "numbers with units are no categories, unless --one-hot says so"
{ echo 'a,b,label'; sed 's/no $/no/' rows.csv | sort -u; } >once.csv
call 0 import csv once.csv once.h5 --test-fraction 0.1 && ! grep -q warning err
ok $? "others do not"
echo "1..$n"
