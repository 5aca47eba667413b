/* Products by cuBLASLt. */
#include "cuda_errors.h"
#include "cuda_plan_store.h"
#include "cuda_product.h"
#include "cuda_tune.h"
#include "base/mem.h"
#include "base/str.h"
#include <cublasLt.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What one product may use; more is seldom faster. */
#define WORKSPACE_BYTES ((size_t)32 << 20)
/* Addresses of tensors are aligned to this or more, but for views that tests make. */
#define ALIGNMENT 16
/* Stands for the address of an auxiliary matrix while an algorithm is chosen. */
#define AUX_AT ((const void *)(uintptr_t)256)

enum { MAX_TIMED = 8 }; /* algorithms that cuda.tune compares */

static tr_status_t check_at(cublasStatus_t status, const char *call, const char *file, int line,
                            const char *func) {
    if (status == CUBLAS_STATUS_SUCCESS) return TR_OK;
    return tr_cuda_library_error(
        status == CUBLAS_STATUS_ALLOC_FAILED ? TR_ERR_MEMORY : TR_ERR_INTERNAL, file, line, func,
        "cuBLASLt: %s failed: %s", call, cublasLtGetStatusName(status));
}
#define LT_TRY(call) TR_TRY(check_at((call), #call, __FILE__, __LINE__, __func__))
#define LT_TRY_GOTO(call, label)                                                                   \
    TR_TRY_GOTO(check_at((call), #call, __FILE__, __LINE__, __func__), label)

tr_status_t tr_cuda_blas(tr_device_t *device, cublasLtHandle_t *out) {
    cuda_device_t *cuda = cuda_self(device);
    if (!cuda->blas) LT_TRY(cublasLtCreate(&cuda->blas));
    *out = cuda->blas;
    return TR_OK;
}

void tr_cuda_blas_close(cuda_device_t *cuda) {
    if (cuda->blas) cublasLtDestroy(cuda->blas);
    cuda->blas = NULL;
}

/* Two algorithms: for aligned addresses, and for any. Nothing here changes after planning. */
struct cuda_product_plan {
    cuda_product_t product;
    cublasLtMatrixLayoutOpaque_t a, b, c; /* of cuBLASLt's product: a is our B, b our A */
    cublasLtMatmulAlgo_t aligned, any;
    bool has_any; /* false: cuBLASLt has only `aligned` */
    size_t workspace_bytes;
};

static cudaDataType_t cuda_product_type_of(tr_dtype_t dtype) {
    return dtype == TR_BF16 ? CUDA_R_16BF : dtype == TR_F16 ? CUDA_R_16F : CUDA_R_32F;
}

/* A row-major matrix (rows, columns) is a column-major one (columns, rows). row 0: no gaps. */
static tr_status_t init_layout(cublasLtMatrixLayoutOpaque_t *layout, tr_dtype_t dtype, int64_t rows,
                               int64_t columns, int64_t row, int64_t batch, int64_t step) {
    const int32_t count = (int32_t)batch;
    LT_TRY(cublasLtMatrixLayoutInit(layout, cuda_product_type_of(dtype), (uint64_t)columns,
                                    (uint64_t)rows, row > 0 ? row : columns));
    LT_TRY(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                            sizeof count));
    LT_TRY(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                            &step, sizeof step));
    return TR_OK;
}

static tr_status_t init_layouts(cuda_product_plan_t *plan) {
    const cuda_product_t *p = &plan->product;
    TR_TRY(init_layout(&plan->a, p->in, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, 0,
                       p->batch, p->b_step));
    TR_TRY(init_layout(&plan->b, p->in, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k,
                       p->a_row, p->batch, p->m * p->k));
    TR_TRY(init_layout(&plan->c, p->out, p->m, p->n, p->c_row, p->batch, p->m * p->n));
    return TR_OK;
}

static cublasLtEpilogue_t product_epilogue(const cuda_product_t *p) {
    if (p->gelu == CUDA_GELU_BACKWARD) return CUBLASLT_EPILOGUE_DGELU;
    if (p->gelu == CUDA_GELU_FORWARD)
        return p->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* Made anew for each run, since it holds the addresses of the bias and of x. */
static tr_status_t init_desc(const tr_device_t *device, const cuda_product_t *p, const void *bias,
                             const void *x, cublasLtMatmulDescOpaque_t *desc) {
    const cublasOperation_t a = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            b = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = product_epilogue(p);
    const cublasComputeType_t compute =
        p->in == TR_F32 && device->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    LT_TRY(cublasLtMatmulDescInit(desc, compute, CUDA_R_32F));
    LT_TRY(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    LT_TRY(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    LT_TRY(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                          sizeof epilogue));
    if (p->gelu) {
        LT_TRY(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->n,
                                              sizeof p->n));
        LT_TRY(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &x,
                                              sizeof x));
    }
    if (!p->bias) return TR_OK;
    const cudaDataType_t type = cuda_product_type_of(p->out);
    LT_TRY(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type,
                                          sizeof type));
    if (bias)
        LT_TRY(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                              sizeof bias));
    return TR_OK;
}

