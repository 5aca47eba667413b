/* What the rows of several ops share. */
#include "op_int.h"

const char *tr_op_where(const tr_op_t *op) {
    return op->label && op->label[0] ? op->label : op->row->name;
}

tr_dtype_t tr_dtype_of(const tr_graph_t *g, tr_tensor_t t) {
    return tr_tensor_info(g, t)->dtype;
}

double tr_op_elems(const tr_graph_t *g, tr_tensor_t t) {
    return tr_is_none(t) ? 0 : (double)tr_shape_elems(tr_shape_of(g, t));
}

int64_t tr_shape_product(const tr_shape_t *shape, int first, int last) {
    int64_t product = 1;
    for (int i = first; i < last; i++) product *= shape->dim[i];
    return product;
}

void tr_shape_describe(tr_str_t *s, const int64_t *dim, int count) {
    for (int i = 0; i < count; i++) tr_str_printf(s, "%s%lld", i ? " x " : "", (long long)dim[i]);
}

tr_status_t tr_op_check_present(const tr_op_t *op, int input, const char *what) {
    if (input < op->n_in && !tr_is_none(op->in[input])) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG, "%s: %s needs %s, which is absent", tr_op_where(op),
                   op->row->name, what);
}

static bool op_is_absent(const tr_op_t *op, int input) {
    return input >= op->n_in || tr_is_none(op->in[input]);
}

tr_status_t tr_op_check_type(const tr_graph_t *g, const tr_op_t *op, int input, tr_dtype_t dtype,
                             const char *what) {
    if (op_is_absent(op, input)) return TR_OK;
    tr_dtype_t found = tr_dtype_of(g, op->in[input]);
    if (found == dtype) return TR_OK;
    return TR_FAIL(
        TR_ERR_CONFIG, "%s: %s requires %s of type %s, found %s; convert it first (cast_normalize)",
        tr_op_where(op), op->row->name, what, tr_dtype_name(dtype), tr_dtype_name(found));
}

tr_status_t tr_op_check_float(const tr_graph_t *g, const tr_op_t *op, int input, const char *what) {
    if (op_is_absent(op, input) || tr_dtype_is_half(tr_dtype_of(g, op->in[input]))) return TR_OK;
    return tr_op_check_type(g, op, input, TR_F32, what);
}

tr_status_t tr_op_check_shape(const tr_graph_t *g, const tr_op_t *op, int input,
                              const tr_shape_t *shape, const char *what) {
    char expected[96], found[96];
    if (op_is_absent(op, input)) return TR_OK;
    const tr_shape_t *actual = tr_shape_of(g, op->in[input]);
    if (tr_shape_equal(actual, shape)) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG, "%s: %s requires %s of shape %s, found %s", tr_op_where(op),
                   op->row->name, what, tr_shape_format(shape, expected),
                   tr_shape_format(actual, found));
}

tr_status_t tr_op_check_vector(const tr_graph_t *g, const tr_op_t *op, int input, int64_t count,
                               const char *what) {
    TR_TRY(tr_op_check_type(g, op, input, TR_F32, what));
    return tr_op_check_shape(g, op, input, &TR_SHAPE(count), what);
}

tr_status_t tr_op_check_bias_copy(const tr_graph_t *g, const tr_op_t *op, int64_t count) {
    if (op->n_in < 4) return TR_OK;
    TR_TRY(tr_op_check_type(g, op, 3, tr_dtype_of(g, op->in[0]), "the copy of the bias"));
    return tr_op_check_shape(g, op, 3, &TR_SHAPE(count), "the copy of the bias");
}

tr_status_t tr_op_check_label(const tr_graph_t *g, const tr_op_t *op, int input) {
    tr_dtype_t found = tr_dtype_of(g, op->in[input]);
    if (found == TR_I64 || found == TR_I32) return TR_OK;
    return TR_FAIL(
        TR_ERR_CONFIG,
        "%s: %s requires class numbers of type i64 or i32, found %s; for regression targets use "
        "the loss mse",
        tr_op_where(op), op->row->name, tr_dtype_name(found));
}

