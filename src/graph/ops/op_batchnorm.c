/* batchnorm_train, batchnorm_eval, batchnorm_bwd and the way of the moments: a training program
 * adds the moments of its micro-batch to the reduced block, and the update program moves the
 * running moments towards their mean over all slots. */
#include "op_int.h"
#include "base/mem.h"

enum { X, GAMMA, BETA, MEAN, VAR };
enum { MOMENTS = 3 }; /* an output of training */

/* Of the first `count` inputs. */
static tr_status_t batchnorm_check(tr_graph_t *g, const tr_op_t *op, int count) {
    const tr_norm_attr_t *attr = op->attr;
    const char *const what[] = {"its input", "its scale (gamma)", "its shift (beta)",
                                "the running mean", "the running variance"};
    for (int i = 0; i < count; i++) TR_TRY(tr_op_check_present(op, i, what[i]));
    TR_TRY(tr_op_check_float(g, op, X, what[X]));
    const tr_shape_t *x = tr_shape_of(g, op->in[X]);
    if (x->ndim < 2)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "%s: batch normalisation expects (samples, ..., channels), found %d dimensions",
            tr_op_where(op), x->ndim);
    for (int i = GAMMA; i < count; i++)
        TR_TRY(tr_op_check_vector(g, op, i, x->dim[x->ndim - 1], what[i]));
    if (!(attr->eps > 0))
        return TR_FAIL(TR_ERR_CONFIG, "%s: eps must be above 0, found %g", tr_op_where(op),
                       attr->eps);
    return TR_OK;
}

/* Of training: what the kernel reads, and whose running moments the moments are for, so that the
 * ops are the only list. */
typedef struct {
    tr_norm_attr_t norm; /* first */
    tr_tensor_t running_mean, running_var;
    float momentum;
} train_attr_t;

static tr_status_t train_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(batchnorm_check(g, op, MEAN));
    tr_shape_t x = *tr_shape_of(g, op->in[X]);
    int64_t channels = x.dim[x.ndim - 1];
    TR_TRY(tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &x));
    TR_TRY(tr_op_output(g, op, 1, TR_F32, &TR_SHAPE(channels)));
    TR_TRY(tr_op_output(g, op, 2, TR_F32, &TR_SHAPE(channels)));
    return tr_op_output(g, op, MOMENTS, TR_F32, &TR_SHAPE(2, channels));
}

static tr_status_t batchnorm_eval_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(batchnorm_check(g, op, op->n_in));
    return tr_op_shape_like_in0(g, op);
}

/* Per element: sum; subtract, square, add; scale and shift. */
static double train_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 6 * tr_op_elems(g, op->in[0]);
}
static double batchnorm_eval_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 2 * tr_op_elems(g, op->in[0]);
}
/* Per element: two sums with one product (4 with the normalised value), and dx from three terms. */
static double batchnorm_bwd_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 9 * tr_op_elems(g, op->in[0]);
}

static const tr_op_row_t bwd_row = {.name = "batchnorm_bwd",
                                    .kernel = TR_K_BATCHNORM_BWD,
                                    .shape = tr_op_norm_bwd_shape,
                                    .flops = batchnorm_bwd_flops};

static tr_status_t train_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                              const bool *need, tr_tensor_t *din) {
    return tr_op_norm_grad(g, op, &bwd_row, dout, need, din);
}

static const tr_op_row_t train_row = {.name = "batchnorm_train",
                                      .kernel = TR_K_BATCHNORM_TRAIN,
                                      .shape = train_shape,
                                      .grad = train_grad,
                                      .flops = train_flops};
static const tr_op_row_t eval_row = {.name = "batchnorm_eval",
                                     .kernel = TR_K_BATCHNORM_EVAL,
                                     .shape = batchnorm_eval_shape,
                                     .flops = batchnorm_eval_flops};

/* -- fused with the sum of a residual block ------------------------------------------------------
 */

/* in3: what is added. */
static tr_status_t batchnorm_add_train_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_shape_t x = *tr_shape_of(g, op->in[X]);
    TR_TRY(tr_op_check_shape(g, op, 3, &x, "what is added"));
    return train_shape(g, op);
}