static tr_status_t init_preference(cublasLtMatmulPreferenceOpaque_t *preference, tr_dtype_t out,
                                   uint32_t alignment) {
    const size_t workspace = WORKSPACE_BYTES;
    /* The sums of a split product are f32. INPLACE adds them in C, which may be rounded. */
    const uint32_t reduction =
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
        (out == TR_F32 ? CUBLASLT_REDUCTION_SCHEME_INPLACE : CUBLASLT_REDUCTION_SCHEME_NONE);
    static const cublasLtMatmulPreferenceAttributes_t sides[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    LT_TRY(cublasLtMatmulPreferenceInit(preference));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction));
    for (size_t i = 0; i < TR_COUNT(sides); i++)
        LT_TRY(cublasLtMatmulPreferenceSetAttribute(preference, sides[i], &alignment,
                                                    sizeof alignment));
    return TR_OK;
}

/* The algorithms that the heuristics suggest, the best first. */
static tr_status_t cuda_product_suggest(tr_device_t *device, cuda_product_plan_t *plan,
                                        uint32_t alignment, int wanted,
                                        cublasLtMatmulHeuristicResult_t *results, int *out_count) {
    cublasLtHandle_t handle = NULL;
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatmulPreferenceOpaque_t preference;
    const cuda_product_t *p = &plan->product;
    *out_count = 0;
    TR_TRY(tr_cuda_blas(device, &handle));
    TR_TRY(init_desc(device, p, NULL, AUX_AT, &desc));
    TR_TRY(init_preference(&preference, p->out, alignment));
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, &desc, &plan->a, &plan->b, &plan->c, &plan->c,
                                       &preference, wanted, results, out_count);
    const bool has_none = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                          status == CUBLAS_STATUS_INVALID_VALUE ||
                          status == CUBLAS_STATUS_ARCH_MISMATCH;
    if (has_none) *out_count = 0;
    return has_none
               ? TR_OK
               : check_at(status, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__, __func__);
}

static void product_take(cuda_product_plan_t *plan, const cublasLtMatmulHeuristicResult_t *result,
                         cublasLtMatmulAlgo_t *out) {
    *out = result->algo;
    if (result->workspaceSize > plan->workspace_bytes)
        plan->workspace_bytes = result->workspaceSize;
}

static tr_status_t multiply(tr_device_t *device, tr_stream_t *stream, cuda_product_plan_t *plan,
                            const cublasLtMatmulAlgo_t *algo, const cuda_product_data_t *data) {
    cublasLtHandle_t handle = NULL;
    cublasLtMatmulDescOpaque_t desc;
    TR_TRY(tr_cuda_blas(device, &handle));
    TR_TRY(init_desc(device, &plan->product, data->bias, data->x, &desc));
    LT_TRY(cublasLtMatmul(handle, &desc, &plan->product.alpha, data->b, &plan->a, data->a, &plan->b,
                          &plan->product.beta, data->c, &plan->c, data->c, &plan->c, algo,
                          data->workspace, plan->workspace_bytes, stream->handle));
    return TR_OK;
}

/* -- cuda.tune --------------------------------------------------------------------------------- */

typedef struct {
    tr_device_t *device;
    cuda_product_plan_t plan; /* with the workspace of this algorithm */
    const cublasLtMatmulAlgo_t *algo;
    size_t a, b, bias, c, x, workspace; /* offsets */
} trial_t;

static tr_status_t cuda_product_run_trial(void *self, tr_stream_t *stream, void *memory) {
    trial_t *t = self;
    char *at = memory;
    return multiply(t->device, stream, &t->plan, t->algo,
                    &(cuda_product_data_t){.a = at + t->a,
                                           .b = at + t->b,
                                           .bias = t->plan.product.bias ? at + t->bias : NULL,
                                           .c = at + t->c,
                                           .x = t->plan.product.gelu ? at + t->x : NULL,
                                           .workspace = at + t->workspace});
}

