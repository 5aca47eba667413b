/* The device of a kind of GPU that need not be in this machine. */
#include "cuda_model.h"
#include "device/cuda/cudnn/cuda_dnn_int.h"
#include "cuda_plan_store.h"
#include "device/gpu_kinds.h"
#include "base/mem.h"
#include "base/str.h"
#include <stdio.h>
#include <string.h>

/* The first version that plans for a GPU by its properties. */
#define LEAST_CUDNN 91100

typedef struct {
    desc_t properties; /* NULL: cuDNN is too old */
} cuda_model_t;

static void properties_json(const tr_gpu_kind_t *kind, tr_str_t *out) {
    const tr_gpu_limits_t *limits = tr_gpu_limits_of(kind->capability);
    int runtime = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    tr_str_printf(out,
                  "{\"deviceName\": \"%s\", \"cudaDeviceId\": 0, \"deviceVer\": %d, "
                  "\"driverVer\": %d, \"maxGridSize\": [2147483647, 65535, 65535], "
                  "\"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
                  "\"multiProcessorCount\": %d, \"smClockRateKHz\": %d, \"memClockRateKHz\": %d, "
                  "\"l2CacheSize\": %d, \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, "
                  "\"maxSharedMemoryPerBlockOptin\": %d, \"reservedSharedMemoryPerBlock\": 1024, "
                  "\"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, \"maxCtasPerSM\": %d, "
                  "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": %d, \"isTccDriver\": 0, "
                  "\"supportCoopLaunch\": 1, \"totalGlobalMem\": %lld}",
                  kind->title, kind->capability * 10, runtime, kind->multiprocessors,
                  kind->sm_clock_khz, kind->memory_clock_khz, kind->l2_bytes, limits->shared_optin,
                  limits->blocks, limits->threads, (long long)kind->memory_bytes);
}

static tr_status_t describe_to_cudnn(const tr_gpu_kind_t *kind, cuda_model_t *model) {
    tr_str_t json = {0};
    tr_status_t status = TR_OK;
    properties_json(kind, &json);
    TR_TRY(json.status);
    TR_TRY_GOTO(tr_cuda_dnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR,
                                                               &model->properties),
                                  "cudnnBackendCreateDescriptor", __FILE__, __LINE__, __func__),
                done);
    TR_TRY_GOTO(tr_cuda_dnn_set(model->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                CUDNN_TYPE_CHAR, (int64_t)json.length + 1, json.text),
                done);
    TR_TRY_GOTO(tr_cuda_dnn_finalize(model->properties), done);
done:
    tr_str_free(&json);
    return status;
}

/* -- the device: only `prepare` of its kernels works ---------------------------------------------
 * */

static tr_status_t cuda_model_no_memory(tr_device_t *device, size_t bytes, unsigned flags,
                                        void **out) {
    (void)flags;
    return TR_FAIL(TR_ERR_INTERNAL, "%s: %zu bytes of memory were asked for", device->description,
                   bytes);
}

/* A graph makes its stream before it is planned. */
static tr_status_t stream_create(tr_device_t *device, const char *name, tr_priority_t priority,
                                 tr_stream_t **out) {
    (void)device, (void)name, (void)priority;
    return tr_alloc(sizeof **out, "a stream", out);
}

static void stream_destroy(tr_device_t *device, tr_stream_t *stream) {
    (void)device;
    tr_free(&stream);
}

static const tr_device_ops_t model_ops = {
    .name = "cuda",
    .close = tr_cuda_close,
    .alloc = cuda_model_no_memory,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .report = tr_cuda_report_plans,
    .kernels = tr_cuda_kernels,
};

static void model_describe(cuda_device_t *cuda, const tr_gpu_kind_t *kind, bool bound,
                           double share) {
    tr_device_t *device = &cuda->base;
    device->ops = &model_ops;
    device->fast_bf16 = kind->bf16 > 0;
    device->fast_f16 = true;
    device->capability = kind->capability;
    device->memory_bytes = tr_cuda_memory_limit(share, (size_t)kind->memory_bytes);
    cuda->multiprocessors = kind->multiprocessors;
    tr_snprintf(device->description, sizeof device->description,
                "%s, %.1f GiB, compute capability %d.%d, planned without the GPU%s", kind->title,
                (double)kind->memory_bytes / 0x1p30, kind->capability / 10, kind->capability % 10,
                bound ? " (cuDNN is older than 9.11: workspaces are upper bounds)" : "");
}

tr_status_t tr_cuda_open_model(const tr_device_params_t *params, tr_device_t **out) {
    const tr_gpu_kind_t *kind = NULL;
    cuda_device_t *cuda = NULL;
    cuda_model_t *model = NULL;
    tr_status_t status = TR_OK;
    const bool bound = cudnnGetVersion() < LEAST_CUDNN;
    TR_TRY(tr_gpu_kind_find(params->model, &kind));
    tr_cuda_kernels_fill();
    TR_TRY(tr_alloc(sizeof *cuda, "the cuda device", &cuda));
    TR_TRY_GOTO(tr_alloc(sizeof *model, "the cuda device", &model), fail);
    cuda->model = model;
    cuda->base.tf32 = params->tf32 && kind->tf32 > 0;
    cuda->base.bias_sums = true;
    cuda->base.any_order = params->any_order;
    model_describe(cuda, kind, bound, params->memory_share);
    if (!bound) TR_TRY_GOTO(describe_to_cudnn(kind, model), fail);
    TR_TRY_GOTO(tr_cuda_open_plans(cuda, params->plan_folder), fail);
    *out = &cuda->base;
    return TR_OK;
fail:
    tr_cuda_close(&cuda->base);
    return status;
}

void tr_cuda_close_model(cuda_device_t *cuda) {
    cuda_model_t *model = cuda->model;
    if (!model) return;
    if (model->properties) cudnnBackendDestroyDescriptor(model->properties);
    tr_free(&model);
    cuda->model = NULL;
}

void *tr_cuda_model_properties(const cuda_device_t *cuda) {
    const cuda_model_t *model = cuda->model;
    return model ? model->properties : NULL;
}

bool tr_cuda_model_is_bound(const cuda_device_t *cuda) {
    return cuda->model && !tr_cuda_model_properties(cuda);
}
