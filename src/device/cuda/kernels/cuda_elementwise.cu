/* Copies, sums, factors, activations, conversions and dropout: one pass over memory, element by
 * element. */
#include "cuda_columns.cuh"
#include "base/rng.h"
#include "device/bias_sum.h"
#include <type_traits>

enum { THREADS = 256 };

/* y[i] = f(a[i], b[i]); b is read only where F::INPUTS is 2. y may be a or b. */
template <typename T, typename F>
static __global__ void __launch_bounds__(THREADS)
    map_kernel(F f, const T *a, const T *b, T *y, int64_t n, bool wide) {
    const int N = CUDA_PACK(T);
    const int64_t packs = n / N;
    for (int64_t i = global_thread(); i < packs; i += global_threads()) {
        float u[N], v[N] = {0};
        load(a + i * N, wide, u);
        if (F::INPUTS == 2) load(b + i * N, wide, v);
#pragma unroll
        for (int k = 0; k < N; k++) u[k] = f(u[k], v[k]);
        store(y + i * N, wide, u);
    }
    const int64_t rest = packs * N + global_thread();
    if (rest < n)
        y[rest] = from_float<T>(f(to_float(a[rest]), F::INPUTS == 2 ? to_float(b[rest]) : 0.0f));
}

template <typename F>
static tr_status_t map(tr_device_t *device, tr_stream_t *stream, tr_dtype_t dtype, F f,
                       const void *a, const void *b, void *y, int64_t n) {
    const bool wide = cuda_aligned(a) && cuda_aligned(y) && (F::INPUTS < 2 || cuda_aligned(b));
    if (n == 0) return TR_OK;
    CUDA_BY_TYPE(dtype, T, {
        const unsigned blocks =
            cuda_blocks(n / CUDA_PACK(T) + 1, THREADS, tr_cuda_grid_limit(device));
        CUDA_LAUNCH((map_kernel<T, F>), blocks, THREADS, stream, f, (const T *)a, (const T *)b,
                    (T *)y, n, wide);
    });
    return TR_OK;
}

static size_t view_bytes(const tr_view_t *view) {
    return (size_t)tr_shape_elems(&view->shape) * tr_dtype_bytes(view->dtype);
}

static tr_status_t copy_bytes(tr_stream_t *stream, void *y, const void *x, size_t bytes) {
    if (bytes == 0 || x == y) return TR_OK;
    CUDA_TRY(cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, stream->handle));
    return TR_OK;
}

CUDA_KERNEL(copy) {
    return copy_bytes(stream, call->out[0].data, call->in[0].data, view_bytes(&call->in[0]));
}

/* -- sums and factors -------------------------------------------------------------------------- */

struct sum_t {
    enum { INPUTS = 2 };
    bool cut;
    __device__ float operator()(float a, float b) const { return cut ? relu(a + b) : a + b; }
};

struct factor_t {
    enum { INPUTS = 1 };
    float factor;
    __device__ float operator()(float a, float) const { return factor * a; }
};

CUDA_KERNEL(accumulate) {
    const sum_t f = {false};
    return map(device, stream, TR_F32, f, call->out[0].data, call->in[0].data, call->out[0].data,
               tr_shape_elems(&call->in[0].shape));
}

CUDA_KERNEL(add) {
    const sum_t f = {((const tr_add_attr_t *)call->attr)->act == TR_ACT_RELU};
    return map(device, stream, call->out[0].dtype, f, call->in[0].data, call->in[1].data,
               call->out[0].data, tr_shape_elems(&call->in[0].shape));
}

/* f(a, b): a where b is above 0, else slope a. */
struct leaky_t {
    enum { INPUTS = 2 };
    float slope;
    __device__ float operator()(float a, float b) const { return a * (b > 0 ? 1 : slope); }
};

CUDA_KERNEL(leaky_relu_fwd) {
    const leaky_t f = {((const tr_leaky_relu_attr_t *)call->attr)->slope};
    return map(device, stream, call->out[0].dtype, f, call->in[0].data, call->in[0].data,
               call->out[0].data, tr_shape_elems(&call->in[0].shape));
}

