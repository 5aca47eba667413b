/* Losses per sample: cross-entropy with weights of classes; squared error, Huber loss, binary
 * cross-entropy. */
#include "op_int.h"

/* -- cross-entropy ----------------------------------------------------------------------------- */

enum { LOGITS, LABEL, WEIGHT, LSE, DLOSS };

static tr_status_t loss_xent_shape(tr_graph_t *g, tr_op_t *op) {
    const char *const what[] = {"the class scores", "class numbers", "a weight per sample"};
    for (int i = 0; i < 3; i++) TR_TRY(tr_op_check_present(op, i, what[i]));
    TR_TRY(tr_op_check_type(g, op, LOGITS, TR_F32, what[LOGITS]));
    TR_TRY(tr_op_check_label(g, op, LABEL));
    int64_t rows = tr_shape_of(g, op->in[LOGITS])->dim[0];
    TR_TRY(tr_op_check_shape(g, op, LABEL, &TR_SHAPE(rows), what[LABEL]));
    TR_TRY(tr_op_check_vector(g, op, WEIGHT, rows, what[WEIGHT]));
    TR_TRY(tr_op_check_smoothing(op));
    TR_TRY(tr_op_output(g, op, 0, TR_F32, &TR_SHAPE(rows)));
    return tr_op_output(g, op, 1, TR_F32, &TR_SHAPE(rows));
}

/* Per score: compare, subtract, exponential, add; backward: subtract, exponential, subtract the
 * target, scale. */
static double loss_xent_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 4 * tr_op_elems(g, op->in[LOGITS]);
}

static const tr_op_row_t xent_bwd_row = {.name = "xent_bwd",
                                         .kernel = TR_K_XENT_BWD,
                                         .shape = tr_op_shape_like_in0,
                                         .flops = loss_xent_flops};

static tr_status_t loss_xent_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                  const bool *need, tr_tensor_t *din) {
    if (tr_is_none(dout[0]) || !need[LOGITS]) return TR_OK;
    tr_tensor_t in[] = {op->in[LOGITS], op->in[LABEL], op->in[WEIGHT], op->out[1], dout[0]};
    return tr_op_append(g, &xent_bwd_row, in, 5, op->attr, sizeof(tr_xent_attr_t), NULL,
                        &din[LOGITS], 1);
}

static const tr_op_row_t xent_row = {.name = "xent",
                                     .kernel = TR_K_XENT_FWD,
                                     .shape = loss_xent_shape,
                                     .grad = loss_xent_grad,
                                     .flops = loss_xent_flops};

/* Scores (..., V), one label and weight for each of the leading elements. */
tr_status_t tr_cross_entropy(tr_graph_t *g, tr_tensor_t logits, tr_tensor_t label,
                             tr_tensor_t weight, float smoothing, tr_tensor_t *out) {
    tr_xent_attr_t attr = {smoothing};
    tr_tensor_t in[3], made[2];
    TR_TRY(tr_fold_rows(g, logits, &in[LOGITS]));
    TR_TRY(tr_flatten(g, label, &in[LABEL]));
    TR_TRY(tr_flatten(g, weight, &in[WEIGHT]));
    TR_TRY(tr_op_append(g, &xent_row, in, 3, &attr, sizeof attr, NULL, made, 2));
    return *out = made[0], TR_OK;
}

/* -- weights of classes ------------------------------------------------------------------------ */

static tr_status_t class_weight_shape(tr_graph_t *g, tr_op_t *op) {
    const char *const what[] = {"a weight per sample", "class numbers", "a weight per class"};
    for (int i = 0; i < 3; i++) TR_TRY(tr_op_check_present(op, i, what[i]));
    const int64_t rows = tr_shape_of(g, op->in[0])->dim[0],
                  classes = tr_shape_of(g, op->in[2])->dim[0];
    TR_TRY(tr_op_check_label(g, op, 1));
    TR_TRY(tr_op_check_vector(g, op, 0, rows, what[0]));
    TR_TRY(tr_op_check_shape(g, op, 1, &TR_SHAPE(rows), what[1]));
    TR_TRY(tr_op_check_vector(g, op, 2, classes, what[2]));
    return tr_op_output(g, op, 0, TR_F32, &TR_SHAPE(rows));
}

static const tr_op_row_t class_weight_row = {
    .name = "class_weight", .kernel = TR_K_CLASS_WEIGHT, .shape = class_weight_shape};

tr_status_t tr_class_weight(tr_graph_t *g, tr_tensor_t weight, tr_tensor_t label,
                            tr_tensor_t of_class, tr_tensor_t *out) {
    tr_tensor_t in[3] = {[2] = of_class};
    TR_TRY(tr_flatten(g, weight, &in[0]));
    TR_TRY(tr_flatten(g, label, &in[1]));
    return tr_op_append(g, &class_weight_row, in, 3, NULL, 0, NULL, out, 1);
}

/* -- losses of numbers ------------------------------------------------------------------------- */

