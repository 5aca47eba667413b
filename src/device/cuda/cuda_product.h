/*
 * Private: products of row-major matrices by cuBLASLt, for MATMUL and for convolutions that are
 * products.
 *
 *     C[i] = alpha op(A[i]) op(B[i]) + bias + beta C[i]        i < batch
 *
 * cuBLASLt has column-major matrices, so it computes the transposed product: its first factor is
 * our B, its second our A, and a row of C is one of its columns.
 */
#ifndef TR_DEVICE_CUDA_CUDA_PRODUCT_H
#define TR_DEVICE_CUDA_CUDA_PRODUCT_H

#include "cuda_int.h"

typedef struct {
    tr_dtype_t in, out;    /* of A and B; of C: the same or f32 */
    bool trans_a, trans_b; /* A is stored (k, m), B (n, k) */
    int64_t m, n, k;       /* C (m, n) */
    int64_t batch;         /* the next matrices of A and C follow the last */
    int64_t b_step;        /* elements from one B to the next; 0: all use the same */
    int64_t a_row, c_row;  /* elements from one row of A or C to the next; 0: no gaps */
    float alpha, beta;
    bool bias;         /* (n), of C's type */
    /* With beta 0 and one matrix, and an auxiliary matrix X like C, gelu being the form with tanh.
     * FORWARD: X = alpha A B + bias, C = gelu(X). BACKWARD, without bias: C = alpha A B gelu'(X) */
    enum { CUDA_GELU_NONE, CUDA_GELU_FORWARD, CUDA_GELU_BACKWARD } gelu;
} cuda_product_t;

/* The addresses of one run. bias, x: NULL where the product has none. */
typedef struct {
    const void *a, *b, *bias;
    void *c, *x, *workspace;
} cuda_product_data_t;

typedef struct cuda_product_plan cuda_product_plan_t;

/* Chooses the algorithm by cuBLASLt's heuristics, or by time (`cuda.tune`); deterministic. *out is NULL
 * if cuBLASLt has none. */
tr_status_t tr_cuda_product_find(tr_device_t *device, const cuda_product_t *product,
                                 cuda_product_plan_t **out, size_t *out_workspace_bytes);
/* The same; TR_ERR_INTERNAL if cuBLASLt has none. */
tr_status_t tr_cuda_product_plan(tr_device_t *device, const cuda_product_t *product,
                                 cuda_product_plan_t **out, size_t *out_workspace_bytes);
/* bias NULL where the product has none. The plan stays as it is: many may run it. */
tr_status_t tr_cuda_product_run(tr_device_t *device, tr_stream_t *stream, cuda_product_plan_t *plan,
                                const void *a, const void *b, const void *bias, void *c,
                                void *workspace);
/* The same for all kinds of products. */
tr_status_t tr_cuda_product_run_on(tr_device_t *device, tr_stream_t *stream,
                                   cuda_product_plan_t *plan, const cuda_product_data_t *data);
void tr_cuda_product_release(cuda_product_plan_t **plan);

/* The handle of this device, made at the first call. */
tr_status_t tr_cuda_blas(tr_device_t *device, struct cublasLtContext **out);
void tr_cuda_blas_close(cuda_device_t *cuda);

#endif
