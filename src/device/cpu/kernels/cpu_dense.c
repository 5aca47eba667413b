/* Labels and targets of each position: which of them count, the Dice loss, and scores. */
#include "cpu_loss.h"
#include "device/cpu/cpu_math.h"

#include <math.h>
#include <string.h>

/* Operations per element, relative to a copy. */
enum { COST_EXP = 8 };

typedef struct {
    const float *x, *weight;
    const tr_view_t *label;
    int64_t rows, classes;
} dense_t;

static dense_t cpu_dense_of(const tr_kernel_call_t *call) {
    const tr_shape_t *shape = &call->in[0].shape;
    dense_t d = {.x = call->in[0].data,
                 .weight = call->in[2].data,
                 .label = &call->in[1],
                 .classes = shape->dim[shape->ndim - 1]};
    d.rows = tr_shape_elems(shape) / d.classes;
    return d;
}

/* The label of a row; -1: it does not count. */
static inline int64_t cpu_dense_label(const dense_t *d, int64_t row) {
    const int64_t label = cpu_label(d->label, row);
    return d->weight[row] == 0.0f || label >= d->classes ? -1 : label;
}

CPU_KERNEL(term_weight) {
    const tr_view_t *target = &call->in[1];
    const int64_t rows = tr_shape_elems(&target->shape),
                  each = rows / tr_shape_elems(&call->in[0].shape);
    const float *weight = call->in[0].data, *number = target->data;
    float *out = call->out[0].data;
    const bool are_numbers = target->dtype == TR_F32;
#pragma omp parallel for num_threads(cpu_threads(device, rows)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        const bool counts = are_numbers ? !isnan(number[i]) : cpu_label(target, i) != -1;
        out[i] = counts ? weight[i / each] : 0.0f;
    }
    return TR_OK;
}

/* -- Dice -------------------------------------------------------------------------------------- */

static double cpu_dense_xent(const float *x, int64_t width, int64_t label, double lse,
                             double smoothing) {
    double mean = 0;
    for (int64_t c = 0; c < width && smoothing > 0; c++) mean += x[c];
    return lse - (1 - smoothing) * x[label] - smoothing * mean / (double)width;
}

/* The slopes of class c of a sample; behind the classes, those of its cross-entropy. */
static void cpu_dice_class(const dense_t *d, const tr_kernel_call_t *call, int64_t b, int64_t rows,
                           int64_t c) {
    const float *lse = call->out[1].data,
                *factor = cpu_present(&call->in[3]) ? call->in[3].data : NULL;
    const double smoothing = ((const tr_xent_attr_t *)call->attr)->smoothing;
    float *slope = (float *)call->out[2].data + b * (2 * d->classes + 2);
    double both = 0, found = 0, truth = 0, count = 0, sum = 0;
    for (int64_t r = b * rows; r < (b + 1) * rows; r++) {
        const int64_t label = cpu_dense_label(d, r);
        const float *x = d->x + r * d->classes;
        if (label < 0) continue;
        count++;
        if (c == d->classes) {
            if (factor && factor[r] != 0.0f)
                sum += factor[r] * cpu_dense_xent(x, d->classes, label, lse[r], smoothing);
            continue;
        }
        const double p = cpu_exp_nonpositive(x[c] - lse[r]);
        found += p;
        if (label == c) both += p, truth++;
    }
    if (c == d->classes) {
        slope[2 * c] = count > 0 ? (float)(1 / count) : 0.0f;
        slope[2 * c + 1] = count > 0 ? (float)(sum / count) : 0.0f;
        return;
    }
    const double divisor = found + truth + TR_DICE_SMOOTH, classes = (double)d->classes;
    slope[2 * c] = (float)((2 * both + TR_DICE_SMOOTH) / divisor / (classes * divisor));
    slope[2 * c + 1] = (float)(-2 / (classes * divisor));
}

CPU_KERNEL(dice_fwd) {
    const dense_t d = cpu_dense_of(call);
    const int64_t samples = tr_shape_elems(&call->out[0].shape), rows = d.rows / samples,
                  parts = d.classes + 1;
    const int threads = cpu_threads(device, d.rows * d.classes * COST_EXP);
    float *loss = call->out[0].data, *lse = call->out[1].data;
    const float *slopes = call->out[2].data;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < d.rows; r++)
        lse[r] = (float)cpu_log_sum_exp(d.x + r * d.classes, d.classes);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t i = 0; i < samples * parts; i++)
        cpu_dice_class(&d, call, i / parts, rows, i % parts);
    for (int64_t b = 0; b < samples; b++) {
        const float *slope = slopes + b * 2 * parts;
        double dice = 0;
        for (int64_t c = 0; c < d.classes; c++) dice -= 2.0 * slope[2 * c] / slope[2 * c + 1];
        loss[b] = (float)(1 - dice / (double)d.classes + slope[2 * d.classes + 1]);
    }
    return TR_OK;
}

