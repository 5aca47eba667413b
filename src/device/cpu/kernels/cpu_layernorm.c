/* Layer normalisation over the last dimension, one row at a time, which stays in the L1 cache. */
#include "device/bias_sum.h"
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_types.h"
#include <string.h>

/* Operations per element, relative to a copy. */
enum { COST = 4, CHUNK_ROWS = 32 };

static int64_t cpu_layernorm_row_elems(const tr_view_t *view) {
    return view->shape.dim[view->shape.ndim - 1];
}

/* One row. */
CPU_INLINE void row_forward(const void *x, const float *gamma, const float *beta, int64_t width,
                            double eps, bool relu, void *y, float *out_mean, float *out_rstd,
                            int type) {
    double sum = 0, squares = 0, n = (double)width;
    float first = cpu_get(x, 0, type);
    /* of differences: a large mean does not cost precision */
    CPU_LANE_SUM(sum, width, i, cpu_get(x, i, type) - first);
    double exact = first + sum / n;
    float m = (float)exact;
    CPU_LANE_SUM(squares, width, i, (cpu_get(x, i, type) - m) * (cpu_get(x, i, type) - m));
    double variance = squares / n - (exact - m) * (exact - m);
    float s = (float)(1 / sqrt((variance < 0 ? 0 : variance) + eps));
    *out_mean = m;
    *out_rstd = s;
#pragma omp simd
    for (int64_t i = 0; i < width; i++) {
        float v = (cpu_get(x, i, type) - m) * s * gamma[i] + beta[i];
        cpu_put(y, i, relu ? cpu_relu(v) : v, type);
    }
}

CPU_KERNEL(layernorm_fwd) {
    int64_t width = cpu_layernorm_row_elems(&call->in[0]),
            rows = tr_shape_elems(&call->in[0].shape) / width;
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    const float *gamma = call->in[1].data, *beta = call->in[2].data;
    float *mean = call->out[1].data, *rstd = call->out[2].data;
    double eps = ((const tr_norm_attr_t *)call->attr)->eps;
    bool relu = ((const tr_norm_attr_t *)call->attr)->act == TR_ACT_RELU;
#pragma omp parallel for num_threads(cpu_threads(device, rows *width *COST)) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        CPU_BY_TYPE(call->in[0].dtype, t,
                    row_forward(cpu_at(x, r * width, t), gamma, beta, width, eps, relu,
                                cpu_at_out(y, r * width, t), mean + r, rstd + r, t));
    return TR_OK;
}

CPU_INLINE void add_row(const void *a, const void *b, int64_t width, void *sum, int type) {
#pragma omp simd
    for (int64_t i = 0; i < width; i++)
        cpu_put(sum, i, cpu_get(a, i, type) + cpu_get(b, i, type), type);
}

CPU_KERNEL(residual_layernorm_fwd) {
    int64_t width = cpu_layernorm_row_elems(&call->in[0]),
            rows = tr_shape_elems(&call->in[0].shape) / width;
    const void *a = call->in[0].data, *b = call->in[1].data;
    void *sum = call->out[0].data, *y = call->out[1].data;
    const float *gamma = call->in[2].data, *beta = call->in[3].data;
    float *mean = call->out[2].data, *rstd = call->out[3].data;
    double eps = ((const tr_norm_attr_t *)call->attr)->eps;
#pragma omp parallel for num_threads(cpu_threads(device, rows *width *COST)) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = r * width;
        CPU_BY_TYPE(call->in[0].dtype, t, {
            add_row(cpu_at(a, at, t), cpu_at(b, at, t), width, cpu_at_out(sum, at, t), t);
            row_forward(cpu_at(sum, at, t), gamma, beta, width, eps, false, cpu_at_out(y, at, t),
                        mean + r, rstd + r, t);
        });
    }
    return TR_OK;
}

/* The sums of a chunk over its rows, in scratch: dgamma, dbeta (2, C). */
static float *cpu_layernorm_chunk_sums(const tr_kernel_call_t *call, int64_t width, int chunk) {
    return (float *)call->scratch + (int64_t)chunk * 2 * width;
}

/* One row; with h = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - h mean(g h)), plus
 * `more` if not NULL. */
