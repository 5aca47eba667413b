/* Handles, versions, names. */
#include "dnn_int.h"
#include <stdlib.h>

struct cudnnContext {
    cudaStream_t stream;
    int device;
};

EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t *out) {
    int count = 0;
    if (hostcuda_call(__func__, "%s", "")) return CUDNN_STATUS_INTERNAL_ERROR;
    if (cudaGetDeviceCount(&count) || !count) return dnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "no device");
    *out = calloc(1, sizeof **out);
    cudaGetDevice(&(*out)->device);
    hostcuda_count("cudnn handles", 1);
    return CUDNN_STATUS_SUCCESS;
}
EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    if (handle) hostcuda_count("cudnn handles", -1);
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}
EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    if (hostcuda_call(__func__, "%s", "")) return CUDNN_STATUS_INTERNAL_ERROR;
    if (!handle) return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "handle");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}
EXPORT cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
    if (!handle) return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "handle");
    *stream = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT size_t cudnnGetVersion(void) { return (size_t)hostcuda_env("HOSTCUDA_CUDNN_VERSION", CUDNN_VERSION); }
EXPORT size_t cudnnGetCudartVersion(void) { return CUDART_VERSION; }
EXPORT size_t cudnnGetMaxDeviceVersion(void) { return 1210; }
EXPORT cudnnStatus_t cudnnGraphVersionCheck(void) { return CUDNN_STATUS_SUCCESS; }
EXPORT cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int *value) {
    const int version = (int)cudnnGetVersion();
    *value = type == MAJOR_VERSION ? version / 10000 : type == MINOR_VERSION ? version / 100 % 100 : version % 100;
    return CUDNN_STATUS_SUCCESS;
}
EXPORT const char *cudnnGetErrorString(cudnnStatus_t status) {
#define NAME(status) case status: return #status
    switch ((int)status) {
        NAME(CUDNN_STATUS_SUCCESS);
        NAME(CUDNN_STATUS_NOT_INITIALIZED);
        NAME(CUDNN_STATUS_BAD_PARAM);
        NAME(CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
        NAME(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
        NAME(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
        NAME(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
        NAME(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
        NAME(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
        NAME(CUDNN_STATUS_NOT_SUPPORTED);
        NAME(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
        NAME(CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
        NAME(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
        NAME(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT);
        NAME(CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH);
        NAME(CUDNN_STATUS_INTERNAL_ERROR);
        NAME(CUDNN_STATUS_EXECUTION_FAILED);
    }
    return "unknown status";
}