static double cuda_product_time_of(tr_device_t *device, const cuda_product_plan_t *plan,
                                   const cublasLtMatmulHeuristicResult_t *result) {
    const cuda_product_t *p = &plan->product;
    const size_t in = tr_dtype_bytes(p->in), out = tr_dtype_bytes(p->out);
    const int64_t a_rows = p->trans_a ? p->k : p->m, a_columns = p->trans_a ? p->m : p->k,
                  a_count = p->a_row ? a_rows * p->a_row : a_rows * a_columns * p->batch,
                  b_count = p->k * p->n * (p->b_step ? p->batch : 1),
                  c_count = p->c_row ? p->m * p->c_row : p->m * p->n * p->batch;
    trial_t t = {.device = device, .plan = *plan, .algo = &result->algo};
    size_t bytes = 0;
    t.plan.workspace_bytes = result->workspaceSize;
    t.a = cuda_place(&bytes, (size_t)a_count * in);
    t.b = cuda_place(&bytes, (size_t)b_count * in);
    t.bias = cuda_place(&bytes, (size_t)p->n * out);
    t.c = cuda_place(&bytes, (size_t)c_count * out);
    t.x = cuda_place(&bytes, p->gelu ? (size_t)c_count * out : 0);
    t.workspace = cuda_place(&bytes, result->workspaceSize);
    return tr_cuda_time(device, &(cuda_trial_t){bytes, cuda_product_run_trial, &t});
}

/* Names all that the choice depends on. */
static tr_status_t cuda_product_key_of(const tr_device_t *device, const cuda_product_t *p,
                                       tr_str_t *key) {
    tr_str_printf(key,
                  "cublasLt %zu product %s%s %s%s m %lld n %lld k %lld batch %lld steps %lld %lld "
                  "%lld alpha %g beta %g%s%s, timed on %s",
                  cublasLtGetVersion(), tr_dtype_name(p->in), device->tf32 ? " tf32" : "",
                  tr_dtype_name(p->out),
                  p->trans_a   ? p->trans_b ? " tt" : " tn"
                  : p->trans_b ? " nt"
                               : " nn",
                  (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->batch,
                  (long long)p->b_step, (long long)p->a_row, (long long)p->c_row, (double)p->alpha,
                  (double)p->beta, p->bias ? " bias" : "",
                  p->gelu == CUDA_GELU_FORWARD    ? " gelu"
                  : p->gelu == CUDA_GELU_BACKWARD ? " gelu gradient"
                                                  : "",
                  device->description);
    return key->status;
}

/* The stored algorithm; false: there is none that fits. */
static bool cuda_product_find_stored(tr_device_t *device, cuda_product_plan_t *plan,
                                     const char *key, cublasLtMatmulAlgo_t *out) {
    cublasLtHandle_t handle = NULL;
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulAlgo_t algo;
    cuda_plan_store_t *store = cuda_self(device)->plans;
    const char *text = tr_cuda_plan_store_find(store, key);
    unsigned char *byte = (unsigned char *)&algo;
    bool fits = text && strlen(text) == 2 * sizeof algo;
    if (!text) return false;
    for (size_t i = 0; fits && i < sizeof algo; i++)
        fits = sscanf(text + 2 * i, "%2hhx", &byte[i]) == 1;
    fits = fits && tr_cuda_blas(device, &handle) == TR_OK &&
           init_desc(device, &plan->product, NULL, AUX_AT, &desc) == TR_OK &&
           cublasLtMatmulAlgoCheck(handle, &desc, &plan->a, &plan->b, &plan->c, &plan->c, &algo,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= WORKSPACE_BYTES;
    if (!fits) return tr_cuda_plan_store_drop(store, key, "was refused by cuBLASLt"), false;
    result.algo = algo;
    product_take(plan, &result, out);
    return true;
}

static tr_status_t product_store(tr_device_t *device, const char *key,
                                 const cublasLtMatmulAlgo_t *algo, bool lasts) {
    char text[2 * sizeof *algo + 1];
    const unsigned char *byte = (const unsigned char *)algo;
    for (size_t i = 0; i < sizeof *algo; i++) snprintf(text + 2 * i, 3, "%02x", byte[i]);
    return tr_cuda_plan_store_add(cuda_self(device)->plans, key, text, lasts);
}

/* The fastest of the suggested algorithms, and the first of equals. */
static tr_status_t choose_timed(tr_device_t *device, cuda_product_plan_t *plan,
                                cublasLtMatmulAlgo_t *out, bool *out_has) {
    cublasLtMatmulHeuristicResult_t results[MAX_TIMED];
    tr_str_t key = {0};
    tr_status_t status = TR_OK;
    double best_sec = INFINITY;
    int count = 0, best = 0;
    TR_TRY_GOTO(cuda_product_key_of(device, &plan->product, &key), done);
    *out_has = cuda_product_find_stored(device, plan, key.text, out);
    if (*out_has) goto done;
    if (device->chooses_nothing)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_NOINPUT, "cuda.plan_cache has no choice for %s", key.text),
                    done);
    TR_TRY_GOTO(cuda_product_suggest(device, plan, ALIGNMENT, MAX_TIMED, results, &count), done);
    *out_has = count > 0;
    if (!*out_has) goto done;
    for (int i = 0; i < count && count > 1; i++) {
        const double sec = cuda_product_time_of(device, plan, &results[i]);
        if (sec < best_sec) best_sec = sec, best = i;
    }
    product_take(plan, &results[best], out);
    status =
        product_store(device, key.text, out, count == 1 || tr_cuda_was_timed(best_sec, key.text));
done:
    tr_str_free(&key);
    return status;
}

