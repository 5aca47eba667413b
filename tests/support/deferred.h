/*
 * A collectives table for the strict device that never makes the host wait: sums are pieces of work
 * of a stream of their own, so that captures may hold them. For tests of captured steps.
 */
#ifndef TRAINER_TEST_DEFERRED_H
#define TRAINER_TEST_DEFERRED_H

#include "device/collectives.h"
#include "comm/comm.h"

/* Sums of f32 over all ranks of `world`, correctly rounded; of the other entries only close. Both
 * are borrowed. Nobody else makes MPI calls while the device works. */
/* `refuses`: its waits fail inside a capture. */
tr_status_t deferred_open(tr_world_t *world, tr_device_t *strict, bool refuses,
                          tr_collectives_t **out);

#endif
