/*
 * Batch normalisation, forward.
 *
 * Accuracy. Within a block, sums are floats of differences from a pivot, so that a large mean does
 * not cost precision. The pivot is the first line for a first short block, then the mean so far.
 * Blocks, columns and chunks are joined in double with the formula for moments of Chan, Golub and
 * LeVeque (1979).
 */
#include "cpu_batchnorm.h"
#include <string.h>

/* CHUNK, CHUNK_LINES: minimum elements and lines of a chunk. */
enum {
    TILE = CPU_BN_TILE,
    BLOCK = CPU_BN_BLOCK,
    FIRST_BLOCK = 16,
    CHUNK = 1 << 14,
    CHUNK_LINES = 32,
    FOLD_CHANNELS = 64,
    MIN_WIDTH = 128
};

static int64_t fold_of(int64_t rows, int64_t channels) {
    if (channels >= FOLD_CHANNELS) return 1;
    int64_t odd = channels & 15, fold = odd == 0 ? 1 : 16 / (odd & -odd);
    while (fold * channels < MIN_WIDTH) fold *= 2;
    while (fold * channels > TILE) fold /= 2;
    return rows >= 8 * fold ? fold : 1;
}

cpu_bn_t tr_cpu_bn_layout(const tr_shape_t *shape) {
    cpu_bn_t bn = {.channels = shape->dim[shape->ndim - 1]};
    bn.rows = tr_shape_elems(shape) / bn.channels;
    bn.fold = fold_of(bn.rows, bn.channels);
    bn.width = bn.fold * bn.channels;
    bn.lines = bn.rows / bn.fold;
    bn.tail = bn.rows * bn.channels - bn.lines * bn.width;
    bn.tile = bn.width < TILE ? bn.width : TILE;
    bn.tiles = (int)((bn.width + bn.tile - 1) / bn.tile);
    int by_elems = cpu_chunks(bn.rows * bn.channels, CHUNK),
        by_lines = cpu_chunks(bn.lines, CHUNK_LINES);
    bn.chunks = by_elems < by_lines ? by_elems : by_lines;
    bn.tasks = bn.chunks * bn.tiles;
    return bn;
}

cpu_bn_task_t tr_cpu_bn_task(const cpu_bn_t *bn, int task) {
    int chunk = task / bn->tiles;
    cpu_range_t lines = cpu_range(bn->lines, 1, bn->chunks, chunk);
    int64_t column = task % bn->tiles * bn->tile, rest = bn->width - column;
    return (cpu_bn_task_t){.first = lines.first,
                           .last = lines.last,
                           .column = column,
                           .width = rest < bn->tile ? rest : bn->tile,
                           .tail = chunk == bn->chunks - 1 ? bn->tail : 0};
}

size_t tr_cpu_bn_scratch_bytes(const cpu_bn_t *bn, int vectors) {
    return (size_t)(bn->chunks * 2 * bn->channels) * sizeof(double) +
           (size_t)(vectors * bn->width) * sizeof(float);
}

void tr_cpu_bn_spread(const cpu_bn_t *bn, float *line) {
    for (int64_t j = bn->channels; j < bn->width; j++) line[j] = line[j - bn->channels];
}

/* Joins the moments (mean, sum of squared differences) of nb elements to those of n. */
CPU_INLINE void join(double *mean, double *squares, double n, double mean_b, double squares_b,
                     double nb) {
    double delta = mean_b - *mean, part = nb / (n + nb);
    *mean += delta * part;
    *squares += squares_b + delta * delta * n * part;
}

/* Sums of differences from the pivot, and of their squares. */
CPU_INLINE void block_sums(const void *x, const float *pivot, int64_t stride, int64_t lines,
                           int64_t width, float *restrict sum, float *restrict square, int type) {
    memset(sum, 0, (size_t)width * sizeof *sum);
    memset(square, 0, (size_t)width * sizeof *square);
    int64_t i = 0;
    for (; i + 4 <= lines; i += 4) {
        const void *x0 = cpu_at(x, i * stride, type), *x1 = cpu_at(x0, stride, type);
        const void *x2 = cpu_at(x1, stride, type), *x3 = cpu_at(x2, stride, type);
#pragma omp simd
        for (int64_t j = 0; j < width; j++) {
            float p = pivot[j], d0 = cpu_get(x0, j, type) - p, d1 = cpu_get(x1, j, type) - p;
            float d2 = cpu_get(x2, j, type) - p, d3 = cpu_get(x3, j, type) - p;
            sum[j] += (d0 + d1) + (d2 + d3);
            square[j] += cpu_fma(d3, d3, d2 * d2) + cpu_fma(d1, d1, d0 * d0);
        }
    }
    for (; i < lines; i++) {
        const void *x0 = cpu_at(x, i * stride, type);
#pragma omp simd
        for (int64_t j = 0; j < width; j++) {
            float d = cpu_get(x0, j, type) - pivot[j];
            sum[j] += d;
            square[j] += d * d;
        }
    }
}

