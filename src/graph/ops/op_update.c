/* The `update` program: global norm and clipping, the optimizers' steps, the average of the
 * weights. */
#include "op_int.h"
#include "base/int_math.h"
#include "device/loss_scale.h"

/* in1 the step block, in2 the result, in3 the ranges; outputs mirror the gradient. */
static tr_status_t update_optimizer_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(tr_op_check_type(g, op, 0, TR_F32, "the gradient"));
    TR_TRY(tr_op_check_block(g, op, 1, sizeof(tr_step_t), "the step block"));
    TR_TRY(tr_op_check_block(g, op, 2, sizeof(tr_step_result_t), "the step's result"));
    TR_TRY(tr_op_check_table(g, op, 3, sizeof(tr_update_range_t), "the table of ranges"));
    int64_t count = tr_shape_elems(tr_shape_of(g, op->in[0]));
    for (int i = 0; i < op->n_out; i++) {
        if (tr_is_none(op->out[i])) continue;
        int64_t found = tr_shape_elems(tr_shape_of(g, op->out[i]));
        if (found != count || tr_dtype_of(g, op->out[i]) != TR_F32)
            return TR_FAIL(TR_ERR_INTERNAL, "%s: %s of %lld f32 gradients into %lld %s",
                           tr_op_where(op), op->row->name, (long long)count, (long long)found,
                           tr_dtype_name(tr_dtype_of(g, op->out[i])));
    }
    return TR_OK;
}

/* Every f32 output is read as well as written. */
static double update_bytes(const tr_graph_t *g, const tr_op_t *op) {
    double bytes = 0;
    for (int i = 0; i < op->n_in; i++) bytes += (double)tr_tensor_info(g, op->in[i])->bytes;
    for (int i = 0; i < op->n_out; i++)
        if (!tr_is_none(op->out[i]))
            bytes += (tr_dtype_of(g, op->out[i]) == TR_F32 ? 2 : 1) *
                     (double)tr_tensor_info(g, op->out[i])->bytes;
    return bytes;
}

static double sgd_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 8 * tr_op_elems(g, op->in[0]);
}

static const tr_op_row_t sgd_row = {.name = "sgd",
                                    .kernel = TR_K_SGD,
                                    .shape = update_optimizer_shape,
                                    .flops = sgd_flops,
                                    .bytes = update_bytes,
                                    .flags = TR_OP_ONCE | TR_OP_READS_OUTPUT};

tr_status_t tr_sgd(tr_graph_t *g, tr_tensor_t gradient, tr_tensor_t param, tr_tensor_t momentum,
                   tr_tensor_t ranges, const tr_sgd_attr_t *attr) {
    tr_tensor_t in[] = {gradient, tr_graph_step(g), tr_graph_result(g), ranges},
                out[] = {param, momentum};
    if (tr_is_none(momentum) && attr->momentum != 0)
        return TR_FAIL(TR_ERR_INTERNAL, "sgd with momentum %g needs a tensor for it, found none",
                       attr->momentum);
    return tr_op_append_into(g, &sgd_row, in, 4, attr, sizeof *attr, out, 2);
}

/* Per element: scale; two moments of 3 and 4; two corrections, root, eps, quotient, decay, step. */
static double adam_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 16 * tr_op_elems(g, op->in[0]);
}

static const tr_op_row_t adam_row = {.name = "adam",
                                     .kernel = TR_K_ADAM,
                                     .shape = update_optimizer_shape,
                                     .flops = adam_flops,
                                     .bytes = update_bytes,
                                     .flags = TR_OP_ONCE | TR_OP_READS_OUTPUT};

tr_status_t tr_adam(tr_graph_t *g, tr_tensor_t gradient, tr_tensor_t param, tr_tensor_t m,
                    tr_tensor_t v, tr_tensor_t ranges, const tr_adam_attr_t *attr) {
    tr_tensor_t in[] = {gradient, tr_graph_step(g), tr_graph_result(g), ranges},
                out[] = {param, m, v};
    return tr_op_append_into(g, &adam_row, in, 4, attr, sizeof *attr, out, 3);
}

static tr_status_t update_squares_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(tr_op_check_type(g, op, 0, TR_F32, "the gradient"));
    const int64_t elems = tr_shape_elems(tr_shape_of(g, op->in[0]));
    return tr_op_output(g, op, 0, TR_F64, &TR_SHAPE(ceil_div(elems, TR_SQUARES_BLOCK)));
}

