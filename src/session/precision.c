/* Names of precisions, and the choice of precision = auto. */
#include "precision.h"
#include "trainer/log.h"

#include <string.h>

static const struct {
    const char *name;
    tr_dtype_t dtype;
} rows[] = {[TR_PRECISION_AUTO] = {"auto", TR_F32},
            [TR_PRECISION_FP32] = {"fp32", TR_F32},
            [TR_PRECISION_TF32] = {"tf32", TR_F32},
            [TR_PRECISION_BF16] = {"bf16", TR_BF16},
            [TR_PRECISION_FP16] = {"fp16", TR_F16}};

const char *tr_precision_name(tr_precision_t precision) {
    return rows[precision].name;
}

tr_precision_t tr_precision_find(const char *name) {
    for (size_t i = 0; name && i < TR_COUNT(rows); i++)
        if (strcmp(rows[i].name, name) == 0) return (tr_precision_t)i;
    return TR_PRECISION_AUTO;
}

tr_dtype_t tr_precision_dtype(tr_precision_t precision) {
    return rows[precision].dtype;
}

static void warn_emulated(const char *name) {
    TR_WARN("precision = %s: this processor has no instructions for products of %s; they are "
            "emulated, and fp32 is faster here",
            name, name);
}

tr_status_t tr_precision_resolve(tr_world_t *world, const tr_device_t *device,
                                 tr_precision_t *precision) {
    if (*precision == TR_PRECISION_AUTO) {
        /* the least of all ranks; half precision without bf16 is for GPUs, which have nothing else
         * that uses their tensor cores */
        static const tr_precision_t choices[] = {TR_PRECISION_FP32, TR_PRECISION_FP16,
                                                 TR_PRECISION_BF16};
        int64_t choice = device->fast_bf16 ? 2 : device->capability > 0 && device->fast_f16;
        if (world) TR_TRY(tr_world_allreduce_int(world, &choice, 1, TR_REDUCE_MIN));
        *precision = choices[choice];
        TR_INFO("precision = auto: %s", tr_precision_name(*precision));
    }
    if (*precision == TR_PRECISION_TF32 && !device->tf32)
        TR_INFO("precision = tf32: the device %s has no TF32; products are computed in fp32",
                device->ops->name);
    if (*precision == TR_PRECISION_BF16 && !device->fast_bf16 && device->capability > 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "precision = bf16: %s has no products of bf16, which begin at compute "
                       "capability 8.0; set precision = auto or fp16",
                       device->description);
    if (*precision == TR_PRECISION_BF16 && !device->fast_bf16) warn_emulated("bf16");
    if (*precision == TR_PRECISION_FP16 && !device->fast_f16) warn_emulated("fp16");
    return TR_OK;
}
