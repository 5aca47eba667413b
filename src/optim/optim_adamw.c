/* adamw: Adam with decoupled weight decay, Loshchilov and Hutter 2019. */
#include "optim_int.h"

static tr_status_t build(tr_graph_t *g, const tr_optim_settings_t *settings,
                         const tr_param_group_t *group) {
    return tr_optim_build_adam(g, settings, group, true);
}

const tr_optimizer_t tr_optimizer_adamw = {
    .name = "adamw",
    .help = "Adam with weight decay decoupled from the gradient.",
    .build = build,
};
