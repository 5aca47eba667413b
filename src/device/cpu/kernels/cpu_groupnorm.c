/*
 * Group normalisation of (N, S..., C).
 *
 * A task is a chunk of the positions of one sample, which it goes through by lines: with few
 * channels, a row is shorter than a vector, so several rows are one line, whose columns are summed
 * separately. Sums are floats over SHORT lines and then doubles, of differences from a pivot near
 * the mean of the group, so that a large mean costs no precision. Tasks depend on the shape alone
 * and are joined in order, so results are equal for any number of threads.
 */
#include "cpu_batchnorm.h"
#include <string.h>

/* TILE: columns whose sums are on the stack. CHUNK, CHUNK_ROWS: least elements and rows of a
 * chunk. COST: operations per element, relative to a copy. */
enum { TILE = 256, SHORT = 32, CHUNK = 1 << 14, CHUNK_ROWS = 32, PIVOT_ROWS = 8, COST = 4 };

typedef struct {
    int64_t samples, rows, channels, groups, of_group; /* of_group: channels of a group */
    int64_t width;                                     /* columns of a line */
    int chunks;                                        /* of a sample */
    bool relu;
    double eps;
} groupnorm_t;

static groupnorm_t cpu_groupnorm_of(const tr_kernel_call_t *call, const tr_shape_t *x) {
    const tr_groupnorm_attr_t *attr = call->attr;
    groupnorm_t gn = {.samples = x->dim[0],
                      .channels = x->dim[x->ndim - 1],
                      .groups = attr->groups,
                      .relu = attr->act == TR_ACT_RELU,
                      .eps = attr->eps};
    gn.rows = tr_shape_elems(x) / (gn.samples * gn.channels);
    gn.of_group = gn.channels / gn.groups;
    gn.width = gn.channels > TILE / 2 ? gn.channels : gn.channels * (TILE / gn.channels);
    const int by_elems = cpu_chunks(gn.rows * gn.channels, CHUNK),
              by_rows = cpu_chunks(gn.rows, CHUNK_ROWS);
    gn.chunks = by_elems < by_rows ? by_elems : by_rows;
    return gn;
}

/* Elements [first, last) of the sample of a task. */
static cpu_range_t task_range(const groupnorm_t *gn, int64_t task) {
    const cpu_range_t rows = cpu_range(gn->rows, 1, gn->chunks, (int)(task % gn->chunks));
    return (cpu_range_t){rows.first * gn->channels, rows.last * gn->channels};
}

static int64_t task_start(const groupnorm_t *gn, int64_t task) {
    return task / gn->chunks * gn->rows * gn->channels;
}

/* The mean of the first channel of a group over rows that are spread over the sample. */
CPU_INLINE float group_pivot(const groupnorm_t *gn, const void *x, int64_t group, int type) {
    const int64_t count = gn->rows < PIVOT_ROWS ? gn->rows : PIVOT_ROWS;
    float sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += cpu_get(
            x, gn->rows * (2 * i + 1) / (2 * count) * gn->channels + group * gn->of_group, type);
    return sum / (float)count;
}

/* Of each group of a sample x: the sum of differences from its pivot over `part`, and of their
 * squares. out (2, G). */
CPU_INLINE void task_moments(const groupnorm_t *gn, const void *x, cpu_range_t part, double *out,
                             int type) {
    memset(out, 0, (size_t)(2 * gn->groups) * sizeof *out);
    for (int64_t column = 0; column < gn->width; column += TILE) {
        const int64_t width = gn->width - column < TILE ? gn->width - column : TILE;
        double sums[TILE] = {0}, squares[TILE] = {0};
        float pivot[TILE];
        for (int64_t j = 0, group = -1; j < width; j++) {
            const int64_t next = (column + j) % gn->channels / gn->of_group;
            pivot[j] = next == group ? pivot[j - 1] : group_pivot(gn, x, next, type);
            group = next;
        }
        for (int64_t at = part.first + column; at < part.last;) {
            float sum[TILE] = {0}, square[TILE] = {0};
            for (int line = 0; line < SHORT && at < part.last; line++, at += gn->width) {
                const int64_t n = part.last - at < width ? part.last - at : width;
#pragma omp simd
                for (int64_t j = 0; j < n; j++) {
                    const float d = cpu_get(x, at + j, type) - pivot[j];
                    sum[j] += d;
                    square[j] = cpu_fma(d, d, square[j]);
                }
            }
#pragma omp simd
            for (int64_t j = 0; j < width; j++) sums[j] += sum[j], squares[j] += square[j];
        }
        for (int64_t j = 0; j < width; j++) {
            double *of = out + (column + j) % gn->channels / gn->of_group;
            of[0] += sums[j];
            of[gn->groups] += squares[j];
        }
    }
}

