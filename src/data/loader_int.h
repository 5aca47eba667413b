/*
 * The loader's parts. A lane (one for each of this rank's slots) has a circular buffer of
 * `capacity` samples in pinned memory: the sample at position p of the lane's stream stands at p
 * mod capacity. Capacity is a multiple of micro_batch, so a micro-batch never wraps and its address
 * depends only on its index in the ring. Workers read runs of samples and put each where its
 * window's shuffle wants it; the consumer gets slices of the buffer, so a sample is copied once.
 *
 *      released           taken              ready                next
 *   -------|-- in use ------|-- may be taken --|-- being filled -----|-- free ------
 *
 * What will be read next is announced to the system before, up to `announced` of a lane.
 */
#ifndef LOADER_INT_H
#define LOADER_INT_H

#include "device/device.h"
#include "shared.h"
#include <pthread.h>

#define LANE_FLIGHTS 64

/* A window that is being filled. */
typedef struct {
    int64_t end;     /* position after it */
    int64_t pending; /* samples not yet in place */
} flight_t;

typedef struct {
    int64_t slot;
    int64_t released, taken, ready, next, announced;
    flight_t flight[LANE_FLIGHTS]; /* circular, oldest at flight_first */
    int flight_first, flight_count;
    char *field[TR_DATASET_MAX_FIELDS];
    int64_t *sample_id;
    float *weight;
    int64_t *place;    /* [capacity]: the window's permutation, at the window's positions */
    tr_batch_t *batch; /* [capacity / micro_batch] */
    bool *out;         /* [capacity / micro_batch]: handed out and not yet released */
} lane_t;

/* Consecutive samples of a window that one worker reads. */
typedef struct {
    lane_t *lane;
    int flight;
    int64_t base;         /* offset of the window in the lane's buffer */
    int64_t index, count; /* which of the window's samples, in the order of the sequence */
    int64_t sample;       /* the first one's index in the data set */
} piece_t;

typedef struct {
    struct tr_loader *loader;
    pthread_t thread;
    char *bounce[TR_DATASET_MAX_FIELDS];
} worker_t;

struct tr_loader {
    tr_dataset_t *dataset; /* not owned */
    tr_device_t *device;   /* not owned */
    tr_loader_params_t params;
    /* steps: of an evaluation pass, else -1 */
    int64_t micro, slots, capacity, window_max, piece_max, steps;
    bool shuffled, past_caches;
    /* read sample by sample into place, without a bounce buffer */
    bool direct[TR_DATASET_MAX_FIELDS];
    int label; /* the field of class numbers; -1: none */
    lane_t *lane;
    worker_t *worker;
    int workers_started;
    char *pinned, *host;
    size_t pinned_bytes, host_bytes;

    pthread_mutex_t lock; /* guards all below and the lanes' counters */
    pthread_cond_t work, ready;
    bool stop, failed, opening, announcing;
    tr_error_t error;
    lane_t *open; /* the lane whose window is being handed out, NULL: none */
    int open_flight;
    tr_order_window_t window; /* that window; `valid` of its samples exist (evaluation pads) */
    int64_t valid, given;
    tr_order_window_t coming; /* the window that is being announced to the system, likewise */
    int64_t coming_valid, coming_given;
    int64_t ahead, ahead_max; /* samples that were announced and not yet handed out */
    /* consumer */
    int64_t step, turn, held;
    double stall_sec;
};

/* Offset in the lane's buffer. */
static inline int64_t lane_at(const tr_loader_t *l, int64_t position) {
    return position % l->capacity;
}

/* loader_fill.c: what a worker does. Called without the lock. */
void tr_loader_window_prepare(tr_loader_t *loader, lane_t *lane, const tr_order_window_t *window,
                              int64_t valid);
tr_status_t tr_loader_piece_read(tr_loader_t *loader, worker_t *worker, const piece_t *piece);

#endif
