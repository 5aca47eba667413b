/* The MPI engine of the collectives. Private to src/comm: collectives.c chooses an engine,
 * reduce_mpi.c has the all-reduce, transfer_mpi.c broadcast, send and receive. */
#ifndef TR_COMM_ENGINE_INT_H
#define TR_COMM_ENGINE_INT_H

#include "device/collectives.h"
#include "world_int.h"

/* All-reduces are split into pieces of this size. Measured with Open MPI 4.1.4 and two ranks on one
 * node: 25 MiB in pieces of 1 MiB take less than half the time of one message. */
#define TR_PIECE_BYTES ((int64_t)1 << 20)
#define TR_GROUPS      16
#define TR_SLOTS       1024 /* pieces in flight; starting more waits for the oldest */
#define TR_WINDOW      8    /* poll: concurrent pieces in MPI; more would overflow the CPU caches */

typedef struct tr_engine tr_engine_t;

typedef struct {
    MPI_Comm comm;
    int rank, size;
} tr_group_t;

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
    int64_t job;         /* thread: number of the job */
    MPI_Request request; /* poll */
    double begin_sec, end_sec;
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
/* Submits all started pieces to MPI. Called before this rank blocks in a call that other ranks may
 * reach later. */
tr_status_t tr_engine_begin_all(tr_engine_t *e);

tr_status_t tr_engine_broadcast(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                                int root, tr_stream_t *stream);
tr_status_t tr_engine_send(tr_collectives_t *c, const void *data, int64_t count, tr_dtype_t dtype,
                           int to, tr_stream_t *stream);
tr_status_t tr_engine_receive(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                              int from, tr_stream_t *stream);

#endif
