/* MATMUL, and with an activation kept apart. cuBLASLt adds the bias. Activations are a pass over the result: cuBLASLt's RELU turns NaN
 * into 0 (seen in bf16 on an H100), which would hide that a run has failed. */
#include "cuda_product.h"
#include "cuda_tune.h"
#include "base/mem.h"
#include "base/str.h"

/* A bias is of the result's type: for 16 bits it is in3, or else a rounded copy in the planned
 * scratch, before the workspace. */
typedef struct {
    cuda_product_plan_t *plan;
    size_t bias_bytes; /* of the copy; 0: the bias is used where it is */
    int64_t rows, columns;
} matmul_t;

static cuda_product_t product_of(const tr_kernel_call_t *call) {
    const tr_matmul_attr_t *attr = call->attr;
    const tr_shape_t *a = &call->in[0].shape, *b = &call->in[1].shape, *c = &call->out[0].shape;
    cuda_product_t p = {.in = call->in[0].dtype,
                        .out = call->out[0].dtype,
                        .trans_a = attr->trans_a,
                        .trans_b = attr->trans_b,
                        .m = c->dim[c->ndim - 2],
                        .n = c->dim[c->ndim - 1],
                        .k = a->dim[a->ndim - (attr->trans_a ? 2 : 1)],
                        .batch = 1,
                        .alpha = attr->alpha,
                        .beta = call->adds ? 1 : attr->beta,
                        .bias = cuda_present(&call->in[2])};
    for (int i = 0; i < c->ndim - 2; i++) p.batch *= c->dim[i];
    if (b->ndim > 2) p.b_step = p.k * p.n;
    if (b->ndim == 2 && !attr->trans_a) p.m *= p.batch, p.batch = 1;
    return p;
}

CUDA_KERNEL_PREPARE(matmul) {
    const tr_matmul_attr_t *attr = call->attr;
    const cuda_product_t product = product_of(call);
    matmul_t *matmul = NULL;
    size_t workspace = 0;
    if (attr->act != TR_ACT_NONE && attr->beta != 0.0f)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "device cuda: a product with an activation and beta %g is not provided",
                       (double)attr->beta);
    TR_TRY(tr_alloc(sizeof *matmul, "a product", &matmul));
    const tr_status_t status = tr_cuda_product_plan(device, &product, &matmul->plan, &workspace);
    if (status != TR_OK) {
        tr_free(&matmul);
        return status;
    }
    matmul->rows = product.m * product.batch, matmul->columns = product.n;
    if (product.bias && tr_dtype_is_half(product.out) && !cuda_bias_copy(call))
        matmul->bias_bytes = cuda_place_bytes((size_t)product.n * 2);
    *out_state = matmul;
    *out_scratch_bytes = matmul->bias_bytes + workspace;
    return TR_OK;
}

/* The operands of the product, with the bias in the type of the result. */
static tr_status_t matmul_data(tr_device_t *device, tr_stream_t *stream, const matmul_t *matmul,
                               const tr_kernel_call_t *call, cuda_product_data_t *out) {
    const tr_view_t *copy = cuda_bias_copy(call);
    char *scratch = call->scratch;
    *out = (cuda_product_data_t){.a = call->in[0].data,
                                 .b = call->in[1].data,
                                 .bias = copy                         ? copy->data
                                         : cuda_present(&call->in[2]) ? call->in[2].data
                                                                      : NULL,
                                 .c = call->out[0].data,
                                 .workspace = scratch ? scratch + matmul->bias_bytes : NULL};
    if (!matmul->bias_bytes) return TR_OK;
    TR_TRY(tr_cuda_narrow(device, stream, out->bias, scratch, call->out[0].dtype, matmul->columns));
    out->bias = scratch;
    return TR_OK;
}

CUDA_KERNEL(matmul) {
    matmul_t *matmul = call->state;
    const tr_act_t act = ((const tr_matmul_attr_t *)call->attr)->act;
    cuda_product_data_t data;
    TR_TRY(matmul_data(device, stream, matmul, call, &data));
    TR_TRY(tr_cuda_product_run_on(device, stream, matmul->plan, &data));
    if (act == TR_ACT_NONE) return TR_OK;
    return tr_cuda_bias_act(device, stream, call->out[0].data, call->out[0].dtype, matmul->rows,
                            matmul->columns, NULL, act);
}

CUDA_KERNEL_RELEASE(matmul) {
    matmul_t *matmul = state;
    if (!matmul) return;
    tr_cuda_product_release(&matmul->plan);
    tr_free(&matmul);
}

/* -- with an activation: two kernels, or cuBLASLt's epilogue, whichever is faster ---------------- */

enum { APART, EPILOGUE, ACT_WAYS };
enum { ACT_X = 4 }; /* in4 of MATMUL_ACT_BWD */

typedef struct {
    tr_matmul_attr_t attr; /* of MATMUL */
    matmul_t *matmul;
    cuda_product_plan_t *epilogue; /* NULL: cuBLASLt has none */
    size_t scratch_bytes;
    bool is_backward;
    int way;
} matmul_act_t;

