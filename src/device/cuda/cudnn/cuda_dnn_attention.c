/*
 * Flash attention by cuDNN's graphs. Dropout is a mask in memory, where cudnn-frontend has it: before
 * the product with v, and on the gradient of the probabilities. The mask has the factor of dropout,
 * rounded to the type of q; scalars of the graph have what the rounding lost. cuDNN 9.14 takes UID_KEEP
 * for 1 beside a mask: with the factor in the mask, it is within 1/512 of 1.
 */
#include "cuda_dnn_attention.h"
#include "cuda_dnn_int.h"
#include "base/str.h"
#include <float.h>
#include <math.h>

/*
 * Backward is written so that cuDNN keeps the T x T scores of all heads in workspace, SCORE_BYTES
 * each, with sums of the rows. The form without them is expected to add to dq in an order that
 * varies.
 */
#define WORKSPACE_BYTES ((size_t)64 << 30)
#define SCORE_BYTES     2
#define ROW_BYTES       8
#define OTHER_BYTES                                                                                \
    ((size_t)1 << 20) /* more than any engine seen so far needs besides the scores */

/* From this version the score of a later key is -INFINITY, as in cudnn-frontend; before, the least
 * number. */
#define INFINITE_CUDNN 91000

enum {
    UID_Q = 1,
    UID_K,
    UID_V,
    UID_Y,
    UID_LSE,
    UID_DY,
    UID_DQ,
    UID_DK,
    UID_DV,
    UID_SCALE,
    UID_LOW,
    UID_MASK,
    UID_FACTOR, /* of the probabilities that are kept, over the mask's */
    UID_KEEP    /* its inverse, 1 without dropout */
};

/* Dimensions and strides of a tensor (B, H, rows, columns). */
typedef struct {
    int64_t dim[4], stride[4];
} layout_t;

/* One of q, k, v in (B, T, parts C), or y in (B, T, C). */
static layout_t packed(const cuda_dnn_attention_t *a, int64_t parts) {
    const int64_t row = parts * a->heads * a->size;
    return (layout_t){{a->samples, a->heads, a->steps, a->size}, {a->steps * row, a->size, row, 1}};
}

static layout_t dense(const cuda_dnn_attention_t *a, int64_t columns) {
    return (layout_t){{a->samples, a->heads, a->steps, columns},
                      {a->heads * a->steps * columns, a->steps * columns, columns, 1}};
}

static layout_t transposed(layout_t l) {
    const int64_t dim = l.dim[2], stride = l.stride[2];
    l.dim[2] = l.dim[3], l.dim[3] = dim;
    l.stride[2] = l.stride[3], l.stride[3] = stride;
    return l;
}

static tr_status_t tensor(cuda_dnn_plan_t *p, layout_t l, cudnnDataType_t type, int64_t uid,
                          desc_t *out) {
    return tr_cuda_dnn_tensor(p, 4, l.dim, l.stride, type, uid, out);
}

/* What lies between two operations: (B, H, T, columns). */
static tr_status_t inside(cuda_dnn_plan_t *p, const cuda_dnn_attention_t *a, int64_t columns,
                          cudnnDataType_t type, desc_t *out) {
    return tensor(p, dense(a, columns), type, 0, out);
}

/* -- operations -------------------------------------------------------------------------------- */

static tr_status_t reduce(cuda_dnn_plan_t *p, cudnnReduceTensorOp_t mode, desc_t x, desc_t y) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    desc_t how, op;
    TR_TRY(tr_cuda_dnn_create(p, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, &how));
    TR_TRY(tr_cuda_dnn_set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
                           1, &mode));
    TR_TRY(tr_cuda_dnn_set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    TR_TRY(tr_cuda_dnn_finalize(how));
    TR_TRY(tr_cuda_dnn_add(p, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, &op));
    TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how));
    TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x));
    TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y));
    return tr_cuda_dnn_finalize(op);
}

