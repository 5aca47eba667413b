#!/usr/bin/env bash
# trainer report: numbers of scaling.csv against ones computed by hand, what it refuses, what may be missing in a run
# folder.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/report}/tests/support/common.sh"
report() { "$TRAINER" report "$@" >out 2>&1; }

# line STEP STEP_MS RATE DATA COMM CHECKPOINT [MORE]: a line of metrics.jsonl
line() {
    printf '{"step":%s,"loss":%s,"samples_per_sec":%s,' "$1" "0.$1" "$3"
    printf '"data_stall":%s,"comm_exposed":%s,"checkpoint":%s,' "$4" "$5" "$6"
    printf '"session":1,"step_ms":%s,"step_ms_p95":%s%s}\n' "$2" "$(($2 * 2))" "${7-}"
}
# member DIR RANKS BATCH MICRO STEP_MS [THREADS [HOSTS]]: a run with steps of STEP_MS and a first line of warm-up
member() {
    local rate=$(($3 * 1000 / $5)) over=
    if [ "$2" != 1 ]; then
        over=',"compute_min":0.5,"compute_max":0.7,"data_stall_min":0,"data_stall_max":0,"wait_min":0.3,"wait_max":0.5'
        over=$over',"slowest_rank":1,"slowest_host":"n<2>"'
    fi
    mkdir -p "$1"
    {
        line 10 900 1 0 0 0
        line 20 "$5" $rate 0 0.25 0 "$over"
        line 30 "$5" $rate 0 0.25 0 "$over"
    } >"$1/metrics.jsonl"
    cat >"$1/summary.json" <<END
{"status":"done","ranks":$2,"hosts":${7-1},"batch_size":$3,"micro_batch":$4,"threads":${6-1},
 "precision":"fp32","device":"cpu","commit":"1+a","parameters":9}
END
    echo 'done' >"$1/verdict"
}
# row FILE RANKS [KIND]: the row of scaling.csv without kind and mode
row() { awk -F, -v ranks="$2" -v kind="${3-measured}" '$4 == ranks && $1 == kind' "$1/scaling.csv" | cut -d, -f3-; }
reading() { grep -o "\"$2\": [^,}]*" "$1/summary.json" | head -n 1 | cut -d' ' -f2-; } # FOLDER KEY: its first value

# -- one run: 20 steps of 64 samples in 0.1 s and 0.12 s, after the warm-up
mkdir run
{
    line 10 500 9 0.9 0 0
    line 20 10 6400 0.05 0.1 0
    line 30 12 5333.333333333 0 0.2 0.05
    echo '{"step":30,"valid_loss":0.4}'
    echo '{"step":40,"lo'
} >run/metrics.jsonl
# Each event is one line of the file: here the lines behind its first are indented.
sed -e ':a' -e '$!N' -e 's/\n  *//' -e ta -e 'P;D' >run/sessions.jsonl <<'END'
{"event":"start","session":1,"utc":"2026-01-01T00:00:10Z","unix_time":1000,"job":"17","restart":0,
    "hosts":["n1","n2"],"ranks":2,"first_step":1,"startup":{"whole_sec":2}}
{"event":"end","session":1,"unix_time":1010,"job":"17","restart":0,"verdict":"again","code":75,
    "first_step":1,"last_step":15,"first_step_sec":3,"wall_sec":12,"checkpoint_stall_sec":0.5}
{"event":"start","session":2,"utc":"2026-01-01T00:01:10Z","unix_time":1060,"job":"17","restart":1,
    "hosts":["n1","n2"],"ranks":2,"first_step":16,"startup":{"whole_sec":4}}
{"event":"end","session":2,"unix_time":1070,"job":"17","restart":1,"verdict":"done","code":0,
    "first_step":16,"last_step":30,"first_step_sec":5,"wall_sec":14,"checkpoint_stall_sec":0.5}
END
echo '{"status":"done","ranks":2,"hosts":2,"batch_size":64,"micro_batch":32,"model":"sequential"}' >run/summary.json
report run --out one
[ $? = 0 ] && [ "$(cat out)" = one/index.html ]
ok $? "one run"

