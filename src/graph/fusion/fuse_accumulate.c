/* Gradients that are added where they belong. */
#include "graph/graph_int.h"

/* CONV_BWD_DATA adds an input instead: fuse_add.c. A product that adds is A B + sum; with more than
 * that, it would not be act(alpha A B) + sum. */
static bool fuse_accumulate_can_add(const tr_fuse_t *f, const tr_op_t *op, int o) {
    const tr_kernel_id_t kernel = op->row->kernel;
    const tr_matmul_attr_t *m = kernel == TR_K_MATMUL ? op->attr : NULL;
    if (m && (m->act != TR_ACT_NONE || m->alpha != 1.0f || m->beta != 0.0f)) return false;
    return kernel != TR_K_CONV_BWD_DATA && f->g->device->ops->kernels[kernel].adds >> o & 1;
}

/* The record that makes t; -1: there are several. *out_adder: the gradient of an embedding, which
 * adds to t in place after that; -1: none. */
static int fuse_accumulate_writer(const tr_fuse_t *f, tr_tensor_t t, int *out_adder) {
    int writer = tr_fuse_use(f, t)->writer;
    *out_adder = -1;
    if (tr_fuse_use(f, t)->writes == 1) return writer;
    const tr_op_t *last = tr_fuse_op(f, writer);
    if (tr_fuse_use(f, t)->writes > 2 || last->row->kernel != TR_K_EMBEDDING_BWD) return -1;
    *out_adder = writer;
    while (--writer >= 0)
        if (tr_fuse_op(f, writer)->row && tr_fuse_output(f, tr_fuse_op(f, writer), t) >= 0) break;
    return writer;
}

/*
 * any op -> t; accumulate(t) -> sum
 * becomes the op, with its output added to sum, where the kernel can. t needs no memory. Where the
 * gradient of an embedding is added to t between the two, it is added to sum too. The bits are the
 * same but for products, which add while they sum up, and for that embedding.
 */
tr_status_t tr_fuse_accumulate(tr_fuse_t *f, int i, bool *out_done) {
    int adder = -1;
    if (!tr_fuse_is(f, i, TR_K_ACCUMULATE)) return TR_OK;
    const tr_tensor_t t = tr_fuse_op(f, i)->in[0], sum = tr_fuse_op(f, i)->out[0];
    if (!tr_fuse_is_read_once(f, t)) return TR_OK;
    const int writer = fuse_accumulate_writer(f, t, &adder);
    if (writer < 0) return TR_OK;
    tr_op_t *op = tr_fuse_op(f, writer);
    const int o = tr_fuse_output(f, op, t);
    if (!fuse_accumulate_can_add(f, op, o)) return TR_OK;
    for (int k = writer + 1; k < i; k++) /* what adds to the same sum before: the order must stay */
        if (tr_fuse_op(f, k)->row && tr_fuse_output(f, tr_fuse_op(f, k), sum) >= 0) return TR_OK;
    const tr_shape_t shape = *tr_shape_of(f->g, op->out[o]);
    if (tr_shape_elems(&shape) != tr_shape_elems(tr_shape_of(f->g, t))) return TR_OK;
    TR_TRY(tr_reshape(f->g, sum, &shape, &op->out[o]));
    op->adds |= 1u << o;
    if (adder >= 0) tr_fuse_op(f, adder)->out[0] = op->out[o];
    tr_fuse_remove(f, i);
    return *out_done = true, TR_OK;
}
