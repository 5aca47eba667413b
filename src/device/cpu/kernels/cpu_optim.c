/* The update: gradient norm, optimizers, moving averages. It is skipped if the result of the step
 * is not finite. */
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_math.h"
#include "device/cpu/cpu_types.h"
#include "device/loss_scale.h"

/* TILE: elements that are updated, then rounded to the half-precision copy, while they are cached. */
enum { COST_ADAM = 4, TILE = 1 << 13 };

CPU_KERNEL(block_squares) {
    const float *x = call->in[0].data;
    double *sum = call->out[0].data;
    const int64_t n = tr_shape_elems(&call->in[0].shape),
                  blocks = (n + TR_SQUARES_BLOCK - 1) / TR_SQUARES_BLOCK;
#pragma omp parallel for num_threads(cpu_threads(device, n)) schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t first = block * TR_SQUARES_BLOCK, rest = n - first;
        const float *from = x + first;
        double total = 0;
        CPU_LANE_SUM_DOUBLE(total, rest < TR_SQUARES_BLOCK ? rest : TR_SQUARES_BLOCK, i,
                            (double)from[i] * from[i]);
        sum[block] = total;
    }
    return TR_OK;
}

CPU_KERNEL(grad_norm) {
    const tr_grad_norm_attr_t *attr = call->attr;
    const float *counts = call->in[1].data; /* samples, loss sum */
    tr_step_result_t *result = call->out[0].data;
    tr_loss_scale_t *loss = cpu_present(&call->out[1]) ? call->out[1].data : NULL;
    const double *sum = call->in[0].data;
    const int32_t *order =
        call->n_in > 3 && cpu_present(&call->in[3]) ? (const int32_t *)call->in[3].data : NULL;
    const int64_t sums = tr_shape_elems(&call->in[order ? 3 : 0].shape);
    double squares = 0;
    for (int64_t i = 0; i < sums; i++) squares += sum[order ? order[i] : i];
    double correction =
        counts[0] > 0.0f ? attr->batch_size / counts[0] : 1; /* no samples: the gradient is 0 */
    double unscale = correction / (loss ? loss->scale : 1.0f), norm = sqrt(squares) * unscale,
           clip = attr->clip;
    bool loss_finite = isfinite(counts[0]) && isfinite(counts[1]);
    const bool halted = attr->halts && result->scale < 0;
    bool finite = isfinite((float)norm) && loss_finite && !halted;
    result->grad_norm = (float)norm;
    result->finite = finite;
    result->scale = finite ? (float)(unscale * (clip > 0 && norm > clip ? clip / norm : 1)) : 0.0f;
    result->applied += finite;
    if (loss && !halted) tr_loss_scale_update(loss, finite, loss_finite, attr->growth_steps);
    if (attr->halts && !finite && (halted || !loss || loss->overflowed == 0)) result->scale = -1;
    return TR_OK;
}

/* -- updates by ranges ------------------------------------------------------------------------- */

/* Updates the elements [first, last), which lie in `range`. */
typedef void update_fn(const tr_kernel_call_t *call, const tr_update_range_t *range, int64_t first,
                       int64_t last);

/* The elements [first, last) of the parameters in out0, as bf16 or f16. */
static void copy_tile(const tr_kernel_call_t *call, const tr_view_t *copy, int64_t first,
                      int64_t last) {
    const float *p = call->out[0].data;
    uint16_t *to = copy->data;
    CPU_BY_TYPE(copy->dtype, type, {
        _Pragma("omp simd") for (int64_t i = first; i < last; i++) to[i] = cpu_narrow(p[i], type);
    });
}

/* Calls `update` for all elements of in0, cut by the table of ranges in in3, among the threads and
 * in tiles. Output `copy`, if the call has it, gets the new parameters. */
static void update_ranges(const tr_kernel_call_t *call, int threads, update_fn *update, int copy) {
    const int64_t n = tr_shape_elems(&call->in[0].shape);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int i = 0; i < threads; i++) {
        const cpu_range_t part = cpu_range(n, 16, threads, i);
        const tr_update_range_t *range = call->in[3].data;
        for (int64_t at = part.first, last; at < part.last; at = last) {
            while (range->end <= at) range++;
            last = range->end < part.last ? range->end : part.last;
            if (last > at + TILE) last = at + TILE;
            update(call, range, at, last);
            if (copy < call->n_out) copy_tile(call, &call->out[copy], at, last);
        }
    }
}

CPU_INLINE void sgd_elements(const float *grad, int64_t n, float scale, float decay, float lr,
                             float momentum, bool nesterov, float *p, float *v) {
    if (!v) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) p[i] -= lr * (grad[i] * scale + decay * p[i]);
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * scale + decay * p[i];
        float speed = momentum * v[i] + g;
        v[i] = speed;
        p[i] -= lr * (nesterov ? g + momentum * speed : speed);
    }
}

