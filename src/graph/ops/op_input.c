/* cast_normalize and augment: what happens to a batch on the device before the model sees it. No
 * gradient. */
#include "op_int.h"

static tr_status_t input_normalize_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(tr_op_check_present(op, 0, "an input"));
    tr_shape_t x = *tr_shape_of(g, op->in[0]);
    int64_t channels = x.ndim ? x.dim[x.ndim - 1] : 1;
    TR_TRY(tr_op_check_vector(g, op, 1, channels, "a scale per channel"));
    TR_TRY(tr_op_check_vector(g, op, 2, channels, "a shift per channel"));
    return tr_op_output(g, op, 0, TR_F32, &x);
}

static double input_normalize_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 2 * tr_op_elems(g, op->out[0]);
}

static const tr_op_row_t normalize_row = {.name = "cast_normalize",
                                          .kernel = TR_K_CAST_NORMALIZE,
                                          .shape = input_normalize_shape,
                                          .flops = input_normalize_flops};

tr_status_t tr_cast_normalize(tr_graph_t *g, tr_tensor_t x, tr_tensor_t scale, tr_tensor_t shift,
                              tr_tensor_t *out) {
    if (tr_dtype_of(g, x) == TR_F32 && tr_is_none(scale) && tr_is_none(shift))
        return *out = x, TR_OK;
    return tr_op_append(g, &normalize_row, (tr_tensor_t[]){x, scale, shift}, 3, NULL, 0, NULL, out,
                        1);
}

static tr_status_t augment_shape(tr_graph_t *g, tr_op_t *op) {
    char text[96];
    TR_TRY(tr_op_check_present(op, 0, "an input"));
    TR_TRY(tr_op_check_present(op, 1, "the sample ids of the batch"));
    const tr_shape_t *x = tr_shape_of(g, op->in[0]);
    if (x->ndim != 4)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: augmentation requires images (samples, height, width, channels), found "
                       "%s; turn it off for this data",
                       tr_op_where(op), tr_shape_format(x, text));
    TR_TRY(tr_op_check_type(g, op, 1, TR_I64, "sample ids"));
    TR_TRY(tr_op_check_shape(g, op, 1, &TR_SHAPE(x->dim[0]), "sample ids"));
    TR_TRY(tr_op_check_block(g, op, 2, sizeof(tr_step_t), "the step block"));
    TR_TRY(tr_op_check_type(g, op, 0, TR_F32, "images"));
    return tr_op_shape_like_in0(g, op);
}

/* Per element: four products and three sums of the interpolation, and as much again for its weights
 * in one of C channels. */
static double augment_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 11 * tr_op_elems(g, op->out[0]);
}

static const tr_op_row_t augment_row = {
    .name = "augment", .kernel = TR_K_AUGMENT, .shape = augment_shape, .flops = augment_flops};

tr_status_t tr_augment(tr_graph_t *g, tr_tensor_t x, tr_tensor_t sample_id,
                       const tr_augment_attr_t *a, tr_tensor_t *out) {
    const bool is_identity = a->rotate_deg == 0 && a->translate == 0 && a->zoom == 0 &&
                             a->shear_deg == 0 && a->crop_pad == 0 && !a->flip;
    if (is_identity || tr_graph_mode(g) == TR_EVAL) return *out = x, TR_OK;
    return tr_op_append(g, &augment_row, (tr_tensor_t[]){x, sample_id, tr_graph_step(g)}, 3, a,
                        sizeof *a, NULL, out, 1);
}
