/* Names of ops for Nsight Systems. NVTX is a header: it finds the profiler by itself, and does
 * nothing where there is none. */
#include "cuda_int.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

bool tr_cuda_has_nvtx(void) {
    return true;
}
void tr_cuda_range_begin(tr_device_t *device, const char *name) {
    (void)nvtxRangePushA(name);
}
void tr_cuda_range_end(tr_device_t *device) {
    (void)nvtxRangePop();
}
#else
bool tr_cuda_has_nvtx(void) {
    return false;
}
void tr_cuda_range_begin(tr_device_t *device, const char *name) {}
void tr_cuda_range_end(tr_device_t *device) {}
#endif
