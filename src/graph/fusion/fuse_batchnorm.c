/* Batch normalisation with the sum of a residual block. */
#include "graph/graph_int.h"
#include "graph/ops/op_int.h"

#include <string.h>

/* Whether input k of the add at record i is what a batch normalisation without an activation wrote,
 * whose other outputs nothing reads before. *out_norm: that record. */
static bool fuse_adds_norm(const tr_fuse_t *f, int i, int k, int *out_norm) {
    const tr_tensor_t t = tr_fuse_op(f, i)->in[k];
    if (!tr_fuse_is_private(f, t)) return false;
    *out_norm = tr_fuse_use(f, t)->writer;
    if (!tr_fuse_is(f, *out_norm, TR_K_BATCHNORM_TRAIN)) return false;
    const tr_op_t *norm = tr_fuse_op(f, *out_norm);
    if (norm->out[0].id != t.id || ((const tr_norm_attr_t *)norm->attr)->act != TR_ACT_NONE)
        return false;
    for (int o = 1; o <= 2; o++) {
        const int reader = tr_fuse_use(f, norm->out[o])->reader;
        if (reader >= 0 && reader < i) return false;
    }
    return true;
}

/*
 * batchnorm_train(x) -> t; add(t, a) or add(a, t), with or without relu -> y
 * becomes batchnorm_add_train(x, a) -> y. t needs no memory.
 */
tr_status_t tr_fuse_batchnorm_add(tr_fuse_t *f, int i, bool *out_done) {
    int norm = -1, k = 0;
    if (!tr_fuse_is(f, i, TR_K_ADD) || !tr_graph_has_kernel(f->g, TR_K_BATCHNORM_ADD_TRAIN))
        return TR_OK;
    while (k < 2 && !fuse_adds_norm(f, i, k, &norm)) k++;
    if (k == 2) return TR_OK;
    const tr_op_t *add = tr_fuse_op(f, i), *bn = tr_fuse_op(f, norm);
    const tr_tensor_t in[] = {bn->in[0], bn->in[1], bn->in[2], add->in[1 - k]},
                      out[] = {add->out[0], bn->out[1], bn->out[2], bn->out[3]};
    char attr[64];
    if (bn->attr_bytes > sizeof attr)
        return TR_FAIL(TR_ERR_INTERNAL, "attributes of %zu bytes", bn->attr_bytes);
    memcpy(attr, bn->attr, bn->attr_bytes);
    ((tr_norm_attr_t *)(void *)attr)->act = ((const tr_add_attr_t *)add->attr)->act;
    TR_TRY(tr_fuse_replace(f, i, norm, &tr_batchnorm_add_train_row, in, 4, attr, bn->attr_bytes,
                           out, 4));
    return *out_done = true, TR_OK;
}

/*
 * act_bwd(dy, y) of relu -> dsum; batchnorm_bwd(dsum, x, ...), the first that reads dsum
 * becomes batchnorm_add_bwd(dy, x, ..., y), which also writes dsum, the gradient of the shortcut.
 */
tr_status_t tr_fuse_batchnorm_add_bwd(tr_fuse_t *f, int i, bool *out_done) {
    if (!tr_fuse_is(f, i, TR_K_ACT_BWD) || !tr_graph_has_kernel(f->g, TR_K_BATCHNORM_ADD_BWD))
        return TR_OK;
    const tr_op_t *act = tr_fuse_op(f, i);
    const tr_tensor_t dsum = act->out[0];
    const tr_fuse_use_t *use = tr_fuse_use(f, dsum);
    if (((const tr_act_attr_t *)act->attr)->act != TR_ACT_RELU || !use || use->writes != 1 ||
        !tr_fuse_is(f, use->reader, TR_K_BATCHNORM_BWD))
        return TR_OK;
    const tr_op_t *bn = tr_fuse_op(f, use->reader);
    if (bn->in[0].id != dsum.id || ((const tr_norm_attr_t *)bn->attr)->act != TR_ACT_NONE)
        return TR_OK;
    const tr_tensor_t in[] = {act->in[0], bn->in[1], bn->in[2], bn->in[3],
                              bn->in[4],  bn->in[5], act->in[1]},
                      out[] = {bn->out[0], bn->out[1], bn->out[2], dsum};
    TR_TRY(tr_fuse_replace(f, use->reader, i, &tr_batchnorm_add_bwd_row, in, 7, bn->attr,
                           sizeof(tr_norm_attr_t), out, 4));
    return *out_done = true, TR_OK;
}
