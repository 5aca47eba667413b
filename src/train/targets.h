/*
 * data.target_mean and data.target_std: numbers to predict are trained on as (y - mean) / std, and evaluations give them back in units of
 * the data. Private to src/train.
 */
#ifndef TRAINER_TARGETS_H
#define TRAINER_TARGETS_H

#include "session.h"

/* Sets s->targets, target_mean and target_std, when the data are open; auto is measured on the training data. Warns on rank 0 where a training
 * leaves targets as they are that are far from 0 and 1, and where 32-bit floats round them away. The same on every rank; not collective. */
tr_status_t tr_targets_resolve(tr_session_t *s);
/* The numbers in the form of the keys; `none` where nothing is normalised. */
void tr_targets_text(const tr_session_t *s, const float *values, const char *none, tr_str_t *out);
/* In place of the batch's y, and of a model's output. */
tr_status_t tr_targets_normalize(tr_session_t *s, tr_tensor_t *y);
tr_status_t tr_targets_restore(tr_session_t *s, tr_tensor_t *output);

#endif