/* y: the same elements as x, seen with y's dimensions and strides. */
static tr_status_t reshape(cuda_dnn_plan_t *p, desc_t x, desc_t y) {
    desc_t op;
    TR_TRY(tr_cuda_dnn_add(p, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, &op));
    TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x));
    TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y));
    return tr_cuda_dnn_finalize(op);
}

/* -- graphs ------------------------------------------------------------------------------------ */

#define F32 CUDNN_DATA_FLOAT

/* x and b (NULL: none) element by element, as (B, H, T, columns) inside the graph. out may be &x. */
static tr_status_t combined(cuda_dnn_plan_t *p, const cuda_dnn_attention_t *a, int64_t columns,
                            cudnnDataType_t type, cudnnPointwiseMode_t mode, desc_t x, desc_t b,
                            desc_t *out) {
    desc_t made;
    TR_TRY(inside(p, a, columns, type, &made));
    TR_TRY(tr_cuda_dnn_pointwise(p, mode, x, b, made));
    *out = made;
    return TR_OK;
}

/* The scaled scores q k^T, with low ones where the key comes after the query. */
static tr_status_t scores(cuda_dnn_plan_t *p, const cuda_dnn_attention_t *a, desc_t q,
                          desc_t k_transposed, desc_t scale, desc_t *out) {
    desc_t low, product, scaled, row, column, seen;
    TR_TRY(tr_cuda_dnn_scalar(p, UID_LOW, &low));
    TR_TRY(inside(p, a, a->steps, F32, &product));
    TR_TRY(tr_cuda_dnn_matmul(p, q, k_transposed, product));
    TR_TRY(combined(p, a, a->steps, F32, CUDNN_POINTWISE_MUL, product, scale, &scaled));
    TR_TRY(inside(p, a, a->steps, CUDNN_DATA_INT32, &row));
    TR_TRY(tr_cuda_dnn_apply(
        p, &(cuda_dnn_pointwise_t){
               .mode = CUDNN_POINTWISE_GEN_INDEX, .axis = 2, .x = scaled, .y = row}));
    TR_TRY(inside(p, a, a->steps, CUDNN_DATA_INT32, &column));
    TR_TRY(tr_cuda_dnn_apply(
        p, &(cuda_dnn_pointwise_t){
               .mode = CUDNN_POINTWISE_GEN_INDEX, .axis = 3, .x = scaled, .y = column}));
    TR_TRY(
        combined(p, a, a->steps, CUDNN_DATA_BOOLEAN, CUDNN_POINTWISE_CMP_GE, row, column, &seen));
    TR_TRY(inside(p, a, a->steps, F32, out));
    return tr_cuda_dnn_apply(p, &(cuda_dnn_pointwise_t){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                                        .which = seen,
                                                        .x = scaled,
                                                        .b = low,
                                                        .y = *out});
}

/* The mask of dropout, its factor or zero. */
static tr_status_t dropout_mask(cuda_dnn_plan_t *p, const cuda_dnn_attention_t *a, desc_t *out) {
    return tensor(p, dense(a, a->steps), tr_cuda_dnn_type(a->dtype), UID_MASK, out);
}

/* share, of which some are zero and the others multiplied with the factor, in the type of q */
static tr_status_t share_drop(cuda_dnn_plan_t *p, const cuda_dnn_attention_t *a, desc_t share,
                              desc_t *out) {
    desc_t mask, kept, factor;
    TR_TRY(dropout_mask(p, a, &mask));
    TR_TRY(combined(p, a, a->steps, F32, CUDNN_POINTWISE_MUL, share, mask, &kept));
    TR_TRY(tr_cuda_dnn_scalar(p, UID_FACTOR, &factor));
    return combined(p, a, a->steps, tr_cuda_dnn_type(a->dtype), CUDNN_POINTWISE_MUL, kept, factor,
                    out);
}

