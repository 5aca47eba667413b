/*
 * Passes batches of the loader to the inputs of programs. If the device can read host memory, the
 * inputs are bound to the batch. Otherwise there are several sets of inputs and a copy stream: one
 * set is filled while programs run on another, and events order the two streams. Not collective.
 *
 * A captured program keeps the addresses of one set, and NCCL requires that all ranks launch the
 * graph of the same capture. So a set is chosen by the number of the batch, on which ranks agree,
 * and not by turns: the last slot of step n has the number (n + 1) K - 1 on every rank, where K is
 * the largest number of slots of a rank.
 */
#ifndef TR_SESSION_FEED_H
#define TR_SESSION_FEED_H

#include "session.h"

enum { TR_FEED_SETS = 3 }; /* at most */

/* Inputs that accompany every micro-batch of a step. */
typedef struct {
    tr_step_t step;
    float asks; /* TR_ASK_STOP, TR_ASK_SAVE, or their sum */
} tr_feed_step_t;

/* The number of input sets that the session's graph needs, before its plan. Where ranks have
 * different numbers of slots, some skip a number in each step, and a third set lets the copy of a
 * step's first batch overlap the step before it. */
int tr_feed_sets(const tr_session_t *s);

/* The session's graph must be allocated. */
tr_status_t tr_feed_create(tr_session_t *s, tr_feed_t **out);
void tr_feed_destroy(tr_feed_t **feed);

/* Makes batch and step the inputs of the programs that run next. number >= 0: of the batch. step
 * NULL: the programs do not read it. The batch is in use until its copy is done; *step is copied at
 * once. */
tr_status_t tr_feed_next(tr_feed_t *feed, int64_t number, const tr_batch_t *batch,
                         const tr_feed_step_t *step);
/* Call when all programs that read the inputs of the last tr_feed_next are enqueued. */
tr_status_t tr_feed_used(tr_feed_t *feed);
/* Waits for the copies of the batch fed `back` batches ago: 1 (the last one) or 2. */
tr_status_t tr_feed_wait(tr_feed_t *feed, int back);
/* Call after waiting for the programs that read all batches except the last `newest` (0 or 1):
 * their copies are done. */
void tr_feed_copies_done(tr_feed_t *feed, int newest);
/* Makes the set of batch `number` the current inputs, whatever it holds. */
void tr_feed_use(tr_feed_t *feed, int64_t number);

#endif