head -n 1 one/scaling.csv >out
columns=kind,mode,nodes,ranks,batch_global,step_ms_median,step_ms_p95,compute_ms,comm_exposed_ms,data_stall_ms
columns=$columns,checkpoint_ms,samples_per_sec,efficiency,speedup,predicted_step_ms,predicted_efficiency
[ "$(cat out)" = $columns ]
ok $? "the columns of scaling.csv"
tail -n +2 one/scaling.csv >out
[ "$(cat out)" = measured,,2,2,64,11,22,8.75,1.7,0.25,0.3,5818.18,,,, ]
ok $? "its numbers: medians and means of the lines after the warm-up"
# launched at 1060 - 4, the session before ended at 1010
grep -q '<td>46.0</td>' one/index.html &&
    [ "$(reading one verdict) $(reading one code) $(reading one sessions)" = '"done" 0 2' ]
ok $? "sessions and the time lost between them"

# -- a weak sweep: 10 ms on one rank, 16 and 20 and 24 ms on two, 40 ms on four
member w/weak-n1-r1 1 8 8 10
member w/weak-n2-r1 2 16 8 16
member w/weak-n2-r2 2 16 8 24
member w/weak-n2-r3 2 16 8 20
member w/weak-n4-r1 4 32 8 40 1 2
mkdir w/weak-n8-r1
echo 'no 78 <b>wrong</b> key' >w/weak-n8-r1/verdict
report w/weak-n*/ --out w/report
rc=$?
cp w/report/scaling.csv out
[ $rc = 0 ] && [ "$(row w/report 1)" = 1,1,8,10,20,7.5,2.5,0,0,800,1,1,, ] &&
    [ "$(row w/report 2)" = 1,2,16,20,40,15,5,0,0,800,0.5,1,, ] &&
    [ "$(row w/report 4)" = 2,4,32,40,80,30,10,0,0,800,0.25,1,, ] && [ "$(grep -c . w/report/scaling.csv)" = 4 ]
ok $? "weak: the median of repeats, efficiency t(ref) / t(N), speedup efficiency N / ref"

# of 40 ms: network 12, compute 20, slow rank 8; of 10 ms on one rank: network 2.5, compute 7.5
causes='{"compute":12.5,"slowrank":8.0,"data":0.0,"network":9.5,"checkpoint":0.0,"cores":0.0}'
[ "$(reading w/report lost_ms)" = 10.0 ] &&
    tr -d ' \n' <w/report/summary.json >out &&
    grep -q "\"lost_ms\":30.0,\"lost_ms_by_cause\":$causes" out
ok $? "the lost time by cause"
ok_keys report w/report/summary.json

grep -q 'no 78\|<td>78</td>' w/report/index.html && grep -q 'weak-n8-r1' w/report/index.html &&
    grep -q '"code": 78' w/report/summary.json && grep -q '&#60;b&#62;wrong' w/report/index.html &&
    ! grep -q '<b>wrong' w/report/index.html
ok $? "a member that failed is listed with its code and reason"
report w/weak-n2-r1 --out h
grep -q 'n&#60;2&#62;' h/index.html && ! grep -q 'n<2>' h/index.html &&
    grep -qx 'measured,,1,2,16,16,32,12,4,0,0,1000,,,,' h/scaling.csv
ok $? "a member alone; the name of its slowest host is escaped"
over=',"wait_min":0.3,"wait_max":0.5,"slowest_rank":1,"slowest_host":"n"'
# the shares of line 30 reach back into line 10, the warm-up; those of line 50 cover lines 40 and 50
mkdir p
{
    line 10 900 1 0 0 0 "$over"
    line 20 10 1600 0 0 0
    line 30 10 1600 0 0 0 "${over//0.3/0.9}"
    line 40 10 1600 0 0 0
    line 50 10 1600 0 0 0 \
        ',"compute_min":0.8,"compute_max":0.8,"wait_min":0.2,"wait_max":0.2,"slowest_rank":0,"slowest_host":"n"'
} >p/metrics.jsonl
cp w/weak-n2-r1/summary.json p; sed -i 's/{/{"engine":"poll",/' p/summary.json
report p --out p-report
[ $? = 0 ] &&
    cp p-report/summary.json out &&
    [ "$(reading p-report wait_min_ms) $(reading p-report slowest_rank)" = '2.0 0' ] &&
    cp p-report/index.html out && grep -q 'in 1 of 1 line' out && grep -q 'parallel.engine = thread' out
