/*
 * Devices: where graphs are computed. "cpu" is this machine's processors. Not collective: every
 * process opens its own.
 */
#ifndef TRAINER_DEVICE_H
#define TRAINER_DEVICE_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_device tr_device_t; /* opaque */

/* {0}: the defaults. */
typedef struct {
    /* CPU threads, if OpenMP allows as many; 0: the number of cores of this process */
    int threads;
    int index;     /* index of the device, from 0; the caller resolves the local rank */
    uint64_t seed; /* strict: seed of its random orders */
    bool direct;   /* convolutions by direct sums only */
    bool tf32;     /* GPUs: products of f32 use TF32. Other devices ignore it. */
    /* GPUs: fraction of the memory free after opening that may be planned for; 0: 0.95 */
    double memory_share;
    bool sync; /* GPUs: wait after every kernel, so that an error names its kernel */
    bool nvtx; /* GPUs: name the ops for NVIDIA's profilers */
    bool tune; /* GPUs: `prepare` chooses algorithms by time */
    /* GPUs: a model ("h200") that need not be in this machine. The device prepares kernels as that
     * GPU would, so that a graph can be planned; it has no memory and runs nothing. NULL: a GPU of
     * this machine. */
    const char *model;
    bool any_order;  /* GPUs: as tr_device.any_order */
    /* GPUs: the folder that keeps choices: compiled plans, timed algorithms; NULL: none */
    const char *plan_folder;
} tr_device_params_t;

/*
 * Opens the device `name`: "cpu", "cuda", "strict" (as the CPU, but finds errors that would occur
 * only on a GPU), or "auto", the best that this machine has. params: NULL for the defaults; with
 * params->model always cuda. TR_ERR_CONFIG lists the devices of this build, or says why this one
 * cannot be used.
 */
tr_status_t tr_device_open(const char *name, const tr_device_params_t *params, tr_device_t **out);
/* Closes *device and sets it to NULL; NULL is allowed. Destroy its graphs first. */
void tr_device_close(tr_device_t **device);

#ifdef __cplusplus
}
#endif

#endif
