/*
 * A libcuda.so.1 without a GPU, for `trainer plan --gpu` alone: cuDNN loads the kernels that it
 * compiles into nothing, so that it can make execution plans on a machine that has no GPU, and no
 * driver. Whoever asks for a device is told that there is none.
 *
 * cuDNN looks these functions up by name. It passes over an engine of which one is missing.
 */

enum { SUCCESS = 0, NO_DEVICE = 100 }; /* of CUresult */

#define STUB __attribute__((visibility("default"), used))

/* A handle that no function but these gets to see. */
static char nothing;

#define GIVES_A_HANDLE(name)                                                                       \
    STUB int name(void **out);                                                                     \
    int name(void **out) {                                                                         \
        *out = &nothing;                                                                           \
        return SUCCESS;                                                                            \
    }
#define GIVES(name, value)                                                                         \
    STUB int name(int *out);                                                                       \
    int name(int *out) {                                                                           \
        *out = value;                                                                              \
        return SUCCESS;                                                                            \
    }
#define DOES_NOTHING(name)                                                                         \
    STUB int name(void);                                                                           \
    int name(void) {                                                                               \
        return SUCCESS;                                                                            \
    }
#define HAS_NO_DEVICE(name)                                                                        \
    STUB int name(void);                                                                           \
    int name(void) {                                                                               \
        return NO_DEVICE;                                                                          \
    }

GIVES(cuDriverGetVersion, 13000)
GIVES(cuKernelGetAttribute, 0)
GIVES(cuFuncGetAttribute, 0)

GIVES_A_HANDLE(cuLibraryLoadData)
GIVES_A_HANDLE(cuLibraryGetKernel)
GIVES_A_HANDLE(cuModuleLoadData)
GIVES_A_HANDLE(cuModuleLoadDataEx)
GIVES_A_HANDLE(cuModuleLoadFatBinary)
GIVES_A_HANDLE(cuModuleGetFunction)
GIVES_A_HANDLE(cuKernelGetFunction)

DOES_NOTHING(cuLibraryUnload)
DOES_NOTHING(cuModuleUnload)
DOES_NOTHING(cuKernelSetAttribute)
DOES_NOTHING(cuFuncSetAttribute)

HAS_NO_DEVICE(cuInit)
HAS_NO_DEVICE(cuDeviceGet)
HAS_NO_DEVICE(cuDeviceGetCount)
HAS_NO_DEVICE(cuDeviceGetAttribute)
HAS_NO_DEVICE(cuDevicePrimaryCtxRetain)
HAS_NO_DEVICE(cuDevicePrimaryCtxRelease)
HAS_NO_DEVICE(cuDevicePrimaryCtxReset)
HAS_NO_DEVICE(cuCtxGetCurrent)
HAS_NO_DEVICE(cuCtxGetDevice)
HAS_NO_DEVICE(cuCtxGetLimit)
HAS_NO_DEVICE(cuCtxPushCurrent)
HAS_NO_DEVICE(cuCtxPopCurrent)
HAS_NO_DEVICE(cuStreamGetCtx)
HAS_NO_DEVICE(cuStreamSynchronize)
HAS_NO_DEVICE(cuMemcpyDtoH_v2)
HAS_NO_DEVICE(cuModuleGetGlobal_v2)
HAS_NO_DEVICE(cuLaunchKernel)
HAS_NO_DEVICE(cuLaunchKernelEx)
HAS_NO_DEVICE(cuLaunchCooperativeKernel)
HAS_NO_DEVICE(cuLibraryLoadFromFile)
HAS_NO_DEVICE(cuLinkCreate)
HAS_NO_DEVICE(cuLinkCreate_v2)
HAS_NO_DEVICE(cuLinkAddData)
HAS_NO_DEVICE(cuLinkAddData_v2)
HAS_NO_DEVICE(cuLinkAddFile_v2)
HAS_NO_DEVICE(cuLinkComplete)
HAS_NO_DEVICE(cuLinkDestroy)
HAS_NO_DEVICE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
HAS_NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
HAS_NO_DEVICE(cuTensorMapEncodeTiled)
HAS_NO_DEVICE(cuGetErrorName)
HAS_NO_DEVICE(cuGetErrorString)
