/* The accuracy of a classifier that ignores its inputs: the share of the most frequent class among
 * the labels of an evaluation. Private to src/session. */
#ifndef TR_SESSION_BASELINE_H
#define TR_SESSION_BASELINE_H

#include "session.h"

typedef struct tr_baseline tr_baseline_t;
/* *out is NULL for a model without such a score: of targets, of tokens, or of several labels per
 * sample. Not collective. */
tr_status_t tr_baseline_create(const tr_session_t *s, tr_baseline_t **out);
void tr_baseline_destroy(tr_baseline_t **baseline);
/* Adds the samples of a batch that have a label. Not collective. */
void tr_baseline_add(tr_baseline_t *baseline, const tr_batch_t *batch);
/* The share; NaN where there is none, and for a baseline of NULL. Collective. */
tr_status_t tr_baseline_share(tr_baseline_t *baseline, double *out);

#endif