ok $? "shares of all ranks that reach into the warm-up do not count; advice for the engine"

# -- a strong sweep: 40 ms on one rank, 25 ms on two
member s/strong-n1-r1 1 64 64 40
member s/strong-n2-r1 2 64 32 25
report s/strong-n* w/weak-n[12]* --out s/report
rc=$?
cp s/report/scaling.csv out
[ $rc = 0 ] && grep -qx 'measured,strong,1,2,64,25,50,18.75,6.25,0,0,2560,0.8,1.6,,' out &&
    grep -q '^measured,weak,1,2,' out
ok $? "strong: efficiency t(ref) ref / (t(N) N), speedup t(ref) / t(N), beside a weak sweep"

# 40 ms on one rank and 10 ms on two: 200 %
member q/strong-n2-r1 2 64 32 10
report s/strong-n1-r1 q/strong-n2-r1 --out q/report
[ $? = 0 ] && once out "warning & 200.0 & strong-n1-r1" && cp q/report/index.html out &&
    grep -q '200.0 %.*strong-n1-r1' out && ! grep -q 'Nothing holds' out
ok $? "an efficiency over 110 % is doubted, and the baseline named"

# -- predictions and replays
cat >p.json <<'END'
{"kind":"prediction","mode":"strong","rows":[
 {"nodes":1,"ranks":2,"step_ms":{"low":20,"expected":24,"high":30},"comm_exposed_ms":4,
  "efficiency":{"low":0.67,"expected":0.83,"high":1}},
 {"nodes":4,"ranks":4,"step_ms":{"low":12,"expected":15,"high":20},"comm_exposed_ms":5,
  "efficiency":{"low":0.5,"expected":0.67,"high":0.83}}]}
END
report s/strong-n* --predicted p.json --out s/predicted
rc=$?
cp s/predicted/scaling.csv out
[ $rc = 0 ] && [ "$(row s/predicted 2)" = 1,2,64,25,50,18.75,6.25,0,0,2560,0.8,1.6,24,0.83 ] &&
    [ "$(row s/predicted 4 predicted)" = 4,4,,,,,5,,,,,,15,0.67 ]
ok $? "predictions beside measured rows, and rows of their own"

for step in 26 27 59 61; do # measured: 40 ms
    sed "1s/\[/[{\"nodes\":1,\"ranks\":1,\"step_ms\":$step,\"efficiency\":1},/" p.json >one.json
    report s/strong-n* --predicted one.json --out s/one$step
    rc=$?
    case $step in
    26 | 61) [ $rc = 0 ] && names out "one.json & $step ms & 40 ms & 1.5" ;;
    *) [ $rc = 0 ] && ! grep -q warning out ;;
    esac
    ok $? "a step of $step ms on one rank: a warning from a factor of 1.5 on"
done

echo '{"rows":[]}' >bad.json
report s/strong-n* --predicted bad.json --out no
[ $? = 65 ] && names out bad.json prediction && report run --predicted none.json --out no
[ $? = 66 ] && names out none.json && [ ! -e no ]
ok $? "a file that is not a prediction, and none"
for ranks in 1 2; do
    member r/weak-n$ranks-r1 $ranks $((ranks * 8)) 8 $((8 + ranks))
    sed -i 's/"status"/"kind":"replay","status"/' r/weak-n$ranks-r1/summary.json
done
for key in '"parameters":10' '"precision":"bf16"' '"threads":3'; do
    sed "1s/{/{$key,/" p.json >other.json
    report s/strong-n* --predicted other.json --out no
    [ $? = 65 ] && names out other.json "$(tr -cd a-z <<<"${key%%:*}")" && [ ! -e no ]
    ok $? "a prediction with another $key"
done
report r/weak-n* w/weak-n1-r1 --out r/report
rc=$?
cp r/report/scaling.csv out
[ $rc = 0 ] &&
    row r/report 2 replay | grep -q '^1,2,16,10,20,7.5,2.5,0,0,1600,0.9,1.8,,$' &&
    row r/report 1 | grep -q '^1,1,8,10,'
ok $? "a replay is a sweep of its own"

# -- refused
refused() { # NAMES RUNS...
    local wanted=$1
    shift
    report "$@" --out no
    [ $? = 65 ] && names out "$wanted" && [ ! -e no ]
}
member w2 2 16 8 20 2
refused "threads & w2 & weak-n1-r1" w/weak-n1-r1 w2
ok $? "mixed threads"

