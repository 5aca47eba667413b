/* The world and how MPI calls are made. Private to src/comm. */
#ifndef TR_COMM_WORLD_INT_H
#define TR_COMM_WORLD_INT_H

#include "heartbeat.h"
#include "comm/comm.h"
#include <mpi.h>
#include <sched.h>

typedef struct tr_worker tr_worker_t;
typedef struct tr_watchdog tr_watchdog_t;

struct tr_world {
    MPI_Comm comm; /* MPI_COMM_NULL: MPI is not initialised, and this is the only rank */
    bool owns_mpi; /* open initialised MPI, so close finalizes it */
    /* MPI may be called from a thread other than the one that initialised it */
    bool any_thread;
    tr_worker_t *worker; /* communication thread, not owned; NULL: callers make the MPI calls */
    double timeout_sec;  /* of a call passed to the worker; 0: none */
    /* called with `engine` before each collective call of the world; NULL: none */
    tr_status_t (*before_run)(void *engine);
    void *engine;
    /* a peer or the network is lost: calls fail at once instead of waiting forever */
    bool lost;
    tr_world_info_t info;
    cpu_set_t *node_cores; /* [info.local_size] */
    tr_heartbeat_t heartbeat;
    _Atomic(tr_watchdog_t *) watchdog; /* NULL: none; also read by the watchdog thread */
};

/* -- errors (mpi_error.c) ---------------------------------------------------------------------- */

/* Converts the result of an MPI call to a status with MPI's text: TR_ERR_INTERNAL for bad
 * arguments, TR_ERR_RETRY for a lost peer or network. */
tr_status_t tr_mpi_check(int code, const char *call, const char *file, int line, const char *func);
/* Records that communication `number` did not complete within parallel.timeout. */
tr_status_t tr_mpi_timed_out(double timeout_sec, int64_t number);
#define TR_MPI(call, args)                                                                         \
    do {                                                                                           \
        int tr_mpi_code_ = call args;                                                              \
        if (tr_mpi_code_ != MPI_SUCCESS)                                                           \
            return tr_mpi_check(tr_mpi_code_, #call, __FILE__, __LINE__, __func__);                \
    } while (0)

/* Frees a communicator, if there is one. */
void tr_mpi_free(MPI_Comm *comm);

/* -- the communication thread (worker.c) ------------------------------------------------------- */

/* A job: MPI calls on `comm`. A world without MPI does not run it: in a world of one rank, it must
 * change nothing of what it is given. */
typedef tr_status_t (*tr_mpi_job_fn)(MPI_Comm comm, void *arg);

/* Starts the communication thread. `comm` is borrowed. */
tr_status_t tr_worker_start(MPI_Comm comm, tr_worker_t **out);
/* Finishes the submitted jobs and ends the thread. A thread blocked in a call to a lost peer is
 * left running. */
void tr_worker_stop(tr_worker_t **worker);
/*
 * Queues `job(comm, arg)`. Jobs run in order; arg must stay valid until the job is done. Numbers
 * count from 1. After a job has failed, later ones are not run, and every wait returns the first
 * failure.
 */
tr_status_t tr_worker_submit(tr_worker_t *worker, tr_mpi_job_fn job, void *arg,
                             int64_t *out_number);
/* Waits until job `number` and all before it are done. TR_ERR_RETRY after timeout_sec (0: never).
 * After that only tr_world_abort is possible, because the thread is still in the call. */
tr_status_t tr_worker_wait(tr_worker_t *worker, int64_t number, double timeout_sec);

/* Runs a collective job on the thread that makes the MPI calls of this rank, and waits for it. */
tr_status_t tr_world_run(tr_world_t *world, tr_mpi_job_fn job, void *arg);
/* As tr_world_run, for a job between two ranks. */
tr_status_t tr_world_run_point(tr_world_t *world, tr_mpi_job_fn job, void *arg);

/* -- the watchdog (watchdog.c) ----------------------------------------------------------------- */

#define TR_CHECKPOINT_SEC 3600.0 /* time limit of a checkpoint */

/* Called when MPI is finalized or lost. */
void tr_watchdog_stop(tr_world_t *world);
/* Called before MPI_Abort: tells the peers that this rank reports the error, so that they do not
 * report it as gone. */
void tr_watchdog_end(tr_world_t *world);

/* -- launch and topology (launch.c) ------------------------------------------------------------ */

/* The index of the node of `rank` and the number of nodes. lowest[r]: the lowest rank on the node
 * of rank r. */
void tr_count_nodes(const int *lowest, int size, int rank, int *out_node, int *out_nodes);
/* Computes cores and cores_shared_by from the affinity masks of the ranks of one node. Returns
 * whether there are more ranks than cores. */
bool tr_count_cores(const cpu_set_t *masks, int count, int mine, int *out_cores,
                    int *out_shared_by);
/* Applies the CPU limit of a container (0: no limit), divided among the ranks of the node. Returns
 * whether there are more ranks than processors. */
bool tr_limit_cores(int limit, tr_world_info_t *info);

#endif
