/* What the files of the fake libcublasLt share: what is inside the library's opaque types. */
#ifndef HOSTCUDA_LT_INT_H
#define HOSTCUDA_LT_INT_H

#include "hostcuda.h"
#include "numeric.h"
#include <cublasLt.h>

#define EXPORT       __attribute__((visibility("default")))
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

typedef struct {
    uint64_t rows, cols;
    int64_t ld, batch_offset, plane_offset;
    uint32_t type;
    int32_t order, batch;
} layout_t;
_Static_assert(sizeof(layout_t) <= sizeof(cublasLtMatrixLayoutOpaque_t), "must fit where callers keep it");

typedef struct {
    int32_t compute, scale, pointer_mode, trans_a, trans_b, trans_c, fill, bias_type, aux_type, sm_count;
    uint32_t epilogue;
    int8_t fast_accum;
    void *bias, *aux;
    int64_t bias_stride, aux_ld, aux_stride, alpha_stride;
} desc_t;
_Static_assert(sizeof(desc_t) <= sizeof(cublasLtMatmulDescOpaque_t), "must fit where callers keep it");

typedef struct {
    uint32_t search, reduction_mask, alignment[4], impl_mask_unused;
    float waves;
    uint64_t workspace, impl_mask;
} preference_t;
_Static_assert(sizeof(preference_t) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "must fit where callers keep it");

/* An algorithm: which of the two that the fake has, and what it was chosen for. */
typedef struct {
    uint32_t magic;
    int32_t id, split_k, tile, stages, reduction;
    uint32_t alignment; /* bytes that addresses and leading dimensions must be a multiple of */
    uint32_t bias_alignment;
    uint64_t m, n, k;
} algo_t;
_Static_assert(sizeof(algo_t) <= sizeof(cublasLtMatmulAlgo_t), "must fit where callers keep it");
#define ALGO_MAGIC 0x68636c74u

/* The bits of an epilogue. */
#define LT_RELU  2u
#define LT_BIAS  4u
#define LT_DRELU 8u
#define LT_BGRAD 16u
#define LT_GELU  32u
#define LT_DGELU 64u
#define LT_AUX   128u
#define LT_GRADS (LT_BGRAD | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB) /* any gradient of a bias */

/* One product, checked: what matmul and the heuristics need to know of it. */
typedef struct {
    desc_t desc;
    layout_t a, b, c, d;
    num_type_t type_a, type_b, type_c, type_d;
    int64_t m, n, k;
} product_t;

/* Fills `out` or refuses, as the real library does; `call` is named in the refusal. */
cublasStatus_t lt_check(const char *call, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, product_t *out);
/* Workspace of an algorithm for a product. */
size_t lt_workspace(const algo_t *algo, const product_t *p);
/* The algorithm that the heuristics would choose first, with at most this workspace. */
algo_t lt_choose(const product_t *p, size_t workspace, const uint32_t alignment[4], int which);
/* Bytes that addresses of this layout may rely on: 16, or less where its leading dimension is odd. */
uint32_t lt_layout_alignment(const layout_t *layout, num_type_t type);
num_type_t lt_type(uint32_t cuda_type); /* NUM_COUNT: none of those that the fake has */

#define LT_CALL(...)                                                                                                    \
    do {                                                                                                                \
        if (hostcuda_call(__func__, __VA_ARGS__)) return CUBLAS_STATUS_INTERNAL_ERROR;                                  \
    } while (0)

#endif
