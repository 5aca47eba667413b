/* The same choices of the device and of the instructions on every rank. Private to src/session. */
#ifndef TR_SESSION_SHARE_CHOICES_H
#define TR_SESSION_SHARE_CHOICES_H

#include "comm/comm.h"
#include "device/device.h"
#include "device/isa.h"

/* Limits all ranks to the set of instructions that every one may use (device/isa.h), where their
 * processors differ or TRAINER_ISA is set. Before the first device is opened. TR_ERR_CONFIG: as
 * tr_isa_find, of any rank. Collective. */
tr_status_t tr_share_isa(tr_world_t *world);
/* The set that it finds where this rank may use `own`, and the highest one of a rank; *out_set is -1
 * where no rank needs a limit. Collective. */
tr_status_t tr_common_isa(tr_world_t *world, const tr_isa_t *own, int *out_set, int *out_most);
/* Gives the choices of rank 0's device (choices_get) to the devices of the other ranks. Collective.
 */
tr_status_t tr_share_choices(tr_world_t *world, tr_device_t *device);
/* Whether the devices of all ranks made the same choices, and `planned` is true on all. Collective.
 */
tr_status_t tr_choices_are_alike(tr_world_t *world, tr_device_t *device, bool planned,
                                 bool *out_alike);

#endif
