/* pool, pool_bwd; the builders tr_pool and tr_global_avgpool. */
#include "op_int.h"

/* As for convolutions, the size of dx does not follow from that of dy. */
typedef struct {
    tr_pool_attr_t pool;
    int64_t in_spatial[3];
} pool_bwd_attr_t;

static tr_status_t pool_check_attr(const tr_op_t *op, const tr_pool_attr_t *attr) {
    if (attr->spatial < 1 || attr->spatial > 3)
        return TR_FAIL(TR_ERR_CONFIG, "%s: pooling has 1 to 3 spatial dimensions, found %d",
                       tr_op_where(op), attr->spatial);
    for (int d = 0; d < attr->spatial; d++) {
        bool ok = attr->kernel[d] >= 1 && attr->stride[d] >= 1 && attr->pad_lo[d] >= 0 &&
                  attr->pad_hi[d] >= 0;
        if (!ok || attr->pad_lo[d] >= attr->kernel[d] || attr->pad_hi[d] >= attr->kernel[d])
            return TR_FAIL(TR_ERR_CONFIG,
                           "%s: pooling requires kernel and stride of at least 1 and padding "
                           "smaller than the kernel; dimension %d has kernel %d, stride %d, "
                           "padding %d and %d",
                           tr_op_where(op), d, attr->kernel[d], attr->stride[d], attr->pad_lo[d],
                           attr->pad_hi[d]);
    }
    return TR_OK;
}

static tr_status_t pool_nothing_left(const tr_op_t *op, const tr_pool_attr_t *attr,
                                     const tr_shape_t *x) {
    tr_str_t kernel = {0}, size = {0};
    for (int d = 0; d < attr->spatial; d++)
        tr_str_printf(&kernel, "%s%d", d ? "x" : "", attr->kernel[d]);
    tr_shape_describe(&size, x->dim + 1, x->ndim - 1);
    tr_status_t status =
        TR_FAIL(TR_ERR_CONFIG,
                "%s: %s pooling %s on an input of %s has an empty output; remove it, or pad the "
                "convolutions before it (pad=same)",
                tr_op_where(op), attr->max ? "max" : "average", kernel.text, size.text);
    tr_str_free(&kernel);
    tr_str_free(&size);
    return status;
}

static tr_status_t pool_shape(tr_graph_t *g, tr_op_t *op) {
    char text[96];
    const tr_pool_attr_t *attr = op->attr;
    TR_TRY(tr_op_check_present(op, 0, "an input"));
    TR_TRY(tr_op_check_float(g, op, 0, "its input"));
    TR_TRY(pool_check_attr(op, attr));
    tr_shape_t x = *tr_shape_of(g, op->in[0]), y = x;
    if (x.ndim != attr->spatial + 2)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "%s: pooling of %d dimensions requires an input of %d (samples, sizes, channels), "
            "found %s",
            tr_op_where(op), attr->spatial, attr->spatial + 2, tr_shape_format(&x, text));
    for (int d = 0; d < attr->spatial; d++) {
        int64_t room = x.dim[d + 1] + attr->pad_lo[d] + attr->pad_hi[d] - attr->kernel[d];
        if (room < 0) return pool_nothing_left(op, attr, &x);
        y.dim[d + 1] = room / attr->stride[d] + 1;
    }
    TR_TRY(tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &y));
    return attr->max ? tr_op_output(g, op, 1, TR_I32, &y) : TR_OK;
}

static double pool_volume(const tr_pool_attr_t *attr) {
    double volume = 1;
    for (int d = 0; d < attr->spatial; d++) volume *= attr->kernel[d];
    return volume;
}

static double pool_flops(const tr_graph_t *g, const tr_op_t *op) {
    return tr_op_elems(g, op->out[0]) * pool_volume(op->attr);
}

static tr_status_t pool_bwd_shape(tr_graph_t *g, tr_op_t *op) {
    const pool_bwd_attr_t *attr = op->attr;
    tr_shape_t x = *tr_shape_of(g, op->in[0]);
    for (int d = 0; d < attr->pool.spatial; d++) x.dim[d + 1] = attr->in_spatial[d];
    return tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &x);
}

static double pool_bwd_flops(const tr_graph_t *g, const tr_op_t *op) {
    const pool_bwd_attr_t *attr = op->attr;
    return tr_op_elems(g, op->in[0]) * (attr->pool.max ? 1 : pool_volume(&attr->pool));
}

static const tr_op_row_t pool_bwd_row = {
    .name = "pool_bwd", .kernel = TR_K_POOL_BWD, .shape = pool_bwd_shape, .flops = pool_bwd_flops};

static tr_status_t pool_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                             const bool *need, tr_tensor_t *din) {
    if (tr_is_none(dout[0]) || !need[0]) return TR_OK;
    pool_bwd_attr_t attr = {.pool = *(const tr_pool_attr_t *)op->attr};
    for (int d = 0; d < attr.pool.spatial; d++)
        attr.in_spatial[d] = tr_shape_of(g, op->in[0])->dim[d + 1];
    tr_tensor_t in[] = {dout[0], op->out[1]};
    if (attr.pool.max && tr_is_none(in[1]))
        return TR_FAIL(TR_ERR_INTERNAL,
                       "%s: the gradient of a max pooling needs the index, which an eval program "
                       "does not keep",
                       tr_op_where(op));
    return tr_op_append(g, &pool_bwd_row, in, 2, &attr, sizeof attr, NULL, &din[0], 1);
}

static const tr_op_row_t pool_row = {.name = "pool",
                                     .kernel = TR_K_POOL_FWD,
                                     .shape = pool_shape,
                                     .grad = pool_grad,
                                     .flops = pool_flops};

tr_status_t tr_pool(tr_graph_t *g, tr_tensor_t x, const tr_pool_attr_t *attr, tr_tensor_t *out) {
    tr_tensor_t result[2];
    bool want[] = {true, attr->max && tr_graph_mode(g) != TR_EVAL};
    TR_TRY(tr_op_append(g, &pool_row, &x, 1, attr, sizeof *attr, want, result, 2));
    return *out = result[0], TR_OK;
}

tr_status_t tr_global_avgpool(tr_graph_t *g, tr_tensor_t x, tr_tensor_t *out) {
    char text[96];
    const tr_shape_t *shape = tr_shape_of(g, x);
    if (shape->ndim < 3 || shape->ndim > 5)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: global pooling requires (samples, 1 to 3 sizes, channels), found %s; a "
                       "flattened input has nothing left to pool",
                       tr_scope(g), tr_shape_format(shape, text));
    tr_pool_attr_t attr = {.spatial = shape->ndim - 2};
    for (int d = 0; d < attr.spatial; d++) {
        attr.kernel[d] = (int)shape->dim[d + 1];
        attr.stride[d] = 1;
    }
    tr_shape_t pooled = TR_SHAPE(shape->dim[0], shape->dim[shape->ndim - 1]);
    TR_TRY(tr_pool(g, x, &attr, out));
    return tr_reshape(g, *out, &pooled, out);
}
