/* Hands requests to the thread that serves them. */
#include "queue.h"

#include "base/clock.h"
#include "base/str.h"
#include <time.h>

/* Waits by the clock of tr_clock_sec, which nobody sets. */
static void condition_open(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

void tr_queue_open(tr_queue_t *q, int64_t most) {
    *q = (tr_queue_t){.most = most};
    pthread_mutex_init(&q->lock, NULL);
    condition_open(&q->work);
}

void tr_queue_close(tr_queue_t *q) {
    pthread_cond_destroy(&q->work);
    pthread_mutex_destroy(&q->lock);
}

/* -- threads of connections -------------------------------------------------------------------- */

void tr_job_open(tr_job_t *job, tr_http_peer_t client) {
    *job = (tr_job_t){.client = client, .status = 200};
    condition_open(&job->changed);
}

void tr_job_close(tr_queue_t *q, tr_job_t *job) {
    pthread_mutex_lock(&q->lock);
    job->is_cancelled = true;
    while (!job->is_done) pthread_cond_wait(&job->changed, &q->lock);
    pthread_mutex_unlock(&q->lock);
    pthread_cond_destroy(&job->changed);
}

int tr_queue_push(tr_queue_t *q, tr_job_t *job) {
    tr_job_t **end = &q->first;
    pthread_mutex_lock(&q->lock);
    const bool is_full = q->count >= q->most;
    const int status = q->state != TR_QUEUE_OPEN ? 503 : is_full ? 429 : 200;
    job->since_sec = tr_clock_sec();
    job->status = status;
    job->is_done = status != 200;
    if (status == 200) {
        while (*end) end = &(*end)->next;
        *end = job;
        q->count++;
        pthread_cond_signal(&q->work);
    } else {
        tr_snprintf(job->why, sizeof job->why, "%s",
                    status == 503 ? q->why : "the queue is full: ask again later");
    }
    pthread_mutex_unlock(&q->lock);
    return status;
}

int tr_queue_serve(tr_queue_t *q, tr_job_t *job, tr_http_peer_t client, char why[512]) {
    tr_job_open(job, client);
    tr_queue_push(q, job);
    pthread_mutex_lock(&q->lock);
    while (!job->is_done) pthread_cond_wait(&job->changed, &q->lock);
    pthread_mutex_unlock(&q->lock);
    tr_job_close(q, job);
    tr_snprintf(why, 512, "%s", job->why);
    return job->status;
}

bool tr_queue_await_change(tr_queue_t *q, tr_job_t *job, double sec) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)sec;
    return pthread_cond_timedwait(&job->changed, &q->lock, &end) == 0;
}

/* -- the serving thread ------------------------------------------------------------------------ */

bool tr_queue_wait(tr_queue_t *q) {
    while (!q->first && q->state == TR_QUEUE_OPEN) pthread_cond_wait(&q->work, &q->lock);
    return q->state == TR_QUEUE_OPEN ||
           (q->state == TR_QUEUE_DRAINS && q->first && tr_clock_sec() < q->end_sec);
}

bool tr_job_is_left(tr_job_t *job) {
    const tr_http_presence_t presence = tr_http_presence(&job->client);
    if (presence == TR_HTTP_IS_SILENT && !job->is_asked) {
        job->is_asked = true;
        tr_http_probe(&job->client);
        pthread_cond_broadcast(&job->changed);
    }
    return job->is_cancelled || presence == TR_HTTP_HAS_LEFT;
}

void tr_queue_done(tr_queue_t *q, tr_job_t *job, int status, const char *why) {
    tr_job_t **at = &q->first;
    while (*at != job) at = &(*at)->next;
    *at = job->next;
    q->count--;
    job->status = status;
    if (why) tr_snprintf(job->why, sizeof job->why, "%s", why);
    job->is_done = true;
    pthread_cond_broadcast(&job->changed);
}

void tr_queue_end(tr_queue_t *q, const char *why) {
    if (q->state == TR_QUEUE_OPEN)
        q->state = TR_QUEUE_ENDED; /* after a drain it goes on draining */
    tr_snprintf(q->why, sizeof q->why, "%s", why);
    while (q->first) tr_queue_done(q, q->first, 503, why);
}

/* -- any thread -------------------------------------------------------------------------------- */

void tr_queue_drain(tr_queue_t *q, double sec) {
    const double end = tr_clock_sec() + sec;
    pthread_mutex_lock(&q->lock);
    if (q->state == TR_QUEUE_OPEN || (q->state == TR_QUEUE_DRAINS && end < q->end_sec))
        q->end_sec = end;
    if (q->state == TR_QUEUE_OPEN) {
        q->state = TR_QUEUE_DRAINS;
        tr_snprintf(q->why, sizeof q->why, "the server is shutting down");
    }
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
}

tr_queue_state_t tr_queue_state(tr_queue_t *q) {
    pthread_mutex_lock(&q->lock);
    const tr_queue_state_t state = q->state;
    pthread_mutex_unlock(&q->lock);
    return state;
}
