/* Events. A record and a wait are pieces of work like others. */
#include "cudart_int.h"
#include <stdlib.h>

typedef struct {
    event_t *event;
    uint64_t ticket;
} mark_t;

static event_t *known[4096];
static int known_count;

static event_t *find(cudaEvent_t handle) {
    for (int i = 0; i < known_count; i++)
        if (known[i] == handle) return handle;
    return NULL;
}

static void drop(event_t *event) {
    if (--event->users) return;
    hc_nodes_clear(&event->ends);
    free(event);
}

static hostcuda_state_t record_run(void *arg, bool first) {
    mark_t *mark = arg;
    (void)first;
    if (mark->event->completed < mark->ticket) mark->event->completed = mark->ticket;
    mark->event->time_sec = hc_now_sec();
    return HOSTCUDA_DONE;
}
static hostcuda_state_t wait_run(void *arg, bool first) {
    const mark_t *mark = arg;
    (void)first;
    return mark->event->completed >= mark->ticket ? HOSTCUDA_DONE : HOSTCUDA_AGAIN;
}
static void mark_release(void *arg) {
    mark_t *mark = arg;
    drop(mark->event);
    free(mark);
}
static cudaError_t push(stream_t *stream, event_t *event, const char *name, hostcuda_state_t (*run)(void *, bool)) {
    mark_t *mark = malloc(sizeof *mark);
    *mark = (mark_t){event, event->issued};
    event->users++;
    return hc_stream_push(stream, hc_work_make(&(hostcuda_work_t){name, run, mark_release, mark}));
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    ENTER("%u", flags);
    if (flags & ~7u || known_count == COUNT(known)) LEAVE(cudaErrorInvalidValue);
    event_t *event = calloc(1, sizeof *event);
    *event = (event_t){.users = 1, .flags = flags, .device = hc_current()};
    *out = known[known_count++] = event;
    hc_context_open(hc_current());
    hostcuda_count("events", 1);
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, 0); }

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    ENTER("%s", "");
    event_t *event = find(handle);
    if (!event) LEAVE(cudaErrorInvalidResourceHandle);
    for (int i = 0; i < known_count; i++)
        if (known[i] == event) known[i] = known[--known_count];
    hostcuda_count("events", -1);
    drop(event);
    LEAVE(cudaSuccess);
}

EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream_handle, unsigned flags) {
    ENTER("%u", flags);
    event_t *event = find(handle);
    stream_t *stream = hc_stream(stream_handle);
    if (!event || !stream || event->device != stream->device) LEAVE(cudaErrorInvalidResourceHandle);
    const bool external = flags & cudaEventRecordExternal;
    if (external && !stream->capture) LEAVE(cudaErrorInvalidValue);
    if (stream->capture && !external) LEAVE(hc_capture_record(stream, event));
    event->capture = 0;
    event->issued++;
    LEAVE(push(stream, event, "event record", record_run));
}
EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, 0);
}

/* An event that was never recorded is no reason to wait. */
EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned flags) {
    ENTER("%u", flags);
    event_t *event = find(handle);
    stream_t *stream = hc_stream(stream_handle);
    if (!event || !stream) LEAVE(cudaErrorInvalidResourceHandle);
    const bool external = flags & cudaEventWaitExternal;
    if (external && !stream->capture) LEAVE(cudaErrorInvalidValue);
    if (!external && (stream->capture || event->capture)) LEAVE(hc_capture_wait(stream, event));
    if (!event->issued) LEAVE(cudaSuccess);
    LEAVE(push(stream, event, "event wait", wait_run));
}

static bool is_complete(void *arg) {
    const event_t *event = arg;
    return event->completed >= event->issued;
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t handle) {
    ENTER_UNSAFE("%s", "");
    event_t *event = find(handle);
    if (!event) LEAVE(cudaErrorInvalidResourceHandle);
    if (event->capture) LEAVE(cudaErrorCapturedEvent);
    if (!is_complete(event)) {
        hostcuda_open();
        for (uint64_t n = 1 + hostcuda_random() % 4; n && hc_step(); n--) {}
        hostcuda_close();
    }
    LEAVE(is_complete(event) ? cudaSuccess : cudaErrorNotReady);
}
EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    ENTER_UNSAFE("%s", "");
    event_t *event = find(handle);
    if (!event) LEAVE(cudaErrorInvalidResourceHandle);
    if (event->capture) LEAVE(cudaErrorCapturedEvent);
    if (is_complete(event)) LEAVE(cudaSuccess);
    event->users++;
    const cudaError_t error = hc_wait(is_complete, event);
    drop(event);
    LEAVE(error);
}
EXPORT cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    ENTER("%s", "");
    event_t *a = find(start), *b = find(end);
    if (!a || !b || !a->issued || !b->issued) LEAVE(cudaErrorInvalidResourceHandle);
    if ((a->flags | b->flags) & cudaEventDisableTiming) LEAVE(cudaErrorInvalidResourceHandle);
    if (!is_complete(a) || !is_complete(b)) LEAVE(cudaErrorNotReady);
    *ms = (float)(1e3 * (b->time_sec - a->time_sec));
    LEAVE(cudaSuccess);
}
