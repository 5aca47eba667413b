/* batchnorm_train, batchnorm_eval, batchnorm_bwd and the way of the moments: a training program
 * adds the moments of its micro-batch to the reduced block, and the update program moves the
 * running moments towards their mean over all slots. */
#include "op_int.h"
#include "trainer/mem.h"

enum { X, GAMMA, BETA, MEAN, VAR };

static tr_status_t norm_check(tr_graph_t *g, const tr_op_t *op) {
    const tr_norm_attr_t *attr = op->attr;
    const char *const what[] = {"its input", "its scale (gamma)", "its shift (beta)",
                                "the running mean", "the running variance"};
    for (int i = 0; i < op->n_in; i++) TR_TRY(tr_op_check_present(op, i, what[i]));
    TR_TRY(tr_op_check_float(g, op, X, what[X]));
    const tr_shape_t *x = tr_shape_of(g, op->in[X]);
    if (x->ndim < 2)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "%s: batch normalisation expects (samples, ..., channels), found %d dimensions",
            tr_op_where(op), x->ndim);
    for (int i = GAMMA; i < op->n_in; i++)
        TR_TRY(tr_op_check_vector(g, op, i, x->dim[x->ndim - 1], what[i]));
    if (!(attr->eps > 0))
        return TR_FAIL(TR_ERR_CONFIG, "%s: eps must be above 0, found %g", tr_op_where(op),
                       attr->eps);
    return TR_OK;
}

static tr_status_t train_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(norm_check(g, op));
    tr_shape_t x = *tr_shape_of(g, op->in[X]);
    int64_t channels = x.dim[x.ndim - 1];
    TR_TRY(tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &x));
    TR_TRY(tr_op_output(g, op, 1, TR_F32, &TR_SHAPE(channels)));
    TR_TRY(tr_op_output(g, op, 2, TR_F32, &TR_SHAPE(channels)));
    return tr_op_output(g, op, 3, TR_F32, &TR_SHAPE(2, channels));
}

static tr_status_t eval_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(norm_check(g, op));
    return tr_op_shape_like_in0(g, op);
}

/* Per element: sum; subtract, square, add; scale and shift. */
static double train_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 6 * tr_op_elems(g, op->in[0]);
}
static double eval_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 2 * tr_op_elems(g, op->in[0]);
}
/* Per element: two sums with one product (4 with the normalised value), and dx from three terms. */
static double bwd_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 9 * tr_op_elems(g, op->in[0]);
}

static tr_status_t bwd_shape(tr_graph_t *g, tr_op_t *op) {
    tr_shape_t x = *tr_shape_of(g, op->in[0]);
    int64_t channels = x.dim[x.ndim - 1];
    TR_TRY(tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &x));
    TR_TRY(tr_op_output(g, op, 1, TR_F32, &TR_SHAPE(channels)));
    return tr_op_output(g, op, 2, TR_F32, &TR_SHAPE(channels));
}

static const tr_op_row_t bwd_row = {.name = "batchnorm_bwd",
                                    .kernel = TR_K_BATCHNORM_BWD,
                                    .shape = bwd_shape,
                                    .flops = bwd_flops,
                                    .inplace = {1}};

static tr_status_t train_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                              const bool *need, tr_tensor_t *din) {
    if (tr_is_none(dout[0])) return TR_OK;
    tr_tensor_t in[] = {dout[0], op->in[X], op->in[GAMMA], op->in[BETA], op->out[1], op->out[2]},
                d[3];
    TR_TRY(tr_op_append(g, &bwd_row, in, 6, op->attr, sizeof(tr_norm_attr_t),
                        (bool[]){need[X], true, true}, d, 3));
    for (int i = 0; i < 3; i++)
        if (need[i]) din[i] = d[i];
    return TR_OK;
}

static const tr_op_row_t train_row = {.name = "batchnorm_train",
                                      .kernel = TR_K_BATCHNORM_TRAIN,
                                      .shape = train_shape,
                                      .grad = train_grad,
                                      .flops = train_flops};
static const tr_op_row_t eval_row = {.name = "batchnorm_eval",
                                     .kernel = TR_K_BATCHNORM_EVAL,
                                     .shape = eval_shape,
                                     .flops = eval_flops};

/* -- running moments --------------------------------------------------------------------------- */

/* The record that leaves moments in the reduced block also says whose they are, so that the ops are
 * the only list. */
typedef struct {
    tr_tensor_t running_mean, running_var;
    float momentum;
} leave_attr_t;

static tr_status_t leave_shape(tr_graph_t *g, tr_op_t *op) {
    tr_shape_t reduced = *tr_shape_of(g, op->out[0]);
    return tr_op_check_shape(g, op, 0, &reduced, "moments");
}

static const tr_op_row_t leave_row = {.name = "leave_moments",
                                      .kernel = TR_K_ACCUMULATE,
                                      .shape = leave_shape,
                                      .flags = TR_OP_ONCE | TR_OP_READS_OUTPUT};