/* y = dropout(softmax(scores)) v, lse = max + log sum exp(scores - max) */
static tr_status_t cuda_dnn_attention_forward(cuda_dnn_plan_t *p, const cuda_dnn_attention_t *a) {
    const cudnnDataType_t type = tr_cuda_dnn_type(a->dtype);
    desc_t q, k, v, y, lse, scale, s, max, less, e, sum, log_sum, share;
    TR_TRY(tensor(p, packed(a, 3), type, UID_Q, &q));
    TR_TRY(tensor(p, transposed(packed(a, 3)), type, UID_K, &k));
    TR_TRY(tensor(p, packed(a, 3), type, UID_V, &v));
    TR_TRY(tensor(p, packed(a, 1), type, UID_Y, &y));
    TR_TRY(tensor(p, dense(a, 1), F32, UID_LSE, &lse));
    TR_TRY(tr_cuda_dnn_scalar(p, UID_SCALE, &scale));
    TR_TRY(scores(p, a, q, k, scale, &s));
    TR_TRY(inside(p, a, 1, F32, &max));
    TR_TRY(reduce(p, CUDNN_REDUCE_TENSOR_MAX, s, max));
    TR_TRY(combined(p, a, a->steps, F32, CUDNN_POINTWISE_SUB, s, max, &less));
    TR_TRY(combined(p, a, a->steps, F32, CUDNN_POINTWISE_EXP, less, NULL, &e));
    TR_TRY(inside(p, a, 1, F32, &sum));
    TR_TRY(reduce(p, CUDNN_REDUCE_TENSOR_ADD, e, sum));
    TR_TRY(combined(p, a, 1, F32, CUDNN_POINTWISE_LOG, sum, NULL, &log_sum));
    TR_TRY(tr_cuda_dnn_pointwise(p, CUDNN_POINTWISE_ADD, max, log_sum, lse));
    TR_TRY(combined(p, a, a->steps, a->drops ? F32 : type, CUDNN_POINTWISE_DIV, e, sum, &share));
    if (a->drops) TR_TRY(share_drop(p, a, share, &share));
    return tr_cuda_dnn_matmul(p, share, v, y);
}

/* product = x^T g, where x (B, H, T, T) is inside the graph. */
static tr_status_t transposed_product(cuda_dnn_plan_t *p, const cuda_dnn_attention_t *a, desc_t x,
                                      desc_t g, desc_t product) {
    desc_t turned;
    TR_TRY(tensor(p, transposed(dense(a, a->steps)), tr_cuda_dnn_type(a->dtype), 0, &turned));
    TR_TRY(reshape(p, x, turned));
    return tr_cuda_dnn_matmul(p, turned, g, product);
}

/*
 * share = exp(scores - lse)    delta = sum of dy y
 * dscores = share (mask (dy v^T) - keep delta) factor scale
 * Without dropout there is neither mask nor factor, but the product with keep = 1: without it cuDNN
 * 9.19 asks for three times the workspace, and on a B200 takes an engine for older GPUs.
 */
static tr_status_t score_gradient(cuda_dnn_plan_t *p, const cuda_dnn_attention_t *a, desc_t share,
                                  desc_t dy, desc_t scale, desc_t *out) {
    const cudnnDataType_t type = tr_cuda_dnn_type(a->dtype);
    desc_t v, y, both, sum, keep, delta, dshare, less, times;
    TR_TRY(tensor(p, transposed(packed(a, 3)), type, UID_V, &v));
    TR_TRY(tensor(p, packed(a, 1), type, UID_Y, &y));
    TR_TRY(combined(p, a, a->size, F32, CUDNN_POINTWISE_MUL, dy, y, &both));
    TR_TRY(inside(p, a, 1, F32, &sum));
    TR_TRY(reduce(p, CUDNN_REDUCE_TENSOR_ADD, both, sum));
    TR_TRY(tr_cuda_dnn_scalar(p, UID_KEEP, &keep));
    TR_TRY(combined(p, a, 1, F32, CUDNN_POINTWISE_MUL, sum, keep, &delta));
    TR_TRY(inside(p, a, a->steps, F32, &dshare));
    TR_TRY(tr_cuda_dnn_matmul(p, dy, v, dshare));
    if (a->drops) {
        desc_t mask;
        TR_TRY(dropout_mask(p, a, &mask));
        TR_TRY(combined(p, a, a->steps, F32, CUDNN_POINTWISE_MUL, dshare, mask, &dshare));
    }
    TR_TRY(combined(p, a, a->steps, F32, CUDNN_POINTWISE_SUB, dshare, delta, &less));
    TR_TRY(combined(p, a, a->steps, F32, CUDNN_POINTWISE_MUL, less, share, &times));
    if (a->drops) {
        desc_t factor;
        TR_TRY(tr_cuda_dnn_scalar(p, UID_FACTOR, &factor));
        TR_TRY(combined(p, a, a->steps, F32, CUDNN_POINTWISE_MUL, times, factor, &times));
    }
    return combined(p, a, a->steps, type, CUDNN_POINTWISE_MUL, times, scale, out);
}

