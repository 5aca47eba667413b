/* One step of training. */
#ifndef TR_SESSION_STEP_H
#define TR_SESSION_STEP_H

#include "session.h"

typedef struct tr_train_step tr_train_step_t;
/* What a rank asks of all after a step. The numbers are added up with the sums of the step, with
 * parallel.reproducible once for each slot: fewer than TR_ASK_SAVE slots stop. */
enum { TR_ASK_NOTHING, TR_ASK_STOP = 1, TR_ASK_SAVE = 1 << 20 /* only rank 0 */ };
typedef struct {
    int64_t step; /* counted from 0; -1: no outcome is known */
    double terms; /* of the loss: labelled samples or tokens */
    /* means over the terms, NaN if there are none; accuracy and topk: classes only */
    double loss, accuracy, topk;
    double grad_norm;
    bool finite;       /* false: nothing was updated */
    bool overflowed;   /* not finite, and the loss scale was above the lowest and is halved */
    double loss_scale; /* of the next step; 0: no loss scaling */
    int64_t overflows; /* steps of the run that overflowed */
    bool stop;         /* some rank was asked to stop */
    bool save;         /* rank 0 asked for a checkpoint after this step */
    double stall_sec;  /* waiting for data */
    /* waiting for communication, and all communication; NaN if not measured */
    double exposed_sec, busy_sec;
} tr_step_outcome_t;

tr_status_t tr_train_step_create(tr_session_t *s, tr_collectives_t *collectives,
                                 tr_loader_t *loader, tr_train_step_t **out);
void tr_train_step_destroy(tr_train_step_t **train_step);
/* Reuses the batches of the first step in every step, for benchmarks without data loading.
 * data.prefetch must be at least slot_count. */
tr_status_t tr_train_step_hold(tr_train_step_t *train_step);
/*
 * One optimizer step (every slot of this rank, the reduction, the update) in two halves. The host
 * does not wait for the step it has just enqueued. On an immediate device, _end returns the
 * outcome. On other devices, _begin of the next step returns it, after the first micro-batch of
 * that step is enqueued and before the second overwrites the inputs, or _drain returns it. Every
 * rank therefore learns the outcome of a step at the same place.
 *
 * may_save: between the halves, the parameters are those of the previous step. Without it,
 * _begin may enqueue the whole step, which is one launch where there is one rank with one slot. If
 * the previous step is not finite and train.on_nan is `stop`, this one changes nothing. Collective.
 */
tr_status_t tr_train_step_begin(tr_train_step_t *train_step, int64_t step, double lr, int asks,
                                bool may_save, tr_step_outcome_t *out);
tr_status_t tr_train_step_end(tr_train_step_t *train_step, tr_step_outcome_t *out);
/* Waits for the last step. out->step is -1 if its outcome was already returned. Not collective. */
tr_status_t tr_train_step_drain(tr_train_step_t *train_step, tr_step_outcome_t *out);
/* Between the halves of a step begun with may_save: makes its update wait for `event`. */
void tr_train_step_update_after(tr_train_step_t *train_step, tr_event_t *event);
/* _begin, _end and _drain. Collective. */
tr_status_t tr_train_step_run(tr_train_step_t *train_step, int64_t step, double lr, int asks,
                              tr_step_outcome_t *out);
/* Abandons a step that was begun: completes its all-reduces, so that no rank waits in them, without
 * the update. For a run that ends with the outcome of the previous step. Collective. */
tr_status_t tr_train_step_abandon(tr_train_step_t *train_step);
/* After a step that was not finite, abandoned: runs its micro-batches on this rank again, read
 * anew, op by op. *out_op: the first op of the program `last` with an output that is not finite;
 * -1: there is none. Not collective. */
tr_status_t tr_train_step_find_nonfinite(tr_train_step_t *train_step, int64_t step, int *out_op);

#endif