/* The sums are named after the running mean that they go to: one scope may have several. */
static tr_status_t reduced_moments(tr_graph_t *g, tr_tensor_t running_mean, int64_t count,
                                   tr_tensor_t *out) {
    tr_str_t text = {0};
    char *name = NULL;
    tr_str_printf(&text, "%s.moments", tr_tensor_info(g, running_mean)->name);
    TR_TRY(tr_str_take(&text, &name));
    const tr_status_t status = tr_reduced(g, name, count, out);
    tr_free(&name);
    return status;
}

static tr_status_t leave_moments(tr_graph_t *g, tr_tensor_t moments, const leave_attr_t *attr) {
    tr_tensor_t flat, reduced;
    TR_TRY(tr_flatten(g, moments, &flat));
    TR_TRY(reduced_moments(g, attr->running_mean, tr_shape_elems(tr_shape_of(g, flat)), &reduced));
    return tr_op_append_into(g, &leave_row, &flat, 1, attr, sizeof *attr, &reduced, 1);
}

tr_status_t tr_batchnorm(tr_graph_t *g, tr_tensor_t x, tr_tensor_t gamma, tr_tensor_t beta,
                         tr_tensor_t running_mean, tr_tensor_t running_var, float eps,
                         float momentum, tr_act_t act, tr_tensor_t *out) {
    bool fused = act == TR_ACT_NONE || act == TR_ACT_RELU;
    tr_norm_attr_t attr = {.eps = eps, .act = fused ? act : TR_ACT_NONE};
    tr_tensor_t in[] = {x, gamma, beta, running_mean, running_var}, made[4];
    if (tr_graph_mode(g) == TR_TRAIN) {
        leave_attr_t leave = {running_mean, running_var, momentum};
        TR_TRY(tr_op_append(g, &train_row, in, 3, &attr, sizeof attr, NULL, made, 4));
        TR_TRY(leave_moments(g, made[3], &leave));
    } else {
        TR_TRY(tr_op_append(g, &eval_row, in, 5, &attr, sizeof attr, NULL, made, 1));
    }
    return tr_activation(g, made[0], fused ? TR_ACT_NONE : act, out);
}

static tr_status_t update_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_moments_attr_t *attr = op->attr;
    tr_shape_t running = *tr_shape_of(g, op->out[0]);
    if (attr->slots < 1)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "%s: running moments of %d micro-batches a step; expected at least 1",
                       tr_op_where(op), attr->slots);
    TR_TRY(tr_op_check_vector(g, op, 0, tr_shape_elems(&running), "sums of moments"));
    return tr_op_check_block(g, op, 1, sizeof(tr_step_result_t), "the step's result");
}

static double update_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 4 * tr_op_elems(g, op->in[0]);
}

static const tr_op_row_t update_row = {.name = "moments_update",
                                       .kernel = TR_K_MOMENTS_UPDATE,
                                       .shape = update_shape,
                                       .flops = update_flops,
                                       .flags = TR_OP_ONCE | TR_OP_READS_OUTPUT};

static tr_status_t append_update(tr_graph_t *g, tr_tensor_t reduced, int half, tr_tensor_t running,
                                 float momentum, int slots) {
    tr_moments_attr_t attr = {momentum, slots};
    int64_t channels = tr_shape_elems(tr_shape_of(g, running));
    tr_tensor_t sum;
    TR_TRY(tr_slice(g, reduced, half * channels, channels, &sum));
    return tr_op_append_into(g, &update_row, (tr_tensor_t[]){sum, tr_graph_result(g)}, 2, &attr,
                             sizeof attr, &running, 1);
}

/* Several programs leave the moments of one layer ("micro", "last"); they are updated once. */
static bool updated_already(const tr_graph_t *g, tr_tensor_t running) {
    int open = tr_graph_program_count(g) - 1;
    for (int i = 0; i < tr_program_op_count(g, open); i++) {
        const tr_op_t *op = tr_program_op(g, open, i);
        if (op->row == &update_row && op->out[0].id == running.id) return true;
    }
    return false;
}

/* How often `program` leaves moments there: a layer that is used twice leaves those of both its
 * inputs. */
static int uses_of(const tr_graph_t *g, int program, tr_tensor_t reduced) {
    int uses = 0;
    for (int i = 0; i < tr_program_op_count(g, program); i++) {
        const tr_op_t *op = tr_program_op(g, program, i);
        uses += op->row == &leave_row && op->out[0].id == reduced.id;
    }
    return uses;
}

tr_status_t tr_update_moments(tr_graph_t *g, int slots) {
    for (int program = 0; program < tr_graph_program_count(g); program++)
        for (int i = 0; i < tr_program_op_count(g, program); i++) {
            const tr_op_t *op = tr_program_op(g, program, i);
            if (op->row != &leave_row) continue;
            leave_attr_t leave = *(const leave_attr_t *)op->attr;
            tr_tensor_t reduced = op->out[0];
            if (updated_already(g, leave.running_mean)) continue;
            const int sums = slots * uses_of(g, program, reduced);
            TR_TRY(append_update(g, reduced, 0, leave.running_mean, leave.momentum, sums));
            TR_TRY(append_update(g, reduced, 1, leave.running_var, leave.momentum, sums));
        }
    return TR_OK;
}
