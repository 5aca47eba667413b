/* The MPI engine of the collectives. Private to src/comm: collectives.c chooses an engine,
 * reduce_mpi.c has the collectives of groups, reduce_shared.c those in memory that the ranks of a
 * node share, transfer_mpi.c broadcast, send and receive. */
#ifndef TR_COMM_ENGINE_INT_H
#define TR_COMM_ENGINE_INT_H

#include "device/collectives.h"
#include "shared_int.h"
#include "world_int.h"

/* All-reduces are split into pieces of this size. Measured with Open MPI 4.1.4 and two ranks on one
 * node: 25 MiB in pieces of 1 MiB take less than half the time of one message. */
#define TR_PIECE_BYTES ((int64_t)1 << 20)
#define TR_GROUPS      16
#define TR_BLOCKS      8    /* of shared memory */
#define TR_SLOTS       1024 /* pieces in flight; starting more waits for the oldest */
#define TR_WINDOW      8    /* poll: concurrent pieces in MPI; more would overflow the CPU caches */

typedef struct tr_engine tr_engine_t;

/* The ranks of this node in a group that reduces in shared memory. */
typedef struct {
    int count, mine;
    int *place; /* [count] their local ranks */
    MPI_Comm
        across; /* the ranks of the same `mine` on all nodes; MPI_COMM_NULL: there is one node */
    int words;  /* index of the group's words, the same on all of its ranks */
    uint32_t started;
} tr_shared_group_t;

typedef struct {
    MPI_Comm comm;
    int rank, size;
    tr_shared_group_t *shared; /* NULL: the group uses MPI */
} tr_group_t;

/* A word of a rank that another one waits for. */
typedef struct {
    _Atomic uint32_t *word, *sleepers;
    uint32_t seen;
} tr_shared_wait_t;

/* A started collective, or one piece of an all-reduce. */
typedef struct {
    tr_engine_t *engine;
    MPI_Comm comm;
    int rank, size; /* of the group */
    tr_collective_kind_t kind;
    void *data; /* on the device */
    MPI_Datatype type;
    int64_t count, bytes;
    void *staging; /* pinned, reused by the slot; NULL if MPI reads device memory */
    int64_t staging_bytes;
    tr_event_t *ready;   /* the device has written the data; NULL if the device is synchronous */
    int64_t ticket;
    int64_t job;         /* thread: number of the job; 0: none yet */
    MPI_Request request; /* poll */
    double begin_sec, end_sec;
    tr_shared_group_t *shared; /* NULL: reduced by MPI; else `data` is in `block` */
    const tr_shared_map_t *block;
    tr_dtype_t dtype;
    uint32_t number;        /* of the group's collectives in shared memory */
    bool summed, finished;  /* this rank's part: its sums, and all that it does for the others */
    tr_shared_wait_t lacks; /* of the last call that could not go on */
    int bucket;          /* for the trace */
    int64_t whole_bytes; /* of the last piece: of all pieces; of others: 0 */
} tr_reduction_t;

struct tr_engine {
    tr_collectives_t base;
    tr_world_t *world;
    /* a duplicate, so that polling is independent of the order of the world's calls */
    MPI_Comm comm;
    tr_group_t group[TR_GROUPS]; /* [TR_GROUP_ALL] is comm */
    int group_count;
    tr_worker_t *worker; /* NULL when polling */
    tr_device_t *device;
    double timeout_sec;
    bool staged;                    /* the host cannot see device memory */
    tr_reduction_t slots[TR_SLOTS]; /* ticket t is at (t - 1 - origin) % TR_SLOTS */
    int64_t origin;                 /* the last ticket when nothing was in flight */
    int64_t started, retired;       /* last ticket started; last ticket waited for */
    int64_t begun, tested;          /* poll: last ticket submitted to MPI; complete up to here */
    tr_event_t *returned;           /* the last copy back to the device; NULL before the first */
    double busy_until_sec;
    double trace_begin_sec; /* of the collective whose pieces are being retired; 0: none */
    void *point;            /* staging of send, receive and broadcast */
    int64_t point_bytes;

