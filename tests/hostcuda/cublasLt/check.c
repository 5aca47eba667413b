/* What the real library refuses: shapes that do not fit, types and epilogues that no kernel has. */
#include "lt_int.h"

#define REFUSE(status, ...)                                                                                             \
    do {                                                                                                                \
        hostcuda_refuse(call, __VA_ARGS__);                                                                             \
        return status;                                                                                                  \
    } while (0)

num_type_t lt_type(uint32_t type) {
    switch (type) {
    case CUDA_R_32F: return NUM_F32;
    case CUDA_R_16BF: return NUM_BF16;
    case CUDA_R_16F: return NUM_F16;
    default: return NUM_COUNT;
    }
}

static cublasStatus_t check_layout(const char *call, const char *name, const layout_t *l) {
    if (lt_type(l->type) == NUM_COUNT) REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "%s: type %u", name, l->type);
    if (l->order != CUBLASLT_ORDER_COL && l->order != CUBLASLT_ORDER_ROW)
        REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "%s: order %d", name, l->order);
    const uint64_t run = l->order == CUBLASLT_ORDER_COL ? l->rows : l->cols;
    if (!l->rows || !l->cols || l->ld < (int64_t)run || l->batch < 1)
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "%s: %llu x %llu, leading dimension %lld, %d batches", name,
               (unsigned long long)l->rows, (unsigned long long)l->cols, (long long)l->ld, l->batch);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_types(const char *call, const product_t *p) {
    const int compute = p->desc.compute;
    const bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC && !tf32 &&
        compute != CUBLAS_COMPUTE_32F_FAST_16BF && compute != CUBLAS_COMPUTE_32F_FAST_16F)
        REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "compute type %d", compute);
    if (p->desc.scale != CUDA_R_32F) REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "scale type %d", p->desc.scale);
    if (p->type_a != p->type_b) REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "A has type %u, B %u", p->a.type, p->b.type);
    if (p->type_c != p->type_d) REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "C has type %u, D %u", p->c.type, p->d.type);
    if (p->type_d != p->type_a && p->type_d != NUM_F32)
        REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "A has type %u, D %u", p->a.type, p->d.type);
    if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC && p->type_a != NUM_F32)
        REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "compute type %d needs A in f32", compute);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_epilogue(const char *call, const product_t *p) {
    static const uint32_t known[] = {
        CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_BIAS,
        CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU,
        CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_BIAS,
        CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU_BGRAD,
        CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB,
    };
    const desc_t *d = &p->desc;
    const uint32_t e = d->epilogue;
    bool found = false;
    for (size_t i = 0; i < COUNT(known); i++) found |= known[i] == e;
    if (!found) REFUSE(CUBLAS_STATUS_INVALID_VALUE, "epilogue %u", e);
    const bool vector = e & (LT_BIAS | LT_GRADS);
    /* A row-major product is computed as the transposed one, where the vector would lie along the columns. */
    if (p->d.order == CUBLASLT_ORDER_ROW && (vector || e & LT_AUX))
        REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "epilogue %u with D in row order", e);
    if (vector && d->bias_type != -1 && (uint32_t)d->bias_type != p->d.type)
        REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "bias has type %d, D %u", d->bias_type, p->d.type);
    if (e & LT_AUX && d->aux_type != -1 && (uint32_t)d->aux_type != p->d.type)
        REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "the auxiliary matrix has type %d, D %u", d->aux_type, p->d.type);
    const bool mask = e & (LT_RELU | LT_DRELU);
    if (e & LT_AUX && (d->aux_ld % (mask ? 128 : 8) || d->aux_ld < p->m || d->aux_stride % (mask ? 128 : 8)))
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "the auxiliary matrix has leading dimension %lld", (long long)d->aux_ld);
    if (p->d.batch > 1 && e & LT_GRADS) REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "bias gradient of %d batches", p->d.batch);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_shapes(const char *call, product_t *p) {
    const bool ta = p->desc.trans_a != CUBLAS_OP_N, tb = p->desc.trans_b != CUBLAS_OP_N;
    const uint64_t m = ta ? p->a.cols : p->a.rows, k = ta ? p->a.rows : p->a.cols;
    const uint64_t k_b = tb ? p->b.cols : p->b.rows, n = tb ? p->b.rows : p->b.cols;
    if (k != k_b || m != p->d.rows || n != p->d.cols || p->c.rows != m || p->c.cols != n)
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "op(A) %llu x %llu, op(B) %llu x %llu, C %llu x %llu, D %llu x %llu",
               (unsigned long long)m, (unsigned long long)k, (unsigned long long)k_b, (unsigned long long)n,
               (unsigned long long)p->c.rows, (unsigned long long)p->c.cols, (unsigned long long)p->d.rows,
               (unsigned long long)p->d.cols);
    if (p->c.order != p->d.order) REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "C has order %d, D %d", p->c.order, p->d.order);
    if (p->a.batch != p->d.batch || p->b.batch != p->d.batch || p->c.batch != p->d.batch)
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "batches: A %d, B %d, C %d, D %d", p->a.batch, p->b.batch, p->c.batch, p->d.batch);
    p->m = (int64_t)m, p->n = (int64_t)n, p->k = (int64_t)k;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t lt_check(const char *call, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, product_t *p) {
    if (!desc || !a || !b || !c || !d) REFUSE(CUBLAS_STATUS_INVALID_VALUE, "a descriptor is NULL");
    *p = (product_t){*(const desc_t *)desc, *(const layout_t *)a, *(const layout_t *)b, *(const layout_t *)c,
                     *(const layout_t *)d, 0, 0, 0, 0, 0, 0, 0};
    const layout_t *layouts[] = {&p->a, &p->b, &p->c, &p->d};
    static const char *const names[] = {"A", "B", "C", "D"};
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < 4 && !status; i++) status = check_layout(call, names[i], layouts[i]);
    if (status) return status;
    p->type_a = lt_type(p->a.type), p->type_b = lt_type(p->b.type);
    p->type_c = lt_type(p->c.type), p->type_d = lt_type(p->d.type);
    if (p->desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST && p->desc.pointer_mode != CUBLASLT_POINTER_MODE_DEVICE)
        REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "pointer mode %d", p->desc.pointer_mode);
    if (p->desc.trans_c != CUBLAS_OP_N || p->desc.fill != CUBLAS_FILL_MODE_FULL)
        REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "transposed C or a triangle");
    if (!status) status = check_shapes(call, p);
    if (!status) status = check_types(call, p);
    if (!status) status = check_epilogue(call, p);
    return status;
}
