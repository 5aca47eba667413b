#!/usr/bin/env bash
# TEST timeout=300
# trainer bench allreduce: every power of two, the definitions of the rates, the form that `trainer plan --network`
# reads, usage errors.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/bench_allreduce}/tests/support/common.sh"
# value KEY BYTES: of the row of that size in t.json
value() {
    awk -v key="\"$1\":" -v bytes="\"bytes\": $2," '
        $1 == "{" { row = ""; found = 0 }
        $0 ~ bytes "$" { found = 1 }
        $1 == key { row = $2 }
        /}/ && found { sub(/,$/, "", row); print row; exit }' t.json
}

run 2 bench allreduce --max 256k --json t.json && names out "2 & poll\|thread"
ok $? "two ranks"
[ "$(awk '$1 ~ /^[0-9]+$/ { print $1 }' out)" = "$(for ((b = 4; b <= 262144; b *= 2)); do echo $b; done)" ]
ok $? "a row for every power of two from 4 bytes to --max"
grep -q '"kind": "allreduce"' t.json && grep -q '"ranks": 2' t.json && grep -q '"nodes": 1' t.json &&
    grep -Eq '"engine": "(poll|thread)"' t.json && [ "$(grep -c '"bytes": [0-9]*,' t.json)" = 17 ]
ok $? "the keys of the JSON form"
ok_keys bench_allreduce t.json
# of 2 ranks the bus bandwidth is the algorithm bandwidth
awk -v us="$(value median_us 65536)" -v p90="$(value p90_us 65536)" \
    -v alg="$(value algbw_gbs 65536)" -v bus="$(value busbw_gbs 65536)" '
    function near(a, b) { return a > 0 && a / b > 0.9999 && a / b < 1.0001 }
    BEGIN { exit !(near(alg, 65536 / us / 1e3) && near(bus, alg) && p90 >= us) }'
ok $? "algbw is bytes / median, busbw the same of two ranks"
"$MPIEXEC" -np 4 "$TRAINER" bench allreduce --max 1k --pause 1 --json - parallel.engine=poll >t.json 2>out &&
    grep -q '"engine": "poll"' t.json &&
    awk -v alg="$(value algbw_gbs 1024)" -v bus="$(value busbw_gbs 1024)" \
        'BEGIN { exit !(bus / alg > 1.4999 && bus / alg < 1.5001) }'
ok $? "busbw is 2 (N - 1) / N of algbw, of four ranks; --pause; --json -"
for kind in reduce_scatter allgather; do
    run 3 bench allreduce --max 64 --kind $kind --json t.json && grep -q "\"kind\": \"$kind\"" t.json &&
        [ "$(awk '$1 ~ /^[0-9]+$/ { print $1 }' out | tr '\n' ' ')" = "12 24 48 " ] &&
        awk -v alg="$(value algbw_gbs 48)" -v bus="$(value busbw_gbs 48)" \
            'BEGIN { exit !(bus / alg > 0.6665 && bus / alg < 0.6668) }'
    ok $? "$kind: ranges of equal parts; busbw is (N - 1) / N of algbw"
done
copies=$(grep -c '"copy_gbs": [0-9]' t.json) # one a row
TRAINER_SHARED_MEMORY=0 run 2 bench allreduce --max 8 --json t.json &&
    [ "$copies" = 3 ] && [ "$(grep -c '"copy_gbs": null' t.json)" = 2 ] && names out TRAINER_SHARED_MEMORY=0
ok $? "the copy is timed where ranks share memory, and the log says why they do not"
"$TRAINER" bench allreduce >out 2>&1; [ $? = 78 ] && names out "2 & 1"
ok $? "one rank has nothing to reduce"
"$TRAINER" bench allreduce --max 3 >out 2>&1
[ $? = 2 ] && names out --max 3 &&
    { "$TRAINER" bench allreduce --maxx 4 >out 2>&1; [ $? = 2 ] && names out "--maxx & --max"; }
ok $? "usage errors"
"$TRAINER" bench allreduce parallel.engin=poll >out 2>&1; [ $? = 78 ] && names out "parallel.engin & parallel.engine"
ok $? "an unknown key"
"$TRAINER" bench allreduce --steps 3 >out 2>&1
[ $? = 2 ] && names out '--steps' 'bench allreduce' && ! names out CONFIG.ini && "$TRAINER" bench allreduc >out 2>&1
[ $? = 2 ] && grep -q 'did you mean allreduce' out
ok $? "an option of another target, an unknown target"
echo "1..$n"