static double batchnorm_add_train_flops(const tr_graph_t *g, const tr_op_t *op) {
    return train_flops(g, op) + tr_op_elems(g, op->in[0]);
}

const tr_op_row_t tr_batchnorm_add_train_row = {.name = "batchnorm_add",
                                                .kernel = TR_K_BATCHNORM_ADD_TRAIN,
                                                .shape = batchnorm_add_train_shape,
                                                .flops = batchnorm_add_train_flops};

/* in6: the sum after the relu; out3: the gradient of what was added. */
static tr_status_t batchnorm_add_bwd_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_shape_t x = *tr_shape_of(g, op->in[0]);
    TR_TRY(tr_op_norm_bwd_shape(g, op));
    return tr_op_output(g, op, 3, tr_dtype_of(g, op->in[0]), &x);
}

static double batchnorm_add_bwd_flops(const tr_graph_t *g, const tr_op_t *op) {
    return batchnorm_bwd_flops(g, op) + tr_op_elems(g, op->in[0]);
}

const tr_op_row_t tr_batchnorm_add_bwd_row = {.name = "batchnorm_add_bwd",
                                              .kernel = TR_K_BATCHNORM_ADD_BWD,
                                              .shape = batchnorm_add_bwd_shape,
                                              .flops = batchnorm_add_bwd_flops};

/* -- running moments --------------------------------------------------------------------------- */

/* The sums are named after the running mean that they go to: one scope may have several. */
static tr_status_t batchnorm_reduced_moments(tr_graph_t *g, tr_tensor_t running_mean, int64_t count,
                                             tr_tensor_t *out) {
    tr_str_t text = {0};
    char *name = NULL;
    tr_str_printf(&text, "%s.moments", tr_tensor_info(g, running_mean)->name);
    TR_TRY(tr_str_take(&text, &name));
    const tr_status_t status = tr_reduced(g, name, count, out);
    tr_free(&name);
    return status;
}

tr_status_t tr_batchnorm(tr_graph_t *g, tr_tensor_t x, tr_tensor_t gamma, tr_tensor_t beta,
                         tr_tensor_t running_mean, tr_tensor_t running_var, float eps,
                         float momentum, tr_act_t act, tr_tensor_t *out) {
    bool fused = act == TR_ACT_NONE || act == TR_ACT_RELU;
    tr_norm_attr_t attr = {.eps = eps, .act = fused ? act : TR_ACT_NONE};
    tr_tensor_t in[] = {x, gamma, beta, running_mean, running_var}, made[4] = {{0}};
    if (tr_graph_mode(g) == TR_TRAIN) {
        const train_attr_t train = {attr, running_mean, running_var, momentum};
        const int64_t channels = tr_shape_elems(tr_shape_of(g, running_mean));
        TR_TRY(batchnorm_reduced_moments(g, running_mean, 2 * channels, &made[MOMENTS]));
        TR_TRY(tr_op_append_given(g, &train_row, in, 3, &train, sizeof train, NULL, made, 4));
    } else {
        TR_TRY(tr_op_append(g, &eval_row, in, 5, &attr, sizeof attr, NULL, made, 1));
    }
    return tr_activation(g, made[0], fused ? TR_ACT_NONE : act, out);
}

static tr_status_t update_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(tr_op_check_type(g, op, 0, TR_F32, "sums of moments"));
    TR_TRY(tr_op_check_block(g, op, 1, sizeof(tr_step_result_t), "the step's result"));
    return tr_op_check_table(g, op, 2, sizeof(tr_moments_range_t), "the table of moments");
}

static double update_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 4 * tr_op_elems(g, op->in[0]);
}

static const tr_op_row_t update_row = {.name = "moments_update",
                                       .kernel = TR_K_MOMENTS_UPDATE,
                                       .shape = update_shape,
                                       .flops = update_flops,
                                       .flags = TR_OP_ONCE | TR_OP_READS_OUTPUT};

typedef TR_VEC(tr_moments_range_t) ranges_t;

/* The op of a training program that leaves moments in the reduced block, or NULL. */
static const train_attr_t *batchnorm_leaves_moments(const tr_op_t *op) {
    const bool is_training = op->row == &train_row || op->row == &tr_batchnorm_add_train_row;
    return is_training && !tr_is_none(op->out[MOMENTS]) ? op->attr : NULL;
}

