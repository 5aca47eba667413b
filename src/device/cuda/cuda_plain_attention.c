/* Standard attention: products by cuBLASLt, and kernels between them. */
#include "cuda_place.h"
#include "cuda_plain_attention.h"
#include "cuda_plain_rows.h"
#include "cuda_product.h"
#include "base/mem.h"
#include <math.h>

/* One sample may take the one; several at a time, the other. */
#define SCRATCH_LIMIT ((size_t)1 << 30)
#define GROUP_LIMIT   ((size_t)1 << 29)

struct cuda_plain_attention {
    cuda_dnn_attention_t shape;
    int64_t group; /* samples at a time, a divisor of all */
    /* (T, T) = (T, D) (D, T)    (T, D) = (T, T) (T, D)    the same with the left one transposed */
    cuda_product_plan_t *scores, *apply, *turned;
    size_t workspace;
};

/* The scratch memory, of a group of G samples: matrices of all heads. */
typedef struct {
    char *qkv, *dy;          /* split; (3, G, H, T, D) and (G, H, T, D) */
    char *results;           /* split: y, or dq, dk, dv */
    float *scores, *dshares; /* (G, H, T, T) */
    char *shares, *dscores;  /* likewise, of the type of q */
    char *workspace;
} scratch_t;

static void *take(char **at, size_t bytes) {
    char *here = *at;
    *at += cuda_place_bytes(bytes);
    return here;
}

/* The parts of `memory`, which may be NULL. Returns the bytes. */
static size_t divide(const cuda_plain_attention_t *a, void *memory, scratch_t *out) {
    const cuda_dnn_attention_t *s = &a->shape;
    const size_t size = tr_dtype_bytes(s->dtype),
                 one = (size_t)(a->group * s->heads * s->steps * s->size) * size,
                 square = (size_t)(a->group * s->heads * s->steps * s->steps);
    char *at = memory;
    out->qkv = take(&at, 3 * one);
    out->dy = take(&at, s->backward ? one : 0);
    out->results = take(&at, (s->backward ? 3 : 1) * one);
    out->scores = take(&at, square * sizeof(float));
    out->dshares = take(&at, s->backward ? square * sizeof(float) : 0);
    out->shares = take(&at, square * size);
    out->dscores = take(&at, s->backward ? square * size : 0);
    out->workspace = take(&at, a->workspace);
    return (size_t)(at - (char *)memory);
}

/* -- plans ------------------------------------------------------------------------------------- */

static tr_status_t plain_plan_product(tr_device_t *device, cuda_plain_attention_t *a,
                                      const cuda_product_t *product, cuda_product_plan_t **out) {
    size_t bytes = 0;
    TR_TRY(tr_cuda_product_plan(device, product, out, &bytes));
    if (bytes > a->workspace) a->workspace = bytes;
    return TR_OK;
}

static tr_status_t plan_products(tr_device_t *device, cuda_plain_attention_t *a) {
    const cuda_dnn_attention_t *s = &a->shape;
    const cuda_product_t scores = {.in = s->dtype,
                                   .out = TR_F32,
                                   .trans_b = true,
                                   .m = s->steps,
                                   .n = s->steps,
                                   .k = s->size,
                                   .batch = a->group * s->heads,
                                   .b_step = s->steps * s->size,
                                   .alpha = 1};
    cuda_product_t apply = scores;
    apply.out = s->dtype;
    apply.trans_b = false;
    apply.n = s->size;
    apply.k = s->steps;
    cuda_product_t turned = apply;
    turned.trans_a = true;
    TR_TRY(plain_plan_product(device, a, &scores, &a->scores));
    TR_TRY(plain_plan_product(device, a, &apply, &a->apply));
    return s->backward ? plain_plan_product(device, a, &turned, &a->turned) : TR_OK;
}

tr_status_t tr_cuda_plain_attention_plan(tr_device_t *device, const cuda_dnn_attention_t *attention,
                                         cuda_plain_attention_t **out, size_t *out_scratch_bytes) {
    cuda_plain_attention_t *a = NULL;
    scratch_t scratch;
    *out = NULL;
    TR_TRY(tr_alloc(sizeof *a, "attention", &a));
    a->shape = *attention;
    a->group = attention->samples;
    while (a->group > 1 &&
           (attention->samples % a->group != 0 || divide(a, NULL, &scratch) > GROUP_LIMIT))
        a->group--;
    const tr_status_t status = plan_products(device, a);
    const size_t bytes = divide(a, NULL, &scratch);
    if (status != TR_OK || bytes > SCRATCH_LIMIT)
        tr_cuda_plain_attention_release(&a);
    else
        *out = a, *out_scratch_bytes = bytes;
    return status;
}

