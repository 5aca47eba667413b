/* The fake libcublasLt against sums in double precision: orders, transposes, strides, types, epilogues, refusals. */
#include "hostcuda_test.h"
#include "numeric.h"
#include <cublasLt.h>

typedef struct {
    int m, n, k, batch;
    bool ta, tb;
    int order[3]; /* of A, B, D */
    int gap;      /* added to each leading dimension */
    cudaDataType_t in, out;
    uint32_t epilogue;
    float alpha, beta;
} case_t;

typedef struct {
    cublasLtMatrixLayout_t layout;
    num_type_t type;
    int64_t rows, cols, ld, stride;
    int order;
    size_t bytes;
    void *host, *device;
} matrix_t;

static cublasLtHandle_t handle;

static num_type_t num_of(cudaDataType_t type) {
    return type == CUDA_R_32F ? NUM_F32 : type == CUDA_R_16BF ? NUM_BF16 : NUM_F16;
}
static int64_t place(const matrix_t *x, int64_t batch, int64_t row, int64_t col) {
    return batch * x->stride + (x->order == CUBLASLT_ORDER_COL ? col * x->ld + row : row * x->ld + col);
}
static double element(const matrix_t *x, int64_t batch, int64_t row, int64_t col) {
    return num_load(x->type, x->host, place(x, batch, row, col));
}

static matrix_t matrix(cudaDataType_t type, int64_t rows, int64_t cols, int order, int gap, int batch, unsigned *seed) {
    matrix_t x = {.type = num_of(type), .rows = rows, .cols = cols, .order = order};
    const int32_t order32 = order, batch32 = batch;
    x.ld = (order == CUBLASLT_ORDER_COL ? rows : cols) + gap;
    x.stride = x.ld * (order == CUBLASLT_ORDER_COL ? cols : rows) + 8;
    x.bytes = (size_t)(x.stride * batch) * num_size(x.type);
    x.host = malloc(x.bytes);
    for (int64_t i = 0; i < x.stride * batch; i++) num_store(x.type, x.host, i, draw(seed));
    x.device = to_device(x.host, x.bytes);
    OK(cublasLtMatrixLayoutCreate(&x.layout, type, (uint64_t)rows, (uint64_t)cols, x.ld));
    OK(cublasLtMatrixLayoutSetAttribute(x.layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order32, sizeof order32));
    OK(cublasLtMatrixLayoutSetAttribute(x.layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch32, sizeof batch32));
    OK(cublasLtMatrixLayoutSetAttribute(x.layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &x.stride, sizeof x.stride));
    return x;
}

static cublasLtMatmulDesc_t describe(const case_t *t) {
    cublasLtMatmulDesc_t desc;
    const int32_t ta = t->ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = t->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
    OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
    OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &t->epilogue, sizeof t->epilogue));
    return desc;
}

static void set_pointer(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, void *pointer) {
    OK(cublasLtMatmulDescSetAttribute(desc, attribute, &pointer, sizeof pointer));
}

