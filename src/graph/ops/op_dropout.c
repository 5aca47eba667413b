/* dropout: its gradient is the same op on dy, since the mask is a function of counters and not
 * stored. */
#include "op_int.h"

static tr_status_t dropout_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_dropout_attr_t *attr = op->attr;
    TR_TRY(tr_op_check_present(op, 0, "an input"));
    TR_TRY(tr_op_check_present(op, 1, "the sample ids of the batch"));
    const tr_shape_t *x = tr_shape_of(g, op->in[0]);
    if (x->ndim < 1)
        return TR_FAIL(TR_ERR_CONFIG, "%s: dropout requires (samples, ...), found a scalar",
                       tr_op_where(op));
    TR_TRY(tr_op_check_type(g, op, 1, TR_I64, "sample ids"));
    TR_TRY(tr_op_check_shape(g, op, 1, &TR_SHAPE(x->dim[0]), "sample ids"));
    TR_TRY(tr_op_check_block(g, op, 2, sizeof(tr_step_t), "the step block"));
    if (!(attr->p >= 0 && attr->p < 1))
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: the dropout probability must be at least 0 and below 1, found %g",
                       tr_op_where(op), attr->p);
    return tr_op_shape_like_in0(g, op);
}

static tr_status_t dropout_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                const bool *need, tr_tensor_t *din);

static const tr_op_row_t dropout_row = {
    .name = "dropout", .kernel = TR_K_DROPOUT, .shape = dropout_shape, .grad = dropout_grad};

static tr_status_t dropout_append(tr_graph_t *g, tr_tensor_t x, tr_tensor_t sample_id,
                                  const tr_dropout_attr_t *attr, tr_tensor_t *out) {
    return tr_op_append(g, &dropout_row, (tr_tensor_t[]){x, sample_id, tr_graph_step(g)}, 3, attr,
                        sizeof *attr, NULL, out, 1);
}

static tr_status_t dropout_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                const bool *need, tr_tensor_t *din) {
    if (tr_is_none(dout[0]) || !need[0]) return TR_OK;
    return dropout_append(g, dout[0], op->in[1], op->attr, &din[0]);
}

uint32_t tr_op_dropout_stream(const tr_graph_t *g) {
    int open = tr_graph_program_count(g) - 1;
    uint64_t before = 0;
    for (int i = 0; i < tr_program_op_count(g, open); i++) {
        const tr_op_t *op = tr_program_op(g, open, i);
        before += op->kind == TR_OP_KERNEL &&
                  (op->row->kernel == TR_K_DROPOUT || op->row->kernel == TR_K_ATTENTION_FWD);
    }
    uint64_t hash = (tr_hash_name(tr_scope(g)) ^ before) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(hash >> 32);
}

tr_status_t tr_dropout(tr_graph_t *g, tr_tensor_t x, tr_tensor_t sample_id, float p,
                       tr_tensor_t *out) {
    if (p == 0 || tr_graph_mode(g) == TR_EVAL) return *out = x, TR_OK;
    tr_dropout_attr_t attr = {p, tr_op_dropout_stream(g)};
    return dropout_append(g, x, sample_id, &attr, out);
}
