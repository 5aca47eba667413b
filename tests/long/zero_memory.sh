#!/usr/bin/env bash
# zero_memory.sh BUILD [CONFIG [KEY=VALUE...]]
# The memory that a rank takes after its second step, beside its plan: with parallel.zero = none, 1 and 2, in fp32 and
# in bf16, on 1, 2 and 4 ranks. Prints the table of docs/large-models.md, in MiB of the proportional set size. Without
# CONFIG: configs/gpt2_124m.ini, which takes up to 16 GiB on 4 ranks. Fails where a plan is off by more than 4 %.
. "$(dirname "$0")/long.sh"
config=${2-$TRAINER_ROOT/configs/gpt2_124m.ini}
case $config in /*) ;; *) config=$OLDPWD/$config ;; esac
settings=(data.format=synthetic_tokens data.train= data.valid= data.synthetic_samples=64 data.micro_batch=1 threads=1
    train.steps=1000 train.valid_every=0 checkpoint.every=0 log.every=1 "${@:3}")
process=17 # MiB that a process takes by itself
bad=0
# planned RANKS SETTINGS...: MiB of the columns from the parameters to the inputs, and of the copy for checkpoints
planned() {
    "$TRAINER" plan "$config" --ranks "$1" "${settings[@]}" "${@:2}" 2>plan.err | awk -v ranks="$1" '
        function mib(i) { return $i * unit[$(i + 1)] }
        BEGIN { unit["KiB"] = 1 / 1024; unit["MiB"] = 1; unit["GiB"] = 1024 }
        $1 == ranks && NF == 21 { for (i = 4; i <= 14; i += 2) sum += mib(i); printf "%.1f %.1f", sum, mib(20) }'
}
measured() { # RANK
    awk '/^Pss:/ { printf "%.0f", $2 / 1024 }' "/proc/$(rank_pid "$1")/smaps_rollup"
}
# off PLANNED MEASURED...: the largest difference of a plan, in %
off() {
    awk -v p="$1" -v all="${*:2}" 'BEGIN {
        n = split(all, m, " ")
        for (i = 1; i <= n; i++) { d = 100 * (p / m[i] - 1); if (d * d > w * w) w = d }
        printf "%.1f", w }'
}
row() { # RANKS TYPE ZERO
    local r total copy pss=() first others
    read -r total copy <<<"$(planned "$1" precision="$2" parallel.zero="$3" data.batch_size="$1")"
    rm -rf run
    start "$1" "$config" "${settings[@]}" precision="$2" parallel.zero="$3" data.batch_size="$1" run.dir=run
    until has_lines run/metrics.jsonl 2; do
        kill -0 "$job" 2>/dev/null || { cat plan.err out; exit 1; }
        sleep 0.05
    done
    for ((r = 0; r < $1; r++)); do pss+=("$(measured $r)"); done
    for ((r = 0; r < $1; r++)); do kill -9 "$(rank_pid $r)"; done 2>/dev/null
    wait "$job" 2>/dev/null
    first=$(awk "BEGIN { printf \"%.0f\", $total + $copy + $process }")
    [ "$3" != none ] && others=$first || others=$(awk "BEGIN { printf \"%.0f\", $total + $process }")
    local wrong wrong_others=-
    wrong=$(off "$first" "${pss[0]}")
    if [ "$1" = 1 ]; then others=-; else wrong_others=$(off "$others" "${pss[@]:1}"); fi
    echo "| $1, $2 | $3 | $first | ${pss[0]} | $wrong | $others | $(printf '%s\n' "${pss[@]:1}" | sort -n |
        sed -n '1p;$p' | uniq | paste -sd ' ' | sed 's/ / to /; s/^$/-/') | $wrong_others |"
    for wrong in "$wrong" "${wrong_others/#-/0}"; do
        awk -v w="$wrong" 'BEGIN { exit !(w > -4 && w < 4) }' || bad=1
    done
}
echo "| ranks, precision | parallel.zero | rank 0, plan | measured | off by, % | others, plan | measured | off by, % |"
echo "|---|---|---:|---:|---:|---:|---:|---:|"
for type in fp32 bf16; do
    for ranks in 1 2 4; do
        for zero in none 1 2; do row $ranks $type $zero; done
    done
done
[ $bad = 0 ]
