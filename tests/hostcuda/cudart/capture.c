/* Capture of streams into graphs, with the refusals of the real one. */
#include "cudart_int.h"
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_CAPTURES 64

static capture_t *open_captures[MAX_CAPTURES];
static uint64_t next_id;
static __thread enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

static long this_thread(void) { return syscall(SYS_gettid); }

static capture_t *capture_of(uint64_t id) {
    for (int i = 0; i < MAX_CAPTURES; i++)
        if (open_captures[i] && open_captures[i]->id == id) return open_captures[i];
    return NULL;
}

/* -- sets of nodes ------------------------------------------------------------------------------------------------------ */
bool hc_nodes_add(nodes_t *nodes, node_t *node) {
    for (int i = 0; i < nodes->count; i++)
        if (nodes->list[i] == node) return false;
    nodes->list = realloc(nodes->list, (size_t)(nodes->count + 1) * sizeof *nodes->list);
    nodes->list[nodes->count++] = node;
    return true;
}
void hc_nodes_join(nodes_t *nodes, const nodes_t *more) {
    for (int i = 0; i < more->count; i++) hc_nodes_add(nodes, more->list[i]);
}
void hc_nodes_clear(nodes_t *nodes) {
    free(nodes->list);
    *nodes = (nodes_t){NULL, 0};
}

/* -- what captured streams do ------------------------------------------------------------------------------------------- */
cudaError_t hc_capture_break(capture_t *capture, cudaError_t error, const char *why) {
    hostcuda_refuse("capture", "%s: %s", cudaGetErrorName(error), why);
    if (!capture->broken) capture->broken = error;
    return error;
}

cudaError_t hc_capture_add(stream_t *stream, work_t *work) {
    if (stream->capture->broken) return hc_work_drop(work), cudaErrorStreamCaptureInvalidated;
    node_t *node = hc_graph_add(stream->capture->graph, work, &stream->ends);
    hc_nodes_clear(&stream->ends);
    hc_nodes_add(&stream->ends, node);
    return cudaSuccess;
}

cudaError_t hc_capture_record(stream_t *stream, event_t *event) {
    if (stream->capture->broken) return cudaErrorStreamCaptureInvalidated;
    event->capture = stream->capture->id;
    hc_nodes_clear(&event->ends);
    hc_nodes_join(&event->ends, &stream->ends);
    return cudaSuccess;
}

cudaError_t hc_capture_wait(stream_t *stream, event_t *event) {
    capture_t *of_event = event->capture ? capture_of(event->capture) : NULL;
    if (stream->capture) {
        if (stream->capture->broken) return cudaErrorStreamCaptureInvalidated;
        if (!event->capture)
            return hc_capture_break(stream->capture, cudaErrorStreamCaptureIsolation, "wait for an event from outside");
        if (of_event != stream->capture)
            return hc_capture_break(stream->capture, cudaErrorStreamCaptureMerge, "wait for an event of another capture");
        hc_nodes_join(&stream->ends, &event->ends);
        return cudaSuccess;
    }
    if (!of_event) return cudaErrorCapturedEvent;
    if (of_event->broken) return cudaErrorStreamCaptureInvalidated;
    if (stream == hc_stream(cudaStreamLegacy))
        return hc_capture_break(of_event, cudaErrorStreamCaptureImplicit, "the legacy stream waits for a capture");
    stream->capture = of_event;
    hc_nodes_clear(&stream->ends);
    hc_nodes_join(&stream->ends, &event->ends);
    return cudaSuccess;
}

cudaError_t hc_capture_unsafe(const char *call) {
    cudaError_t error = cudaSuccess;
    if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
    for (int i = 0; i < MAX_CAPTURES; i++) {
        capture_t *c = open_captures[i];
        if (!c || c->mode == cudaStreamCaptureModeRelaxed) continue;
        const bool mine = c->thread == this_thread();
        const bool global = c->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
        if (mine || global) error = hc_capture_break(c, cudaErrorStreamCaptureUnsupported, call);
    }
    return error;
}

cudaError_t hc_capture_implicit(void) {
    for (stream_t *s = hc_streams(); s; s = s->next)
        if (s->capture && s->blocking)
            return hc_capture_break(s->capture, cudaErrorStreamCaptureImplicit, "work on the legacy stream");
    return cudaSuccess;
}