static tr_status_t loss_numbers_shape(tr_graph_t *g, tr_op_t *op) {
    const char *const what[] = {"a prediction", "a target", "a weight per sample"};
    for (int i = 0; i < 3; i++) {
        TR_TRY(tr_op_check_present(op, i, what[i]));
        TR_TRY(tr_op_check_type(g, op, i, TR_F32, what[i]));
    }
    tr_shape_t y = *tr_shape_of(g, op->in[0]);
    TR_TRY(tr_op_check_shape(g, op, 1, &y, what[1]));
    TR_TRY(tr_op_check_vector(g, op, 2, y.dim[0], what[2]));
    return tr_op_output(g, op, 0, TR_F32, &TR_SHAPE(y.dim[0]));
}

static double loss_numbers_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 3 * tr_op_elems(g, op->in[0]);
}

#define BWD_ROW(op, slot)                                                                          \
    static const tr_op_row_t op##_bwd_row = {.name = #op "_bwd",                                   \
                                             .kernel = slot,                                       \
                                             .shape = tr_op_shape_like_in0,                        \
                                             .flops = loss_numbers_flops};
BWD_ROW(mse, TR_K_MSE_BWD)
BWD_ROW(mae, TR_K_MAE_BWD)
BWD_ROW(huber, TR_K_HUBER_BWD)
BWD_ROW(bce, TR_K_BCE_BWD)

static tr_status_t loss_numbers_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                     const bool *need, tr_tensor_t *din) {
    const bool is_huber = op->row->kernel == TR_K_HUBER_FWD;
    const tr_op_row_t *row = is_huber                          ? &huber_bwd_row
                             : op->row->kernel == TR_K_BCE_FWD ? &bce_bwd_row
                             : op->row->kernel == TR_K_MAE_FWD ? &mae_bwd_row
                                                               : &mse_bwd_row;
    if (tr_is_none(dout[0]) || !need[0]) return TR_OK;
    tr_tensor_t in[] = {op->in[0], op->in[1], op->in[2], dout[0]};
    return tr_op_append(g, row, in, 4, is_huber ? op->attr : NULL,
                        is_huber ? sizeof(tr_huber_attr_t) : 0, NULL, &din[0], 1);
}

#define FWD_ROW(op, slot)                                                                          \
    static const tr_op_row_t op##_row = {.name = #op,                                              \
                                         .kernel = slot,                                           \
                                         .shape = loss_numbers_shape,                              \
                                         .grad = loss_numbers_grad,                                \
                                         .flops = loss_numbers_flops};
FWD_ROW(mse, TR_K_MSE_FWD)
FWD_ROW(mae, TR_K_MAE_FWD)
FWD_ROW(huber, TR_K_HUBER_FWD)
FWD_ROW(bce, TR_K_BCE_FWD)

/* (B, ...) -> (B, F) */
static tr_status_t loss_per_sample(tr_graph_t *g, tr_tensor_t x, tr_tensor_t *out) {
    const tr_shape_t *shape = tr_shape_of(g, x);
    if (shape->ndim < 1)
        return TR_FAIL(TR_ERR_CONFIG, "%s: a loss requires (samples, ...), found a scalar",
                       tr_scope(g));
    return tr_reshape(g, x, &TR_SHAPE(shape->dim[0], tr_shape_product(shape, 1, shape->ndim)), out);
}

static tr_status_t loss_append_numbers(tr_graph_t *g, const tr_op_row_t *row, tr_tensor_t y,
                                       tr_tensor_t target, tr_tensor_t weight, const void *attr,
                                       size_t attr_bytes, tr_tensor_t *out) {
    tr_tensor_t in[3] = {[2] = weight};
    TR_TRY(loss_per_sample(g, y, &in[0]));
    TR_TRY(loss_per_sample(g, target, &in[1]));
    return tr_op_append(g, row, in, 3, attr, attr_bytes, NULL, out, 1);
}

tr_status_t tr_mse(tr_graph_t *g, tr_tensor_t y, tr_tensor_t target, tr_tensor_t weight,
                   tr_tensor_t *out) {
    return loss_append_numbers(g, &mse_row, y, target, weight, NULL, 0, out);
}

tr_status_t tr_mae(tr_graph_t *g, tr_tensor_t y, tr_tensor_t target, tr_tensor_t weight,
                   tr_tensor_t *out) {
    return loss_append_numbers(g, &mae_row, y, target, weight, NULL, 0, out);
}

tr_status_t tr_huber(tr_graph_t *g, tr_tensor_t y, tr_tensor_t target, tr_tensor_t weight,
                     float delta, tr_tensor_t *out) {
    const tr_huber_attr_t attr = {delta};
    return loss_append_numbers(g, &huber_row, y, target, weight, &attr, sizeof attr, out);
}

tr_status_t tr_binary_cross_entropy(tr_graph_t *g, tr_tensor_t logits, tr_tensor_t target,
                                    tr_tensor_t weight, tr_tensor_t *out) {
    return loss_append_numbers(g, &bce_row, logits, target, weight, NULL, 0, out);
}
