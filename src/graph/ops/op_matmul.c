/* matmul, column_sum; the builders tr_matmul and tr_linear. */
#include "op_int.h"

static int64_t matmul_dim_from_end(const tr_shape_t *shape, int from_end) {
    return shape->dim[shape->ndim - from_end];
}

static tr_status_t matmul_check_ranks(const tr_op_t *op, const tr_shape_t *a, const tr_shape_t *b) {
    char ta[96], tb[96];
    const tr_matmul_attr_t *attr = op->attr;
    if (a->ndim < 2 || b->ndim < 2)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "%s: a matrix product requires two or more dimensions on both sides, found %s and %s; "
            "reshape first",
            tr_op_where(op), tr_shape_format(a, ta), tr_shape_format(b, tb));
    bool same_lead = a->ndim == b->ndim;
    for (int i = 0; same_lead && i < a->ndim - 2; i++) same_lead = a->dim[i] == b->dim[i];
    if (!same_lead && b->ndim != 2)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "%s: matrix product of %s and %s: the right side must have the leading dimensions of "
            "the left, or none",
            tr_op_where(op), tr_shape_format(a, ta), tr_shape_format(b, tb));
    if (!same_lead && attr->trans_a)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: matrix product of transposed %s with one shared %s is not supported; "
                       "give both the same leading dimensions",
                       tr_op_where(op), tr_shape_format(a, ta), tr_shape_format(b, tb));
    return TR_OK;
}

static tr_status_t matmul_product_shape(tr_graph_t *g, tr_op_t *op, tr_dtype_t dtype) {
    char ta[96], tb[96];
    const tr_matmul_attr_t *attr = op->attr;
    const char *const what[] = {"the left side", "the right side", "the bias"};
    TR_TRY(tr_op_check_present(op, 0, what[0]));
    TR_TRY(tr_op_check_present(op, 1, what[1]));
    TR_TRY(tr_op_check_float(g, op, 0, what[0]));
    TR_TRY(tr_op_check_type(g, op, 1, tr_dtype_of(g, op->in[0]), what[1]));
    tr_shape_t a = *tr_shape_of(g, op->in[0]), b = *tr_shape_of(g, op->in[1]);
    TR_TRY(matmul_check_ranks(op, &a, &b));
    int64_t inner_a = matmul_dim_from_end(&a, attr->trans_a ? 2 : 1),
            inner_b = matmul_dim_from_end(&b, attr->trans_b ? 1 : 2);
    if (inner_a != inner_b)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: matrix product of %s%s and %s%s: inner sizes %lld and %lld differ; the "
                       "weight of a linear layer is (outputs, inputs), and images must be "
                       "flattened before it",
                       tr_op_where(op), tr_shape_format(&a, ta), attr->trans_a ? " transposed" : "",
                       tr_shape_format(&b, tb), attr->trans_b ? " transposed" : "",
                       (long long)inner_a, (long long)inner_b);
    tr_shape_t c = a;
    c.dim[c.ndim - 2] = matmul_dim_from_end(&a, attr->trans_a ? 1 : 2);
    c.dim[c.ndim - 1] = matmul_dim_from_end(&b, attr->trans_b ? 2 : 1);
    TR_TRY(tr_op_check_vector(g, op, 2, c.dim[c.ndim - 1], what[2]));
    TR_TRY(tr_op_check_bias_copy(g, op, c.dim[c.ndim - 1]));
    return tr_op_output(g, op, 0, dtype, &c);
}

static tr_status_t matmul_shape(tr_graph_t *g, tr_op_t *op) {
    return matmul_product_shape(g, op, tr_dtype_of(g, op->in[0]));
}

/* The gradient of a weight goes to the reduced block, which is f32. */
static tr_status_t matmul_weight_gradient_shape(tr_graph_t *g, tr_op_t *op) {
    return matmul_product_shape(g, op, TR_F32);
}

