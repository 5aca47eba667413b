/*
 * Requests that one thread serves, in order of their arrival. Threads of connections push jobs and
 * wait for them; the serving thread takes them, and says when each is done. The queue ends when the
 * server is asked to end and its jobs are done, or by an error, which all jobs then have. Not
 * collective.
 */
#ifndef TR_SERVE_QUEUE_H
#define TR_SERVE_QUEUE_H

#include "http/http.h"
#include "trainer/status.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A client that closed its connection; as nginx has it. Nobody reads this status. */
enum { TR_CLIENT_LEFT = 499 };

/* The first member of what is queued. All members but `client` are guarded by the lock. */
typedef struct tr_job {
    tr_http_peer_t client;
    bool
        is_asked; /* the client has ended its side, and something is sent to it, which shows whether it reads */
    struct tr_job *next;
    double since_sec; /* when it was pushed */
    bool is_cancelled, is_done;
    int status;    /* of HTTP; 200: done */
    char why[512]; /* of another status */
    pthread_cond_t changed;
} tr_job_t;

typedef enum { TR_QUEUE_OPEN, TR_QUEUE_DRAINS, TR_QUEUE_ENDED } tr_queue_state_t;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t work;
    tr_job_t *first;
    int64_t count, most;
    tr_queue_state_t state;
    double end_sec; /* of the drain; by tr_clock_sec */
    char why[512];  /* of its end */
} tr_queue_t;

void tr_queue_open(tr_queue_t *q, int64_t most);
void tr_queue_close(tr_queue_t *q);

/* -- threads of connections -------------------------------------------------------------------- */

void tr_job_open(tr_job_t *job, tr_http_peer_t client);
/* Takes the job out of the queue, which cancels it if it is not done. Waits for the serving thread.
 * After it the job is the caller's alone. Not for a job that was not pushed. */
void tr_job_close(tr_queue_t *q, tr_job_t *job);
/* Returns 200, or sets `why` and returns 429 if the queue is full, 503 if it ends. */
int tr_queue_push(tr_queue_t *q, tr_job_t *job);
/* Pushes a job, waits until it is done, and closes it. Returns its status; `why` where it is not
 * 200. */
int tr_queue_serve(tr_queue_t *q, tr_job_t *job, tr_http_peer_t client, char why[512]);
/* Waits for a change of the job, at most `sec`. False: there was none. With the lock. */
bool tr_queue_await_change(tr_queue_t *q, tr_job_t *job, double sec);

/* -- the serving thread, with the lock --------------------------------------------------------- */

/* Waits for a job. False: the queue is to end. */
bool tr_queue_wait(tr_queue_t *q);
/* Whether the client has left, or the thread of its connection. One that has ended its side is asked
 * by tr_http_probe; of a stream, by its thread, which then wakes up. */
bool tr_job_is_left(tr_job_t *job);
/* Removes the job. why: of a status other than 200. */
void tr_queue_done(tr_queue_t *q, tr_job_t *job, int status, const char *why);
/* Ends the queue and all its jobs with 503. */
void tr_queue_end(tr_queue_t *q, const char *why);

/* -- any thread -------------------------------------------------------------------------------- */

/* Refuses new jobs. Those in the queue have `sec` seconds; called again, the sooner end counts. */
void tr_queue_drain(tr_queue_t *q, double sec);
tr_queue_state_t tr_queue_state(tr_queue_t *q);

#endif
