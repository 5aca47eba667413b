/* The same choices of the device on every rank. Private to src/session. */
#ifndef TR_SESSION_SHARE_CHOICES_H
#define TR_SESSION_SHARE_CHOICES_H

#include "comm/comm.h"
#include "device/device.h"

/* Gives the choices of rank 0's device (choices_get) to the devices of the other ranks. Collective.
 */
tr_status_t tr_share_choices(tr_world_t *world, tr_device_t *device);
/* Whether the devices of all ranks made the same choices, and `planned` is true on all. Collective.
 */
tr_status_t tr_choices_are_alike(tr_world_t *world, tr_device_t *device, bool planned,
                                 bool *out_alike);

#endif
