/*
 * Copies and fills. Pinned memory is read and written when the work runs; pageable memory is read at the call, and a
 * copy into it waits for its stream, as the real one does.
 */
#include "cudart_int.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
    int value; /* of a fill */
    char staged[];
} copy_t;

static hostcuda_state_t copy_run(void *arg, bool first) {
    const copy_t *c = arg;
    (void)first;
    for (size_t y = 0; y < c->height; y++) memmove(c->to + y * c->to_pitch, c->from + y * c->from_pitch, c->width);
    return HOSTCUDA_DONE;
}
static hostcuda_state_t fill_run(void *arg, bool first) {
    const copy_t *c = arg;
    (void)first;
    memset(c->to, c->value, c->width);
    return HOSTCUDA_DONE;
}

/* Whether a pointer fits the side of the copy that `device` names, and the whole range lies in its allocation. */
static bool fits(const memory_t *m, const void *pointer, size_t bytes, bool device) {
    if (!m) return !device;
    if (device != (m->kind == MEMORY_DEVICE) && !(device && m->kind == MEMORY_PINNED)) return false;
    return (const char *)pointer + bytes <= m->base + m->bytes;
}

static cudaError_t check(void *to, const void *from, size_t to_bytes, size_t from_bytes, enum cudaMemcpyKind kind) {
    const memory_t *t = hc_memory_find(to), *f = hc_memory_find(from);
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind == cudaMemcpyDefault) {
        to_device = t && t->kind == MEMORY_DEVICE;
        from_device = f && f->kind == MEMORY_DEVICE;
    } else if ((unsigned)kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    return fits(t, to, to_bytes, to_device) && fits(f, from, from_bytes, from_device) ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t push(stream_t *stream, const copy_t *plan, bool stage, const char *name,
                        hostcuda_state_t (*run)(void *, bool)) {
    copy_t *c = malloc(sizeof *c + (stage ? plan->width * plan->height : 0));
    *c = *plan;
    if (stage) {
        for (size_t y = 0; y < c->height; y++)
            memcpy(c->staged + y * c->width, c->from + y * c->from_pitch, c->width);
        c->from = c->staged;
        c->from_pitch = c->width;
    }
    return hc_stream_push(stream, hc_work_make(&(hostcuda_work_t){name, run, free, c}));
}

static cudaError_t copy(const copy_t *plan, enum cudaMemcpyKind kind, cudaStream_t handle, bool wait) {
    stream_t *stream = hc_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (!plan->width || !plan->height) return cudaSuccess;
    if (plan->width > plan->to_pitch || plan->width > plan->from_pitch) return cudaErrorInvalidValue;
    const size_t to_bytes = (plan->height - 1) * plan->to_pitch + plan->width;
    const size_t from_bytes = (plan->height - 1) * plan->from_pitch + plan->width;
    cudaError_t error = check(plan->to, plan->from, to_bytes, from_bytes, kind);
    if (error) return error;
    const bool from_pageable = !hc_memory_find(plan->from), to_pageable = !hc_memory_find(plan->to);
    if (stream->capture && (from_pageable || to_pageable || wait))
        return hc_capture_break(stream->capture, cudaErrorStreamCaptureUnsupported, "copy of pageable memory");
    error = push(stream, plan, from_pageable, "copy", copy_run);
    return error || !(wait || to_pageable) ? error : hc_drain(stream);
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    ENTER("%zu %d", bytes, (int)kind);
    LEAVE(copy(&(copy_t){to, from, bytes, bytes, bytes, 1, 0}, kind, stream, false));
}
EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    ENTER_UNSAFE("%zu %d", bytes, (int)kind);
    LEAVE(copy(&(copy_t){to, from, bytes, bytes, bytes, 1, 0}, kind, NULL, true));
}
EXPORT cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                     size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    ENTER("%zu x %zu %d", width, height, (int)kind);
    LEAVE(copy(&(copy_t){to, from, to_pitch, from_pitch, width, height, 0}, kind, stream, false));
}
EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                       cudaStream_t stream) {
    ENTER("%zu %d %d", bytes, to_device, from_device);
    if (hc_device_check(to_device) || hc_device_check(from_device)) LEAVE(cudaErrorInvalidDevice);
    LEAVE(copy(&(copy_t){to, from, bytes, bytes, bytes, 1, 0}, cudaMemcpyDeviceToDevice, stream, false));
}

static cudaError_t fill(void *to, int value, size_t bytes, cudaStream_t handle, bool wait) {
    stream_t *stream = hc_stream(handle);
    const memory_t *m = hc_memory_find(to);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (!bytes) return cudaSuccess;
    if (!m || (char *)to + bytes > m->base + m->bytes) return cudaErrorInvalidValue;
    const cudaError_t error = push(stream, &(copy_t){.to = to, .width = bytes, .value = value}, false, "fill", fill_run);
    return error || !wait ? error : hc_drain(stream);
}
EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    ENTER("%zu", bytes);
    LEAVE(fill(to, value, bytes, stream, false));
}
EXPORT cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    ENTER_UNSAFE("%zu", bytes);
    LEAVE(fill(to, value, bytes, NULL, true));
}
