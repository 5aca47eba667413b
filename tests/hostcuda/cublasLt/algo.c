/* Algorithms: one that needs no workspace, and one that splits k and does. Heuristics offer them in this order of speed. */
#include "lt_int.h"
#include <stdlib.h>

enum { PLAIN = 21, SPLIT_K = 66 };

size_t lt_workspace(const algo_t *algo, const product_t *p) {
    return algo->id == SPLIT_K ? (size_t)(p->m * p->n * p->d.batch) * sizeof(float) * (size_t)algo->split_k : 0;
}

uint32_t lt_layout_alignment(const layout_t *layout, num_type_t type) {
    uint32_t alignment = 16;
    const uint64_t ld_bytes = (uint64_t)layout->ld * num_size(type);
    const uint64_t batch_bytes = layout->batch > 1 ? (uint64_t)layout->batch_offset * num_size(type) : 0;
    while (ld_bytes % alignment || batch_bytes % alignment) alignment /= 2;
    return alignment;
}

algo_t lt_choose(const product_t *p, size_t workspace, const uint32_t alignment[4], int which) {
    const layout_t *layouts[] = {&p->a, &p->b, &p->c, &p->d};
    const num_type_t types[] = {p->type_a, p->type_b, p->type_c, p->type_d};
    algo_t split = {.magic = ALGO_MAGIC, .id = SPLIT_K, .split_k = 4, .tile = 20, .stages = 12, .reduction = 2,
                    .alignment = 16, .m = (uint64_t)p->m, .n = (uint64_t)p->n, .k = (uint64_t)p->k};
    for (int i = 0; i < 4; i++) {
        const uint32_t of_layout = lt_layout_alignment(layouts[i], types[i]);
        if (of_layout < split.alignment) split.alignment = of_layout;
        if (alignment && alignment[i] < split.alignment) split.alignment = alignment[i];
    }
    split.bias_alignment = 16;
    while (split.bias_alignment > 1 && (uintptr_t)p->desc.bias % split.bias_alignment) split.bias_alignment /= 2;
    algo_t plain = split;
    plain.id = PLAIN, plain.split_k = 1, plain.tile = 18, plain.reduction = 0;
    /* Bias gradients are sums over all of k. */
    const bool splits = p->k >= 256 && lt_workspace(&split, p) <= workspace && !(p->desc.epilogue & LT_GRADS);
    if (splits) return which == 0 ? split : which == 1 ? plain : (algo_t){0};
    return which == 0 ? plain : (algo_t){0};
}

static void fill_result(cublasLtMatmulHeuristicResult_t *out, const algo_t *algo, const product_t *p) {
    memset(out, 0, sizeof *out);
    memcpy(&out->algo, algo, sizeof *algo);
    out->workspaceSize = lt_workspace(algo, p);
    out->state = CUBLAS_STATUS_SUCCESS;
    out->wavesCount = 1;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                     cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                     cublasLtMatmulPreference_t preference, int wanted,
                                                     cublasLtMatmulHeuristicResult_t results[], int *found) {
    product_t p;
    LT_CALL("%d", wanted);
    *found = 0;
    if (!handle || !preference || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const preference_t *want = (const preference_t *)preference;
    const cublasStatus_t status = lt_check(__func__, desc, a, b, c, d, &p);
    if (status) return status;
    for (int i = 0; i < wanted; i++) {
        const algo_t algo = lt_choose(&p, want->workspace, want->alignment, i);
        if (algo.magic) fill_result(&results[(*found)++], &algo, &p);
    }
    return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              const cublasLtMatmulAlgo_t *opaque, cublasLtMatmulHeuristicResult_t *result) {
    product_t p;
    LT_CALL("%s", "");
    const algo_t *algo = (const algo_t *)opaque;
    if (!handle || !algo || algo->magic != ALGO_MAGIC) return CUBLAS_STATUS_INVALID_VALUE;
    const cublasStatus_t status = lt_check(__func__, desc, a, b, c, d, &p);
    if (status) return status;
    const algo_t best = lt_choose(&p, SIZE_MAX, NULL, 0);
    if (algo->alignment > best.alignment || (algo->id == SPLIT_K && best.id != SPLIT_K)) {
        hostcuda_refuse(__func__, "algorithm %d with alignment %u for a product that has %u", algo->id, algo->alignment, best.alignment);
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (result) fill_result(result, algo, &p);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                                               cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d,
                                               int wanted, int ids[], int *found) {
    (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d;
    if (!handle || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    *found = wanted > 1 ? 2 : 1;
    ids[0] = PLAIN;
    if (wanted > 1) ids[1] = SPLIT_K;
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                                             cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, int id,
                                             cublasLtMatmulAlgo_t *out) {
    (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d;
    if (!handle || (id != PLAIN && id != SPLIT_K)) return CUBLAS_STATUS_INVALID_VALUE;
    const algo_t algo = {.magic = ALGO_MAGIC, .id = id, .split_k = id == SPLIT_K ? 4 : 1, .alignment = 1, .bias_alignment = 1};
    memset(out, 0, sizeof *out);
    memcpy(out, &algo, sizeof algo);
    return CUBLAS_STATUS_SUCCESS;
}

static int32_t *config(algo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute) {
    switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID: return &algo->id;
    case CUBLASLT_ALGO_CONFIG_TILE_ID: return &algo->tile;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM: return &algo->split_k;
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME: return &algo->reduction;
    case CUBLASLT_ALGO_CONFIG_STAGES_ID: return &algo->stages;
    default: return NULL;
    }
}
EXPORT cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                           cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
                                                           size_t size, size_t *written) {
    const int32_t *field = config((algo_t *)algo, attribute);
    if (!field || (size && size != sizeof *field)) return CUBLAS_STATUS_INVALID_VALUE;
    if (size) memcpy(value, field, sizeof *field);
    if (written) *written = sizeof *field;
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                                           cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                           const void *value, size_t size) {
    int32_t *field = config((algo_t *)algo, attribute);
    if (!field || size != sizeof *field || attribute == CUBLASLT_ALGO_CONFIG_ID) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, sizeof *field);
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *opaque,
                                                        cublasLtMatmulAlgoCapAttributes_t attribute, void *value, size_t size,
                                                        size_t *written) {
    const algo_t *algo = (const algo_t *)opaque;
    uint32_t number;
    switch (attribute) {
    case CUBLASLT_ALGO_CAP_SPLITK_SUPPORT: number = algo->id == SPLIT_K; break;
    case CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK: number = algo->id == SPLIT_K ? CUBLASLT_REDUCTION_SCHEME_MASK : 0; break;
    case CUBLASLT_ALGO_CAP_STRIDED_BATCH_SUPPORT: number = 1; break;
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES: number = algo->alignment; break;
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (size && size != sizeof number) return CUBLAS_STATUS_INVALID_VALUE;
    if (size) memcpy(value, &number, sizeof number);
    if (written) *written = sizeof number;
    return CUBLAS_STATUS_SUCCESS;
}
