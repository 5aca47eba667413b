/* adamw: Adam with decoupled weight decay, Loshchilov and Hutter 2019. */
#include "optim_int.h"

static tr_status_t adamw_build(tr_graph_t *g, const tr_optim_settings_t *settings,
                               tr_tensor_t ranges) {
    return tr_optim_build_adam(g, settings, ranges, true);
}

const tr_optimizer_t tr_optimizer_adamw = {
    .name = "adamw",
    .help = "Adam with weight decay decoupled from the gradient.",
    .build = adamw_build,
};
