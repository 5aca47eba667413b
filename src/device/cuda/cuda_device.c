/* An open GPU: memory, streams, events, copies, capture. */
#include "cuda_int.h"
#include "device/cuda/cudnn/cuda_dnn.h"
#include "cuda_errors.h"
#include "cuda_model.h"
#include "cuda_plan_store.h"
#include "cuda_product.h"
#include "device/collectives.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of the memory that is free once the context is open: at most this share, and so much less, or an
 * eighth, for NCCL, modules and graphs, which come later. */
#define MEMORY_SHARE   0.95
#define MEMORY_RESERVE ((size_t)2 << 30)
/* A wait asks all the time at first, then sleeps between its questions. */
#define SPIN_SEC  100e-6
#define SLEEP_SEC 20e-6

tr_status_t tr_cuda_check_at(cudaError_t error, const char *call, const char *file, int line,
                             const char *func) {
    if (error == cudaSuccess) return TR_OK;
    const cuda_error_t row = tr_cuda_error(CUDA_ERRORS_RUNTIME, (int)error);
    return tr_cuda_error_record(&row, file, line, func, "CUDA: %s failed: %s (%s)", call,
                                cudaGetErrorString(error), cudaGetErrorName(error));
}

tr_status_t tr_cuda_enter(const tr_device_t *device) {
    int current = -1;
    if (cuda_self(device)->model) return TR_OK;
    CUDA_TRY(cudaGetDevice(&current));
    if (current != cuda_self(device)->ordinal) CUDA_TRY(cudaSetDevice(cuda_self(device)->ordinal));
    return TR_OK;
}

/* -- memory ------------------------------------------------------------------------------------ */

static tr_status_t cuda_alloc(tr_device_t *device, size_t bytes, unsigned flags, void **out) {
    size_t available = 0, total = 0;
    cuda_shared_memory_t *shared = &cuda_self(device)->shared;
    TR_TRY(tr_cuda_enter(device));
    if (flags & TR_ALLOC_SHARED_BY_RANKS && shared->alloc && !shared->memory) {
        TR_TRY(shared->alloc(device, bytes, &shared->memory));
        return *out = shared->memory, TR_OK;
    }
    const cudaError_t error = cudaMalloc(out, bytes ? bytes : 1);
    if (error != cudaErrorMemoryAllocation) return tr_cuda_check(error, "cudaMalloc");
    (void)cudaGetLastError(); /* this error must not come up again at the next launch */
    CUDA_TRY(cudaMemGetInfo(&available, &total));
    return TR_FAIL(TR_ERR_MEMORY,
                   "%s: no %.1f MiB of memory: %.1f of %.1f MiB are free. Reduce data.micro_batch, "
                   "or end other programs "
                   "on this GPU (nvidia-smi shows them)",
                   device->description, (double)bytes / 0x1p20, (double)available / 0x1p20,
                   (double)total / 0x1p20);
}

/* Nothing can be done about an error of the functions that free. */
static void cuda_free(tr_device_t *device, void *pointer) {
    cuda_shared_memory_t *shared = &cuda_self(device)->shared;
    (void)tr_cuda_enter(device);
    if (!pointer || pointer != shared->memory) {
        cudaFree(pointer);
        return;
    }
    shared->free(device, pointer);
    shared->memory = NULL;
}

static tr_status_t cuda_host_alloc(tr_device_t *device, size_t bytes, void **out) {
    TR_TRY(tr_cuda_enter(device));
    const cudaError_t error = cudaHostAlloc(out, bytes ? bytes : 1, cudaHostAllocDefault);
    if (error != cudaErrorMemoryAllocation) return tr_cuda_check(error, "cudaHostAlloc");
    (void)cudaGetLastError();
    return TR_FAIL(
        TR_ERR_MEMORY,
        "no %.1f MiB of pinned host memory: %s. Reduce data.prefetch or data.micro_batch",
        (double)bytes / 0x1p20, cudaGetErrorString(error));
}

static void cuda_host_free(tr_device_t *device, void *pointer) {
    (void)tr_cuda_enter(device);
    cudaFreeHost(pointer);
}

static tr_status_t cuda_memory_info(tr_device_t *device, size_t *out_free, size_t *out_total) {
    TR_TRY(tr_cuda_enter(device));
    CUDA_TRY(cudaMemGetInfo(out_free, out_total));
    return TR_OK;
}

