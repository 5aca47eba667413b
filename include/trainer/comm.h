/*
 * The world: the MPI ranks that train together, and their nodes. An embedding program may have its
 * own communicator.
 *
 * Every function that takes a world is collective unless its comment says otherwise: all ranks call
 * it, in the same order.
 */
#ifndef TRAINER_COMM_H
#define TRAINER_COMM_H

#include "trainer/status.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_world tr_world_t; /* opaque */
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
/* Ends all ranks with MPI_Abort(code). Returns only if MPI is not initialised. Not collective; may
 * be called from any thread. */
void tr_world_abort(tr_world_t *world, int code);

#ifdef __cplusplus
}
#endif

#endif
