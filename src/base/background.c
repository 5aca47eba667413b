/* A thread with a queue of jobs. */
#include "background.h"

#include "clock.h"
#include "mem.h"
#include "thread.h"
#include <math.h>
#include <string.h>
#include <time.h>

#define MOST_WAITED_SEC 1.0 /* by all posts until the queue is empty again */

typedef struct {
    tr_job_fn run;
    void *self, *item;
} job_t;

struct tr_background {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t posted, finished;
    job_t *jobs; /* [most], a ring */
    int most;
    int64_t begun, ended; /* posted and done since the start */
    double job_sec;       /* when the job that runs began, or the last one ended */
    double waited_sec;    /* by posts, since the queue was empty */
    bool stops;
};

static void *background_main(void *self) {
    tr_background_t *b = self;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        while (b->begun == b->ended && !b->stops) pthread_cond_wait(&b->posted, &b->lock);
        if (b->begun == b->ended) break;
        const job_t job = b->jobs[b->ended % b->most];
        b->job_sec = tr_clock_sec();
        pthread_mutex_unlock(&b->lock);
        job.run(job.self, job.item);
        pthread_mutex_lock(&b->lock);
        b->ended++;
        if (b->begun == b->ended) b->waited_sec = 0;
        b->job_sec = tr_clock_sec();
        pthread_cond_broadcast(&b->finished);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

static void background_free(tr_background_t **b) {
    pthread_mutex_destroy(&(*b)->lock);
    pthread_cond_destroy(&(*b)->posted);
    pthread_cond_destroy(&(*b)->finished);
    tr_free(&(*b)->jobs);
    tr_free(b);
}

tr_status_t tr_background_start(const char *name, int most, tr_background_t **out) {
    tr_background_t *b = NULL;
    pthread_condattr_t clock;
    TR_TRY(tr_alloc(sizeof *b, "background thread", &b));
    b->most = most;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->posted, NULL);
    pthread_cond_init(&b->finished, &clock);
    pthread_condattr_destroy(&clock);
    tr_status_t status = tr_alloc((size_t)most * sizeof *b->jobs, "background jobs", &b->jobs);
    if (status == TR_OK) {
        const int error = tr_thread_start(name, background_main, b, &b->thread);
        if (error) status = TR_FAIL(TR_ERR_IO, "cannot start a thread: %s", strerror(error));
    }
    if (status == TR_OK)
        *out = b;
    else
        background_free(&b);
    return status;
}

static struct timespec background_at(double monotonic_sec) {
    const double sec = floor(monotonic_sec);
    return (struct timespec){(time_t)sec, (long)(1e9 * (monotonic_sec - sec))};
}

bool tr_background_post(tr_background_t *b, tr_job_fn job, void *self, void *item) {
    pthread_mutex_lock(&b->lock);
    while (b->begun - b->ended >= b->most && b->waited_sec < MOST_WAITED_SEC) {
        const double begin_sec = tr_clock_sec();
        const struct timespec until = background_at(begin_sec + TR_STALL_SEC);
        const bool stalls = pthread_cond_timedwait(&b->finished, &b->lock, &until) != 0;
        b->waited_sec += stalls ? MOST_WAITED_SEC : tr_clock_sec() - begin_sec;
    }
    const bool has_room = b->begun - b->ended < b->most;
    if (has_room) {
        if (b->begun == b->ended) b->job_sec = tr_clock_sec();
        b->jobs[b->begun++ % b->most] = (job_t){job, self, item};
        pthread_cond_signal(&b->posted);
    }
    pthread_mutex_unlock(&b->lock);
    return has_room;
}

bool tr_background_wait(tr_background_t *b, double sec) {
    pthread_mutex_lock(&b->lock);
    const int64_t last = b->begun;
    const double end_sec = fmin(tr_clock_sec(), b->job_sec) + sec;
    const struct timespec until = background_at(end_sec);
    while (b->ended < last && tr_clock_sec() < end_sec)
        (void)pthread_cond_timedwait(&b->finished, &b->lock, &until);
    const bool is_done = b->ended >= last;
    pthread_mutex_unlock(&b->lock);
    return is_done;
}

bool tr_background_stop(tr_background_t **stopping, double sec) {
    tr_background_t *b = *stopping;
    if (!b) return true;
    *stopping = NULL;
    if (!tr_background_wait(b, sec)) {
        pthread_detach(b->thread);
        return false;
    }
    pthread_mutex_lock(&b->lock);
    b->stops = true;
    pthread_cond_signal(&b->posted);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    background_free(&b);
    return true;
}
