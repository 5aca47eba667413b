/* For losses and metrics: labels, and the softmax of a row. Private to src/device/cpu. */
#ifndef TR_DEVICE_CPU_KERNELS_CPU_LOSS_H
#define TR_DEVICE_CPU_KERNELS_CPU_LOSS_H

#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_math.h"

#include <math.h>

static inline int64_t cpu_label(const tr_view_t *labels, int64_t row) {
    return labels->dtype == TR_I32 ? ((const int32_t *)labels->data)[row]
                                   : ((const int64_t *)labels->data)[row];
}

/* log(sum exp x). A NaN or +infinity gives NaN. */
static inline double cpu_log_sum_exp(const float *x, int64_t width) {
    float max = x[0];
    double sum = 0;
#pragma omp simd reduction(max : max)
    for (int64_t i = 1; i < width; i++) max = x[i] > max ? x[i] : max;
    CPU_LANE_SUM(sum, width, i, cpu_exp_nonpositive(x[i] - max));
    return max + log(sum);
}

#endif
