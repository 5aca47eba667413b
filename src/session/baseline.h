/* The score of a model that ignores its inputs, from the labels of an evaluation: the share of the
 * most frequent class, or the mean squared error of predicting the mean of each target. Private to
 * src/session. */
#ifndef TR_SESSION_BASELINE_H
#define TR_SESSION_BASELINE_H

#include "session.h"

typedef struct tr_baseline tr_baseline_t;
/* *out is NULL for a model without such a score: of tokens, of several labels per sample, or with
 * another loss. Not collective. */
tr_status_t tr_baseline_create(const tr_session_t *s, tr_baseline_t **out);
void tr_baseline_destroy(tr_baseline_t **baseline);
/* Adds the samples of a batch that have a label. Not collective. */
void tr_baseline_add(tr_baseline_t *baseline, const tr_batch_t *batch);
/* Sets out->baseline_accuracy and out->baseline_loss; NaN where there is none. Collective. */
tr_status_t tr_baseline_score(tr_baseline_t *baseline, tr_eval_outcome_t *out);

#endif
