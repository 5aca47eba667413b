/*
 * Collectives on device memory: what the executor needs of other ranks, as one table. src/comm
 * fills it with MPI; a device may bring an engine of its own (NCCL in the CUDA library, which knows
 * no MPI).
 *
 * Collective: every rank of the group makes the same calls in the same order with the same kinds,
 * counts and types. `data` is device memory. A call is ordered after all work already given to
 * `stream`. Between start and the end of the wait nobody else touches the range.
 */
#ifndef TRAINER_COLLECTIVES_H
#define TRAINER_COLLECTIVES_H

#include "device/device.h"
#include <stdatomic.h>

typedef struct tr_collectives tr_collectives_t;
typedef int64_t tr_ticket_t; /* of a started collective, counted from 1 */

/*
 * All of them work in place on a range of `count` elements, the same on every rank of the group. A
 * rank's part is the rank-th of `size` equal parts; REDUCE_SCATTER and ALLGATHER need count to be a
 * multiple of size.
 */
typedef enum {
    TR_ALLREDUCE, /* the sum over ranks */
    /* a rank's own part becomes the sum over ranks; the others hold nothing then */
    TR_REDUCE_SCATTER,
    TR_ALLGATHER /* every part becomes what its rank has there */
} tr_collective_kind_t;

enum { TR_GROUP_ALL = 0 }; /* the group of all ranks; others are numbered by split */

typedef struct {
    tr_collective_kind_t kind;
    int group;
    void *data;
    int64_t count; /* elements of the whole range */
    tr_dtype_t dtype;
} tr_collective_t;

typedef struct {
    /* Starts a collective. TR_ERR_CONFIG where the engine has no sums of the type. */
    tr_status_t (*start)(tr_collectives_t *c, const tr_collective_t *what, tr_stream_t *stream,
                         tr_ticket_t *out);
    /* Work given to `stream` after this sees the result of `ticket` and of all before it. */
    tr_status_t (*wait)(tr_collectives_t *c, tr_ticket_t ticket, tr_stream_t *stream);
    /* Lets started collectives move on; the executor calls it between ops. Cheap where none is
     * pending. */
    tr_status_t (*progress)(tr_collectives_t *c);

    /* In place from `root`. Work given to `stream` after it sees the result. */
    tr_status_t (*broadcast)(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                             int root, tr_stream_t *stream);
    /* Between two ranks, for the fixed reduction tree; likewise. */
    tr_status_t (*send)(tr_collectives_t *c, const void *data, int64_t count, tr_dtype_t dtype,
                        int to, tr_stream_t *stream);
    tr_status_t (*receive)(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                           int from, tr_stream_t *stream);

    /* Collective over all ranks: those with the same color >= 0 form a group, in the order of their
     * ranks; color -1: a rank of none, which gets group -1. */
    tr_status_t (*split)(tr_collectives_t *c, int color, int *out_group);
    /* optional: memory from TR_ALLOC_SHARED_BY_RANKS that collectives will work on. Collective. */
    tr_status_t (*share)(tr_collectives_t *c, void *data, size_t bytes);

    /* An error that came up outside of any call (a peer or the network lost): TR_ERR_RETRY. Cheap;
     * the host calls it while it waits for a device. */
    tr_status_t (*check)(tr_collectives_t *c);
    /* Ends and frees *c within timeout_sec (0: no limit) and sets it to NULL. After an error it
     * leaves what peers would have to take part in. TR_ERR_RETRY: the time is over. Collective. */
    tr_status_t (*close)(tr_collectives_t **c, double timeout_sec);
} tr_collectives_ops_t;

/* How many collectives the stream has entered and completed. The engine gives the memory; a device
 * that runs ahead of the host writes them in the stream's order, so that they tell what it really
 * reached. */
typedef struct {
    _Atomic int64_t entered, completed;
} tr_progress_words_t;

/* Engines embed this as their first member. Only the engine's own functions know more than this. */
struct tr_collectives {
    const tr_collectives_ops_t *ops;
    int rank, size;
    const char *engine;               /* as parallel.engine names it; set by tr_world_collectives */
    bool capturable;                  /* start and wait only enqueue: a capture may hold them */
    const tr_progress_words_t *words; /* NULL: the engine counts by itself */
    /* statistics since the caller last set them to zero, as far as they are known */
    double
        /* time that waits blocked: of the device by events where it has them, else the host's */
        exposed_sec;
    double busy_sec; /* from start to completion, overlap between collectives counted once */
    bool captured;   /* some run inside captured work: their time is not in these sums */
    int64_t bytes, calls;
};

/* -- opening ----------------------------------------------------------------------------------- */

#define TR_COLLECTIVES_ID_BYTES 128

/* What comm lends an engine while it opens. Both functions are collective over the same ranks. */
typedef struct {
    void *self;
    /* the worst status of all ranks, as tr_world_agree */
    tr_status_t (*agree)(void *self, tr_status_t status);
    /* host memory, from `root` */
    tr_status_t (*broadcast)(void *self, void *bytes, size_t count, int root);
} tr_peers_t;

typedef struct {
    tr_device_t *device; /* borrowed; outlives the collectives */
    int rank, size;
    const void *id;     /* [TR_COLLECTIVES_ID_BYTES], of make_id on rank 0 */
    double timeout_sec; /* opening takes no longer; 0: no limit */
    const tr_peers_t *peers;
} tr_collectives_params_t;

/* A device's own engine (tr_device.collectives). */
struct tr_collectives_engine {
    const char *name; /* "nccl" */
    /* optional: why it cannot be used on this machine, or NULL where it can */
    const char *(*unavailable)(tr_device_t *device);
    /* On rank 0: TR_COLLECTIVES_ID_BYTES bytes by which the ranks will find each other. Not
     * collective. */
    tr_status_t (*make_id)(tr_device_t *device, void *out_id);
    /* Collective. Ends with an agreement: it fails on all ranks or on none. */
    tr_status_t (*open)(const tr_collectives_params_t *params, tr_collectives_t **out);
};

#endif