tr_status_t tr_op_check_block(const tr_graph_t *g, const tr_op_t *op, int input, size_t bytes,
                              const char *what) {
    TR_TRY(tr_op_check_present(op, input, what));
    TR_TRY(tr_op_check_type(g, op, input, TR_U8, what));
    int64_t found = tr_shape_elems(tr_shape_of(g, op->in[input]));
    if (found == (int64_t)bytes) return TR_OK;
    return TR_FAIL(TR_ERR_INTERNAL, "%s: %s requires %s of %zu bytes, found %lld", tr_op_where(op),
                   op->row->name, what, bytes, (long long)found);
}

tr_status_t tr_op_check_table(const tr_graph_t *g, const tr_op_t *op, int input, size_t row_bytes,
                              const char *what) {
    TR_TRY(tr_op_check_present(op, input, what));
    TR_TRY(tr_op_check_type(g, op, input, TR_U8, what));
    const size_t found = tr_tensor_info(g, op->in[input])->bytes;
    if (found > 0 && found % row_bytes == 0) return TR_OK;
    return TR_FAIL(TR_ERR_INTERNAL, "%s: %s requires %s with rows of %zu bytes, found %zu bytes",
                   tr_op_where(op), op->row->name, what, row_bytes, found);
}

tr_status_t tr_op_shape_like_in0(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(tr_op_check_present(op, 0, "an input"));
    TR_TRY(tr_op_check_float(g, op, 0, "its input"));
    tr_shape_t shape = *tr_shape_of(g, op->in[0]);
    return tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &shape);
}

tr_status_t tr_fold_rows(tr_graph_t *g, tr_tensor_t x, tr_tensor_t *out) {
    const tr_shape_t *shape = tr_shape_of(g, x);
    int last = shape->ndim - 1;
    if (last < 0)
        return TR_FAIL(TR_ERR_CONFIG, "%s: expected at least one dimension, found a scalar",
                       tr_scope(g));
    return tr_reshape(g, x, &TR_SHAPE(tr_shape_product(shape, 0, last), shape->dim[last]), out);
}

tr_status_t tr_flatten(tr_graph_t *g, tr_tensor_t x, tr_tensor_t *out) {
    return tr_reshape(g, x, &TR_SHAPE(tr_shape_elems(tr_shape_of(g, x))), out);
}

tr_status_t tr_op_norm_bwd_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_shape_t x = *tr_shape_of(g, op->in[0]);
    const int64_t channels = x.dim[x.ndim - 1];
    TR_TRY(tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &x));
    TR_TRY(tr_op_output(g, op, 1, TR_F32, &TR_SHAPE(channels)));
    return tr_op_output(g, op, 2, TR_F32, &TR_SHAPE(channels));
}

tr_status_t tr_op_norm_grad(tr_graph_t *g, const tr_op_t *op, const tr_op_row_t *row,
                            const tr_tensor_t *dout, const bool *need, tr_tensor_t *din) {
    if (tr_is_none(dout[0])) return TR_OK;
    const tr_tensor_t in[] = {dout[0], op->in[0], op->in[1], op->in[2], op->out[1], op->out[2]};
    tr_tensor_t d[3];
    TR_TRY(
        tr_op_append(g, row, in, 6, op->attr, op->attr_bytes, (bool[]){need[0], true, true}, d, 3));
    for (int i = 0; i < 3; i++)
        if (need[i]) din[i] = d[i];
    return TR_OK;
}

tr_status_t tr_op_check_smoothing(const tr_op_t *op) {
    const float smoothing = ((const tr_xent_attr_t *)op->attr)->smoothing;
    if (smoothing >= 0 && smoothing < 1) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG, "%s: label smoothing must be at least 0 and below 1, found %g",
                   tr_op_where(op), smoothing);
}