/* What a task knows of its columns. In backward, dx = factor g - (shift + (x - mean) slope). */
typedef struct {
    float mean[TILE], rstd[TILE], factor[TILE], beta[TILE], shift[TILE], slope[TILE];
} columns_t;

/* gamma, beta (C); mean, rstd and, unless NULL, sums (G, 2) of one sample. */
static void columns_read(const groupnorm_t *gn, int64_t column, int64_t width, const float *gamma,
                         const float *beta, const float *mean, const float *rstd, const float *sums,
                         columns_t *out) {
    for (int64_t j = 0; j < width; j++) {
        const int64_t c = (column + j) % gn->channels, group = c / gn->of_group;
        out->mean[j] = mean[group];
        out->rstd[j] = rstd[group];
        out->factor[j] = gamma[c] * rstd[group];
        out->beta[j] = beta[c];
        out->shift[j] = sums ? sums[2 * group] : 0;
        out->slope[j] = sums ? sums[2 * group + 1] : 0;
    }
}

CPU_INLINE void task_normalize(const groupnorm_t *gn, const columns_t *of, const void *x,
                               cpu_range_t part, int64_t column, int64_t width, void *y, bool relu,
                               int type) {
    for (int64_t at = part.first + column; at < part.last; at += gn->width) {
        const int64_t n = part.last - at < width ? part.last - at : width;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            const float v =
                cpu_bn_affine(cpu_get(x, at + j, type), of->mean[j], of->factor[j], of->beta[j]);
            cpu_put(y, at + j, relu ? cpu_relu(v) : v, type);
        }
    }
}

CPU_KERNEL(groupnorm_fwd) {
    const groupnorm_t gn = cpu_groupnorm_of(call, &call->in[0].shape);
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    const float *gamma = call->in[1].data, *beta = call->in[2].data;
    float *mean = call->out[1].data, *rstd = call->out[2].data;
    double *sums = call->scratch;
    const int64_t tasks = gn.samples * gn.chunks, count = gn.rows * gn.of_group;
    const int threads = cpu_threads(device, gn.samples * gn.rows * gn.channels * COST);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < tasks; i++)
        CPU_BY_TYPE(call->in[0].dtype, t,
                    task_moments(&gn, cpu_at(x, task_start(&gn, i), t), task_range(&gn, i),
                                 sums + i * 2 * gn.groups, t));
    for (int64_t i = 0; i < gn.samples * gn.groups; i++) {
        const int64_t n = i / gn.groups, group = i % gn.groups;
        double sum = 0, squares = 0;
        for (int64_t task = n * gn.chunks; task < (n + 1) * gn.chunks; task++) {
            sum += sums[task * 2 * gn.groups + group];
            squares += sums[(task * 2 + 1) * gn.groups + group];
        }
        const double shift = sum / (double)count,
                     variance = squares / (double)count - shift * shift;
        const int64_t at = n * gn.rows * gn.channels;
        CPU_BY_TYPE(call->in[0].dtype, t,
                    mean[i] = (float)(group_pivot(&gn, cpu_at(x, at, t), group, t) + shift));
        /* below 0 by rounding; NaN stays */
        rstd[i] = (float)(1 / sqrt((variance < 0 ? 0 : variance) + gn.eps));
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < tasks; i++)
        for (int64_t column = 0; column < gn.width; column += TILE) {
            const int64_t width = gn.width - column < TILE ? gn.width - column : TILE,
                          start = task_start(&gn, i), of_sample = i / gn.chunks * gn.groups;
            columns_t of;
            columns_read(&gn, column, width, gamma, beta, mean + of_sample, rstd + of_sample, NULL,
                         &of);
            CPU_BY_TYPE(call->in[0].dtype, t, {
                const void *from = cpu_at(x, start, t);
                void *to = cpu_at_out(y, start, t);
                const cpu_range_t part = task_range(&gn, i);
                if (gn.relu)
                    task_normalize(&gn, &of, from, part, column, width, to, true, t);
                else
                    task_normalize(&gn, &of, from, part, column, width, to, false, t);
            });
        }
    return TR_OK;
}

