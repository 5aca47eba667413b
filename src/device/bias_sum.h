/* The sum that RESIDUAL_LAYERNORM_BWD and ACT_BWD give in addition, of their output 0 over all but
 * columns: the gradient of the bias of the layer below. C and CUDA C++ include it. */
#ifndef TR_DEVICE_BIAS_SUM_H
#define TR_DEVICE_BIAS_SUM_H

#include "device/device.h"

#include <string.h>

/* Whether output `index`, this sum, is wanted. */
static inline bool tr_has_bias_sum(const tr_kernel_call_t *call, int index) {
    return call->n_out > index && call->out[index].shape.ndim >= 0;
}

/* It as a call of COLUMN_SUM. */
static inline tr_kernel_call_t tr_bias_sum_call(const tr_kernel_call_t *call, int index) {
    const int64_t columns = call->out[index].shape.dim[0];
    tr_kernel_call_t sum;
    memset(&sum, 0, sizeof sum);
    sum.n_in = sum.n_out = 1;
    sum.in[0] = call->out[0], sum.out[0] = call->out[index];
    sum.in[0].shape = TR_SHAPE(tr_shape_elems(&call->out[0].shape) / columns, columns);
    sum.scratch = call->scratch;
    sum.adds = call->adds >> index & 1;
    return sum;
}

#endif
