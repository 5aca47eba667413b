/* Matrix products with bias, activation and accumulation fused where cpu_product.h supports them;
 * otherwise by sgemm followed by a loop. oneDNN's sums depend on the number of rows: where they may
 * not, MATMUL_ROWS computes them. */
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_math.h"
#include "device/cpu/cpu_product.h"

/* C[batch] (rows, columns) = A[batch] B[batch]; b_step 0: one B for all batches. */
typedef struct {
    int64_t batch, rows, columns, inner;
    int64_t b_batch, b_step;
} extent_t;

static extent_t cpu_matmul_extent_of(const tr_kernel_call_t *call) {
    const tr_matmul_attr_t *attr = call->attr;
    const tr_shape_t *a = &call->in[0].shape, *b = &call->in[1].shape, *c = &call->out[0].shape;
    extent_t e = {
        .batch = 1, .b_batch = 1, .rows = c->dim[c->ndim - 2], .columns = c->dim[c->ndim - 1]};
    e.inner = a->dim[a->ndim - (attr->trans_a ? 2 : 1)];
    for (int i = 0; i < c->ndim - 2; i++) e.batch *= c->dim[i];
    for (int i = 0; i < b->ndim - 2; i++) e.b_batch *= b->dim[i];
    if (b->ndim == 2 && !attr->trans_a) e.rows *= e.batch, e.batch = 1;
    e.b_step = e.b_batch > 1 ? e.inner * e.columns : 0;
    return e;
}

/* Of a call that adds to its output, beta is 1. */
static tr_matmul_attr_t attr_of(const tr_kernel_call_t *call) {
    tr_matmul_attr_t attr = *(const tr_matmul_attr_t *)call->attr;
    if (cpu_adds(call, 0)) attr.beta = 1;
    return attr;
}

/* A batch of row-major matrices (rows, columns), stored transposed if `trans`. */
static cpu_dnn_tensor_t matrices(tr_dtype_t dtype, int64_t batch, int64_t rows, int64_t columns,
                                 bool trans, bool batched) {
    int64_t row = trans ? 1 : columns, column = trans ? rows : 1;
    if (!batched) return (cpu_dnn_tensor_t){2, {rows, columns}, {row, column}, dtype};
    return (cpu_dnn_tensor_t){3, {batch, rows, columns}, {rows * columns, row, column}, dtype};
}

/* Whether the order of the primitive (bias, alpha, then sum or activation) satisfies the
 * contract. */
static bool fits_primitive(const tr_matmul_attr_t *attr, bool bias) {
    if (attr->alpha != 1.0f && (bias || attr->beta != 0.0f)) return false;
    return attr->beta == 0.0f || attr->act == TR_ACT_NONE;
}

static bool has_epilogue(const tr_kernel_call_t *call) {
    const tr_matmul_attr_t of_call = attr_of(call), *attr = &of_call;
    return cpu_present(&call->in[2]) || attr->act != TR_ACT_NONE;
}

/* Whether each row is to be computed as it is alone. */
static bool rows_are_alone(const tr_device_t *device, const tr_kernel_call_t *call) {
    const tr_matmul_attr_t attr = attr_of(call);
    return device->alone && call->in[0].dtype == TR_F32 && call->in[1].dtype == TR_F32 &&
           call->out[0].dtype == TR_F32 && call->in[1].shape.ndim == 2 && !attr.trans_a &&
           attr.alpha == 1.0f && attr.beta == 0.0f;
}

