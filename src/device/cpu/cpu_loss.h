/* Labels for losses and metrics. Private to src/device/cpu. */
#ifndef TRAINER_CPU_LOSS_H
#define TRAINER_CPU_LOSS_H

#include "cpu_int.h"

static inline int64_t cpu_label(const tr_view_t *labels, int64_t row) {
    return labels->dtype == TR_I32 ? ((const int32_t *)labels->data)[row]
                                   : ((const int64_t *)labels->data)[row];
}

#endif
