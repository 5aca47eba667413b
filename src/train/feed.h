/*
 * From a batch of the loader to the inputs of programs. Where the device sees host memory the
 * inputs are the batch itself. Elsewhere there are two sets of inputs and a stream for copies: a
 * set is filled while programs run on the other, and events alone order the two streams. Not
 * collective.
 */
#ifndef TRAINER_FEED_H
#define TRAINER_FEED_H

#include "session.h"

enum { TR_FEED_SETS = 2 };

/* What travels with every micro-batch of a step. */
typedef struct {
    tr_step_t step;
    float stop; /* 1: this rank was asked to stop */
} tr_feed_step_t;

/* How many sets of inputs a graph on this device needs; before its plan. */
int tr_feed_sets(const tr_device_t *device);

/* The session's graph is allocated. */
tr_status_t tr_feed_create(tr_session_t *s, tr_feed_t **out);
void tr_feed_destroy(tr_feed_t **feed);

/* Programs that run after this have batch and step as inputs; step NULL: a program that reads none.
 * The batch stays in use until its copy is done; *step is copied at once. */
tr_status_t tr_feed_next(tr_feed_t *feed, const tr_batch_t *batch, const tr_feed_step_t *step);
/* All programs that read the inputs of the last tr_feed_next are enqueued. */
tr_status_t tr_feed_used(tr_feed_t *feed);
/* Waits until the copies of the batch that was fed `back` batches ago are done; 1 is the last one,
 * TR_FEED_SETS the most. */
tr_status_t tr_feed_wait(tr_feed_t *feed, int back);
/* The caller has waited for programs that read all batches but the last `newest` (0 or 1): no copy
 * of theirs is under way. */
void tr_feed_settled(tr_feed_t *feed, int newest);
/* Makes the inputs of the batch that was fed `back` batches ago current again: 0 is the last one,
 * TR_FEED_SETS - 1 the most. */
void tr_feed_show(tr_feed_t *feed, int back);

#endif
