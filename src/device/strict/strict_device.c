/*
 * The strict device: its table, memory with tagged addresses, and recorded work other than kernels.
 */
#include "strict_int.h"
#include <stdio.h>
#include <string.h>

/* Bit 55 makes an address that no host memory has: not canonical on x86-64, of the kernel's half on
 * arm64. */
#define TAG ((uintptr_t)1 << 55)
/* Every float of these bytes is NaN, every integer -1. */
#define POISON 0xFF

static strict_device_t *self(tr_device_t *device) {
    return (strict_device_t *)device;
}

/* -- memory ------------------------------------------------------------------------------------ */

tr_status_t tr_strict_untag(const strict_device_t *strict, const void *address, size_t bytes,
                            const char *who, void **out) {
    uintptr_t host = (uintptr_t)address & ~TAG;
    if (!((uintptr_t)address & TAG))
        return TR_FAIL(TR_ERR_INTERNAL, "device strict: %s: expected device memory, found %s %p",
                       who, address ? "the host address" : "", address);
    for (size_t i = 0; i < strict->blocks.count; i++) {
        uintptr_t first = (uintptr_t)strict->blocks.data[i].host,
                  last = first + strict->blocks.data[i].bytes;
        if (host < first || host >= last) continue;
        if (bytes > last - host)
            return TR_FAIL(
                TR_ERR_INTERNAL,
                "device strict: %s: %zu bytes reach %zu beyond the end of an allocation of %zu",
                who, bytes, bytes - (size_t)(last - host), strict->blocks.data[i].bytes);
        *out = (void *)host;
        return TR_OK;
    }
    return TR_FAIL(TR_ERR_INTERNAL, "device strict: %s: %zu bytes at %p are not allocated", who,
                   bytes, address);
}

static tr_status_t strict_alloc(tr_device_t *device, size_t bytes, unsigned flags, void **out) {
    strict_device_t *strict = self(device);
    strict_block_t block = {.bytes = bytes ? bytes : 1};
    void *host = NULL;
    TR_TRY(tr_strict_not_capturing(strict, "an allocation"));
    TR_TRY(strict->cpu->ops->alloc(strict->cpu, block.bytes, flags, &host));
    memset(host, POISON, block.bytes);
    block.host = host;
    pthread_mutex_lock(&strict->mutex);
    tr_status_t status = tr_vec_push(&strict->blocks, block);
    pthread_mutex_unlock(&strict->mutex);
    if (status != TR_OK)
        strict->cpu->ops->free(strict->cpu, host);
    else
        *out = (void *)((uintptr_t)host | TAG);
    return status;
}

static void strict_free(tr_device_t *device, void *pointer) {
    strict_device_t *strict = self(device);
    char *host = (char *)((uintptr_t)pointer & ~TAG);
    pthread_mutex_lock(&strict->mutex);
    tr_strict_run_all(strict);
    for (size_t i = 0; i < strict->blocks.count; i++) {
        if (strict->blocks.data[i].host != host) continue;
        strict->blocks.data[i] = strict->blocks.data[--strict->blocks.count];
        strict->cpu->ops->free(strict->cpu, host);
        break;
    }
    pthread_mutex_unlock(&strict->mutex);
}

static tr_status_t strict_host_alloc(tr_device_t *device, size_t bytes, void **out) {
    tr_device_t *cpu = self(device)->cpu;
    TR_TRY(tr_strict_not_capturing(self(device), "an allocation"));
    TR_TRY(cpu->ops->host_alloc(cpu, bytes, out));
    memset(*out, POISON, bytes);
    return TR_OK;
}

static void strict_host_free(tr_device_t *device, void *pointer) {
    strict_device_t *strict = self(device);
    pthread_mutex_lock(&strict->mutex);
    tr_strict_run_all(strict);
    pthread_mutex_unlock(&strict->mutex);
    strict->cpu->ops->host_free(strict->cpu, pointer);
}

/* -- streams and events ------------------------------------------------------------------------ */