static double product(const case_t *t, const matrix_t *a, const matrix_t *b, int batch, int i, int j) {
    double sum = 0;
    for (int k = 0; k < t->k; k++)
        sum += (t->ta ? element(a, batch, k, i) : element(a, batch, i, k)) *
               (t->tb ? element(b, batch, j, k) : element(b, batch, k, j));
    return sum;
}
static double gelu(double x) { return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

/* The largest error of D; relative to the type's rounding. Leaves D and the bias in *d and bias. */
static double error_of(const case_t *t, matrix_t *d, float *bias) {
    unsigned seed = 5;
    const int batch = t->batch ? t->batch : 1;
    matrix_t a = matrix(t->in, t->ta ? t->k : t->m, t->ta ? t->m : t->k, t->order[0], t->gap, batch, &seed);
    matrix_t b = matrix(t->in, t->tb ? t->n : t->k, t->tb ? t->k : t->n, t->order[1], t->gap, batch, &seed);
    matrix_t c = matrix(t->out, t->m, t->n, t->order[2], t->gap, batch, &seed);
    const int longest = t->m > t->n ? t->m : t->n;
    unsigned char *vector = calloc((size_t)longest, 4);
    for (int i = 0; i < longest; i++) num_store(c.type, vector, i, draw(&seed));
    void *vector_device = to_device(vector, (size_t)longest * 4);
    const int64_t aux_ld = (t->m + 127) / 128 * 128;
    void *aux = device_memory((size_t)(aux_ld * t->n) * 4);
    *d = matrix(t->out, t->m, t->n, t->order[2], t->gap, batch, &seed);
    cublasLtMatmulDesc_t desc = describe(t);
    set_pointer(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector_device);
    set_pointer(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof aux_ld));
    OK(cublasLtMatmul(handle, desc, &t->alpha, a.device, a.layout, b.device, b.layout, &t->beta, c.device, c.layout, d->device,
                      d->layout, NULL, NULL, 0, 0));
    to_host(d->host, d->device, d->bytes);
    to_host(vector, vector_device, (size_t)longest * 4);
    double worst = 0;
    const double unit = d->type == NUM_F32 ? 1e-6 : d->type == NUM_BF16 ? 4e-3 : 5e-4;
    for (int z = 0; z < batch; z++)
        for (int i = 0; i < t->m; i++)
            for (int j = 0; j < t->n; j++) {
                double y = t->alpha * product(t, &a, &b, z, i, j) + (t->beta != 0 ? t->beta * element(&c, z, i, j) : 0);
                if (t->epilogue & CUBLASLT_EPILOGUE_BIAS) y += num_load(d->type, vector, i);
                if (t->epilogue & CUBLASLT_EPILOGUE_RELU) y = y > 0 ? y : 0;
                if (t->epilogue & CUBLASLT_EPILOGUE_GELU) y = gelu(y);
                worst = fmax(worst, fabs(element(d, z, i, j) - y) / unit / (1 + fabs(y)));
            }
    for (int i = 0; i < longest && bias; i++) bias[i] = (float)num_load(d->type, vector, i);
    return worst;
}

static void test_products(void **state) {
    const cudaDataType_t types[][2] = {
        {CUDA_R_32F, CUDA_R_32F}, {CUDA_R_16BF, CUDA_R_16BF}, {CUDA_R_16BF, CUDA_R_32F}, {CUDA_R_16F, CUDA_R_16F}};
    matrix_t d;
    for (int i = 0; i < 4; i++)
        for (int bits = 0; bits < 32; bits++) {
            const case_t t = {.m = 9, .n = 70, .k = 13, .batch = bits & 1 ? 3 : 1, .ta = bits & 2, .tb = bits & 4,
                              .order = {bits & 8 ? 1 : 0, bits & 16 ? 1 : 0, bits & 8 ? 1 : 0}, .gap = bits & 1 ? 5 : 0,
                              .in = types[i][0], .out = types[i][1], .epilogue = CUBLASLT_EPILOGUE_DEFAULT, .alpha = 0.5f,
                              .beta = bits & 2 ? 2.0f : 0};
            assert_true(error_of(&t, &d, NULL) < 4);
        }
}

static void test_epilogues(void **state) {
    const uint32_t epilogues[] = {CUBLASLT_EPILOGUE_RELU,          CUBLASLT_EPILOGUE_BIAS,      CUBLASLT_EPILOGUE_RELU_BIAS,
                                  CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX};
    matrix_t d;
    for (int i = 0; i < 6; i++) {
        case_t t = {.m = 20, .n = 11, .k = 6, .ta = true, .in = CUDA_R_16BF, .out = CUDA_R_16BF, .epilogue = epilogues[i], .alpha = 1};
        assert_true(error_of(&t, &d, NULL) < 4);
    }
}

static void test_bias_gradients(void **state) {
    float bias[32];
    matrix_t d;
    case_t t = {.m = 5, .n = 7, .k = 600, .tb = true, .in = CUDA_R_32F, .out = CUDA_R_32F, .alpha = 1, .epilogue = CUBLASLT_EPILOGUE_BGRADB};
    assert_true(error_of(&t, &d, bias) < 50);
    unsigned seed = 5;
    const int64_t of_a = (int64_t)(5 * 600 + 8), k = 600;
    for (int64_t i = 0; i < of_a; i++) draw(&seed);
    double sums[7] = {0};
    for (int64_t i = 0; i < 7 * k; i++) sums[i % 7] += draw(&seed); /* B is (7, 600) in column order */
    for (int i = 0; i < 7; i++) assert_true(fabs(sums[i] - bias[i]) < 1e-4);
}

