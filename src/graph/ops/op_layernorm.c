/* layernorm, residual_layernorm and their gradients, over the last dimension; the others are rows.
 */
#include "op_int.h"

static tr_status_t layernorm_forward_shape(tr_graph_t *g, tr_op_t *op) {
    const char *const what[] = {"its input", "its scale (gamma)", "its shift (beta)"};
    const tr_norm_attr_t *attr = op->attr;
    for (int i = 0; i < 3; i++) TR_TRY(tr_op_check_present(op, i, what[i]));
    TR_TRY(tr_op_check_float(g, op, 0, what[0]));
    tr_shape_t x = *tr_shape_of(g, op->in[0]);
    for (int i = 1; i < 3; i++) TR_TRY(tr_op_check_vector(g, op, i, x.dim[1], what[i]));
    if (!(attr->eps > 0))
        return TR_FAIL(TR_ERR_CONFIG, "%s: eps must be above 0, found %g", tr_op_where(op),
                       attr->eps);
    TR_TRY(tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &x));
    TR_TRY(tr_op_output(g, op, 1, TR_F32, &TR_SHAPE(x.dim[0])));
    return tr_op_output(g, op, 2, TR_F32, &TR_SHAPE(x.dim[0]));
}

/* Per element: sum; subtract, square, add; subtract, scale, scale and shift. */
static double layernorm_forward_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 8 * tr_op_elems(g, op->in[0]);
}
/* Per element: the normalised value, sums for gamma and beta, two row sums, dx from three terms. */
static double layernorm_backward_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 14 * tr_op_elems(g, op->in[0]);
}

static const tr_op_row_t backward_row = {.name = "layernorm_bwd",
                                         .kernel = TR_K_LAYERNORM_BWD,
                                         .shape = tr_op_norm_bwd_shape,
                                         .flops = layernorm_backward_flops};

static tr_status_t layernorm_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                  const bool *need, tr_tensor_t *din) {
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
                                        .shape = layernorm_forward_shape,
                                        .grad = layernorm_grad,
                                        .flops = layernorm_forward_flops};

tr_status_t tr_layernorm(tr_graph_t *g, tr_tensor_t x, tr_tensor_t gamma, tr_tensor_t beta,
                         float eps, tr_tensor_t *out) {
    tr_norm_attr_t attr = {.eps = eps};
    tr_shape_t shape = *tr_shape_of(g, x);
    tr_tensor_t rows, made[3];
    TR_TRY(tr_fold_rows(g, x, &rows));
    TR_TRY(tr_op_append(g, &forward_row, (tr_tensor_t[]){rows, gamma, beta}, 3, &attr, sizeof attr,
                        NULL, made, 3));
    return tr_reshape(g, made[0], &shape, out);
}

/* -- with the sum before it -------------------------------------------------------------------- */

enum { A, B, GAMMA, BETA };
enum { SUM, Y, MEAN, RSTD };

static tr_status_t residual_shape(tr_graph_t *g, tr_op_t *op) {
    tr_shape_t x = *tr_shape_of(g, op->in[A]);
    TR_TRY(tr_op_check_float(g, op, A, "its input"));
    TR_TRY(tr_op_check_shape(g, op, B, &x, "its second input"));
    TR_TRY(tr_op_check_type(g, op, B, tr_dtype_of(g, op->in[A]), "its second input"));
    TR_TRY(tr_op_check_vector(g, op, GAMMA, x.dim[1], "its scale (gamma)"));
    TR_TRY(tr_op_check_vector(g, op, BETA, x.dim[1], "its shift (beta)"));
    TR_TRY(tr_op_output(g, op, SUM, tr_dtype_of(g, op->in[A]), &x));
    TR_TRY(tr_op_output(g, op, Y, tr_dtype_of(g, op->in[A]), &x));
    TR_TRY(tr_op_output(g, op, MEAN, TR_F32, &TR_SHAPE(x.dim[0])));
    return tr_op_output(g, op, RSTD, TR_F32, &TR_SHAPE(x.dim[0]));
}

static double residual_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 9 * tr_op_elems(g, op->in[A]);
}
static double residual_bwd_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 15 * tr_op_elems(g, op->in[0]);
}

static const tr_op_row_t residual_bwd_row = {.name = "residual_layernorm_bwd",
                                             .kernel = TR_K_RESIDUAL_LAYERNORM_BWD,
                                             .shape = tr_op_norm_bwd_shape,
                                             .flops = residual_bwd_flops};

/* The sum may have a gradient of its own, and y none. */
static tr_status_t residual_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                 const bool *need, tr_tensor_t *din) {
    tr_tensor_t d[3] = {dout[SUM]};
    if (!tr_is_none(dout[Y])) {
        tr_tensor_t in[] = {dout[Y],       op->out[SUM],  op->in[GAMMA],
                            op->out[MEAN], op->out[RSTD], dout[SUM]};
        TR_TRY(tr_op_append(g, &residual_bwd_row, in, 6, op->attr, sizeof(tr_norm_attr_t),
                            (bool[]){need[A] || need[B], true, true}, d, 3));
    }
    if (need[A]) din[A] = d[0];
    if (need[B]) din[B] = d[0];
    if (need[GAMMA]) din[GAMMA] = d[1];
    if (need[BETA]) din[BETA] = d[2];
    return TR_OK;
}

static const tr_op_row_t residual_row = {.name = "residual_layernorm",
                                         .kernel = TR_K_RESIDUAL_LAYERNORM_FWD,
                                         .shape = residual_shape,
                                         .grad = residual_grad,
                                         .flops = residual_flops};

tr_status_t tr_residual_layernorm(tr_graph_t *g, tr_tensor_t a, tr_tensor_t b, tr_tensor_t gamma,
                                  tr_tensor_t beta, float eps, tr_tensor_t *out_sum,
                                  tr_tensor_t *out) {
    tr_norm_attr_t attr = {.eps = eps};
    tr_shape_t shape = *tr_shape_of(g, a);
    tr_tensor_t in[4] = {[GAMMA] = gamma, [BETA] = beta}, made[4];
    if (!tr_graph_has_kernel(g, TR_K_RESIDUAL_LAYERNORM_FWD)) {
        TR_TRY(tr_add(g, a, b, TR_ACT_NONE, out_sum));
        return tr_layernorm(g, *out_sum, gamma, beta, eps, out);
    }
    TR_TRY(tr_fold_rows(g, a, &in[A]));
    TR_TRY(tr_fold_rows(g, b, &in[B]));
    TR_TRY(tr_op_append(g, &residual_row, in, 4, &attr, sizeof attr, NULL, made, 4));
    TR_TRY(tr_reshape(g, made[SUM], &shape, out_sum));
    return tr_reshape(g, made[Y], &shape, out);
}
