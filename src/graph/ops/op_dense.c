/* Labels and targets of each position: which of them count, the Dice loss, and scores. */
#include "op_int.h"

/* -- what counts ------------------------------------------------------------------------------- */

static tr_status_t term_weight_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(tr_op_check_present(op, 0, "a weight per sample"));
    TR_TRY(tr_op_check_present(op, 1, "labels or targets"));
    const int64_t samples = tr_shape_elems(tr_shape_of(g, op->in[0])),
                  rows = tr_shape_elems(tr_shape_of(g, op->in[1]));
    TR_TRY(tr_op_check_vector(g, op, 0, samples, "a weight per sample"));
    if (tr_dtype_of(g, op->in[1]) != TR_F32) TR_TRY(tr_op_check_label(g, op, 1));
    if (rows % samples != 0)
        return TR_FAIL(TR_ERR_CONFIG, "%s: %lld targets cannot be divided among %lld samples",
                       tr_op_where(op), (long long)rows, (long long)samples);
    return tr_op_output(g, op, 0, TR_F32, &TR_SHAPE(rows));
}

static const tr_op_row_t term_weight_row = {
    .name = "term_weight", .kernel = TR_K_TERM_WEIGHT, .shape = term_weight_shape};

tr_status_t tr_term_weight(tr_graph_t *g, tr_tensor_t weight, tr_tensor_t target,
                           tr_tensor_t *out) {
    const tr_tensor_t in[] = {weight, target};
    return tr_op_append(g, &term_weight_row, in, 2, NULL, 0, NULL, out, 1);
}

/* -- Dice -------------------------------------------------------------------------------------- */

enum { LOGITS, LABEL, WEIGHT, FACTOR };

/* Of logits (..., V): a label and a weight for each row. */
static tr_status_t dense_check_rows(tr_graph_t *g, tr_op_t *op, int64_t *out_rows) {
    const char *const what[] = {"the class scores", "class numbers", "a weight per row"};
    for (int i = 0; i < 3; i++) TR_TRY(tr_op_check_present(op, i, what[i]));
    TR_TRY(tr_op_check_type(g, op, LOGITS, TR_F32, what[LOGITS]));
    TR_TRY(tr_op_check_label(g, op, LABEL));
    const tr_shape_t *shape = tr_shape_of(g, op->in[LOGITS]);
    *out_rows = tr_shape_product(shape, 0, shape->ndim - 1);
    TR_TRY(tr_op_check_shape(g, op, LABEL, &TR_SHAPE(*out_rows), what[LABEL]));
    return tr_op_check_vector(g, op, WEIGHT, *out_rows, what[WEIGHT]);
}

static tr_status_t dice_shape(tr_graph_t *g, tr_op_t *op) {
    int64_t rows;
    TR_TRY(dense_check_rows(g, op, &rows));
    TR_TRY(tr_op_check_vector(g, op, FACTOR, rows, "a weight per row"));
    TR_TRY(tr_op_check_smoothing(op));
    const tr_shape_t *shape = tr_shape_of(g, op->in[LOGITS]);
    if (shape->ndim < 2)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: a Dice loss expects class scores (samples, ..., classes), found %d "
                       "dimension",
                       tr_op_where(op), shape->ndim);
    const int64_t samples = shape->dim[0], classes = shape->dim[shape->ndim - 1];
    TR_TRY(tr_op_output(g, op, 0, TR_F32, &TR_SHAPE(samples)));
    TR_TRY(tr_op_output(g, op, 1, TR_F32, &TR_SHAPE(rows)));
    return tr_op_output(g, op, 2, TR_F32, &TR_SHAPE(samples, 2 * classes + 2));
}

/* Per score: subtract, exponential, multiply, add, twice. */
static double dice_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 8 * tr_op_elems(g, op->in[LOGITS]);
}

static const tr_op_row_t dice_bwd_row = {.name = "dice_bwd",
                                         .kernel = TR_K_DICE_BWD,
                                         .shape = tr_op_shape_like_in0,
                                         .flops = dice_flops};

