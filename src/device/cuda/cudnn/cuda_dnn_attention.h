/*
 * Private: causal attention of packed q, k, v by cuDNN: its fused flash engines recognise the
 * sequence of products, masks and softmax that is written here. bf16 and fp16.
 */
#ifndef TR_DEVICE_CUDA_CUDNN_CUDA_DNN_ATTENTION_H
#define TR_DEVICE_CUDA_CUDNN_CUDA_DNN_ATTENTION_H

#include "cuda_dnn.h"

typedef struct {
    int64_t samples, heads, steps, size; /* B, H, T, D; C = H D */
    tr_dtype_t dtype;
    bool backward;
    bool drops; /* probabilities are multiplied with a mask and a factor */
} cuda_dnn_attention_t;

/* Addresses as of ATTENTION_FWD and ATTENTION_BWD in device/kernels.h. Forward writes y and lse;
 * backward reads them and dy, and writes dqkv. */
typedef struct {
    void *qkv, *y, *lse, *dy, *dqkv;
    void *mask;   /* where `drops`: (B, H, T, T) of the type of q, the factor or zero */
    float factor; /* likewise: of the probabilities that are kept, 1 / (1 - p) */
} cuda_dnn_attention_data_t;

/* The addresses of group `index`, of group->samples samples each, without its mask. */
cuda_dnn_attention_data_t tr_cuda_attention_group(const cuda_dnn_attention_t *group,
                                                  const cuda_dnn_attention_data_t *all,
                                                  int64_t index);

/* *out NULL: cuDNN has no engine for these sizes or this GPU, or none that is deterministic. */
tr_status_t tr_cuda_dnn_attention_plan(tr_device_t *device, const cuda_dnn_attention_t *attention,
                                       cuda_dnn_plan_t **out);
tr_status_t tr_cuda_dnn_attention_run(tr_device_t *device, tr_stream_t *stream,
                                      const cuda_dnn_plan_t *plan,
                                      const cuda_dnn_attention_t *attention,
                                      const cuda_dnn_attention_data_t *data, void *workspace);

#endif
