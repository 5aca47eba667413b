/* Reverse-mode differentiation: walks the open program backwards and lets each row append its
 * gradient ops. */
#include "graph_int.h"
#include "trainer/ops.h"

#include <string.h>

typedef struct backward {
    tr_graph_t *g;
    bool accumulate;
    int forward_ops;    /* ops of the program before any gradient */
    int32_t count;      /* tensors before any gradient: the arrays below have this length */
    tr_tensor_t *grad;  /* of each base tensor, TR_NONE so far */
    bool *need;         /* a gradient of this base tensor is wanted */
    int32_t *uses;      /* PARAM: ops that have yet to hand in their part */
    tr_tensor_t *again; /* recomputed copy of each base tensor, TR_NONE */
    tr_node_t **clone;  /* [forward_ops] the recomputed op of an op in a segment */
    bool *recomputed;   /* [segments + 1] */
    size_t finished;    /* parameters finished so far */
    size_t counted;     /* ops whose uses of tensors are counted in the tensors' records */
} backward_t;

static tr_program_t *autodiff_program(const backward_t *b) {
    return tr_open_program(b->g);
}
static tr_node_t *node_at(const backward_t *b, int i) {
    return autodiff_program(b)->nodes.data[i];
}
/* The gradient of a copy is that of its parameter. */
static int32_t autodiff_base_id(const backward_t *b, tr_tensor_t t) {
    const tr_tensor_info_t *base = &tr_rec_base(b->g, t)->info;
    return base->role == TR_ROLE_COPY ? base->base.id : tr_base(b->g, t).id;
}

static tr_tensor_rec_t *autodiff_base_rec(const backward_t *b, tr_tensor_t t) {
    return b->g->tensors.data[autodiff_base_id(b, t)];
}

static void autodiff_set_gradient(backward_t *b, int32_t id, tr_tensor_t t) {
    if (!tr_is_none(b->grad[id])) autodiff_base_rec(b, b->grad[id])->held--;
    if (!tr_is_none(t)) autodiff_base_rec(b, t)->held++;
    b->grad[id] = t;
}

static void autodiff_count_uses(backward_t *b) {
    const tr_program_t *p = autodiff_program(b);
    for (; b->counted < p->nodes.count; b->counted++) {
        const tr_op_t *op = &p->nodes.data[b->counted]->op;
        for (int k = 0; k < op->n_in; k++)
            if (!tr_is_none(op->in[k])) autodiff_base_rec(b, op->in[k])->reads++;
        for (int k = 0; k < op->n_out; k++)
            if (!tr_is_none(op->out[k])) autodiff_base_rec(b, op->out[k])->writes++;
    }
}

/* -- what needs a gradient --------------------------------------------------------------------- */

static bool autodiff_takes_part(const backward_t *b, const tr_op_t *op) {
    if (op->kind != TR_OP_KERNEL || !op->row->grad) return false;
    for (int i = 0; i < op->n_in; i++)
        if (!tr_is_none(op->in[i]) && b->need[autodiff_base_id(b, op->in[i])]) return true;
    return false;
}

static void autodiff_mark_needs(backward_t *b) {
    for (int32_t id = 1; id < b->count; id++) {
        const tr_tensor_info_t *info = &b->g->tensors.data[id]->info;
        b->need[id] = info->role == TR_ROLE_PARAM && info->param.trainable;
    }
    for (int i = 0; i < b->forward_ops; i++) {
        const tr_op_t *op = &node_at(b, i)->op;
        if (!autodiff_takes_part(b, op)) continue;
        for (int k = 0; k < op->n_in; k++)
            if (!tr_is_none(op->in[k])) b->uses[autodiff_base_id(b, op->in[k])]++;
        for (int k = 0; k < op->n_out; k++)
            if (!tr_is_none(op->out[k]) &&
                tr_dtype_is_float(tr_tensor_info(b->g, op->out[k])->dtype))
                b->need[autodiff_base_id(b, op->out[k])] = true;
    }
}

/* -- gradients of parameters ------------------------------------------------------------------- */

/* Whether ops write `dw`, it is no larger than the parameter, and nothing else reads it, now or
 * later: then they can write into the reduced block itself. */
static bool autodiff_is_private(backward_t *b, int32_t param, int32_t dw) {
    const tr_tensor_rec_t *rec = b->g->tensors.data[dw];
    autodiff_count_uses(b);
    return rec->info.role == TR_ROLE_ACTIVATION &&
           rec->info.bytes == b->g->tensors.data[param]->info.bytes && rec->held == 1 &&
           rec->reads == 0 && rec->writes > 0;
}