static void sgd_range(const tr_kernel_call_t *call, const tr_update_range_t *range, int64_t first,
                      int64_t last) {
    const tr_sgd_attr_t *attr = call->attr;
    const tr_step_t *step = call->in[1].data;
    const tr_step_result_t *result = call->in[2].data;
    float *v = cpu_present(&call->out[1]) ? (float *)call->out[1].data + first : NULL;
    sgd_elements((const float *)call->in[0].data + first, last - first, result->scale,
                 range->decay * step->weight_decay_scale, step->lr * range->lr_factor,
                 attr->momentum, attr->nesterov, (float *)call->out[0].data + first, v);
}

CPU_KERNEL(sgd) {
    const tr_step_result_t *result = call->in[2].data;
    const int threads = cpu_threads(device, tr_shape_elems(&call->in[0].shape));
    if (result->finite) update_ranges(call, threads, sgd_range, 2);
    return TR_OK;
}

/* Factors of one Adam step. */
typedef struct {
    float scale, beta1, beta2, new1, new2; /* new: 1 - beta */
    float step_size, root;                 /* lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    float eps, keep, decay; /* decoupled decay as the factor `keep` of p; else `decay` joins g */
} adam_t;

static adam_t adam_factors(const tr_adam_attr_t *attr, const tr_update_range_t *range,
                           const tr_step_t *step, const tr_step_result_t *result) {
    double lr = (double)step->lr * range->lr_factor,
           decay = (double)range->decay * step->weight_decay_scale;
    double beta1 = attr->beta1, beta2 = attr->beta2, t = result->applied - range->before;
    return (adam_t){.scale = result->scale,
                    .beta1 = attr->beta1,
                    .beta2 = attr->beta2,
                    .new1 = (float)(1 - beta1),
                    .new2 = (float)(1 - beta2),
                    .step_size = (float)(lr / (1 - pow(beta1, t))),
                    .root = (float)(1 / sqrt(1 - pow(beta2, t))),
                    .eps = attr->eps,
                    .keep = attr->decoupled ? (float)(1 - lr * decay) : 1.0f,
                    .decay = attr->decoupled ? 0.0f : (float)decay};
}

static void adam_range(const tr_kernel_call_t *call, const tr_update_range_t *range, int64_t first,
                       int64_t last) {
    const float *grad = call->in[0].data;
    float *p = call->out[0].data, *m = call->out[1].data, *v = call->out[2].data;
    const adam_t a = adam_factors(call->attr, range, call->in[1].data, call->in[2].data);
#pragma omp simd
    for (int64_t i = first; i < last; i++) {
        float g = grad[i] * a.scale + a.decay * p[i];
        float one = a.beta1 * m[i] + a.new1 * g, two = a.beta2 * v[i] + a.new2 * (g * g);
        m[i] = one;
        v[i] = two;
        p[i] = p[i] * a.keep - a.step_size * one / (sqrtf(two) * a.root + a.eps);
    }
}

CPU_KERNEL(adam) {
    const tr_step_result_t *result = call->in[2].data;
    const int threads = cpu_threads(device, COST_ADAM * tr_shape_elems(&call->in[0].shape));
    if (result->finite) update_ranges(call, threads, adam_range, 3);
    return TR_OK;
}

/* -- averages ---------------------------------------------------------------------------------- */

CPU_KERNEL(moments_update) {
    const tr_step_result_t *result = call->in[1].data;
    const tr_moments_range_t *ranges = call->in[2].data;
    const int64_t count = tr_shape_elems(&call->in[2].shape) / (int64_t)sizeof *ranges;
    if (!result->finite) return TR_OK;
#pragma omp parallel for num_threads(cpu_threads(device, tr_shape_elems(&call->in[0].shape)))      \
    schedule(static)
    for (int64_t k = 0; k < count; k++) {
        const tr_moments_range_t r = ranges[k];
        const float *sum = (const float *)call->in[0].data + r.sum, slots = (float)r.slots;
        float *running = (float *)call->out[0].data + r.running;
#pragma omp simd
        for (int64_t i = 0; i < r.count; i++)
            running[i] += r.momentum * (sum[i] / slots - running[i]);
    }
    return TR_OK;
}

CPU_KERNEL(ema_update) {
    const tr_step_result_t *result = call->in[1].data;
    const double t = result->applied,
                 most = fmin(((const tr_ema_attr_t *)call->attr)->decay, (1 + t) / (10 + t));
    const float decay = (float)most, fresh = (float)(1 - most);
    int64_t n = tr_shape_elems(&call->in[0].shape);
    const float *p = call->in[0].data;
    float *average = call->out[0].data;
    if (!result->finite) return TR_OK;
#pragma omp parallel for simd num_threads(cpu_threads(device, n)) schedule(static)
    for (int64_t i = 0; i < n; i++) average[i] = decay * average[i] + fresh * p[i];
    return TR_OK;
}