for key in precision device commit; do
    cp -r w/weak-n2-r1 "m-$key" && sed -i "s/\"$key\":\"[^\"]*\"/\"$key\":\"other\"/" "m-$key/summary.json"
    refused "$key & m-$key" w/weak-n1-r1 "m-$key"
    ok $? "mixed: $key"
done
member b/weak-n2-r1 2 24 8 20
refused "weak-n2-r1 & 24" w/weak-n1-r1 b/weak-n2-r1
ok $? "weak: another batch per rank"

member b/strong-n2-r1 2 64 16 20
refused "strong-n2-r1 & 64 & 16" s/strong-n1-r1 b/strong-n2-r1
ok $? "strong: a micro-batch that is not batch / ranks"
refused "x/a & x/b" $(member x/a 1 8 8 10; member x/b 2 24 8 10; echo x/a x/b)
ok $? "runs on several numbers of ranks that are neither"
report nowhere --out no; [ $? = 66 ] && names out nowhere
ok $? "no such folder"
cp run/summary.json kept
report w/weak-n1-r1 --out run; [ $? = 2 ] && cmp run/summary.json kept
ok $? "--out never is a run folder"
report run; [ $? = 2 ] && report run --out; [ $? = 2 ] && report run --aut o; [ $? = 2 ] && names out --out
ok $? "usage"

echo started >w/weak-n1-r1.log && echo started >w/weak-n2-r1.log && mkdir w/plots
report w --out whole && cmp whole/scaling.csv w/report/scaling.csv &&
    [ "$(grep -o '"complete"' whole/summary.json | wc -l)" = 6 ]