/* relu forward with its mask, then the gradient through the same mask. */
static void test_relu_mask(void **state) {
    unsigned seed = 3;
    matrix_t a = matrix(CUDA_R_32F, 6, 4, 0, 0, 1, &seed), b = matrix(CUDA_R_32F, 4, 5, 0, 0, 1, &seed);
    matrix_t y = matrix(CUDA_R_32F, 6, 5, 0, 0, 1, &seed), dy = matrix(CUDA_R_32F, 6, 5, 0, 0, 1, &seed);
    void *aux = device_memory(128 * 5 / 8);
    const int64_t ld = 128;
    const float one = 1, zero = 0;
    for (int backward = 0; backward < 2; backward++) {
        const case_t t = {.epilogue = backward ? CUBLASLT_EPILOGUE_DRELU : CUBLASLT_EPILOGUE_RELU_AUX};
        cublasLtMatmulDesc_t desc = describe(&t);
        set_pointer(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
        OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld));
        matrix_t *d = backward ? &dy : &y;
        OK(cublasLtMatmul(handle, desc, &one, a.device, a.layout, b.device, b.layout, &zero, d->device, d->layout, d->device,
                          d->layout, NULL, NULL, 0, 0));
    }
    to_host(y.host, y.device, y.bytes);
    to_host(dy.host, dy.device, dy.bytes);
    for (int i = 0; i < 30; i++) assert_true(((float *)y.host)[i] == ((float *)dy.host)[i]);
}

static void test_heuristics(void **state) {
    unsigned seed = 1;
    matrix_t a = matrix(CUDA_R_16BF, 64, 512, 0, 0, 1, &seed), b = matrix(CUDA_R_16BF, 512, 64, 0, 0, 1, &seed);
    matrix_t d = matrix(CUDA_R_16BF, 64, 64, 0, 0, 1, &seed), odd = matrix(CUDA_R_16BF, 64, 512, 0, 1, 1, &seed);
    const case_t t = {.epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    cublasLtMatmulDesc_t desc = describe(&t);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t results[4];
    int found = 0;
    size_t cap = 1 << 20;
    const float one = 1, zero = 0;
    char *workspace = device_memory(cap);
    OK(cublasLtMatmulPreferenceCreate(&preference));
    OK(cublasLtMatmulAlgoGetHeuristic(handle, desc, a.layout, b.layout, d.layout, d.layout, preference, 4, results, &found));
    assert_int_equal(found, 1);
    assert_int_equal(results[0].workspaceSize, 0);
    OK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &cap, sizeof cap));
    OK(cublasLtMatmulAlgoGetHeuristic(handle, desc, a.layout, b.layout, d.layout, d.layout, preference, 4, results, &found));
    assert_int_equal(found, 2);
    const size_t needed = results[0].workspaceSize;
    assert_true(needed > 0 && needed <= cap);
