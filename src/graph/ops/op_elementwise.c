/* add, bias, scale, and the ops that write into tensors that exist: copy, accumulate. */
#include "op_int.h"

static tr_status_t elementwise_add_shape(tr_graph_t *g, tr_op_t *op) {
    char a[96], b[96];
    TR_TRY(tr_op_check_present(op, 1, "two inputs"));
    TR_TRY(tr_op_check_type(g, op, 1, tr_dtype_of(g, op->in[0]), "its second input"));
    const tr_shape_t *left = tr_shape_of(g, op->in[0]), *right = tr_shape_of(g, op->in[1]);
    if (!tr_shape_equal(left, right))
        return TR_FAIL(
            TR_ERR_CONFIG,
            "%s: cannot add %s and %s: the shapes must be equal; in a residual block add a 1x1 "
            "convolution with the same channels and stride to the shortcut",
            tr_op_where(op), tr_shape_format(left, a), tr_shape_format(right, b));
    return tr_op_shape_like_in0(g, op);
}

static tr_status_t elementwise_add_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                        const bool *need, tr_tensor_t *din) {
    tr_tensor_t d;
    if (tr_is_none(dout[0])) return TR_OK;
    TR_TRY(tr_op_unfuse_act(g, ((const tr_add_attr_t *)op->attr)->act, dout[0], op->out[0], &d));
    if (need[0]) din[0] = d;
    if (need[1]) din[1] = d;
    return TR_OK;
}

static const tr_op_row_t add_row = {.name = "add",
                                    .kernel = TR_K_ADD,
                                    .shape = elementwise_add_shape,
                                    .grad = elementwise_add_grad};

tr_status_t tr_add(tr_graph_t *g, tr_tensor_t a, tr_tensor_t b, tr_act_t act, tr_tensor_t *out) {
    bool fused = act == TR_ACT_NONE || act == TR_ACT_RELU;
    tr_add_attr_t attr = {fused ? act : TR_ACT_NONE};
    tr_tensor_t sum;
    TR_TRY(tr_op_append(g, &add_row, (tr_tensor_t[]){a, b}, 2, &attr, sizeof attr, NULL, &sum, 1));
    return tr_activation(g, sum, fused ? TR_ACT_NONE : act, out);
}

static tr_status_t bias_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(tr_op_check_present(op, 1, "an input and a bias"));
    TR_TRY(tr_op_check_float(g, op, 0, "its input"));
    const tr_shape_t *x = tr_shape_of(g, op->in[0]);
    TR_TRY(tr_op_check_vector(g, op, 1, x->ndim > 0 ? x->dim[x->ndim - 1] : 0, "its bias"));
    return tr_op_shape_like_in0(g, op);
}

static tr_status_t bias_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                             const bool *need, tr_tensor_t *din) {
    tr_tensor_t d, rows;
    if (tr_is_none(dout[0])) return TR_OK;
    TR_TRY(tr_op_unfuse_act(g, ((const tr_add_attr_t *)op->attr)->act, dout[0], op->out[0], &d));
    if (need[0]) din[0] = d;
    if (!need[1]) return TR_OK;
    TR_TRY(tr_fold_rows(g, d, &rows));
    return tr_column_sum(g, rows, &din[1]);
}

static const tr_op_row_t bias_row = {
    .name = "bias", .kernel = TR_K_BIAS, .shape = bias_shape, .grad = bias_grad};

tr_status_t tr_bias(tr_graph_t *g, tr_tensor_t x, tr_tensor_t b, tr_act_t act, tr_tensor_t *out) {
    tr_add_attr_t attr = {act};
    return tr_op_append(g, &bias_row, (tr_tensor_t[]){x, b}, 2, &attr, sizeof attr, NULL, out, 1);
}

static tr_status_t scale_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                              const bool *need, tr_tensor_t *din) {
    if (tr_is_none(dout[0]) || !need[0]) return TR_OK;
    return tr_scale(g, dout[0], ((const tr_scale_attr_t *)op->attr)->factor, &din[0]);
}

static const tr_op_row_t scale_row = {
    .name = "scale", .kernel = TR_K_SCALE, .shape = tr_op_shape_like_in0, .grad = scale_grad};

tr_status_t tr_scale(tr_graph_t *g, tr_tensor_t x, float factor, tr_tensor_t *out) {
    tr_scale_attr_t attr = {factor};
    return tr_op_append(g, &scale_row, &x, 1, &attr, sizeof attr, NULL, out, 1);
}

/* Copies and accumulations compare elements, not shapes: a gradient (K, C) goes into a range of a
 * block. */
static tr_status_t elementwise_into_shape(tr_graph_t *g, tr_op_t *op) {
    char from[96], to[96];
    const tr_shape_t *x = tr_shape_of(g, op->in[0]), *y = tr_shape_of(g, op->out[0]);
    if (tr_shape_elems(x) != tr_shape_elems(y) ||
        tr_dtype_of(g, op->in[0]) != tr_dtype_of(g, op->out[0]))
        return TR_FAIL(TR_ERR_INTERNAL,
                       "%s: %s of %s %s into %s %s: type and number of elements must be equal",
                       tr_op_where(op), op->row->name, tr_dtype_name(tr_dtype_of(g, op->in[0])),
                       tr_shape_format(x, from), tr_dtype_name(tr_dtype_of(g, op->out[0])),
                       tr_shape_format(y, to));
    return TR_OK;
}

static const tr_op_row_t copy_row = {
    .name = "copy", .kernel = TR_K_COPY, .shape = elementwise_into_shape, .flags = TR_OP_ONCE};
static const tr_op_row_t accumulate_row = {.name = "accumulate",
                                           .kernel = TR_K_ACCUMULATE,
                                           .shape = elementwise_into_shape,
                                           .flags = TR_OP_ONCE | TR_OP_READS_OUTPUT};

tr_status_t tr_copy(tr_graph_t *g, tr_tensor_t x, tr_tensor_t into) {
    return tr_op_append_into(g, &copy_row, &x, 1, NULL, 0, &into, 1);
}

tr_status_t tr_accumulate(tr_graph_t *g, tr_tensor_t x, tr_tensor_t into) {
    TR_TRY(tr_flatten(g, x, &x));
    TR_TRY(tr_flatten(g, into, &into));
    return tr_op_append_into(g, &accumulate_row, &x, 1, NULL, 0, &into, 1);
}
