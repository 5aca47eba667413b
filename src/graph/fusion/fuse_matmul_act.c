/* Products with the activation after them, or with the gradient of the one before them. */
#include "graph/graph_int.h"
#include "graph/ops/op_int.h"

/* Whether record i is a product of activations in half precision, with nothing but its bias. */
static bool fuse_is_plain_product(const tr_fuse_t *f, int i, tr_act_t act) {
    if (!f->g->device->product_act || act != TR_ACT_GELU_TANH || !tr_fuse_is(f, i, TR_K_MATMUL))
        return false;
    const tr_op_t *op = tr_fuse_op(f, i);
    const tr_matmul_attr_t *attr = op->attr;
    const tr_dtype_t type = tr_dtype_of(f->g, op->out[0]);
    return attr->act == TR_ACT_NONE && attr->alpha == 1.0f && attr->beta == 0.0f && !op->adds &&
           tr_dtype_is_half(type) && tr_shape_of(f->g, op->in[1])->ndim == 2 && !attr->trans_a;
}

/* matmul(a, b) -> c; act_fwd(c) -> y, the first that reads c, becomes matmul_act(a, b) -> c, y. */
tr_status_t tr_fuse_matmul_act(tr_fuse_t *f, int i, bool *out_done) {
    if (!tr_fuse_is(f, i, TR_K_ACT_FWD)) return TR_OK;
    const tr_op_t *act = tr_fuse_op(f, i);
    const tr_fuse_use_t *use = tr_fuse_use(f, act->in[0]);
    tr_matmul_attr_t attr = {.act = ((const tr_act_attr_t *)act->attr)->act};
    if (!use || use->writes != 1 || use->reader != i ||
        !fuse_is_plain_product(f, use->writer, attr.act))
        return TR_OK;
    const tr_op_t *product = tr_fuse_op(f, use->writer);
    if (product->out[0].id != act->in[0].id) return TR_OK;
    const tr_act_t gelu = attr.act;
    attr = *(const tr_matmul_attr_t *)product->attr;
    attr.act = gelu;
    TR_TRY(tr_fuse_replace(f, use->writer, i, &tr_matmul_act_row, product->in, product->n_in, &attr,
                           sizeof attr, (tr_tensor_t[]){product->out[0], act->out[0]}, 2));
    return *out_done = true, TR_OK;
}

/* matmul(a, b) -> dy; act_bwd(dy, x) -> dx becomes matmul_act_bwd(a, b, x) -> dx. dy needs no memory,
 * and a library that computes both does not round it between the two. */
tr_status_t tr_fuse_matmul_act_bwd(tr_fuse_t *f, int i, bool *out_done) {
    if (!tr_fuse_is(f, i, TR_K_ACT_BWD) || tr_fuse_op(f, i)->n_out != 1 ||
        !tr_fuse_is_private(f, tr_fuse_op(f, i)->in[0]))
        return TR_OK;
    const tr_op_t *act = tr_fuse_op(f, i);
    const tr_tensor_t dy = act->in[0], x = act->in[1];
    const tr_fuse_use_t *of_x = tr_fuse_use(f, x);
    const int writer = tr_fuse_use(f, dy)->writer;
    const tr_act_t gelu = ((const tr_act_attr_t *)act->attr)->act;
    if (!fuse_is_plain_product(f, writer, gelu) || !of_x || of_x->writer >= writer) return TR_OK;
    const tr_op_t *product = tr_fuse_op(f, writer);
    if (product->out[0].id != dy.id || !tr_is_none(product->in[2])) return TR_OK;
    tr_matmul_attr_t attr = *(const tr_matmul_attr_t *)product->attr;
    const tr_tensor_t in[] = {product->in[0], product->in[1], TR_NONE, TR_NONE, x};
    attr.act = gelu;
    TR_TRY(tr_fuse_replace(f, writer, i, &tr_matmul_act_bwd_row, in, 5, &attr, sizeof attr,
                           act->out, 1));
    return *out_done = true, TR_OK;
}
