/*
 * Private: the time that work takes on this GPU; and that of an algorithm, for `cuda.tune = yes`.
 *
 * Used while kernels are prepared, before the memory of the run is allocated. A result is kept in
 * the store of plans, so it is measured once for each GPU, library version and shape.
 */
#ifndef TR_DEVICE_CUDA_CUDA_TUNE_H
#define TR_DEVICE_CUDA_CUDA_TUNE_H

#include "cuda_int.h"
#include "cuda_place.h"

/* Measures work on a stream of its own by events. */
typedef struct {
    tr_device_t *device;
    tr_stream_t *stream;
    tr_event_t *first, *last;
} cuda_timer_t;

tr_status_t tr_cuda_timer_open(tr_device_t *device, cuda_timer_t *timer);
/* Waits for the work; also after an open that failed. */
void tr_cuda_timer_close(cuda_timer_t *timer);
/* Seconds of one run, of `runs` that are timed together. run: enqueues the work once on `stream`. */
tr_status_t tr_cuda_timer_run(cuda_timer_t *timer,
                              tr_status_t (*run)(void *self, tr_stream_t *stream), void *self,
                              int runs, double *out_sec);

/* One way to compute an operation. */
typedef struct {
    size_t bytes; /* device memory for its operands and workspace */
    /* Enqueues the operation once. memory: `bytes` of zeros, aligned to 256. */
    tr_status_t (*run)(void *self, tr_stream_t *stream, void *memory);
    void *self;
} cuda_trial_t;

/* Seconds of one run, from the fastest of some rounds; INFINITY if there is no memory for the
 * trial, or if it fails. */
double tr_cuda_time(tr_device_t *device, const cuda_trial_t *trial);

/* The same for a kernel's call, on operands of zeros: run(device, stream, call) with call->state and as
 * much scratch memory. */
double tr_cuda_time_call(tr_device_t *device, const tr_kernel_call_t *call,
                         tr_status_t (*run)(tr_device_t *device, tr_stream_t *stream,
                                            const tr_kernel_call_t *call),
                         size_t scratch_bytes);

/* Several ways to compute `what`, which names all that the choice depends on. sec(self, way): how long
 * one takes, INFINITY where it is impossible. */
typedef struct {
    const char *what;
    int count;
    double (*sec)(void *self, int way);
    void *self;
} cuda_ways_t;

/* The way that the store has or, if it has none, the fastest, which is stored; the first of equals. If
 * none can be timed: the first, with a warning, for this process.
 * TR_ERR_NOINPUT: the device chooses nothing, and the store has none. */
tr_status_t tr_cuda_choose_way(tr_device_t *device, const cuda_ways_t *ways, int *out_way);

/* Whether the fastest of several takes a finite time, so that it is kept; if not, a warning. */
bool tr_cuda_was_timed(double best_sec, const char *what);

#endif
