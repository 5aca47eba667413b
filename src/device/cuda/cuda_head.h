/* Private: the loss of rows of logits, for HEAD_LOSS. */
#ifndef TR_DEVICE_CUDA_CUDA_HEAD_H
#define TR_DEVICE_CUDA_CUDA_HEAD_H

#include "cuda_int.h"

/* Elements that a thread moves at once: 16 bytes of bf16, twice 16 of f32. */
enum { TR_CUDA_HEAD_PACK = 8 };

/* `count` rows of logits (count, tokens), `stride` elements apart, a multiple of the pack; they are rows `first` and on of
 * the whole, of which `per_sample` have one weight. */
typedef struct {
    int64_t first, count, per_sample, tokens, stride;
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
#ifdef __cplusplus
}
#endif

#endif