/* The call of MATMUL: with neither activation nor what belongs to it. */
static tr_kernel_call_t matmul_of(const matmul_act_t *m, const tr_kernel_call_t *call) {
    tr_kernel_call_t product = *call;
    product.attr = &m->attr;
    product.n_out = 1;
    if (product.n_in > ACT_X) product.n_in = ACT_X;
    product.state = m->matmul;
    return product;
}

CUDA_KERNEL(matmul_act) {
    const matmul_act_t *m = call->state;
    const tr_kernel_call_t product = matmul_of(m, call);
    const tr_act_attr_t act = {((const tr_matmul_attr_t *)call->attr)->act};
    const tr_view_t *c = &call->out[0], *y = m->is_backward ? c : &call->out[1];
    if (m->way == EPILOGUE) {
        cuda_product_data_t data;
        TR_TRY(matmul_data(device, stream, m->matmul, &product, &data));
        data.c = y->data;
        data.x = m->is_backward ? call->in[ACT_X].data : c->data;
        return tr_cuda_product_run_on(device, stream, m->epilogue, &data);
    }
    TR_TRY(tr_cuda_matmul(device, stream, &product));
    tr_kernel_call_t pass = {.n_in = 1, .n_out = 1, .attr = &act, .in = {*c}, .out = {*y}};
    if (!m->is_backward) return tr_cuda_act_fwd(device, stream, &pass);
    pass.n_in = 2, pass.in[1] = call->in[ACT_X];
    return tr_cuda_act_bwd(device, stream, &pass);
}

typedef struct {
    tr_device_t *device;
    const tr_kernel_call_t *call;
    matmul_act_t *m;
} act_timing_t;

static double matmul_act_sec(void *self, int way) {
    const act_timing_t *t = self;
    tr_kernel_call_t call = *t->call;
    call.state = t->m;
    t->m->way = way;
    return tr_cuda_time_call(t->device, &call, tr_cuda_matmul_act, t->m->scratch_bytes);
}

static tr_status_t matmul_act_plan(tr_device_t *device, const tr_kernel_call_t *call,
                                   matmul_act_t *m) {
    const tr_kernel_call_t product = matmul_of(m, call);
    cuda_product_t p = product_of(&product);
    act_timing_t timing = {device, call, m};
    char what[160];
    size_t workspace = 0;
    void *matmul = NULL;
    TR_TRY(tr_cuda_matmul_prepare(device, &product, &matmul, &m->scratch_bytes));
    m->matmul = matmul;
    p.gelu = m->is_backward ? CUDA_GELU_BACKWARD : CUDA_GELU_FORWARD;
    TR_TRY(tr_cuda_product_find(device, &p, &m->epilogue, &workspace));
    if (!m->epilogue) return TR_OK;
    if (m->matmul->bias_bytes + workspace > m->scratch_bytes)
        m->scratch_bytes = m->matmul->bias_bytes + workspace;
    tr_snprintf(what, sizeof what, "gelu%s of a product, %s%s%s %lld x %lld x %lld%s",
                m->is_backward ? " gradient" : "", tr_dtype_name(p.in), p.trans_a ? " t" : " n",
                p.trans_b ? "t" : "n", (long long)p.m, (long long)p.n, (long long)p.k,
                p.bias ? " bias" : "");
    return tr_cuda_choose_way(device, &(cuda_ways_t){what, ACT_WAYS, matmul_act_sec, &timing},
                              &m->way);
}

static tr_status_t matmul_act_prepare(tr_device_t *device, const tr_kernel_call_t *call,
                                      bool is_backward, void **out_state,
                                      size_t *out_scratch_bytes) {
    matmul_act_t *m = NULL;
    TR_TRY(tr_alloc(sizeof *m, "a product", &m));
    m->attr = *(const tr_matmul_attr_t *)call->attr;
    m->attr.act = TR_ACT_NONE;
    m->is_backward = is_backward;
    const tr_status_t status = matmul_act_plan(device, call, m);
    *out_scratch_bytes = m->scratch_bytes;
    *out_state = m;
    if (status != TR_OK) tr_cuda_matmul_act_release(device, m), *out_state = NULL;
    return status;
}

CUDA_KERNEL_PREPARE(matmul_act_fwd) {
    return matmul_act_prepare(device, call, false, out_state, out_scratch_bytes);
}

CUDA_KERNEL_PREPARE(matmul_act_bwd) {
    return matmul_act_prepare(device, call, true, out_state, out_scratch_bytes);
}

CUDA_KERNEL_RELEASE(matmul_act) {
    matmul_act_t *m = state;
    if (!m) return;
    tr_cuda_matmul_release(device, m->matmul);
    tr_cuda_product_release(&m->epilogue);
    tr_free(&m);
}

CUDA_KERNEL_DESCRIBE(matmul_act) {
    const matmul_act_t *m = state;
    tr_snprintf(text, text_bytes, "%s", m->way == EPILOGUE ? "epilogue" : "two kernels");
}
