/* concat: tensors side by side along their last dimension; columns: a range of it. */
#include "op_int.h"

#include <string.h>

/* What all inputs have in common: type and all dimensions but the last. */
static tr_status_t concat_shape(tr_graph_t *g, tr_op_t *op) {
    char first[96], other[96];
    TR_TRY(tr_op_check_present(op, 0, "an input"));
    TR_TRY(tr_op_check_float(g, op, 0, "its input"));
    tr_shape_t shape = *tr_shape_of(g, op->in[0]);
    const int last = shape.ndim - 1;
    for (int i = 1; i < op->n_in; i++) {
        TR_TRY(tr_op_check_type(g, op, i, tr_dtype_of(g, op->in[0]), "equal types"));
        tr_shape_t widened = *tr_shape_of(g, op->in[i]);
        const int64_t channels = last >= 0 && widened.ndim > last ? widened.dim[last] : 0;
        if (last >= 0 && widened.ndim > last) widened.dim[last] = shape.dim[last];
        if (last < 0 || !tr_shape_equal(&shape, &widened))
            return TR_FAIL(TR_ERR_CONFIG,
                           "%s: cannot join %s and %s: all dimensions but the last must be equal",
                           tr_op_where(op), tr_shape_format(tr_shape_of(g, op->in[0]), first),
                           tr_shape_format(tr_shape_of(g, op->in[i]), other));
        shape.dim[last] += channels;
    }
    return tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &shape);
}

static tr_status_t concat_columns_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_columns_attr_t *attr = op->attr;
    tr_shape_t shape = *tr_shape_of(g, op->in[0]);
    int64_t *channels = &shape.dim[shape.ndim - 1];
    if (shape.ndim < 1 || attr->first < 0 || attr->count < 1 ||
        attr->first + attr->count > *channels)
        return TR_FAIL(TR_ERR_INTERNAL, "%s: columns beyond the last dimension", tr_op_where(op));
    *channels = attr->count;
    return tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &shape);
}

static const tr_op_row_t columns_row = {
    .name = "columns", .kernel = TR_K_COLUMNS, .shape = concat_columns_shape};

static tr_status_t concat_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                               const bool *need, tr_tensor_t *din) {
    tr_columns_attr_t attr = {0};
    if (tr_is_none(dout[0])) return TR_OK;
    for (int i = 0; i < op->n_in; i++, attr.first += attr.count) {
        const tr_shape_t *shape = tr_shape_of(g, op->in[i]);
        attr.count = shape->dim[shape->ndim - 1];
        if (need[i])
            TR_TRY(
                tr_op_append(g, &columns_row, &dout[0], 1, &attr, sizeof attr, NULL, &din[i], 1));
    }
    return TR_OK;
}

static const tr_op_row_t concat_row = {
    .name = "concat", .kernel = TR_K_CONCAT, .shape = concat_shape, .grad = concat_grad};

tr_status_t tr_concat(tr_graph_t *g, const tr_tensor_t *x, int count, tr_tensor_t *out) {
    if (count == 1) return *out = x[0], TR_OK;
    return tr_op_append(g, &concat_row, x, count, NULL, 0, NULL, out, 1);
}
