/* Conversion of any type, normalised by channel, to f32, bf16 or f16: for stored samples and casts. */
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_types.h"

#define CONVERT(type, value)                                                                       \
    do {                                                                                           \
        const type *from = (const type *)x + first;                                                \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) y[i] = (value);                    \
    } while (0)

static void convert(const void *x, tr_dtype_t dtype, int64_t first, int64_t count, float *y) {
    switch (dtype) {
    case TR_F32: CONVERT(float, from[i]); break;
    case TR_BF16: CONVERT(uint16_t, tr_float_of_bf16(from[i])); break;
    case TR_F16: CONVERT(uint16_t, tr_float_of_f16(from[i])); break;
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
static void cpu_cast_apply(const float *scale, const float *shift, int64_t count, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = y[i] * scale[i] + shift[i];
}

static void cpu_cast_spread(const tr_view_t *view, float absent, int64_t channels, int64_t repeat,
                            float *out) {
    const float *values = cpu_present(view) ? view->data : NULL;
    for (int64_t i = 0; i < repeat; i++) out[i] = values ? values[i % channels] : absent;
}

/* More channels than a tile has elements. */
static void apply_wide(const tr_view_t *scale, const tr_view_t *shift, int64_t channels,
                       int64_t first, int64_t count, float *y) {
    const float *a = cpu_present(scale) ? scale->data : NULL,
                *b = cpu_present(shift) ? shift->data : NULL;
    for (int64_t i = 0, c = first % channels; i < count; i++) {
        y[i] = y[i] * (a ? a[c] : 1.0f) + (b ? b[c] : 0.0f);
        if (++c == channels) c = 0;
    }
}

cpu_normalize_t tr_cpu_normalize_begin(const tr_view_t *x, const tr_view_t *scale,
                                       const tr_view_t *shift) {
    const int64_t channels = x->shape.ndim > 0 ? x->shape.dim[x->shape.ndim - 1] : 1;
    cpu_normalize_t n = {.x = x, .scale = scale, .shift = shift, .channels = channels};
    n.is_wide = channels > CPU_NORMALIZE_TILE;
    n.is_plain = !cpu_present(scale) && !cpu_present(shift);
    n.tile =
        n.is_wide || channels < 1 ? CPU_NORMALIZE_TILE : CPU_NORMALIZE_TILE / channels * channels;
    if (n.is_plain || n.is_wide) return n;
    cpu_cast_spread(scale, 1.0f, channels, n.tile, n.scales);
    cpu_cast_spread(shift, 0.0f, channels, n.tile, n.shifts);
    return n;
}

void tr_cpu_normalize(const cpu_normalize_t *n, int64_t first, int64_t count, float *y) {
    for (int64_t end = first + count; first < end; first += n->tile, y += n->tile) {
        const int64_t part = end - first < n->tile ? end - first : n->tile;
        convert(n->x->data, n->x->dtype, first, part, y);
        if (n->is_plain) continue;
        if (n->is_wide)
            apply_wide(n->scale, n->shift, n->channels, first, part, y);
        else
            cpu_cast_apply(n->scales, n->shifts, part, y);
    }
}

CPU_INLINE void round_tile(const float *x, int64_t count, uint16_t *y, int type) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = cpu_narrow(x[i], type);
}

void tr_cpu_narrow(const float *x, int64_t count, void *y, int64_t at, tr_dtype_t dtype) {
    CPU_BY_TYPE(dtype, t, round_tile(x, count, (uint16_t *)y + at, t));
}

CPU_KERNEL(cast_normalize) {
    const int64_t n = tr_shape_elems(&call->in[0].shape);
    const cpu_normalize_t by = tr_cpu_normalize_begin(&call->in[0], &call->in[1], &call->in[2]);
    const tr_view_t *out = &call->out[0];
#pragma omp parallel for num_threads(cpu_threads(device, n)) schedule(static)
    for (int64_t tile = 0; tile < (n + by.tile - 1) / by.tile; tile++) {
        const int64_t first = tile * by.tile, count = n - first < by.tile ? n - first : by.tile;
        float tiled[CPU_NORMALIZE_TILE];
        const bool is_narrow = out->dtype != TR_F32;
        float *y = is_narrow ? tiled : (float *)out->data + first;
        tr_cpu_normalize(&by, first, count, y);
        if (is_narrow) tr_cpu_narrow(y, count, out->data, first, out->dtype);
    }
    return TR_OK;
}