CPU_KERNEL_PREPARE(groupnorm_fwd) {
    const groupnorm_t gn = cpu_groupnorm_of(call, &call->in[0].shape);
    *out_scratch_bytes = (size_t)(gn.samples * gn.chunks * 2 * gn.groups) * sizeof(double);
    return TR_OK;
}

/* -- backward ---------------------------------------------------------------------------------- */

/* dy before the activation: 0 where it cut the value off, by the operations of the forward pass. */
CPU_INLINE float column_gradient(const columns_t *of, int64_t j, float dy, float x, bool relu) {
    return relu ? cpu_relu_grad(dy, cpu_bn_affine(x, of->mean[j], of->factor[j], of->beta[j])) : dy;
}

/* Sums of g and of g (x - mean) rstd over a tile of columns; g is dy before the activation. */
CPU_INLINE void task_products(const groupnorm_t *gn, const columns_t *of, const void *dy,
                              const void *x, cpu_range_t part, int64_t column, int64_t width,
                              double *out, bool relu, int type) {
    double sums[TILE] = {0}, products[TILE] = {0};
    for (int64_t at = part.first + column; at < part.last;) {
        float sum[TILE] = {0}, product[TILE] = {0};
        for (int line = 0; line < SHORT && at < part.last; line++, at += gn->width) {
            const int64_t n = part.last - at < width ? part.last - at : width;
#pragma omp simd
            for (int64_t j = 0; j < n; j++) {
                const float v = cpu_get(x, at + j, type),
                            g = column_gradient(of, j, cpu_get(dy, at + j, type), v, relu);
                sum[j] += g;
                product[j] = cpu_fma(g, (v - of->mean[j]) * of->rstd[j], product[j]);
            }
        }
#pragma omp simd
        for (int64_t j = 0; j < width; j++) sums[j] += sum[j], products[j] += product[j];
    }
    for (int64_t j = 0; j < width; j++) {
        out[(column + j) % gn->channels] += sums[j];
        out[gn->channels + (column + j) % gn->channels] += products[j];
    }
}

CPU_INLINE void task_dx(const groupnorm_t *gn, const columns_t *of, const void *dy, const void *x,
                        cpu_range_t part, int64_t column, int64_t width, void *dx, bool relu,
                        int type) {
    for (int64_t at = part.first + column; at < part.last; at += gn->width) {
        const int64_t n = part.last - at < width ? part.last - at : width;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            const float v = cpu_get(x, at + j, type),
                        g = column_gradient(of, j, cpu_get(dy, at + j, type), v, relu);
            cpu_put(dx, at + j,
                    of->factor[j] * g - cpu_fma(v - of->mean[j], of->slope[j], of->shift[j]), type);
        }
    }
}

/* From the sums of the tasks (2, C): dgamma, dbeta, and the shift and slope of each group of each
 * sample (N, G, 2). */