/* The moments of a task's columns. */
CPU_INLINE void task_moments(const cpu_bn_t *bn, const cpu_bn_task_t *t, const void *x,
                             double *restrict mean, double *restrict squares, int type) {
    float sum[TILE], square[TILE], pivot[TILE];
    memset(mean, 0, (size_t)t->width * sizeof *mean);
    memset(squares, 0, (size_t)t->width * sizeof *squares);
    for (int64_t j = 0; j < t->width; j++)
        pivot[j] = cpu_get(x, t->first * bn->width + t->column + j, type);
    for (int64_t line = t->first, lines = FIRST_BLOCK; line < t->last;
         line += lines, lines = BLOCK) {
        if (lines > t->last - line) lines = t->last - line;
        double n = (double)(line - t->first), nb = (double)lines, inverse = 1 / nb;
        block_sums(cpu_at(x, line * bn->width + t->column, type), pivot, bn->width, lines, t->width,
                   sum, square, type);
#pragma omp simd
        for (int64_t j = 0; j < t->width; j++) {
            double s = sum[j];
            join(&mean[j], &squares[j], n, pivot[j] + s * inverse, square[j] - s * s * inverse, nb);
            pivot[j] = (float)mean[j];
        }
    }
    for (int64_t j = 0; j < t->tail; j++)
        join(&mean[j], &squares[j], (double)(t->last - t->first),
             cpu_get(x, bn->lines * bn->width + j, type), 0, 1);
}

/* Joins the columns of one channel. */
static void fold_moments(const cpu_bn_t *bn, const cpu_bn_task_t *t, double *mean,
                         double *squares) {
    double lines = (double)(t->last - t->first);
    for (int64_t c = 0; c < bn->channels; c++) {
        double n = lines + (c < t->tail);
        for (int64_t j = c + bn->channels; j < bn->width; j += bn->channels) {
            double nb = lines + (j < t->tail);
            join(&mean[c], &squares[c], n, mean[j], squares[j], nb);
            n += nb;
        }
    }
}

static void chunk_moments(tr_device_t *device, const tr_kernel_call_t *call, const cpu_bn_t *bn) {
#pragma omp parallel for num_threads(cpu_threads(device, bn->rows * bn->channels)) schedule(static)
    for (int i = 0; i < bn->tasks; i++) {
        double mean[TILE], squares[TILE], *out = cpu_bn_sums(call, bn, i / bn->tiles);
        cpu_bn_task_t t = tr_cpu_bn_task(bn, i);
        CPU_BY_TYPE(call->in[0].dtype, type,
                    task_moments(bn, &t, call->in[0].data, mean, squares, type));
        if (bn->fold > 1) fold_moments(bn, &t, mean, squares);
        size_t bytes = (size_t)(bn->fold > 1 ? bn->channels : t.width) * sizeof *mean;
        memcpy(out + t.column, mean, bytes);
        memcpy(out + bn->channels + t.column, squares, bytes);
    }
}

/* Joins the parts of the chunks, in order, into that of the first: mean (C), sum of squared
 * differences (C). */
static void join_chunks(const tr_kernel_call_t *call, const cpu_bn_t *bn) {
    double *restrict total = cpu_bn_sums(call, bn, 0), n = 0;
    for (int i = 0; i < bn->chunks; i++) {
        const double *restrict part = cpu_bn_sums(call, bn, i);
        cpu_bn_task_t t = tr_cpu_bn_task(bn, i * bn->tiles);
        double nb = (double)((t.last - t.first) * bn->fold + t.tail / bn->channels);
        if (i > 0) {
#pragma omp simd
            for (int64_t c = 0; c < bn->channels; c++)
                join(&total[c], &total[bn->channels + c], n, part[c], part[bn->channels + c], nb);
        }
        n += nb;
    }
}

/* y = act((x - mean) * factor + beta) over `count` elements from the start of a line; mean, factor
 * and beta are lines. With `added`: act(that, rounded to the type, + added). */
CPU_INLINE void normalize_lines(const void *x, const void *added, int64_t count, int64_t width,
                                const float *const line[3], bool relu, void *y, int type) {
    const float *mean = line[0], *factor = line[1], *beta = line[2];
    for (int64_t at = 0; at < count; at += width) {
        int64_t n = count - at < width ? count - at : width;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float v = cpu_bn_affine(cpu_get(x, at + j, type), mean[j], factor[j], beta[j]);
            if (added) v = cpu_round(v, type) + cpu_get(added, at + j, type);
            cpu_put(y, at + j, relu ? cpu_relu(v) : v, type);
        }
    }
}