tr_status_t tr_cuda_total_memory(tr_device_t *device, size_t *out_bytes) {
    size_t available = 0;
    *out_bytes = device->memory_bytes;
    if (cuda_self(device)->model) return TR_OK;
    return cuda_memory_info(device, &available, out_bytes);
}

/* -- streams and events ------------------------------------------------------------------------ */

/* "Not ready" is no error, but the runtime remembers it as one, and the check after the next launch
 * would report it. */
static bool is_pending(cudaError_t error) {
    if (error == cudaErrorNotReady) (void)cudaGetLastError();
    return error == cudaErrorNotReady;
}

static tr_status_t cuda_stream_create(tr_device_t *device, const char *name, tr_priority_t priority,
                                      tr_stream_t **out) {
    int least = 0, greatest = 0;
    tr_stream_t *stream = NULL;
    TR_TRY(tr_cuda_enter(device));
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    TR_TRY(tr_alloc(sizeof *stream, "a stream", &stream));
    const cudaError_t error = cudaStreamCreateWithPriority(
        &stream->handle, cudaStreamNonBlocking, priority == TR_PRIORITY_HIGH ? greatest : least);
    if (error != cudaSuccess) tr_free(&stream);
    *out = stream;
    return tr_cuda_check(error, "cudaStreamCreateWithPriority");
}

static void cuda_stream_destroy(tr_device_t *device, tr_stream_t *stream) {
    (void)tr_cuda_enter(device);
    cudaStreamDestroy(stream->handle);
    tr_free(&stream);
}

/* Between two questions of a wait that began at `began`. */
static tr_status_t pause_wait(const tr_device_t *device, double began) {
    const struct timespec nap = {0, (long)(SLEEP_SEC * 1e9)};
    tr_collectives_t *c = cuda_self(device)->collectives;
    if (tr_clock_sec() - began <= SPIN_SEC) return TR_OK;
    if (c) TR_TRY(c->ops->check(c));
    nanosleep(&nap, NULL);
    return TR_OK;
}

/* After a wait: what the collectives have measured by now. */
static tr_status_t end_wait(const tr_device_t *device, cudaError_t error, const char *who) {
    tr_collectives_t *c = cuda_self(device)->collectives;
    TR_TRY(tr_cuda_check(error, who));
    return c ? c->ops->check(c) : TR_OK;
}

tr_status_t tr_cuda_stream_wait(const tr_device_t *device, cudaStream_t stream, const char *who) {
    const double began = tr_clock_sec();
    cudaError_t error;
    while (is_pending(error = cudaStreamQuery(stream))) TR_TRY(pause_wait(device, began));
    return end_wait(device, error, who);
}

static tr_status_t cuda_stream_sync(tr_device_t *device, tr_stream_t *stream) {
    TR_TRY(tr_cuda_enter(device));
    return tr_cuda_stream_wait(device, stream->handle, "work of a stream");
}

static tr_status_t cuda_event_create(tr_device_t *device, unsigned flags, tr_event_t **out) {
    tr_event_t *event = NULL;
    TR_TRY(tr_cuda_enter(device));
    TR_TRY(tr_alloc(sizeof *event, "an event", &event));
    const cudaError_t error = cudaEventCreateWithFlags(
        &event->handle, flags & TR_EVENT_TIMED ? cudaEventDefault : cudaEventDisableTiming);
    if (error != cudaSuccess) tr_free(&event);
    *out = event;
    return tr_cuda_check(error, "cudaEventCreateWithFlags");
}

static void cuda_event_destroy(tr_device_t *device, tr_event_t *event) {
    (void)tr_cuda_enter(device);
    cudaEventDestroy(event->handle);
    tr_free(&event);
}

static tr_status_t cuda_event_record(tr_device_t *device, tr_event_t *event, tr_stream_t *stream) {
    TR_TRY(tr_cuda_enter(device));
    CUDA_TRY(cudaEventRecord(event->handle, stream->handle));
    return TR_OK;
}

static tr_status_t cuda_event_wait(tr_device_t *device, tr_event_t *event, tr_stream_t *stream) {
    TR_TRY(tr_cuda_enter(device));
    CUDA_TRY(cudaStreamWaitEvent(stream->handle, event->handle, 0));
    return TR_OK;
}

