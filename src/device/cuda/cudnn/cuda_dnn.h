/*
 * Private: convolutions as graphs of cuDNN's backend interface. cuDNN names dimensions N C S...,
 * whatever their order in memory; ours lie N S... C.
 */
#ifndef TR_DEVICE_CUDA_CUDNN_CUDA_DNN_H
#define TR_DEVICE_CUDA_CUDNN_CUDA_DNN_H

#include "device/cuda/cuda_int.h"

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
 * Chooses an engine: deterministic, f32 without TF32 unless device->tf32, workspace within a
 * limit; the heuristics' order decides. *out is NULL where cuDNN has none for this graph, which is
 * no error.
 */
tr_status_t tr_cuda_dnn_plan(tr_device_t *device, const cuda_dnn_conv_t *conv,
                             cuda_dnn_plan_t **out, size_t *out_workspace_bytes);
tr_status_t tr_cuda_dnn_run(tr_device_t *device, tr_stream_t *stream, const cuda_dnn_plan_t *plan,
                            const cuda_dnn_data_t *data, void *workspace);
void tr_cuda_dnn_release(cuda_dnn_plan_t **plan);
size_t tr_cuda_dnn_workspace(const cuda_dnn_plan_t *plan);
/* "cuDNN engine 10, compiled" */
void tr_cuda_dnn_describe(const cuda_dnn_plan_t *plan, char *text, size_t text_bytes);

/* TR_ERR_CONFIG: cuDNN has no engine for `what`, e.g. "forward pass". */
tr_status_t tr_cuda_conv_fail(const char *what, const cuda_dnn_conv_t *c);

/* Makes the device's store of plans; folder NULL or "": in memory only. */
tr_status_t tr_cuda_open_plans(cuda_device_t *cuda, const char *folder);
/* The device's report: how many plans were made and restored since it was opened. */
tr_status_t tr_cuda_report_plans(tr_device_t *device, tr_report_row_fn row, void *self);
/* Destroys the device's handle, if there is one, and its stored plans. */
void tr_cuda_dnn_close(cuda_device_t *cuda);

#endif