static tr_status_t strict_stream_create(tr_device_t *device, const char *name,
                                        tr_priority_t priority, tr_stream_t **out) {
    strict_device_t *strict = self(device);
    tr_stream_t *stream = NULL;
    TR_TRY(tr_alloc(sizeof *stream, "a stream", &stream));
    pthread_mutex_lock(&strict->mutex);
    while (stream->id < STRICT_STREAMS && strict->stream_name[stream->id]) stream->id++;
    tr_status_t status =
        stream->id < STRICT_STREAMS
            ? tr_vec_push(&strict->streams, stream)
            : TR_FAIL(TR_ERR_INTERNAL, "device strict: more than %d streams", STRICT_STREAMS);
    if (status == TR_OK) strict->stream_name[stream->id] = name;
    pthread_mutex_unlock(&strict->mutex);
    if (status != TR_OK) tr_free(&stream);
    *out = stream;
    return status;
}

static void strict_stream_destroy(tr_device_t *device, tr_stream_t *stream) {
    strict_device_t *strict = self(device);
    pthread_mutex_lock(&strict->mutex);
    tr_strict_run_all(strict);
    strict->stream_name[stream->id] = NULL;
    for (size_t i = 0; i < strict->streams.count; i++)
        if (strict->streams.data[i] == stream)
            strict->streams.data[i] = strict->streams.data[--strict->streams.count];
    if (strict->favourite == stream) strict->favourite = NULL;
    pthread_mutex_unlock(&strict->mutex);
    tr_vec_free(&stream->work);
    tr_free(&stream);
}

static tr_status_t strict_stream_sync(tr_device_t *device, tr_stream_t *stream) {
    strict_device_t *strict = self(device);
    pthread_mutex_lock(&strict->mutex);
    strict->host_waits++;
    tr_strict_note(strict, NULL, "waits", 0);
    tr_status_t status = tr_strict_not_capturing(strict, "a wait of the host");
    if (status == TR_OK) status = tr_strict_run_stream(strict, stream);
    if (status == TR_OK) tr_strict_host_waited(strict, &stream->clock);
    pthread_mutex_unlock(&strict->mutex);
    return status;
}

static tr_status_t strict_event_create(tr_device_t *device, unsigned flags, tr_event_t **out) {
    return tr_alloc(sizeof **out, "an event", out);
}

static void strict_event_destroy(tr_device_t *device, tr_event_t *event) {
    strict_device_t *strict = self(device);
    pthread_mutex_lock(&strict->mutex);
    tr_strict_run_all(strict); /* recorded work may name the event */
    pthread_mutex_unlock(&strict->mutex);
    tr_free(&event);
}

static tr_status_t strict_event_record(tr_device_t *device, tr_event_t *event,
                                       tr_stream_t *stream) {
    strict_device_t *strict = self(device);
    pthread_mutex_lock(&strict->mutex);
    tr_status_t status = tr_strict_push(
        strict, stream,
        &(strict_work_t){.kind = STRICT_RECORD, .event = event, .count = event->recorded + 1});
    if (status == TR_OK && !event->capture) event->recorded++;
    pthread_mutex_unlock(&strict->mutex);
    return status;
}

static tr_status_t strict_event_wait(tr_device_t *device, tr_event_t *event, tr_stream_t *stream) {
    strict_device_t *strict = self(device);
    pthread_mutex_lock(&strict->mutex);
    tr_status_t status = tr_strict_push(
        strict, stream,
        &(strict_work_t){.kind = STRICT_WAIT, .event = event, .count = event->recorded});
    pthread_mutex_unlock(&strict->mutex);
    return status;
}

static tr_status_t strict_event_sync(tr_device_t *device, tr_event_t *event) {
    strict_device_t *strict = self(device);
    pthread_mutex_lock(&strict->mutex);
    strict->host_waits++;
    tr_strict_note(strict, NULL, "waits", 0);
    tr_status_t status = tr_strict_not_capturing(strict, "a wait of the host");
    if (status == TR_OK && event->capture)
        status = TR_FAIL(TR_ERR_INTERNAL, "device strict: the host waits for an event that was "
                                          "recorded in a capture: it never happens");
    if (status == TR_OK) status = tr_strict_run_event(strict, event, event->recorded);
    if (status == TR_OK) tr_strict_host_waited(strict, &event->clock);
    pthread_mutex_unlock(&strict->mutex);
    return status;
}

