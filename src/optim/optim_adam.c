/* adam: Kingma and Ba 2015. */
#include "optim_int.h"

tr_status_t tr_optim_build_adam(tr_graph_t *g, const tr_optim_settings_t *settings,
                                tr_tensor_t ranges, bool decoupled) {
    tr_tensor_t gradient, param, m, v;
    TR_TRY(tr_optim_blocks(g, &gradient, &param));
    TR_TRY(tr_optim_param_state(g, "adam.m", &m));
    TR_TRY(tr_optim_param_state(g, "adam.v", &v));
    tr_adam_attr_t attr = {.beta1 = (float)settings->beta1,
                           .beta2 = (float)settings->beta2,
                           .eps = (float)settings->eps,
                           .decoupled = decoupled};
    return tr_adam(g, gradient, param, m, v, ranges, &attr);
}

static tr_status_t adam_build(tr_graph_t *g, const tr_optim_settings_t *settings,
                              tr_tensor_t ranges) {
    return tr_optim_build_adam(g, settings, ranges, false);
}

const tr_optimizer_t tr_optimizer_adam = {
    .name = "adam",
    .help = "Adam, with weight decay added to the gradient.",
    .build = adam_build,
};
