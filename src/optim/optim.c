/* The registry of optimizers, and the update program. */
#include "base/registry.h"
#include "graph/program.h"
#include "optim_int.h"
#include "trainer/ops.h"

static const tr_config_field_t fields[] = {
    TR_FIELD_STRING(tr_optim_settings_t, type, "adamw", "Optimizer: sgd, adam, adamw.",
                    TR_RESUME_NOTE),
    TR_FIELD_FLOAT(tr_optim_settings_t, lr, "0.001", 0, 1e6,
                   "Peak learning rate; schedule.* changes it over the run.", TR_RESUME_NOTE),
    TR_FIELD_FLOAT(tr_optim_settings_t, weight_decay, "0", 0, 1e6,
                   "Weight decay of matrices and kernels; it never applies to biases and norms. "
                   "Typical: 0.01 for adamw, 1e-4 for sgd.",
                   TR_RESUME_NOTE),
    TR_FIELD_FLOAT(tr_optim_settings_t, clip_norm, "0", 0, 1e9,
                   "Maximum global L2 norm of the gradient; a larger gradient is scaled down to "
                   "it. 0: off.",
                   TR_RESUME_NOTE),
    TR_FIELD_FLOAT(tr_optim_settings_t, momentum, "0.9", 0, 0.9999, "sgd: momentum.",
                   TR_RESUME_NOTE),
    TR_FIELD_FLOAT(tr_optim_settings_t, beta1, "0.9", 0, 0.9999999,
                   "adam, adamw: decay of the first moment.", TR_RESUME_NOTE),
    TR_FIELD_FLOAT(tr_optim_settings_t, beta2, "0.999", 0, 0.9999999,
                   "adam, adamw: decay of the second moment.", TR_RESUME_NOTE),
    TR_FIELD_FLOAT(tr_optim_settings_t, eps, "1e-8", 1e-30, 1,
                   "adam, adamw: added to the root of the second moment.", TR_RESUME_NOTE),
    TR_FIELD_FLOAT(
        tr_optim_settings_t, ema, "0", 0, 0.9999999,
        "Decay of an exponential moving average (EMA) of the weights, such as 0.999. "
        "Evaluation and the model.safetensors of checkpoints use the average. Update t "
        "of the run uses the decay (1 + t) / (10 + t) if that is smaller, which reduces the "
        "influence of the initial weights. 0: off.",
        TR_RESUME_NOTE),
    TR_FIELD_FLOAT(
        tr_optim_settings_t, loss_scale, "65536", 1, 1073741824,
        "precision = fp16: the scale of the loss at the start. The gradient is computed "
        "times this factor, so that small values are not 0 in fp16. If it overflows, the "
        "step is skipped and the scale is halved.",
        TR_RESUME_NOTE),
    TR_FIELD_INT(tr_optim_settings_t, loss_scale_growth, "2000", 0, 16777215,
                 "precision = fp16: the scale is doubled after this many steps in a row without an "
                 "overflow. 0: never.",
                 TR_RESUME_NOTE),
    TR_FIELD_BOOL(tr_optim_settings_t, nesterov, "no", "sgd: Nesterov's momentum.", TR_RESUME_NOTE),
};
const tr_config_table_t tr_optim_config = {"optimizer", fields, TR_COUNT(fields),
                                           sizeof(tr_optim_settings_t)};

static tr_registry_t optimizers = {"optimizer",
                                   "optimizer.type",
                                   {
#define OPTIMIZER(symbol) &tr_optimizer_##symbol,
#include "optims.def"
#undef OPTIMIZER
                                   }};

const tr_optimizer_t *tr_optimizer_at(size_t index) {
    return tr_registry_at(&optimizers, index);
}

tr_status_t tr_optimizer_register(const tr_optimizer_t *optimizer) {
    if (optimizer->build == NULL)
        return TR_FAIL(TR_ERR_CONFIG, "The optimizer '%s' has no build function.",
                       optimizer->name ? optimizer->name : "(null)");
    return tr_registry_add(&optimizers, optimizer);
}

tr_status_t tr_optimizer_check(const tr_optim_settings_t *settings) {
    if (!tr_registry_find(&optimizers, settings->type))
        return tr_registry_fail_unknown(&optimizers, settings->type);
    if (settings->nesterov && settings->momentum == 0)
        return TR_FAIL(TR_ERR_CONFIG, "optimizer.nesterov = yes requires a momentum above 0: set "
                                      "optimizer.momentum = 0.9.");
    return TR_OK;
}

/* -- the update program ------------------------------------------------------------------------ */

tr_status_t tr_optim_param_state(tr_graph_t *g, const char *name, tr_tensor_t *out) {
    return tr_optim_state(g, name, TR_F32, &TR_SHAPE(tr_graph_layout(g).trainable_elems), true,
                          out);
}