EXPORT uint64_t hostcuda_capture_id(cudaStream_t handle) {
    hc_lock();
    const stream_t *stream = hc_stream(handle);
    const uint64_t id = stream && stream->capture ? stream->capture->id : 0;
    hc_unlock();
    return id;
}

/* -- entry points ------------------------------------------------------------------------------------------------------- */
EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
    ENTER("%d", (int)mode);
    stream_t *stream = hc_stream(handle);
    if (!stream) LEAVE(cudaErrorInvalidResourceHandle);
    if (!handle || handle == cudaStreamLegacy) LEAVE(cudaErrorStreamCaptureUnsupported);
    if (stream->capture) LEAVE(hc_capture_break(stream->capture, cudaErrorIllegalState, "a capture is open already"));
    if ((unsigned)mode > cudaStreamCaptureModeRelaxed) LEAVE(cudaErrorInvalidValue);
    for (int i = 0; i < MAX_CAPTURES; i++) {
        if (open_captures[i]) continue;
        capture_t *capture = calloc(1, sizeof *capture);
        *capture = (capture_t){++next_id, stream, mode, this_thread(), cudaSuccess, hc_graph_new()};
        open_captures[i] = stream->capture = capture;
        hc_nodes_clear(&stream->ends);
        LEAVE(cudaSuccess);
    }
    LEAVE(cudaErrorMemoryAllocation);
}

static void mark(const node_t *node, bool *seen) {
    if (seen[node->index]) return;
    seen[node->index] = true;
    for (int i = 0; i < node->needs.count; i++) mark(node->needs.list[i], seen);
}
/* Every node must come before the end of the origin. */
static bool is_joined(const capture_t *capture) {
    const nodes_t *all = &capture->graph->nodes;
    bool *seen = calloc((size_t)all->count + 1, sizeof *seen), joined = true;
    for (int i = 0; i < capture->origin->ends.count; i++) mark(capture->origin->ends.list[i], seen);
    for (int i = 0; i < all->count; i++) joined &= seen[i];
    free(seen);
    return joined;
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out) {
    ENTER("%s", "");
    stream_t *stream = hc_stream(handle);
    *out = NULL;
    if (!stream) LEAVE(cudaErrorInvalidResourceHandle);
    capture_t *capture = stream->capture;
    if (!capture) LEAVE(cudaErrorIllegalState);
    if (capture->origin != stream) LEAVE(hc_capture_break(capture, cudaErrorStreamCaptureUnmatched, "not the origin"));
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != this_thread())
        LEAVE(hc_capture_break(capture, cudaErrorStreamCaptureWrongThread, "another thread ends the capture"));
    cudaError_t error = capture->broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    if (!error && !is_joined(capture)) error = cudaErrorStreamCaptureUnjoined;
    for (stream_t *s = hc_streams(); s; s = s->next) {
        if (s->capture != capture) continue;
        s->capture = NULL;
        hc_nodes_clear(&s->ends);
    }
    for (int i = 0; i < MAX_CAPTURES; i++)
        if (open_captures[i] == capture) open_captures[i] = NULL;
    if (error) hc_graph_drop(capture->graph);
    else *out = capture->graph;
    if (!error) hostcuda_count("graphs", 1);
    free(capture);
    LEAVE(error);
}

static enum cudaStreamCaptureStatus status_of(const stream_t *stream) {
    if (!stream->capture) return cudaStreamCaptureStatusNone;
    return stream->capture->broken ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}
EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status) {
    ENTER("%s", "");
    const stream_t *stream = hc_stream(handle);
    if (stream) *status = status_of(stream);
    LEAVE(stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, enum cudaStreamCaptureStatus *status,
                                            unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **needs,
                                            const cudaGraphEdgeData **edges, size_t *count) {
    ENTER("%s", "");
    const stream_t *stream = hc_stream(handle);
    if (!stream) LEAVE(cudaErrorInvalidResourceHandle);
    *status = status_of(stream);
    if (id) *id = stream->capture ? stream->capture->id : 0;
    if (graph) *graph = stream->capture ? stream->capture->graph : NULL;
    if (needs) *needs = (const cudaGraphNode_t *)stream->ends.list;
    if (edges) *edges = NULL;
    if (count) *count = (size_t)stream->ends.count;
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    ENTER("%d", (int)*mode);
    const enum cudaStreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    LEAVE(cudaSuccess);
}
