/* The blocks of parameters, of reduced sums and of model states: where everything lies in them,
 * and the buckets. */
#include "graph_int.h"

#include <string.h>

static int64_t layout_round(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

static int64_t layout_align_elems(int64_t n) {
    return layout_round(n, TR_BLOCK_ALIGN_ELEMS);
}

/* Matrices and kernels are first in the block, and may be sharded among ranks. Biases and the
 * parameters of norms follow them. */
static bool layout_is_first(const tr_tensor_info_t *param) {
    return param->shape.ndim > 1;
}

/* A part of a bucket is a multiple of what one sum of squares covers. */
static int64_t layout_unit(const tr_graph_t *g) {
    return g->sharding.ranks * (int64_t)TR_SQUARES_BLOCK;
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
            g->placed_elems[!layout_is_first(&info)] +=
                layout_align_elems(tr_shape_elems(&info.shape));
            g->layout.sharded_elems = layout_round(g->placed_elems[0], layout_unit(g));
            g->layout.padding_elems =
                g->layout.sharded_elems - layout_round(g->placed_elems[0], TR_SQUARES_BLOCK);
            g->layout.trainable_elems = g->layout.sharded_elems + g->placed_elems[1];
            status = tr_vec_push(&g->order, param.id);
        }
    }
    tr_free(&text);
    return status;
}

/* Places the parameters of one kind, with their gradients, from element `at` on, up to `end`. */
static tr_status_t layout_place(tr_graph_t *g, bool is_first, int64_t at, int64_t end) {
    for (size_t i = 0; i < g->order.count; i++) {
        tr_tensor_rec_t *param = g->tensors.data[g->order.data[i]];
        const int64_t elems = tr_shape_elems(&param->info.shape);
        if (layout_is_first(&param->info) != is_first) continue;
        param->info.block_elems = tr_rec(g, param->gradient)->info.block_elems = at;
        const tr_padding_t behind = {at + elems, layout_align_elems(elems) - elems};
        if (is_first && behind.count > 0) TR_TRY(tr_vec_push(&g->padding, behind));
        at += layout_align_elems(elems);
    }
    const tr_padding_t behind = {at, end - at};
    return is_first && behind.count > 0 ? tr_vec_push(&g->padding, behind) : TR_OK;
}

tr_status_t tr_layout_fix(tr_graph_t *g) {
    if (g->laid_out) return TR_OK;
    int64_t params = g->layout.trainable_elems, reduced = params, states = 0;
    TR_TRY(layout_place(g, true, 0, g->layout.sharded_elems));
    TR_TRY(layout_place(g, false, g->layout.sharded_elems, params));
    for (size_t i = 1; i < g->tensors.count; i++) {
        tr_tensor_info_t *info = &g->tensors.data[i]->info;
        if (info->block_elems >= 0 || tr_dtype_is_half(info->dtype)) continue;
        int64_t *end = info->role == TR_ROLE_PARAM         ? &params
                       : info->role == TR_ROLE_REDUCED     ? &reduced
                       : info->role == TR_ROLE_MODEL_STATE ? &states
                                                           : NULL;
        if (!end) continue;
        info->block_elems = *end;
        *end += layout_align_elems(tr_shape_elems(&info->shape));
    }
    g->layout.frozen_elems = params - g->layout.trainable_elems;
    g->layout.reduced_elems = reduced;
    g->laid_out = true;
    g->layout.param_elems = params;
    TR_TRY(
        tr_tensor_make(g, "parameter block", TR_ROLE_PARAM, TR_F32,
                       &TR_SHAPE(tr_masters_are_sharded(g) ? tr_sharded_elems(g, params) : params),
                       &g->param_block));
    TR_TRY(tr_tensor_make(g, "reduced block", TR_ROLE_REDUCED, TR_F32, &TR_SHAPE(reduced),
                          &g->reduced_block));
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
    return tr_slice(g, g->reduced_block, first, count, out);
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
                      count = info->block_elems - first +
                              layout_align_elems(tr_shape_elems(&info->shape));
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

bool tr_masters_are_sharded(const tr_graph_t *g) {
    return tr_graph_is_sharded(g) && tr_has_copies(g);
}

int64_t tr_sharded_elems(const tr_graph_t *g, int64_t elems) {
    const int64_t sharded = g->layout.sharded_elems;
    return sharded / g->sharding.ranks + elems - sharded;
}

/* End of the bucket that begins at `first`. Without parts of ranks, the last one takes the sums that
 * follow the gradients. */
static int64_t layout_bucket_end(const tr_graph_t *g, int64_t first) {
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
    if (!tr_graph_is_sharded(g) || first >= sharded) {
        const int64_t begin = tr_graph_is_sharded(g) ? sharded : 0;
        *part = (tr_part_t){begin, all - begin, begin / ranks, begin, all};
        return true;
    }
    const int64_t end = layout_bucket_end(g, first), count = (end - first) / ranks;
    *part = (tr_part_t){first + rank * count, count, first / ranks, first, end};
    return true;
}

/* -- collectives ------------------------------------------------------------------------------- */

/* Whether `t` has elements in [first, end) of `block`, or of the tensors in the block of its role. */
static bool layout_overlaps(const tr_graph_t *g, tr_tensor_t t, tr_tensor_t block, int64_t first,
                            int64_t end) {
    if (tr_is_none(t)) return false;
    const tr_tensor_info_t *info = tr_tensor_info(g, t), *base = &tr_rec_base(g, t)->info;
    const bool is_member = base->role == tr_tensor_info(g, block)->role && base->block_elems >= 0;
    const int64_t at = (base->block_elems > 0 ? base->block_elems : 0) +
                       (info->role == TR_ROLE_VIEW ? info->view_elems : 0);
    return (is_member || tr_base(g, t).id == block.id) && at < end &&
           at + tr_shape_elems(&info->shape) > first;
}

/* Index of the last op of `p` that writes into these elements, or, with `reads`, reads them; -1:
 * none does. */
static int layout_last_use(const tr_graph_t *g, const tr_program_t *p, tr_tensor_t block,
                           int64_t first, int64_t end, bool reads) {
    for (int i = (int)p->nodes.count - 1; i >= 0; i--) {
        const tr_op_t *op = &p->nodes.data[i]->op;
        for (int o = 0; o < op->n_out; o++)
            if (layout_overlaps(g, op->out[o], block, first, end)) return i;
        for (int k = 0; k < op->n_in && reads; k++)
            if (layout_overlaps(g, op->in[k], block, first, end)) return i;
    }
    return -1;
}

static tr_status_t program_insert(tr_program_t *p, size_t at, const char *label,
                                  const tr_op_t *op) {
    tr_node_t *node = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *node, "op record", &node));
    TR_TRY_GOTO(tr_strdup(label, &node->label), fail);
    node->op = *op;
    node->op.label = node->label;
    TR_TRY_GOTO(tr_vec_push(&p->nodes, NULL), fail);
    memmove(&p->nodes.data[at + 1], &p->nodes.data[at],
            (p->nodes.count - 1 - at) * sizeof *p->nodes.data);
    p->nodes.data[at] = node;
    return TR_OK;
