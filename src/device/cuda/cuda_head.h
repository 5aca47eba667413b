/* Private: the loss of rows of logits, for HEAD_LOSS. */
#ifndef TR_DEVICE_CUDA_CUDA_HEAD_H
#define TR_DEVICE_CUDA_CUDA_HEAD_H

#include "cuda_int.h"

/* Elements that a thread moves at once: 16 bytes of bf16, twice 16 of f32. */
enum { TR_CUDA_HEAD_PACK = 8 };

/* `count` rows of logits (count, tokens), `stride` elements apart, a multiple of the pack; they are rows `first` and on of
 * the whole, of which `per_sample` have one weight. The gradient has `columns`: those behind the
 * tokens are zeros. */
typedef struct {
    int64_t first, count, per_sample, tokens, columns, stride;
    const void *label; /* i64, or i32 */
    bool narrow_label;
    const float *weight, *dloss; /* dloss NULL: gradients are 0 */
    float *loss, *counted;
} cuda_head_rows_t;

#ifdef __cplusplus
extern "C" {
#endif
/* Losses, counts and, where `grad` is not NULL, the gradients of the logits, of `dtype` and with
 * the same stride; grad may be the logits. Both are aligned to 16 bytes. */
tr_status_t tr_cuda_head_rows(tr_stream_t *stream, const cuda_head_rows_t *rows, float *logits,
                              void *grad, tr_dtype_t dtype);
/* The same for logits of `dtype`, bf16 or f16, which their gradients replace. kept_bytes: a block keeps
 * its row in this much shared memory, as tr_cuda_head_keep says; 0: it reads the row twice. */
tr_status_t tr_cuda_head_rows_in_place(tr_stream_t *stream, const cuda_head_rows_t *rows,
                                       void *logits, tr_dtype_t dtype, size_t kept_bytes);
/* The shared memory for a row of `stride` logits; 0 where the row is short, or the GPU has not as much. */
tr_status_t tr_cuda_head_keep(tr_device_t *device, int64_t stride, tr_dtype_t dtype,
                              size_t *out_kept_bytes);
#ifdef __cplusplus
}
#endif

#endif