static tr_status_t cuda_event_sync(tr_device_t *device, tr_event_t *event) {
    const double began = tr_clock_sec();
    cudaError_t error;
    TR_TRY(tr_cuda_enter(device));
    while (is_pending(error = cudaEventQuery(event->handle))) TR_TRY(pause_wait(device, began));
    return end_wait(device, error, "work before an event");
}

static tr_status_t cuda_event_elapsed(tr_device_t *device, tr_event_t *first, tr_event_t *last,
                                      double *out_sec) {
    float ms = 0;
    TR_TRY(tr_cuda_enter(device));
    CUDA_TRY(cudaEventElapsedTime(&ms, first->handle, last->handle));
    *out_sec = (double)ms * 1e-3;
    return TR_OK;
}

/* -- copies ------------------------------------------------------------------------------------ */

static tr_status_t cuda_memory_copy(tr_device_t *device, tr_stream_t *stream, void *dst,
                                    const void *src, size_t bytes, tr_copy_kind_t kind) {
    static const enum cudaMemcpyKind kinds[] = {[TR_COPY_TO_DEVICE] = cudaMemcpyHostToDevice,
                                                [TR_COPY_TO_HOST] = cudaMemcpyDeviceToHost,
                                                [TR_COPY_ON_DEVICE] = cudaMemcpyDeviceToDevice};
    TR_TRY(tr_cuda_enter(device));
    if (bytes) CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, kinds[kind], stream->handle));
    return TR_OK;
}

static tr_status_t cuda_memory_zero(tr_device_t *device, tr_stream_t *stream, void *dst,
                                    size_t bytes) {
    TR_TRY(tr_cuda_enter(device));
    if (bytes) CUDA_TRY(cudaMemsetAsync(dst, 0, bytes, stream->handle));
    return TR_OK;
}

/* -- capture ----------------------------------------------------------------------------------- */

static tr_status_t cuda_capture_begin(tr_device_t *device, tr_stream_t *stream) {
    if (cuda_self(device)->sync)
        return TR_FAIL(TR_ERR_CONFIG, "cuda.debug = sync waits after every kernel");
    TR_TRY(tr_cuda_enter(device));
    CUDA_TRY(cudaStreamBeginCapture(stream->handle, cudaStreamCaptureModeThreadLocal));
    return TR_OK;
}

/* An error ends the capture, too, and leaves nothing behind. */
static tr_status_t cuda_capture_end(tr_device_t *device, tr_stream_t *stream,
                                    tr_executable_t **out) {
    cudaGraph_t graph = NULL;
    tr_executable_t *executable = NULL;
    if (out) *out = NULL;
    TR_TRY(tr_cuda_enter(device));
    cudaError_t error = cudaStreamEndCapture(stream->handle, &graph);
    if (error == cudaSuccess && out) {
        const tr_status_t status = tr_alloc(sizeof *executable, "a captured program", &executable);
        if (status == TR_OK) /* collectives keep the priority of their stream */
            error = cudaGraphInstantiate(&executable->handle, graph,
                                         cudaGraphInstantiateFlagUseNodePriority);
        if (status == TR_OK && error != cudaSuccess) tr_free(&executable);
        *out = executable;
    }
    if (graph) cudaGraphDestroy(graph);
    if (error == cudaSuccess) return out && !*out ? tr_error_last()->code : TR_OK;
    (void)cudaGetLastError();
    if (!out) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG, "CUDA cannot capture this work: %s (%s)",
                   cudaGetErrorString(error), cudaGetErrorName(error));
}

static tr_status_t cuda_executable_launch(tr_device_t *device, tr_executable_t *executable,
                                          tr_stream_t *stream) {
    TR_TRY(tr_cuda_enter(device));
    CUDA_TRY(cudaGraphLaunch(executable->handle, stream->handle));
    return TR_OK;
}

static void cuda_executable_destroy(tr_device_t *device, tr_executable_t *executable) {
    (void)tr_cuda_enter(device);
    cudaGraphExecDestroy(executable->handle);
    tr_free(&executable);
}

/* -- open and close ---------------------------------------------------------------------------- */

void tr_cuda_close(tr_device_t *device) {
    cuda_device_t *cuda = cuda_self(device);
    (void)tr_cuda_enter(device);
    tr_cuda_dnn_close(cuda);
    tr_cuda_blas_close(cuda);
    tr_cuda_close_model(cuda);
    tr_free(&cuda);
}

