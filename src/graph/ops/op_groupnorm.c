/* groupnorm, groupnorm_bwd; the builder tr_groupnorm. */
#include "op_int.h"

/* A launch on a GPU has so many rows of blocks at most. */
enum { X, GAMMA, BETA, MAX_SAMPLES = 65535 };
enum { Y, MEAN, RSTD };

static tr_status_t groupnorm_shape(tr_graph_t *g, tr_op_t *op) {
    const char *const what[] = {"its input", "its scale (gamma)", "its shift (beta)"};
    const tr_groupnorm_attr_t *attr = op->attr;
    for (int i = 0; i < 3; i++) TR_TRY(tr_op_check_present(op, i, what[i]));
    TR_TRY(tr_op_check_float(g, op, X, what[X]));
    const tr_shape_t x = *tr_shape_of(g, op->in[X]);
    const int64_t samples = x.dim[0], channels = x.dim[x.ndim - 1];
    if (x.ndim < 2 || attr->groups < 1 || channels % attr->groups)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "%s: group normalisation expects (samples, ..., channels) with channels that are a "
            "multiple of the groups, found %d dimensions, %lld channels and %d groups",
            tr_op_where(op), x.ndim, (long long)channels, attr->groups);
    if (samples > MAX_SAMPLES)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "%s: group normalisation takes at most %d samples at once, found %lld: set a "
            "smaller data.micro_batch",
            tr_op_where(op), MAX_SAMPLES, (long long)samples);
    for (int i = GAMMA; i <= BETA; i++) TR_TRY(tr_op_check_vector(g, op, i, channels, what[i]));
    if (!(attr->eps > 0))
        return TR_FAIL(TR_ERR_CONFIG, "%s: eps must be above 0, found %g", tr_op_where(op),
                       attr->eps);
    TR_TRY(tr_op_output(g, op, Y, tr_dtype_of(g, op->in[X]), &x));
    TR_TRY(tr_op_output(g, op, MEAN, TR_F32, &TR_SHAPE(samples, attr->groups)));
    return tr_op_output(g, op, RSTD, TR_F32, &TR_SHAPE(samples, attr->groups));
}

/* Per element: sum; subtract, square, add; scale and shift. */
static double groupnorm_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 6 * tr_op_elems(g, op->in[X]);
}
/* Per element: the normalised value, sums for gamma and beta, dx from three terms. */
static double groupnorm_bwd_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 10 * tr_op_elems(g, op->in[1]);
}

static const tr_op_row_t groupnorm_bwd_row = {.name = "groupnorm_bwd",
                                              .kernel = TR_K_GROUPNORM_BWD,
                                              .shape = tr_op_norm_bwd_shape,
                                              .flops = groupnorm_bwd_flops};

static tr_status_t groupnorm_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                  const bool *need, tr_tensor_t *din) {
    return tr_op_norm_grad(g, op, &groupnorm_bwd_row, dout, need, din);
}

static const tr_op_row_t groupnorm_row = {.name = "groupnorm",
                                          .kernel = TR_K_GROUPNORM_FWD,
                                          .shape = groupnorm_shape,
                                          .grad = groupnorm_grad,
                                          .flops = groupnorm_flops};

tr_status_t tr_groupnorm(tr_graph_t *g, tr_tensor_t x, tr_tensor_t gamma, tr_tensor_t beta,
                         const tr_groupnorm_attr_t *attr, tr_tensor_t *out) {
    tr_tensor_t made[3];
    TR_TRY(tr_op_append(g, &groupnorm_row, (tr_tensor_t[]){x, gamma, beta}, 3, attr, sizeof *attr,
                        NULL, made, 3));
    *out = made[Y];
    return TR_OK;
}
