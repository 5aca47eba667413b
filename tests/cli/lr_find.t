#!/usr/bin/env bash
# TEST timeout=120
# trainer lr-find: losses over learning rates, alike on any number of ranks, without a run folder.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/lr_find}/tests/support/common.sh"

command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }

config
find=(lr-find net.ini parallel.reproducible=yes --steps 20 --from 1e-3 --to 10 --rates 5)
before=$(ls)
call 0 "${find[@]}" --json one.json --svg one.svg && grep -q 'optimizer.lr = ' out
ok $? "it suggests a rate"
[ "$(ls)" = "$(printf '%s\n' $before err one.json one.svg out | sort -u)" ] && [ ! -e runs ]
ok $? "it writes no run folder"
ok_keys lr_find one.json
json 'len(a["rates"]) == 5 and a["steps"] == 20 and abs(a["rates"][0]["lr"] - 1e-3) < 1e-9 and
       all(abs(q["lr"] / p["lr"] - 10) < 1e-6 for p, q in zip(a["rates"], a["rates"][1:])) and
       0 < a["suggestion"] <= a["lowest"]' one.json
ok $? "the rates are a geometric sequence"
python3 -I -c 'import sys, xml.dom.minidom as x
sys.exit(len(x.parse("one.svg").getElementsByTagName("path")) < 4)'
ok $? "the plot is SVG"
for r in 2 4; do
    run $r "${find[@]}" --json $r.json && json '[a[k] == b[k] for k in ("rates", "suggestion")] == [True, True]' \
        one.json $r.json
    ok $? "$r ranks: the same losses and suggestion"
done
# A rate begins with the first weights, whatever was trained before it; also with copies in two bytes and a loss scale.
for precision in fp32 bf16 fp16; do
    call 0 lr-find net.ini precision=$precision --steps 8 --from 1e-3 --to 0.1 --rates 3 --json all.json &&
        call 0 lr-find net.ini precision=$precision --steps 8 --from 0.1 --to 0.1 --rates 1 --json last.json &&
        json 'a["rates"][2]["loss"] == b["rates"][0]["loss"] and a["rates"][0]["loss"] != a["rates"][2]["loss"]' \
            all.json last.json
    ok $? "$precision: a rate alone has the loss that it has in a sweep"
done
call 0 lr-find net.ini --steps 20 --from 1e-2 --to 1e6 --rates 3 optimizer.type=sgd --json d.json &&
    json 'a["rates"][-1]["loss"] is None and a["rates"][0]["loss"] > 0' d.json
ok $? "a rate at which training diverges has no loss"
call 2 lr-find net.ini --steps 20 --from 1e6 --to 1e6 --rates 1 optimizer.type=sgd && names err --from --to &&
    call 2 lr-find net.ini --from 1 --to 0.1 && names err --from --to &&
    call 78 lr-find net.ini model.init=other && names err model.init
ok $? "only rates that diverge, rates in the wrong order, and initial weights"
if [ -e "$BUILD/hostcuda/libtrainer_cuda.so" ]; then
    find=("$TRAINER" lr-find net.ini device=cuda --steps 8 --to 0.1)
    fakes "${find[@]}" --from 1e-3 --rates 3 --json all.json >out 2>&1 &&
        fakes "${find[@]}" --from 0.1 --rates 1 --json last.json >out 2>&1 &&
        json 'a["rates"][2]["loss"] == b["rates"][0]["loss"]' all.json last.json
    ok $? "device cuda (fakes): a rate alone has the loss that it has in a sweep"
fi
echo "1..$n"
