/* Gradients of biases, which are sums over rows, by the records that write what is summed. */
#include "graph/graph_int.h"

/*
 * residual_layernorm_bwd or act_bwd -> dx; column_sum(dx) -> db
 * becomes the first record with db as one more output: dx is read once less. The sums are of the
 * rounded dx in another order.
 */
tr_status_t tr_fuse_bias_sum(tr_fuse_t *f, int i, bool *out_done) {
    if (!f->g->device->bias_sums || !tr_fuse_is(f, i, TR_K_COLUMN_SUM)) return TR_OK;
    const tr_op_t *sum = tr_fuse_op(f, i);
    const tr_fuse_use_t *use = tr_fuse_use(f, sum->in[0]);
    if (!use || use->writes != 1) return TR_OK;
    tr_op_t *op = tr_fuse_op(f, use->writer);
    /* which output is the sum of output 0 over all but columns; -1: none */
    const tr_kernel_id_t kernel = op->row->kernel;
    const int output = kernel == TR_K_RESIDUAL_LAYERNORM_BWD ? 3 : kernel == TR_K_ACT_BWD ? 1 : -1;
    if (output < 0 || op->n_out != output || tr_fuse_output(f, op, sum->in[0]) != 0) return TR_OK;
    const tr_shape_t *dx = tr_shape_of(f->g, op->out[0]), *summed = tr_shape_of(f->g, sum->in[0]);
    if (tr_shape_elems(dx) != tr_shape_elems(summed) ||
        dx->dim[dx->ndim - 1] != summed->dim[summed->ndim - 1])
        return TR_OK;
    op->out[op->n_out++] = sum->out[0];
    tr_fuse_remove(f, i);
    return *out_done = true, TR_OK;
}
