/* D = epilogue(alpha op(A) op(B) + beta C + bias), computed in f32 when the stream comes to it. */
#include "lt_int.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    product_t p;
    const void *a, *b, *c;
    void *d, *workspace;
    size_t workspace_bytes;
    float alpha, beta;                       /* pointer mode host */
    const float *alpha_device, *beta_device; /* pointer mode device */
    int algorithm;
} work_t;

/* Elements between neighbours in a column and in a row. */
static int64_t row_step(const layout_t *l) {
    return l->order == CUBLASLT_ORDER_COL ? 1 : l->ld;
}
static int64_t col_step(const layout_t *l) {
    return l->order == CUBLASLT_ORDER_COL ? l->ld : 1;
}

/* op(X) without gaps, row-major. */
static float *unpack(const layout_t *l, num_type_t type, const void *data, int64_t batch,
                     bool transposed, int64_t rows, int64_t cols, bool tf32) {
    float *out = malloc((size_t)(rows * cols) * sizeof *out);
    const int64_t down = transposed ? col_step(l) : row_step(l),
                  right = transposed ? row_step(l) : col_step(l);
    for (int64_t r = 0; r < rows; r++)
        num_read(type, data, batch * l->batch_offset + r * down, right, cols, out + r * cols);
    for (int64_t i = 0; tf32 && i < rows * cols; i++) out[i] = num_tf32(out[i]);
    return out;
}

static float gelu(float x) {
    return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}
static float gelu_slope(float x) {
    const float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

/* One element of the result; aux is read or written as the epilogue says. */
static float finish(const work_t *w, float x, int64_t batch, int64_t row, int64_t col) {
    const desc_t *d = &w->p.desc;
    const uint32_t e = d->epilogue;
    const int64_t at = batch * d->aux_stride + col * d->aux_ld + row;
    unsigned char *mask = d->aux;
    if (e & LT_BIAS) x += (float)num_load(w->p.type_d, d->bias, batch * d->bias_stride + row);
    if (e & LT_RELU) {
        if (e & LT_AUX)
            mask[at / 8] = (unsigned char)((mask[at / 8] & ~(1 << at % 8)) | (x > 0) << at % 8);
        return x > 0 || isnan(x) ? x : 0;
    }
    if (e & LT_DRELU) return mask[at / 8] >> at % 8 & 1 ? x : 0;
    if (e & LT_GELU) {
        if (e & LT_AUX) num_store(w->p.type_d, d->aux, at, x);
        return gelu(x);
    }
    if (e & LT_DGELU) return x * gelu_slope((float)num_load(w->p.type_d, d->aux, at));
    return x;
}

static void bias_gradient(const work_t *w, const float *a, const float *b, const float *result) {
    const product_t *p = &w->p;
    const uint32_t e = p->desc.epilogue;
    const bool columns = e == CUBLASLT_EPILOGUE_BGRADB;
    for (int64_t i = 0; i < (columns ? p->n : p->m); i++) {
        double sum = 0;
        if (columns)
            for (int64_t k = 0; k < p->k; k++) sum += b[k * p->n + i];
        else if (e == CUBLASLT_EPILOGUE_BGRADA)
            for (int64_t k = 0; k < p->k; k++) sum += a[i * p->k + k];
        else
            for (int64_t j = 0; j < p->n; j++) sum += result[i * p->n + j];
        num_store(p->type_d, p->desc.bias, i, sum);
    }
}

static void one_batch(const work_t *w, int64_t batch, float alpha, float beta) {
    const product_t *p = &w->p;
    const bool tf32 = p->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    float *a =
        unpack(&p->a, p->type_a, w->a, batch, p->desc.trans_a != CUBLAS_OP_N, p->m, p->k, tf32);
    float *b =
        unpack(&p->b, p->type_b, w->b, batch, p->desc.trans_b != CUBLAS_OP_N, p->k, p->n, tf32);
    float *sum = calloc((size_t)(p->m * p->n), sizeof *sum);
    num_gemm(p->m, p->n, p->k, a, b, sum);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            float x = alpha * sum[i * p->n + j];
            const int64_t c = batch * p->c.batch_offset + i * row_step(&p->c) + j * col_step(&p->c);
            if (beta != 0) x += beta * (float)num_load(p->type_c, w->c, c);
            x = finish(w, x, batch, i, j);
            num_store(p->type_d, w->d,
                      batch * p->d.batch_offset + i * row_step(&p->d) + j * col_step(&p->d), x);
            sum[i * p->n + j] = x;
        }
    if (p->desc.epilogue & LT_GRADS) bias_gradient(w, a, b, sum);
    free(a);
    free(b);
    free(sum);
}