ok $? "the folder of a sweep: its run folders, not the report in it"
report w/* --out all && cmp all/scaling.csv w/report/scaling.csv && names out '2 & w/weak-n1-r1.log' &&
    names out w/plots
ok $? "all that is in it: logs and a folder without runs are left out"
report w/plots --out no
[ $? = 66 ] && names out w/plots && report w/*.log --out no
[ $? = 66 ] && names out w/weak-n1-r1.log && [ ! -e no ]
ok $? "no run at all"
report w/weak-n1-r1 w/report "$PWD/w/weak-n1-r1/" w/weak-n2-r1 --out twice
[ $? = 0 ] && names out w/weak-n1-r1 && names out w/report &&
    [ "$(grep -o "\"complete\"" twice/summary.json | wc -l)" = 2 ]
ok $? "a run given twice counts once, a report is left out"
member b/strong-n1-r1 1 32 16 20
refused "strong-n1-r1 & 16 & 32" b/strong-n1-r1 s/strong-n2-r1
ok $? "strong: the first run is the one that is wrong"
member b64 1 64 64 10
report w/weak-n1-r1 b64 --out apart; [ $? = 0 ] && cp apart/index.html out && grep -q 'not compared.*weak-n\*' out
ok $? "a run that is in no sweep, beside one"

# -- what may be missing
mkdir old
printf '{"step":%d,"loss":1,"samples_per_sec":100,"data_stall":0,"comm_exposed":0,"time":1}\n' 1 2 3 >old/metrics.jsonl
echo '{"status":"done","ranks":1,"batch_size":10}' >old/summary.json
report old --out o
rc=$?
tail -n 1 o/scaling.csv >out
[ $rc = 0 ] && [ "$(cat out)" = measured,,,1,10,100,,100,0,0,0,100,,,, ] && [ "$(reading o sessions)" = 0 ]
ok $? "a run of an older version: no sessions, no medians"

mkdir dead
sed -n 1p run/sessions.jsonl >dead/sessions.jsonl
report dead --out d; [ $? = 0 ] && [ "$(reading d verdict) $(reading d code)" = '"running or killed" null' ]
ok $? "a run that is running or was killed"
echo '{"status":' >dead/summary.json
report dead --out no; [ $? = 65 ] && names out dead/summary.json
ok $? "a summary that is not JSON"
# A pipe, which nobody writes to, and a file of 1 TB without an end of line: nothing waits or reads on.
for file in metrics.jsonl sessions.jsonl summary.json; do
    rm -rf odd && cp -r run odd && rm odd/$file && mkfifo odd/$file
    timeout 60 "$TRAINER" top odd --once >out 2>&1; [ $? = 65 ] && once out "trainer: error & odd/$file" ||
        echo "pipe $file"
    rm odd/$file && truncate -s 1T odd/$file
    timeout 60 "$TRAINER" report odd --out no >out 2>&1; [ $? = 65 ] && once out "trainer: error & odd/$file" ||
        echo "1 TB $file"
done >odd.txt
rm -rf odd && cp -r run odd && rm odd/metrics.jsonl && mkfifo odd/metrics.jsonl
timeout 60 "$TRAINER" compare odd run >out 2>&1; [ $? = 65 ] && once out "trainer: error & odd/metrics.jsonl" &&
    [ ! -s odd.txt ]
ok $? "pipes and endless files in a run folder: refused by name"
hostile=$'<script>"&\'\n\377;$(touch hit)`touch hit`\'; set print'
cp -r run "$hostile"
report "$hostile" run --out h
rc=$?
cp h/index.html out
[ $rc = 0 ] && ! grep -q '<script' h/index.html && [ ! -e hit ] && grep -q '&#60;script&#62;' h/index.html &&
    iconv -f utf-8 h/index.html h/summary.json >/dev/null
ok $? "a hostile name"

# -- cores that others use: of 20 ms on two ranks, whose threads wait half of the time, compute 5, slow 2, network 3
member c/weak-n1-r1 1 8 8 10
member c/weak-n2-r1 2 16 8 20
sed -i 's/"threads"/"cpu_util":0.5,"cpu_wait":0.5,"cores":1,"threads"/' c/weak-n2-r1/summary.json
report c/weak-n* --out c/report
causes='{"compute":-2.5,"slowrank":2.0,"data":0.0,"network":0.5,"checkpoint":0.0,"cores":10.0}'
tr -d ' \n' <c/report/summary.json >out && grep -q "\"lost_ms_by_cause\":$causes" out &&
    grep -o '"explanation": .*' c/report/summary.json >out && names out '0.5 cores & 2.0 times & trainer doctor' &&
    ! grep -qi 'network\|slow rank' out
ok $? "cores that other programs use are a cause of their own, and no network is blamed"
# explained NAME [SED]: what the page says of a run that waits half of its time for others and for data
explained() {
    mkdir "$1"
    sed 's/}$/,"cpu_util":0.42,"cpu_wait":0.58}/; s/"comm_exposed":[^,]*/"comm_exposed":0.3/' run/metrics.jsonl |
        sed "${2-}" >"$1/metrics.jsonl"
    echo '{"ranks":2,"batch_size":64,"device":"cpu","threads":2,"cores":1.5}' | sed "${2-}" >"$1/summary.json"
    report "$1" --out "$1-page" && grep 'class="words"' "$1-page/index.html" >out
}
explained crowded && names out '56 % & 0.42 & 0.58 & 2.4 times & threads = auto' && ! grep -qi 'network\|data' out &&
    explained beside 's/"cores":1.5/"cores":2/' && names out '56 % & trainer doctor & --exclusive' &&
    explained alone 's/0.58/0.01/' && grep -q network out && explained gpu 's/"cpu"/"cuda"/' && grep -q network out &&
    explained few 's/0.58/0.01/; s/\("[a-z_]*\(exposed\|stall\|point\)":\)[^,]*/\10/g' &&
    names out '95 % & 2 threads & 0.42 & data.micro_batch' && "$TRAINER" top crowded gpu >out &&
    [ "$(grep -o '58 %: cores' out | wc -l)" = 1 ]
ok $? "a run whose threads wait for cores: too many threads, other programs; the network where there are none"

