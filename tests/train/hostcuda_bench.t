#!/usr/bin/env bash
# TEST timeout=300
# The benchmarks of the device cuda on the fakes of the CUDA libraries: what they print, not how fast the fakes are.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_bench}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
mlp="$TRAINER_ROOT/configs/mnist_mlp.ini threads=1
    data.format=synthetic data.synthetic_samples=256 data.batch_size=8 data.micro_batch=8"

# shellcheck disable=SC2086
fakes "$TRAINER" bench step $mlp --steps 6 --devices cpu,cuda --json both.json >out 2>&1 &&
    grep -Eq '^speedup +cuda [0-9.]+ x cpu ' out && grep -Eq '^programs .* idle .* %' out &&
    grep -Eq '^memory .* planned, .* taken .* %' out && grep -q '"kind": *"devices"' both.json &&
    [ "$(grep -c '"device_name"' both.json)" = 2 ] && ! grep -q "0 thread" out
ok $? "bench step --devices: both devices and the speedup; idle time and memory of the GPU"

# shellcheck disable=SC2086
HOSTCUDA_DEVICES=2 fakes "$MPIEXEC" -np 2 "$TRAINER" bench step $mlp --steps 10 device=cuda data.micro_batch=4 \
    --json two.json >out 2>&1 &&
    grep -Eq '"comm_exposed": *[0-9.e-]+' two.json && grep -Eq '"comm_busy": *[0-9.e-]+' two.json
ok $? "communication inside captured programs is measured"
# shellcheck disable=SC2086
HOSTCUDA_DEVICES=2 fakes "$MPIEXEC" -np 2 "$TRAINER" bench step $mlp --steps 4 device=cuda capture=no \
    data.micro_batch=4 --json two.json >out 2>&1 &&
    grep -Eq '"comm_exposed": *[0-9.e-]+' two.json
ok $? "with capture = no, too"
fakes "$TRAINER" bench matmul --sizes 16,33 threads=1 --json matmul.json --svg matmul.svg >out 2>&1 &&
    [ "$(grep -Ec '^(fp32|tf32|bf16|fp16) +(16|33) +cuda( +[0-9.]+){5} +[KM]iB( +[0-9.]+){4}$' out)" = 8 ] &&
    [ "$(grep -Ec '^(fp32|bf16|fp16) .*(n = |every size)' out)" = 9 ] && grep -q '"gpu_faster_from"' matmul.json &&
    grep -Eq '"copy_gbs": *[0-9]' matmul.json && grep -Eq '"pinned_to_sec": *[0-9]' matmul.json
ok $? "bench matmul: both devices, transfers, the size from which the GPU is faster"
grep -q "cuda tf32" matmul.svg && grep -q "speedup over the CPU" matmul.svg &&
    [ "$(grep -Ec '"speedup": *[0-9.]+' matmul.json)" = 8 ] && [ "$(grep -c '"speedup": *null' matmul.json)" = 6 ]
ok $? "the speedup over the CPU, also plotted"
fakes "$TRAINER" bench generate "$TRAINER_ROOT/tests/golden/gpt2/plain" --tokens 2 --batch 2 threads=1 \
    --devices cpu,cuda --json texts.json >out 2>&1 && grep -Eq '^ +2 +[0-9.]+  cuda over cpu$' out &&
    grep -Eq '^loaded in .* of the device$' out && grep -q '"device_name": *"cuda"' texts.json &&
    grep -Eq '"speedup": *[0-9.]+' texts.json
ok $? "bench generate --devices: both devices, the memory of the GPU, the speedup"
if command -v python3 >/dev/null; then
    echo '{"kind": "gpu_bench", "runs": [{"name": "mnist_mlp"}]}' >bench.json
    fakes "$TRAINER_ROOT/tests/gpu/bench" mnist_mlp --dry --build "$BUILD" --out . --python no-python >out 2>&1 &&
        grep -Eq \
            '^\| fp32( \| [0-9.]+){3} \| [0-9]+ \([0-9.]+\) \| not measured: no-python .* \| - \| 1.50  \| [0-9.]+ %' \
            bench.md &&
        grep -Eq '^\| fp32 \| [0-9.]+ % (met|MISSED) ' bench.md && grep -Eq '^\| matmul \| 5 \|' bench.md &&
        [ "$(grep -c '^## mnist_mlp, batch 8' bench.md)" = 1 ] &&
        [ "$(grep -c '"name": "mnist_mlp"' bench.json)" = 2 ]
    ok $? "tests/gpu/bench: a report, appended to what is there; predicted and measured; no ratio without PyTorch"
fi
"$TRAINER" bench step x.ini --devices cpu,tpu >out 2>&1
[ $? = 78 ] && names out "'tpu'"
ok $? "--devices with an unknown name"
# The checks of a GPU: names tell them apart, and one of them runs here.
run=$TRAINER_ROOT/tests/gpu/run
"$run" --list >list && [ "$(wc -l <list)" -gt 50 ] && [ -z "$(sed 's/^ *[0-9]* s  //' list | sort | uniq -d)" ]
ok $? "tests/gpu/run --list: each name once"
fakes "$run" -O "$BUILD" --dry --state checks --only "difference of the replicas" >out 2>&1
[ $? = 0 ] && grep -q '^| NCCL: 3 ranks.*| passed: code 75 |' out && grep -q '^    serve: ' out &&
    grep -q '"check": "NCCL: 3 ranks.*"passed"' checks/run.json &&
    grep -q '"serve: the text of generate"' checks/run.json
ok $? "tests/gpu/run --only: one check, and the names of those that are left"
echo "1..$n"