tr_tensor_t tr_lone_moments(const tr_graph_t *g, int program) {
    for (int i = 0; i < tr_program_op_count(g, program); i++) {
        const tr_op_t *op = tr_program_op(g, program, i);
        const train_attr_t *a = batchnorm_leaves_moments(op);
        if (a && tr_shape_elems(tr_shape_of(g, op->in[X])) ==
                     tr_shape_elems(tr_shape_of(g, a->running_mean)))
            return a->running_mean;
    }
    return TR_NONE;
}

/* How often `program` leaves moments there: a layer that is used twice leaves those of both its
 * inputs. */
static int batchnorm_uses_of(const tr_graph_t *g, int program, tr_tensor_t reduced) {
    int uses = 0;
    for (int i = 0; i < tr_program_op_count(g, program); i++) {
        const tr_op_t *op = tr_program_op(g, program, i);
        uses += batchnorm_leaves_moments(op) && op->out[MOMENTS].id == reduced.id;
    }
    return uses;
}

static tr_status_t batchnorm_add_range(const tr_graph_t *g, tr_tensor_t reduced, int half,
                                       tr_tensor_t running, float momentum, int sums,
                                       ranges_t *ranges) {
    const tr_tensor_info_t *to = tr_tensor_info(g, running);
    const int64_t channels = tr_shape_elems(&to->shape);
    const int64_t first = tr_tensor_info(g, reduced)->block_elems + half * channels;
    if (to->block_elems < 0)
        return TR_FAIL(TR_ERR_INTERNAL, "'%s' is declared after the blocks were laid out",
                       to->name);
    const tr_moments_range_t range = {.sum = first - tr_graph_layout(g).trainable_elems,
                                      .running = to->block_elems,
                                      .count = channels,
                                      .momentum = momentum,
                                      .slots = sums};
    return tr_vec_push(ranges, range);
}

/* Several programs leave the moments of one layer ("micro", "last"); they are updated once. */
static bool batchnorm_is_listed(const tr_graph_t *g, const ranges_t *ranges, tr_tensor_t running) {
    for (size_t i = 0; i < ranges->count; i++)
        if (ranges->data[i].running == tr_tensor_info(g, running)->block_elems) return true;
    return false;
}

static tr_status_t batchnorm_list_ranges(const tr_graph_t *g, int slots, ranges_t *ranges) {
    for (int program = 0; program < tr_graph_program_count(g); program++)
        for (int i = 0; i < tr_program_op_count(g, program); i++) {
            const tr_op_t *op = tr_program_op(g, program, i);
            const train_attr_t *a = batchnorm_leaves_moments(op);
            if (!a || batchnorm_is_listed(g, ranges, a->running_mean)) continue;
            const tr_tensor_t sum = op->out[MOMENTS];
            const int sums = slots * batchnorm_uses_of(g, program, sum);
            TR_TRY(batchnorm_add_range(g, sum, 0, a->running_mean, a->momentum, sums, ranges));
            TR_TRY(batchnorm_add_range(g, sum, 1, a->running_var, a->momentum, sums, ranges));
        }
    return TR_OK;
}

tr_status_t tr_update_moments(tr_graph_t *g, int slots) {
    tr_tensor_t sums, table = TR_NONE, running;
    ranges_t ranges = {0};
    if (slots < 1)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "running moments of %d micro-batches per step; expected at least 1", slots);
    TR_TRY(tr_model_state_block(g, &running));
    const tr_layout_t layout = tr_graph_layout(g);
    tr_status_t status = batchnorm_list_ranges(g, slots, &ranges);
    if (status == TR_OK && ranges.count > 0)
        status = tr_const_bytes(g, "moments.ranges", ranges.data,
                                ranges.count * sizeof *ranges.data, &table);
    tr_vec_free(&ranges);
    if (status != TR_OK || tr_is_none(table)) return status;
    TR_TRY(tr_reduced_range(g, layout.trainable_elems,
                            layout.reduced_elems - layout.trainable_elems, &sums));
    return tr_op_append_into(g, &update_row, (tr_tensor_t[]){sums, tr_graph_result(g), table}, 3,
                             NULL, 0, &running, 1);
}