static void join_products(const tr_kernel_call_t *call, const groupnorm_t *gn, const double *sums,
                          float *shifts) {
    const float *gamma = call->in[2].data, *rstd = call->in[5].data;
    float *dgamma = call->out[1].data, *dbeta = call->out[2].data;
    const double count = (double)(gn->rows * gn->of_group);
    for (int64_t i = 0; i < gn->samples * gn->groups; i++) {
        double shift = 0, slope = 0;
        for (int64_t task = i / gn->groups * gn->chunks, k = 0; k < gn->chunks; k++) {
            const double *of = sums + (task + k) * 2 * gn->channels;
            for (int64_t c = i % gn->groups * gn->of_group, j = 0; j < gn->of_group; j++) {
                shift += gamma[c + j] * of[c + j];
                slope += gamma[c + j] * of[gn->channels + c + j];
            }
        }
        shifts[2 * i] = (float)(shift / count * rstd[i]);
        shifts[2 * i + 1] = (float)(slope / count * rstd[i] * rstd[i]);
    }
    for (int64_t c = 0; c < gn->channels; c++) {
        double sum = 0, product = 0;
        for (int64_t task = 0; task < gn->samples * gn->chunks; task++) {
            sum += sums[task * 2 * gn->channels + c];
            product += sums[(task * 2 + 1) * gn->channels + c];
        }
        dgamma[c] = cpu_adds(call, 1) ? dgamma[c] + (float)product : (float)product;
        dbeta[c] = cpu_adds(call, 2) ? dbeta[c] + (float)sum : (float)sum;
    }
}

/* One of the two passes over dy and x: with sums, those of each task; else dx, by shifts. */
static void groupnorm_pass(tr_device_t *device, const tr_kernel_call_t *call, const groupnorm_t *gn,
                           double *sums, const float *shifts, void *dx) {
    const void *dy = call->in[0].data, *x = call->in[1].data;
    const float *gamma = call->in[2].data, *beta = call->in[3].data, *mean = call->in[4].data,
                *rstd = call->in[5].data;
#pragma omp parallel for num_threads(                                                              \
    cpu_threads(device, gn->samples * gn->rows * gn->channels * COST)) schedule(static)
    for (int64_t i = 0; i < gn->samples * gn->chunks; i++) {
        const int64_t start = task_start(gn, i), group = i / gn->chunks * gn->groups;
        const cpu_range_t part = task_range(gn, i);
        double *out = sums ? sums + i * 2 * gn->channels : NULL;
        if (out) memset(out, 0, (size_t)(2 * gn->channels) * sizeof *out);
        for (int64_t column = 0; column < gn->width; column += TILE) {
            const int64_t width = gn->width - column < TILE ? gn->width - column : TILE;
            columns_t of;
            columns_read(gn, column, width, gamma, beta, mean + group, rstd + group,
                         shifts ? shifts + 2 * group : NULL, &of);
            CPU_BY_TYPE(call->in[1].dtype, t, {
                const void *from = cpu_at(dy, start, t), *at = cpu_at(x, start, t);
                if (out && gn->relu)
                    task_products(gn, &of, from, at, part, column, width, out, true, t);
                else if (out)
                    task_products(gn, &of, from, at, part, column, width, out, false, t);
                else if (gn->relu)
                    task_dx(gn, &of, from, at, part, column, width, cpu_at_out(dx, start, t), true,
                            t);
                else
                    task_dx(gn, &of, from, at, part, column, width, cpu_at_out(dx, start, t), false,
                            t);
            });
        }
    }
}

CPU_KERNEL(groupnorm_bwd) {
    const groupnorm_t gn = cpu_groupnorm_of(call, &call->in[1].shape);
    double *sums = call->scratch;
    float *shifts = (float *)(sums + gn.samples * gn.chunks * 2 * gn.channels);
    groupnorm_pass(device, call, &gn, sums, NULL, NULL);
    join_products(call, &gn, sums, shifts);
    if (cpu_present(&call->out[0]))
        groupnorm_pass(device, call, &gn, NULL, shifts, call->out[0].data);
    return TR_OK;
}

CPU_KERNEL_PREPARE(groupnorm_bwd) {
    const groupnorm_t gn = cpu_groupnorm_of(call, &call->in[1].shape);
    *out_scratch_bytes = (size_t)(gn.samples * gn.chunks * 2 * gn.channels) * sizeof(double) +
                         (size_t)(gn.samples * gn.groups * 2) * sizeof(float);
    return TR_OK;
}
