/* Memory that ranks may register with each other. */
#include "nccl_int.h"
#include <stdio.h>

static struct {
    void *base;
    size_t bytes;
    int windows; /* that are registered */
} blocks[256];

static int find(const void *pointer) {
    for (int i = 0; i < 256; i++)
        if (blocks[i].base && (const char *)pointer >= (char *)blocks[i].base &&
            (const char *)pointer < (char *)blocks[i].base + blocks[i].bytes)
            return i;
    return -1;
}

/* Whole pages of 2 MiB, as the real one allocates. */
EXPORT ncclResult_t ncclMemAlloc(void **out, size_t bytes) {
    NCCL_CALL("%zu", bytes);
    const size_t page = (size_t)2 << 20, whole = (bytes + page - 1) / page * page;
    if (cudaMalloc(out, whole)) return ncclUnhandledCudaError;
    for (int i = 0; i < 256; i++) {
        if (blocks[i].base) continue;
        blocks[i].base = *out;
        blocks[i].bytes = whole;
        return ncclSuccess;
    }
    cudaFree(*out);
    return ncclInternalError;
}
EXPORT ncclResult_t ncclMemFree(void *pointer) {
    NCCL_CALL("%s", "");
    const int i = find(pointer);
    if (pointer && i < 0)
        return nccl_refuse(NULL, ncclInvalidArgument, "this memory is not from ncclMemAlloc");
    if (pointer && blocks[i].windows) {
        fprintf(stderr, "hostcuda: ncclMemFree: this memory still has a window\n");
        return nccl_refuse(NULL, ncclInvalidUsage, "this memory still has a window");
    }
    if (pointer) blocks[i].base = NULL;
    return cudaFree(pointer) ? ncclUnhandledCudaError : ncclSuccess;
}

/* HOSTCUDA_NCCL_WINDOWS=0: a machine where windows are not possible; the window is NULL then,
 * which is no error. */
EXPORT ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *base, size_t bytes,
                                           ncclWindow_t *out, int flags) {
    NCCL_CALL("%zu %d", bytes, flags);
    const ncclResult_t ready = nccl_check(comm);
    *out = NULL;
    if (ready) return ready;
    if (find(base) < 0 || !hostcuda_accessible(base, bytes) ||
        (uintptr_t)base % NCCL_WIN_REQUIRED_ALIGNMENT)
        return nccl_refuse(comm, ncclInvalidArgument,
                           "a window needs aligned memory of ncclMemAlloc");
    if (!hostcuda_env("HOSTCUDA_NCCL_WINDOWS", 1)) return ncclSuccess;
    *out = (ncclWindow_t)&blocks[find(base)];
    blocks[find(base)].windows++;
    hostcuda_count("nccl windows", 1);
    return nccl_result(comm, ncclSuccess);
}
EXPORT ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
    NCCL_CALL("%s", "");
    if (!comm || !window) return ncclSuccess;
    for (int i = 0; i < 256; i++)
        if ((void *)window == (void *)&blocks[i]) blocks[i].windows--;
    hostcuda_count("nccl windows", -1);
    return ncclSuccess;
}
EXPORT ncclResult_t ncclCommRegister(const ncclComm_t comm, void *base, size_t bytes,
                                     void **handle) {
    NCCL_CALL("%zu", bytes);
    const ncclResult_t ready = nccl_check(comm);
    *handle = base;
    return ready;
}
EXPORT ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
    (void)comm, (void)handle;
    return ncclSuccess;
}
