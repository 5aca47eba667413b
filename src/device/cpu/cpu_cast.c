/* Conversion of any type, normalised by channel, to f32, bf16 or f16: for stored samples and casts. */
#include "cpu_int.h"
#include "cpu_types.h"

/* Elements that are converted at once: few enough for the first cache. */
#define TILE 1024

#define CONVERT(type, value)                                                                       \
    do {                                                                                           \
        const type *from = (const type *)x + first;                                                \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) y[i] = (value);                    \
    } while (0)

static void convert(const void *x, tr_dtype_t dtype, int64_t first, int64_t count, float *y) {
    switch (dtype) {
    case TR_F32: CONVERT(float, from[i]); break;
    case TR_BF16: CONVERT(uint16_t, cpu_from_bf16(from[i])); break;
    case TR_F16: CONVERT(uint16_t, cpu_from_f16(from[i])); break;
    case TR_F64: CONVERT(double, (float)from[i]); break;
    case TR_U8: CONVERT(uint8_t, (float)from[i]); break;
    case TR_I8: CONVERT(int8_t, (float)from[i]); break;
    case TR_U16: CONVERT(uint16_t, (float)from[i]); break;
    case TR_I16: CONVERT(int16_t, (float)from[i]); break;
    case TR_U32: CONVERT(uint32_t, (float)from[i]); break;
    case TR_I32: CONVERT(int32_t, (float)from[i]); break;
    case TR_U64: CONVERT(uint64_t, (float)from[i]); break;
    case TR_I64: CONVERT(int64_t, (float)from[i]); break;
    case TR_DTYPE_COUNT: break;
    }
}

/* y = y * scale[c] + shift[c]; the factors are spread over as many elements. */
static void apply(const float *scale, const float *shift, int64_t count, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = y[i] * scale[i] + shift[i];
}

static void spread(const tr_view_t *view, float absent, int64_t channels, int64_t repeat,
                   float *out) {
    const float *values = cpu_present(view) ? view->data : NULL;
    for (int64_t i = 0; i < repeat; i++) out[i] = values ? values[i % channels] : absent;
}

/* More channels than a tile has elements. */
static void apply_wide(const tr_kernel_call_t *call, int64_t channels, int64_t first, int64_t count,
                       float *y) {
    const float *scale = cpu_present(&call->in[1]) ? call->in[1].data : NULL;
    const float *shift = cpu_present(&call->in[2]) ? call->in[2].data : NULL;
    for (int64_t i = 0, c = first % channels; i < count; i++) {
        y[i] = y[i] * (scale ? scale[c] : 1.0f) + (shift ? shift[c] : 0.0f);
        if (++c == channels) c = 0;
    }
}

CPU_INLINE void round_tile(const float *x, int64_t count, uint16_t *y, int type) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = cpu_narrow(x[i], type);
}

CPU_KERNEL(cast_normalize) {
    const tr_view_t *x = &call->in[0];
    int64_t n = tr_shape_elems(&x->shape),
            channels = x->shape.ndim > 0 ? x->shape.dim[x->shape.ndim - 1] : 1;
    bool plain = !cpu_present(&call->in[1]) && !cpu_present(&call->in[2]), wide = channels > TILE;
    int64_t repeat = wide || channels < 1 ? TILE : TILE / channels * channels,
            tiles = (n + repeat - 1) / repeat;
    bool narrow = call->out[0].dtype != TR_F32;
    float scale[TILE], shift[TILE];
    if (!plain && !wide) {
        spread(&call->in[1], 1.0f, channels, repeat, scale);
        spread(&call->in[2], 0.0f, channels, repeat, shift);
    }
#pragma omp parallel for num_threads(cpu_threads(device, n)) schedule(static)
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t first = tile * repeat, count = n - first < repeat ? n - first : repeat;
        float narrowed[TILE], *y = narrow ? narrowed : (float *)call->out[0].data + first;
        convert(x->data, x->dtype, first, count, y);
        if (!plain && wide)
            apply_wide(call, channels, first, count, y);
        else if (!plain)
            apply(scale, shift, count, y);
        if (narrow)
            CPU_BY_TYPE(call->out[0].dtype, t,
                        round_tile(y, count, (uint16_t *)call->out[0].data + first, t));
    }
    return TR_OK;
}