/* -- copies ------------------------------------------------------------------------------------ */

static tr_status_t host_side(const void *address, const char *who, void **out) {
    if ((uintptr_t)address & TAG)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "device strict: %s: expected host memory, found device memory", who);
    *out = (void *)(uintptr_t)address;
    return TR_OK;
}

static tr_status_t strict_copy(tr_device_t *device, tr_stream_t *stream, void *dst, const void *src,
                               size_t bytes, tr_copy_kind_t kind) {
    strict_device_t *strict = self(device);
    strict_work_t work = {.kind = STRICT_COPY, .bytes = bytes};
    void *from = NULL;
    tr_status_t status = TR_OK;
    if (bytes == 0) return TR_OK;
    pthread_mutex_lock(&strict->mutex);
    if (kind == TR_COPY_TO_HOST)
        TR_TRY_GOTO(host_side(dst, "destination of a copy to the host", &work.dst), done);
    else
        TR_TRY_GOTO(tr_strict_untag(strict, dst, bytes, "destination of a copy", &work.dst), done);
    if (kind == TR_COPY_TO_DEVICE)
        TR_TRY_GOTO(host_side(src, "source of a copy to the device", &from), done);
    else
        TR_TRY_GOTO(tr_strict_untag(strict, src, bytes, "source of a copy", &from), done);
    work.src = from;
    status = tr_strict_push(strict, stream, &work);
done:
    pthread_mutex_unlock(&strict->mutex);
    return status;
}

static tr_status_t strict_fill(tr_device_t *device, tr_stream_t *stream, void *dst, size_t bytes,
                               int value) {
    strict_device_t *strict = self(device);
    strict_work_t work = {.kind = STRICT_FILL, .bytes = bytes, .fill = value};
    if (bytes == 0) return TR_OK;
    pthread_mutex_lock(&strict->mutex);
    tr_status_t status = tr_strict_untag(strict, dst, bytes, value ? "poison" : "zero", &work.dst);
    if (status == TR_OK) status = tr_strict_push(strict, stream, &work);
    pthread_mutex_unlock(&strict->mutex);
    return status;
}

static tr_status_t strict_zero(tr_device_t *device, tr_stream_t *stream, void *dst, size_t bytes) {
    return strict_fill(device, stream, dst, bytes, 0);
}

static tr_status_t strict_poison(tr_device_t *device, tr_stream_t *stream, void *dst,
                                 size_t bytes) {
    return strict_fill(device, stream, dst, bytes, POISON);
}

tr_status_t tr_strict_call(tr_device_t *device, tr_stream_t *stream, strict_call_fn call,
                           void *self_of_call, void *data, size_t bytes) {
    strict_device_t *strict = self(device);
    strict_work_t work = {
        .kind = STRICT_CALL, .bytes = bytes, .host_call = call, .self = self_of_call};
    pthread_mutex_lock(&strict->mutex);
    tr_status_t status = tr_strict_untag(strict, data, bytes, "a call of the host", &work.dst);
    if (status == TR_OK) status = tr_strict_push(strict, stream, &work);
    pthread_mutex_unlock(&strict->mutex);
    return status;
}

/* -- trace and report -------------------------------------------------------------------------- */

void tr_strict_trace(tr_device_t *device, strict_trace_fn trace, void *trace_self) {
    strict_device_t *strict = self(device);
    pthread_mutex_lock(&strict->mutex);
    strict->trace = trace;
    strict->trace_self = trace_self;
    pthread_mutex_unlock(&strict->mutex);
}

void tr_strict_note(const strict_device_t *strict, const tr_stream_t *stream, const char *what,
                    size_t amount) {
    if (strict->trace)
        strict->trace(strict->trace_self, stream ? strict->stream_name[stream->id] : "host", what,
                      amount);
}

