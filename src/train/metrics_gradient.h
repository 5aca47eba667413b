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
/* Adds loss_scale and overflows to a line of metrics.jsonl. */
void tr_metrics_gradient_line(const tr_metrics_gradient_t *g, json_t *line);
/* Adds these and grad_norm_min, grad_norm_max to the summary or to the state in a checkpoint. */
void tr_metrics_gradient_add(const tr_metrics_gradient_t *g, json_t *to);
/* From the state in a checkpoint. */
tr_metrics_gradient_t tr_metrics_gradient_restore(const json_t *state);

#endif
