/* The update: sums over all elements, the gradient's norm, optimizers, averages. */
#include "cuda_types.cuh"
#include "device/fingerprint.h"
#include "device/loss_scale.h"

enum { THREADS = 256, PACK = 4, SUM_BLOCKS = 1024, SUM_ELEMS = THREADS * 16 };

/* -- sums over all elements -------------------------------------------------------------------- */

/* The blocks of a sum follow from its length alone. */
static unsigned sum_blocks(int64_t n) {
    return cuda_blocks(n, SUM_ELEMS, SUM_BLOCKS);
}

/* partial[block] = the sum of x[i] y[i], or of x[i] where y is NULL, in double. */
static __global__ void __launch_bounds__(THREADS)
    dot_kernel(const float *x, const float *y, int64_t n, double *partial) {
    double sum = 0;
    for (int64_t i = global_thread(); i < n; i += global_threads())
        sum += y ? (double)x[i] * y[i] : (double)x[i];
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* The sum of the partial sums, in all threads of the one block. order: the place of each; NULL: as
 * they lie. */
static __device__ double join_partial(const double *partial, const int32_t *order, int count) {
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) sum += partial[order ? order[i] : i];
    return block_sum<THREADS>(sum);
}

static __global__ void __launch_bounds__(THREADS)
    add_sum_kernel(const double *partial, int count, float *y) {
    const double sum = join_partial(partial, NULL, count);
    if (threadIdx.x == 0) *y += (float)sum;
}

static tr_status_t prepare_sum(const tr_kernel_call_t *call, void **out_state,
                               size_t *out_scratch_bytes) {
    *out_state = NULL;
    *out_scratch_bytes = sum_blocks(tr_shape_elems(&call->in[0].shape)) * sizeof(double);
    return TR_OK;
}

CUDA_KERNEL_PREPARE(weighted_sum) {
    return prepare_sum(call, out_state, out_scratch_bytes);
}

CUDA_KERNEL(weighted_sum) {
    const int64_t n = tr_shape_elems(&call->in[0].shape);
    const unsigned blocks = sum_blocks(n);
    const float *weight = cuda_present(&call->in[1]) ? (const float *)call->in[1].data : NULL;
    CUDA_LAUNCH(dot_kernel, blocks, THREADS, stream, (const float *)call->in[0].data, weight, n,
                (double *)call->scratch);
    CUDA_LAUNCH(add_sum_kernel, 1, THREADS, stream, (const double *)call->scratch, (int)blocks,
                (float *)call->out[0].data);
    return TR_OK;
}