# -- plots, which no other program draws
PATH=/nonexistent "$TRAINER" report run --out drawn >out 2>&1
[ $? = 0 ] && [ "$("grep" -c '</svg>' drawn/index.html)" = 3 ] && "grep" -q '>validation<' drawn/index.html
ok $? "three plots of a run"
# The losses of gpt span more than a decade, 0.01 to 0.3; those of reg do not.
mkdir gpt reg
{
    for step in 10 20 30; do
        line $step 10 100 0 0 0 ",\"lr\":0.00$step,\"tokens_per_sec\":6400,\"perplexity\":$step"
    done
    echo '{"step":30,"valid_loss":0.01,"valid_perplexity":7.25}'
} >gpt/metrics.jsonl
grep -v valid gpt/metrics.jsonl | sed 's/,"tokens_per_sec.*/}/' >reg/metrics.jsonl # has lr
printf '{"step":%d,"valid_loss":0.1,"valid_r2":%s}\n' 20 0.25 30 0.875 >>reg/metrics.jsonl
echo '{"status":"done","ranks":1,"batch_size":4,"valid_perplexity":7.25,"tokens_per_sec":6400}' >gpt/summary.json
echo '{"status":"done","ranks":1,"batch_size":4,"valid_r2":0.875,"test_r2":0.8125}' >reg/summary.json
echo 'done' | tee gpt/verdict >reg/verdict
printf '[run]\nname = my <first>\n' >reg/config.ini
titles() { grep -o "class='title'>[^<]*" "$1/index.html" | sed 's/.*>//' | paste -sd'|'; }
fact() { grep -A 1 "<dt>$2</dt>" "$1/index.html" | sed -n 's/<dd>\(.*\)<.dd>/\1/p'; }
report gpt --out g && report reg --out r && titles g >out && titles r >>out
[ "$(titles g)" = 'Loss|Perplexity|Throughput|Step time by part, rank 0|Learning rate' ] &&
    [ "$(titles r)" = "Loss|R²|Throughput|Step time by part, rank 0|Learning rate" ] &&
    grep -q '>tokens/s</text>' g/index.html && ! grep -q '>samples/s</text>' g/index.html &&
    grep -q '>samples/s</text>' r/index.html && grep -q '>0.02</text>' g/index.html &&
    ! grep -q '>0.02</text>' r/index.html
ok $? "the plots of a language model and of a regression"
[ "$(fact g 'validation perplexity') $(fact g tokens/s)" = '7.25 6400' ] &&
    [ "$(fact r 'validation R²') $(fact r 'test R² of the last')" = '0.8750 0.8125' ] &&
    [ "$(fact one 'step time, median') $(fact one 'step time, 95th percentile')" = '11.00 ms 22.00 ms' ]
ok $? "perplexity, R2 and percentiles among the facts"
grep -q '<title>my &#60;first&#62;</title>' r/index.html &&
    grep -q '<h1>run <span class="state">done</span></h1>' one/index.html &&
    ! grep -q '>replay<\|>predicted<' one/index.html && grep -q '>replay</span>' r/report/index.html &&
    grep -q 'class="kind p-predicted"' w/report/index.html
ok $? "a page is named as its run; the words of sweeps are on their pages"
# means N: the page's tables of means, which have no percentile
for page in one w/report; do
    sed -n '/Mean time of a step/,/<.table>/p' $page/index.html | grep -q '>compute<' || echo "$page: no means"
    sed -n '/Mean time of a step/,/<.table>/p' $page/index.html | grep 'percentile'
done >out
[ ! -s out ]
ok $? "no table has means and percentiles"
for folder in w/report s/predicted; do
    cp $folder/index.html out
    [ "$(grep -c '</svg>' out)" = 4 ]
    ok $? "four plots of the sweep in $folder"
done
# Efficiencies of 100, 50 and 25 % on 1, 2 and 4 ranks, of 41.7 to 62.5 % on 2; the axes are 200 pixels for 100 %, and
# logarithmic.
sed -n '1,/<\/svg>/p' w/report/index.html >out
awk -F"'" 'function near(a, b) { if (a - b > 0.15 || b - a > 0.15) bad = 1 }
    /^<circle/ { x[++n] = $2; y[n] = $4 }
    /class=.error/ { bars++; split($4, part, /[ hVm]/) }
    END { near(y[2] - y[1], 100); near(y[3] - y[2], 50); near(x[3] - x[2], x[2] - x[1])
        near(part[2] - part[6], 200 * (0.625 - 0.41667)); exit bad || n != 3 || bars != 1 }' out
ok $? "the points of its efficiency, and the error bar of repeats"

! grep -Eo "(src|href)=[\"']?[^#\"'].{0,20}|url\([\"']?[^#\"'].{0,9}|<script|<link|@import" one/index.html \
    w/report/index.html >out
ok $? "the page needs nothing from elsewhere"
echo "1..$n"
