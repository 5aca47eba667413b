/* An evaluation: one pass over the data of a split. */
#ifndef TR_SESSION_EVAL_H
#define TR_SESSION_EVAL_H

#include "session.h"

typedef struct {
    bool stopped;                /* aborted: the scores are invalid */
    double terms;                /* as in tr_step_outcome_t */
    double loss, accuracy, topk; /* as in tr_step_outcome_t */
    /* of labels or probabilities of positions, else NaN: the mean over the classes, or the channels,
     * that occur or are predicted */
    double iou;
    /* Of a regression, else NaN: means over the targets, in units of the data even if the loss is
     * of normalised ones. r2 is NaN too for the probabilities of a binary cross-entropy. */
    double r2;
    /* What a model that ignores its inputs would score on these samples; NaN: unknown, and in
     * validations of a training run. */
    double baseline_accuracy, baseline_loss;
} tr_eval_outcome_t;
/* Called after each of the first `batches` micro-batches of this rank, while the tensors of the
 * result hold its outputs; the device waits for it. */
typedef struct {
    tr_status_t (*call)(void *self, tr_session_t *s, const tr_batch_t *batch);
    void *self;
    int64_t batches; /* INT64_MAX: all */
} tr_eval_each_t;
/* Nonzero if this rank is asked to stop. */
typedef int (*tr_asked_fn)(void);
void tr_evaluation_destroy(tr_evaluation_t **evaluation);
/* One pass over the data of the split. each may be NULL. With `asked` (may be NULL), all ranks abort the pass
 * together within about 0.1 s or one batch after one of them is asked to stop, and set
 * out->stopped. Collective. */
tr_status_t tr_session_evaluate(tr_session_t *s, tr_split_t split, const tr_eval_each_t *each,
                                tr_asked_fn asked, tr_eval_outcome_t *out);

#endif
