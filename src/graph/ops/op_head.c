/* head_loss: the last product of a language model with its cross-entropy. It computes its gradients
 * as it goes. */
#include "op_int.h"

enum { X, W, LABEL, WEIGHT, DLOSS };
enum { LOSS, COUNT, DX, DW };

static tr_status_t head_shape(tr_graph_t *g, tr_op_t *op) {
    const char *const what[] = {"its input", "its weight", "tokens to predict",
                                "a weight per sample"};
    for (int i = X; i <= WEIGHT; i++) TR_TRY(tr_op_check_present(op, i, what[i]));
    TR_TRY(tr_op_check_float(g, op, X, what[X]));
    TR_TRY(tr_op_check_type(g, op, W, tr_dtype_of(g, op->in[X]), what[W]));
    TR_TRY(tr_op_check_label(g, op, LABEL));
    TR_TRY(tr_op_check_type(g, op, WEIGHT, TR_F32, what[WEIGHT]));
    const tr_shape_t x = *tr_shape_of(g, op->in[X]), w = *tr_shape_of(g, op->in[W]);
    const int64_t samples = tr_shape_elems(tr_shape_of(g, op->in[WEIGHT]));
    TR_TRY(tr_op_check_shape(g, op, W, &TR_SHAPE(w.dim[0], x.dim[1]), what[W]));
    TR_TRY(tr_op_check_shape(g, op, LABEL, &TR_SHAPE(x.dim[0]), what[LABEL]));
    TR_TRY(tr_op_check_vector(g, op, DLOSS, x.dim[0], "the gradient of the loss"));
    if (x.dim[0] % samples != 0)
        return TR_FAIL(TR_ERR_CONFIG, "%s: %lld tokens to predict do not divide among %lld samples",
                       tr_op_where(op), (long long)x.dim[0], (long long)samples);
    TR_TRY(tr_op_output(g, op, LOSS, TR_F32, &TR_SHAPE(x.dim[0])));
    TR_TRY(tr_op_output(g, op, COUNT, TR_F32, &TR_SHAPE(x.dim[0])));
    TR_TRY(tr_op_output(g, op, DX, tr_dtype_of(g, op->in[X]), &x));
    return tr_op_output(g, op, DW, TR_F32, &w);
}

static double head_flops(const tr_graph_t *g, const tr_op_t *op) {
    const int products = 1 + !tr_is_none(op->out[DX]) + !tr_is_none(op->out[DW]);
    return 2.0 * products * tr_op_elems(g, op->in[X]) * (double)tr_shape_of(g, op->in[W])->dim[0];
}

static tr_status_t head_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                             const bool *need, tr_tensor_t *din) {
    if (tr_is_none(dout[LOSS])) return TR_OK;
    if (dout[LOSS].id != op->in[DLOSS].id)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "%s: head_loss got another gradient of its loss than it was built with",
                       tr_op_where(op));
    if (need[X]) din[X] = op->out[DX];
    if (need[W]) din[W] = op->out[DW];
    return TR_OK;
}

static const tr_op_row_t head_row = {.name = "head_loss",
                                     .kernel = TR_K_HEAD_LOSS,
                                     .shape = head_shape,
                                     .grad = head_grad,
                                     .flops = head_flops};

tr_status_t tr_head_loss(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w, tr_tensor_t label,
                         tr_tensor_t weight, tr_tensor_t dloss, tr_tensor_t *out_loss,
                         tr_tensor_t *out_count) {
    const tr_tensor_info_t *info = tr_tensor_info(g, w);
    const bool trains = tr_graph_mode(g) == TR_TRAIN && !tr_is_none(dloss),
               is_frozen = info->role == TR_ROLE_PARAM && !info->param.trainable,
               want[] = {true, true, trains, trains && !is_frozen};
    tr_tensor_t in[] = {x, w, label, weight, trains ? dloss : TR_NONE}, made[4];
    TR_TRY(tr_op_weight(g, x, w, &in[W]));
    TR_TRY(tr_fold_rows(g, x, &in[X]));
    TR_TRY(tr_flatten(g, label, &in[LABEL]));
    TR_TRY(tr_op_append(g, &head_row, in, 5, NULL, 0, want, made, 4));
    *out_loss = made[LOSS];
    *out_count = made[COUNT];
    return TR_OK;
}