CUDA_KERNEL(leaky_relu_bwd) {
    const leaky_t f = {((const tr_leaky_relu_attr_t *)call->attr)->slope};
    return map(device, stream, call->out[0].dtype, f, call->in[0].data, call->in[1].data,
               call->out[0].data, tr_shape_elems(&call->in[0].shape));
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    bias_kernel(const T *x, const float *b, bool cut, T *y, int64_t width, int64_t n) {
    for (int64_t i = global_thread(); i < n; i += global_threads()) {
        const float sum = to_float(x[i]) + b[i % width];
        y[i] = from_float<T>(cut ? relu(sum) : sum);
    }
}

CUDA_KERNEL(bias) {
    const bool cut = ((const tr_add_attr_t *)call->attr)->act == TR_ACT_RELU;
    const int64_t n = tr_shape_elems(&call->in[0].shape), width = call->in[1].shape.dim[0];
    const void *x = call->in[0].data;
    const float *b = (const float *)call->in[1].data;
    void *y = call->out[0].data;
    if (n == 0) return TR_OK;
    CUDA_BY_TYPE(call->in[0].dtype, T, {
        const unsigned blocks = cuda_blocks(n, THREADS, tr_cuda_grid_limit(device));
        CUDA_LAUNCH((bias_kernel<T>), blocks, THREADS, stream, (const T *)x, b, cut, (T *)y, width,
                    n);
    });
    return TR_OK;
}

CUDA_KERNEL(scale) {
    const factor_t f = {((const tr_scale_attr_t *)call->attr)->factor};
    return map(device, stream, call->out[0].dtype, f, call->in[0].data, NULL, call->out[0].data,
               tr_shape_elems(&call->in[0].shape));
}

/* -- activations ------------------------------------------------------------------------------- */

/* As activations.def names them. cuda_NAME_grad(dy, v): the gradient, v is x where the activation
 * keeps its input, else y. */
#define FORMULA static __device__ __forceinline__ float

FORMULA cuda_relu(float x) {
    return relu(x);
}
FORMULA cuda_relu_grad(float dy, float y) {
    return y > 0.0f ? dy : 0.0f;
}

/* The normal distribution's cumulative function; accurate in the left tail, where 1 + erf would
 * cancel. */
FORMULA normal_cdf(float x) {
    return 0.5f * erfcf(-0.70710678f * x);
}
FORMULA cuda_gelu(float x) {
    return x * normal_cdf(x);
}
FORMULA cuda_gelu_grad(float dy, float x) {
    return dy * fmaf(x, 0.39894228f * expf(-0.5f * x * x), normal_cdf(x));
}

/* x s(u), u = 2 sqrt(2/pi) (x + 0.044715 x^3), s the logistic function. */
FORMULA gelu_tanh_gate(float x) {
    return 1.0f / (1.0f + expf(-1.5957691f * fmaf(0.044715f * x, x * x, x)));
}
FORMULA cuda_gelu_tanh(float x) {
    return x * gelu_tanh_gate(x);
}
FORMULA cuda_gelu_tanh_grad(float dy, float x) {
    const float s = gelu_tanh_gate(x), rest = s * (1.0f - s);
    const float rise = 1.5957691f * x * fmaf(0.134145f * x, x, 1.0f);
    return dy * (rest == 0.0f ? s : fmaf(rise, rest, s)); /* rise may be infinite */
}

FORMULA cuda_sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}
FORMULA cuda_sigmoid_grad(float dy, float y) {
    return dy * y * (1.0f - y);
}

FORMULA cuda_silu(float x) {
    return x / (1.0f + expf(-x));
}
FORMULA cuda_silu_grad(float dy, float x) {
    const float s = 1.0f / (1.0f + expf(-x)), rest = s * (1.0f - s);
    return dy * (rest == 0.0f ? s : fmaf(x, rest, s)); /* x may be infinite */
}

FORMULA cuda_tanh(float x) {
    return tanhf(x);
}
FORMULA cuda_tanh_grad(float dy, float y) {
    return dy * ((1.0f - y) * (1.0f + y));
}

template <tr_act_t ACT> struct act_t {
    enum { INPUTS = 1 };
    __device__ float operator()(float x, float) const {
        switch (ACT) {
#define ACTIVATION(NAME, name, ...)                                                                \
    case TR_ACT_##NAME:                                                                            \
        return cuda_##name(x);
#include "trainer/activations.def"
#undef ACTIVATION
        default: return x;
        }
    }
};

template <tr_act_t ACT> struct act_gradient_t {
    enum { INPUTS = 2 };
    __device__ float operator()(float dy, float v) const {
        switch (ACT) {
#define ACTIVATION(NAME, name, ...)                                                                \
    case TR_ACT_##NAME:                                                                            \
        return cuda_##name##_grad(dy, v);
#include "trainer/activations.def"
#undef ACTIVATION
        default: return dy;
        }
    }
};

