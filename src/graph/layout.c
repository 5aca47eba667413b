/* The blocks of parameters, of reduced sums and of model states: where everything lies in them,
 * and the buckets. */
#include "graph_int.h"

#include <string.h>

static int64_t layout_round(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

/* Matrices and kernels are first in the block, and may be sharded among ranks. Biases and the
 * parameters of norms follow them. */
static bool layout_is_first(const tr_tensor_info_t *param) {
    return param->shape.ndim > 1;
}

/* Elements of a trained parameter, with the padding behind it. A matrix has blocks of the norm of its
 * own, so that the norm has the same bits wherever buckets begin. */
static int64_t layout_elems(const tr_tensor_info_t *param) {
    return layout_round(tr_shape_elems(&param->shape),
                        layout_is_first(param) ? TR_SQUARES_BLOCK : TR_BLOCK_ALIGN_ELEMS);
}

/* A part of a bucket is a multiple of what one sum of squares covers. */
static int64_t layout_unit(const tr_graph_t *g) {
    return g->sharding.ranks * (int64_t)TR_SQUARES_BLOCK;
}

/* Places a parameter behind those of its kind. Where gradients are sharded, a matrix is in one bucket. */
static tr_status_t layout_append(tr_graph_t *g, tr_tensor_rec_t *param) {
    const bool is_first = layout_is_first(&param->info);
    const int64_t elems = layout_elems(&param->info);
    int64_t *end = &g->placed_elems[!is_first];
    if (is_first && tr_gradients_are_sharded(g)) {
        const size_t count = g->buckets.count,
                     limit = count == 1 ? g->sharding.first_bytes : g->sharding.bytes;
        const int64_t first = count == 0 ? 0 : g->buckets.data[count - 1].first;
        if (count == 0 || (size_t)(*end + elems - first) * sizeof(float) > limit) {
            *end = layout_round(*end, layout_unit(g));
            TR_TRY(tr_vec_push(&g->buckets, (tr_bucket_place_t){.first = *end}));
        }
        g->buckets.data[g->buckets.count - 1].used = *end + elems;
    }
    param->info.block_elems = *end;
    *end += elems;
    g->layout.sharded_elems = layout_round(g->placed_elems[0], layout_unit(g));
    g->layout.trainable_elems = g->layout.sharded_elems + g->placed_elems[1];
    return tr_vec_push(&g->order, param->id);
}

tr_status_t tr_layout_gradient(tr_graph_t *g, tr_tensor_t param, tr_tensor_t *out) {
    const tr_tensor_info_t info = *tr_tensor_info(g, param);
    tr_str_t name = {0};
    char *text = NULL;
    tr_str_printf(&name, "%s.grad", info.name);
    TR_TRY(tr_str_take(&name, &text));
    *out = tr_graph_find(g, text);
    tr_status_t status = TR_OK;
    if (tr_is_none(*out)) {
        if (g->laid_out)
            status = TR_FAIL(
                TR_ERR_INTERNAL,
                "the gradient of '%s' appears after the blocks were laid out: every training "
                "program must use the same parameters",
                info.name);
        else
            status = tr_tensor_make(g, text, TR_ROLE_REDUCED, TR_F32, &info.shape, out);
        if (status == TR_OK) {
            tr_rec(g, param)->gradient = *out;
            status = layout_append(g, tr_rec(g, param));
        }
    }
    tr_free(&text);
    return status;
}

static tr_status_t layout_pad(tr_graph_t *g, int64_t first, int64_t end) {
    const tr_padding_t padding = {first, end - first};
    return padding.count > 0 ? tr_vec_push(&g->padding, padding) : TR_OK;
}

/* Places the trained parameters in the block, each kind behind the one before, and their gradients. */
static tr_status_t layout_place(tr_graph_t *g) {
    int64_t end = 0; /* of the matrix before */
    for (size_t i = 0; i < g->order.count; i++) {
        tr_tensor_rec_t *param = g->tensors.data[g->order.data[i]];
        int64_t *at = &param->info.block_elems;
        if (layout_is_first(&param->info)) {
            TR_TRY(layout_pad(g, end, *at));
            end = *at + tr_shape_elems(&param->info.shape);
        } else {
            *at += g->layout.sharded_elems;
        }
        tr_rec(g, param->gradient)->info.block_elems = *at;
    }
    return layout_pad(g, end, g->layout.sharded_elems);
}

tr_status_t tr_layout_fix(tr_graph_t *g) {
    if (g->laid_out) return TR_OK;
    int64_t params = g->layout.trainable_elems, reduced = params, states = 0;
    TR_TRY(layout_place(g));
    for (size_t i = 1; i < g->tensors.count; i++) {
        tr_tensor_info_t *info = &g->tensors.data[i]->info;
        if (info->block_elems >= 0 || tr_dtype_is_half(info->dtype)) continue;
        int64_t *end = info->role == TR_ROLE_PARAM         ? &params
                       : info->role == TR_ROLE_REDUCED     ? &reduced
                       : info->role == TR_ROLE_MODEL_STATE ? &states
                                                           : NULL;
        if (!end) continue;
        info->block_elems = *end;
        *end += layout_round(tr_shape_elems(&info->shape), TR_BLOCK_ALIGN_ELEMS);
    }
    g->layout.frozen_elems = params - g->layout.trainable_elems;
    g->layout.reduced_elems = reduced;
    g->laid_out = true;
    g->layout.param_elems = params;
    TR_TRY(
        tr_tensor_make(g, "parameter block", TR_ROLE_PARAM, TR_F32,
                       &TR_SHAPE(tr_masters_are_sharded(g) ? tr_sharded_elems(g, params) : params),
                       &g->param_block));
    TR_TRY(tr_tensor_make(g, "reduced block", TR_ROLE_REDUCED, TR_F32,
                          &TR_SHAPE(tr_reduced_place(g, reduced)), &g->reduced_block));
    tr_rec(g, g->param_block)->info.block_elems = 0;
    tr_rec(g, g->reduced_block)->info.block_elems = 0;
    TR_TRY(tr_copies_lay_out(g));
    if (states == 0) return TR_OK;
    TR_TRY(tr_tensor_make(g, "model state block", TR_ROLE_MODEL_STATE, TR_F32, &TR_SHAPE(states),
                          &g->state_block));
    tr_rec(g, g->state_block)->info.block_elems = 0;
    return TR_OK;
}

tr_tensor_t tr_gradient(const tr_graph_t *g, tr_tensor_t param) {
    return tr_rec(g, param)->gradient;
}

tr_layout_t tr_graph_layout(const tr_graph_t *g) {
    return g->layout;
}

bool tr_is_param(const tr_graph_t *g, tr_tensor_t t) {
    return tr_tensor_info(g, t)->role == TR_ROLE_PARAM && t.id != g->param_block.id;
}

bool tr_is_trained(const tr_graph_t *g, tr_tensor_t t) {
    return !tr_is_none(tr_rec(g, t)->gradient);
}

void tr_param_began(tr_graph_t *g, tr_tensor_t param, int32_t updates_before) {
    tr_rec(g, param)->info.updates_before = updates_before;
}

bool tr_is_model_state(const tr_graph_t *g, tr_tensor_t t) {
    return tr_tensor_info(g, t)->role == TR_ROLE_MODEL_STATE && t.id != g->state_block.id;
}

tr_status_t tr_param_range(tr_graph_t *g, int64_t first, int64_t count, tr_tensor_t *out) {
    TR_TRY(tr_layout_fix(g));
    return tr_slice(g, g->param_block, first, count, out);
}

tr_status_t tr_reduced_range(tr_graph_t *g, int64_t first, int64_t count, tr_tensor_t *out) {
    TR_TRY(tr_layout_fix(g));
    if (tr_gradients_are_sharded(g) && count > 0 && first < g->layout.sharded_elems)
        return TR_FAIL(TR_ERR_CONFIG,
                       "the gradients of the elements from %lld on are asked for as a whole, but "
                       "with parallel.zero = 2 each rank has its part: set parallel.zero = 1",
                       (long long)first);
    return tr_slice(g, g->reduced_block, tr_reduced_place(g, first), count, out);
}

tr_status_t tr_model_state_block(tr_graph_t *g, tr_tensor_t *out) {
    TR_TRY(tr_layout_fix(g));
    *out = g->state_block;
    return TR_OK;
}

tr_status_t tr_graph_param_groups(const tr_graph_t *g, tr_param_group_t **out, size_t *out_count) {
    TR_VEC(tr_param_group_t) groups = {0};
    const size_t params = g->order.count;
    for (size_t i = 0; i < 2 * params; i++) { /* those that are first, then the others */
        const tr_tensor_info_t *info = &g->tensors.data[g->order.data[i % params]]->info;
        if (layout_is_first(info) != (i < params)) continue;
        const int64_t first = groups.count ? groups.data[groups.count - 1].first +
                                                 groups.data[groups.count - 1].count
                                           : 0,
                      count = info->block_elems - first + layout_elems(info);
        tr_param_group_t *last = groups.count ? &groups.data[groups.count - 1] : NULL;
        if (last && last->decay == info->param.decay && last->lr_factor == info->param.lr_factor &&
            last->before == info->updates_before) {
            last->count += count;
            continue;
        }
        const tr_param_group_t group = {first, count, info->param.decay, info->param.lr_factor,
                                        info->updates_before};
        const tr_status_t status = tr_vec_push(&groups, group);
        if (status != TR_OK) {
            tr_vec_free(&groups);
            return status;
        }
    }
    if (groups.count > 0) {
        tr_param_group_t *last = &groups.data[groups.count - 1];
        last->count = g->layout.trainable_elems - last->first;
    }
    *out = groups.data;
    *out_count = groups.count;
    return TR_OK;
}

/* -- parts of ranks ---------------------------------------------------------------------------- */

void tr_graph_shard(tr_graph_t *g, const tr_sharding_t *sharding) {
    g->sharding = *sharding;
}

const tr_sharding_t *tr_graph_sharding(const tr_graph_t *g) {
    return &g->sharding;
}

bool tr_graph_is_sharded(const tr_graph_t *g) {
    return g->sharding.ranks > 1;
}

void tr_graph_use_part(tr_graph_t *g, const tr_part_t *part) {
    g->part = *part;
}

tr_part_t tr_graph_part(const tr_graph_t *g) {
    tr_part_t part = g->part;
    if (part.end == 0) (void)tr_next_part(g, g->sharding.rank, &part);
    return part;
}

tr_status_t tr_param_part(tr_graph_t *g, tr_tensor_t *out) {
    const tr_part_t part = tr_graph_part(g);
    return tr_param_range(g, tr_masters_are_sharded(g) ? part.place : part.first, part.count, out);
}

tr_status_t tr_gradient_part(tr_graph_t *g, tr_tensor_t *out) {
    const tr_part_t part = tr_graph_part(g);
    TR_TRY(tr_layout_fix(g));
    return tr_slice(g, g->reduced_block, tr_gradients_are_sharded(g) ? part.place : part.first,
                    part.count, out);
}

bool tr_gradients_are_sharded(const tr_graph_t *g) {
    return tr_graph_is_sharded(g) && g->sharding.gradients;
}

bool tr_gradient_is_sharded(const tr_graph_t *g, tr_tensor_t param) {
    return tr_gradients_are_sharded(g) && layout_is_first(tr_tensor_info(g, param));
}

int64_t tr_reduced_place(const tr_graph_t *g, int64_t at) {
    return tr_gradients_are_sharded(g) ? tr_sharded_elems(g, at) : at;
}

bool tr_masters_are_sharded(const tr_graph_t *g) {
    return tr_graph_is_sharded(g) && tr_has_copies(g);
}

int64_t tr_sharded_elems(const tr_graph_t *g, int64_t elems) {
    const int64_t sharded = g->layout.sharded_elems;
    return sharded / g->sharding.ranks + elems - sharded;
}

int64_t tr_bucket_end(const tr_graph_t *g, int64_t first) {
    const bool is_sharded = tr_graph_is_sharded(g);
    const size_t bytes = first == 0 ? g->sharding.first_bytes : g->sharding.bytes;
    const int64_t limit = (int64_t)(bytes / sizeof(float)),
                  unit = is_sharded ? layout_unit(g) : TR_BLOCK_ALIGN_ELEMS,
                  all = is_sharded ? g->layout.sharded_elems : g->layout.reduced_elems,
                  end = first + layout_round(limit > 0 ? limit : 1, unit);
    return end < all ? end : all;
}

bool tr_next_part(const tr_graph_t *g, int rank, tr_part_t *part) {
    const int64_t sharded = g->layout.sharded_elems, all = g->layout.trainable_elems;
    const int ranks = g->sharding.ranks;
    const int64_t first = part->end;
    if (first >= all) return false;
    const int next = part->number + 1;
    if (!tr_graph_is_sharded(g) || first >= sharded) {
        const int64_t begin = tr_graph_is_sharded(g) ? sharded : 0;
        *part = (tr_part_t){begin, all - begin, begin / ranks, begin, all, all, next};
        return true;
    }
    int64_t end = sharded, used = g->placed_elems[0];
    if (!tr_gradients_are_sharded(g)) {
        end = tr_bucket_end(g, first);
    } else {
        used = g->buckets.data[part->number].used;
        if ((size_t)next < g->buckets.count) end = g->buckets.data[next].first;
    }
    const int64_t count = (end - first) / ranks;
    *part = (tr_part_t){first + rank * count,    count, first / ranks, first,
                        used < end ? used : end, end,   next};
    return true;
}
