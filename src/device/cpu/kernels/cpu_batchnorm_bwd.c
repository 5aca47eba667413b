/*
 * Batch normalisation, backward. With g = dy after the gradient of the activation, and R rows:
 *
 *   dbeta = sum g
 *   dgamma = rstd sum g (x - mean)
 *   dx = gamma rstd (g - dbeta / R - (x - mean) rstd dgamma / R)
 */
#include "cpu_batchnorm.h"
#include <string.h>

enum { TILE = CPU_BN_TILE, BLOCK = CPU_BN_BLOCK };

/* Values per column. */
typedef struct {
    float *mean, *factor, *beta; /* as forward */
    float *shift, *slope;        /* dx = factor (g - (shift + (x - mean) slope)) */
} lines_t;

static lines_t lines_of(const tr_kernel_call_t *call, const cpu_bn_t *bn) {
    return (lines_t){.mean = cpu_bn_vector(call, bn, 0),
                     .factor = cpu_bn_vector(call, bn, 1),
                     .beta = cpu_bn_vector(call, bn, 2),
                     .shift = cpu_bn_vector(call, bn, 3),
                     .slope = cpu_bn_vector(call, bn, 4)};
}

/* dy after the gradient of the activation: 0 where RELU was 0. */
CPU_INLINE float masked(float dy, float x, float mean, float factor, float beta, bool relu) {
    return !relu || cpu_bn_affine(x, mean, factor, beta) > 0.0f ? dy : 0.0f;
}

/* Adds column sums of g and of g (x - mean) over `lines` lines to sum[2][width]. */
CPU_INLINE void block_sums(const void *dy, const void *x, int64_t stride, int64_t lines,
                           int64_t width, const lines_t *c, int64_t column, bool relu,
                           float *restrict sum, float *restrict product, int type) {
    const float *mean = c->mean + column, *factor = c->factor + column, *beta = c->beta + column;
    memset(sum, 0, (size_t)width * sizeof *sum);
    memset(product, 0, (size_t)width * sizeof *product);
    int64_t i = 0;
    for (; i + 2 <= lines; i += 2) {
        const void *x0 = cpu_at(x, i * stride, type), *x1 = cpu_at(x0, stride, type);
        const void *dy0 = cpu_at(dy, i * stride, type), *dy1 = cpu_at(dy0, stride, type);
#pragma omp simd
        for (int64_t j = 0; j < width; j++) {
            float m = mean[j], f = factor[j], b = beta[j];
            float v0 = cpu_get(x0, j, type), v1 = cpu_get(x1, j, type);
            float g0 = masked(cpu_get(dy0, j, type), v0, m, f, b, relu);
            float g1 = masked(cpu_get(dy1, j, type), v1, m, f, b, relu);
            sum[j] += g0 + g1;
            product[j] += cpu_fma(g0, v0 - m, g1 * (v1 - m));
        }
    }
    for (; i < lines; i++) {
        const void *x0 = cpu_at(x, i * stride, type), *dy0 = cpu_at(dy, i * stride, type);
#pragma omp simd
        for (int64_t j = 0; j < width; j++) {
            float v = cpu_get(x0, j, type);
            float g = masked(cpu_get(dy0, j, type), v, mean[j], factor[j], beta[j], relu);
            sum[j] += g;
            product[j] += g * (v - mean[j]);
        }
    }
}

/* The gradient of the relu of a sum: dsum = dy where y > 0, else 0. */
typedef struct {
    const void *dy, *y;
} cut_t;

CPU_INLINE void cut_block(const void *dy, const void *y, int64_t stride, int64_t lines,
                          int64_t width, void *dsum, int type) {
    for (int64_t i = 0; i < lines; i++)
#pragma omp simd
        for (int64_t j = 0; j < width; j++) {
            const int64_t at = i * stride + j;
            const float g = cpu_get(dy, at, type), v = cpu_get(y, at, type);
            cpu_put(dsum, at, v > 0.0f ? g : 0.0f, type);
        }
}

/* Adds the sums over `lines` lines from `line`, for `width` columns from t->column, to
 * total[2][TILE]. */