/* f(a), where a.value is the activation as a constant. */
template <typename F> static tr_status_t by_act(tr_act_t act, F f) {
    switch (act) {
#define ACTIVATION(NAME, ...)                                                                      \
    case TR_ACT_##NAME:                                                                            \
        return f(std::integral_constant<tr_act_t, TR_ACT_##NAME>());
#include "trainer/activations.def"
#undef ACTIVATION
    default: return f(std::integral_constant<tr_act_t, TR_ACT_NONE>());
    }
}

CUDA_KERNEL(act_fwd) {
    const tr_act_t act = ((const tr_act_attr_t *)call->attr)->act;
    const int64_t n = tr_shape_elems(&call->in[0].shape);
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    if (act == TR_ACT_NONE) return copy_bytes(stream, y, x, view_bytes(&call->in[0]));
    return by_act(act, [&](auto a) {
        return map(device, stream, call->out[0].dtype, act_t<decltype(a)::value>(), x, NULL, y, n);
    });
}

/* The gradient and its sums over rows, as they are after rounding. */
template <typename T, tr_act_t ACT> struct act_sum_ahead_t {
    enum { N = CUDA_PACK(T), SUMS = 1, AHEAD = 2, BLOCKS = 2 };
    typedef struct {
        raw_t<T, N> dy, v;
    } row_t;
    const T *dy, *v;
    T *dx; /* may be dy */
    __device__ void begin(int64_t) {}
    __device__ void load(int64_t at, row_t &row) const {
        load_raw(dy + at, row.dy);
        load_raw(v + at, row.v);
    }
    __device__ void add(int64_t at, const row_t &row, float (&sum)[1][N]) const {
        const act_gradient_t<ACT> gradient;
        float g[N], saved[N];
        unpack(row.dy, g), unpack(row.v, saved);
        for (int k = 0; k < N; k++) {
            g[k] = gradient(g[k], saved[k]);
            sum[0][k] += rounded<T>(g[k]);
        }
        store(dx + at, true, g);
    }
};

CUDA_KERNEL_PREPARE(act_bwd) {
    *out_state = NULL, *out_scratch_bytes = 0;
    if (!tr_has_bias_sum(call, 1)) return TR_OK;
    const tr_kernel_call_t sum = tr_bias_sum_call(call, 1);
    return tr_cuda_column_sum_prepare(device, &sum, out_state, out_scratch_bytes);
}

static tr_status_t act_bwd_with_sum(tr_device_t *device, tr_stream_t *stream,
                                    const tr_kernel_call_t *call) {
    const tr_kernel_call_t sum = tr_bias_sum_call(call, 1);
    const int64_t rows = sum.in[0].shape.dim[0], columns = sum.in[0].shape.dim[1];
    const void *dy = call->in[0].data, *v = call->in[1].data;
    void *dx = call->out[0].data;
    const write_sum_t finish = {(float *)sum.out[0].data, adds(&sum, 0)};
    CUDA_BY_TYPE(call->in[0].dtype, T, {
        if (rows_are_wide<T>(columns, dy, v) && cuda_aligned(dx))
            return by_act(((const tr_act_attr_t *)call->attr)->act, [&](auto a) {
                const act_sum_ahead_t<T, decltype(a)::value> f = {(const T *)dy, (const T *)v,
                                                                  (T *)dx};
                return sum_columns_ahead(stream, f, finish, rows, columns, call->scratch);
            });
    });
    tr_kernel_call_t alone = *call;
    alone.n_out = 1;
    TR_TRY(tr_cuda_act_bwd(device, stream, &alone));
    return tr_cuda_column_sum(device, stream, &sum);
}

CUDA_KERNEL(act_bwd) {
    if (tr_has_bias_sum(call, 1)) return act_bwd_with_sum(device, stream, call);
    const tr_act_t act = ((const tr_act_attr_t *)call->attr)->act;
    const int64_t n = tr_shape_elems(&call->in[0].shape);
    const void *dy = call->in[0].data, *v = call->in[1].data;
    void *dx = call->out[0].data;
    if (act == TR_ACT_NONE) return copy_bytes(stream, dx, dy, view_bytes(&call->in[0]));
    return by_act(act, [&](auto a) {
        return map(device, stream, call->out[0].dtype, act_gradient_t<decltype(a)::value>(), dy, v,
                   dx, n);
    });
}

/* -- conversions ------------------------------------------------------------------------------- */

enum { CAST_PACK = 8 };

struct channels_t {
    const float *scale, *shift; /* NULL: 1, 0 */
    int64_t count;
};

static __device__ __forceinline__ float channel_normalize(const channels_t &c, int64_t channel, float x) {
    if (!c.scale && !c.shift) return x;
    return x * (c.scale ? c.scale[channel] : 1.0f) + (c.shift ? c.shift[channel] : 0.0f);
}

template <typename From, typename To>
static __global__ void __launch_bounds__(THREADS)
    cast_kernel(const From *x, To *y, int64_t n, channels_t channels, bool wide) {
    const int64_t packs = n / CAST_PACK;
    for (int64_t i = global_thread(); i < packs; i += global_threads()) {
        float v[CAST_PACK];
        load(x + i * CAST_PACK, wide, v);
        int64_t c = i * CAST_PACK % channels.count;
#pragma unroll
        for (int k = 0; k < CAST_PACK; k++) {
            v[k] = channel_normalize(channels, c, v[k]);
            if (++c == channels.count) c = 0;
        }
        store(y + i * CAST_PACK, wide, v);
    }
    const int64_t rest = packs * CAST_PACK + global_thread();
    if (rest < n)
        y[rest] = from_float<To>(channel_normalize(channels, rest % channels.count, to_float(x[rest])));
}

template <typename From>
static tr_status_t cast(tr_device_t *device, tr_stream_t *stream, const tr_kernel_call_t *call) {
    const tr_view_t *x = &call->in[0], *y = &call->out[0];
    const int64_t n = tr_shape_elems(&x->shape);
    channels_t channels = {NULL, NULL, x->shape.ndim > 0 ? x->shape.dim[x->shape.ndim - 1] : 1};
    const bool wide = cuda_aligned(x->data) && cuda_aligned(y->data);
    const unsigned blocks = cuda_blocks(n / CAST_PACK + 1, THREADS, tr_cuda_grid_limit(device));
    if (n == 0) return TR_OK;
    if (cuda_present(&call->in[1])) channels.scale = (const float *)call->in[1].data;
    if (cuda_present(&call->in[2])) channels.shift = (const float *)call->in[2].data;
    CUDA_BY_TYPE(y->dtype, To,
                 CUDA_LAUNCH((cast_kernel<From, To>), blocks, THREADS, stream,
                             (const From *)x->data, (To *)y->data, n, channels, wide));
    return TR_OK;
}

CUDA_KERNEL(cast_normalize) {
    switch (call->in[0].dtype) {
    case TR_F32: return cast<float>(device, stream, call);
    case TR_BF16: return cast<bf16_t>(device, stream, call);
    case TR_F16: return cast<f16_t>(device, stream, call);
    case TR_F64: return cast<double>(device, stream, call);
    case TR_U8: return cast<uint8_t>(device, stream, call);
    case TR_I8: return cast<int8_t>(device, stream, call);
    case TR_U16: return cast<uint16_t>(device, stream, call);
    case TR_I16: return cast<int16_t>(device, stream, call);
    case TR_U32: return cast<uint32_t>(device, stream, call);
    case TR_I32: return cast<int32_t>(device, stream, call);
    case TR_U64: return cast<uint64_t>(device, stream, call);
    default: return cast<int64_t>(device, stream, call);
    }
}

/* -- dropout ----------------------------------------------------------------------------------- */

enum { WORDS = 4 }; /* of one block of Philox */

typedef struct {
    uint32_t stream, least; /* words below `least` are dropped */
    float factor;
} mask_t;

/* A thread makes WORDS elements of one sample; kernels.h defines the mask. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    dropout_kernel(const T *x, const int64_t *ids, const tr_step_t *step, T *y, int64_t samples,
                   int64_t width, mask_t mask, bool wide) {
    const tr_philox_key_t key = tr_philox_key(step->seed, TR_RNG_DROPOUT, mask.stream);
    const int64_t groups = (width + WORDS - 1) / WORDS;
    for (int64_t i = global_thread(); i < samples * groups; i += global_threads()) {
        const int64_t sample = i / groups, group = i % groups, at = sample * width + group * WORDS;
        const uint64_t counter = (uint64_t)step->step << 32 | (uint64_t)group;
        const tr_rng_block_t words = tr_philox(key, (uint64_t)ids[sample], counter);
        if (wide) {
            float v[WORDS];
            load(x + at, true, v);
#pragma unroll
            for (int k = 0; k < WORDS; k++)
                v[k] = words.v[k] >= mask.least ? v[k] * mask.factor : 0.0f;
            store(y + at, true, v);
            continue;
        }
#pragma unroll
        for (int k = 0; k < WORDS; k++)
            if (group * WORDS + k < width)
                y[at + k] = from_float<T>(
                    words.v[k] >= mask.least ? to_float(x[at + k]) * mask.factor : 0.0f);
    }
}

CUDA_KERNEL(dropout) {
    const tr_dropout_attr_t *attr = (const tr_dropout_attr_t *)call->attr;
    const tr_view_t *x = &call->in[0], *y = &call->out[0];
    const int64_t n = tr_shape_elems(&x->shape), samples = tr_shape_elems(&call->in[1].shape);
    const int64_t width = samples > 0 ? n / samples : 0;
    const bool wide = width % WORDS == 0 && cuda_aligned(x->data) && cuda_aligned(y->data);
    if (n == 0) return TR_OK;
    if (attr->p >= 1.0f) {
        CUDA_TRY(cudaMemsetAsync(y->data, 0, view_bytes(y), stream->handle));
        return TR_OK;
    }
    const mask_t mask = {attr->stream, (uint32_t)((double)attr->p * 4294967296.0),
                         (float)(1 / (1 - (double)attr->p))};
    const int64_t groups = (width + WORDS - 1) / WORDS;
    const unsigned blocks = cuda_blocks(samples * groups, THREADS, tr_cuda_grid_limit(device));
    CUDA_BY_TYPE(y->dtype, T,
                 CUDA_LAUNCH((dropout_kernel<T>), blocks, THREADS, stream, (const T *)x->data,
                             (const int64_t *)call->in[1].data, (const tr_step_t *)call->in[2].data,
                             (T *)y->data, samples, width, mask, wide));
    return TR_OK;
}

/* -- what products and convolutions need besides their libraries ------------------------------- */

template <tr_act_t ACT, typename T>
static __global__ void __launch_bounds__(THREADS)
    bias_act_kernel(T *y, const float *bias, int64_t n, int64_t columns) {
    const act_t<ACT> act;
    for (int64_t i = global_thread(); i < n; i += global_threads()) {
        const float x = to_float(y[i]) + bias[i % columns];
        y[i] = from_float<T>(act(x, 0.0f));
    }
}

template <tr_act_t ACT>
static tr_status_t add_bias(tr_device_t *device, tr_stream_t *stream, void *y, tr_dtype_t dtype,
                            int64_t n, int64_t columns, const float *bias) {
    const unsigned blocks = cuda_blocks(n, THREADS, tr_cuda_grid_limit(device));
    CUDA_BY_TYPE(
        dtype, T,
        CUDA_LAUNCH((bias_act_kernel<ACT, T>), blocks, THREADS, stream, (T *)y, bias, n, columns));
    return TR_OK;
}

tr_status_t tr_cuda_bias_act(tr_device_t *device, tr_stream_t *stream, void *y, tr_dtype_t dtype,
                             int64_t rows, int64_t columns, const float *bias, tr_act_t act) {
    const int64_t n = rows * columns;
    if (n == 0 || (act == TR_ACT_NONE && !bias)) return TR_OK;
    return by_act(act, [&](auto a) {
        const tr_act_t ACT = decltype(a)::value;
        return bias ? add_bias<ACT>(device, stream, y, dtype, n, columns, bias)
                    : map(device, stream, dtype, act_t<ACT>(), y, NULL, y, n);
    });
}

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS)
    pad_kernel(const T *x, T *y, int64_t rows, int64_t from, int64_t to) {
    const int64_t packs = to / N;
    for (int64_t i = global_thread(); i < rows * packs; i += global_threads()) {
        const int64_t row = i / packs, column = i % packs * N;
        float v[N];
        for (int k = 0; k < N; k++)
            v[k] = column + k < from ? to_float(x[row * from + column + k]) : 0.0f;
        store(y + row * to + column, true, v);
    }
}