fail:
    tr_free(&node->label);
    tr_free(&node);
    return status;
}

tr_status_t tr_zero_extra_reductions(tr_graph_t *g) {
    tr_program_t *p = tr_open_program(g);
    return program_insert(p, p->nodes.count, "zero", &(tr_op_t){.kind = TR_OP_ZERO});
}

static tr_status_t layout_insert_wait(tr_program_t *p, size_t at) {
    return program_insert(p, at, "wait",
                          &(tr_op_t){.kind = TR_OP_WAIT, .backward = true, .bucket = -1});
}

static tr_status_t layout_insert(tr_program_t *p, size_t at, int bucket, const char *label,
                                 const tr_collective_op_t *what) {
    return program_insert(
        p, at, label,
        &(tr_op_t){
            .kind = TR_OP_COLLECTIVE, .backward = true, .bucket = bucket, .collective = *what});
}

tr_status_t tr_program_add_reductions(tr_graph_t *g, int program, bool overlap) {
    tr_program_t *p = g->programs.data[program];
    if (!p->ended || g->planned)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "reductions are added to '%s' before its end or after the plan", p->name);
    TR_TRY(tr_layout_fix(g));
    /* In the buckets' order on every rank: one that adds up several slots finishes ranges in
     * another order than one that has a single slot. */
    size_t behind = 0;
    int64_t end;
    for (int64_t first = 0, bucket = 0; first < g->layout.reduced_elems; bucket++, first = end) {
        const bool scatters = tr_graph_is_sharded(g) && first < g->layout.sharded_elems;
        end = scatters || !tr_graph_is_sharded(g) ? layout_bucket_end(g, first)
                                                  : g->layout.reduced_elems;
        const int last = layout_last_use(g, p, g->reduced_block, first, end, false);
        size_t at = overlap ? (size_t)(last + 1) : p->nodes.count;
        if (at < behind) at = behind;
        const tr_collective_op_t sum = {scatters ? TR_REDUCE_SCATTER : TR_ALLREDUCE,
                                        g->reduced_block,
                                        first,
                                        end - first,
                                        TR_F32,
                                        TR_GROUP_ALL};
        TR_TRY(layout_insert(p, at, (int)bucket, scatters ? "reduce-scatter" : "allreduce", &sum));
        behind = at + 1;
    }
    return layout_insert_wait(p, p->nodes.count);
}

tr_status_t tr_program_add_gathers(tr_graph_t *g, int program, tr_tensor_t sums) {
    tr_program_t *p = g->programs.data[program];
    if (!tr_graph_is_sharded(g)) return TR_OK;
    const int64_t count = g->layout.sharded_elems / TR_SQUARES_BLOCK;
    if (!tr_is_none(sums) && count > 0) {
        const tr_collective_op_t gather = {TR_ALLGATHER, sums, 0, count, TR_F64, TR_GROUP_ALL};
        const size_t at = (size_t)(layout_last_use(g, p, sums, 0, count, false) + 1);
        TR_TRY(layout_insert(p, at, -1, "all-gather", &gather));
        TR_TRY(layout_insert_wait(p, at + 1));
    }
    /* Copies are moved as they lie, as numbers of four bytes: every engine has those. */
    const bool has_copies = tr_has_copies(g);
    const tr_tensor_t block = has_copies ? g->copy_block : g->param_block;
    const int share = has_copies ? 2 : 1;
    tr_part_t part = {0};
    size_t behind = 0;
    for (int bucket = 0; tr_next_part(g, g->sharding.rank, &part); bucket++) {
        if (part.bucket >= g->layout.sharded_elems) break;
        const tr_collective_op_t gather = {
            TR_ALLGATHER, block,       part.bucket / share, (part.end - part.bucket) / share,
            TR_F32,       TR_GROUP_ALL};
        const int last = layout_last_use(g, p, block, part.first, part.first + part.count, true);
        if (last >= 0 && (size_t)last + 1 > behind) behind = (size_t)last + 1;
        TR_TRY(layout_insert(p, behind++, bucket, "all-gather", &gather));
    }
    return layout_insert_wait(p, p->nodes.count);
}
