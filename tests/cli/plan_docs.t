#!/usr/bin/env bash
# TEST timeout=60
# docs/prediction.md and docs/memory.md show what `trainer plan` prints: the figures that do not depend on the
# processor.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/plan_docs}/tests/support/common.sh"

cd "$TRAINER_ROOT" || exit 1
work=$OLDPWD
kept='^(parameters|half-precision copies|gradients|optimizer state|model state|inputs, constants) '
for config in gpt2_1558m gpt2_124m; do
    command=$(grep "^trainer plan configs/$config.ini --stages " docs/prediction.md)
    # shellcheck disable=SC2086
    "$TRAINER" ${command#trainer } 2>/dev/null | grep -E "$kept" | tr -s ' ' >"$work/is"
    sed -n "/^memory per rank of configs\/$config/,/^\`\`\`/p" docs/prediction.md |
        grep -E "$kept" | tr -s ' ' >"$work/says"
    [ "$(wc -l <"$work/is")" = 18 ] && cmp -s "$work/is" "$work/says"
    ok $? "docs/prediction.md: the memory of $config"
done
"$TRAINER" plan configs/gpt2_124m.ini --largest n_layer --memory 16GiB data.format=synthetic_tokens data.micro_batch=8 \
    2>/dev/null | awk '$1 == "fp32" { print $2 }' >"$work/is"
grep '^fp32  .*GiB .*GiB$' docs/prediction.md | awk 'NR == 1 { print $2 }' >"$work/says"
[ -s "$work/is" ] && cmp -s "$work/is" "$work/says"
ok $? "docs/prediction.md: the largest model in fp32"
"$TRAINER" plan configs/oom_lab.ini --fixes --memory 80GiB | grep '^parallel.zero=1 on' | tr -s ' ' >"$work/is"
grep '^parallel.zero=1 on' docs/memory.md | tr -s ' ' >"$work/says"
[ "$(wc -l <"$work/is")" = 3 ] && [ "$(cut -d' ' -f1-5 "$work/is")" = "$(cut -d' ' -f1-5 "$work/says")" ]
ok $? "docs/memory.md: the remedies of the lab's model"
for words in 'data.micro_batch=1 *[0-9.]* GiB' \
    'model.recompute=block *[0-9.]* GiB' 'optimizer.type=sgd [^ ]* [^ ]* *[0-9.]* GiB'; do
    grep -o "^$words" docs/memory.md
done | awk '{ print $1, int($(NF - 1) / 10) }' >"$work/says"
"$TRAINER" plan configs/oom_lab.ini --fixes --memory 80GiB >"$work/fixes"
while read -r key tens; do
    awk -v key="$key" -v tens="$tens" '$1 == key { for (i = 2; i <= NF; i++) if ($i == "GiB") {
        exit !($(i - 1) / 10 > tens - 0.5 && $(i - 1) / 10 < tens + 1.5) } }' "$work/fixes" || echo "$key"
done <"$work/says" >"$work/wrong"
[ "$(wc -l <"$work/says")" = 3 ] && [ ! -s "$work/wrong" ]
ok $? "and their memory, about"
echo "1..$n"
