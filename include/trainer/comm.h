/*
 * The world: MPI's ranks, their nodes, and what all of them do together. The only header that
 * reaches other ranks.
 *
 * Every function that takes a world is collective unless it says otherwise: all ranks call it, in
 * the same order. After tr_world_collectives one thread of a rank makes all MPI calls; the
 * functions here hand their work to it.
 */
#ifndef TRAINER_COMM_H
#define TRAINER_COMM_H

#include "trainer/config.h"

typedef struct tr_device tr_device_t;           /* src/device/device.h */
typedef struct tr_collectives tr_collectives_t; /* src/device/collectives.h */

/* parallel.engine, in the order of its choices. NCCL: the device's own engine. */
typedef enum {
    TR_ENGINE_AUTO,
    TR_ENGINE_NCCL,
    TR_ENGINE_THREAD,
    TR_ENGINE_POLL
} tr_engine_choice_t;

typedef struct {
    int engine;                   /* tr_engine_choice_t */
    bool reproducible;            /* parallel.reproducible */
    double timeout;               /* parallel.timeout, seconds */
    int64_t bucket_first, bucket; /* bytes */
    bool overlap;
} tr_parallel_settings_t;
extern const tr_config_table_t tr_parallel_config; /* parallel.* */

typedef struct tr_world tr_world_t;
/* Read-only facts. */
typedef struct {
    int rank, size;
    int local_rank, local_size; /* among the ranks of this node */
    int node, nodes;            /* nodes counted by their lowest rank */
    char host[64];
    char mpi_version[128]; /* library and version, one line */
    /* cores this rank may run on, or its part of those whose time a control group grants, where
     * these are fewer */
    int cores;
    /* local ranks that may run on the same cores; threads = cores / cores_shared_by */
    int cores_shared_by;
    bool more_than_cores; /* more ranks than cores on some node */
    double open_sec;      /* that tr_world_open took */
} tr_world_info_t;

/* MPI_Init_thread (unless done), a duplicated communicator with errors returned; how those of
 * others are handled stays as it is. comm: an MPI_Comm * of the embedding program, or NULL for
 * MPI_COMM_WORLD. TR_ERR_CONFIG where srun started N singletons (SLURM says more tasks than MPI
 * sees). */
tr_status_t tr_world_open(const void *comm, tr_world_t **out);
/* Finalizes MPI if open initialised it, unless a peer was lost (a call of this header or a wait
 * gave TR_ERR_RETRY by itself: time over, or MPI's error). From then on all fail at once, and the
 * process has only to end, by tr_world_abort or by its exit. */
void tr_world_close(tr_world_t **world);
const tr_world_info_t *tr_world_info(const tr_world_t *world); /* not collective */

/* The worst status of all ranks; where another rank failed, this rank's error record says "rank N
 * (host): message". The record's voice is that of the failing rank, of the lowest among equals; it
 * keeps it where its error is agreed on again. */
tr_status_t tr_world_agree(tr_world_t *world, tr_status_t status);
tr_status_t tr_world_barrier(tr_world_t *world);
/* host memory */
tr_status_t tr_world_broadcast(tr_world_t *world, void *bytes, size_t count, int root);
tr_status_t tr_world_broadcast_text(tr_world_t *world,
                                    char **text /* tr_free; in at root, out elsewhere */, int root);
typedef enum { TR_REDUCE_SUM, TR_REDUCE_MIN, TR_REDUCE_MAX } tr_reduce_t;
/* host memory, in place */
tr_status_t tr_world_allreduce(tr_world_t *world, double *values, int count, tr_reduce_t op);
tr_status_t tr_world_allreduce_int(tr_world_t *world, int64_t *values, int count, tr_reduce_t op);
/* `bytes` of every rank to all, in rank order. */
tr_status_t tr_world_allgather(tr_world_t *world, const void *mine, size_t bytes, void *all);
/* TR_ERR_INTERNAL, naming `what` and the ranks, where `bytes` are not the same on all ranks. */
tr_status_t tr_world_same(tr_world_t *world, const char *what, const void *bytes, size_t count);

/* This process's rank as its launcher says it, before MPI is up; 0 without a launcher. Not
 * collective. */
int tr_launch_rank(void);
/* How many tasks the launcher says it started with this process; 0 where it says nothing. Not
 * collective. */
int64_t tr_launch_tasks(void);

/* How srun lets several tasks find each other: by PMIx (or no srun), by PMI, which Open MPI seldom
 * supports, or not at all. Not collective. */
typedef enum { TR_LAUNCH_ANY, TR_LAUNCH_PMI, TR_LAUNCH_NONE } tr_launch_link_t;
tr_launch_link_t tr_launch_link(void);
/* TR_ERR_CONFIG: MPI cannot connect the tasks of srun, and what to do. Not collective. */
tr_status_t tr_launch_fail(void);

/*
 * Ends all ranks with MPI_Abort(code); returns only if MPI is not up. Not collective; any thread.
 */
void tr_world_abort(tr_world_t *world, int code);

/*
 * Collectives on `device` memory, by parallel.engine: `nccl` is the device's own engine, `thread`
 * and `poll` are MPI with a communication thread or without; `auto` takes the first that all ranks
 * can use. MPI is staged through pinned host memory where the device is not host_visible. device is
 * borrowed. Closed before the world.
 */
tr_status_t tr_world_collectives(tr_world_t *world, tr_device_t *device,
                                 const tr_parallel_settings_t *settings, tr_collectives_t **out);
/* The lowest rank before this one, on its node, that has the same device, by UUID or else bus id;
 * -1: none. */
tr_status_t tr_world_device_sharer(tr_world_t *world, const tr_device_t *device, int *out_rank);
void tr_world_collectives_close(tr_world_t *world, tr_collectives_t **collectives);

#endif
