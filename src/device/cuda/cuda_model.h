/*
 * Private: a GPU that is not in this machine, by its properties. cuDNN makes its execution plans
 * for it, and cuBLASLt's workspaces are counted at their limit; nothing can run.
 */
#ifndef TR_DEVICE_CUDA_CUDA_MODEL_H
#define TR_DEVICE_CUDA_CUDA_MODEL_H

#include "cuda_int.h"

/* Opens the device of params->model. */
tr_status_t tr_cuda_open_model(const tr_device_params_t *params, tr_device_t **out);
void tr_cuda_close_model(cuda_device_t *cuda);
/* cuda_device.c: frees what a device has; the model's too. */
void tr_cuda_close(tr_device_t *device);
/* cuDNN's descriptor of the properties; NULL where the device is a GPU of this machine. */
void *tr_cuda_model_properties(const cuda_device_t *cuda);
/* Whether this cuDNN is too old to plan for such a GPU: then workspaces are counted at their limit.
 */
bool tr_cuda_model_is_bound(const cuda_device_t *cuda);

#endif