/* dv = dropout(share)^T dy    dk = dscores^T q    dq = dscores k */
static tr_status_t cuda_dnn_attention_backward(cuda_dnn_plan_t *p, const cuda_dnn_attention_t *a) {
    const cudnnDataType_t type = tr_cuda_dnn_type(a->dtype);
    desc_t q, k, k_turned, lse, dy, dq, dk, dv, scale, s, less, share, kept, ds;
    TR_TRY(tensor(p, packed(a, 3), type, UID_Q, &q));
    TR_TRY(tensor(p, transposed(packed(a, 3)), type, UID_K, &k_turned));
    TR_TRY(tensor(p, dense(a, 1), F32, UID_LSE, &lse));
    TR_TRY(tensor(p, packed(a, 1), type, UID_DY, &dy));
    TR_TRY(tensor(p, packed(a, 3), type, UID_DQ, &dq));
    TR_TRY(tensor(p, packed(a, 3), type, UID_DK, &dk));
    TR_TRY(tensor(p, packed(a, 3), type, UID_DV, &dv));
    TR_TRY(tr_cuda_dnn_scalar(p, UID_SCALE, &scale));
    TR_TRY(scores(p, a, q, k_turned, scale, &s));
    TR_TRY(combined(p, a, a->steps, F32, CUDNN_POINTWISE_SUB, s, lse, &less));
    TR_TRY(
        combined(p, a, a->steps, a->drops ? F32 : type, CUDNN_POINTWISE_EXP, less, NULL, &share));
    kept = share;
    if (a->drops) TR_TRY(share_drop(p, a, share, &kept));
    TR_TRY(transposed_product(p, a, kept, dy, dv));
    TR_TRY(score_gradient(p, a, share, dy, scale, &ds));
    TR_TRY(transposed_product(p, a, ds, q, dk));
    TR_TRY(tensor(p, packed(a, 3), type, 0, &k));
    TR_TRY(reshape(p, k_turned, k));
    return tr_cuda_dnn_matmul(p, ds, k, dq);
}

static tr_status_t attention_build(cuda_dnn_plan_t *p, const void *self) {
    const cuda_dnn_attention_t *a = self;
    return a->backward ? cuda_dnn_attention_backward(p, a) : cuda_dnn_attention_forward(p, a);
}

/* -- plans and runs ---------------------------------------------------------------------------- */

/* Where cudnn-frontend, asked for determinism, does not leave the engine of backward to the
 * heuristics: these know only an engine for older GPUs there. */
static const cuda_dnn_engine_t *blackwell_engine(const tr_device_t *device) {
    static const cuda_dnn_engine_t since_9_18 = {
        5, 2, {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}}};
    static const cuda_dnn_engine_t since_9_23 = {5,
                                                 6,
                                                 {{CUDNN_KNOB_TYPE_TILE_M, 3},
                                                  {CUDNN_KNOB_TYPE_TILE_N, 2},
                                                  {CUDNN_KNOB_TYPE_KERNEL_CFG, 2},
                                                  {CUDNN_KNOB_TYPE_STREAM_K, 0},
                                                  {CUDNN_KNOB_TYPE_TILE_CGA_M, 0},
                                                  {CUDNN_KNOB_TYPE_STAGES, 2}}};
    if (device->capability / 10 != 10 || cudnnGetVersion() < 91800) return NULL;
    return cudnnGetVersion() < 92300 ? &since_9_18 : &since_9_23;
}