/* added: NULL, or what is added to the normalised values. */
static void cpu_batchnorm_normalize(tr_device_t *device, const tr_kernel_call_t *call,
                                    const cpu_bn_t *bn, const void *added) {
    const float *line[3];
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    bool relu = ((const tr_norm_attr_t *)call->attr)->act == TR_ACT_RELU;
    int64_t n = bn->rows * bn->channels;
    int threads = cpu_threads(device, n);
    for (int i = 0; i < 3; i++) {
        tr_cpu_bn_spread(bn, cpu_bn_vector(call, bn, i));
        line[i] = cpu_bn_vector(call, bn, i);
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int i = 0; i < threads; i++) {
        cpu_range_t part = cpu_range(n, bn->width, threads, i);
        int64_t at = part.first, count = part.last - at;
        CPU_BY_TYPE(call->in[0].dtype, t, {
            const void *from = cpu_at(x, at, t);
            void *to = cpu_at_out(y, at, t);
            if (added && relu)
                normalize_lines(from, cpu_at(added, at, t), count, bn->width, line, true, to, t);
            else if (added)
                normalize_lines(from, cpu_at(added, at, t), count, bn->width, line, false, to, t);
            else if (relu)
                normalize_lines(from, NULL, count, bn->width, line, true, to, t);
            else
                normalize_lines(from, NULL, count, bn->width, line, false, to, t);
        });
    }
}

static void add_moments(const cpu_bn_t *bn, const double *exact, float *moments) {
    double divisor = (double)(bn->rows > 1 ? bn->rows - 1 : 1);
    for (int64_t c = 0; c < bn->channels; c++) {
        double squares = exact[bn->channels + c];
        moments[c] += (float)exact[c];
        moments[bn->channels + c] += (float)((squares < 0 ? 0 : squares) / divisor);
    }
}

static tr_status_t cpu_batchnorm_train(tr_device_t *device, const tr_kernel_call_t *call,
                                       const void *added) {
    cpu_bn_t bn = tr_cpu_bn_layout(&call->in[0].shape);
    const float *gamma = call->in[1].data, *beta = call->in[2].data;
    float *mean = call->out[1].data, *rstd = call->out[2].data;
    double eps = ((const tr_norm_attr_t *)call->attr)->eps, n = (double)bn.rows;
    const double *exact = cpu_bn_sums(call, &bn, 0), *squares = exact + bn.channels;
    float *line[3] = {cpu_bn_vector(call, &bn, 0), cpu_bn_vector(call, &bn, 1),
                      cpu_bn_vector(call, &bn, 2)};
    chunk_moments(device, call, &bn);
    join_chunks(call, &bn);
#pragma omp simd
    for (int64_t c = 0; c < bn.channels; c++) {
        /* negative because of rounding; NaN stays */
        double variance = (squares[c] < 0 ? 0 : squares[c]) / n;
        line[0][c] = mean[c] = (float)exact[c];
        rstd[c] = (float)(1 / sqrt(variance + eps));
        line[1][c] = gamma[c] * rstd[c];
        line[2][c] = beta[c];
    }
    if (cpu_present(&call->out[3])) add_moments(&bn, exact, call->out[3].data);
    cpu_batchnorm_normalize(device, call, &bn, added);
    return TR_OK;
}

CPU_KERNEL(batchnorm_train) {
    return cpu_batchnorm_train(device, call, NULL);
}

CPU_KERNEL(batchnorm_add_train) {
    return cpu_batchnorm_train(device, call, call->in[3].data);
}

CPU_KERNEL(batchnorm_eval) {
    cpu_bn_t bn = tr_cpu_bn_layout(&call->in[0].shape);
    const float *gamma = call->in[1].data, *beta = call->in[2].data;
    const float *mean = call->in[3].data, *variance = call->in[4].data;
    double eps = ((const tr_norm_attr_t *)call->attr)->eps;
    for (int64_t c = 0; c < bn.channels; c++) {
        cpu_bn_vector(call, &bn, 0)[c] = mean[c];
        cpu_bn_vector(call, &bn, 1)[c] = gamma[c] * (float)(1 / sqrt(variance[c] + eps));
        cpu_bn_vector(call, &bn, 2)[c] = beta[c];
    }
    cpu_batchnorm_normalize(device, call, &bn, NULL);
    return TR_OK;
}

CPU_KERNEL_PREPARE(batchnorm) {
    cpu_bn_t bn = tr_cpu_bn_layout(&call->in[0].shape);
    *out_scratch_bytes = tr_cpu_bn_scratch_bytes(&bn, 3);
    return TR_OK;
}
