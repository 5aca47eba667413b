/* Handles, versions, names. */
#include "lt_int.h"
#include <stdio.h>
#include <stdlib.h>

struct cublasLtContext {
    int device;
};

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    int count = 0, device = 0;
    LT_CALL("%s", "");
    if (cudaGetDeviceCount(&count) || !count) return CUBLAS_STATUS_NOT_INITIALIZED;
    cudaGetDevice(&device);
    *out = malloc(sizeof **out);
    (*out)->device = device;
    hostcuda_count("cublasLt handles", 1);
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    hostcuda_count("cublasLt handles", -1);
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT size_t cublasLtGetVersion(void) { return (size_t)hostcuda_env("HOSTCUDA_CUBLASLT_VERSION", CUBLAS_VERSION); }
EXPORT size_t cublasLtGetCudartVersion(void) { return CUDART_VERSION; }
EXPORT cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int *value) {
    const int version = (int)cublasLtGetVersion();
    *value = type == MAJOR_VERSION ? version / 10000 : type == MINOR_VERSION ? version / 100 % 100 : version % 100;
    return CUBLAS_STATUS_SUCCESS;
}

static const struct {
    cublasStatus_t status;
    const char *name, *text;
} names[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE", "an unsupported value or parameter was passed"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH", "the architecture lacks a feature"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "the GPU program failed to execute"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "the functionality is not supported"},
};
EXPORT const char *cublasLtGetStatusName(cublasStatus_t status) {
    for (size_t i = 0; i < COUNT(names); i++)
        if (names[i].status == status) return names[i].name;
    return "unknown status";
}
EXPORT const char *cublasLtGetStatusString(cublasStatus_t status) {
    for (size_t i = 0; i < COUNT(names); i++)
        if (names[i].status == status) return names[i].text;
    return "unknown status";
}

EXPORT cublasStatus_t cublasLtLoggerSetCallback(cublasLtLoggerCallback_t callback) {
    (void)callback;
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtLoggerSetLevel(int level) {
    (void)level;
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtHeuristicsCacheSetCapacity(size_t capacity) {
    (void)capacity;
    return CUBLAS_STATUS_SUCCESS;
}
