/*
 * The world: the MPI ranks, their nodes, and the operations they perform together. No other header
 * communicates between ranks.
 *
 * Every function that takes a world is collective unless its comment says otherwise: all ranks call
 * it, in the same order. After tr_world_collectives, one thread per rank makes all MPI calls; the
 * functions below pass their work to it.
 */
#ifndef TRAINER_COMM_H
#define TRAINER_COMM_H

#include "trainer/config.h"

typedef struct tr_device tr_device_t;           /* src/device/device.h */
typedef struct tr_collectives tr_collectives_t; /* src/device/collectives.h */

/* Values of parallel.engine, in the order of its choices. NCCL: the device's own engine. */
typedef enum {
    TR_ENGINE_AUTO,
    TR_ENGINE_NCCL,
    TR_ENGINE_THREAD,
    TR_ENGINE_POLL
} tr_engine_choice_t;

#define TR_PARALLEL_TIMEOUT     "300s" /* default of parallel.timeout; its range in seconds: */
#define TR_PARALLEL_TIMEOUT_MIN 0.05
#define TR_PARALLEL_TIMEOUT_MAX 86400

typedef struct {
    int engine;                   /* tr_engine_choice_t */
    bool reproducible;            /* parallel.reproducible */
    double timeout;               /* parallel.timeout, seconds */
    int64_t bucket_first, bucket; /* bytes */
    bool overlap;
} tr_parallel_settings_t;
extern const tr_config_table_t tr_parallel_config; /* parallel.* */

typedef struct tr_world tr_world_t;
/* Read-only. */
typedef struct {
    int rank, size;
    int local_rank, local_size; /* among the ranks of this node */
    int node, nodes;            /* nodes are numbered in the order of their lowest rank */
    char host[64];
    char mpi_version[128]; /* library and version, one line */
    /* cores this rank may run on, or its share of the CPU limit of its control group if that is
     * smaller */
    int cores;
    /* local ranks that may run on the same cores; threads = cores / cores_shared_by */
    int cores_shared_by;
    bool more_than_cores; /* some node has more ranks than cores */
    double open_sec;      /* duration of tr_world_open */
} tr_world_info_t;

/* Calls MPI_Init_thread unless MPI is initialised, and duplicates the communicator. The duplicate
 * returns errors; the error handlers of other communicators are unchanged. comm: an MPI_Comm * of
 * the embedding program, or NULL for MPI_COMM_WORLD. TR_ERR_CONFIG if srun started N singletons
 * (SLURM reports more tasks than MPI). */
tr_status_t tr_world_open(const void *comm, tr_world_t **out);
/* Finalizes MPI if tr_world_open initialised it. It does not after a peer was lost, that is, after
 * a call of this header or a wait returned TR_ERR_RETRY because of a timeout or an MPI error. After
 * that every call fails at once, and the process must end, by tr_world_abort or by exiting. */
void tr_world_close(tr_world_t **world);
const tr_world_info_t *tr_world_info(const tr_world_t *world); /* not collective */

/* Returns the worst status of all ranks. If another rank failed, this rank's error record becomes
 * "rank N (host): message". The record's origin is the failing rank, the lowest of several with
 * the same status; agreeing on the same error again keeps it. */
tr_status_t tr_world_agree(tr_world_t *world, tr_status_t status);
tr_status_t tr_world_barrier(tr_world_t *world);
/* Host memory. */
tr_status_t tr_world_broadcast(tr_world_t *world, void *bytes, size_t count, int root);
tr_status_t tr_world_broadcast_text(tr_world_t *world,
                                    char **text /* tr_free; in at root, out elsewhere */, int root);
typedef enum { TR_REDUCE_SUM, TR_REDUCE_MIN, TR_REDUCE_MAX } tr_reduce_t;
/* Host memory, in place. */
tr_status_t tr_world_allreduce(tr_world_t *world, double *values, int count, tr_reduce_t op);
tr_status_t tr_world_allreduce_int(tr_world_t *world, int64_t *values, int count, tr_reduce_t op);
/* Gathers `bytes` bytes from each rank on all ranks, in rank order. Host memory. */
tr_status_t tr_world_allgather(tr_world_t *world, const void *mine, size_t bytes, void *all);
/* TR_ERR_INTERNAL with `what` and the ranks if `bytes` differ between ranks. */
tr_status_t tr_world_same(tr_world_t *world, const char *what, const void *bytes, size_t count);

/* The rank of this process from the launcher's environment, before MPI is initialised; 0 without a
 * launcher. Not collective. */
int tr_launch_rank(void);
/* The number of tasks from the launcher's environment; 0 if not set. Not collective. */
int64_t tr_launch_tasks(void);

/* How the tasks of srun connect: ANY: PMIx, or no srun; PMI: PMI-1 or PMI-2, which Open MPI seldom
 * supports; NONE: no way. Not collective. */
typedef enum { TR_LAUNCH_ANY, TR_LAUNCH_PMI, TR_LAUNCH_NONE } tr_launch_link_t;
tr_launch_link_t tr_launch_link(void);
/* Records TR_ERR_CONFIG: MPI cannot connect the tasks of srun, with the remedy. Not collective. */
tr_status_t tr_launch_fail(void);

/* Ends all ranks with MPI_Abort(code). Returns only if MPI is not initialised. Not collective; may
 * be called from any thread. */
void tr_world_abort(tr_world_t *world, int code);

/*
 * Collectives on the memory of `device`. parallel.engine selects the engine: `nccl` is the device's
 * own; `thread` and `poll` use MPI with and without a communication thread; `auto` is the first
 * that all ranks can use. If the device is not host_visible, MPI is staged through pinned host
 * memory. device is borrowed. Close the collectives before the world.
 */
tr_status_t tr_world_collectives(tr_world_t *world, tr_device_t *device,
                                 const tr_parallel_settings_t *settings, tr_collectives_t **out);
/* The lowest rank below this one on the same node with the same device, compared by UUID or else by
 * bus id; -1 if there is none. */
tr_status_t tr_world_device_sharer(tr_world_t *world, const tr_device_t *device, int *out_rank);
void tr_world_collectives_close(tr_world_t *world, tr_collectives_t **collectives);

#endif
