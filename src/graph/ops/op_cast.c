/* cast: f32 to bf16 or f16 and back. */
#include "op_int.h"

typedef struct {
    tr_dtype_t dtype;
} cast_attr_t;

static tr_status_t cast_shape(tr_graph_t *g, tr_op_t *op) {
    tr_shape_t shape = *tr_shape_of(g, op->in[0]);
    TR_TRY(tr_op_check_float(g, op, 0, "its input"));
    return tr_op_output(g, op, 0, ((const cast_attr_t *)op->attr)->dtype, &shape);
}

/* The gradient of a weight arrives in f32 already, and passes. */
static tr_status_t cast_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                             const bool *need, tr_tensor_t *din) {
    if (tr_is_none(dout[0]) || !need[0]) return TR_OK;
    return tr_cast(g, dout[0], tr_dtype_of(g, op->in[0]), &din[0]);
}

static const tr_op_row_t cast_row = {
    .name = "cast", .kernel = TR_K_CAST_NORMALIZE, .shape = cast_shape, .grad = cast_grad};

tr_status_t tr_cast(tr_graph_t *g, tr_tensor_t x, tr_dtype_t dtype, tr_tensor_t *out) {
    const cast_attr_t attr = {dtype};
    if (tr_dtype_of(g, x) == dtype) return *out = x, TR_OK;
    if (dtype != TR_F32 && !tr_dtype_is_half(dtype))
        return TR_FAIL(TR_ERR_CONFIG, "%s: a cast is to f32, bf16 or f16, not to %s", tr_scope(g),
                       tr_dtype_name(dtype));
    return tr_op_append(g, &cast_row, (tr_tensor_t[]){x, TR_NONE, TR_NONE}, 3, &attr, sizeof attr,
                        NULL, out, 1);
}

tr_status_t tr_cast_into(tr_graph_t *g, tr_tensor_t x, tr_tensor_t into) {
    const cast_attr_t attr = {tr_dtype_of(g, into)};
    return tr_op_append_into(g, &cast_row, (tr_tensor_t[]){x, TR_NONE, TR_NONE}, 3, &attr,
                             sizeof attr, &into, 1);
}

tr_status_t tr_op_weight(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w, tr_tensor_t *out) {
    const tr_dtype_t dtype = tr_dtype_of(g, x);
    return tr_dtype_is_half(dtype) ? tr_param_copy(g, w, dtype, out) : (*out = w, TR_OK);
}