static hostcuda_state_t run(void *arg, bool first) {
    const work_t *w = arg;
    (void)first;
    if (hostcuda_env("HOSTCUDA_SLOW_ALGORITHM", 0) == w->algorithm) usleep(30000);
    const float alpha = w->alpha_device ? *w->alpha_device : w->alpha;
    const float beta = w->beta_device ? *w->beta_device : w->beta;
    if (w->workspace_bytes) memset(w->workspace, 0xff, w->workspace_bytes);
    for (int64_t batch = 0; batch < w->p.d.batch; batch++) one_batch(w, batch, alpha, beta);
    if (hostcuda_env("HOSTCUDA_WRONG_PRODUCT", 0))
        num_store(w->p.type_d, w->d, 0, 2 * num_load(w->p.type_d, w->d, 0));
    return HOSTCUDA_DONE;
}

static size_t extent(const layout_t *l, num_type_t type) {
    const uint64_t lines = l->order == CUBLASLT_ORDER_COL ? l->cols : l->rows;
    const uint64_t run_length = l->order == CUBLASLT_ORDER_COL ? l->rows : l->cols;
    const int64_t elements =
        (int64_t)(lines - 1) * l->ld + (int64_t)run_length + (l->batch - 1) * l->batch_offset;
    return (size_t)elements * num_size(type);
}

/* A matrix outside of its allocation: a GPU would read or write what is not its own. */
static bool inside(const char *name, const void *data, size_t bytes) {
    if (hostcuda_accessible(data, bytes)) return true;
    hostcuda_fail(cudaErrorIllegalAddress,
                  "cublasLtMatmul: %s of %zu bytes does not lie in device memory", name, bytes);
    return false;
}
static bool all_inside(const work_t *w) {
    const product_t *p = &w->p;
    const uint32_t e = p->desc.epilogue;
    const size_t vector =
        (size_t)(e == CUBLASLT_EPILOGUE_BGRADB ? p->n : p->m) * num_size(p->type_d);
    const size_t aux =
        (size_t)((p->d.batch - 1) * p->desc.aux_stride + (p->n - 1) * p->desc.aux_ld + p->m);
    const size_t aux_bytes = e & (LT_RELU | LT_DRELU) ? (aux + 7) / 8 : aux * num_size(p->type_d);
    return inside("A", w->a, extent(&p->a, p->type_a)) &&
           inside("B", w->b, extent(&p->b, p->type_b)) &&
           (w->beta == 0 || inside("C", w->c, extent(&p->c, p->type_c))) &&
           inside("D", w->d, extent(&p->d, p->type_d)) &&
           (!(e & (LT_BIAS | LT_GRADS)) || inside("bias", p->desc.bias, vector)) &&
           (!(e & LT_AUX) || inside("aux", p->desc.aux, aux_bytes)) &&
           (!w->workspace_bytes || inside("workspace", w->workspace, w->workspace_bytes));
}

static bool aligned(const void *pointer, uint32_t alignment) {
    return (uintptr_t)pointer % alignment == 0;
}

