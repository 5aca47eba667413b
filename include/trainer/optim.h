/*
 * Optimizers and learning-rate schedules. An optimizer is one file and one line in optims.def, a
 * schedule likewise.
 */
#ifndef TRAINER_OPTIM_H
#define TRAINER_OPTIM_H

#include "trainer/config.h"
#include "trainer/graph.h"

/*
 * optimizer.*: type, lr, weight_decay, clip_norm, ema and the keys of every optimizer (momentum,
 * nesterov, beta1, beta2, eps).
 */
typedef struct {
    const char *type;
    double lr, weight_decay, clip_norm, momentum, beta1, beta2, eps, ema;
    bool nesterov;
} tr_optim_settings_t;
extern const tr_config_table_t tr_optim_config;

typedef struct {
    const char *name, *help;
    /*
     * Appends the update of all trainable parameters to the open program: of the elements
     * [0, trainable_elems) of the parameter block (tr_param_range) by those of the reduced block
     * (tr_reduced_range). States mirror them (tr_optim_state). `ranges`: the weight decay and
     * learning-rate factor of each range, for tr_sgd and tr_adam.
     */
    tr_status_t (*build)(tr_graph_t *g, const tr_optim_settings_t *settings, tr_tensor_t ranges);
} tr_optimizer_t;
/* Of the registered optimizers; NULL after the last. */
const tr_optimizer_t *tr_optimizer_at(size_t index);
tr_status_t tr_optimizer_register(const tr_optimizer_t *optimizer);
tr_status_t tr_optimizer_check(
    /* TR_ERR_CONFIG for an unknown type, with the nearest name */
    const tr_optim_settings_t *settings);
/*
 * Appends the whole update to the open program: grad_norm over [0, trainable) with `counts` =
 * {samples, loss sum}, the update of all parameters, the average.
 */
tr_status_t tr_optimizer_build(tr_graph_t *g, const tr_optim_settings_t *settings,
                               tr_tensor_t counts, double batch_size);
/*
 * The optimizer state that holds the average of the trainable parameters, where settings.ema > 0.
 */
#define TR_EMA_STATE "ema"
/*
 * Lets the average start at the present parameters: once the graph is initialised and model.init is
 * loaded, unless the optimizer state is loaded too.
 */
tr_status_t tr_optimizer_start(tr_graph_t *g);

/* schedule.*: type (constant, step, cosine, linear, wsd), warmup, decay_at, ... */
typedef struct {
    const char *type;
    const char *warmup; /* steps, "2epoch", "5%" of the run */
    /* step: where lr is multiplied by gamma: "30epoch, 60epoch", "50%, 75%", steps */
    const char *milestones;
    double gamma;
    double final_factor; /* lr at the end as a factor of the peak */
    const char *decay;   /* wsd: length of the final decay */
} tr_schedule_settings_t;
extern const tr_config_table_t tr_schedule_config;

/* The name of schedule.type number `index`, from 0, and what it does; NULL behind the last. */
const char *tr_schedule_at(size_t index, const char **out_help);

typedef struct tr_schedule tr_schedule_t;
/* total_steps and steps_per_epoch (may be fractional) resolve "epoch" and "%". */
tr_status_t tr_schedule_create(const tr_schedule_settings_t *settings, double lr,
                               int64_t total_steps, double steps_per_epoch, tr_schedule_t **out);
void tr_schedule_destroy(tr_schedule_t **schedule);
/*
 * Learning rate of optimizer step `step`, from 0. Warm-up of w steps: lr (step + 1) / w for step <
 * w. Behind it, with p = (step - w) / (total - w) and f = final_factor: cosine lr (f + (1 - f) (1 +
 * cos(pi p)) / 2), linear lr (1 - (1 - f) p); wsd: lr until total - decay, then linear; step: lr
 * gamma^m, m milestones passed. f would be reached at step `total`, one behind the last.
 */
double tr_schedule_lr(const tr_schedule_t *schedule, int64_t step);
/*
 * "500", "500steps", "2epoch", "0.5 epochs", "5%" -> steps (may be fractional); false where it is
 * none of these.
 */
bool tr_parse_steps(const char *text, int64_t total_steps, double steps_per_epoch, double *out);

#endif
