/* Convolutions that give the sums of the batch normalisation after them. */
#include "graph/graph_int.h"
#include "graph/ops/op_int.h"

/* The batch normalisation that first reads what record i writes; -1: none. */
static int fuse_norm_after(const tr_fuse_t *f, int i) {
    const tr_tensor_t y = tr_fuse_op(f, i)->out[0];
    const tr_fuse_use_t *use = tr_fuse_use(f, y);
    if (!use || use->writes != 1 || use->reader < 0) return -1;
    const bool is_norm = tr_fuse_is(f, use->reader, TR_K_BATCHNORM_TRAIN) ||
                         tr_fuse_is(f, use->reader, TR_K_BATCHNORM_ADD_TRAIN);
    return is_norm && tr_fuse_op(f, use->reader)->in[0].id == y.id ? use->reader : -1;
}

static bool fuse_can_give_sums(const tr_fuse_t *f, int i) {
    if (!f->g->device->conv_stats || !tr_fuse_is(f, i, TR_K_CONV_FWD) ||
        !tr_graph_has_kernel(f->g, TR_K_CONV_STATS_FWD) ||
        !tr_graph_has_kernel(f->g, TR_K_BATCHNORM_SUMS_TRAIN))
        return false;
    const tr_op_t *conv = tr_fuse_op(f, i);
    const tr_conv_attr_t *attr = conv->attr;
    return attr->act == TR_ACT_NONE && attr->groups == 1 && tr_is_none(conv->in[2]) &&
           tr_dtype_is_half(tr_dtype_of(f->g, conv->in[0]));
}

/*
 * conv(x, w) -> y; batchnorm_train(y, ...), the first that reads y, with or without a sum
 * becomes conv_stats(x, w) -> y, sums; batchnorm_sums(y, ..., sums): y is read once less.
 *
 * The sums are of squares, not of differences from a pivot, so the variance loses digits where the
 * mean is large: the results differ by rounding. The last pattern: it makes a tensor.
 */
tr_status_t tr_fuse_conv_stats(tr_fuse_t *f, int i, bool *out_done) {
    const int at = fuse_can_give_sums(f, i) ? fuse_norm_after(f, i) : -1;
    tr_tensor_t sums;
    if (at < 0) return TR_OK;
    const tr_op_t *conv = tr_fuse_op(f, i), *norm = tr_fuse_op(f, at);
    const int64_t channels = tr_shape_elems(tr_shape_of(f->g, norm->in[1]));
    TR_TRY(tr_tensor_make(f->g, "", TR_ROLE_ACTIVATION, TR_F32, &TR_SHAPE(2, channels), &sums));
    const tr_tensor_t norm_in[] = {norm->in[0], norm->in[1], norm->in[2], sums,
                                   norm->n_in > 3 ? norm->in[3] : TR_NONE};
    TR_TRY(tr_fuse_replace(f, at, -1, &tr_batchnorm_sums_row, norm_in, 5, norm->attr,
                           norm->attr_bytes, norm->out, norm->n_out));
    TR_TRY(tr_fuse_replace(f, i, -1, &tr_conv_stats_row, conv->in, 3, conv->attr, conv->attr_bytes,
                           (tr_tensor_t[]){conv->out[0], sums}, 2));
    return *out_done = true, TR_OK;
}
