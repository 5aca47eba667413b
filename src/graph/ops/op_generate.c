/* matmul_rows, cache_append, attention_cached: what continues texts. */
#include "op_int.h"

/* -- products of few rows ---------------------------------------------------------------------- */

static tr_status_t generate_rows_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_matmul_attr_t *attr = op->attr;
    char tx[96], tw[96];
    TR_TRY(tr_op_check_type(g, op, 0, TR_F32, "the left side"));
    TR_TRY(tr_op_check_float(g, op, 1, "the right side"));
    const tr_shape_t x = *tr_shape_of(g, op->in[0]), w = *tr_shape_of(g, op->in[1]);
    if (x.ndim < 2 || w.ndim != 2 || x.dim[x.ndim - 1] != w.dim[attr->trans_b ? 1 : 0])
        return TR_FAIL(TR_ERR_CONFIG, "%s: product of %s and %s%s: inner sizes differ",
                       tr_op_where(op), tr_shape_format(&x, tx), tr_shape_format(&w, tw),
                       attr->trans_b ? " transposed" : "");
    tr_shape_t y = x;
    y.dim[y.ndim - 1] = w.dim[attr->trans_b ? 0 : 1];
    TR_TRY(tr_op_check_vector(g, op, 2, y.dim[y.ndim - 1], "the bias"));
    return tr_op_output(g, op, 0, TR_F32, &y);
}

static double generate_rows_flops(const tr_graph_t *g, const tr_op_t *op) {
    const tr_shape_t *x = tr_shape_of(g, op->in[0]);
    return 2 * tr_op_elems(g, op->out[0]) * (double)x->dim[x->ndim - 1];
}

static tr_status_t generate_rows_compose(tr_graph_t *g, const tr_op_t *op, const bool *want,
                                         tr_tensor_t *out) {
    const tr_matmul_attr_t *attr = op->attr;
    tr_tensor_t w;
    TR_TRY(tr_cast(g, op->in[1], TR_F32, &w));
    return attr->trans_b ? tr_linear(g, op->in[0], w, op->in[2], TR_ACT_NONE, out)
                         : tr_linear_in_out(g, op->in[0], w, op->in[2], TR_ACT_NONE, out);
}

static const tr_op_row_t rows_row = {.name = "matmul_rows",
                                     .kernel = TR_K_MATMUL_ROWS,
                                     .shape = generate_rows_shape,
                                     .flops = generate_rows_flops,
                                     .compose = generate_rows_compose};

tr_status_t tr_linear_rows(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w, tr_tensor_t b, bool trans_w,
                           tr_act_t act, tr_tensor_t *out) {
    const tr_matmul_attr_t attr = {.trans_b = trans_w, .alpha = 1};
    TR_TRY(
        tr_op_append(g, &rows_row, (tr_tensor_t[]){x, w, b}, 3, &attr, sizeof attr, NULL, out, 1));
    return act == TR_ACT_NONE ? TR_OK : tr_activation(g, *out, act, out);
}

/* -- attention to what is cached --------------------------------------------------------------- */

enum { QKV, PLACE, KEYS, VALUES };

static tr_status_t generate_check_qkv(const tr_graph_t *g, const tr_op_t *op) {
    char text[96];
    const tr_shape_t *x = tr_shape_of(g, op->in[QKV]);
    TR_TRY(tr_op_check_type(g, op, QKV, TR_F32, "queries, keys and values"));
    TR_TRY(tr_op_check_type(g, op, PLACE, TR_I32, "the places of samples"));
    TR_TRY(tr_op_check_shape(g, op, PLACE, &TR_SHAPE(x->dim[0], 3), "the places of samples"));
    if (x->ndim == 3 && x->dim[2] % 3 == 0) return TR_OK;
    return TR_FAIL(
        TR_ERR_CONFIG,
        "%s: expected queries, keys and values (samples, tokens, 3 x channels), found %s",
        tr_op_where(op), tr_shape_format(x, text));
}

static tr_status_t generate_append_shape(tr_graph_t *g, tr_op_t *op) {
    return generate_check_qkv(g, op);
}

static const tr_op_row_t append_row = {.name = "cache_append",
                                       .kernel = TR_K_CACHE_APPEND,
                                       .shape = generate_append_shape,
                                       .flags = TR_OP_ONCE | TR_OP_READS_OUTPUT};

static tr_status_t generate_cached_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_attention_attr_t *attr = op->attr;
    TR_TRY(generate_check_qkv(g, op));
    const tr_shape_t x = *tr_shape_of(g, op->in[QKV]), keys = *tr_shape_of(g, op->in[KEYS]);
    const int64_t channels = x.dim[2] / 3;
    TR_TRY(tr_op_check_float(g, op, KEYS, "cached keys"));
    TR_TRY(tr_op_check_type(g, op, VALUES, tr_dtype_of(g, op->in[KEYS]), "cached values"));
    TR_TRY(tr_op_check_shape(g, op, VALUES, &keys, "cached values"));
    if (keys.ndim != 3 || keys.dim[2] != channels || channels % attr->heads != 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: expected caches of %lld channels, a multiple of %d heads",
                       tr_op_where(op), (long long)channels, attr->heads);
    return tr_op_output(g, op, 0, TR_F32, &TR_SHAPE(x.dim[0], x.dim[1], channels));
}

/* With full caches. */
static double generate_cached_flops(const tr_graph_t *g, const tr_op_t *op) {
    return 4 * tr_op_elems(g, op->out[0]) * (double)tr_shape_of(g, op->in[KEYS])->dim[1];
}

static const tr_op_row_t cached_row = {.name = "attention_cached",
                                       .kernel = TR_K_ATTENTION_CACHED,
                                       .shape = generate_cached_shape,
                                       .flops = generate_cached_flops};

tr_status_t tr_attention_cached(tr_graph_t *g, tr_tensor_t qkv, tr_tensor_t place, tr_tensor_t keys,
                                tr_tensor_t values, int heads, tr_tensor_t *out) {
    const tr_attention_attr_t attr = {.heads = heads};
    TR_TRY(tr_op_append_into(g, &append_row, (tr_tensor_t[]){qkv, place}, 2, NULL, 0,
                             (tr_tensor_t[]){keys, values}, 2));
    return tr_op_append(g, &cached_row, (tr_tensor_t[]){qkv, place, keys, values}, 4, &attr,
                        sizeof attr, NULL, out, 1);
}
