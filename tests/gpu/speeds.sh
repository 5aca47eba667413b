# Sourced by tests/gpu/run: speeds beside PyTorch, llm.c and the predictor, and what the GPU says of itself meanwhile.

telemetry_fields=power.draw,clocks.sm,clocks.mem,utilization.gpu,utilization.memory,memory.used,temperature.gpu

# COMMAND..., while nvidia-smi writes $state/telemetry-NAME.csv each second
watched() { # NAME COMMAND...
    csv=$state/telemetry-$1.csv
    shift
    : >"$csv"
    # A driver names the reasons in one of two ways.
    for reasons in clocks_event_reasons.active clocks_throttle_reasons.active; do
        nvidia-smi --query-gpu=$telemetry_fields,$reasons --format=csv,nounits >/dev/null 2>&1 && break
    done
    nvidia-smi --query-gpu=$telemetry_fields,$reasons --format=csv,nounits -l 1 >"$csv" 2>/dev/null &
    watcher=$!
    "$@"
    code=$?
    kill $watcher 2>/dev/null
    wait $watcher 2>/dev/null
    return $code
}
# CASE: tests/gpu/bench adds an entry to bench.md and bench.json.
speed() {
    left=$((deadline - $(date +%s) - 5))
    [ $left -gt 5 ] || return 124
    # shellcheck disable=SC2086
    watched "$1" until_deadline "${PYTHON:-python3}" "$root/tests/gpu/bench" $speed_options --out "$state" \
        --build "$build" --budget $left "$1" >"$work/bench.log" 2>&1
    code=$?
    cat "$work/bench.log"
    [ $code = 0 ] && ! grep -q '^result: .*ours not measured' "$work/bench.log"
}
llmc() {
    [ -n "${LLMC-}" ] || { echo "LLMC names no folder with the sources of llm.c"; return 77; }
    [ -z "$dry" ] || { echo "it has no fakes"; return 77; }
    watched llm.c until_deadline "$root/tests/gpu/llmc" "$LLMC" 64 20
}
telemetry() {
    "${PYTHON:-python3}" "$root/tests/gpu/telemetry.py" "$state"/telemetry-*.csv >"$state/telemetry.md" || {
        code=$?
        cat "$state/telemetry.md"
        return $code
    }
    result "$(grep -c '^###' "$state/telemetry.md") tables below"
}