static tr_status_t dice_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                             const bool *need, tr_tensor_t *din) {
    if (tr_is_none(dout[0]) || !need[LOGITS]) return TR_OK;
    const tr_tensor_t in[] = {op->in[LOGITS], op->in[LABEL], op->in[WEIGHT], op->in[FACTOR],
                              op->out[1],     op->out[2],    dout[0]};
    return tr_op_append(g, &dice_bwd_row, in, 7, op->attr, sizeof(tr_xent_attr_t), NULL,
                        &din[LOGITS], 1);
}

static const tr_op_row_t dice_row = {.name = "dice",
                                     .kernel = TR_K_DICE_FWD,
                                     .shape = dice_shape,
                                     .grad = dice_grad,
                                     .flops = dice_flops};

tr_status_t tr_dice(tr_graph_t *g, tr_tensor_t logits, tr_tensor_t label, tr_tensor_t weight,
                    tr_tensor_t cross_weight, float smoothing, tr_tensor_t *out) {
    const tr_xent_attr_t attr = {smoothing};
    tr_tensor_t in[] = {logits, label, weight, cross_weight}, made[3];
    TR_TRY(tr_flatten(g, label, &in[LABEL]));
    TR_TRY(tr_op_append(g, &dice_row, in, 4, &attr, sizeof attr, NULL, made, 3));
    return *out = made[0], TR_OK;
}

/* -- scores ------------------------------------------------------------------------------------ */

static tr_status_t confusion_shape(tr_graph_t *g, tr_op_t *op) {
    int64_t rows;
    TR_TRY(dense_check_rows(g, op, &rows));
    const tr_shape_t *shape = tr_shape_of(g, op->in[LOGITS]);
    const int64_t classes = shape->dim[shape->ndim - 1];
    return tr_op_output(g, op, 0, TR_I64, &TR_SHAPE(classes, classes + 1));
}

static double dense_score_flops(const tr_graph_t *g, const tr_op_t *op) {
    return tr_op_elems(g, op->in[0]);
}

static const tr_op_row_t confusion_row = {.name = "confusion",
                                          .kernel = TR_K_CONFUSION,
                                          .shape = confusion_shape,
                                          .flops = dense_score_flops};

tr_status_t tr_confusion(tr_graph_t *g, tr_tensor_t logits, tr_tensor_t label, tr_tensor_t weight,
                         tr_tensor_t *out) {
    tr_tensor_t in[] = {logits, label, weight};
    TR_TRY(tr_flatten(g, label, &in[LABEL]));
    return tr_op_append(g, &confusion_row, in, 3, NULL, 0, NULL, out, 1);
}

static tr_status_t target_sums_shape(tr_graph_t *g, tr_op_t *op) {
    const char *const what[] = {"a prediction", "a target", "a weight per value"};
    for (int i = 0; i < 3; i++) {
        TR_TRY(tr_op_check_present(op, i, what[i]));
        TR_TRY(tr_op_check_type(g, op, i, TR_F32, what[i]));
    }
    const tr_shape_t *shape = tr_shape_of(g, op->in[0]);
    TR_TRY(tr_op_check_shape(g, op, 1, shape, what[1]));
    TR_TRY(tr_op_check_vector(g, op, 2, tr_shape_elems(shape), what[2]));
    return tr_op_output(g, op, 0, TR_F64,
                        &TR_SHAPE(shape->dim[shape->ndim - 1], TR_TARGET_SUM_COUNT));
}

static const tr_op_row_t target_sums_row = {.name = "target_sums",
                                            .kernel = TR_K_TARGET_SUMS,
                                            .shape = target_sums_shape,
                                            .flops = dense_score_flops};

tr_status_t tr_target_sums(tr_graph_t *g, tr_tensor_t y, tr_tensor_t target, tr_tensor_t weight,
                           tr_tensor_t *out) {
    const tr_tensor_t in[] = {y, target, weight};
    return tr_op_append(g, &target_sums_row, in, 3, NULL, 0, NULL, out, 1);
}
