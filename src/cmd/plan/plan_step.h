/* The predicted time of a step on a GPU that need not be in this machine. Private to src/cmd/plan. */
#ifndef TR_CMD_PLAN_PLAN_STEP_H
#define TR_CMD_PLAN_PLAN_STEP_H

#include "plan.h"
#include "scaling/roofline.h"

typedef struct {
    tr_roofline_t on;
    double sec[TR_STEP_GROUPS]; /* of this rank's step */
    double launches;
    double step_sec;
    double per_sec;   /* what `unit` counts, on all ranks */
    const char *unit; /* "tokens" or "samples" */
} plan_step_t;

/* Predicts the step of a planned training session on `gpu`. TR_ERR_NOMEM. */
tr_status_t plan_step_predict(const tr_session_t *s, const tr_gpu_kind_t *gpu, plan_step_t *out);
/* Creates the session on a GPU of this kind, which need not be in this machine, and predicts its step.
 * Sets cuda.plan_cache to o->warm. Destroy *out also after an error. */
tr_status_t plan_step_on(tr_config_t *config, const plan_options_t *o, const char *gpu,
                         tr_session_t **out, plan_step_t *out_step);
void plan_step_append(const plan_step_t *p, tr_str_t *out);
json_t *plan_step_json(const plan_step_t *p);

#endif
