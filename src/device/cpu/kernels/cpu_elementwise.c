/* Copies, sums and scaling: kernels limited by memory bandwidth. */
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_types.h"
#include "device/fingerprint.h"
#include <string.h>

/* Runs `body` for each i in [0, n), with the type as the constant `t`. */
#define MAP(dtype, t, body)                                                                        \
    do {                                                                                           \
        int threads_ = cpu_threads(device, n);                                                     \
        CPU_BY_TYPE(                                                                               \
            dtype, t,                                                                              \
            _Pragma(                                                                               \
                "omp parallel for simd num_threads(threads_) schedule(static)") for (int64_t i =   \
                                                                                         0;        \
                                                                                     i < n; i++)   \
                body);                                                                             \
    } while (0)

CPU_KERNEL(copy) {
    int64_t bytes = tr_shape_elems(&call->in[0].shape) * (int64_t)tr_dtype_bytes(call->in[0].dtype);
    const char *x = call->in[0].data;
    char *y = call->out[0].data;
    int threads = cpu_threads(device, bytes / 4);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int i = 0; i < threads; i++) {
        cpu_range_t part = cpu_range(bytes, 4096, threads, i);
        memcpy(y + part.first, x + part.first, (size_t)(part.last - part.first));
    }
    return TR_OK;
}

CPU_KERNEL(accumulate) {
    int64_t n = tr_shape_elems(&call->in[0].shape);
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
#pragma omp parallel for simd num_threads(cpu_threads(device, n)) schedule(static)
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
    return TR_OK;
}

CPU_KERNEL(add) {
    const tr_add_attr_t *attr = call->attr;
    int64_t n = tr_shape_elems(&call->in[0].shape);
    const void *a = call->in[0].data, *b = call->in[1].data;
    void *y = call->out[0].data;
    if (attr->act == TR_ACT_RELU)
        MAP(call->out[0].dtype, t, cpu_put(y, i, cpu_relu(cpu_get(a, i, t) + cpu_get(b, i, t)), t));
    else
        MAP(call->out[0].dtype, t, cpu_put(y, i, cpu_get(a, i, t) + cpu_get(b, i, t), t));
    return TR_OK;
}

CPU_INLINE void cpu_bias_row(const void *x, const float *b, bool cut, void *y, int64_t width,
                             int type) {
    for (int64_t c = 0; c < width; c++) {
        const float sum = cpu_get(x, c, type) + b[c];
        cpu_put(y, c, cut ? cpu_relu(sum) : sum, type);
    }
}

CPU_KERNEL(bias) {
    const bool cut = ((const tr_add_attr_t *)call->attr)->act == TR_ACT_RELU;
    const int64_t n = tr_shape_elems(&call->in[0].shape), width = call->in[1].shape.dim[0];
    const void *x = call->in[0].data;
    const float *b = call->in[1].data;
    void *y = call->out[0].data;
    const int threads = cpu_threads(device, n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i += width)
        CPU_BY_TYPE(call->in[0].dtype, t,
                    cpu_bias_row(cpu_at(x, i, t), b, cut, cpu_at_out(y, i, t), width, t));
    return TR_OK;
}

CPU_KERNEL(leaky_relu_fwd) {
    const float slope = ((const tr_leaky_relu_attr_t *)call->attr)->slope;
    const int64_t n = tr_shape_elems(&call->in[0].shape);
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    MAP(call->out[0].dtype, t,
        cpu_put(y, i, cpu_get(x, i, t) * (cpu_get(x, i, t) > 0 ? 1 : slope), t));
    return TR_OK;
}

CPU_KERNEL(leaky_relu_bwd) {
    const float slope = ((const tr_leaky_relu_attr_t *)call->attr)->slope;
    const int64_t n = tr_shape_elems(&call->in[0].shape);
    const void *dy = call->in[0].data, *value = call->in[1].data;
    void *dx = call->out[0].data;
    MAP(call->out[0].dtype, t,
        cpu_put(dx, i, cpu_get(dy, i, t) * (cpu_get(value, i, t) > 0 ? 1 : slope), t));
    return TR_OK;
}

CPU_KERNEL(scale) {
    const float factor = ((const tr_scale_attr_t *)call->attr)->factor;
    int64_t n = tr_shape_elems(&call->in[0].shape);
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    MAP(call->out[0].dtype, t, cpu_put(y, i, factor * cpu_get(x, i, t), t));
    return TR_OK;
}

CPU_INLINE uint32_t any_not_finite(const tr_device_t *device, const void *x, int64_t n, int type) {
    uint32_t any = 0;
#pragma omp parallel for simd num_threads(cpu_threads(device, n)) schedule(static)                 \
    reduction(|                                                                                    \
              : any)
    for (int64_t i = 0; i < n; i++)
        any |= (cpu_bits(cpu_get(x, i, type)) & 0x7f800000u) == 0x7f800000u;
    return any;
}

CPU_KERNEL(check_finite) {
    int64_t n = tr_shape_elems(&call->in[0].shape);
    const void *x = call->in[0].data;
    uint32_t any = 0;
    CPU_BY_TYPE(call->in[0].dtype, t, any = any_not_finite(device, x, n, t));
    *(int32_t *)call->out[0].data |= (int32_t)any;
    return TR_OK;
}

CPU_KERNEL(fingerprint) {
    const int64_t n = tr_shape_elems(&call->in[0].shape);
    const uint32_t *x = call->in[0].data;
    uint64_t sum = 0;
#pragma omp parallel for num_threads(cpu_threads(device, n)) schedule(static) reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += tr_fingerprint_of(x[i], i);
    *(uint64_t *)call->out[0].data += sum;
    return TR_OK;
}