CPU_INLINE void row_backward(const void *dy, const void *x, const float *gamma, float mean,
                             float rstd, int64_t width, float *restrict dgamma,
                             float *restrict dbeta, const void *more, void *dx, int type) {
#pragma omp simd
    for (int64_t i = 0; i < width; i++) {
        dgamma[i] += cpu_get(dy, i, type) * ((cpu_get(x, i, type) - mean) * rstd);
        dbeta[i] += cpu_get(dy, i, type);
    }
    if (!dx) return;
    double sum = 0, product = 0;
    CPU_LANE_SUM(sum, width, i, cpu_get(dy, i, type) * gamma[i]);
    CPU_LANE_SUM(product, width, i,
                 cpu_get(dy, i, type) * gamma[i] * ((cpu_get(x, i, type) - mean) * rstd));
    float shift = (float)(sum / (double)width), slope = (float)(product / (double)width);
#pragma omp simd
    for (int64_t i = 0; i < width; i++) {
        float h = (cpu_get(x, i, type) - mean) * rstd;
        float d = rstd * (cpu_get(dy, i, type) * gamma[i] - (shift + h * slope));
        cpu_put(dx, i, more ? d + cpu_get(more, i, type) : d, type);
    }
}

/* more (R, C): added to dx; NULL: none. */
static tr_status_t cpu_layernorm_backward(const tr_device_t *device, const tr_kernel_call_t *call,
                                          const void *more) {
    int64_t width = cpu_layernorm_row_elems(&call->in[1]),
            rows = tr_shape_elems(&call->in[1].shape) / width;
    const void *dy = call->in[0].data, *x = call->in[1].data;
    const float *mean = call->in[3].data, *rstd = call->in[4].data;
    void *dx = cpu_present(&call->out[0]) ? call->out[0].data : NULL;
    float *dgamma = call->out[1].data, *dbeta = call->out[2].data;
    int chunks = cpu_chunks(rows, CHUNK_ROWS);
#pragma omp parallel for num_threads(cpu_threads(device, rows *width *COST)) schedule(static)
    for (int chunk = 0; chunk < chunks; chunk++) {
        float *sums = cpu_layernorm_chunk_sums(call, width, chunk);
        cpu_range_t part = cpu_range(rows, 1, chunks, chunk);
        memset(sums, 0, (size_t)(2 * width) * sizeof *sums);
        for (int64_t r = part.first; r < part.last; r++) {
            int64_t at = r * width;
            CPU_BY_TYPE(call->in[1].dtype, t,
                        row_backward(cpu_at(dy, at, t), cpu_at(x, at, t), call->in[2].data, mean[r],
                                     rstd[r], width, sums, sums + width,
                                     more ? cpu_at(more, at, t) : NULL,
                                     dx ? cpu_at_out(dx, at, t) : NULL, t));
        }
    }
    for (int64_t i = 0; i < width; i++) {
        double gamma_sum = 0, beta_sum = 0;
        for (int chunk = 0; chunk < chunks; chunk++) {
            gamma_sum += cpu_layernorm_chunk_sums(call, width, chunk)[i];
            beta_sum += cpu_layernorm_chunk_sums(call, width, chunk)[width + i];
        }
        dgamma[i] = cpu_adds(call, 1) ? dgamma[i] + (float)gamma_sum : (float)gamma_sum;
        dbeta[i] = cpu_adds(call, 2) ? dbeta[i] + (float)beta_sum : (float)beta_sum;
    }
    return TR_OK;
}

CPU_KERNEL(layernorm_bwd) {
    return cpu_layernorm_backward(device, call, NULL);
}

CPU_KERNEL(residual_layernorm_bwd) {
    TR_TRY(
        cpu_layernorm_backward(device, call, cpu_present(&call->in[5]) ? call->in[5].data : NULL));
    if (!tr_has_bias_sum(call, 3)) return TR_OK;
    const tr_kernel_call_t sum = tr_bias_sum_call(call, 3);
    return tr_cpu_column_sum(device, stream, &sum);
}

CPU_KERNEL_PREPARE(layernorm_bwd) {
    int64_t width = cpu_layernorm_row_elems(&call->in[1]),
            rows = tr_shape_elems(&call->in[1].shape) / width;
    const size_t own = (size_t)(cpu_chunks(rows, CHUNK_ROWS) * 2 * width) * sizeof(float);
    *out_scratch_bytes = 0;
    if (tr_has_bias_sum(call, 3)) {
        const tr_kernel_call_t sum = tr_bias_sum_call(call, 3);
        TR_TRY(tr_cpu_column_sum_prepare(device, &sum, out_state, out_scratch_bytes));
    }
    if (own > *out_scratch_bytes) *out_scratch_bytes = own;
    return TR_OK;
}
