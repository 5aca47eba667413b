/*
 * Private: filter gradients of convolutions of few channels as products by cuBLASLt. The pixels under
 * a filter become a row of a matrix u ("unfolded", im2col), a slice of the images at a time:
 *
 *     dw (K, columns) = sum of dy^T u over pieces of the images, added in their order
 *
 * cuDNN has one sum over all positions for each of a few tiles, so most of a GPU waits.
 */
#ifndef TR_DEVICE_CUDA_CUDNN_CUDA_UNFOLD_H
#define TR_DEVICE_CUDA_CUDNN_CUDA_UNFOLD_H

#include "cuda_dnn.h"

/* Columns of u are a multiple of this: 16 bytes of bf16 or f16. */
enum { CUDA_UNFOLD_PACK = 8 };

/* What is unfolded: three spatial dimensions, leading ones of size 1 where there are fewer. */
typedef struct {
    int size[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
    int channels, taps, columns; /* columns: taps x channels, and zeros */
    int line; /* elements of a line of pixels, with padding, under a line of positions */
} cuda_unfold_t;

/* The bytes of shared memory of a block: places of columns, and the lines under all taps. */
static inline size_t cuda_unfold_shared_bytes(const cuda_unfold_t *u) {
    return sizeof(uint16_t) * (size_t)(u->columns + u->taps / u->kernel[2] * u->line);
}

#ifdef __cplusplus
extern "C" {
#endif
/* kernels/cuda_unfold.cu: images x, bf16 or f16, to u (images x positions, columns). */
tr_status_t tr_cuda_unfold(tr_stream_t *stream, const void *x, void *u, const cuda_unfold_t *unfold,
                           int64_t images);
#ifdef __cplusplus
}
#endif

typedef struct cuda_unfold_plan cuda_unfold_plan_t;

/* Of a filter gradient. *out is NULL where it does not suit, which is no error. */
tr_status_t tr_cuda_unfold_plan(tr_device_t *device, const cuda_dnn_conv_t *conv,
                                cuda_unfold_plan_t **out, size_t *out_scratch_bytes);
tr_status_t tr_cuda_unfold_run(tr_device_t *device, tr_stream_t *stream,
                               const cuda_unfold_plan_t *plan, const cuda_dnn_data_t *data,
                               void *scratch);
void tr_cuda_unfold_release(cuda_unfold_plan_t **plan);

#endif
