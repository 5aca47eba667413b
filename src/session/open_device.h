/* Opening the device of a rank. */
#ifndef TR_SESSION_OPEN_DEVICE_H
#define TR_SESSION_OPEN_DEVICE_H

#include "comm/comm.h"
#include "config/config.h"
#include "device/device.h"

#include <limits.h>

/* Cores of this rank; its share if ranks share cores. place NULL: 1. Not collective. */
int tr_cores_of_rank(const tr_world_info_t *place);
/* Writes the folder of cuda.plan_cache; "": none. */
void tr_plan_folder(const tr_config_t *config, char folder[PATH_MAX]);
enum { TR_NODE_DEVICES = 64 }; /* that the ranks of a node choose from */
/* The device of local rank `rank`: in order of local ranks, each takes the free one with the most
 * cores of its own nearby, of several the first. Where all are taken, all are free again. near:
 * [count] cores near each device; ranks: the cores of each rank. Not collective. */
int tr_nearest_device(const cpu_set_t *near, int count, const cpu_set_t *ranks, int rank);
/* Opens the device `name` of this rank, NULL: that of the configuration; of several devices on the
 * node, the one of tr_nearest_device. `seed` is for the device `strict`; tf32 is used by devices
 * that have it. world: NULL for none. Not collective. */
tr_status_t tr_open_device(const tr_config_t *config, const char *name, uint64_t seed, bool tf32,
                           const tr_world_t *world, tr_device_t **out);
/* The device that plans for the GPU `model` and runs nothing. Not collective. */
tr_status_t tr_open_gpu_model(const tr_config_t *config, const char *model, bool tf32,
                              tr_device_t **out);
/* TR_ERR_CONFIG: two ranks of a node have the same GPU, and cuda.share is off. Collective. */
tr_status_t tr_check_own_device(tr_world_t *world, const tr_config_t *config,
                                const tr_device_t *device);

#endif
