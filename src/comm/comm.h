/*
 * What the ranks of a world do together. No other header communicates between ranks.
 *
 * Every function that takes a world is collective unless its comment says otherwise: all ranks call
 * it, in the same order. After tr_world_collectives, one thread per rank makes all MPI calls; the
 * functions below pass their work to it.
 */
#ifndef TR_COMM_COMM_H
#define TR_COMM_COMM_H

#include "config/config.h"
#include "device/collectives.h"
#include "trainer/comm.h"
#include <sched.h>

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
    int zero;                     /* stage of ZeRO: 0: none, 1 or 2 */
    double timeout;               /* parallel.timeout, seconds */
    int64_t bucket_first, bucket; /* bytes */
    bool overlap;
    int windows;   /* tr_windows_t */
    int64_t check; /* steps between comparisons of the replicas; 0: never */
} tr_parallel_settings_t;
extern const tr_config_table_t tr_parallel_config; /* parallel.* */

/* Opens a world of one rank without MPI: for a process that no launcher started. Its collectives do
 * nothing. MPI starts in 0.2 s, listens for other ranks, and makes a folder for temporary files. */
tr_status_t tr_world_open_alone(tr_world_t **out);
/* The cores that each rank of this node could run on when the world was opened, in the order of
 * their local ranks. Not collective. */
const cpu_set_t *tr_world_node_cores(const tr_world_t *world);

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
/* tr_clock_sec of rank 0 is that of this rank plus offset_sec, within error_sec: half the shortest
 * of some round trips. */
typedef struct {
    double at_sec; /* of this rank's clock */
    double offset_sec, error_sec;
} tr_clock_offset_t;
tr_status_t tr_world_clock_offset(tr_world_t *world, tr_clock_offset_t *out);
/* TR_ERR_INTERNAL with `what` and the ranks if `bytes` differ between ranks. */
tr_status_t tr_world_same(tr_world_t *world, const char *what, const void *bytes, size_t count);

/* Whether a launcher may have started this process as a rank; true if in doubt. Not collective. */
bool tr_launch_exists(void);
/* Removes from the environment what makes this process a rank of a launcher. Not collective. */
void tr_launch_leave(void);
/* The rank of this process from the launcher's environment, before MPI is initialised; 0 without a
 * launcher. Not collective. */
int tr_launch_rank(void);
/* Whether Open MPI's mpirun, and not srun, started this process. Not collective. */
bool tr_launch_is_mpirun(void);
/* Whether this process is a task of an srun step, and not a rank that mpirun started in one. Not
 * collective. */
bool tr_launch_is_srun(void);
/* The number of tasks from the launcher's environment; 0 if not set. Not collective. */
int64_t tr_launch_tasks(void);

/* How the tasks of srun connect: ANY: PMIx, or no srun; PMI: PMI-1 or PMI-2, which Open MPI seldom
 * supports; NONE: no way. Not collective. */
typedef enum { TR_LAUNCH_ANY, TR_LAUNCH_PMI, TR_LAUNCH_NONE } tr_launch_link_t;
tr_launch_link_t tr_launch_link(void);
/* Records TR_ERR_CONFIG: MPI cannot connect the tasks of srun, with the remedy. Not collective. */
tr_status_t tr_launch_fail(void);

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
