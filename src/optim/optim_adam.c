/* adam: Kingma and Ba 2015. */
#include "optim_int.h"

tr_status_t tr_optim_build_adam(tr_graph_t *g, const tr_optim_settings_t *settings,
                                const tr_param_group_t *group, bool decoupled) {
    tr_tensor_t gradient, param, m, v;
    TR_TRY(tr_optim_group_ranges(g, group, &gradient, &param));
    TR_TRY(tr_optim_state_range(g, "adam.m", group, &m));
    TR_TRY(tr_optim_state_range(g, "adam.v", group, &v));
    tr_adam_attr_t attr = {.beta1 = (float)settings->beta1,
                           .beta2 = (float)settings->beta2,
                           .eps = (float)settings->eps,
                           .decay = group->decay ? (float)settings->weight_decay : 0,
                           .lr_factor = group->lr_factor,
                           .decoupled = decoupled};
    return tr_adam(g, gradient, param, m, v, &attr);
}

static tr_status_t build(tr_graph_t *g, const tr_optim_settings_t *settings,
                         const tr_param_group_t *group) {
    return tr_optim_build_adam(g, settings, group, false);
}

const tr_optimizer_t tr_optimizer_adam = {
    .name = "adam",
    .help = "Adam, with weight decay added to the gradient.",
    .build = build,
};
