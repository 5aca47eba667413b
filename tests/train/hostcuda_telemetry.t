#!/usr/bin/env bash
# TEST timeout=300
# Samples of GPUs, on the fakes of the CUDA libraries: a history that NVML plays is in metrics.jsonl, summary.json, and
# what `trainer monitor` prints.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/hostcuda_telemetry}/tests/support/common.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
train="train $TRAINER_ROOT/configs/mnist_mlp.ini device=cuda threads=1 log.every=5
    data.format=synthetic data.synthetic_samples=64 data.batch_size=8 data.micro_batch=4 train.valid_every=0"
export TRAINER_MONITOR_INTERVAL=20ms
# lines RUN EXPRESSION: true of the training lines `a` of a run and of its summary `s`
lines() {
    python3 -I -c "import json, sys
a = [json.loads(l) for l in open(sys.argv[1] + '/metrics.jsonl')]
a = [l for l in a if 'lr' in l and 'gpu_ecc_errors' in l]
s = json.load(open(sys.argv[1] + '/summary.json'))
sys.exit(0 if $2 else 1)" "$1"
}

# SEC GPU UTIL MEMORY TEMPERATURE POWER THROTTLE ECC NVLINK: works, is too hot (and at its power cap), has errors
cat >history <<'TEXT'
0   0 93 40000 61 500 4 0
0.8 0 35 40960 91 300 44 0
1.6 0 30 40960 88 300 20 3 7
TEXT
export HOSTCUDA_HISTORY=$PWD/history
# shellcheck disable=SC2086
fakes "$TRAINER" $train log.every=1 train.steps=120 run.dir=one >out 2>&1 &&
    lines one "a[0]['gpu_util'] == 0.93 and a[0]['gpu_temp'] == 61 and a[0]['gpu_power_watts'] == 500" &&
    lines one "a[0]['gpu_mem_bytes'] == 40000 << 20 and a[0]['gpu_sm_mhz'] == 1980 and a[0]['gpu_throttled'] == 0"
ok $? "lines have what the GPU said"
lines one "any(l['gpu_throttled'] == 1 and l['gpu_throttle'] == 'heat' and l['gpu_temp'] >= 88 for l in a)" &&
    lines one "not a[0].get('gpu_throttle') and a[0]['gpu_ecc_errors'] == 0 and a[-1]['gpu_ecc_errors'] == 3" &&
    lines one "a[0]['gpu_nvlink_errors'] == 0 and a[-1]['gpu_nvlink_errors'] == 7"
ok $? "lines tell a GPU that is throttled, and one that has memory errors"
lines one "all(a[i]['gpu_energy_joules'] <= a[i + 1]['gpu_energy_joules'] for i in range(len(a) - 1))" &&
    lines one "80 < s['gpu_energy_joules'] < 510 * s['wall_sec'] and s['gpu_temp_max'] == 91" &&
    lines one "s['gpu_mem_bytes_max'] == 40960 << 20 and s['gpu_power_watts_max'] == 500 and s['gpu_ecc_errors'] == 3"
ok $? "summary.json has the largest values and the energy"
ok_records one
grep -q 'mem  40.0 GiB' out
ok $? "the progress line shows the memory of the GPU"
call 0 report one --out page && grep -q 'GPU utilisation' page/index.html && grep -q 'temperature (' page/index.html &&
    grep -q 'power (W)' page/index.html
ok $? "report draws the GPU"
cp one/summary.json before.json
# shellcheck disable=SC2086
fakes "$TRAINER" $train train.steps=125 resume=auto run.dir=one >out 2>&1 &&
    json "b['gpu_energy_joules'] > a['gpu_energy_joules']" before.json one/summary.json
ok $? "the energy of a run goes on after a resume"
cat >history <<'TEXT'
0    0 93 40000 61 500 0 0
0.2 0 lost
TEXT
# shellcheck disable=SC2086
fakes "$TRAINER" $train train.steps=25 run.dir=lost >out 2>&1 &&
    lines lost "s['gpu_temp_max'] == 61 and a[-1]['gpu_ecc_errors'] == 0"
ok $? "a GPU that NVML has lost: the run goes on"

cat >history <<'TEXT'
0 0 93 40000 61 500 0 0
0 1 40 41000 95 300 48 2
TEXT
# shellcheck disable=SC2086
HOSTCUDA_DEVICES=2 fakes "$MPIEXEC" -np 2 "$TRAINER" $train train.steps=40 run.dir=two >out 2>&1 &&
    lines two "any(l['gpu_util'] == 0.665 and l['gpu_util_min'] == 0.4 and l['gpu_util_max'] == 0.93 and
        l['gpu_temp_max'] == 95 and l['gpu_temp_host'] == l['gpu_util_host'] != '' and l['gpu_throttled'] == 0.5 and
        l['gpu_throttle'] == 'heat, hardware' for l in a)" &&
    lines two "s['gpu_ecc_errors'] == 2 and 500 * s['wall_sec'] < s['gpu_energy_joules'] < 810 * s['wall_sec']"
ok $? "two GPUs: mean, least and most of the ranks; the energy of both"
# shellcheck disable=SC2086
HOSTCUDA_MIG=1 NCCL_MULTI_RANK_GPU_ENABLE=1 fakes "$MPIEXEC" -np 2 "$TRAINER" $train cuda.share=yes train.steps=10 \
    run.dir=shared >out 2>&1 &&
    lines shared "a[-1]['gpu_util'] is None and a[-1]['gpu_temp_max'] == 61" &&
    lines shared "s['gpu_energy_joules'] < 510 * s['wall_sec']"
ok $? "two ranks on one partitioned GPU: its utilisation is unknown, its energy counts once"

HOSTCUDA_DEVICES=2 fakes "$TRAINER" monitor --csv --count 2 --interval 0.1 >out 2>&1 && [ "$(wc -l <out)" = 5 ] &&
    [ "$(grep -cE '^[^,]+Z,0,NVIDIA H200,150754820096,41943040000,108811780096,0.93,61,500$' out)" = 2 ] &&
    [ "$(grep -cE '^[^,]+Z,1,NVIDIA H200,150754820096,.*,0.4,95,300$' out)" = 2 ]
ok $? "monitor --csv: a line for each GPU and interval"
HOSTCUDA_DEVICES=2 HOSTCUDA_MIG=1 CUDA_VISIBLE_DEVICES=1 fakes "$TRAINER" monitor --count 1 >out 2>&1 &&
    [ "$(grep -cE '^gpu [01] +NVIDIA H200 .* GiB +- +[0-9]+ C +[0-9]+ W$' out)" = 2 ]
ok $? "monitor: GPUs that this process may not use; unknown utilisation"

# shellcheck disable=SC2086
fakes env LD_LIBRARY_PATH="$BUILD/hostcuda/nvml_old:$BUILD/hostcuda" "$TRAINER" $train train.steps=10 run.dir=old \
    >out 2>&1 && lines old "not a and 'rss_bytes_max' in s and 'gpu_temp_max' not in s"
ok $? "an old driver: what NVML lacks is missing"
mkdir bad
: >bad/libnvidia-ml.so.1
# shellcheck disable=SC2086
fakes env LD_LIBRARY_PATH="$PWD/bad:$BUILD/hostcuda" "$TRAINER" $train train.steps=10 run.dir=none >out 2>&1 &&
    lines none "not a and 'rss_bytes_max' in s" && ! grep -q warning out
ok $? "no NVML: no samples of GPUs"
echo "1..$n"