void tr_cuda_plain_attention_release(cuda_plain_attention_t **plan) {
    cuda_plain_attention_t *a = *plan;
    if (!a) return;
    tr_cuda_product_release(&a->scores);
    tr_cuda_product_release(&a->apply);
    tr_cuda_product_release(&a->turned);
    tr_free(plan);
}

/* -- runs -------------------------------------------------------------------------------------- */

/* What the products of a group need. */
typedef struct {
    tr_device_t *device;
    tr_stream_t *stream;
    const cuda_plain_attention_t *a;
    scratch_t at;
    cuda_heads_t qkv, one; /* three parts; one */
    cuda_attention_dropout_t dropout;
    char *q, *k, *v;
    float scale;
} group_t;

static tr_status_t plain_multiply(const group_t *s, cuda_product_plan_t *plan, const void *a,
                                  const void *b, void *c) {
    return tr_cuda_product_run(s->device, s->stream, plan, a, b, NULL, c, s->at.workspace);
}

static tr_status_t group_forward(const group_t *s, void *y, float *lse) {
    const cuda_plain_attention_t *a = s->a;
    TR_TRY(plain_multiply(s, a->scores, s->q, s->k, s->at.scores));
    TR_TRY(tr_cuda_causal_softmax(s->stream, &s->one, s->scale, &s->dropout, s->at.scores,
                                  s->at.shares, lse));
    TR_TRY(plain_multiply(s, a->apply, s->at.shares, s->v, s->at.results));
    return tr_cuda_heads_merge(s->device, s->stream, &s->one, s->at.results, y);
}

/* dv = shares^T dy    dk = dscores^T q    dq = dscores k */
static tr_status_t group_backward(const group_t *s, const void *dy, const void *y,
                                   const float *lse, void *dqkv) {
    const cuda_plain_attention_t *a = s->a;
    const size_t one = (size_t)(s->k - s->q);
    const cuda_causal_rows_t rows = {s->at.scores, s->at.dshares, lse};
    TR_TRY(tr_cuda_heads_split(s->device, s->stream, &s->one, dy, s->at.dy));
    TR_TRY(plain_multiply(s, a->scores, s->q, s->k, s->at.scores));
    TR_TRY(plain_multiply(s, a->scores, s->at.dy, s->v, s->at.dshares));
    TR_TRY(tr_cuda_causal_softmax_bwd(s->stream, &s->one, s->scale, &s->dropout, &rows, s->at.dy, y,
                                      s->at.shares, s->at.dscores));
    TR_TRY(plain_multiply(s, a->apply, s->at.dscores, s->k, s->at.results));
    TR_TRY(plain_multiply(s, a->turned, s->at.dscores, s->q, s->at.results + one));
    TR_TRY(plain_multiply(s, a->turned, s->at.shares, s->at.dy, s->at.results + 2 * one));
    return tr_cuda_heads_merge(s->device, s->stream, &s->qkv, s->at.results, dqkv);
}

tr_status_t tr_cuda_plain_attention_run(tr_device_t *device, tr_stream_t *stream,
                                        const cuda_plain_attention_t *plan,
                                        const cuda_dnn_attention_data_t *data,
                                        const cuda_attention_dropout_t *dropout, void *scratch) {
    const cuda_dnn_attention_t *shape = &plan->shape;
    const int64_t group = plan->group, rows = group * shape->heads * shape->steps;
    const size_t one = (size_t)(rows * shape->size) * tr_dtype_bytes(shape->dtype);
    cuda_dnn_attention_t part = *shape;
    group_t g = {.device = device,
                 .stream = stream,
                 .a = plan,
                 .qkv = {group, 3, shape->heads, shape->steps, shape->size, shape->dtype},
                 .one = {group, 1, shape->heads, shape->steps, shape->size, shape->dtype},
                 .dropout = *dropout,
                 .scale = (float)(1 / sqrt((double)shape->size))};
    (void)divide(plan, scratch, &g.at);
    g.q = g.at.qkv, g.k = g.q + one, g.v = g.k + one;
    part.samples = group;
    for (int64_t i = 0; i < shape->samples / group; i++) {
        const cuda_dnn_attention_data_t d = tr_cuda_attention_group(&part, data, i);
        if (dropout->sample_id) g.dropout.sample_id = dropout->sample_id + i * group;
        TR_TRY(tr_cuda_heads_split(device, stream, &g.qkv, d.qkv, g.at.qkv));
        TR_TRY(shape->backward ? group_backward(&g, d.dy, d.y, d.lse, d.dqkv)
                               : group_forward(&g, d.y, d.lse));
    }
    return TR_OK;
}