CPU_KERNEL_PREPARE(matmul) {
    const tr_matmul_attr_t of_call = attr_of(call), *attr = &of_call;
    extent_t e = cpu_matmul_extent_of(call);
    bool batched = e.batch > 1;
    cpu_product_t *product;
    *out_state = NULL;
    *out_scratch_bytes = 0;
    if (rows_are_alone(device, call)) return TR_OK;
    bool fits = fits_primitive(attr, cpu_present(&call->in[2]));
    if (call->in[0].dtype != TR_F32 && (!fits || (attr->beta != 0.0f && !cpu_adds(call, 0))))
        return TR_FAIL(TR_ERR_INTERNAL,
                       "device cpu: a product of %s with beta %g, or with alpha %g and a bias, is "
                       "not supported; cast its inputs to f32",
                       tr_dtype_name(call->in[0].dtype), attr->beta, attr->alpha);
    if (!fits) {
        if (has_epilogue(call)) *out_scratch_bytes = (size_t)(e.rows * e.columns) * sizeof(float);
        return TR_OK;
    }
    cpu_dnn_desc_t desc = {
        .kind = CPU_DNN_MATMUL, .alpha = attr->alpha, .beta = attr->beta, .act = attr->act};
    desc.threads = device->threads;
    desc.src = matrices(call->in[0].dtype, e.batch, e.rows, e.inner, attr->trans_a, batched);
    desc.weights =
        matrices(call->in[1].dtype, e.b_batch, e.inner, e.columns, attr->trans_b, batched);
    desc.dst = matrices(call->out[0].dtype, e.batch, e.rows, e.columns, false, batched);
    if (cpu_present(&call->in[2])) desc.bias = matrices(TR_F32, 1, 1, e.columns, false, batched);
    TR_TRY(tr_cpu_product_create(&desc, &product));
    *out_state = product;
    *out_scratch_bytes = tr_cpu_product_scratch_bytes(product);
    return TR_OK;
}

/* As the C library computes it, where that differs. */
static float activate(tr_act_t act, float x) {
    switch (act) {
    case TR_ACT_RELU: return x > 0.0f ? x : x != x ? x : 0.0f;
    case TR_ACT_GELU: return 0.5f * x * (1.0f + erff(x * (float)M_SQRT1_2));
    case TR_ACT_SIGMOID: return 1.0f / (1.0f + expf(-x));
    case TR_ACT_TANH: return tanhf(x);
    case TR_ACT_SILU: return x / (1.0f + expf(-x));
    default: return cpu_act(act, x);
    }
}

static void cpu_matmul_finish(const tr_device_t *device, const extent_t *e,
                              const tr_matmul_attr_t *attr, const float *product, const float *bias,
                              float *c) {
#pragma omp parallel for num_threads(cpu_threads(device, e->rows * e->columns)) schedule(static)
    for (int64_t i = 0; i < e->rows; i++)
        for (int64_t j = 0; j < e->columns; j++) {
            int64_t at = i * e->columns + j;
            float value = activate(attr->act, product[at] + (bias ? bias[j] : 0.0f));
            c[at] = attr->beta != 0.0f ? value + attr->beta * c[at] : value;
        }
}

static tr_status_t run_by_sgemm(const tr_device_t *device, const tr_kernel_call_t *call) {
    const tr_matmul_attr_t of_call = attr_of(call), *attr = &of_call;
    extent_t e = cpu_matmul_extent_of(call);
    bool epilogue = has_epilogue(call);
    for (int64_t i = 0; i < e.batch; i++) {
        const float *a = (const float *)call->in[0].data + i * e.rows * e.inner;
        const float *b = (const float *)call->in[1].data + i * e.b_step;
        float *c = (float *)call->out[0].data + i * e.rows * e.columns;
        float *product = epilogue ? call->scratch : c;
        TR_TRY(tr_cpu_dnn_sgemm(device->threads, attr->trans_a, attr->trans_b, e.rows, e.columns,
                                e.inner, attr->alpha, a, attr->trans_a ? e.rows : e.inner, b,
                                attr->trans_b ? e.inner : e.columns, epilogue ? 0.0f : attr->beta,
                                product, e.columns));
        if (epilogue) cpu_matmul_finish(device, &e, attr, product, call->in[2].data, c);
    }
    return TR_OK;
}

static tr_status_t run_alone(tr_device_t *device, tr_stream_t *stream,
                             const tr_kernel_call_t *call) {
    const tr_matmul_attr_t *attr = call->attr;
    const extent_t e = cpu_matmul_extent_of(call);
    TR_TRY(tr_cpu_matmul_rows(device, stream, call));
    if (attr->act != TR_ACT_NONE)
        cpu_matmul_finish(device, &e, attr, call->out[0].data, NULL, call->out[0].data);
    return TR_OK;
}

CPU_KERNEL(matmul) {
    cpu_product_t *product = call->state;
    if (rows_are_alone(device, call)) return run_alone(device, stream, call);
    if (!product) return run_by_sgemm(device, call);
    return tr_cpu_product_run(
        product,
        &(cpu_dnn_data_t){call->in[0].data, call->in[1].data, call->in[2].data, call->out[0].data},
        call->scratch);
}

CPU_KERNEL_RELEASE(matmul) {
    cpu_product_t *product = state;
    tr_cpu_product_destroy(&product);
}
