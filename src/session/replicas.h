/*
 * Every rank has a replica of the parameters, of the model's state and of the optimizer's: the same
 * bits, because each applies the same updates. A fault of memory or of a processor on one rank makes
 * them differ, and nothing else shows it: the gradients are summed over all ranks, and the loss stays
 * plausible. So the ranks compare fingerprints of what they have. Private to src/session and
 * src/train.
 */
#ifndef TR_SESSION_REPLICAS_H
#define TR_SESSION_REPLICAS_H

#include "session.h"

/* tr_error_t.fault of an error of tr_replicas_compare. */
#define TR_REPLICAS_FAULT "different replicas"

typedef struct tr_replicas tr_replicas_t;

/* The session has been started. Not collective. */
tr_status_t tr_replicas_create(tr_session_t *s, tr_replicas_t **out);
void tr_replicas_destroy(tr_replicas_t **replicas);
/*
 * Compares the state after `step` steps, and waits for all work in the compute stream. A difference
 * is TR_ERR_RETRY on every rank, agreed: TR_ORIGIN_MINE on rank 0. Its message says the step, what
 * differs and on which ranks. If more than half of the ranks agree and the others are on one node,
 * it has that node. Collective.
 */
tr_status_t tr_replicas_compare(tr_replicas_t *replicas, int64_t step);

#endif