static tr_status_t strict_report(tr_device_t *device, tr_report_row_fn row, void *self) {
    static const char *const names[] = {
        [STRICT_KERNEL] = "kernels",       [STRICT_COPY] = "copies",
        [STRICT_FILL] = "fills",           [STRICT_CALL] = "calls of the host",
        [STRICT_RECORD] = "event records", [STRICT_WAIT] = "event waits"};
    const strict_device_t *strict = (const strict_device_t *)device;
    char text[32];
    for (int kind = 0; kind <= STRICT_WAIT; kind++) {
        snprintf(text, sizeof text, "%lld", (long long)strict->given[kind]);
        row(self, names[kind], text);
    }
    snprintf(text, sizeof text, "%lld", (long long)strict->host_waits);
    row(self, "host waits", text);
    snprintf(text, sizeof text, "%lld", (long long)strict->launches);
    row(self, "launches", text);
    return TR_OK;
}

/* -- open and close ---------------------------------------------------------------------------- */

/* Memory that its owner did not free stays: the counters of memory show it. */
static void strict_close(tr_device_t *device) {
    strict_device_t *strict = self(device);
    tr_vec_free(&strict->blocks);
    tr_vec_free(&strict->accesses);
    tr_vec_free(&strict->streams);
    if (strict->cpu_stream) strict->cpu->ops->stream_destroy(strict->cpu, strict->cpu_stream);
    tr_device_close(&strict->cpu);
    pthread_mutex_destroy(&strict->mutex);
    tr_free(&strict);
}

static const tr_device_ops_t strict_ops = {
    .name = "strict",
    .close = strict_close,
    .alloc = strict_alloc,
    .free = strict_free,
    .host_alloc = strict_host_alloc,
    .host_free = strict_host_free,
    .stream_create = strict_stream_create,
    .stream_destroy = strict_stream_destroy,
    .stream_sync = strict_stream_sync,
    .event_create = strict_event_create,
    .event_destroy = strict_event_destroy,
    .event_record = strict_event_record,
    .event_wait = strict_event_wait,
    .event_sync = strict_event_sync,
    .copy = strict_copy,
    .zero = strict_zero,
    .poison = strict_poison,
    .capture_begin = tr_strict_capture_begin,
    .capture_end = tr_strict_capture_end,
    .executable_launch = tr_strict_launch,
    .executable_destroy = tr_strict_executable_destroy,
    .report = strict_report,
    .kernels = tr_strict_kernels,
};

static void strict_describe(strict_device_t *strict, uint64_t seed) {
    tr_device_t *device = &strict->base;
    strict->ops = strict_ops;
    strict->ops.kernels = strict->kernels;
    tr_strict_fill_kernels(strict->cpu, strict->kernels);
    device->ops = &strict->ops;
    device->fast_bf16 = strict->cpu->fast_bf16;
    device->fast_f16 = strict->cpu->fast_f16;
    device->winograd = strict->cpu->winograd;
    device->threads = strict->cpu->threads;
    device->memory_bytes = strict->cpu->memory_bytes;
    strict->rng = tr_rng_make(seed, TR_RNG_TEST, 0, 0);
    snprintf(device->description, sizeof device->description,
             "checks like a GPU, computes on the CPU (orders of seed %llu): %.150s",
             (unsigned long long)seed, strict->cpu->description);
}

static tr_status_t strict_open(const tr_device_params_t *params, tr_device_t **out) {
    strict_device_t *strict = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *strict, "the strict device", &strict));
    pthread_mutex_init(&strict->mutex, NULL);
    TR_TRY_GOTO(tr_device_open("cpu", params, &strict->cpu), fail);
    TR_TRY_GOTO(strict->cpu->ops->stream_create(strict->cpu, "strict", TR_PRIORITY_NORMAL,
                                                &strict->cpu_stream),
                fail);
    strict_describe(strict, params->seed);
    *out = &strict->base;
    return TR_OK;
fail:
    strict_close(&strict->base);
    return status;
}

const tr_backend_t tr_backend_strict = {
    .name = "strict",
    .help = "a debugging device that detects errors that would occur on a GPU: separate poisoned "
            "memory, and asynchronous work in random legal orders; slow",
    .open = strict_open,
};
