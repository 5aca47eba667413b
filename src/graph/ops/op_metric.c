/* What a step counts: top-k hits, weighted sums. No gradient. */
#include "op_int.h"

static tr_status_t topk_shape(tr_graph_t *g, tr_op_t *op) {
    const char *const what[] = {"the class scores", "class numbers", "a weight per sample"};
    for (int i = 0; i < 3; i++) TR_TRY(tr_op_check_present(op, i, what[i]));
    TR_TRY(tr_op_check_type(g, op, 0, TR_F32, what[0]));
    TR_TRY(tr_op_check_label(g, op, 1));
    tr_shape_t logits = *tr_shape_of(g, op->in[0]);
    int k = ((const tr_topk_attr_t *)op->attr)->k;
    TR_TRY(tr_op_check_shape(g, op, 1, &TR_SHAPE(logits.dim[0]), what[1]));
    TR_TRY(tr_op_check_vector(g, op, 2, logits.dim[0], what[2]));
    if (k < 1 || k > logits.dim[1])
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: top-k needs k from 1 to the number of classes, %lld, found %d",
                       tr_op_where(op), (long long)logits.dim[1], k);
    return tr_op_output(g, op, 0, TR_F32, &TR_SHAPE(logits.dim[0]));
}

static double topk_flops(const tr_graph_t *g, const tr_op_t *op) {
    return tr_op_elems(g, op->in[0]);
}

static const tr_op_row_t topk_row = {
    .name = "topk_correct", .kernel = TR_K_TOPK_CORRECT, .shape = topk_shape, .flops = topk_flops};

tr_status_t tr_topk_correct(tr_graph_t *g, tr_tensor_t logits, tr_tensor_t label,
                            tr_tensor_t weight, int k, tr_tensor_t *out) {
    tr_topk_attr_t attr = {k};
    tr_tensor_t in[3];
    TR_TRY(tr_fold_rows(g, logits, &in[0]));
    TR_TRY(tr_flatten(g, label, &in[1]));
    TR_TRY(tr_flatten(g, weight, &in[2]));
    return tr_op_append(g, &topk_row, in, 3, &attr, sizeof attr, NULL, out, 1);
}

static tr_status_t metric_sum_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(tr_op_check_type(g, op, 0, TR_F32, "its input"));
    return tr_op_check_vector(g, op, 1, tr_shape_elems(tr_shape_of(g, op->in[0])),
                              "a weight per element");
}

static double metric_sum_flops(const tr_graph_t *g, const tr_op_t *op) {
    return tr_op_elems(g, op->in[0]) + tr_op_elems(g, op->in[1]);
}

static const tr_op_row_t sum_row = {.name = "weighted_sum",
                                    .kernel = TR_K_WEIGHTED_SUM,
                                    .shape = metric_sum_shape,
                                    .flops = metric_sum_flops,
                                    .flags = TR_OP_ONCE | TR_OP_READS_OUTPUT};

tr_status_t tr_weighted_sum(tr_graph_t *g, tr_tensor_t x, tr_tensor_t weight, tr_tensor_t into) {
    tr_tensor_t in[2] = {[1] = weight};
    TR_TRY(tr_flatten(g, x, &in[0]));
    return tr_op_append_into(g, &sum_row, in, 2, NULL, 0, &into, 1);
}
