/*
 * Private to the loader. Each sample stream, one per slot of this rank, has a circular buffer of
 * `capacity` samples in pinned memory; position p of the stream is at p mod capacity. Capacity is a
 * multiple of micro_batch, so a micro-batch never wraps and its address depends only on its index
 * in the ring. Workers read runs of samples and write each sample to its shuffled place in the
 * window. The consumer gets slices of the buffer, so a sample is copied once.
 *
 *      released           taken              ready                next
 *   -------|-- in use ------|-- may be taken --|-- being filled -----|-- free ------
 *
 * Samples up to `announced` of a stream have been announced to the system for prefetching.
 */
#ifndef TR_DATA_LOADER_INT_H
#define TR_DATA_LOADER_INT_H

#include "device/device.h"
#include "loader.h"
#include "shared.h"
#include <pthread.h>

#define PENDING_WINDOWS 64

/* A window that is being filled. */
typedef struct {
    int64_t end;          /* position after it */
    int64_t samples_left; /* samples not yet in place */
} pending_window_t;

typedef struct {
    int64_t slot;
    int64_t released, taken, ready, next, announced;
    pending_window_t pending[PENDING_WINDOWS]; /* circular, oldest at pending_first */
    int pending_first, pending_count;
    char *field[TR_DATASET_MAX_FIELDS];
    int64_t *sample_id;
    float *weight;
    int64_t *place;    /* [capacity]: the window's permutation, at the window's positions */
    tr_batch_t *batch; /* [capacity / micro_batch] */
    bool *out;         /* [capacity / micro_batch]: taken and not yet released */
} sample_stream_t;

/* Consecutive samples of a window that one worker reads. */
typedef struct {
    sample_stream_t *stream;
    int window;
    int64_t base;         /* offset of the window in the stream's buffer */
    int64_t index, count; /* range within the window, in the order of the sequence */
    int64_t sample;       /* index in the data set of the first one */
} read_request_t;

typedef struct {
    struct tr_loader *loader;
    pthread_t thread;
    char *staging[TR_DATASET_MAX_FIELDS];
} worker_t;

struct tr_loader {
    tr_dataset_t *dataset; /* not owned */
    tr_device_t *device;   /* not owned */
    tr_loader_params_t params;
    /* steps: of an evaluation pass; -1 in training */
    int64_t micro, slots, capacity, window_max, request_max, steps;
    int64_t sample_bytes; /* all fields of one */
    bool shuffled, past_caches;
    /* each sample is read directly to its place, without a staging buffer */
    bool direct[TR_DATASET_MAX_FIELDS];
    int label; /* index of the field of labels; -1: none */
    sample_stream_t *stream;
    worker_t *worker;
    int workers_started;
    char *pinned, *host;
    size_t pinned_bytes, host_bytes;

    pthread_mutex_t lock; /* guards the members below and the counters of the streams */
    pthread_cond_t work, ready;
    bool stop, failed, opening, announcing;
    tr_error_t error;
    sample_stream_t *open; /* the stream whose window is being read; NULL: none */
    int open_window;
    tr_sampler_window_t window; /* that window; only `valid` of its samples exist (evaluation) */
    int64_t valid, given;
    tr_sampler_window_t coming; /* the window that is being announced to the system */
    int64_t coming_valid, coming_given;
    int64_t ahead, ahead_max; /* samples announced but not yet read */
    /* consumer */
    int64_t step, turn, held;
    double stall_sec;
};

/* Offset in the stream's buffer. */
static inline int64_t stream_at(const tr_loader_t *l, int64_t position) {
    return position % l->capacity;
}

/* loader_fill.c: the work of a worker thread. Call without the lock. */
void tr_loader_window_prepare(tr_loader_t *loader, sample_stream_t *stream,
                              const tr_sampler_window_t *window, int64_t valid);
tr_status_t tr_loader_request_read(tr_loader_t *loader, worker_t *worker,
                                   const read_request_t *request);

#endif