static void add_block(const tr_kernel_call_t *call, const cpu_bn_t *bn, int64_t column,
                      int64_t width, int64_t line, int64_t lines, const cut_t *cut,
                      double (*restrict total)[TILE]) {
    int64_t at = line * bn->width + column;
    bool relu = ((const tr_norm_attr_t *)call->attr)->act == TR_ACT_RELU;
    lines_t c = lines_of(call, bn);
    float sum[TILE], product[TILE];
    CPU_BY_TYPE(call->in[1].dtype, t, {
        const void *dy = cpu_at(call->in[0].data, at, t), *x = cpu_at(call->in[1].data, at, t);
        if (cut)
            cut_block(cpu_at(cut->dy, at, t), cpu_at(cut->y, at, t), bn->width, lines, width,
                      cpu_at_out(call->in[0].data, at, t), t);
        if (relu)
            block_sums(dy, x, bn->width, lines, width, &c, column, true, sum, product, t);
        else
            block_sums(dy, x, bn->width, lines, width, &c, column, false, sum, product, t);
    });
#pragma omp simd
    for (int64_t j = 0; j < width; j++) {
        total[0][j] += sum[j];
        total[1][j] += product[j];
    }
}

static void cpu_batchnorm_bwd_chunk_sums(tr_device_t *device, const tr_kernel_call_t *call,
                                         const cpu_bn_t *bn, const cut_t *cut) {
#pragma omp parallel for num_threads(cpu_threads(device, bn->rows * bn->channels)) schedule(static)
    for (int i = 0; i < bn->tasks; i++) {
        double total[2][TILE] = {{0}}, *out = cpu_bn_sums(call, bn, i / bn->tiles);
        cpu_bn_task_t t = tr_cpu_bn_task(bn, i);
        for (int64_t line = t.first; line < t.last; line += BLOCK)
            add_block(call, bn, t.column, t.width, line,
                      t.last - line < BLOCK ? t.last - line : BLOCK, cut, total);
        if (t.tail > 0) add_block(call, bn, 0, t.tail, bn->lines, 1, cut, total);
        for (int64_t j = bn->channels; j < bn->width && bn->fold > 1; j++) {
            total[0][j % bn->channels] += total[0][j];
            total[1][j % bn->channels] += total[1][j];
        }
        size_t bytes = (size_t)(bn->fold > 1 ? bn->channels : t.width) * sizeof(double);
        memcpy(out + t.column, total[0], bytes);
        memcpy(out + bn->channels + t.column, total[1], bytes);
    }
}

/* dx over `count` elements from the start of a line; two lines at a time, to reuse the loaded
 * factors of the columns. */
CPU_INLINE void write_lines(const void *dy, const void *x, int64_t count, int64_t width,
                            const lines_t *c, bool relu, void *dx, int type) {
    const float *mean = c->mean, *factor = c->factor, *beta = c->beta, *shift = c->shift,
                *slope = c->slope;
    int64_t at = 0;
    for (; count - at >= 2 * width; at += 2 * width) {
        const void *x0 = cpu_at(x, at, type), *x1 = cpu_at(x0, width, type);
        const void *dy0 = cpu_at(dy, at, type), *dy1 = cpu_at(dy0, width, type);
        void *dx0 = cpu_at_out(dx, at, type), *dx1 = cpu_at_out(dx0, width, type);
#pragma omp simd
        for (int64_t j = 0; j < width; j++) {
            float m = mean[j], f = factor[j], b = beta[j], h = shift[j], s = slope[j];
            float v0 = cpu_get(x0, j, type), v1 = cpu_get(x1, j, type);
            float g0 = masked(cpu_get(dy0, j, type), v0, m, f, b, relu);
            float g1 = masked(cpu_get(dy1, j, type), v1, m, f, b, relu);
            cpu_put(dx0, j, f * (g0 - cpu_fma(v0 - m, s, h)), type);
            cpu_put(dx1, j, f * (g1 - cpu_fma(v1 - m, s, h)), type);
        }
    }
    for (; at < count; at += width) {
        int64_t n = count - at < width ? count - at : width;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float v = cpu_get(x, at + j, type);
            float g = masked(cpu_get(dy, at + j, type), v, mean[j], factor[j], beta[j], relu);
            cpu_put(dx, at + j, factor[j] * (g - cpu_fma(v - mean[j], slope[j], shift[j])), type);
        }
    }
}

