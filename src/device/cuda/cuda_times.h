/*
 * Private: times of the device between two events of a stream. An event that is recorded during a
 * capture is recorded again by every launch. Nothing here waits; an interval that cannot be
 * measured sets `lost` and is no error.
 */
#ifndef TR_DEVICE_CUDA_CUDA_TIMES_H
#define TR_DEVICE_CUDA_CUDA_TIMES_H

#include "cuda_int.h"
#include "base/mem.h"

typedef struct {
    cudaEvent_t from, to;
    double *sum;    /* the seconds are added to it */
    int64_t ticket; /* order of the intervals, as the caller counts */
    bool captured;
} cuda_interval_t;

typedef struct {
    TR_VEC(cuda_interval_t) pending;  /* enqueued or launched, and not added */
    TR_VEC(cuda_interval_t) captured; /* in executables */
    TR_VEC(cuda_interval_t) idle;     /* their events are reused */
    bool lost;                        /* some interval was not measured */
} cuda_times_t;

/* The work that is enqueued on `stream` between begin and end. */
cuda_interval_t tr_cuda_times_begin(cuda_times_t *times, cudaStream_t stream, bool capturing);
void tr_cuda_times_end(cuda_times_t *times, cuda_interval_t interval, cudaStream_t stream,
                       int64_t ticket, double *sum);
/* A launch repeats the captured intervals with the tickets first to last, as `first_again` and the
 * following ones. */
void tr_cuda_times_replayed(cuda_times_t *times, int64_t first, int64_t last, int64_t first_again);
/* Takes an interval that is settled. */
typedef void (*cuda_times_fn)(void *self, const cuda_interval_t *interval);
/* Adds the seconds of the pending intervals up to `ticket`, which must be complete. each: NULL, or
 * called for each of them. */
void tr_cuda_times_settle(cuda_times_t *times, int64_t ticket, cuda_times_fn each, void *self);
/* After the executables are destroyed. */
void tr_cuda_times_free(cuda_times_t *times);

#endif
