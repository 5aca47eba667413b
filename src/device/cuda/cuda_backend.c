/* The backend that libtrainer_cuda.so exports: whether CUDA can be used here, how many GPUs, which
 * versions. */
#ifdef TR_CUDA_NCCL
#include "device/cuda/nccl/cuda_nccl.h"
#else
#include "cuda_int.h"
#endif
#include "cuda_errors.h"
#include "device/library.h"
#include <cublasLt.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <stdio.h>

#define LEAST_CUDA  12040
#define LEAST_CUDNN 90000

cuda_version_t tr_cuda_version(int number) {
    cuda_version_t v;
    snprintf(v.text, sizeof v.text, "%d.%d", number / 1000, number % 1000 / 10);
    return v;
}

static cuda_version_t cudnn_version(size_t number) {
    cuda_version_t v;
    snprintf(v.text, sizeof v.text, "%zu.%zu.%zu", number / 10000, number % 10000 / 100,
             number % 100);
    return v;
}

/* A version that is too old, or NULL. */
static const char *find_old_library(void) {
    static char reason[256];
    int runtime = 0;
    if (cudaRuntimeGetVersion(&runtime) == cudaSuccess && runtime < LEAST_CUDA)
        snprintf(reason, sizeof reason, "the CUDA runtime is %s, and %s or later is needed",
                 tr_cuda_version(runtime).text, tr_cuda_version(LEAST_CUDA).text);
    else if (cudnnGetVersion() < LEAST_CUDNN)
        snprintf(reason, sizeof reason, "cuDNN is %s, and %s or later is needed",
                 cudnn_version(cudnnGetVersion()).text, cudnn_version(LEAST_CUDNN).text);
    else
        return NULL;
    return reason;
}

static const char *cuda_unavailable(void) {
    static char reason[256];
    int count = 0, driver = 0, runtime = 0;
    const char *old = find_old_library();
    if (old) return old;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return NULL;
    (void)cudaGetLastError();
    if (error != cudaErrorNoDevice && tr_cuda_error(CUDA_ERRORS_RUNTIME, (int)error).blames)
        return NULL; /* opening it says so, and that the hardware failed */
    if (error == cudaSuccess || error == cudaErrorNoDevice)
        return "no GPU is visible to this process (see CUDA_VISIBLE_DEVICES, and --gpus of srun)";
    if (error == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
        driver == 0)
        return "there is no NVIDIA driver";
    (void)cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorInsufficientDriver)
        snprintf(reason, sizeof reason,
                 "the NVIDIA driver supports CUDA %s, and this program is built for %s",
                 tr_cuda_version(driver).text, tr_cuda_version(runtime).text);
    else
        snprintf(reason, sizeof reason, "%s (%s)", cudaGetErrorString(error),
                 cudaGetErrorName(error));
    return reason;
}

static tr_status_t cuda_count(int *out) {
    CUDA_TRY(cudaGetDeviceCount(out));
    return TR_OK;
}

/* "9.19.0, /usr/lib/libcudnn.so.9": a library by one of its functions. */
static void report_library(tr_report_row_fn row, void *self, const char *name, const char *version,
                           void *function) {
    Dl_info place = {0};
    char text[600];
    if (!dladdr(function, &place)) place.dli_fname = "";
    snprintf(text, sizeof text, "%s, %s", version, place.dli_fname);
    row(self, name, text);
}

static void report_nccl(tr_report_row_fn row, void *self) {
#ifdef TR_CUDA_NCCL
    const char *reason = NULL;
    const cuda_nccl_t *nccl = tr_cuda_nccl_load(&reason);
    char version[32] = "";
    if (nccl)
        snprintf(version, sizeof version, "%d.%d.%d", nccl->version / 10000,
                 nccl->version / 100 % 100, nccl->version % 100);
    if (nccl)
        report_library(row, self, "NCCL", version, (void *)nccl->GetVersion);
    else
        row(self, "NCCL", reason);
#else
    row(self, "NCCL", "none: this build has no nccl.h");
#endif
}

static tr_status_t cuda_report(tr_report_row_fn row, void *self) {
    int runtime = 0;
    const size_t blas = cublasLtGetVersion();
    char text[64];
    (void)cudaRuntimeGetVersion(&runtime);
    report_library(row, self, "CUDA runtime", tr_cuda_version(runtime).text,
                   (void *)cudaRuntimeGetVersion);
    snprintf(text, sizeof text, "%zu.%zu.%zu", blas / 10000, blas % 10000 / 100, blas % 100);
    report_library(row, self, "cuBLASLt", text, (void *)cublasLtGetVersion);
    report_library(row, self, "cuDNN", cudnn_version(cudnnGetVersion()).text,
                   (void *)cudnnGetVersion);
    report_nccl(row, self);
    tr_cuda_nvml_report(row, self);
    return TR_OK;
}

const tr_backend_t tr_library_backend = {
    .name = "cuda",
    .help = "NVIDIA GPUs, by cuBLASLt, cuDNN and kernels of its own",
    .unavailable = cuda_unavailable,
    .count = cuda_count,
    .near_cores = tr_cuda_nvml_near_cores,
    .open = tr_cuda_open,
    .report = cuda_report,
    .sample = tr_cuda_nvml_sample,
};
