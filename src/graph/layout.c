/* The blocks of parameters, of reduced sums and of model states: where everything lies in them,
 * and the buckets. */
#include "graph_int.h"

#include <string.h>

static int64_t layout_align_elems(int64_t n) {
    return (n + TR_BLOCK_ALIGN_ELEMS - 1) / TR_BLOCK_ALIGN_ELEMS * TR_BLOCK_ALIGN_ELEMS;
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
            tr_rec(g, param)->info.block_elems = tr_rec(g, *out)->info.block_elems =
                g->layout.trainable_elems;
            g->layout.trainable_elems += layout_align_elems(tr_shape_elems(&info.shape));
            status = tr_vec_push(&g->order, param.id);
        }
    }
    tr_free(&text);
    return status;
}

tr_status_t tr_layout_fix(tr_graph_t *g) {
    if (g->laid_out) return TR_OK;
    int64_t params = g->layout.trainable_elems, reduced = params, states = 0;
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
    TR_TRY(tr_tensor_make(g, "parameter block", TR_ROLE_PARAM, TR_F32, &TR_SHAPE(params),
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
    const int64_t at = tr_tensor_info(g, param)->block_elems;
    if (!tr_is_trained(g, param)) return TR_NONE;
    for (size_t i = 1; i < g->tensors.count; i++) {
        const tr_tensor_t t = {(int32_t)i};
        const tr_tensor_info_t *info = tr_tensor_info(g, t);
        if (info->role == TR_ROLE_REDUCED && info->block_elems == at && t.id != g->reduced_block.id)
            return t;
    }
    return TR_NONE;
}

tr_layout_t tr_graph_layout(const tr_graph_t *g) {
    return g->layout;
}

bool tr_is_param(const tr_graph_t *g, tr_tensor_t t) {
    return tr_tensor_info(g, t)->role == TR_ROLE_PARAM && t.id != g->param_block.id;
}

bool tr_is_trained(const tr_graph_t *g, tr_tensor_t t) {
    const int64_t at = tr_tensor_info(g, t)->block_elems;
    return tr_is_param(g, t) && at >= 0 && at < g->layout.trainable_elems;
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
    for (size_t i = 0; i < g->order.count; i++) {
        const tr_tensor_info_t *info = &g->tensors.data[g->order.data[i]]->info;
        const int64_t count = layout_align_elems(tr_shape_elems(&info->shape));
        tr_param_group_t *last = groups.count ? &groups.data[groups.count - 1] : NULL;
        if (last && last->decay == info->param.decay && last->lr_factor == info->param.lr_factor &&
            last->before == info->updates_before) {
            last->count += count;
            continue;
        }
        const tr_param_group_t group = {info->block_elems, count, info->param.decay,
                                        info->param.lr_factor, info->updates_before};
        const tr_status_t status = tr_vec_push(&groups, group);
        if (status != TR_OK) {
            tr_vec_free(&groups);
            return status;
        }
    }
    *out = groups.data;
    *out_count = groups.count;
    return TR_OK;
}

/* -- buckets ----------------------------------------------------------------------------------- */

/* Index of the last op of `p` that writes into elements [first, end) of the reduced block, -1 where
 * none does. */
static int layout_last_writer(const tr_graph_t *g, const tr_program_t *p, int64_t first,
                              int64_t end) {
    for (int i = (int)p->nodes.count - 1; i >= 0; i--) {
        const tr_op_t *op = &p->nodes.data[i]->op;
        for (int o = 0; o < op->n_out; o++) {
            if (tr_is_none(op->out[o])) continue;
            const tr_tensor_info_t *base = &tr_rec_base(g, op->out[o])->info;
            if (base->role == TR_ROLE_REDUCED && base->block_elems < end &&
                base->block_elems + tr_shape_elems(&base->shape) > first)
                return i;
        }
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

/* End of the bucket that begins at `first`: whole parameters until `limit` elements are reached;
 * the last takes the extra reductions. */
static int64_t layout_bucket_end(const tr_graph_t *g, int64_t first, int64_t limit) {
    for (size_t i = 0; i + 1 < g->order.count; i++) {
        const int64_t end = g->tensors.data[g->order.data[i + 1]]->info.block_elems;
        if (end > first && end - first >= limit) return end;
    }
    return g->layout.reduced_elems;
}

tr_status_t tr_program_add_allreduce(tr_graph_t *g, int program, size_t first_bytes,
                                     size_t bucket_bytes, bool overlap) {
    tr_program_t *p = g->programs.data[program];
    if (!p->ended || g->planned)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "all-reduces are added to '%s' before its end or after the plan", p->name);
    TR_TRY(tr_layout_fix(g));
    int64_t limit = (int64_t)(first_bytes / sizeof(float));
    int bucket = 0;
    /* In the buckets' order on every rank: one that adds up several slots finishes ranges in
     * another order than one that has a single slot. */
    size_t behind = 0;
    for (int64_t first = 0; first < g->layout.reduced_elems; bucket++) {
        const int64_t end = layout_bucket_end(g, first, limit);
        size_t at = overlap ? (size_t)(layout_last_writer(g, p, first, end) + 1) : p->nodes.count;
        if (at < behind) at = behind;
        const tr_op_t sum = {.kind = TR_OP_COLLECTIVE,
                             .backward = true,
                             .bucket = bucket,
                             .collective = {TR_ALLREDUCE, g->reduced_block, first, end - first,
                                            TR_F32, TR_GROUP_ALL}};
        TR_TRY(program_insert(p, at, "allreduce", &sum));
        behind = at + 1;
        first = end;
        limit = (int64_t)(bucket_bytes / sizeof(float));
    }
    return program_insert(p, p->nodes.count, "wait",
                          &(tr_op_t){.kind = TR_OP_WAIT, .backward = true, .bucket = -1});
}
