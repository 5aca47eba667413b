/* The batch on the device: conversion, normalisation, augmentation and rounding in one record. */
#include "graph/graph_int.h"

/*
 * cast_normalize(x) -> t; augment(t) -> y
 * becomes augment with scale and shift, if x has a type that it reads.
 */
tr_status_t tr_fuse_normalize_augment(tr_fuse_t *f, int i, bool *out_done) {
    if (!tr_fuse_is(f, i, TR_K_AUGMENT)) return TR_OK;
    tr_op_t *op = tr_fuse_op(f, i);
    const tr_tensor_t t = op->in[0];
    if (!tr_fuse_is_private(f, t)) return TR_OK;
    const int writer = tr_fuse_use(f, t)->writer;
    if (!tr_fuse_is(f, writer, TR_K_CAST_NORMALIZE)) return TR_OK;
    const tr_op_t *normalize = tr_fuse_op(f, writer);
    const tr_tensor_info_t *x = tr_tensor_info(f->g, normalize->in[0]);
    if (x->dtype != TR_U8 && x->dtype != TR_F32) return TR_OK;
    if (!tr_shape_equal(&x->shape, tr_shape_of(f->g, t))) return TR_OK;
    op->in[0] = normalize->in[0];
    op->in[3] = normalize->in[1];
    op->in[4] = normalize->in[2];
    op->n_in = 5;
    tr_fuse_remove(f, writer);
    return *out_done = true, TR_OK;
}

/*
 * cast_normalize or augment -> t in f32; cast(t) -> y
 * becomes the first with the type of y. t needs no memory.
 */
tr_status_t tr_fuse_input_cast(tr_fuse_t *f, int i, bool *out_done) {
    if (!tr_fuse_is(f, i, TR_K_CAST_NORMALIZE)) return TR_OK;
    const tr_op_t *cast = tr_fuse_op(f, i);
    const tr_tensor_t t = cast->in[0];
    if (!tr_is_none(cast->in[1]) || !tr_is_none(cast->in[2])) return TR_OK;
    if (!tr_fuse_is_private(f, t) || tr_tensor_info(f->g, t)->dtype != TR_F32) return TR_OK;
    const int writer = tr_fuse_use(f, t)->writer;
    if (!tr_fuse_is(f, writer, TR_K_CAST_NORMALIZE) && !tr_fuse_is(f, writer, TR_K_AUGMENT))
        return TR_OK;
    tr_op_t *op = tr_fuse_op(f, writer);
    if (!tr_shape_equal(tr_shape_of(f->g, op->out[0]), tr_shape_of(f->g, cast->out[0])))
        return TR_OK;
    op->out[0] = cast->out[0];
    tr_fuse_remove(f, i);
    return *out_done = true, TR_OK;
}