#define MATMUL(A, LAYOUT, WS, BYTES)                                                                                          \
    cublasLtMatmul(handle, desc, &one, A, LAYOUT, b.device, b.layout, &zero, d.device, d.layout, d.device, d.layout,      \
                   &results[0].algo, WS, BYTES, 0)
    OK(MATMUL(a.device, a.layout, workspace, needed));
    assert_int_equal(MATMUL(a.device, a.layout, workspace, needed - 1), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(MATMUL(a.device, a.layout, workspace + 8, needed), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(MATMUL((char *)a.device + 2, a.layout, workspace, needed), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(MATMUL(odd.device, odd.layout, workspace, needed), CUBLAS_STATUS_INVALID_VALUE);
}

static void test_refusals(void **state) {
    unsigned seed = 1;
    matrix_t a = matrix(CUDA_R_16BF, 8, 16, 0, 0, 1, &seed), b = matrix(CUDA_R_16BF, 16, 8, 0, 0, 1, &seed);
    matrix_t d = matrix(CUDA_R_16BF, 8, 8, 0, 0, 1, &seed), row = matrix(CUDA_R_16BF, 8, 8, 1, 0, 1, &seed);
    matrix_t f = matrix(CUDA_R_16F, 8, 8, 0, 0, 1, &seed);
    case_t t = {.epilogue = CUBLASLT_EPILOGUE_BIAS};
    cublasLtMatmulDesc_t desc = describe(&t);
    const int32_t f32 = CUDA_R_32F;
    const float one = 1, zero = 0;
    void *bias = device_memory(64);
#define CALL(D, L) cublasLtMatmul(handle, desc, &one, a.device, a.layout, b.device, b.layout, &zero, D, L, D, L, NULL, NULL, 0, 0)
    assert_int_equal(CALL(d.device, d.layout), CUBLAS_STATUS_INVALID_VALUE); /* no bias pointer */
    set_pointer(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    OK(CALL(d.device, d.layout));
    assert_int_equal(CALL(row.device, row.layout), CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(CALL(f.device, f.layout), CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(CALL(a.device, a.layout), CUBLAS_STATUS_INVALID_VALUE); /* shape */
    OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &f32, sizeof f32));
    assert_int_equal(CALL(d.device, d.layout), CUBLAS_STATUS_NOT_SUPPORTED); /* f32 bias of a bf16 result */
    assert_int_equal(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &f32, 8), CUBLAS_STATUS_INVALID_VALUE);
}

/* What a wrong translation does: each planted mistake changes the result. */
static int swapped(void) {
    unsigned seed = 1;
    OK(cublasLtCreate(&handle));
    matrix_t a = matrix(CUDA_R_32F, 8, 8, 0, 0, 1, &seed), b = matrix(CUDA_R_32F, 8, 8, 0, 0, 1, &seed);
    matrix_t x = matrix(CUDA_R_32F, 8, 8, 0, 0, 1, &seed), y = matrix(CUDA_R_32F, 8, 8, 0, 0, 1, &seed);
    const float one = 1, zero = 0;
    const case_t right = {.ta = true, .epilogue = CUBLASLT_EPILOGUE_DEFAULT}, wrong = {.tb = true, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    OK(cublasLtMatmul(handle, describe(&right), &one, a.device, a.layout, b.device, b.layout, &zero, x.device, x.layout, x.device, x.layout, NULL, NULL, 0, 0));
    OK(cublasLtMatmul(handle, describe(&wrong), &one, a.device, a.layout, b.device, b.layout, &zero, y.device, y.layout, y.device, y.layout, NULL, NULL, 0, 0));
    to_host(x.host, x.device, x.bytes);
    to_host(y.host, y.device, y.bytes);
    return memcmp(x.host, y.host, 64 * 4) == 0;
}
static int outside(void) {
    unsigned seed = 1;
    freopen("/dev/null", "w", stderr);
    OK(cublasLtCreate(&handle));
    matrix_t a = matrix(CUDA_R_32F, 8, 8, 0, 0, 1, &seed), b = matrix(CUDA_R_32F, 8, 8, 0, 0, 1, &seed);
    const float one = 1, zero = 0;
    const case_t t = {.epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    void *small = device_memory(8 * 8 * 4 - 4);
    const cublasStatus_t status = cublasLtMatmul(handle, describe(&t), &one, a.device, a.layout, b.device, b.layout, &zero, small,
                                                 a.layout, small, a.layout, NULL, NULL, 0, 0);
    return !(status && cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}
static void test_mistakes_show(void **state) {
    OK(in_child(NULL, NULL, swapped));
    OK(in_child(NULL, NULL, outside));
}

static int setup(void **state) { return cublasLtCreate(&handle); }

int main(void) {
    const struct CMUnitTest first[] = {cmocka_unit_test(test_mistakes_show)}; /* forks: before any call */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),   cmocka_unit_test(test_epilogues),  cmocka_unit_test(test_bias_gradients),
        cmocka_unit_test(test_relu_mask), cmocka_unit_test(test_heuristics), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(first, NULL, NULL) | cmocka_run_group_tests(tests, setup, NULL);
}
