/* Private: collectives.c chooses an engine; MPI's sums in reduce_mpi.c and moves in transfer_mpi.c.
 * */
#ifndef TRAINER_ENGINE_INT_H
#define TRAINER_ENGINE_INT_H

#include "device/collectives.h"
#include "world_int.h"

/* Measured with Open MPI 4.1.4, two ranks of one node: 25 MiB in pieces of 1 MiB take less than
 * half the time of one message. */
#define TR_PIECE_BYTES ((int64_t)1 << 20)
#define TR_GROUPS      16
#define TR_SLOTS       1024 /* pieces in flight; a start beyond them waits for the oldest */
#define TR_WINDOW                                                                                  \
    8 /* poll: concurrent pieces in MPI; more would evict each other from the caches */

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
    void *staging; /* pinned, kept for the slot's next piece; NULL where MPI reads device memory */
    int64_t staging_bytes;
    tr_event_t *ready;   /* the device has finished its part; NULL if the device is synchronous */
    int64_t job;         /* thread: its number */
    MPI_Request request; /* poll */
    double begin_sec, end_sec;
} tr_reduction_t;

struct tr_engine {
    tr_collectives_t base;
    tr_world_t *world;
    /* its own: when polling, the order relative to the world's calls does not matter */
    MPI_Comm comm;
    tr_group_t group[TR_GROUPS]; /* [TR_GROUP_ALL] is comm */
    int group_count;
    tr_worker_t *worker; /* NULL when polling */
    tr_device_t *device;
    double timeout_sec;
    bool staged;                    /* the host cannot see device memory */
    tr_reduction_t slots[TR_SLOTS]; /* ticket t is at (t - 1 - origin) % TR_SLOTS */
    int64_t origin;                 /* the last ticket before which nothing was in flight */
    int64_t started, retired;       /* tickets: given out; waited for */
    /* poll: with MPI, in the order of tickets; complete up to here */
    int64_t begun, tested;
    tr_event_t *returned; /* the last copy back to the device; NULL before the first */
    double busy_until_sec;
    void *point; /* staging of send, receive and broadcast */
    int64_t point_bytes;
};

/* MPI's engine, a thread of its own or polling, by settings and spare cores. Collective. */
tr_status_t tr_engine_open(tr_world_t *world, tr_device_t *device,
                           const tr_parallel_settings_t *settings, tr_collectives_t **out);
/* Enlarges pinned *memory to at least `bytes`; its contents are lost. */
tr_status_t tr_engine_grow(tr_engine_t *e, int64_t bytes, void **memory, int64_t *held);
/* Enqueues the copy of host bytes to the device, where one is needed. */
tr_status_t tr_engine_to_device(tr_engine_t *e, void *data, const void *host, int64_t bytes,
                                tr_stream_t *stream);
/* Submits everything that was started to MPI, before this rank blocks in a call that others may
 * reach later. */
tr_status_t tr_engine_begin_all(tr_engine_t *e);

tr_status_t tr_engine_broadcast(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                                int root, tr_stream_t *stream);
tr_status_t tr_engine_send(tr_collectives_t *c, const void *data, int64_t count, tr_dtype_t dtype,
                           int to, tr_stream_t *stream);
tr_status_t tr_engine_receive(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                              int from, tr_stream_t *stream);

#endif
