/* layernorm, layernorm_bwd; over the last dimension, all others folded into rows. */
#include "op_int.h"

static tr_status_t forward_shape(tr_graph_t *g, tr_op_t *op) {
    const char *const what[] = {"its input", "its scale (gamma)", "its shift (beta)"};
    const tr_norm_attr_t *attr = op->attr;
    for (int i = 0; i < 3; i++) TR_TRY(tr_op_check_present(op, i, what[i]));
    TR_TRY(tr_op_check_float(g, op, 0, what[0]));
    tr_shape_t x = *tr_shape_of(g, op->in[0]);
    for (int i = 1; i < 3; i++) TR_TRY(tr_op_check_vector(g, op, i, x.dim[1], what[i]));
    if (!(attr->eps > 0))
        return TR_FAIL(TR_ERR_CONFIG, "%s: eps must be above 0, found %g", tr_op_where(op), attr->eps);
    TR_TRY(tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &x));
    TR_TRY(tr_op_output(g, op, 1, TR_F32, &TR_SHAPE(x.dim[0])));
    return tr_op_output(g, op, 2, TR_F32, &TR_SHAPE(x.dim[0]));
}

/* Per element: sum; subtract, square, add; subtract, scale, scale and shift. */
static double forward_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 8 * tr_op_elems(g, op->in[0]);
}
/* Per element: the normalised value, sums for gamma and beta, two row sums, dx from three terms. */
static double backward_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 14 * tr_op_elems(g, op->in[0]);
}

static tr_status_t backward_shape(tr_graph_t *g, tr_op_t *op) {
    tr_shape_t x = *tr_shape_of(g, op->in[0]);
    TR_TRY(tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &x));
    TR_TRY(tr_op_output(g, op, 1, TR_F32, &TR_SHAPE(x.dim[1])));
    return tr_op_output(g, op, 2, TR_F32, &TR_SHAPE(x.dim[1]));
}

static const tr_op_row_t backward_row = {
    .name = "layernorm_bwd", .kernel = TR_K_LAYERNORM_BWD, .shape = backward_shape, .flops = backward_flops};

static tr_status_t layernorm_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout, const bool *need,
                                  tr_tensor_t *din) {
    if (tr_is_none(dout[0])) return TR_OK;
    tr_tensor_t in[] = {dout[0], op->in[0], op->in[1], op->out[1], op->out[2]}, d[3];
    TR_TRY(tr_op_append(g, &backward_row, in, 5, op->attr, sizeof(tr_norm_attr_t),
                        (bool[]){need[0], true, true}, d, 3));
    for (int i = 0; i < 3; i++)
        if (need[i]) din[i] = d[i];
    return TR_OK;
}

static const tr_op_row_t forward_row = {.name = "layernorm",
                                        .kernel = TR_K_LAYERNORM_FWD,
                                        .shape = forward_shape,
                                        .grad = layernorm_grad,
                                        .flops = forward_flops};

tr_status_t tr_layernorm(tr_graph_t *g, tr_tensor_t x, tr_tensor_t gamma, tr_tensor_t beta, float eps,
                         tr_tensor_t *out) {
    tr_norm_attr_t attr = {.eps = eps};
    tr_shape_t shape = *tr_shape_of(g, x);
    tr_tensor_t rows, made[3];
    TR_TRY(tr_fold_rows(g, x, &rows));
    TR_TRY(tr_op_append(g, &forward_row, (tr_tensor_t[]){rows, gamma, beta}, 3, &attr, sizeof attr, NULL,
                        made, 3));
    return tr_reshape(g, made[0], &shape, out);
}
