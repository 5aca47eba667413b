/* MATMUL. cuBLASLt adds the bias. Activations are a pass over the result: cuBLASLt's RELU turns NaN
 * into 0 (seen in bf16 on an H100), which would hide that a run has failed. */
#include "cuda_product.h"
#include "base/mem.h"

/* A bias is of the result's type: for 16 bits it is in3, or else a rounded copy in the planned
 * scratch, before the workspace. */
typedef struct {
    cuda_product_plan_t *plan;
    size_t bias_bytes; /* of the copy; 0: the bias is used where it is */
    int64_t rows, columns;
} matmul_t;

#define SCRATCH_ALIGN 256

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
        matmul->bias_bytes =
            ((size_t)product.n * 2 + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    *out_state = matmul;
    *out_scratch_bytes = matmul->bias_bytes + workspace;
    return TR_OK;
}

CUDA_KERNEL(matmul) {
    matmul_t *matmul = call->state;
    const tr_act_t act = ((const tr_matmul_attr_t *)call->attr)->act;
    const tr_view_t *copy = cuda_bias_copy(call);
    const void *bias = copy ? copy->data : cuda_present(&call->in[2]) ? call->in[2].data : NULL;
    char *scratch = call->scratch;
    if (matmul->bias_bytes) {
        TR_TRY(tr_cuda_narrow(device, stream, bias, scratch, call->out[0].dtype, matmul->columns));
        bias = scratch;
    }
    TR_TRY(tr_cuda_product_run(device, stream, matmul->plan, call->in[0].data, call->in[1].data,
                               bias, call->out[0].data,
                               scratch ? scratch + matmul->bias_bytes : NULL));
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
