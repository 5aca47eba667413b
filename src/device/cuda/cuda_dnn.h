/*
 * Private: convolutions as graphs of cuDNN's backend interface. cuDNN names dimensions N C S...,
 * whatever their order in memory; ours lie N S... C.
 */
#ifndef TRAINER_CUDA_DNN_H
#define TRAINER_CUDA_DNN_H

#include "cuda_int.h"

typedef enum {
    CUDA_DNN_FORWARD,
    CUDA_DNN_BACKWARD_DATA,
    CUDA_DNN_BACKWARD_WEIGHTS
} cuda_dnn_kind_t;

/* x (N, S..., C), w (K, kernel..., C / groups), y (N, S'..., K), in whichever direction data move.
 * */
typedef struct {
    cuda_dnn_kind_t kind;
    const tr_conv_attr_t *attr;
    tr_shape_t x, w, y;
    tr_dtype_t dtype; /* of all tensors; BACKWARD_WEIGHTS writes w in f32 */
    bool bias, relu;  /* FORWARD: y = relu(conv + bias), bias (K) of dtype */
} cuda_dnn_conv_t;

/* The addresses of one run. */
typedef struct {
    void *x, *w, *bias, *y; /* bias NULL where there is none */
} cuda_dnn_data_t;

typedef struct cuda_dnn_plan cuda_dnn_plan_t;

/*
 * Chooses an engine: deterministic, f32 without TF32 unless device->tf32, workspace within a limit; the heuristics'
 * order decides. *out is NULL where cuDNN has none for this graph, which is no error.
 */
tr_status_t tr_cuda_dnn_plan(tr_device_t *device, const cuda_dnn_conv_t *conv,
                             cuda_dnn_plan_t **out, size_t *out_workspace_bytes);
tr_status_t tr_cuda_dnn_run(tr_device_t *device, tr_stream_t *stream, const cuda_dnn_plan_t *plan,
                            const cuda_dnn_data_t *data, void *workspace);
void tr_cuda_dnn_release(cuda_dnn_plan_t **plan);

/* Destroys the device's handle, if there is one. */
void tr_cuda_dnn_close(cuda_device_t *cuda);

#endif