tr_status_t tr_optim_blocks(tr_graph_t *g, tr_tensor_t *out_gradient, tr_tensor_t *out_param) {
    const int64_t trainable = tr_graph_layout(g).trainable_elems;
    TR_TRY(tr_reduced_range(g, 0, trainable, out_gradient));
    return tr_param_range(g, 0, trainable, out_param);
}

/* The table of ranges with equal weight decay, learning-rate factor and age of the optimizer state.
 * It has room for a range per parameter; those after the last are empty. */
static tr_status_t optim_make_ranges(tr_graph_t *g, const tr_optim_settings_t *settings,
                                     tr_tensor_t *out) {
    tr_param_group_t *groups = NULL;
    tr_update_range_t *ranges = NULL;
    size_t count, room = 0;
    tr_status_t status = TR_OK;
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++)
        room += tr_is_trained(g, (tr_tensor_t){id});
    TR_TRY(tr_graph_param_groups(g, &groups, &count));
    TR_TRY_GOTO(tr_alloc(room * sizeof *ranges, "the optimizer's ranges", &ranges), done);
    for (size_t i = 0; i < room; i++) {
        const tr_param_group_t *group = &groups[i < count ? i : count - 1];
        ranges[i].end = group->first + group->count;
        ranges[i].decay = group->decay ? (float)settings->weight_decay : 0;
        ranges[i].lr_factor = group->lr_factor;
        ranges[i].before = group->before;
    }
    status = tr_const_bytes(g, "optimizer.ranges", ranges, room * sizeof *ranges, out);
    if (status == TR_OK && tr_tensor_info(g, *out)->data) status = tr_tensor_write(g, *out, ranges);
done:
    tr_free(&ranges);
    tr_free(&groups);
    return status;
}

static tr_status_t optim_build_update(tr_graph_t *g, const tr_optim_settings_t *settings) {
    const tr_optimizer_t *optimizer = tr_registry_find(&optimizers, settings->type);
    tr_tensor_t ranges;
    TR_TRY(optim_make_ranges(g, settings, &ranges));
    return optimizer->build(g, settings, ranges);
}

static tr_status_t optim_build_average(tr_graph_t *g, double decay) {
    tr_tensor_t gradient, param, average;
    TR_TRY(tr_optim_blocks(g, &gradient, &param));
    TR_TRY(tr_optim_param_state(g, TR_EMA_STATE, &average));
    return tr_ema(g, param, average, (float)decay);
}

tr_status_t tr_optimizer_build(tr_graph_t *g, const tr_optim_settings_t *settings,
                               tr_tensor_t counts, double batch_size) {
    int64_t trainable = tr_graph_layout(g).trainable_elems;
    tr_tensor_t gradient;
    const tr_grad_norm_attr_t norm = {.batch_size = batch_size,
                                      .clip = (float)settings->clip_norm,
                                      .growth_steps = (int32_t)settings->loss_scale_growth,
                                      .halts = settings->halts};
    TR_TRY(tr_optimizer_check(settings));
    if (trainable == 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "nothing to train: the model has no parameters, or all are frozen by "
                       "trainable=no or model.freeze.");
    tr_scope_push(g, "optimizer");
    tr_status_t status = tr_reduced_range(g, 0, trainable, &gradient);
    if (status == TR_OK)
        status = tr_grad_norm(g, gradient, counts, tr_graph_find(g, TR_LOSS_SCALE_STATE), &norm);
    if (status == TR_OK) status = optim_build_update(g, settings);
    if (status == TR_OK && settings->ema > 0) status = optim_build_average(g, settings->ema);
    tr_scope_pop(g);
    TR_TRY(status);
    return TR_OK;
}

/* The parameters that have a gradient: without those that the loss does not depend on. */
static tr_status_t optim_read_trainable(tr_graph_t *g, float *values) {
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_t t = {id};
        if (tr_is_trained(g, t))
            TR_TRY(tr_tensor_read(g, t, values + tr_tensor_info(g, t)->block_elems));
    }
    return TR_OK;
}

tr_status_t tr_optimizer_resume(tr_graph_t *g, const tr_optim_settings_t *settings) {
    tr_tensor_t ranges;
    return optim_make_ranges(g, settings, &ranges);
}

tr_status_t tr_optimizer_start(tr_graph_t *g) {
    tr_tensor_t average = tr_graph_find(g, TR_EMA_STATE);
    float *values = NULL;
    if (tr_is_none(average)) return TR_OK;
    TR_TRY(tr_alloc((size_t)tr_graph_layout(g).trainable_elems * sizeof *values,
                    "the start of the weights' average", &values));
    tr_status_t status = optim_read_trainable(g, values);
    if (status == TR_OK) status = tr_tensor_write(g, average, values);
    tr_free(&values);
    TR_TRY(status);
    return TR_OK;
}