static double update_squares_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 2 * tr_op_elems(g, op->in[0]);
}

static const tr_op_row_t squares_row = {.name = "block_squares",
                                        .kernel = TR_K_BLOCK_SQUARES,
                                        .shape = update_squares_shape,
                                        .flops = update_squares_flops,
                                        .flags = TR_OP_ONCE};

tr_status_t tr_block_squares(tr_graph_t *g, tr_tensor_t gradient, tr_tensor_t sums) {
    return tr_op_append_into(g, &squares_row, &gradient, 1, NULL, 0, &sums, 1);
}

static tr_status_t update_norm_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(tr_op_check_type(g, op, 0, TR_F64, "the sums of squares"));
    TR_TRY(tr_op_check_vector(g, op, 1, 2, "counts (samples, loss sum)"));
    TR_TRY(tr_op_check_block(g, op, 2, sizeof(tr_step_t), "the step block"));
    if (!tr_is_none(op->in[3])) TR_TRY(tr_op_check_type(g, op, 3, TR_I32, "the order of the sums"));
    if (tr_is_none(op->out[1]) || tr_tensor_info(g, op->out[1])->bytes == sizeof(tr_loss_scale_t))
        return TR_OK;
    return TR_FAIL(TR_ERR_INTERNAL, "%s: grad_norm expects a loss scale of %zu bytes, found %zu",
                   tr_op_where(op), sizeof(tr_loss_scale_t), tr_tensor_info(g, op->out[1])->bytes);
}

static const tr_op_row_t norm_row = {.name = "grad_norm",
                                     .kernel = TR_K_GRAD_NORM,
                                     .shape = update_norm_shape,
                                     .flags = TR_OP_ONCE | TR_OP_READS_OUTPUT};

tr_status_t tr_grad_norm_of(tr_graph_t *g, tr_tensor_t sums, tr_tensor_t order, tr_tensor_t counts,
                            tr_tensor_t loss_scale, const tr_grad_norm_attr_t *attr) {
    tr_tensor_t in[] = {sums, counts, tr_graph_step(g), order},
                out[] = {tr_graph_result(g), loss_scale};
    return tr_op_append_into(g, &norm_row, in, 4, attr, sizeof *attr, out, 2);
}

tr_status_t tr_grad_norm(tr_graph_t *g, tr_tensor_t gradient, tr_tensor_t counts,
                         tr_tensor_t loss_scale, const tr_grad_norm_attr_t *attr) {
    tr_tensor_t sums;
    TR_TRY(tr_op_append(g, &squares_row, &gradient, 1, NULL, 0, NULL, &sums, 1));
    return tr_grad_norm_of(g, sums, TR_NONE, counts, loss_scale, attr);
}

tr_status_t tr_loss_scale(tr_graph_t *g, tr_tensor_t *out) {
    enum { COUNT = sizeof(tr_loss_scale_t) / sizeof(float) };
    return tr_optim_state(g, TR_LOSS_SCALE_STATE, TR_F32, &TR_SHAPE(COUNT), false, out);
}

static tr_status_t ema_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(tr_op_check_block(g, op, 1, sizeof(tr_step_result_t), "the step's result"));
    tr_shape_t average = *tr_shape_of(g, op->out[0]);
    TR_TRY(tr_op_check_type(g, op, 0, TR_F32, "the parameters"));
    return tr_op_check_shape(g, op, 0, &average, "parameters");
}

static double ema_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 3 * tr_op_elems(g, op->in[0]);
}

static const tr_op_row_t ema_row = {.name = "ema",
                                    .kernel = TR_K_EMA_UPDATE,
                                    .shape = ema_shape,
                                    .flops = ema_flops,
                                    .flags = TR_OP_ONCE | TR_OP_READS_OUTPUT};

tr_status_t tr_ema(tr_graph_t *g, tr_tensor_t param, tr_tensor_t average, float decay) {
    tr_ema_attr_t attr = {decay};
    return tr_op_append_into(g, &ema_row, (tr_tensor_t[]){param, tr_graph_result(g)}, 2, &attr,
                             sizeof attr, &average, 1);
}
