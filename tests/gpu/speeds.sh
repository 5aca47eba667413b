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
        --build "$build" --ceilings "$state/ceilings.json" --peers "$state/peers.json" \
        --budget $left "$1" >"$work/bench.log" 2>&1
    code=$?
    cat "$work/bench.log"
    [ $code = 0 ] && ! grep -q '^result: .*ours not measured' "$work/bench.log"
}
# Our step alone, with its ops in the log
step() { # CONFIG SETTING...
    rm -f "$work/step.json"
    config=$1
    shift
    data="data.format=synthetic data.synthetic_shape=224x224x3"
    case $config in gpt*) data="data.format=synthetic_tokens" ;; esac
    # shellcheck disable=SC2086
    until_deadline "$build/trainer" bench step "$root/configs/$config.ini" --steps $step_steps \
        --json "$work/step.json" device=cuda precision=bf16 $data data.train= data.valid= data.test= "$@" \
        >"$work/step.log" 2>&1
    code=$?
    cat "$work/step.log"
    [ $code = 0 ] && [ -s "$work/step.json" ] || return 1
    result "$(sed -n 's/^ *"step_sec_median": *\([0-9.e-]*\).*/\1/p' "$work/step.json" |
        awk '{ printf "%.2f ms", 1e3 * $1 }')"
}
bench_precision() {
    # shellcheck disable=SC2086
    until_deadline "$build/trainer" bench precision "$root/configs/mnist_cnn.ini" --steps $((10 * step_steps)) \
        device=cuda data.format=synthetic data.synthetic_samples=512 data.train= data.valid= data.test= $small \
        >"$state/bench-precision.txt" 2>&1
    code=$?
    cat "$state/bench-precision.txt"
    return $code
}
bench_attention() {
    until_deadline "$build/trainer" bench attention device=cuda precision=bf16 --max $longest \
        >"$state/bench-attention.txt" 2>&1
    code=$?
    cat "$state/bench-attention.txt"
    return $code
}
# The figures of the lessons that want a GPU, beside them what trainer monitor sees
labs() {
    "$build/trainer" monitor --csv >"$state/monitor.csv" 2>/dev/null &
    watcher=$!
    TRAINER_DEVICE=cuda until_deadline python3 "$root/tools/labs" -O "$build" --out "$state/labs" lab1 lab2 inference
    code=$?
    kill $watcher
    wait $watcher 2>/dev/null
    return $code
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
