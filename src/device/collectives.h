/*
 * Collectives on device memory, as one table of functions for the executor. src/comm implements it
 * with MPI. A device may have its own engine (NCCL in the CUDA library, which does not use MPI).
 *
 * Collective: every rank of the group makes the same calls in the same order with the same kinds,
 * counts and types. `data` is device memory. A call is ordered after all work already enqueued on
 * `stream`. Nothing else may access the range between start and the end of the wait.
 */
#ifndef TR_DEVICE_COLLECTIVES_H
#define TR_DEVICE_COLLECTIVES_H

#include "device/device.h"
#include <stdatomic.h>

typedef struct tr_collectives tr_collectives_t;
typedef int64_t tr_ticket_t; /* of a started collective, counted from 1 */

/*
 * All kinds work in place on a range of `count` elements, with the same count on every rank of the
 * group. Rank r owns the r-th of `size` equal parts; for REDUCE_SCATTER and ALLGATHER, count must
 * be a multiple of size.
 */
typedef enum {
    TR_ALLREDUCE, /* the sum over ranks */
    /* the rank's own part becomes the sum over ranks; the other parts are undefined */
    TR_REDUCE_SCATTER,
    TR_ALLGATHER /* every part becomes that of its owner */
} tr_collective_kind_t;

enum { TR_GROUP_ALL = 0 }; /* the group of all ranks; others are numbered by split */

typedef struct {
    tr_collective_kind_t kind;
    int group;
    void *data;
    int64_t count; /* elements of the whole range */
    tr_dtype_t dtype;
    int bucket; /* its number, for the trace */
} tr_collective_t;

typedef struct {
    /* Starts a collective. TR_ERR_CONFIG if the engine cannot sum the type. */
    tr_status_t (*start)(tr_collectives_t *c, const tr_collective_t *what, tr_stream_t *stream,
                         tr_ticket_t *out);
    /* Makes work enqueued later on `stream` wait for `ticket` and all earlier ones. */
    tr_status_t (*wait)(tr_collectives_t *c, tr_ticket_t ticket, tr_stream_t *stream);
    /* Advances started collectives; called between ops by the executor. Cheap if none is pending.
     * */
    tr_status_t (*progress)(tr_collectives_t *c);

    /* In place from `root`. Work enqueued later on `stream` sees the result. */
    tr_status_t (*broadcast)(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                             int root, tr_stream_t *stream);
    /* Between two ranks, for the fixed reduction tree. Work enqueued later on `stream` sees the
     * result. */
    tr_status_t (*send)(tr_collectives_t *c, const void *data, int64_t count, tr_dtype_t dtype,
                        int to, tr_stream_t *stream);
    tr_status_t (*receive)(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                           int from, tr_stream_t *stream);

    /* Ranks with the same color >= 0 form a group, in the order of their ranks. color -1: no group,
     * *out_group is -1. Collective over all ranks. */
    tr_status_t (*split)(tr_collectives_t *c, int color, int *out_group);
    /* optional: registers memory from TR_ALLOC_SHARED_BY_RANKS for collectives, as much on every
     * rank. Afterwards a range of a collective is in it on all ranks of the group, at the same
     * place, or on none. Collective. */
    tr_status_t (*share)(tr_collectives_t *c, void *data, size_t bytes);

    /*
     * Optional, both or none: times by events of the device.
     *
     * replayed: an executable is launched again that holds the collectives that were started with
     * the tickets first to last, during its capture. It repeats them, and the waits, with new
     * tickets. Their times must be settled before the next launch of the same executable.
     */
    void (*replayed)(tr_collectives_t *c, tr_ticket_t first, tr_ticket_t last);
    /* Adds the times of all collectives up to `ticket`, and of the waits for them, to exposed_sec
     * and busy_sec. Their work must be complete. Does not wait. */
    tr_status_t (*settle)(tr_collectives_t *c, tr_ticket_t ticket);

    /* Checks for an asynchronous error (a peer or the network is lost): TR_ERR_RETRY. Cheap; the
     * host calls it while it waits for a device. */
    tr_status_t (*check)(tr_collectives_t *c);
    /* Closes *c within timeout_sec (0: no limit) and sets it to NULL. After an error it skips the
     * steps that need peers. TR_ERR_RETRY on timeout. Collective. */
    tr_status_t (*close)(tr_collectives_t **c, double timeout_sec);
} tr_collectives_ops_t;

