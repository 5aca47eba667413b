/*
 * Batches in flight, for the training step and the evaluation: a batch is fed to the programs and
 * returns to the loader when nothing reads it any more. The device copies the results of programs
 * to pinned memory, where they are read later, by number. Not collective.
 */
#ifndef TR_SESSION_FLIGHT_H
#define TR_SESSION_FLIGHT_H

#include "feed.h"

typedef struct tr_flight tr_flight_t;

/* result_bytes: of one result. The session's graph must be allocated; loader is borrowed. */
tr_status_t tr_flight_create(tr_session_t *s, tr_loader_t *loader, size_t result_bytes,
                             tr_flight_t **out);
/* Waits for all copies. The batches in flight stay with the loader. */
void tr_flight_destroy(tr_flight_t **flight);
/* From now on, the next `count` batches are fed again and again, and not returned to the loader. */
tr_status_t tr_flight_hold(tr_flight_t *flight, int64_t count);

/* Feeds the next batch of the loader (tr_feed_next). If two batches are in flight, or data.prefetch
 * if that is less, it waits for the copies of the oldest one and returns it first. *out: the batch;
 * NULL: no more data. */
tr_status_t tr_flight_feed(tr_flight_t *flight, int64_t number, const tr_feed_step_t *step,
                           const tr_batch_t **out);
/* The oldest batch in flight if more than `newest` are, else NULL. */
const tr_batch_t *tr_flight_oldest(const tr_flight_t *flight, int newest);
/* Returns all batches but the `newest` to the loader, each when its copies are done. */
tr_status_t tr_flight_release(tr_flight_t *flight, int newest);

/* Pinned memory of result `number` >= 0, which result number + 2 reuses. */
void *tr_flight_result(const tr_flight_t *flight, int64_t number);
/* Enqueues a copy of a tensor to memory of a result. */
tr_status_t tr_flight_read(tr_flight_t *flight, tr_tensor_t tensor, void *host);
/* Result `number` is complete when the work enqueued so far is done. */
tr_status_t tr_flight_mark(tr_flight_t *flight, int64_t number);
/* Waits for result `number`. newest: batches fed since; the copies of all others are done. */
tr_status_t tr_flight_wait(tr_flight_t *flight, int64_t number, int newest);

#endif