static void cuda_describe(cuda_device_t *cuda, const struct cudaDeviceProp *p) {
    tr_device_t *device = &cuda->base;
    const unsigned char *u = (const unsigned char *)p->uuid.bytes;
    device->ops = &tr_cuda_device_ops;
#ifdef TR_CUDA_NCCL
    device->collectives = &tr_cuda_nccl;
#endif
    device->fast_bf16 = p->major >= 8;
    device->fast_f16 = true;
    device->capability = 10 * p->major + p->minor;
    cuda->multiprocessors = p->multiProcessorCount;
    snprintf(device->uuid, sizeof device->uuid,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
    snprintf(device->bus_id, sizeof device->bus_id, "%04x:%02x:%02x.0", p->pciDomainID, p->pciBusID,
             p->pciDeviceID);
    tr_snprintf(device->description, sizeof device->description,
                "%.120s, %.1f GiB, compute capability %d.%d", p->name,
                (double)p->totalGlobalMem / 0x1p30, p->major, p->minor);
}

size_t tr_cuda_memory_limit(double share, size_t available) {
    const size_t reserve = available / 8 < MEMORY_RESERVE ? available / 8 : MEMORY_RESERVE;
    const size_t most = (size_t)((share > 0 ? share : MEMORY_SHARE) * (double)available);
    return most < available - reserve ? most : available - reserve;
}

tr_status_t tr_cuda_open(const tr_device_params_t *params, tr_device_t **out) {
    struct cudaDeviceProp properties;
    size_t available = 0, total = 0;
    cuda_device_t *cuda = NULL;
    const char *debug = getenv("TRAINER_CUDA_DEBUG");
    if (params->model) return tr_cuda_open_model(params, out);
    tr_cuda_kernels_fill();
    CUDA_TRY(cudaSetDevice(params->index));
    CUDA_TRY(cudaFree(NULL)); /* opens the context */
    CUDA_TRY(cudaGetDeviceProperties(&properties, params->index));
    CUDA_TRY(cudaMemGetInfo(&available, &total));
    if (10 * properties.major + properties.minor < 75)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s has compute capability %d.%d; CUDA 13 begins at 7.5 (T4). Use a newer "
                       "GPU, or device = cpu",
                       properties.name, properties.major, properties.minor);
    TR_TRY(tr_alloc(sizeof *cuda, "the cuda device", &cuda));
    cuda->ordinal = params->index;
    cuda->sync = params->sync || (debug && strcmp(debug, "sync") == 0);
    cuda->tune = params->tune;
    cuda->base.profiled =
        tr_cuda_has_nvtx() && (params->nvtx || (debug && strcmp(debug, "nvtx") == 0));
    cuda_describe(cuda, &properties);
    tr_cuda_errors_gpu(params->index, cuda->base.bus_id, cuda->base.uuid);
    cuda->base.tf32 = params->tf32 && properties.major >= 8;
    cuda->base.bias_sums = true;
    cuda->base.any_order = params->any_order;
    cuda->base.product_act = params->tune;
    cuda->base.memory_bytes = tr_cuda_memory_limit(params->memory_share, available);
    const tr_status_t status = tr_cuda_open_plans(cuda, params->plan_folder);
    if (status == TR_OK)
        *out = &cuda->base;
    else
        tr_cuda_close(&cuda->base);
    return status;
}

const tr_device_ops_t tr_cuda_device_ops = {
    .name = "cuda",
    .close = tr_cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .memory_info = cuda_memory_info,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_sync = cuda_stream_sync,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_sync = cuda_event_sync,
    .event_elapsed = cuda_event_elapsed,
    .choices_get = tr_cuda_plan_store_each,
    .choices_set = tr_cuda_plan_store_take,
    .report = tr_cuda_report_plans,
    .copy = cuda_memory_copy,
    .zero = cuda_memory_zero,
    .range_begin = tr_cuda_range_begin,
    .range_end = tr_cuda_range_end,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .executable_launch = cuda_executable_launch,
    .executable_destroy = cuda_executable_destroy,
    .measure_peak = tr_cuda_measure_peak,
    .place = tr_cuda_nvml_place,
    .kernels = tr_cuda_kernels,
};