/* Threads that find something write the same value, so their order does not matter. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    check_finite_kernel(const T *x, int64_t n, int32_t *found) {
    bool any = false;
    for (int64_t i = global_thread(); i < n; i += global_threads())
        any |= (__float_as_uint(to_float(x[i])) & 0x7f800000u) == 0x7f800000u;
    if (any) *found = 1;
}

CUDA_KERNEL(check_finite) {
    const int64_t n = tr_shape_elems(&call->in[0].shape);
    const unsigned blocks = cuda_blocks(n, THREADS, tr_cuda_grid_limit(device));
    CUDA_BY_TYPE(call->in[0].dtype, T,
                 CUDA_LAUNCH((check_finite_kernel<T>), blocks, THREADS, stream,
                             (const T *)call->in[0].data, n, (int32_t *)call->out[0].data));
    return TR_OK;
}

/* Blocks add their sums in any order: modulo 2^64 it does not matter. */
static __global__ void __launch_bounds__(THREADS)
    fingerprint_kernel(const uint32_t *x, int64_t n, unsigned long long *out) {
    unsigned long long sum = 0;
    for (int64_t i = global_thread(); i < n; i += global_threads())
        sum += tr_fingerprint_of(x[i], i);
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

CUDA_KERNEL(fingerprint) {
    const int64_t n = tr_shape_elems(&call->in[0].shape);
    CUDA_LAUNCH(fingerprint_kernel, sum_blocks(n), THREADS, stream,
                (const uint32_t *)call->in[0].data, n, (unsigned long long *)call->out[0].data);
    return TR_OK;
}

/* -- the gradient's norm ----------------------------------------------------------------------- */

/* A block of threads for each sum. */
static __global__ void __launch_bounds__(THREADS)
    block_squares_kernel(const float *x, int64_t n, double *out) {
    const int64_t first = (int64_t)blockIdx.x * TR_SQUARES_BLOCK;
    double sum = 0;
    for (int i = threadIdx.x; i < TR_SQUARES_BLOCK; i += THREADS)
        if (first + i < n) sum += (double)x[first + i] * x[first + i];
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

CUDA_KERNEL(block_squares) {
    const int64_t n = tr_shape_elems(&call->in[0].shape);
    CUDA_LAUNCH(block_squares_kernel, (unsigned)tr_shape_elems(&call->out[0].shape), THREADS,
                stream, (const float *)call->in[0].data, n, (double *)call->out[0].data);
    return TR_OK;
}

static __global__ void __launch_bounds__(THREADS)
    grad_norm_kernel(const double *partial, const int32_t *order, int count, const float *counts,
                     tr_step_result_t *result, tr_loss_scale_t *loss, tr_grad_norm_attr_t attr) {
    const double squares = join_partial(partial, order, count);
    if (threadIdx.x > 0) return;
    const double correction =
        counts[0] > 0.0f ? attr.batch_size / counts[0] : 1; /* no samples: gradient 0 */
    const double unscale = correction / (loss ? loss->scale : 1.0f), norm = sqrt(squares) * unscale,
                 clip = attr.clip;
    const bool loss_finite = isfinite(counts[0]) && isfinite(counts[1]);
    const bool halted = attr.halts && result->scale < 0;
    const bool finite = isfinite((float)norm) && loss_finite && !halted;
    result->grad_norm = (float)norm;
    result->finite = finite;
    result->scale = finite ? (float)(unscale * (clip > 0 && norm > clip ? clip / norm : 1)) : 0.0f;
    result->applied += finite;
    if (loss && !halted) tr_loss_scale_update(loss, finite, loss_finite, attr.growth_steps);
    if (attr.halts && !finite && (halted || !loss || loss->overflowed == 0)) result->scale = -1;
}

CUDA_KERNEL(grad_norm) {
    const int32_t *order = call->n_in > 3 && cuda_present(&call->in[3])
                               ? (const int32_t *)call->in[3].data
                               : NULL;
    const int sums = (int)tr_shape_elems(&call->in[order ? 3 : 0].shape);
    tr_loss_scale_t *loss =
        cuda_present(&call->out[1]) ? (tr_loss_scale_t *)call->out[1].data : NULL;
    CUDA_LAUNCH(grad_norm_kernel, 1, THREADS, stream, (const double *)call->in[0].data, order, sums,
                (const float *)call->in[1].data, (tr_step_result_t *)call->out[0].data, loss,
                *(const tr_grad_norm_attr_t *)call->attr);
    return TR_OK;
}

/* -- optimizers -------------------------------------------------------------------------------- */

/* Up to three arrays that are updated, from one that is read. Unused ones are NULL. */
typedef struct {
    const float *x;
    float *a, *b, *c;
} arrays_t;

/* A half-precision copy of the parameters; NULL: none. */
typedef struct {
    void *data;
    bool is_f16;
} copy_t;

template <typename T>
static __device__ __forceinline__ void store_copy(void *copy, int64_t at, int count, bool whole,
                                                  const float (&x)[PACK]) {
    T *const to = (T *)copy + at;
    if (whole) store(to, true, x);
    for (int k = 0; k < count && !whole; k++) to[k] = from_float<T>(x[k]);
}

/* The ranges of the elements that are updated alike; NULL: all elements are one. */
typedef struct {
    const tr_update_range_t *range;
    int count;
} ranges_t;

/* The range that element `at` lies in. */
static __device__ int find_range(const ranges_t &ranges, int64_t at) {
    int first = 0, last = ranges.count - 1;
    while (first < last) {
        const int middle = (first + last) / 2;
        if (at < ranges.range[middle].end)
            last = middle;
        else
            first = middle + 1;
    }
    return first;
}

/*
 * Calls f(factors, x, a, b, c) for each element, which updates a, b and c. The factors are the same
 * for all elements of a range; what is common to all ranges is made once per block. A pack of
 * elements lies in one range. Nothing changes where the step is not finite.
 */
template <typename F>
static __global__ void __launch_bounds__(THREADS)
    update_kernel(F f, const tr_step_t *step, const tr_step_result_t *result, ranges_t ranges,
                  arrays_t arrays, copy_t copy, int64_t n, bool wide) {
    __shared__ typename F::common_t common;
    if (!result->finite) return;
    if (threadIdx.x == 0) common = f.prepare(step, *result);
    __syncthreads();
    typename F::factors_t factors = f.factors(common, NULL);
    int64_t end = ranges.range ? 0 : n;
    const int64_t packs = n / PACK;
    for (int64_t i = global_thread(); i <= packs; i += global_threads()) {
        const int64_t at = i * PACK;
        const int count = at + PACK <= n ? PACK : (int)(n - at);
        const bool whole = wide && count == PACK;
        float x[PACK] = {0}, v[3][PACK] = {{0}};
        float *const array[3] = {arrays.a, arrays.b, arrays.c};
        if (at >= end && at < n) {
            const tr_update_range_t range = ranges.range[find_range(ranges, at)];
            factors = f.factors(common, &range);
            end = range.end;
        }
        if (whole) load(arrays.x + at, true, x);
        for (int s = 0; s < F::ARRAYS; s++)
            if (whole) load(array[s] + at, true, v[s]);
        for (int k = 0; k < PACK && !whole; k++) {
            if (k >= count) continue;
            x[k] = arrays.x[at + k];
            for (int s = 0; s < F::ARRAYS; s++) v[s][k] = array[s][at + k];
        }
        for (int k = 0; k < PACK; k++) f(factors, x[k], v[0][k], v[1][k], v[2][k]);
        for (int s = 0; s < F::ARRAYS; s++)
            if (whole) store(array[s] + at, true, v[s]);
        for (int k = 0; k < PACK && !whole; k++)
            if (k < count)
                for (int s = 0; s < F::ARRAYS; s++) array[s][at + k] = v[s][k];
        if (copy.data && copy.is_f16) store_copy<f16_t>(copy.data, at, count, whole, v[0]);
        if (copy.data && !copy.is_f16) store_copy<bf16_t>(copy.data, at, count, whole, v[0]);
    }
}

template <typename F>
static tr_status_t update(tr_device_t *device, tr_stream_t *stream, F f, const void *step,
                          const void *result, ranges_t ranges, arrays_t arrays, copy_t copy,
                          int64_t n) {
    const bool wide = cuda_aligned(arrays.x) && cuda_aligned(arrays.a) && cuda_aligned(arrays.b) &&
                      cuda_aligned(arrays.c) && cuda_aligned(copy.data);
    CUDA_LAUNCH((update_kernel<F>), cuda_blocks(n / PACK + 1, THREADS, tr_cuda_grid_limit(device)),
                THREADS, stream, f, (const tr_step_t *)step, (const tr_step_result_t *)result,
                ranges, arrays, copy, n, wide);
    return TR_OK;
}

static ranges_t ranges_of(const tr_view_t *table) {
    const ranges_t ranges = {
        (const tr_update_range_t *)table->data,
        (int)(tr_shape_elems(&table->shape) / (int64_t)sizeof(tr_update_range_t))};
    return ranges;
}

/* Output `index`, if the call has it. */
static copy_t copy_of(const tr_kernel_call_t *call, int index) {
    const bool is_there = index < call->n_out;
    const copy_t copy = {is_there ? call->out[index].data : NULL,
                         is_there && call->out[index].dtype == TR_F16};
    return copy;
}

typedef struct {
    float scale, decay, lr; /* decay and lr of a range of factor 1 */
} sgd_factors_t;

template <bool MOMENTUM> struct sgd_t {
    enum { ARRAYS = MOMENTUM ? 2 : 1 };
    typedef sgd_factors_t common_t;
    typedef sgd_factors_t factors_t;
    tr_sgd_attr_t attr;
    __device__ common_t prepare(const tr_step_t *step, const tr_step_result_t &result) const {
        const common_t c = {result.scale, step->weight_decay_scale, step->lr};
        return c;
    }
    __device__ factors_t factors(const common_t &c, const tr_update_range_t *range) const {
        const factors_t f = {c.scale, range ? range->decay * c.decay : 0.0f,
                             range ? c.lr * range->lr_factor : 0.0f};
        return f;
    }
    __device__ void operator()(const factors_t &f, float gradient, float &p, float &v,
                               float &) const {
        const float g = gradient * f.scale + f.decay * p;
        if (MOMENTUM) v = attr.momentum * v + g;
        p -= f.lr * (!MOMENTUM ? g : attr.nesterov ? g + attr.momentum * v : v);
    }
};

CUDA_KERNEL(sgd) {
    const tr_sgd_attr_t attr = *(const tr_sgd_attr_t *)call->attr;
    const int64_t n = tr_shape_elems(&call->in[0].shape);
    const ranges_t ranges = ranges_of(&call->in[3]);
    const copy_t copy = copy_of(call, 2);
    arrays_t arrays = {(const float *)call->in[0].data, (float *)call->out[0].data, NULL, NULL};
    if (!cuda_present(&call->out[1])) {
        const sgd_t<false> f = {attr};
        return update(device, stream, f, call->in[1].data, call->in[2].data, ranges, arrays, copy,
                      n);
    }
    const sgd_t<true> f = {attr};
    arrays.b = (float *)call->out[1].data;
    return update(device, stream, f, call->in[1].data, call->in[2].data, ranges, arrays, copy, n);
}

/* The corrections are those of ranges whose state is as old as the run. */
typedef struct {
    double lr, weight_decay_scale, rest1;
    float scale, new1, new2, root;
    int applied;
} adam_common_t;

/* step_size: lr / (1 - beta1^t). Decoupled decay is the factor `keep` of p. */
typedef struct {
    float scale, new1, new2, step_size, root, keep, decay;
} adam_factors_t;

struct adam_t {
    enum { ARRAYS = 3 };
    typedef adam_common_t common_t;
    typedef adam_factors_t factors_t;
    tr_adam_attr_t attr;
    /* After t updates. rest1: 1 - beta1^t; root: 1 / sqrt(1 - beta2^t). A call, because its
     * registers would make fewer warps resident. */
    __device__ __attribute__((noinline)) void correct(double t, double &rest1, float &root) const {
        rest1 = 1 - pow((double)attr.beta1, t);
        root = (float)(1 / sqrt(1 - pow((double)attr.beta2, t)));
    }
    __device__ common_t prepare(const tr_step_t *step, const tr_step_result_t &result) const {
        common_t c;
        c.lr = step->lr;
        c.weight_decay_scale = step->weight_decay_scale;
        c.scale = result.scale;
        c.new1 = (float)(1 - (double)attr.beta1);
        c.new2 = (float)(1 - (double)attr.beta2);
        c.applied = result.applied;
        correct(result.applied, c.rest1, c.root);
        return c;
    }
    __device__ factors_t factors(const common_t &c, const tr_update_range_t *range) const {
        const double lr = range ? c.lr * range->lr_factor : 0;
        const double decay = range ? (double)range->decay * c.weight_decay_scale : 0;
        double rest1 = c.rest1;
        factors_t f;
        f.root = c.root;
        if (range && range->before != 0) correct(c.applied - range->before, rest1, f.root);
        f.scale = c.scale;
        f.new1 = c.new1;
        f.new2 = c.new2;
        f.step_size = (float)(lr / rest1);
        f.keep = attr.decoupled ? (float)(1 - lr * decay) : 1.0f;
        f.decay = attr.decoupled ? 0.0f : (float)decay;
        return f;
    }
    __device__ void operator()(const factors_t &f, float gradient, float &p, float &m,
                               float &v) const {
        const float g = gradient * f.scale + f.decay * p;
        m = attr.beta1 * m + f.new1 * g;
        v = attr.beta2 * v + f.new2 * (g * g);
        p = p * f.keep - f.step_size * m / (sqrtf(v) * f.root + attr.eps);
    }
};

CUDA_KERNEL(adam) {
    const adam_t f = {*(const tr_adam_attr_t *)call->attr};
    const arrays_t arrays = {(const float *)call->in[0].data, (float *)call->out[0].data,
                             (float *)call->out[1].data, (float *)call->out[2].data};
    return update(device, stream, f, call->in[1].data, call->in[2].data, ranges_of(&call->in[3]),
                  arrays, copy_of(call, 3), tr_shape_elems(&call->in[0].shape));
}

/* -- averages ---------------------------------------------------------------------------------- */

/* A block of threads for each range. */
static __global__ void __launch_bounds__(THREADS)
    moments_kernel(const float *sums, const tr_step_result_t *result,
                   const tr_moments_range_t *ranges, float *running) {
    const tr_moments_range_t r = ranges[blockIdx.x];
    const float slots = (float)r.slots;
    if (!result->finite) return;
    for (int64_t i = threadIdx.x; i < r.count; i += THREADS) {
        float *const at = running + r.running + i;
        *at += r.momentum * (sums[r.sum + i] / slots - *at);
    }
}

CUDA_KERNEL(moments_update) {
    const int64_t count = tr_shape_elems(&call->in[2].shape) / (int64_t)sizeof(tr_moments_range_t);
    CUDA_LAUNCH(moments_kernel, (unsigned)count, THREADS, stream, (const float *)call->in[0].data,
                (const tr_step_result_t *)call->in[1].data,
                (const tr_moments_range_t *)call->in[2].data, (float *)call->out[0].data);
    return TR_OK;
}

typedef struct {
    float decay, fresh;
} ema_factors_t;

struct ema_t {
    enum { ARRAYS = 1 };
    typedef ema_factors_t common_t;
    typedef ema_factors_t factors_t;
    float decay;
    __device__ common_t prepare(const tr_step_t *, const tr_step_result_t &result) const {
        const double t = result.applied, most = fmin((double)decay, (1 + t) / (10 + t));
        const common_t c = {(float)most, (float)(1 - most)};
        return c;
    }
    __device__ factors_t factors(const common_t &c, const tr_update_range_t *) const { return c; }
    __device__ void operator()(const factors_t &f, float p, float &average, float &,
                               float &) const {
        average = f.decay * average + f.fresh * p;
    }
};

CUDA_KERNEL(ema_update) {
    const ema_t f = {((const tr_ema_attr_t *)call->attr)->decay};
    const arrays_t arrays = {(const float *)call->in[0].data, (float *)call->out[0].data, NULL,
                             NULL};
    const ranges_t all = {NULL, 0};
    const copy_t none = {NULL, false};
    return update(device, stream, f, NULL, call->in[1].data, all, arrays, none,
                  tr_shape_elems(&call->in[0].shape));
}