static void write_dx(tr_device_t *device, const tr_kernel_call_t *call, const cpu_bn_t *bn) {
    const void *dy = call->in[0].data, *x = call->in[1].data;
    void *dx = call->out[0].data;
    bool relu = ((const tr_norm_attr_t *)call->attr)->act == TR_ACT_RELU;
    lines_t c = lines_of(call, bn);
    int64_t n = bn->rows * bn->channels;
    int threads = cpu_threads(device, n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int i = 0; i < threads; i++) {
        cpu_range_t part = cpu_range(n, bn->width, threads, i);
        int64_t at = part.first, count = part.last - at;
        CPU_BY_TYPE(call->in[1].dtype, t, {
            const void *from = cpu_at(dy, at, t), *of = cpu_at(x, at, t);
            if (relu)
                write_lines(from, of, count, bn->width, &c, true, cpu_at_out(dx, at, t), t);
            else
                write_lines(from, of, count, bn->width, &c, false, cpu_at_out(dx, at, t), t);
        });
    }
}

/* dgamma and dbeta from the sums of the chunks, in order, and the factors for dx. */
static void finish_channels(const tr_kernel_call_t *call, const cpu_bn_t *bn, const lines_t *c) {
    const float *rstd = call->in[5].data;
    float *dgamma = call->out[1].data, *dbeta = call->out[2].data;
    const bool add_gamma = cpu_adds(call, 1), add_beta = cpu_adds(call, 2);
    double *restrict sum = cpu_bn_sums(call, bn, 0), *product = sum + bn->channels,
                     rows = (double)bn->rows;
    for (int i = 1; i < bn->chunks; i++) {
        const double *restrict part = cpu_bn_sums(call, bn, i);
        for (int64_t j = 0; j < 2 * bn->channels; j++) sum[j] += part[j];
    }
#pragma omp simd
    for (int64_t j = 0; j < bn->channels; j++) {
        double slope = product[j] * rstd[j];
        dbeta[j] = add_beta ? dbeta[j] + (float)sum[j] : (float)sum[j];
        dgamma[j] = add_gamma ? dgamma[j] + (float)slope : (float)slope;
        c->shift[j] = (float)(sum[j] / rows);
        c->slope[j] = (float)(slope * rstd[j] / rows);
    }
}

/* cut: NULL, or what in0 is made of first. */
static tr_status_t cpu_batchnorm_bwd_backward(tr_device_t *device, const tr_kernel_call_t *call,
                                              const cut_t *cut) {
    cpu_bn_t bn = tr_cpu_bn_layout(&call->in[1].shape);
    lines_t c = lines_of(call, &bn);
    const float *gamma = call->in[2].data, *beta = call->in[3].data, *mean = call->in[4].data,
                *rstd = call->in[5].data;
    for (int64_t i = 0; i < bn.channels; i++) {
        c.mean[i] = mean[i];
        c.factor[i] = gamma[i] * rstd[i];
        c.beta[i] = beta[i];
    }
    tr_cpu_bn_spread(&bn, c.mean);
    tr_cpu_bn_spread(&bn, c.factor);
    tr_cpu_bn_spread(&bn, c.beta);
    cpu_batchnorm_bwd_chunk_sums(device, call, &bn, cut);
    finish_channels(call, &bn, &c);
    if (!cpu_present(&call->out[0])) return TR_OK;
    tr_cpu_bn_spread(&bn, c.shift);
    tr_cpu_bn_spread(&bn, c.slope);
    write_dx(device, call, &bn);
    return TR_OK;
}

CPU_KERNEL(batchnorm_bwd) {
    return cpu_batchnorm_bwd_backward(device, call, NULL);
}

CPU_KERNEL(batchnorm_add_bwd) {
    tr_kernel_call_t of_sum = *call;
    of_sum.in[0] = call->out[3];
    return cpu_batchnorm_bwd_backward(device, &of_sum,
                                      &(cut_t){call->in[0].data, call->in[6].data});
}

CPU_KERNEL_PREPARE(batchnorm_bwd) {
    cpu_bn_t bn = tr_cpu_bn_layout(&call->in[1].shape);
    *out_scratch_bytes = tr_cpu_bn_scratch_bytes(&bn, 5);
    return TR_OK;
}