static double matmul_flops(const tr_graph_t *g, const tr_op_t *op) {
    const tr_matmul_attr_t *attr = op->attr;
    return 2 * tr_op_elems(g, op->out[0]) *
           (double)matmul_dim_from_end(tr_shape_of(g, op->in[0]), attr->trans_a ? 2 : 1);
}

/* A product of activations; one with a weight on the right; and the gradient of that weight. */
static const tr_op_row_t matmul_row, linear_row, weight_gradient_row;

static tr_status_t matmul_append_product(tr_graph_t *g, const tr_op_row_t *row, tr_tensor_t a,
                                         tr_tensor_t b, tr_tensor_t bias,
                                         const tr_matmul_attr_t *attr, tr_tensor_t *out) {
    tr_tensor_t copy;
    TR_TRY(tr_op_bias_copy(g, a, bias, &copy));
    return tr_op_append(g, row, (tr_tensor_t[]){a, b, bias, copy}, 4, attr, sizeof *attr, NULL, out,
                        1);
}

/*
 * With C = alpha op(A) op(B), each side's gradient is a product of dC and the other side, the order
 * and transpositions following from the transpositions of A and B (d(AB) = dA B + A dB).
 */
static tr_status_t matmul_grad_a(tr_graph_t *g, const tr_matmul_attr_t *attr, tr_tensor_t dc,
                                 tr_tensor_t b, tr_tensor_t *out) {
    tr_matmul_attr_t m = {.alpha = attr->alpha};
    if (!attr->trans_a) {
        m.trans_b = !attr->trans_b;
        return matmul_append_product(g, &matmul_row, dc, b, TR_NONE, &m, out);
    }
    m.trans_a = attr->trans_b;
    m.trans_b = true;
    return matmul_append_product(g, &matmul_row, b, dc, TR_NONE, &m, out);
}

static tr_status_t matmul_grad_b(tr_graph_t *g, const tr_op_row_t *row,
                                 const tr_matmul_attr_t *attr, tr_tensor_t dc, tr_tensor_t a,
                                 bool shared, tr_tensor_t *out) {
    tr_matmul_attr_t m = {.alpha = attr->alpha};
    if (shared) { /* one B for all leading dimensions: fold them, and the product sums over them */
        TR_TRY(tr_fold_rows(g, a, &a));
        TR_TRY(tr_fold_rows(g, dc, &dc));
    }
    if (!attr->trans_b) {
        m.trans_a = !attr->trans_a;
        return matmul_append_product(g, row, a, dc, TR_NONE, &m, out);
    }
    m.trans_a = true;
    m.trans_b = attr->trans_a;
    return matmul_append_product(g, row, dc, a, TR_NONE, &m, out);
}

static tr_status_t matmul_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                               const bool *need, tr_tensor_t *din) {
    const tr_matmul_attr_t *attr = op->attr;
    tr_tensor_t a = op->in[0], b = op->in[1], dc, rows;
    if (tr_is_none(dout[0])) return TR_OK;
    bool shared = tr_shape_of(g, b)->ndim == 2;
    TR_TRY(tr_op_unfuse_act(g, attr->act, dout[0], op->out[0], &dc));
    if (need[2]) {
        TR_TRY(tr_fold_rows(g, dc, &rows));
        TR_TRY(tr_column_sum(g, rows, &din[2]));
    }
    const tr_op_row_t *row_b = op->row == &linear_row ? &weight_gradient_row : &matmul_row;
    if (need[1]) TR_TRY(matmul_grad_b(g, row_b, attr, dc, a, shared, &din[1]));
    if (need[0]) TR_TRY(matmul_grad_a(g, attr, dc, b, &din[0]));
    return TR_OK;
}

static const tr_op_row_t matmul_row = {.name = "matmul",
                                       .kernel = TR_K_MATMUL,
                                       .shape = matmul_shape,
                                       .grad = matmul_grad,
                                       .flops = matmul_flops};
static const tr_op_row_t linear_row = {.name = "matmul",
                                       .kernel = TR_K_MATMUL,
                                       .shape = matmul_shape,
                                       .grad = matmul_grad,
                                       .flops = matmul_flops};
