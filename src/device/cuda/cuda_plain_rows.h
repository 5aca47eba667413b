/* Private: what standard attention computes between its products, and the masks of dropout in
 * cuDNN's: cuda_plain_rows.cu. */
#ifndef TR_DEVICE_CUDA_CUDA_PLAIN_ROWS_H
#define TR_DEVICE_CUDA_CUDA_PLAIN_ROWS_H

#include "cuda_int.h"
#include <string.h>

/* For each sample, a matrix of `parts` x heads x size columns and `steps` rows ("packed"), and the same
 * elements as parts x samples x heads matrices (steps, size) ("split"). */
typedef struct {
    int64_t samples, parts, heads, steps, size;
    tr_dtype_t dtype;
} cuda_heads_t;

/* f32: (samples, heads, steps, steps) twice, (samples, heads, steps). */
typedef struct {
    const float *scores, *dshares, *lse;
} cuda_causal_rows_t;

/* The dropout of probabilities that device/kernels.h defines. */
typedef struct {
    const int64_t *sample_id; /* NULL: none */
    const tr_step_t *step;
    uint32_t stream, least; /* words below `least` are dropped */
    float factor;           /* of those that are not */
} cuda_attention_dropout_t;

/* ids: the index of in?: sample_id; the step block follows it. */
static inline cuda_attention_dropout_t cuda_attention_dropout_of(const tr_kernel_call_t *call,
                                                                 int ids) {
    const tr_attention_attr_t *attr = (const tr_attention_attr_t *)call->attr;
    cuda_attention_dropout_t d;
    memset(&d, 0, sizeof d);
    if (attr->p == 0.0f || !cuda_present(&call->in[ids])) return d;
    d.sample_id = (const int64_t *)call->in[ids].data;
    d.step = (const tr_step_t *)call->in[ids + 1].data;
    d.stream = attr->stream;
    d.least = (uint32_t)((double)attr->p * 4294967296.0);
    d.factor = (float)(1 / (1 - (double)attr->p));
    return d;
}

#ifdef __cplusplus
extern "C" {
#endif
tr_status_t tr_cuda_heads_split(tr_device_t *device, tr_stream_t *stream, const cuda_heads_t *h,
                                const void *packed, void *split);
tr_status_t tr_cuda_heads_merge(tr_device_t *device, tr_stream_t *stream, const cuda_heads_t *h,
                                const void *split, void *packed);
/* mask (samples, heads, steps, steps) of h->dtype: one where dropout keeps the probability, zero where
 * it drops it and at later keys. */
tr_status_t tr_cuda_dropout_mask(tr_stream_t *stream, const cuda_heads_t *h,
                                 const cuda_attention_dropout_t *dropout, void *mask);
/* shares = dropout(softmax of scale x scores over the keys up to the query), zero for later ones; lse
 * (samples, heads, steps) = log of the sum of exp. scores f32 (samples, heads, steps, steps); shares
 * h->dtype. */
tr_status_t tr_cuda_causal_softmax(tr_stream_t *stream, const cuda_heads_t *h, float scale,
                                   const cuda_attention_dropout_t *dropout, const float *scores,
                                   void *shares, float *lse);
/* With p = exp(scale x scores - lse) and the factors w of dropout: shares = p w and dscores =
 * p (w dshares - delta) scale, zero for later keys; delta = the sum of dy x y over a head's row. dy is
 * split, y packed. */
tr_status_t tr_cuda_causal_softmax_bwd(tr_stream_t *stream, const cuda_heads_t *h, float scale,
                                       const cuda_attention_dropout_t *dropout,
                                       const cuda_causal_rows_t *rows, const void *dy,
                                       const void *y, void *shares, void *dscores);
#ifdef __cplusplus
}
#endif

#endif
