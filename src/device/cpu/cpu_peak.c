/* Measures the peak rates of this machine: f32 fused multiply-adds in registers, and copies between
 * blocks larger than any cache. All threads of the device run at once, and the best of several
 * slices counts, so that clock rates under load are included and other programs are not. */
#include "cpu_int.h"
#include "cpu_vector.h"
#include "base/clock.h"
#include "base/mem.h"
#include <math.h>
#include <string.h>

#define SLICES     24
#define ITERATIONS (1 << 18)
/* Independent sums: latency times units of any processor we know, and they fit the registers. */
#define CHAINS     12
#define COPY_BYTES (64 << 20)
#define COPIES     4
#define READ_BYTES (256 << 20)
#define READS      12
#define LINES      8 /* vectors that are added side by side */

/* The sums approach a fixed point, so that no slice meets infinity. Returns what keeps the compiler
 * from dropping the loop. */
static float multiply_add_slice(void) {
    const cpu_vec_t half = (cpu_vec_t){0} + 0.5f, step = (cpu_vec_t){0} + 0.25f;
    cpu_vec_t sum[CHAINS];
    for (int c = 0; c < CHAINS; c++) sum[c] = step * (float)c;
    for (int i = 0; i < ITERATIONS; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) sum[c] = cpu_vec_fma(sum[c], half, step);
    }
    for (int c = 1; c < CHAINS; c++) sum[0] += sum[c];
    return sum[0][0];
}

static double measure_flops(int threads) {
    double best = INFINITY;
    float keep = 0.0f;
    for (int s = 0; s < SLICES; s++) {
        double began = tr_clock_sec();
#pragma omp parallel num_threads(threads) reduction(+ : keep)
        keep += multiply_add_slice();
        double took = tr_clock_sec() - began;
        if (took < best) best = took;
    }
    double flops = 2.0 * CPU_VEC_LANES * CHAINS * ITERATIONS * threads;
    return isfinite(keep) ? flops / best : 0.0;
}

static tr_status_t measure_bytes(tr_device_t *device, double *out) {
    const tr_device_ops_t *ops = device->ops;
    void *from = NULL, *to = NULL;
    double best = INFINITY;
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(tr_alloc_aligned(COPY_BYTES, 4096, "the bandwidth probe", &from), done);
    TR_TRY_GOTO(tr_alloc_aligned(COPY_BYTES, 4096, "the bandwidth probe", &to), done);
    TR_TRY_GOTO(ops->zero(device, NULL, from, COPY_BYTES), done);
    for (int i = 0; i < COPIES; i++) {
        double began = tr_clock_sec();
        TR_TRY_GOTO(ops->copy(device, NULL, to, from, COPY_BYTES, TR_COPY_ON_DEVICE), done);
        double took = tr_clock_sec() - began;
        if (took < best) best = took;
    }
    *out = 2.0 * COPY_BYTES / best; /* read and written */
done:
    tr_free(&from);
    tr_free(&to);
    return status;
}

tr_status_t tr_cpu_measure_peak(tr_device_t *device, tr_dtype_t dtype, double *out_flops_per_sec,
                                double *out_bytes_per_sec) {
    if (dtype != TR_F32)
        return TR_FAIL(TR_ERR_CONFIG, "device cpu: the peak is measured for f32, not for %s",
                       tr_dtype_name(dtype));
    *out_flops_per_sec = measure_flops(device->threads);
    return out_bytes_per_sec ? measure_bytes(device, out_bytes_per_sec) : TR_OK;
}

static float read_slice(const float *from, int64_t count) {
    cpu_vec_t sum[LINES] = {0};
    for (int64_t i = 0; i + LINES * CPU_VEC_LANES <= count; i += LINES * CPU_VEC_LANES)
#pragma GCC unroll 8
        for (int v = 0; v < LINES; v++) sum[v] += cpu_vec_load(from + i + v * CPU_VEC_LANES);
    for (int v = 1; v < LINES; v++) sum[0] += sum[v];
    return sum[0][0];
}

tr_status_t tr_cpu_measure_read(tr_device_t *device, double *out_bytes_per_sec) {
    const int64_t count = READ_BYTES / (int64_t)sizeof(float);
    double best = INFINITY;
    float *from = NULL, keep = 0.0f;
    TR_TRY(tr_alloc_aligned(READ_BYTES, 4096, "the bandwidth probe", &from));
    tr_status_t status = device->ops->zero(device, NULL, from, READ_BYTES);
    for (int i = 0; i < READS && status == TR_OK; i++) {
        const double began = tr_clock_sec();
#pragma omp parallel for num_threads(device->threads) reduction(+ : keep)
        for (int t = 0; t < device->threads; t++) {
            const cpu_range_t part = cpu_range(count, 1024, device->threads, t);
            keep += read_slice(from + part.first, part.last - part.first);
        }
        const double took = tr_clock_sec() - began;
        if (took < best) best = took;
    }
    *out_bytes_per_sec = keep == 0.0f ? READ_BYTES / best : 0; /* the sum is not dropped */
    tr_free(&from);
    return status;
}