static const tr_op_row_t weight_gradient_row = {.name = "matmul",
                                                .kernel = TR_K_MATMUL,
                                                .shape = matmul_weight_gradient_shape,
                                                .flops = matmul_flops};

static tr_status_t matmul_act_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(matmul_shape(g, op));
    return tr_op_output(g, op, 1, tr_dtype_of(g, op->in[0]), tr_shape_of(g, op->out[0]));
}

const tr_op_row_t tr_matmul_act_row = {.name = "matmul_act",
                                       .kernel = TR_K_MATMUL_ACT_FWD,
                                       .shape = matmul_act_shape,
                                       .flops = matmul_flops};
const tr_op_row_t tr_matmul_act_bwd_row = {.name = "matmul_act_bwd",
                                           .kernel = TR_K_MATMUL_ACT_BWD,
                                           .shape = matmul_shape,
                                           .flops = matmul_flops};

/* An activation that cannot be fused is appended behind. */
static tr_status_t matmul_product_act(tr_graph_t *g, const tr_op_row_t *row, tr_tensor_t a,
                                      tr_tensor_t b, tr_tensor_t bias, tr_matmul_attr_t attr,
                                      tr_tensor_t *out) {
    tr_act_t act = attr.act;
    if (attr.beta != 0)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "%s: a product into a new tensor has nothing to multiply by beta = %g; use 0",
            tr_scope(g), attr.beta);
    if (tr_op_can_fuse(g, act)) return matmul_append_product(g, row, a, b, bias, &attr, out);
    attr.act = TR_ACT_NONE;
    TR_TRY(matmul_append_product(g, row, a, b, bias, &attr, out));
    return tr_activation(g, *out, act, out);
}

tr_status_t tr_matmul(tr_graph_t *g, tr_tensor_t a, tr_tensor_t b, const tr_matmul_attr_t *attr,
                      tr_tensor_t *out) {
    tr_matmul_attr_t used = *attr;
    if (used.alpha == 0) used.alpha = 1;
    return matmul_product_act(g, &matmul_row, a, b, TR_NONE, used, out);
}

static tr_status_t matmul_linear(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w, tr_tensor_t b,
                                 bool trans_w, tr_act_t act, tr_tensor_t *out) {
    tr_matmul_attr_t attr = {.trans_b = trans_w, .alpha = 1, .act = act};
    TR_TRY(tr_op_weight(g, x, w, &w));
    return matmul_product_act(g, &linear_row, x, w, b, attr, out);
}

tr_status_t tr_linear(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w, tr_tensor_t b, tr_act_t act,
                      tr_tensor_t *out) {
    return matmul_linear(g, x, w, b, true, act, out);
}

tr_status_t tr_linear_in_out(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w, tr_tensor_t b,
                             tr_act_t act, tr_tensor_t *out) {
    return matmul_linear(g, x, w, b, false, act, out);
}

static tr_status_t column_sum_shape(tr_graph_t *g, tr_op_t *op) {
    char text[96];
    TR_TRY(tr_op_check_float(g, op, 0, "its input"));
    const tr_shape_t *x = tr_shape_of(g, op->in[0]);
    if (x->ndim != 2)
        return TR_FAIL(TR_ERR_INTERNAL, "%s: column_sum requires (rows, columns), found %s",
                       tr_op_where(op), tr_shape_format(x, text));
    return tr_op_output(g, op, 0, TR_F32, &TR_SHAPE(x->dim[1]));
}

static double column_sum_flops(const tr_graph_t *g, const tr_op_t *op) {
    return tr_op_elems(g, op->in[0]);
}

static const tr_op_row_t column_sum_row = {.name = "column_sum",
                                           .kernel = TR_K_COLUMN_SUM,
                                           .shape = column_sum_shape,
                                           .flops = column_sum_flops};

tr_status_t tr_column_sum(tr_graph_t *g, tr_tensor_t x, tr_tensor_t *out) {
    return tr_op_append(g, &column_sum_row, &x, 1, NULL, 0, NULL, out, 1);
}
