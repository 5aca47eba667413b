/* Labels for losses and metrics. Private to src/device/cpu. */
#ifndef TR_DEVICE_CPU_KERNELS_CPU_LOSS_H
#define TR_DEVICE_CPU_KERNELS_CPU_LOSS_H

#include "device/cpu/cpu_int.h"

static inline int64_t cpu_label(const tr_view_t *labels, int64_t row) {
    return labels->dtype == TR_I32 ? ((const int32_t *)labels->data)[row]
                                   : ((const int64_t *)labels->data)[row];
}

#endif
