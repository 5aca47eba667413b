/* The kinds of GPU that plans can be made for without one. */
#include "cuda_model.h"
#include "device/cuda/cudnn/cuda_dnn_int.h"
#include "cuda_plan_store.h"
#include "base/mem.h"
#include "base/str.h"
#include <stdio.h>
#include <string.h>

/* The first version that plans for a GPU by its properties. */
#define LEAST_CUDNN 91100

typedef struct {
    desc_t properties; /* NULL: cuDNN is too old */
} cuda_model_t;

/*
 * Clocks only order cuDNN's engines. Multiprocessors, shared memory, cache and memory are from
 * NVIDIA's data sheets and CUDA's programming guide; no GPU has given its own properties yet.
 */
typedef struct {
    const char *name, *title;
    int capability, multiprocessors, sm_clock_khz, memory_clock_khz, l2_bytes, shared_optin;
    int64_t memory_bytes;
} row_t;
static const row_t rows[] = {
    {"a100", "NVIDIA A100-SXM4-80GB", 80, 108, 1410000, 1593000, 41943040, 166912, 85100000000},
    {"h100", "NVIDIA H100 80GB HBM3", 90, 132, 1980000, 2619000, 52428800, 232448, 85000000000},
    {"h200", "NVIDIA H200", 90, 132, 1980000, 3201000, 62914560, 232448, 150754820096},
    {"b200", "NVIDIA B200", 100, 148, 1965000, 3996000, 132644864, 232448, 191500000000},
};

static tr_status_t find_row(const char *name, const row_t **out) {
    for (size_t i = 0; i < TR_COUNT(rows); i++)
        if (strcmp(rows[i].name, name) == 0) return *out = &rows[i], TR_OK;
    return TR_FAIL(TR_ERR_USAGE, "unknown GPU '%s': expected a100, h100, h200 or b200", name);
}

static void properties_json(const row_t *row, tr_str_t *out) {
    int runtime = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    tr_str_printf(out,
                  "{\"deviceName\": \"%s\", \"cudaDeviceId\": 0, \"deviceVer\": %d, "
                  "\"driverVer\": %d, \"maxGridSize\": [2147483647, 65535, 65535], "
                  "\"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
                  "\"multiProcessorCount\": %d, \"smClockRateKHz\": %d, \"memClockRateKHz\": %d, "
                  "\"l2CacheSize\": %d, \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, "
                  "\"maxSharedMemoryPerBlockOptin\": %d, \"reservedSharedMemoryPerBlock\": 1024, "
                  "\"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, \"maxCtasPerSM\": 32, "
                  "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"isTccDriver\": 0, "
                  "\"supportCoopLaunch\": 1, \"totalGlobalMem\": %lld}",
                  row->title, row->capability * 10, runtime, row->multiprocessors,
                  row->sm_clock_khz, row->memory_clock_khz, row->l2_bytes, row->shared_optin,
                  (long long)row->memory_bytes);
}

static tr_status_t describe_to_cudnn(const row_t *row, cuda_model_t *model) {
    tr_str_t json = {0};
    tr_status_t status = TR_OK;
    properties_json(row, &json);
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

static void model_describe(cuda_device_t *cuda, const row_t *row, bool bound, double share) {
    tr_device_t *device = &cuda->base;
    device->ops = &model_ops;
    device->fast_bf16 = device->fast_f16 = true;
    device->capability = row->capability;
    device->memory_bytes = (size_t)(share * (double)row->memory_bytes);
    cuda->multiprocessors = row->multiprocessors;
    tr_snprintf(device->description, sizeof device->description,
                "%s, %.1f GiB, compute capability %d.%d, planned without the GPU%s", row->title,
                (double)row->memory_bytes / 0x1p30, row->capability / 10, row->capability % 10,
                bound ? " (cuDNN is older than 9.11: workspaces are upper bounds)" : "");
}

tr_status_t tr_cuda_open_model(const tr_device_params_t *params, tr_device_t **out) {
    const row_t *row = NULL;
    cuda_device_t *cuda = NULL;
    cuda_model_t *model = NULL;
    tr_status_t status = TR_OK;
    const bool bound = cudnnGetVersion() < LEAST_CUDNN;
    TR_TRY(find_row(params->model, &row));
    tr_cuda_kernels_fill();
    TR_TRY(tr_alloc(sizeof *cuda, "the cuda device", &cuda));
    TR_TRY_GOTO(tr_alloc(sizeof *model, "the cuda device", &model), fail);
    cuda->model = model;
    cuda->base.tf32 = params->tf32;
    cuda->base.conv_stats = params->conv_stats;
    model_describe(cuda, row, bound, params->memory_share > 0 ? params->memory_share : 0.95);
    if (!bound) TR_TRY_GOTO(describe_to_cudnn(row, model), fail);
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
