/* Layouts, descriptors of products, preferences: made, set and read. Sizes must match, as for the real library. */
#include "lt_int.h"
#include <stdlib.h>

typedef struct {
    int attribute;
    size_t offset, size;
} field_t;

#define FIELD(attribute, type, member) {attribute, offsetof(type, member), sizeof(((type *)0)->member)}
static const field_t layout_fields[] = {
    FIELD(CUBLASLT_MATRIX_LAYOUT_TYPE, layout_t, type),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ORDER, layout_t, order),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ROWS, layout_t, rows),
    FIELD(CUBLASLT_MATRIX_LAYOUT_COLS, layout_t, cols),
    FIELD(CUBLASLT_MATRIX_LAYOUT_LD, layout_t, ld),
    FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, layout_t, batch),
    FIELD(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, layout_t, batch_offset),
    FIELD(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, layout_t, plane_offset),
};
static const field_t desc_fields[] = {
    FIELD(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, desc_t, compute),
    FIELD(CUBLASLT_MATMUL_DESC_SCALE_TYPE, desc_t, scale),
    FIELD(CUBLASLT_MATMUL_DESC_POINTER_MODE, desc_t, pointer_mode),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSA, desc_t, trans_a),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSB, desc_t, trans_b),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSC, desc_t, trans_c),
    FIELD(CUBLASLT_MATMUL_DESC_FILL_MODE, desc_t, fill),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, desc_t, epilogue),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, desc_t, bias),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, desc_t, bias_stride),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, desc_t, aux),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, desc_t, aux_ld),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, desc_t, aux_stride),
    FIELD(CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE, desc_t, alpha_stride),
    FIELD(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, desc_t, sm_count),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, desc_t, aux_type),
    FIELD(CUBLASLT_MATMUL_DESC_FAST_ACCUM, desc_t, fast_accum),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, desc_t, bias_type),
};
static const field_t preference_fields[] = {
    FIELD(CUBLASLT_MATMUL_PREF_SEARCH_MODE, preference_t, search),
    FIELD(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, preference_t, workspace),
    FIELD(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, preference_t, reduction_mask),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, preference_t, alignment[0]),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, preference_t, alignment[1]),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, preference_t, alignment[2]),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, preference_t, alignment[3]),
    FIELD(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, preference_t, waves),
    FIELD(CUBLASLT_MATMUL_PREF_IMPL_MASK, preference_t, impl_mask),
};

static const field_t *find(const char *call, const field_t *fields, size_t count, int attribute) {
    for (size_t i = 0; i < count; i++)
        if (fields[i].attribute == attribute) return &fields[i];
    hostcuda_refuse(call, "attribute %d is not in the fake", attribute);
    return NULL;
}
static cublasStatus_t set(const char *call, void *object, const field_t *fields, size_t count, int attribute,
                          const void *value, size_t size) {
    const field_t *field = object && value ? find(call, fields, count, attribute) : NULL;
    if (!field || size != field->size) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy((char *)object + field->offset, value, size);
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t get(const char *call, const void *object, const field_t *fields, size_t count, int attribute,
                          void *value, size_t size, size_t *written) {
    const field_t *field = object ? find(call, fields, count, attribute) : NULL;
    if (!field || (size ? !value || size != field->size : !written)) return CUBLAS_STATUS_INVALID_VALUE;
    if (size) memcpy(value, (const char *)object + field->offset, size);
    if (written) *written = field->size;
    return CUBLAS_STATUS_SUCCESS;
}

/* -- layouts -------------------------------------------------------------------------------------------------------- */
EXPORT cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t out, size_t size, cudaDataType type,
                                                        uint64_t rows, uint64_t cols, int64_t ld) {
    if (size < sizeof(layout_t)) return CUBLAS_STATUS_ALLOC_FAILED;
    *(layout_t *)out = (layout_t){.rows = rows, .cols = cols, .ld = ld, .type = type, .batch = 1};
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                                 uint64_t cols, int64_t ld) {
    LT_CALL("%d %llu x %llu ld %lld", type, (unsigned long long)rows, (unsigned long long)cols, (long long)ld);
    *out = calloc(1, sizeof **out);
    hostcuda_count("cublasLt layouts", 1);
    return cublasLtMatrixLayoutInit_internal(*out, sizeof **out, type, rows, cols, ld);
}
EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    if (layout) hostcuda_count("cublasLt layouts", -1);
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                       cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                       size_t size) {
    LT_CALL("%d", (int)attribute);
    return set(__func__, layout, layout_fields, COUNT(layout_fields), (int)attribute, value, size);
}
EXPORT cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                       cublasLtMatrixLayoutAttribute_t attribute, void *value,
                                                       size_t size, size_t *written) {
    return get(__func__, layout, layout_fields, COUNT(layout_fields), (int)attribute, value, size, written);
}

/* -- products ------------------------------------------------------------------------------------------------------- */
EXPORT cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t out, size_t size, cublasComputeType_t compute,
                                                      cudaDataType_t scale) {
    if (size < sizeof(desc_t)) return CUBLAS_STATUS_ALLOC_FAILED;
    *(desc_t *)out = (desc_t){.compute = (int32_t)compute, .scale = scale, .trans_a = CUBLAS_OP_N, .trans_b = CUBLAS_OP_N,
                              .trans_c = CUBLAS_OP_N, .fill = CUBLAS_FILL_MODE_FULL, .bias_type = -1, .aux_type = -1,
                              .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale) {
    LT_CALL("%d %d", (int)compute, scale);
    *out = calloc(1, sizeof **out);
    hostcuda_count("cublasLt descriptors", 1);
    return cublasLtMatmulDescInit_internal(*out, sizeof **out, compute, scale);
}
EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    if (desc) hostcuda_count("cublasLt descriptors", -1);
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                                     const void *value, size_t size) {
    LT_CALL("%d", (int)attribute);
    return set(__func__, desc, desc_fields, COUNT(desc_fields), (int)attribute, value, size);
}
EXPORT cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                                     void *value, size_t size, size_t *written) {
    return get(__func__, desc, desc_fields, COUNT(desc_fields), (int)attribute, value, size, written);
}

/* -- preferences: 256 bytes of alignment and no workspace unless said otherwise -------------------------------------- */
EXPORT cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t out, size_t size) {
    if (size < sizeof(preference_t)) return CUBLAS_STATUS_ALLOC_FAILED;
    *(preference_t *)out = (preference_t){.search = CUBLASLT_SEARCH_BEST_FIT, .reduction_mask = CUBLASLT_REDUCTION_SCHEME_MASK,
                                          .alignment = {256, 256, 256, 256}, .impl_mask = ~(uint64_t)0};
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    LT_CALL("%s", "");
    *out = calloc(1, sizeof **out);
    hostcuda_count("cublasLt preferences", 1);
    return cublasLtMatmulPreferenceInit_internal(*out, sizeof **out);
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    if (preference) hostcuda_count("cublasLt preferences", -1);
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                           cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                           size_t size) {
    LT_CALL("%d", (int)attribute);
    return set(__func__, preference, preference_fields, COUNT(preference_fields), (int)attribute, value, size);
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                                           cublasLtMatmulPreferenceAttributes_t attribute, void *value,
                                                           size_t size, size_t *written) {
    return get(__func__, preference, preference_fields, COUNT(preference_fields), (int)attribute, value, size, written);
}