/* The number of collectives that the stream has entered and completed, in memory of the engine. A
 * device that runs asynchronously writes them in stream order, so they show its actual progress. */
typedef struct {
    _Atomic int64_t entered, completed;
} tr_progress_words_t;

/* Functions of src/comm over the ranks of an engine. Both are collective. */
typedef struct {
    void *self;
    /* as tr_world_agree */
    tr_status_t (*agree)(void *self, tr_status_t status);
    /* of host memory */
    tr_status_t (*broadcast)(void *self, void *bytes, size_t count, int root);
} tr_peers_t;

/* While a trace is recorded: `take` gets the begin and the end of each collective that is settled,
 * in seconds since `origin`, a timed event of the device. */
typedef struct {
    tr_event_t *origin; /* NULL: none is recorded */
    void (*take)(void *self, tr_ticket_t ticket, double begin_sec, double end_sec);
    void *self;
} tr_collectives_trace_t;

/* Engines embed this as their first member. */
struct tr_collectives {
    const tr_collectives_ops_t *ops;
    int rank, size;
    const char *engine;               /* value of parallel.engine; set by tr_world_collectives */
    tr_peers_t peers;                 /* set by tr_world_collectives */
    bool capturable;                  /* start and wait only enqueue, and can be captured */
    /* of its library, for the log: what it cannot do, and the remedy; "": nothing. The same on all
     * ranks, but for the rank that it names */
    char advice[512];
    const tr_progress_words_t *words; /* NULL: the engine counts by itself */
    /* statistics since the caller last set them to zero, if known */
    /* time blocked in waits: of the device, from events, if the engine settles; else of the host */
    double exposed_sec;
    double busy_sec;      /* from start to completion; overlapping collectives count once */
    bool unmeasured;      /* some were not measured: the sums are too small */
    tr_ticket_t started;  /* the last ticket; only of engines that settle */
    int64_t bytes, calls; /* each captured collective counts once */
    tr_collectives_trace_t trace; /* only of engines that settle; set by device_trace.c */
};

/* -- opening ----------------------------------------------------------------------------------- */

#define TR_COLLECTIVES_ID_BYTES 128

/* Whether the engine registers memory that ranks share (parallel.windows). auto: not yet. */
typedef enum { TR_WINDOWS_AUTO, TR_WINDOWS_ON, TR_WINDOWS_OFF } tr_windows_t;

typedef struct {
    tr_device_t *device; /* borrowed; outlives the collectives */
    int rank, size, nodes;
    const void *id;     /* [TR_COLLECTIVES_ID_BYTES], from make_id on rank 0 */
    tr_windows_t windows;
    double timeout_sec; /* of opening; 0: no limit */
    const tr_peers_t *peers;
} tr_collectives_params_t;

/* A device's own engine (tr_device.collectives). */
struct tr_collectives_engine {
    const char *name; /* "nccl" */
    /* optional: why it cannot be used on this machine; NULL if it can */
    const char *(*unavailable)(tr_device_t *device);
    /* On rank 0: TR_COLLECTIVES_ID_BYTES bytes with which the ranks connect. Not collective. */
    tr_status_t (*make_id)(tr_device_t *device, void *out_id);
    /* Fails on all ranks or on none. Collective. */
    tr_status_t (*open)(const tr_collectives_params_t *params, tr_collectives_t **out);
};

#endif
