/* upsample, upsample_bwd; the builder tr_upsample. */
#include "device/upsample.h"
#include "op_int.h"

static tr_status_t upsample_check(const tr_graph_t *g, const tr_op_t *op) {
    char text[96];
    const tr_upsample_attr_t *attr = op->attr;
    const tr_shape_t *x = tr_shape_of(g, op->in[0]);
    if (attr->spatial < 1 || attr->spatial > 3 || x->ndim != attr->spatial + 2)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: an upsampling of %d dimensions requires an input of %d (samples, 1 to "
                       "3 sizes, channels), found %s",
                       tr_op_where(op), attr->spatial, attr->spatial + 2, tr_shape_format(x, text));
    for (int d = 0; d < attr->spatial; d++)
        if (attr->factor[d] < 1 || attr->factor[d] > TR_UPSAMPLE_MAX_FACTOR ||
            x->dim[d + 1] * attr->factor[d] > INT32_MAX / 4)
            return TR_FAIL(TR_ERR_CONFIG,
                           "%s: a factor of an upsampling is 1 to 16, and a size of its output at "
                           "most %d; dimension %d has factor %d and %lld inputs",
                           tr_op_where(op), INT32_MAX / 4, d, attr->factor[d],
                           (long long)x->dim[d + 1]);
    return TR_OK;
}

static tr_status_t upsample_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_upsample_attr_t *attr = op->attr;
    TR_TRY(tr_op_check_present(op, 0, "an input"));
    TR_TRY(tr_op_check_float(g, op, 0, "its input"));
    TR_TRY(upsample_check(g, op));
    tr_shape_t y = *tr_shape_of(g, op->in[0]);
    for (int d = 0; d < attr->spatial; d++) y.dim[d + 1] *= attr->factor[d];
    return tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &y);
}

static tr_status_t upsample_bwd_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_upsample_attr_t *attr = op->attr;
    tr_shape_t x = *tr_shape_of(g, op->in[0]);
    for (int d = 0; d < attr->spatial; d++) x.dim[d + 1] /= attr->factor[d];
    return tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &x);
}

/* A product and a sum for each of the inputs that an output reads. */
static double upsample_flops(const tr_graph_t *g, tr_tensor_t y, const tr_upsample_attr_t *attr) {
    return attr->linear ? tr_op_elems(g, y) * (double)(2 << attr->spatial) : 0;
}

static double upsample_fwd_flops(const tr_graph_t *g, const tr_op_t *op) {
    return upsample_flops(g, op->out[0], op->attr);
}

static double upsample_bwd_flops(const tr_graph_t *g, const tr_op_t *op) {
    return upsample_flops(g, op->in[0], op->attr);
}

static const tr_op_row_t upsample_bwd_row = {.name = "upsample_bwd",
                                             .kernel = TR_K_UPSAMPLE_BWD,
                                             .shape = upsample_bwd_shape,
                                             .flops = upsample_bwd_flops};

static tr_status_t upsample_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                 const bool *need, tr_tensor_t *din) {
    if (tr_is_none(dout[0]) || !need[0]) return TR_OK;
    return tr_op_append(g, &upsample_bwd_row, &dout[0], 1, op->attr, sizeof(tr_upsample_attr_t),
                        NULL, &din[0], 1);
}

static const tr_op_row_t upsample_row = {.name = "upsample",
                                         .kernel = TR_K_UPSAMPLE_FWD,
                                         .shape = upsample_shape,
                                         .grad = upsample_grad,
                                         .flops = upsample_fwd_flops};

tr_status_t tr_upsample(tr_graph_t *g, tr_tensor_t x, const tr_upsample_attr_t *attr,
                        tr_tensor_t *out) {
    return tr_op_append(g, &upsample_row, &x, 1, attr, sizeof *attr, NULL, out, 1);
}
