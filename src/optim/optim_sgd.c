/* sgd: stochastic gradient descent with momentum. */
#include "optim_int.h"

static tr_status_t sgd_build(tr_graph_t *g, const tr_optim_settings_t *settings,
                             tr_tensor_t ranges) {
    tr_tensor_t gradient, param, momentum = TR_NONE;
    TR_TRY(tr_optim_blocks(g, &gradient, &param));
    if (settings->momentum > 0) TR_TRY(tr_optim_param_state(g, "sgd.momentum", &momentum));
    tr_sgd_attr_t attr = {.momentum = (float)settings->momentum, .nesterov = settings->nesterov};
    return tr_sgd(g, gradient, param, momentum, ranges, &attr);
}

const tr_optimizer_t tr_optimizer_sgd = {
    .name = "sgd",
    .help =
        "Stochastic gradient descent with momentum, optionally Nesterov, and weight decay added to "
        "the gradient.",
    .build = sgd_build,
};
