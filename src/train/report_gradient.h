/*
 * What a run reports of its gradients: their smallest and largest norm, and in fp16 the loss scale
 * and the steps that overflowed. Private to report.c.
 */
#ifndef TRAINER_REPORT_GRADIENT_H
#define TRAINER_REPORT_GRADIENT_H

#include "session.h"
#include <jansson.h>

typedef struct {
    double smallest, largest; /* norm of a step's gradient, NaN: of none yet */
    double loss_scale;        /* of the next step; 1 where the loss is not scaled */
    int64_t overflows;        /* steps of the run that were skipped for an overflow */
} tr_report_gradient_t;

tr_report_gradient_t tr_report_gradient_new(void);
void tr_report_gradient_step(tr_report_gradient_t *g, const tr_step_outcome_t *o);
/* Adds loss_scale and overflows to a line of metrics.jsonl. */
void tr_report_gradient_line(const tr_report_gradient_t *g, json_t *line);
/* Adds these and grad_norm_min, grad_norm_max to the summary, or to what a checkpoint keeps. */
void tr_report_gradient_add(const tr_report_gradient_t *g, json_t *to);
/* From what a checkpoint kept. */
tr_report_gradient_t tr_report_gradient_restore(const json_t *state);

#endif
