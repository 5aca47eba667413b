#!/usr/bin/env bash
# TEST timeout=120
# bench matmul on the CPU: rows, shares of a peak, JSON, and what it refuses.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/bench_matmul}/tests/support/common.sh"
bench() { TRAINER_CUDA_LIBRARY=none "$TRAINER" bench matmul "$@" >out 2>&1; }

bench --sizes 8,50 --types fp32 threads=1 --json m.json --svg m.svg &&
    [ "$(grep -Ec '^fp32 +(8|50) +cpu( +[0-9.]+){3} +- +[0-9.]+ (Ki)?B( +-){4}$' out)" = 2 ]
ok $? "a row for each size"
ok_keys bench_matmul m.json
awk '/^fp32/ { if ($6 <= 0 || $6 > 100.05) exit 1 }' out && [ "$(grep -c '"sec"' m.json)" = 2 ] &&
    ! grep -q '"type": *"bf16"' m.json
ok $? "shares of the peak; JSON with these types alone"
grep -q "cpu fp32" m.svg && ! grep -q speedup m.svg && [ "$(tail -n 1 m.svg)" = "</svg>" ]
ok $? "the plot of the rates; without a GPU none of a speedup"
grep -Eq '"memory_bytes": *[0-9]{3,}' m.json && grep -q '"speedup": *null' m.json
ok $? "the memory of a product, and no speedup without a GPU"
# 3 x 65536 x 65536 x 4 bytes = 48 GiB
if [ "$(awk '/^MemTotal/ { print int($2 / 1048576) }' /proc/meminfo)" -lt 48 ]; then
    bench --sizes 8,65536 --types fp32 threads=1
    [ $? = 71 ] && names out "n = 65536" "48.0 GiB" "16.0 GiB" && ! grep -q "^fp32" out
    ok $? "matrices that are more than the memory are refused"
else
    skip "matrices that are more than the memory are refused" "48 GiB of memory"
fi
for wrong in "--sizes 50,8" "--sizes 0" "--types fp32,int4" "--max 3"; do
    # shellcheck disable=SC2086
    bench $wrong; [ $? = 2 ] && names out "${wrong%% *}"
    ok $? "refused: $wrong"
done
"$MPIEXEC" -np 2 "$TRAINER" bench matmul --sizes 8 >out 2>&1; [ $? = 78 ] && names out "2 ranks"
ok $? "refused: two ranks"
echo "1..$n"
