/* Private: what standard attention computes between its products: cuda_plain_rows.cu. */
#ifndef TR_DEVICE_CUDA_CUDA_PLAIN_ROWS_H
#define TR_DEVICE_CUDA_CUDA_PLAIN_ROWS_H

#include "cuda_int.h"

/* A matrix of `parts` x heads x size columns for each of `steps` rows, and
 * the same elements as parts x heads matrices (steps, size). */
typedef struct {
    int64_t parts, heads, steps, size;
    tr_dtype_t dtype;
} cuda_heads_t;

/* f32: (heads, steps, steps) twice, (heads, steps). */
typedef struct {
    const float *scores, *dshares, *lse;
} cuda_causal_rows_t;

#ifdef __cplusplus
extern "C" {
#endif
tr_status_t tr_cuda_heads_split(tr_device_t *device, tr_stream_t *stream, const cuda_heads_t *h,
                                const void *packed, void *split);
tr_status_t tr_cuda_heads_merge(tr_device_t *device, tr_stream_t *stream, const cuda_heads_t *h,
                                const void *split, void *packed);
/* shares = softmax of scale x scores over the keys up to the query, zero for later ones; lse (heads,
 * steps) = log of the sum of exp. scores f32 (heads, steps, steps); shares h->dtype. */
tr_status_t tr_cuda_causal_softmax(tr_stream_t *stream, const cuda_heads_t *h, float scale,
                                   const float *scores, void *shares, float *lse);
/* shares = exp(scale x scores - lse) and dscores = shares (dshares - delta) scale, zero for later
 * keys; delta = the sum of dy x y over a head's row. dy is split, y packed. */
tr_status_t tr_cuda_causal_softmax_bwd(tr_stream_t *stream, const cuda_heads_t *h, float scale,
                                       const cuda_causal_rows_t *rows, const void *dy,
                                       const void *y, void *shares, void *dscores);
#ifdef __cplusplus
}
#endif

#endif