tr_status_t tr_cuda_pad_columns(tr_device_t *device, tr_stream_t *stream, const void *x, void *y,
                                tr_dtype_t dtype, int64_t rows, int64_t from, int64_t to) {
    CUDA_BY_TYPE(dtype, T, {
        CUDA_BY_PACK(cuda_aligned(y) && to % CUDA_PACK(T) == 0, T, N,
                     CUDA_LAUNCH((pad_kernel<T, N>),
                                 cuda_blocks(rows * to / N, THREADS, tr_cuda_grid_limit(device)),
                                 THREADS, stream, (const T *)x, (T *)y, rows, from, to));
    });
    return TR_OK;
}

tr_status_t tr_cuda_narrow(tr_device_t *device, tr_stream_t *stream, const float *x, void *y,
                           tr_dtype_t dtype, int64_t count) {
    const channels_t none = {NULL, NULL, 1};
    const unsigned blocks = cuda_blocks(count / CAST_PACK + 1, THREADS, tr_cuda_grid_limit(device));
    CUDA_BY_TYPE(dtype, T,
                 CUDA_LAUNCH((cast_kernel<float, T>), blocks, THREADS, stream, x, (T *)y, count,
                             none, cuda_aligned(x) && cuda_aligned(y)));
    return TR_OK;
}
