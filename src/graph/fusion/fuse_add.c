/* Sums of gradients of activations. */
#include "graph/graph_int.h"

/* With a filter of one position that reads each pixel once, the image's gradient is dy w. */
static bool fuse_add_can_add(const tr_fuse_t *f, const tr_op_t *op) {
    const tr_conv_attr_t *conv = op->attr;
    if (op->row->kernel != TR_K_CONV_BWD_DATA || op->n_in != 2) return false;
    bool is_product = conv->groups == 1;
    for (int d = 0; d < conv->spatial; d++)
        is_product &= conv->kernel[d] == 1 && conv->stride[d] == 1 && conv->pad_lo[d] == 0 &&
                      conv->pad_hi[d] == 0;
    return is_product && f->g->device->ops->kernels[TR_K_CONV_BWD_DATA].adds & 1;
}

/*
 * conv_bwd_data -> t; add(s, t) -> y
 * becomes conv_bwd_data with s as an input, where the convolution is a product and the device can
 * add. t needs no memory. The product sums up in f32 and rounds once; the two records round twice.
 */
tr_status_t tr_fuse_add(tr_fuse_t *f, int i, bool *out_done) {
    if (!tr_fuse_is(f, i, TR_K_ADD)) return TR_OK;
    const tr_op_t *add = tr_fuse_op(f, i);
    if (((const tr_add_attr_t *)add->attr)->act != TR_ACT_NONE) return TR_OK;
    for (int k = 0; k < 2 && !*out_done; k++) {
        const tr_tensor_t t = add->in[k], s = add->in[1 - k];
        const tr_fuse_use_t *use = tr_fuse_use(f, s);
        if (!tr_fuse_is_private(f, t) || !use || use->writes != 1) continue;
        const int writer = tr_fuse_use(f, t)->writer;
        tr_op_t *op = tr_fuse_op(f, writer);
        if (!fuse_add_can_add(f, op) || use->writer >= writer) continue;
        if (!tr_shape_equal(tr_shape_of(f->g, op->out[0]), tr_shape_of(f->g, s))) continue;
        op->in[op->n_in++] = s;
        op->out[0] = add->out[0];
        tr_fuse_remove(f, i);
        *out_done = true;
    }
    return TR_OK;
}