static cublasStatus_t check_call(const work_t *w, const algo_t *algo, size_t workspace_bytes) {
    const product_t *p = &w->p;
    const uint32_t e = p->desc.epilogue, at = algo->alignment;
    const char *why = NULL;
    const product_t with_layouts = *p;
    const algo_t best = lt_choose(&with_layouts, SIZE_MAX, NULL, 0);
    if (e & (LT_BIAS | LT_GRADS) && !p->desc.bias)
        why = "the bias pointer is NULL";
    else if (e & LT_AUX && !p->desc.aux)
        why = "the auxiliary pointer is NULL";
    else if (lt_workspace(algo, p) > workspace_bytes)
        why = "the workspace is too small";
    else if (workspace_bytes && !aligned(w->workspace, 16))
        why = "the workspace is not aligned to 16 bytes";
    else if (at > best.alignment)
        why = "the algorithm was chosen for better aligned leading dimensions";
    else if (!aligned(w->a, at) || !aligned(w->b, at) || !aligned(w->d, at) ||
             (w->beta != 0 && !aligned(w->c, at)))
        why = "an address is less aligned than the algorithm was chosen for";
    else if (!aligned(w->a, (uint32_t)num_size(p->type_a)) ||
             !aligned(w->d, (uint32_t)num_size(p->type_d)))
        why = "an address is not aligned to its element";
    else if (e & (LT_BIAS | LT_GRADS) && !aligned(p->desc.bias, algo->bias_alignment))
        why = "the bias is less aligned than in the heuristics";
    else if (algo->m &&
             (algo->m != (uint64_t)p->m || algo->n != (uint64_t)p->n || algo->k != (uint64_t)p->k))
        why = "the algorithm was chosen for another shape";
    if (!why) return CUBLAS_STATUS_SUCCESS;
    hostcuda_refuse("cublasLtMatmul", "%s", why);
    return CUBLAS_STATUS_INVALID_VALUE;
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                     const void *alpha, const void *a,
                                     cublasLtMatrixLayout_t layout_a, const void *b,
                                     cublasLtMatrixLayout_t layout_b, const void *beta,
                                     const void *c, cublasLtMatrixLayout_t layout_c, void *d,
                                     cublasLtMatrixLayout_t layout_d,
                                     const cublasLtMatmulAlgo_t *chosen, void *workspace,
                                     size_t workspace_bytes, cudaStream_t stream) {
    work_t w = {.a = a, .b = b, .c = c, .d = d, .workspace = workspace, .beta = 1};
    cublasStatus_t status = lt_check(__func__, desc, layout_a, layout_b, layout_c, layout_d, &w.p);
    const product_t *p = &w.p;
    LT_CALL("m %lld n %lld k %lld types %u %u epilogue %u algorithm %d", (long long)p->m,
            (long long)p->n, (long long)p->k, p->a.type, p->d.type, p->desc.epilogue,
            chosen ? ((const algo_t *)chosen)->id : 0);
    if (status) return status;
    if (!handle || !alpha || !beta || !a || !b || !d) {
        hostcuda_refuse(__func__, "a pointer is NULL");
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (p->desc.pointer_mode == CUBLASLT_POINTER_MODE_HOST)
        w.alpha = *(const float *)alpha, w.beta = *(const float *)beta;
    else
        w.alpha_device = alpha, w.beta_device = beta;
    const algo_t algo = chosen ? *(const algo_t *)chosen : lt_choose(p, workspace_bytes, NULL, 0);
    if (algo.magic != ALGO_MAGIC) return CUBLAS_STATUS_INVALID_VALUE;
    algo_t used = algo;
    if (!chosen) /* the library looks at the addresses itself */
        while (used.alignment > 1 &&
               (((uintptr_t)a | (uintptr_t)b | (uintptr_t)d | (w.beta != 0 ? (uintptr_t)c : 0)) %
                used.alignment))
            used.alignment /= 2;
    status = check_call(&w, &used, workspace_bytes);
    if (status) return status;
    w.workspace_bytes = lt_workspace(&used, p);
    w.algorithm = used.id;
    if (!all_inside(&w)) return CUBLAS_STATUS_EXECUTION_FAILED;
    work_t *kept = malloc(sizeof *kept);
    *kept = w;
    const cudaError_t error =
        hostcuda_enqueue(stream, &(hostcuda_work_t){"matmul", run, free, kept});
    return error ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
