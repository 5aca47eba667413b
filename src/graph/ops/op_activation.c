/* Activations: act_fwd, act_bwd; leaky_relu, leaky_relu_bwd. */
#include "op_int.h"

static tr_status_t activation_bwd_shape(tr_graph_t *g, tr_op_t *op) {
    tr_shape_t shape = *tr_shape_of(g, op->in[0]);
    TR_TRY(tr_op_check_shape(g, op, 1, &shape, "the activation's value"));
    TR_TRY(tr_op_check_type(g, op, 1, tr_dtype_of(g, op->in[0]), "the activation's value"));
    return tr_op_shape_like_in0(g, op);
}

static const tr_op_row_t act_bwd_row = {
    .name = "act_bwd", .kernel = TR_K_ACT_BWD, .shape = activation_bwd_shape};

static tr_status_t activation_append_bwd(tr_graph_t *g, tr_act_t act, tr_tensor_t dy,
                                         tr_tensor_t saved, tr_tensor_t *out) {
    tr_act_attr_t attr = {act};
    return tr_op_append(g, &act_bwd_row, (tr_tensor_t[]){dy, saved}, 2, &attr, sizeof attr, NULL,
                        out, 1);
}

static tr_status_t activation_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                   const bool *need, tr_tensor_t *din) {
    tr_act_t act = ((const tr_act_attr_t *)op->attr)->act;
    if (tr_is_none(dout[0]) || !need[0]) return TR_OK;
    return activation_append_bwd(g, act, dout[0], tr_act_keeps_input(act) ? op->in[0] : op->out[0],
                                 &din[0]);
}

static const tr_op_row_t act_fwd_row = {.name = "act_fwd",
                                        .kernel = TR_K_ACT_FWD,
                                        .shape = tr_op_shape_like_in0,
                                        .grad = activation_grad};

tr_status_t tr_activation(tr_graph_t *g, tr_tensor_t x, tr_act_t act, tr_tensor_t *out) {
    tr_act_attr_t attr = {act};
    if (act == TR_ACT_NONE) return *out = x, TR_OK;
    return tr_op_append(g, &act_fwd_row, &x, 1, &attr, sizeof attr, NULL, out, 1);
}

/* -- leaky ------------------------------------------------------------------------------------- */

static const tr_op_row_t leaky_relu_bwd_row = {
    .name = "leaky_relu_bwd", .kernel = TR_K_LEAKY_RELU_BWD, .shape = activation_bwd_shape};

/* The sign of the output is that of the input. */
static tr_status_t leaky_relu_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                   const bool *need, tr_tensor_t *din) {
    if (tr_is_none(dout[0]) || !need[0]) return TR_OK;
    return tr_op_append(g, &leaky_relu_bwd_row, (tr_tensor_t[]){dout[0], op->out[0]}, 2, op->attr,
                        sizeof(tr_leaky_relu_attr_t), NULL, &din[0], 1);
}

static const tr_op_row_t leaky_relu_row = {.name = "leaky_relu",
                                           .kernel = TR_K_LEAKY_RELU_FWD,
                                           .shape = tr_op_shape_like_in0,
                                           .grad = leaky_relu_grad};

tr_status_t tr_leaky_relu(tr_graph_t *g, tr_tensor_t x, float slope, tr_tensor_t *out) {
    const tr_leaky_relu_attr_t attr = {slope};
    return tr_op_append(g, &leaky_relu_row, &x, 1, &attr, sizeof attr, NULL, out, 1);
}

bool tr_op_can_fuse(const tr_graph_t *g, tr_act_t act) {
    return !tr_act_keeps_input(act) || tr_graph_mode(g) == TR_EVAL;
}

tr_status_t tr_op_unfuse_act(tr_graph_t *g, tr_act_t act, tr_tensor_t dy, tr_tensor_t y,
                             tr_tensor_t *out) {
    if (act == TR_ACT_NONE) return *out = dy, TR_OK;
    if (tr_act_keeps_input(act))
        return TR_FAIL(TR_ERR_INTERNAL,
                       "%s: a fused GELU or SiLU has no gradient (its input is not kept); append "
                       "it as a separate op",
                       tr_scope(g));
    return activation_append_bwd(g, act, dy, y, out);
}