/* The gradient of softmax, dx = p (g - sum p g), of g_c = A_c + B_c t_c, plus that of the
 * cross-entropy. */
CPU_KERNEL(dice_bwd) {
    const dense_t d = cpu_dense_of(call);
    const float *lse = call->in[4].data, *slopes = call->in[5].data, *dloss = call->in[6].data,
                *factor = cpu_present(&call->in[3]) ? call->in[3].data : NULL;
    const float smoothing = ((const tr_xent_attr_t *)call->attr)->smoothing,
                off = smoothing / (float)d.classes;
    const int64_t rows = d.rows / tr_shape_elems(&call->in[6].shape);
    float *out = call->out[0].data;
#pragma omp parallel for num_threads(cpu_threads(device, d.rows *d.classes *COST_EXP))             \
    schedule(static)
    for (int64_t r = 0; r < d.rows; r++) {
        const float *x = d.x + r * d.classes, *slope = slopes + r / rows * (2 * d.classes + 2);
        const int64_t label = cpu_dense_label(&d, r);
        const float scale = dloss[r / rows],
                    cross = factor && label >= 0 ? factor[r] * slope[2 * d.classes] : 0.0f;
        float *dx = out + r * d.classes, mean = 0;
        for (int64_t c = 0; c < d.classes && label >= 0; c++)
            mean += cpu_exp_nonpositive(x[c] - lse[r]) *
                    (slope[2 * c] + (c == label ? slope[2 * c + 1] : 0.0f));
        for (int64_t c = 0; c < d.classes; c++) {
            if (label < 0) {
                dx[c] = 0.0f;
                continue;
            }
            const float p = cpu_exp_nonpositive(x[c] - lse[r]), t = c == label ? 1.0f : 0.0f;
            dx[c] = scale * (p * (slope[2 * c] + t * slope[2 * c + 1] - mean) +
                             cross * (p - off - t * (1.0f - smoothing)));
        }
    }
    return TR_OK;
}

/* -- scores ------------------------------------------------------------------------------------ */

/* The class with the largest score; the number of classes if a score is NaN. */
static int64_t cpu_dense_best(const float *x, int64_t classes) {
    int64_t best = 0;
    for (int64_t c = 0; c < classes; c++) {
        if (isnan(x[c])) return classes;
        if (x[c] > x[best]) best = c;
    }
    return best;
}

/* Neighbours are mostly alike: a thread adds a run of equal ones at once. */
CPU_KERNEL(confusion) {
    const dense_t d = cpu_dense_of(call);
    int64_t *count = call->out[0].data;
    memset(count, 0, (size_t)(d.classes * (d.classes + 1)) * sizeof *count);
#pragma omp parallel num_threads(cpu_threads(device, d.rows *d.classes))
    {
        int64_t cell = 0, run = 0;
#pragma omp for schedule(static) nowait
        for (int64_t r = 0; r < d.rows; r++) {
            const int64_t label = cpu_dense_label(&d, r);
            if (label < 0) continue;
            const int64_t here =
                label * (d.classes + 1) + cpu_dense_best(d.x + r * d.classes, d.classes);
            if (here != cell) {
#pragma omp atomic
                count[cell] += run;
                cell = here;
                run = 0;
            }
            run++;
        }
#pragma omp atomic
        count[cell] += run;
    }
    return TR_OK;
}

CPU_KERNEL(target_sums) {
    const int64_t width = call->out[0].shape.dim[0],
                  rows = tr_shape_elems(&call->in[0].shape) / width;
    const float *y = call->in[0].data, *target = call->in[1].data, *weight = call->in[2].data;
    double *out = call->out[0].data;
    for (int64_t k = 0; k < width; k++) {
        double n = 0, absolute = 0, squared = 0, sum = 0, squares = 0;
        int64_t both = 0, found = 0, truth = 0;
#pragma omp parallel for num_threads(cpu_threads(device, rows)) schedule(static)                   \
    reduction(+ : n, absolute, squared, sum, squares, both, found, truth)
        for (int64_t r = 0; r < rows; r++) {
            const int64_t i = r * width + k;
            if (weight[i] == 0.0f) continue;
            const double t = target[i], error = y[i] - t;
            n++;
            absolute += fabs(error);
            squared += error * error;
            sum += t;
            squares += t * t;
            both += y[i] >= 0.5f && target[i] >= 0.5f;
            found += y[i] >= 0.5f;
            truth += target[i] >= 0.5f;
        }
        const double all[] = {n,       absolute,     squared,       sum,
                              squares, (double)both, (double)found, (double)truth};
        memcpy(out + k * 8, all, sizeof all);
    }
    return TR_OK;
}
