/* The key `precision`: its types, and the resolution of auto. */
#ifndef TR_SESSION_PRECISION_H
#define TR_SESSION_PRECISION_H

#include "device/device.h"
#include "comm/comm.h"

/* In the order of the key's values. AUTO (0) also means unknown. */
typedef enum {
    TR_PRECISION_AUTO,
    TR_PRECISION_FP32,
    TR_PRECISION_TF32,
    TR_PRECISION_BF16,
    TR_PRECISION_FP16
} tr_precision_t;

const char *tr_precision_name(tr_precision_t precision);
/* AUTO if the name is NULL or unknown. */
tr_precision_t tr_precision_find(const char *name);
/* The type of activations and matrix products; not for AUTO. */
tr_dtype_t tr_precision_dtype(tr_precision_t precision);

/* Replaces AUTO: BF16 if the devices of all ranks have instructions for it, else FP32. Logs what a
 * device lacks. world NULL: only this device. Collective if there is a world. */
tr_status_t tr_precision_resolve(tr_world_t *world, const tr_device_t *device,
                                 tr_precision_t *precision);

#endif
