/* Activation functions. */
#include "device/bias_sum.h"
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_types.h"
#include <string.h>

/* Operations per element, relative to a copy, to decide whether to use threads. */
enum { COST_COPY = 1, COST_EXP = 8 };

/* out[i] = value for all i; `value` reads elements with get(array). */
#define MAP(cost, value)                                                                           \
    do {                                                                                           \
        int threads = cpu_threads(device, n * (cost));                                             \
        CPU_BY_TYPE(                                                                               \
            call->out[0].dtype, type_,                                                             \
            _Pragma(                                                                               \
                "omp parallel for simd num_threads(threads) schedule(static)") for (int64_t i = 0; \
                                                                                    i < n; i++)    \
                cpu_put(out, i, (value), type_));                                                  \
    } while (0)
#define get(array) cpu_get(array, i, type_)

static size_t cpu_act_bytes_of(const tr_view_t *view) {
    return (size_t)tr_shape_elems(&view->shape) * tr_dtype_bytes(view->dtype);
}

CPU_KERNEL(act_fwd) {
    int64_t n = tr_shape_elems(&call->in[0].shape);
    const void *x = call->in[0].data;
    void *out = call->out[0].data;
    switch (((const tr_act_attr_t *)call->attr)->act) {
#define ACTIVATION(NAME, name, ...)                                                                \
    case TR_ACT_##NAME:                                                                            \
        MAP(TR_ACT_##NAME == TR_ACT_RELU ? COST_COPY : COST_EXP, cpu_##name(get(x)));              \
        break;
#include "trainer/activations.def"
#undef ACTIVATION
    default:
        if (out != x) memcpy(out, x, cpu_act_bytes_of(&call->in[0]));
    }
    return TR_OK;
}

CPU_KERNEL_PREPARE(act_bwd) {
    *out_state = NULL, *out_scratch_bytes = 0;
    if (!tr_has_bias_sum(call, 1)) return TR_OK;
    const tr_kernel_call_t sum = tr_bias_sum_call(call, 1);
    return tr_cpu_column_sum_prepare(device, &sum, out_state, out_scratch_bytes);
}

CPU_KERNEL(act_bwd) {
    int64_t n = tr_shape_elems(&call->in[0].shape);
    const void *dy = call->in[0].data, *v = call->in[1].data; /* v: x or y */
    void *out = call->out[0].data;
    switch (((const tr_act_attr_t *)call->attr)->act) {
#define ACTIVATION(NAME, name, keeps_input, ...)                                                   \
    case TR_ACT_##NAME:                                                                            \
        MAP(keeps_input ? COST_EXP : COST_COPY, cpu_##name##_grad(get(dy), get(v)));               \
        break;
#include "trainer/activations.def"
#undef ACTIVATION
    default:
        if (out != dy) memcpy(out, dy, cpu_act_bytes_of(&call->in[0]));
    }
    if (!tr_has_bias_sum(call, 1)) return TR_OK;
    const tr_kernel_call_t sum = tr_bias_sum_call(call, 1);
    return tr_cpu_column_sum(device, stream, &sum);
}