tr_status_t tr_cuda_dnn_attention_plan(tr_device_t *device, const cuda_dnn_attention_t *a,
                                       cuda_dnn_plan_t **out) {
    char key[128];
    const cuda_dnn_graph_t graph = {.key = key,
                                    .first = a->backward ? blackwell_engine(device) : NULL,
                                    .math = CUDA_DNN_HALF,
                                    .workspace_limit = WORKSPACE_BYTES,
                                    .bound = (size_t)(a->samples * a->heads * a->steps) *
                                                 ((size_t)a->steps * SCORE_BYTES + ROW_BYTES) +
                                             OTHER_BYTES,
                                    .build = attention_build,
                                    .self = a};
    tr_snprintf(
        key, sizeof key, "causal attention, scaled delta, %s%s %s %lld x %lld x %lld x %lld",
        a->drops ? "dropout, " : "", a->backward ? "backward" : "forward", tr_dtype_name(a->dtype),
        (long long)a->samples, (long long)a->heads, (long long)a->steps, (long long)a->size);
    return tr_cuda_dnn_make(device, &graph, out);
}

static void *moved(void *at, size_t bytes) {
    return at ? (char *)at + bytes : NULL;
}

cuda_dnn_attention_data_t tr_cuda_attention_group(const cuda_dnn_attention_t *group,
                                                  const cuda_dnn_attention_data_t *all,
                                                  int64_t index) {
    const size_t rows = (size_t)(index * group->samples * group->heads * group->steps),
                 bytes = rows * (size_t)group->size * tr_dtype_bytes(group->dtype);
    return (cuda_dnn_attention_data_t){.qkv = moved(all->qkv, 3 * bytes),
                                       .y = moved(all->y, bytes),
                                       .lse = moved(all->lse, rows * sizeof(float)),
                                       .dy = moved(all->dy, bytes),
                                       .dqkv = moved(all->dqkv, 3 * bytes)};
}

/* x > 0 as the type has it */
static float rounded(tr_dtype_t type, float x) {
    const float digits = type == TR_BF16 ? 1 << 8 : 1 << 11;
    int exponent;
    const float part = frexpf(x, &exponent);
    return ldexpf(rintf(part * digits) / digits, exponent);
}

tr_status_t tr_cuda_dnn_attention_run(tr_device_t *device, tr_stream_t *stream,
                                      const cuda_dnn_plan_t *plan, const cuda_dnn_attention_t *a,
                                      const cuda_dnn_attention_data_t *data, void *workspace) {
    static const int64_t uid[] = {UID_MASK, UID_FACTOR, UID_SCALE, UID_LOW, UID_Q,
                                  UID_K,    UID_V,      UID_Y,     UID_LSE, UID_DY,
                                  UID_DQ,   UID_DK,     UID_DV,    UID_KEEP};
    const int64_t first = a->drops ? 0 : 2, end = a->backward ? 14 : 9;
    const size_t part = (size_t)(a->heads * a->size) * tr_dtype_bytes(a->dtype);
    float scale = (float)(1 / sqrt((double)a->size)),
          factor = a->drops ? data->factor / rounded(a->dtype, data->factor) : 1, keep = 1 / factor,
          low = cudnnGetVersion() < INFINITE_CUDNN ? -FLT_MAX : -INFINITY;
    char *qkv = data->qkv, *dqkv = data->dqkv;
    void *address[] = {data->mask, &factor,        &scale,          &low,      qkv,
                       qkv + part, qkv + 2 * part, data->y,         data->lse, data->dy,
                       dqkv,       dqkv + part,    dqkv + 2 * part, &keep};
    return tr_cuda_dnn_execute(device, stream, plan, end - first, uid + first, address + first,
                               workspace);
}