tr_tensor_t tr_gradient_so_far(const tr_graph_t *g, tr_tensor_t t) {
    backward_t *b = g->backward;
    const tr_tensor_rec_t *rec = autodiff_base_rec(b, t);
    const int32_t id = rec->recomputes ? rec->recomputes : rec->id;
    const tr_tensor_t sum = b->grad[id];
    if (tr_is_none(sum) || !tr_shape_equal(tr_shape_of(g, t), tr_shape_of(g, sum))) return TR_NONE;
    return autodiff_is_private(b, id, autodiff_base_id(b, sum)) ? sum : TR_NONE;
}

/* The gradient of a parameter is complete: it goes into, or is added to, its place in the reduced
 * block. */
static tr_status_t autodiff_finish_param(backward_t *b, tr_tensor_t param) {
    tr_graph_t *g = b->g;
    const tr_tensor_t dw = b->grad[param.id];
    tr_tensor_t place;
    if (tr_is_none(dw)) return TR_OK;
    TR_TRY(tr_layout_gradient(g, param, &place));
    if (b->finished >= g->order.count || g->order.data[b->finished] != param.id)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "'%s' is finished out of order: all training programs must be built in the "
                       "same way",
                       tr_tensor_info(g, param)->name);
    b->finished++;
    if (b->accumulate && !tr_gradient_is_sharded(g, param)) return tr_accumulate(g, dw, place);
    const int32_t base = autodiff_base_id(b, dw);
    if (!autodiff_is_private(b, param.id, base)) return tr_copy(g, dw, place);
    tr_tensor_info_t *info = &g->tensors.data[base]->info;
    info->role = TR_ROLE_VIEW; /* every record that names it now means the reduced block */
    info->base = place;
    info->view_elems = 0;
    return TR_OK;
}

static tr_status_t autodiff_contribute(backward_t *b, tr_tensor_t input, tr_tensor_t din) {
    tr_graph_t *g = b->g;
    const tr_tensor_t base = {autodiff_base_id(b, input)};
    const tr_shape_t shape = *tr_shape_of(g, base);
    if (tr_shape_elems(tr_shape_of(g, din)) != tr_shape_elems(&shape))
        return TR_FAIL(TR_ERR_INTERNAL, "%s: the gradient of a slice is not supported", g->label);
    tr_tensor_t whole;
    TR_TRY(tr_reshape(g, din, &shape, &whole));
    if (!tr_is_none(b->grad[base.id]))
        TR_TRY(tr_add(g, b->grad[base.id], whole, TR_ACT_NONE, &whole));
    autodiff_set_gradient(b, base.id, whole);
    return TR_OK;
}

/* -- recompute --------------------------------------------------------------------------------- */

static tr_status_t autodiff_recompute_op(backward_t *b, int i) {
    const tr_node_t *node = node_at(b, i);
    const tr_op_t *op = &node->op;
    if (op->kind != TR_OP_KERNEL || (op->row->flags & TR_OP_ONCE)) return TR_OK;
    tr_tensor_t in[TR_KERNEL_MAX_IN], out[TR_KERNEL_MAX_OUT];
    bool want[TR_KERNEL_MAX_OUT] = {0}; /* without what it left in something that lasts */
    for (int k = 0; k < op->n_out; k++)
        want[k] = node->want[k] && !tr_is_none(op->out[k]) &&
                  tr_rec_base(b->g, op->out[k])->info.role == TR_ROLE_ACTIVATION;
    /* Each input is replaced by its copy, or by a view of its base's copy, if there is one. */
    for (int k = 0; k < op->n_in; k++) {
        in[k] = op->in[k];
        const int32_t base = tr_is_none(in[k]) ? b->count : autodiff_base_id(b, in[k]);
        if (base >= b->count || tr_is_none(b->again[base])) continue;
        const tr_tensor_info_t info = *tr_tensor_info(b->g, in[k]);
        in[k] = b->again[base];
        if (info.role != TR_ROLE_VIEW) continue;
        TR_TRY(tr_slice(b->g, in[k], info.view_elems, tr_shape_elems(&info.shape), &in[k]));
        TR_TRY(tr_reshape(b->g, in[k], &info.shape, &in[k]));
    }
    b->g->label = op->label;
    TR_TRY(
        tr_op_append(b->g, op->row, in, op->n_in, op->attr, op->attr_bytes, want, out, op->n_out));
    b->clone[i] = autodiff_program(b)->nodes.data[autodiff_program(b)->nodes.count - 1];
    b->clone[i]->op.recomputed = true;
    for (int k = 0; k < op->n_out; k++) {
        if (tr_is_none(op->out[k])) continue;
        b->again[autodiff_base_id(b, op->out[k])] = out[k];
        autodiff_base_rec(b, out[k])->recomputes = autodiff_base_id(b, op->out[k]);
    }
    return TR_OK;
}

/* -- the walk ---------------------------------------------------------------------------------- */