/* -- plans and runs ---------------------------------------------------------------------------- */

static tr_status_t cuda_product_choose(tr_device_t *device, cuda_product_plan_t *plan,
                                       uint32_t alignment, cublasLtMatmulAlgo_t *out,
                                       bool *out_has) {
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    TR_TRY(cuda_product_suggest(device, plan, alignment, 1, &result, &count));
    *out_has = count > 0;
    if (*out_has) product_take(plan, &result, out);
    return TR_OK;
}

tr_status_t tr_cuda_product_find(tr_device_t *device, const cuda_product_t *product,
                                 cuda_product_plan_t **out, size_t *out_workspace_bytes) {
    cuda_product_plan_t *plan = NULL;
    tr_status_t status = TR_OK;
    bool has_aligned = false;
    *out = NULL;
    *out_workspace_bytes = WORKSPACE_BYTES; /* known without a GPU: `trainer plan --gpu` */
    TR_TRY(tr_alloc(sizeof *plan, "a product", &plan));
    plan->product = *product;
    if (cuda_self(device)->model) return *out = plan, TR_OK;
    TR_TRY_GOTO(init_layouts(plan), fail);
    status = cuda_self(device)->tune
                 ? choose_timed(device, plan, &plan->aligned, &has_aligned)
                 : cuda_product_choose(device, plan, ALIGNMENT, &plan->aligned, &has_aligned);
    if (status != TR_OK || !has_aligned) goto fail;
    /* for addresses with less alignment, which few products meet */
    if (cuda_product_choose(device, plan, (uint32_t)tr_dtype_bytes(product->in), &plan->any,
                            &plan->has_any) != TR_OK) {
        plan->has_any = false;
        tr_error_clear();
    }
    *out = plan;
    return TR_OK;
fail:
    tr_free(&plan);
    return status;
}

tr_status_t tr_cuda_product_plan(tr_device_t *device, const cuda_product_t *p,
                                 cuda_product_plan_t **out, size_t *out_workspace_bytes) {
    TR_TRY(tr_cuda_product_find(device, p, out, out_workspace_bytes));
    if (*out) return TR_OK;
    return TR_FAIL(TR_ERR_INTERNAL,
                   "cuBLASLt has no algorithm for a product (%lld, %lld) x (%lld, %lld) of %s into "
                   "%s with addresses aligned to %d bytes",
                   (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n,
                   tr_dtype_name(p->in), tr_dtype_name(p->out), ALIGNMENT);
}

tr_status_t tr_cuda_product_run(tr_device_t *device, tr_stream_t *stream, cuda_product_plan_t *plan,
                                const void *a, const void *b, const void *bias, void *c,
                                void *workspace) {
    return tr_cuda_product_run_on(
        device, stream, plan,
        &(cuda_product_data_t){.a = a, .b = b, .bias = bias, .c = c, .workspace = workspace});
}

tr_status_t tr_cuda_product_run_on(tr_device_t *device, tr_stream_t *stream,
                                   cuda_product_plan_t *plan, const cuda_product_data_t *data) {
    const uintptr_t low = ((uintptr_t)data->a | (uintptr_t)data->b | (uintptr_t)data->bias |
                           (uintptr_t)data->c | (uintptr_t)data->x) %
                          ALIGNMENT;
    if (low && !plan->has_any)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "cuBLASLt needs addresses aligned to %d bytes for a product of %s into %s; "
                       "an address is only aligned to %d",
                       ALIGNMENT, tr_dtype_name(plan->product.in), tr_dtype_name(plan->product.out),
                       1 << __builtin_ctzl(low));
    return multiply(device, stream, plan, low ? &plan->any : &plan->aligned, data);
}

void tr_cuda_product_release(cuda_product_plan_t **plan) {
    tr_free(plan);
}
