/*
 * Optimizers of an embedding program. An optimizer is a function that appends ops, as a model is.
 */
#ifndef TRAINER_OPTIM_H
#define TRAINER_OPTIM_H

#include "trainer/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The keys optimizer.*, including those of single optimizers (momentum, beta1, ...). */
typedef struct {
    const char *type;
    double lr, weight_decay, clip_norm, momentum, beta1, beta2, eps, ema;
    bool nesterov;
    double loss_scale;         /* initial loss scale in fp16 */
    int64_t loss_scale_growth; /* steps without overflow after which it doubles; 0: never */
    bool halts; /* no key: no update after a step that is not finite and did not overflow */
} tr_optim_settings_t;

typedef struct {
    const char *name, *help;
    /*
     * Appends the update of all trainable parameters to the open program: elements
     * [0, trainable_elems) of the parameter block (tr_param_range), from the same elements of the
     * reduced block (tr_reduced_range). State from tr_optim_state mirrors them. ranges: the weight
     * decay and learning-rate factor of each range, for tr_sgd and tr_adam.
     */
    tr_status_t (*build)(tr_graph_t *g, const tr_optim_settings_t *settings, tr_tensor_t ranges);
} tr_optimizer_t;
/* optimizer is borrowed and must outlive every use. TR_ERR_CONFIG if the name is already registered.
 * Not collective. */
tr_status_t tr_optimizer_register(const tr_optimizer_t *optimizer);

#ifdef __cplusplus
}
#endif

#endif
