/*
 * Private: causal attention by cuBLASLt's products and a softmax over rows of scores in memory
 * ("standard" attention), where cuDNN has no fused engine for the GPU or the sizes, or none with
 * dropout. bf16 and fp16.
 *
 * It computes as many samples at a time as have their scores in 512 MiB: 6 bytes each forward, 12
 * backward. q, k, v and the results are copied so that each head is contiguous.
 */
#ifndef TR_DEVICE_CUDA_CUDA_PLAIN_ATTENTION_H
#define TR_DEVICE_CUDA_CUDA_PLAIN_ATTENTION_H

#include "device/cuda/cudnn/cuda_dnn_attention.h"
#include "cuda_plain_rows.h"

typedef struct cuda_plain_attention cuda_plain_attention_t;

/* *out NULL: the scratch memory of one sample would be more than 1 GiB. */
tr_status_t tr_cuda_plain_attention_plan(tr_device_t *device, const cuda_dnn_attention_t *attention,
                                         cuda_plain_attention_t **out, size_t *out_scratch_bytes);
tr_status_t tr_cuda_plain_attention_run(tr_device_t *device, tr_stream_t *stream,
                                        const cuda_plain_attention_t *plan,
                                        const cuda_dnn_attention_data_t *data,
                                        const cuda_attention_dropout_t *dropout, void *scratch);
void tr_cuda_plain_attention_release(cuda_plain_attention_t **plan);

#endif
