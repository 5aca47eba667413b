/* The cpu device: host memory, and streams that run all work immediately, so that streams and
 * events are only names. */
#include "cpu_int.h"
#include "cpu_onednn.h"
#include "base/host.h"
#include "base/mem_shared.h"
#include "device/waits.h"
#include <string.h>

#define MEMORY_ALIGN 256
/* Bytes from which one thread no longer fills the memory bandwidth within the time it takes to wake
 * the others. */
#define PARALLEL_COPY_BYTES (1 << 20)

typedef struct {
    tr_device_t base;
    tr_device_ops_t ops; /* with the kernels of a set of instructions */
    char stream, event; /* their addresses are the handles of all streams and events */
    tr_waits_t *waits;
} cpu_device_t;

static void cpu_close(tr_device_t *device) {
    cpu_device_t *cpu = (cpu_device_t *)device;
    tr_waits_stop(&cpu->waits);
    tr_free(&cpu);
}

static tr_status_t cpu_alloc(tr_device_t *device, size_t bytes, unsigned flags, void **out) {
    if (flags & TR_ALLOC_SHARED_BY_RANKS) {
        if (tr_alloc_shared(bytes, "device memory", out) == TR_OK) return TR_OK;
        tr_error_clear(); /* the ranks see that they have none, and do without */
    }
    return tr_alloc_aligned(bytes ? bytes : 1, MEMORY_ALIGN, "device memory", out);
}

static tr_status_t cpu_host_alloc(tr_device_t *device, size_t bytes, void **out) {
    return cpu_alloc(device, bytes, 0, out);
}

static void cpu_free(tr_device_t *device, void *pointer) {
    tr_free(&pointer);
}

static tr_status_t cpu_stream_create(tr_device_t *device, const char *name, tr_priority_t priority,
                                     tr_stream_t **out) {
    *out = (tr_stream_t *)&((cpu_device_t *)device)->stream;
    return TR_OK;
}

static void cpu_stream_destroy(tr_device_t *device, tr_stream_t *stream) {}

static tr_status_t cpu_stream_sync(tr_device_t *device, tr_stream_t *stream) {
    return TR_OK;
}

static tr_status_t cpu_event_create(tr_device_t *device, unsigned flags, tr_event_t **out) {
    *out = (tr_event_t *)&((cpu_device_t *)device)->event;
    return TR_OK;
}

static void cpu_event_destroy(tr_device_t *device, tr_event_t *event) {}

static tr_status_t cpu_event_order(tr_device_t *device, tr_event_t *event, tr_stream_t *stream) {
    return TR_OK;
}

static tr_status_t cpu_event_sync(tr_device_t *device, tr_event_t *event) {
    return TR_OK;
}

static tr_status_t cpu_memory_copy(tr_device_t *device, tr_stream_t *stream, void *dst,
                                   const void *src, size_t bytes, tr_copy_kind_t kind) {
    int threads = bytes >= PARALLEL_COPY_BYTES ? device->threads : 1;
#pragma omp parallel for num_threads(threads)
    for (int i = 0; i < threads; i++) {
        cpu_range_t part = cpu_range((int64_t)bytes, MEMORY_ALIGN, threads, i);
        memcpy((char *)dst + part.first, (const char *)src + part.first,
               (size_t)(part.last - part.first));
    }
    return TR_OK;
}

static tr_status_t cpu_memory_zero(tr_device_t *device, tr_stream_t *stream, void *dst,
                                   size_t bytes) {
    int threads = bytes >= PARALLEL_COPY_BYTES ? device->threads : 1;
#pragma omp parallel for num_threads(threads)
    for (int i = 0; i < threads; i++) {
        cpu_range_t part = cpu_range((int64_t)bytes, MEMORY_ALIGN, threads, i);
        memset((char *)dst + part.first, 0, (size_t)(part.last - part.first));
    }
    return TR_OK;
}

static const tr_device_ops_t cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .host_alloc = cpu_host_alloc,
    .host_free = cpu_free,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .stream_sync = cpu_stream_sync,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .event_record = cpu_event_order,
    .event_wait = cpu_event_order,
    .event_sync = cpu_event_sync,
    .copy = cpu_memory_copy,
    .zero = cpu_memory_zero,
    .report = tr_cpu_host_report,
};

static tr_status_t cpu_open(const tr_device_params_t *params, tr_device_t **out) {
    cpu_device_t *cpu = NULL;
    const cpu_kernels_t *kernels = NULL;
    if (params->threads < 0)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "device cpu: expected a number of threads of 1 or more, or 0 for all; found %d",
            params->threads);
    TR_TRY(tr_cpu_isa_enter(&kernels));
    TR_TRY(tr_alloc(sizeof *cpu, "the cpu device", &cpu));
    tr_device_t *device = &cpu->base;
    cpu->ops = cpu_ops;
    cpu->ops.kernels = kernels->kernel;
    cpu->ops.measure_peak = kernels->measure_peak;
    cpu->ops.measure_read = kernels->measure_read;
    device->ops = &cpu->ops;
    device->host_visible = true;
    device->immediate = true;
    device->allocates_zeros = true;
    device->winograd = !params->direct;
    device->fast_bf16 = tr_cpu_dnn_has_bf16();
    device->threads =
        tr_cpu_threads_enter(params->threads > 0 ? params->threads : tr_cpu_threads_default());
    device->memory_bytes = tr_host_memory_bytes();
    tr_cpu_host_describe(device, device->description, sizeof device->description);
    tr_waits_start(device->threads, &cpu->waits);
    *out = device;
    return TR_OK;
}

const tr_backend_t tr_backend_cpu = {
    .name = "cpu",
    .help = "the CPUs of this machine, with oneDNN and OpenMP",
    .open = cpu_open,
};
