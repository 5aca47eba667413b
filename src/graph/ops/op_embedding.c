/* embedding, embedding_bwd. */
#include "op_int.h"

enum { ID, WTE, WPE };

static tr_status_t embedding_check_ids(const tr_graph_t *g, const tr_op_t *op, int input) {
    char text[96];
    const tr_tensor_info_t *id = tr_tensor_info(g, op->in[input]);
    const bool is_id = id->dtype == TR_U16 || id->dtype == TR_U32 || id->dtype == TR_I32;
    if (is_id && id->shape.ndim == 2) return TR_OK;
    return TR_FAIL(
        TR_ERR_CONFIG,
        "%s: an embedding expects token ids u16, u32 or i32 of (samples, tokens), found %s %s",
        tr_op_where(op), tr_dtype_name(id->dtype), tr_shape_format(&id->shape, text));
}

static tr_status_t embedding_check_table(const tr_graph_t *g, const tr_op_t *op, int input,
                                         int64_t width, const char *what) {
    char text[96];
    TR_TRY(tr_op_check_float(g, op, input, what));
    const tr_shape_t *shape = tr_shape_of(g, op->in[input]);
    if (shape->ndim == 2 && (width == 0 || shape->dim[1] == width)) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "%s: an embedding expects %s of (rows, channels) with equal channels, found %s",
                   tr_op_where(op), what, tr_shape_format(shape, text));
}

static tr_status_t embedding_forward_shape(tr_graph_t *g, tr_op_t *op) {
    TR_TRY(tr_op_check_present(op, ID, "token ids"));
    TR_TRY(tr_op_check_present(op, WTE, "a table of tokens"));
    TR_TRY(embedding_check_ids(g, op, ID));
    TR_TRY(embedding_check_table(g, op, WTE, 0, "a table of tokens"));
    const int64_t steps = tr_shape_of(g, op->in[ID])->dim[1],
                  width = tr_shape_of(g, op->in[WTE])->dim[1];
    if (!tr_is_none(op->in[WPE])) {
        TR_TRY(tr_op_check_type(g, op, WPE, tr_dtype_of(g, op->in[WTE]), "a table of positions"));
        TR_TRY(embedding_check_table(g, op, WPE, width, "a table of positions"));
        const int64_t positions = tr_shape_of(g, op->in[WPE])->dim[0];
        if (positions < steps)
            return TR_FAIL(TR_ERR_CONFIG,
                           "%s: a sample has %lld tokens, but the table has %lld positions",
                           tr_op_where(op), (long long)steps, (long long)positions);
    }
    const int64_t samples = tr_shape_of(g, op->in[ID])->dim[0];
    return tr_op_output(g, op, 0, *(const tr_dtype_t *)op->attr, &TR_SHAPE(samples, steps, width));
}

/* What a lookup moves: its rows, not the table. */
static double embedding_forward_bytes(const tr_graph_t *g, const tr_op_t *op) {
    return (double)tr_tensor_info(g, op->in[ID])->bytes +
           (double)tr_tensor_info(g, op->out[0])->bytes +
           (tr_is_none(op->in[WPE]) ? 1 : 2) * tr_op_elems(g, op->out[0]) *
               (double)tr_dtype_bytes(tr_dtype_of(g, op->in[WTE]));
}

/* The tables' shapes are not among the inputs: outputs are made by the grad below, and given. */
static tr_status_t embedding_backward_shape(tr_graph_t *g, tr_op_t *op) {
    return embedding_check_ids(g, op, 1);
}

static double embedding_backward_flops(const tr_graph_t *g, const tr_op_t *op) {
    return tr_op_elems(g, op->in[0]) *
           ((tr_is_none(op->out[0]) ? 0 : 1) + (tr_is_none(op->out[1]) ? 0 : 1));
}

typedef struct {
    tr_embedding_attr_t kernel; /* first: what the kernel reads */
    tr_shape_t wte, wpe;
} backward_attr_t;

static tr_status_t embedding_made_shape(tr_graph_t *g, tr_op_t *op) {
    const backward_attr_t *attr = op->attr;
    TR_TRY(embedding_check_ids(g, op, 1));
    TR_TRY(tr_op_output(g, op, 0, TR_F32, &attr->wte));
    return tr_op_output(g, op, 1, TR_F32, &attr->wpe);
}

static const tr_op_row_t backward_row = {.name = "embedding_bwd",
                                         .kernel = TR_K_EMBEDDING_BWD,
                                         .shape = embedding_made_shape,
                                         .flops = embedding_backward_flops};
static const tr_op_row_t adding_row = {.name = "embedding_bwd",
                                       .kernel = TR_K_EMBEDDING_BWD,
                                       .shape = embedding_backward_shape,
                                       .flops = embedding_backward_flops,
                                       .flags = TR_OP_READS_OUTPUT};

static tr_status_t embedding_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                  const bool *need, tr_tensor_t *din) {
    if (tr_is_none(dout[0])) return TR_OK;
    backward_attr_t attr = {.wte = *tr_shape_of(g, op->in[WTE])};
    const tr_embedding_attr_t adding = {.add = true};
    const tr_tensor_t in[] = {dout[0], op->in[ID]},
                      sum = need[WTE] ? tr_gradient_so_far(g, op->in[WTE]) : TR_NONE;
    /* A table that is also the head's weight has its gradient from there already: this one is added
     * to it in place. */
    if (!tr_is_none(sum))
        TR_TRY(tr_op_append_into(g, &adding_row, in, 2, &adding, sizeof adding,
                                 (tr_tensor_t[]){sum, TR_NONE}, 2));
    const bool want[] = {need[WTE] && tr_is_none(sum), need[WPE]};
    if (need[WPE]) attr.wpe = *tr_shape_of(g, op->in[WPE]);
    if (!want[0] && !want[1]) return TR_OK;
    return tr_op_append(g, &backward_row, in, 2, &attr, sizeof attr, want, &din[WTE], 2);
}

static const tr_op_row_t forward_row = {.name = "embedding",
                                        .kernel = TR_K_EMBEDDING_FWD,
                                        .shape = embedding_forward_shape,
                                        .grad = embedding_grad,
                                        .bytes = embedding_forward_bytes};

tr_status_t tr_embedding(tr_graph_t *g, tr_tensor_t id, tr_tensor_t wte, tr_tensor_t wpe,
                         tr_dtype_t dtype, tr_tensor_t *out) {
    if (tr_dtype_is_half(dtype)) TR_TRY(tr_param_copy(g, wte, dtype, &wte));
    if (tr_dtype_is_half(dtype) && !tr_is_none(wpe)) TR_TRY(tr_param_copy(g, wpe, dtype, &wpe));
    return tr_op_append(g, &forward_row, (tr_tensor_t[]){id, wte, wpe}, 3, &dtype, sizeof dtype,
                        NULL, out, 1);
}
