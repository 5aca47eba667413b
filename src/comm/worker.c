/* The communication thread: a queue of jobs that run in order. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "watchdog.h"
#include "world_int.h"
#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#define QUEUE_JOBS 2048 /* submit blocks when as many wait */

typedef struct {
    tr_mpi_job_fn run;
    void *arg;
} job_t;

struct tr_worker {
    MPI_Comm comm;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t submitted_more, done_more;
    job_t jobs[QUEUE_JOBS]; /* job n is at (n - 1) % QUEUE_JOBS */
    int64_t submitted;
    _Atomic int64_t done; /* written under the lock, read without */
    bool stop;
    bool lost;              /* of the waiting side: a wait timed out */
    _Atomic int64_t failed; /* number of the first job that failed, 0: none; then `error` is its */
    tr_error_t error;
};

static void *worker_main(void *self) {
    tr_worker_t *w = self;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->done == w->submitted && !w->stop) pthread_cond_wait(&w->submitted_more, &w->lock);
        if (w->done == w->submitted) break;
        job_t job = w->jobs[w->done % QUEUE_JOBS];
        pthread_mutex_unlock(&w->lock);
        if (!w->failed && job.run(w->comm, job.arg) != TR_OK) {
            w->error = *tr_error_last();
            w->failed = w->done + 1;
        }
        pthread_mutex_lock(&w->lock);
        w->done++;
        pthread_cond_broadcast(&w->done_more);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void worker_init_locks(tr_worker_t *w) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->submitted_more, &monotonic);
    pthread_cond_init(&w->done_more, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void worker_release(tr_worker_t **worker) {
    pthread_cond_destroy(&(*worker)->done_more);
    pthread_cond_destroy(&(*worker)->submitted_more);
    pthread_mutex_destroy(&(*worker)->lock);
    tr_free(worker);
}

tr_status_t tr_worker_start(MPI_Comm comm, tr_worker_t **out) {
    tr_worker_t *w = NULL;
    TR_TRY(tr_alloc(sizeof *w, "communication thread", &w));
    w->comm = comm;
    worker_init_locks(w);
    int failed = tr_thread_start("trainer-comm", worker_main, w, &w->thread);
    if (failed) {
        worker_release(&w);
        return TR_FAIL(
            TR_ERR_MEMORY,
            "Cannot start the communication thread (error %d). Set parallel.engine=poll.", failed);
    }
    *out = w;
    return TR_OK;
}

void tr_worker_stop(tr_worker_t **worker) {
    tr_worker_t *w = *worker;
    if (!w) return;
    *worker = NULL;
    if (w->lost) {
        /* it is stuck in a call that no peer will answer, and still uses *w */
        pthread_detach(w->thread);
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->submitted_more);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    worker_release(&w);
}

tr_status_t tr_worker_submit(tr_worker_t *w, tr_mpi_job_fn job, void *arg, int64_t *out_number) {
    pthread_mutex_lock(&w->lock);
    while (w->submitted - w->done == QUEUE_JOBS) pthread_cond_wait(&w->done_more, &w->lock);
    w->jobs[w->submitted % QUEUE_JOBS] = (job_t){job, arg};
    *out_number = ++w->submitted;
    pthread_cond_signal(&w->submitted_more);
    pthread_mutex_unlock(&w->lock);
    return TR_OK;
}

/* False if the time is over. */
static bool worker_wait_in_time(tr_worker_t *w, int64_t number, double timeout_sec) {
    struct timespec deadline = tr_clock_deadline(timeout_sec);
    int waited = 0;
    pthread_mutex_lock(&w->lock);
    while (w->done < number && waited != ETIMEDOUT)
        waited = timeout_sec > 0 ? pthread_cond_timedwait(&w->done_more, &w->lock, &deadline)
                                 : pthread_cond_wait(&w->done_more, &w->lock);
    bool in_time = w->done >= number;
    pthread_mutex_unlock(&w->lock);
    return in_time;
}

tr_status_t tr_worker_wait(tr_worker_t *w, int64_t number, double timeout_sec) {
    if (w->done < number && !w->lost) w->lost = !worker_wait_in_time(w, number, timeout_sec);
    if (w->lost) return tr_mpi_timed_out(timeout_sec, w->done + 1);
    return w->failed && w->failed <= number ? tr_error_set(&w->error) : TR_OK;
}

/* The one rank of a world without MPI already has what its jobs would give it. */
static tr_status_t worker_run_where_due(tr_world_t *world, tr_mpi_job_fn job, void *arg) {
    if (world->comm == MPI_COMM_NULL) return TR_OK;
    if (!world->worker) return job(world->comm, arg);
    /* others may wait for rank 0, which waits for a disk */
    const bool is_checkpoint = TR_HEARTBEAT_GET(world->heartbeat.phase) == TR_PHASE_CHECKPOINT;
    const double more_sec = world->timeout_sec > 0 && is_checkpoint ? TR_CHECKPOINT_SEC : 0;
    int64_t number = 0;
    TR_TRY(tr_worker_submit(world->worker, job, arg, &number));
    return tr_worker_wait(world->worker, number, world->timeout_sec + more_sec);
}

tr_status_t tr_world_run_point(tr_world_t *world, tr_mpi_job_fn job, void *arg) {
    if (world->lost)
        return TR_FAIL(TR_ERR_RETRY,
                       "The connection to a rank was lost earlier; start the job again.");
    TR_HEARTBEAT_ADD(world->heartbeat.blocked, 1);
    tr_status_t status = worker_run_where_due(world, job, arg);
    TR_HEARTBEAT_ADD(world->heartbeat.blocked, -1);
    TR_HEARTBEAT_ADD(world->heartbeat.marks, 1);
    world->lost = status == TR_ERR_RETRY;
    return status;
}

tr_status_t tr_world_run(tr_world_t *world, tr_mpi_job_fn job, void *arg) {
    if (world->before_run && !world->lost) TR_TRY(world->before_run(world->engine));
    TR_HEARTBEAT_ADD(world->heartbeat.entered, 1);
    tr_status_t status = tr_world_run_point(world, job, arg);
    TR_HEARTBEAT_ADD(world->heartbeat.completed, 1);
    return status;
}
