#!/usr/bin/env bash
# The dashboard for Grafana and the rules for Prometheus name only metrics that the program has.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/dashboards}/tests/support/common.sh"
cd "$TRAINER_ROOT" || exit 1
{
    sed -n 's/^METRIC([^"]*"\([a-z_0-9]*\)".*/trainer_\1/p' src/base/record_fields.def
    sed -n 's/^ *{"\([a-z_0-9]*\)", "\(gauge\|counter\)".*/trainer_\1/p' src/monitor/prometheus.c
} | sort -u >"$TMPDIR/known"
for file in tools/grafana/trainer.json tools/prometheus/alerts.yml; do
    grep -oE 'trainer_[a-z0-9_]+' $file | sort -u >"$TMPDIR/named"
    comm -13 "$TMPDIR/known" "$TMPDIR/named" >"$TMPDIR/out"
    [ -s "$TMPDIR/named" ] && [ ! -s "$TMPDIR/out" ]
    ok $? "$file"
done
python3 -I -c 'import json; json.load(open("tools/grafana/trainer.json"))'
ok $? "the dashboard is JSON"
if command -v promtool >/dev/null; then
    promtool check rules tools/prometheus/alerts.yml >"$TMPDIR/out" 2>&1
    ok $? "promtool accepts the rules"
else
    skip "promtool accepts the rules" "there is no promtool"
fi
echo "1..$n"
