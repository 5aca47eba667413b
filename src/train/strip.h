/*
 * The strip: a few samples of the validation data as small pictures of the input, the target and the
 * prediction, for models that predict each position of an image or a volume. Of a volume, the slice
 * in the middle of its first dimension is shown. Not collective: on the rank that records.
 */
#ifndef TR_TRAIN_STRIP_H
#define TR_TRAIN_STRIP_H

#include "session/eval.h"

#define TR_STRIP_FILE "samples.json" /* in the run folder */

typedef struct tr_strip tr_strip_t;
/* *out is NULL if the model has nothing to show, or this build cannot write PNG files. The session is
 * borrowed. */
tr_status_t tr_strip_create(tr_session_t *s, tr_strip_t **out);
void tr_strip_destroy(tr_strip_t **strip);
/* Drops the samples, before a validation. Returns what takes the first ones of this rank in it. */
tr_eval_each_t tr_strip_begin(tr_strip_t *strip);
/* The samples as JSON, with PNG files in base64: at most 0.8 MB, usually less than 0.2 MB. The caller
 * frees it with tr_free. TR_ERR_MEMORY. */
tr_status_t tr_strip_text(const tr_strip_t *strip, int64_t step, char **out);

#endif
