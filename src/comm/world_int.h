/* Private to src/comm: the world, and how its files make MPI calls. */
#ifndef TRAINER_WORLD_INT_H
#define TRAINER_WORLD_INT_H

#include "heartbeat.h"
#include "trainer/comm.h"
#include <mpi.h>
#include <sched.h>

typedef struct tr_worker tr_worker_t;
typedef struct tr_watchdog tr_watchdog_t;

struct tr_world {
    MPI_Comm comm;
    bool owns_mpi; /* open initialised MPI, so close finalizes it */
    /* MPI may be called from a thread other than the one that initialised it */
    bool any_thread;
    tr_worker_t *worker; /* the communication thread; NULL where the caller's own thread makes MPI's
                            calls. Not owned */
    double timeout_sec;  /* of a call handed to the worker; 0: none */
    /* a peer or the network: calls fail at once, because they would wait forever */
    bool lost;
    tr_world_info_t info;
    tr_heartbeat_t heartbeat;
    _Atomic(tr_watchdog_t *) watchdog; /* NULL: none; its own thread reads this, too */
};

/* -- errors (mpi_error.c) ---------------------------------------------------------------------- */

/* Turns what an MPI call returned into a status with MPI's text: INTERNAL where the arguments were
 * wrong, RETRY where a peer or the network was. */
tr_status_t tr_mpi_check(int code, const char *call, const char *file, int line, const char *func);
/* Communication `number` did not complete within parallel.timeout. */
tr_status_t tr_mpi_timed_out(double timeout_sec, int64_t number);
#define TR_MPI(call, args)                                                                         \
    do {                                                                                           \
        int tr_mpi_code_ = call args;                                                              \
        if (tr_mpi_code_ != MPI_SUCCESS)                                                           \
            return tr_mpi_check(tr_mpi_code_, #call, __FILE__, __LINE__, __func__);                \
    } while (0)

/* -- where calls run (worker.c) ---------------------------------------------------------------- */

/* Makes MPI calls on `comm`. */
typedef tr_status_t (*tr_mpi_job_fn)(MPI_Comm comm, void *arg);

/* Starts the communication thread. `comm` is borrowed. */
tr_status_t tr_worker_start(MPI_Comm comm, tr_worker_t **out);
/* Finishes what was submitted, then ends the thread. If the thread is stuck in a call of a lost
 * peer, it is left running. */
void tr_worker_stop(tr_worker_t **worker);
/*
 * Runs `job(comm, arg)` on the thread after everything submitted before it. arg must stay valid
 * until then. Numbers count from 1. After a job has failed, later ones are not run: every wait
 * returns the first failure.
 */
tr_status_t tr_worker_submit(tr_worker_t *worker, tr_mpi_job_fn job, void *arg,
                             int64_t *out_number);
/* Blocks until job `number` and all before it are done. TR_ERR_RETRY after timeout_sec (0: never);
 * only tr_world_abort is possible then, because the thread is still in the call. */
tr_status_t tr_worker_wait(tr_worker_t *worker, int64_t number, double timeout_sec);

/* Runs `job`, a collective, where this rank makes its MPI calls, and waits for it. */
tr_status_t tr_world_run(tr_world_t *world, tr_mpi_job_fn job, void *arg);
/* The same for a job between two ranks. */
tr_status_t tr_world_run_point(tr_world_t *world, tr_mpi_job_fn job, void *arg);

/* -- the watchdog (watchdog.c) ----------------------------------------------------------------- */

#define TR_CHECKPOINT_SEC                                                                          \
    3600.0 /* the longest time that a checkpoint may take without a sign of progress */

/* Waits for other ranks need no time limit of their own. */
bool tr_watchdog_limits_waits(const tr_world_t *world);
/* When MPI is finalized, or lost. */
void tr_watchdog_stop(tr_world_t *world);
/* Before MPI_Abort: this rank reports the cause itself, so its peers need not report that it is
 * gone. */
void tr_watchdog_end(tr_world_t *world);

/* -- launch and topology (launch.c) ------------------------------------------------------------ */

/* lowest[r] is the lowest rank of the node of rank r: the index of rank's node, and how many there
 * are. */
void tr_count_nodes(const int *lowest, int size, int rank, int *out_node, int *out_nodes);
/* From the affinity masks of the ranks of one node: fills cores, cores_shared_by; true if there are
 * more ranks than cores. */
bool tr_count_cores(const cpu_set_t *masks, int count, int mine, int *out_cores,
                    int *out_shared_by);
/* A container may show all cores but grant only the time of `limit` (0: no limit), which the ranks
 * of the node share: a rank has its part of them. True if there are more ranks. */
bool tr_limit_cores(int limit, tr_world_info_t *info);

#endif
