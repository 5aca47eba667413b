/* What optimizers share, and what schedules share. */
#ifndef TR_OPTIM_OPTIM_INT_H
#define TR_OPTIM_OPTIM_INT_H

#include "trainer/ops.h"
#include "optim/optim.h"
#include "base/mem.h"

#define OPTIMIZER(symbol) extern const tr_optimizer_t tr_optimizer_##symbol;
#include "optims.def"
#undef OPTIMIZER

/* `build` is called for each part of this rank (tr_graph_part): of that part, the optimizer state
 * `name`, f32, which mirrors the trainable parameters. */
tr_status_t tr_optim_param_state(tr_graph_t *g, const char *name, tr_tensor_t *out);
/* The gradients of the parameters of the part, and the parameters. */
tr_status_t tr_optim_blocks(tr_graph_t *g, tr_tensor_t *out_gradient, tr_tensor_t *out_param);
/* adam and adamw differ in how weight decay enters. */
tr_status_t tr_optim_build_adam(tr_graph_t *g, const tr_optim_settings_t *settings,
                                tr_tensor_t ranges, bool decoupled);

/* Resolved: everything in steps, fractions allowed. */
struct tr_schedule {
    const struct tr_schedule_row *row;
    double lr;
    double total, warmup, decay;
    double gamma, final_factor;
    TR_VEC(double) milestones;
};

/* One schedule. factor returns the factor on the peak learning rate for a step after the warm-up,
 * warmup <= step <= total. */
typedef struct tr_schedule_row {
    const char *name, *help;
    double (*factor)(const tr_schedule_t *schedule, double step);
} tr_schedule_row_t;

#define SCHEDULE(symbol) extern const tr_schedule_row_t tr_schedule_##symbol;
#include "schedules.def"
#undef SCHEDULE

#endif
