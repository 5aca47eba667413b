/*
 * A thread that does jobs in their order, so that what may wait for a disk or a terminal makes
 * nobody else wait. The queue is bounded: what does not fit is refused, and the caller counts it.
 */
#ifndef TR_BASE_BACKGROUND_H
#define TR_BASE_BACKGROUND_H

#include "trainer/status.h"
#include <stdbool.h>

typedef struct tr_background tr_background_t;
/* Does one job, and frees `item`. */
typedef void (*tr_job_fn)(void *self, void *item);

/* Starts a thread `name` (at most 15 characters) with a queue of `most` jobs. */
tr_status_t tr_background_start(const char *name, int most, tr_background_t **out);
/* Where the queue is full, waits for jobs that come to an end: for a second in all, and at most
 * TR_STALL_SEC for each; then it waits no more until the queue is empty. False: the caller keeps
 * `item`. Any thread. */
#define TR_STALL_SEC 0.1
bool tr_background_post(tr_background_t *background, tr_job_fn job, void *self, void *item);
/* Waits at most `sec` seconds until all jobs posted before are done; they count from the begin of a
 * job that runs already. False: some are not done. Not from a job. */
bool tr_background_wait(tr_background_t *background, double sec);
/* Waits as tr_background_wait, and ends the thread. False: a job hangs; the thread and what its jobs
 * use must be left alone. */
bool tr_background_stop(tr_background_t **background, double sec);

#endif
