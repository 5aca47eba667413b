/*
 * Statistics of the gradients of a run: smallest and largest norm, and in fp16 the loss scale and
 * the number of overflows. Private to metrics.c.
 */
#ifndef TR_TRAIN_METRICS_GRADIENT_H
#define TR_TRAIN_METRICS_GRADIENT_H

#include "session/step.h"
#include <jansson.h>

typedef struct {
    double smallest, largest; /* norm of the gradient of a step; NaN: none yet */
    double loss_scale;        /* of the next step; 1 without loss scaling */
    int64_t overflows;        /* steps of the run skipped because of an overflow */
} tr_metrics_gradient_t;

tr_metrics_gradient_t tr_metrics_gradient_new(void);
void tr_metrics_gradient_step(tr_metrics_gradient_t *g, const tr_step_outcome_t *o);
/* Adds them to the state in a checkpoint. */
void tr_metrics_gradient_save(const tr_metrics_gradient_t *g, json_t *to);
/* From the state in a checkpoint. */
tr_metrics_gradient_t tr_metrics_gradient_restore(const json_t *state);

#endif