    tr_collectives_ops_t ops; /* base.ops */
    bool shares;              /* ranges in `block` are reduced in shared memory */
    tr_shared_map_t
        words; /* a page of tr_shared_words_t of every rank of the node; of NULL: none */
    void *own_words;
    tr_shared_map_t block[TR_BLOCKS];
    int block_count, splits;
    /* thread: collectives in shared memory run in the order of their tickets, by any thread */
    pthread_mutex_t order;
    int64_t ran;           /* guarded by `order`: the last ticket */
    int64_t held;          /* thread: the last ticket whose job is not submitted; 0: none */
    _Atomic bool given_up; /* a wait was too long: other threads end theirs, too */
};

/* The MPI engine, with a communication thread or polling, by settings and spare cores. Collective.
 * */
tr_status_t tr_engine_open(tr_world_t *world, tr_device_t *device,
                           const tr_parallel_settings_t *settings, tr_collectives_t **out);
/* Enlarges pinned *memory to at least `bytes`; its contents are lost. */
tr_status_t tr_engine_grow(tr_engine_t *e, int64_t bytes, void **memory, int64_t *held);
/* Enqueues the copy of host bytes to the device, if one is needed. */
tr_status_t tr_engine_to_device(tr_engine_t *e, void *data, const void *host, int64_t bytes,
                                tr_stream_t *stream);
/* Submits all started pieces to MPI, and does this rank's part of those in shared memory, on which
 * other ranks wait. Called before this rank blocks in a call that they may reach later. */
tr_status_t tr_engine_begin_all(tr_engine_t *e);

/* -- shared memory (reduce_shared.c) ----------------------------------------------------------- */

/* Decides with all ranks whether they reduce in shared memory, and sets e->shares and the group of all
 * ranks. Logs why not. TR_ERR_RETRY: a rank is lost. Collective. */
tr_status_t tr_shared_open(tr_engine_t *e);
/* The ops function `share`. */
tr_status_t tr_shared_add_block(tr_collectives_t *c, void *data, size_t bytes);
/* Sets group->shared if all ranks of the group are on one node. Runs MPI calls: a part of a job.
 * split: how many groups all ranks have made. Collective over the group. */
tr_status_t tr_shared_join(tr_engine_t *e, int split, tr_group_t *group);
void tr_shared_close(tr_engine_t *e);
/* The block that holds the range; NULL: none. */
const tr_shared_map_t *tr_shared_find(const tr_engine_t *e, const void *data, int64_t bytes);
/* `data` of the next rank of this node; NULL where the ranks do not share it. */
const void *tr_shared_next(const tr_collectives_t *c, const void *data, int64_t bytes);
/* Tells the other ranks that r is started: they may read and write its range. */
void tr_shared_arrive(tr_reduction_t *r);
/* Does this rank's part of r if the others have started it, and if it needs no MPI; else r->lacks is
 * set. Between nodes, `nonblocking` tells how MPI is called. Does not wait otherwise. */
tr_status_t tr_shared_begin(tr_reduction_t *r, bool nonblocking);
/* After r->summed: whether all ranks have done their parts. Does not wait. */
tr_status_t tr_shared_test(tr_reduction_t *r, bool *out_complete);
/* Waits a short time for what r lacks. */
void tr_shared_pause(const tr_reduction_t *r);
/* Completes r. timeout_sec: 0: none. */
tr_status_t tr_shared_run(tr_reduction_t *r, double timeout_sec);

tr_status_t tr_engine_broadcast(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                                int root, tr_stream_t *stream);
tr_status_t tr_engine_send(tr_collectives_t *c, const void *data, int64_t count, tr_dtype_t dtype,
                           int to, tr_stream_t *stream);
tr_status_t tr_engine_receive(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                              int from, tr_stream_t *stream);

#endif
