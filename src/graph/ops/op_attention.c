/* attention, attention_bwd. */
#include "op_int.h"

enum { QKV, SAMPLE_ID, STEP };
enum { Y, LSE, PROBABILITIES };

static tr_status_t attention_check_dropout(const tr_graph_t *g, const tr_op_t *op,
                                           int64_t samples) {
    const tr_attention_attr_t *attr = op->attr;
    if (!(attr->p >= 0 && attr->p < 1))
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: the dropout probability must be at least 0 and below 1, found %g",
                       tr_op_where(op), attr->p);
    if (attr->p == 0) return TR_OK;
    TR_TRY(tr_op_check_present(op, SAMPLE_ID, "the sample ids of the batch"));
    TR_TRY(tr_op_check_type(g, op, SAMPLE_ID, TR_I64, "sample ids"));
    TR_TRY(tr_op_check_shape(g, op, SAMPLE_ID, &TR_SHAPE(samples), "sample ids"));
    return tr_op_check_block(g, op, STEP, sizeof(tr_step_t), "the step block");
}

static tr_status_t attention_forward_shape(tr_graph_t *g, tr_op_t *op) {
    char text[96];
    const tr_attention_attr_t *attr = op->attr;
    TR_TRY(tr_op_check_present(op, QKV, "queries, keys and values"));
    TR_TRY(tr_op_check_float(g, op, QKV, "queries, keys and values"));
    const tr_shape_t x = *tr_shape_of(g, op->in[QKV]);
    if (x.ndim != 3 || attr->heads < 1 || x.dim[2] % (3 * attr->heads) != 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: attention in %d heads expects queries, keys and values (samples, "
                       "tokens, 3 x channels), the channels a multiple of the heads; found %s",
                       tr_op_where(op), attr->heads, tr_shape_format(&x, text));
    TR_TRY(attention_check_dropout(g, op, x.dim[0]));
    const int64_t b = x.dim[0], t = x.dim[1], h = attr->heads;
    TR_TRY(tr_op_output(g, op, Y, tr_dtype_of(g, op->in[QKV]), &TR_SHAPE(b, t, x.dim[2] / 3)));
    TR_TRY(tr_op_output(g, op, LSE, TR_F32, &TR_SHAPE(b, h, t)));
    return tr_op_output(g, op, PROBABILITIES, TR_F32, &TR_SHAPE(b, h, t, t));
}

/* Of one product of queries and keys; half of the scores are of later tokens. */
static double attention_product_flops(const tr_graph_t *g, tr_tensor_t qkv) {
    const tr_shape_t *x = tr_shape_of(g, qkv);
    return tr_op_elems(g, qkv) / 3 * (double)(x->dim[1] + 1);
}
static double attention_forward_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 2 * attention_product_flops(g, op->in[QKV]);
}

enum { B_DY, B_QKV, B_Y, B_LSE, B_PROBABILITIES, B_SAMPLE_ID, B_STEP };

static double attention_backward_flops(const tr_graph_t *g, const tr_op_t *op) {
    return (tr_is_none(op->in[B_PROBABILITIES]) ? 5 : 4) *
           attention_product_flops(g, op->in[B_QKV]);
}

static tr_status_t attention_backward_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_shape_t x = *tr_shape_of(g, op->in[B_QKV]);
    TR_TRY(tr_op_check_type(g, op, B_DY, tr_dtype_of(g, op->in[B_QKV]), "the gradient"));
    return tr_op_output(g, op, 0, tr_dtype_of(g, op->in[B_QKV]), &x);
}

static const tr_op_row_t backward_row = {.name = "attention_bwd",
                                         .kernel = TR_K_ATTENTION_BWD,
                                         .shape = attention_backward_shape,
                                         .flops = attention_backward_flops};

static tr_status_t attention_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                  const bool *need, tr_tensor_t *din) {
    if (tr_is_none(dout[Y]) || !need[QKV]) return TR_OK;
    tr_tensor_t in[] = {
        dout[Y],           op->in[QKV], op->out[Y], op->out[LSE], op->out[PROBABILITIES],
        op->in[SAMPLE_ID], op->in[STEP]};
    return tr_op_append(g, &backward_row, in, 7, op->attr, sizeof(tr_attention_attr_t), NULL,
                        &din[QKV], 1);
}

static const tr_op_row_t forward_row = {.name = "attention",
                                        .kernel = TR_K_ATTENTION_FWD,
                                        .shape = attention_forward_shape,
                                        .grad = attention_grad,
                                        .flops = attention_forward_flops};

tr_status_t tr_attention(tr_graph_t *g, tr_tensor_t qkv, int heads, tr_tensor_t sample_id, float p,
                         bool keeps_probabilities, tr_tensor_t *out) {
    tr_attention_attr_t attr = {.heads = heads};
    tr_tensor_t in[3] = {qkv}, made[3];
    if (p != 0 && tr_graph_mode(g) != TR_EVAL) {
        attr.p = p, attr.stream = tr_op_dropout_stream(g);
        in[SAMPLE_ID] = sample_id, in[STEP] = tr_graph_step(g);
    }
    const bool want[] = {true, true, keeps_probabilities && tr_graph_mode(g) == TR_TRAIN};
    TR_TRY(tr_op_append(g, &forward_row, in, 3, &attr, sizeof attr, want, made, 3));
    return *out = made[Y], TR_OK;
}
