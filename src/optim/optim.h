/*
 * Optimizers and learning-rate schedules. An optimizer is one file and one line in optims.def. A
 * schedule is one row in schedule_rows.c and one line in schedules.def.
 */
#ifndef TR_OPTIM_OPTIM_H
#define TR_OPTIM_OPTIM_H

#include "config/config.h"
#include "graph/program.h"
#include "trainer/optim.h"

extern const tr_config_table_t tr_optim_config;

/* Registered optimizers; NULL after the last. */
const tr_optimizer_t *tr_optimizer_at(size_t index);
/* TR_ERR_CONFIG for an unknown type, with the nearest name. */
tr_status_t tr_optimizer_check(const tr_optim_settings_t *settings);
/*
 * Appends the whole update to the open program: the gradient norm of all trainable parameters with
 * `counts` = {samples, loss sum}, the update of all parameters, and the ema.
 */
tr_status_t tr_optimizer_build(tr_graph_t *g, const tr_optim_settings_t *settings,
                               tr_tensor_t counts, double batch_size);
/* The optimizer state with the moving average of the trainable parameters, if settings.ema > 0. */
#define TR_EMA_STATE "ema"
/* Where ranks share the optimizer's state: the sums of squares of the gradients, which are gathered
 * (tr_program_add_gathers). */
#define TR_OPTIM_SQUARES "optimizer.squares"
/*
 * Sets the average to the current parameters. Call it after the graph is initialised and model.init
 * is loaded, unless the optimizer state is loaded too.
 */
tr_status_t tr_optimizer_start(tr_graph_t *g);
/* After the state is loaded: gives the update the ages of the parameters' states
 * (tr_param_began). */
tr_status_t tr_optimizer_resume(tr_graph_t *g, const tr_optim_settings_t *settings);

/* The keys schedule.*. */
typedef struct {
    const char *type;
    const char *warmup; /* steps, "2epoch", "5%" of the run */
    /* step schedule: when lr is multiplied by gamma: "30epoch, 60epoch", "50%, 75%", or steps */
    const char *milestones;
    double gamma;
    double final_factor; /* final lr / peak lr */
    const char *decay;   /* wsd: length of the final decay */
} tr_schedule_settings_t;
extern const tr_config_table_t tr_schedule_config;

/* The name and help of schedule number `index`, from 0; NULL after the last. */
const char *tr_schedule_at(size_t index, const char **out_help);

typedef struct tr_schedule tr_schedule_t;
/* total_steps and steps_per_epoch (may be fractional) convert "epoch" and "%" to steps. */
tr_status_t tr_schedule_create(const tr_schedule_settings_t *settings, double lr,
                               int64_t total_steps, double steps_per_epoch, tr_schedule_t **out);
void tr_schedule_destroy(tr_schedule_t **schedule);
/*
 * Learning rate of optimizer step `step`, counted from 0. Warm-up of w steps: lr (step + 1) / w for
 * step < w. After it, with p = (step - w) / (total - w) and f = final_factor:
 *   cosine  lr (f + (1 - f) (1 + cos(pi p)) / 2)
 *   linear  lr (1 - (1 - f) p)
 *   wsd     lr until total - decay, then linear
 *   step    lr gamma^m after m milestones
 * The factor f would be reached at step `total`, one after the last.
 */
double tr_schedule_lr(const tr_schedule_t *schedule, int64_t step);
/* Parses "500", "500steps", "2epoch", "0.5 epochs" or "5%" to steps (may be fractional). Returns
 * false for other text. */
bool tr_parse_steps(const char *text, int64_t total_steps, double steps_per_epoch, double *out);

#endif