static tr_status_t autodiff_differentiate(backward_t *b, int i) {
    tr_graph_t *g = b->g;
    const tr_op_t op = node_at(b, i)->op;
    tr_tensor_t dout[TR_KERNEL_MAX_OUT] = {{0}}, din[TR_KERNEL_MAX_IN] = {{0}};
    bool need[TR_KERNEL_MAX_IN] = {0}, arrives = false;
    for (int k = 0; k < op.n_out; k++)
        if (!tr_is_none(op.out[k]) && autodiff_base_id(b, op.out[k]) < b->count) {
            dout[k] = b->grad[autodiff_base_id(b, op.out[k])];
            arrives |= !tr_is_none(dout[k]);
        }
    if (!arrives) return TR_OK;
    for (int k = 0; k < op.n_in; k++)
        need[k] = !tr_is_none(op.in[k]) && b->need[autodiff_base_id(b, op.in[k])];
    if (op.segment > 0 && !b->recomputed[op.segment]) { /* ops that follow each other */
        b->recomputed[op.segment] = true;
        int k = i;
        while (k > 0 && node_at(b, k - 1)->op.segment == op.segment) k--;
        for (; k < b->forward_ops && node_at(b, k)->op.segment == op.segment; k++)
            TR_TRY(autodiff_recompute_op(b, k));
    }
    g->label = op.label;
    TR_TRY(op.row->grad(g, b->clone[i] ? &b->clone[i]->op : &op, dout, need, din));
    for (int k = 0; k < op.n_in; k++)
        if (need[k] && !tr_is_none(din[k])) TR_TRY(autodiff_contribute(b, op.in[k], din[k]));
    /* The op was the last to want the gradients of its outputs; a parameter may now have what
     * passed through it, as through a cast. */
    for (int k = 0; k < op.n_out; k++)
        if (!tr_is_none(op.out[k]) && autodiff_base_id(b, op.out[k]) < b->count)
            autodiff_set_gradient(b, autodiff_base_id(b, op.out[k]), TR_NONE);
    return TR_OK;
}

static tr_status_t autodiff_begin(backward_t *b) {
    const size_t n = (size_t)b->count, ops = (size_t)b->forward_ops;
    TR_TRY(tr_alloc(n * sizeof *b->grad, "autodiff", &b->grad));
    TR_TRY(tr_alloc(n * sizeof *b->need, "autodiff", &b->need));
    TR_TRY(tr_alloc(n * sizeof *b->uses, "autodiff", &b->uses));
    TR_TRY(tr_alloc(n * sizeof *b->again, "autodiff", &b->again));
    TR_TRY(tr_alloc(ops * sizeof *b->clone, "autodiff", &b->clone));
    for (size_t i = 0; i < n; i++) {
        tr_tensor_rec_t *rec = b->g->tensors.data[i];
        rec->held = rec->reads = rec->writes = 0;
        rec->recomputes = 0;
    }
    return tr_alloc((size_t)(b->g->segments + 1) * sizeof *b->recomputed, "autodiff",
                    &b->recomputed);
}

tr_status_t tr_backward(tr_graph_t *g, tr_tensor_t loss, tr_tensor_t seed, bool accumulate) {
    if (g->open < 0) return TR_FAIL(TR_ERR_INTERNAL, "backward called outside a program");
    backward_t b = {.g = g,
                    .accumulate = accumulate,
                    .forward_ops = (int)tr_open_program(g)->nodes.count,
                    .count = (int32_t)g->tensors.count};
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(autodiff_begin(&b), done);
    autodiff_mark_needs(&b);
    const tr_shape_t shape = *tr_shape_of(g, tr_base(g, loss)); /* loss may be a view */
    TR_TRY_GOTO(tr_reshape(g, seed, &shape, &seed), done);
    autodiff_set_gradient(&b, autodiff_base_id(&b, loss), seed);
    g->in_backward = true;
    g->backward = &b;
    for (int i = b.forward_ops - 1; i >= 0; i--) {
        if (!autodiff_takes_part(&b, &node_at(&b, i)->op)) continue;
        TR_TRY_GOTO(autodiff_differentiate(&b, i), done);
        const tr_op_t *op = &node_at(&b, i)->op;
        for (int k = 0; k < op->n_in; k++) {
            if (tr_is_none(op->in[k])) continue;
            const tr_tensor_t base = {autodiff_base_id(&b, op->in[k])};
            const tr_tensor_info_t *info = tr_tensor_info(g, base);
            if (info->role == TR_ROLE_PARAM && b.need[base.id] && --b.uses[base.id] <= 0)
                TR_TRY_GOTO(autodiff_finish_param(&b, base), done);
        }
    }
    if (b.finished != g->order.count)
        status =
            TR_FAIL(TR_ERR_INTERNAL, "this program finishes %zu parameters, an earlier one %zu",
                    b.finished, g->order.count);
done:
    g->in_backward = false;
    g->backward = NULL;
    g->label = NULL;
    tr_free(&b.grad);
    tr_free(&b.need);
    tr_free(&b.uses);
    tr_free(&b.again);
    tr_free(&b.clone);
    tr_free(&b.recomputed);
    return status;
}
