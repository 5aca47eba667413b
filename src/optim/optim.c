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
    const tr_part_t part = tr_graph_part(g);
    const int64_t elems = tr_sharded_elems(g, tr_graph_layout(g).trainable_elems);
    TR_TRY(tr_optim_state(g, name, TR_F32, &TR_SHAPE(elems), true, out));
    return part.count == elems ? TR_OK : tr_slice(g, *out, part.place, part.count, out);
}

tr_status_t tr_optim_blocks(tr_graph_t *g, tr_tensor_t *out_gradient, tr_tensor_t *out_param) {
    TR_TRY(tr_gradient_part(g, out_gradient));
    return tr_param_part(g, out_param);
}

/* The table of ranges of the part in use, with equal weight decay, learning-rate factor and age of
 * the optimizer state. It has room for a range per parameter: those outside of the part are empty. */
static tr_status_t optim_make_ranges(tr_graph_t *g, const tr_optim_settings_t *settings,
                                     tr_tensor_t *out) {
    const tr_part_t part = tr_graph_part(g);
    tr_param_group_t *groups = NULL;
    tr_update_range_t *ranges = NULL;
    size_t count, room = 0;
    char name[64];
    tr_status_t status = TR_OK;
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++)
        room += tr_is_trained(g, (tr_tensor_t){id});
    TR_TRY(tr_graph_param_groups(g, &groups, &count));
    TR_TRY_GOTO(tr_alloc(room * sizeof *ranges, "the optimizer's ranges", &ranges), done);
    for (size_t i = 0; i < room; i++) {
        const tr_param_group_t *group = &groups[i < count ? i : count - 1];
        const int64_t end = group->first + group->count - part.first;
        ranges[i].end = end < 0 ? 0 : end < part.count ? end : part.count;
        ranges[i].decay = group->decay ? (float)settings->weight_decay : 0;
        ranges[i].lr_factor = group->lr_factor;
        ranges[i].before = group->before;
    }
    tr_snprintf(name, sizeof name, part.bucket > 0 ? "optimizer.ranges.%lld" : "optimizer.ranges",
                (long long)part.bucket);
    status = tr_const_bytes(g, name, ranges, room * sizeof *ranges, out);
    if (status == TR_OK && tr_tensor_info(g, *out)->data) status = tr_tensor_write(g, *out, ranges);
done:
    tr_free(&ranges);
    tr_free(&groups);
    return status;
}

/* Calls `build` for each part of this rank. */
static tr_status_t optim_build_parts(tr_graph_t *g, const tr_optim_settings_t *settings,
                                     tr_status_t (*build)(tr_graph_t *,
                                                          const tr_optim_settings_t *)) {
    tr_part_t part = {0};
    while (tr_next_part(g, tr_graph_sharding(g)->rank, &part)) {
        tr_graph_use_part(g, &part);
        TR_TRY(build(g, settings));
    }
    tr_graph_use_part(g, &(tr_part_t){0});
    return TR_OK;
}

static tr_status_t optim_build_average(tr_graph_t *g, double decay) {
    tr_tensor_t gradient, param, average;
    TR_TRY(tr_optim_blocks(g, &gradient, &param));
    TR_TRY(tr_optim_param_state(g, TR_EMA_STATE, &average));
    return tr_ema(g, param, average, (float)decay);
}

static tr_status_t optim_build_part(tr_graph_t *g, const tr_optim_settings_t *settings) {
    const tr_optimizer_t *optimizer = tr_registry_find(&optimizers, settings->type);
    tr_tensor_t ranges;
    TR_TRY(optim_make_ranges(g, settings, &ranges));
    TR_TRY(optimizer->build(g, settings, ranges));
    return settings->ema > 0 ? optim_build_average(g, settings->ema) : TR_OK;
}

/* -- the norm of what ranks share -------------------------------------------------------------- */

/* Blocks whose squares are summed: of a rank's parts, and of what every rank has. */
typedef struct {
    int64_t of_rank, others;
} optim_blocks_t;

/* The sums of each rank lie one behind the other, so that they can be gathered; those of what every
 * rank has follow. They are added in the order of the parameters, without the padding at the end of
 * the parts: as without parts of ranks. */
static tr_status_t optim_order_sums(tr_graph_t *g, const optim_blocks_t *blocks, tr_tensor_t *out) {
    const int64_t ranks = tr_graph_sharding(g)->ranks, all = ranks * blocks->of_rank;
    int64_t count = 0;
    int32_t *places = NULL;
    TR_TRY(tr_alloc((size_t)(all + blocks->others) * sizeof *places, "order of sums", &places));
    for (tr_part_t part = {0};
         tr_next_part(g, 0, &part) && part.end <= tr_graph_layout(g).sharded_elems;) {
        const int64_t of_part = part.count / TR_SQUARES_BLOCK,
                      before = part.place / TR_SQUARES_BLOCK;
        for (int64_t i = 0; i < (part.used - part.bucket) / TR_SQUARES_BLOCK; i++)
            places[count++] = (int32_t)(i / of_part * blocks->of_rank + before + i % of_part);
    }
    for (int64_t i = 0; i < blocks->others; i++) places[count++] = (int32_t)(all + i);
    const tr_status_t status = tr_const_indices(g, "optimizer.order", places, count, out);
    tr_free(&places);
    return status;
}

