/* The key `precision`: which types it stands for, and what auto is on this device. */
#ifndef TRAINER_PRECISION_H
#define TRAINER_PRECISION_H

#include "device/device.h"
#include "trainer/comm.h"

/* In the order of the key's values. AUTO is 0: where it is "not known", too. */
typedef enum {
    TR_PRECISION_AUTO,
    TR_PRECISION_FP32,
    TR_PRECISION_TF32,
    TR_PRECISION_BF16,
    TR_PRECISION_FP16
} tr_precision_t;

const char *tr_precision_name(tr_precision_t precision);
/* AUTO where the name is NULL or not known. */
tr_precision_t tr_precision_find(const char *name);
/* Of activations and matrix products. AUTO has none. */
tr_dtype_t tr_precision_dtype(tr_precision_t precision);

/* Replaces AUTO: BF16 if the devices of all ranks have instructions for it, else FP32. Logs what a
 * device lacks. world NULL: this device alone. Collective where there is a world. */
tr_status_t tr_precision_resolve(tr_world_t *world, const tr_device_t *device,
                                 tr_precision_t *precision);

#endif