static tr_status_t optim_build_shared_norm(tr_graph_t *g, tr_tensor_t counts,
                                           const tr_grad_norm_attr_t *attr) {
    const tr_layout_t layout = tr_graph_layout(g);
    const tr_sharding_t *sharding = tr_graph_sharding(g);
    const int64_t rest = layout.trainable_elems - layout.sharded_elems;
    const optim_blocks_t blocks = {layout.sharded_elems / sharding->ranks / TR_SQUARES_BLOCK,
                                   (rest + TR_SQUARES_BLOCK - 1) / TR_SQUARES_BLOCK};
    tr_part_t part = {0};
    tr_tensor_t sums, order;
    TR_TRY(tr_cache(g, TR_OPTIM_SQUARES, TR_F64,
                    &TR_SHAPE(blocks.of_rank * sharding->ranks + blocks.others), &sums));
    while (tr_next_part(g, sharding->rank, &part)) {
        const bool is_rest = part.first >= layout.sharded_elems;
        const int64_t at = is_rest
                               ? sharding->ranks * blocks.of_rank
                               : sharding->rank * blocks.of_rank + part.place / TR_SQUARES_BLOCK;
        tr_tensor_t gradient, place;
        tr_graph_use_part(g, &part);
        TR_TRY(tr_gradient_part(g, &gradient));
        TR_TRY(
            tr_slice(g, sums, at, (part.count + TR_SQUARES_BLOCK - 1) / TR_SQUARES_BLOCK, &place));
        TR_TRY(tr_block_squares(g, gradient, place));
    }
    tr_graph_use_part(g, &(tr_part_t){0});
    TR_TRY(optim_order_sums(g, &blocks, &order));
    return tr_grad_norm_of(g, sums, order, counts, tr_graph_find(g, TR_LOSS_SCALE_STATE), attr);
}

static tr_status_t optim_build_whole_norm(tr_graph_t *g, tr_tensor_t counts,
                                          const tr_grad_norm_attr_t *attr) {
    tr_tensor_t gradient;
    TR_TRY(tr_reduced_range(g, 0, tr_graph_layout(g).trainable_elems, &gradient));
    return tr_grad_norm(g, gradient, counts, tr_graph_find(g, TR_LOSS_SCALE_STATE), attr);
}

/* An optimizer of an embedding program updates all parameters at once. */
static tr_status_t optim_check_parts(const tr_graph_t *g, const char *type) {
    const tr_optimizer_t *optimizer = tr_registry_find(&optimizers, type);
    if (!tr_graph_is_sharded(g)) return TR_OK;
#define OPTIMIZER(symbol)                                                                          \
    if (optimizer == &tr_optimizer_##symbol) return TR_OK;
#include "optims.def"
#undef OPTIMIZER
    return TR_FAIL(TR_ERR_CONFIG,
                   "parallel.zero is not supported with optimizer.type = %s, which this program "
                   "registered: set parallel.zero = none",
                   type);
}

tr_status_t tr_optimizer_build(tr_graph_t *g, const tr_optim_settings_t *settings,
                               tr_tensor_t counts, double batch_size) {
    TR_TRY(tr_optimizer_check(settings));
    TR_TRY(optim_check_parts(g, settings->type));
    if (tr_graph_layout(g).trainable_elems == 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "nothing to train: the model has no parameters, or all are frozen by "
                       "trainable=no or model.freeze.");
    const tr_grad_norm_attr_t attr = {.batch_size = batch_size,
                                      .clip = (float)settings->clip_norm,
                                      .growth_steps = (int32_t)settings->loss_scale_growth,
                                      .halts = settings->halts};
    tr_scope_push(g, "optimizer");
    tr_status_t status = tr_graph_is_sharded(g) ? optim_build_shared_norm(g, counts, &attr)
                                                : optim_build_whole_norm(g, counts, &attr);
    if (status == TR_OK) status = optim_build_parts(g, settings, optim_build_part);
    tr_scope_pop(g);
    TR_TRY(status);
    return TR_OK;
}

static tr_status_t optim_resume_part(tr_graph_t *g, const tr_optim_settings_t *settings) {
    tr_tensor_t ranges;
    return optim_make_ranges(g, settings, &ranges);
}

tr_status_t tr_optimizer_resume(tr_graph_t *g, const tr_optim_settings_t *settings) {
    return optim_build_parts(g, settings, optim_resume_part);
}

tr_status_t tr_optimizer_start(tr_graph_t *g) {
    const tr_tensor_t average = tr_graph_find(g, TR_EMA_STATE);
    return tr_is_none(average) ? TR_OK : tr_params_copy(g, average, false);
}
