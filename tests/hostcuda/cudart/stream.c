/*
 * Streams. Work is queued at the call and executed when somebody waits or asks: a stream's own work
 * in its order, streams among each other in a seeded order that changes as it goes. HOSTCUDA_SEED=0
 * is the order of the calls.
 */
#include "cudart_int.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_STREAMS 256

static stream_t *streams, *legacy[MAX_DEVICES];
static __thread stream_t *per_thread[MAX_DEVICES];
static int stream_count;
static uint64_t next_id, next_number;

/* -- work with a count of users ---------------------------------------------------------------- */
work_t *hc_work_make(const hostcuda_work_t *call) {
    work_t *work = malloc(sizeof *work);
    *work = (work_t){*call, 1};
    return work;
}
void hc_work_drop(work_t *work) {
    if (--work->users) return;
    if (work->call.release) work->call.release(work->call.arg);
    free(work);
}

/* -- handles ----------------------------------------------------------------------------------- */
static stream_t *stream_new(int device, unsigned flags, int priority) {
    stream_t *stream = calloc(1, sizeof *stream);
    if (!stream || stream_count == MAX_STREAMS) return free(stream), NULL;
    *stream = (stream_t){
        .next = streams, .id = ++next_id, .device = device, .priority = priority, .flags = flags};
    stream->blocking = !(flags & cudaStreamNonBlocking);
    stream->tail = &stream->head;
    stream_count++;
    return streams = stream;
}

static stream_t *kept(stream_t **slot) {
    if (!*slot) *slot = stream_new(hc_current(), 0, 0);
    return *slot;
}

stream_t *hc_stream(cudaStream_t handle) {
    if (!handle || handle == cudaStreamLegacy) return kept(&legacy[hc_current()]);
    if (handle == cudaStreamPerThread) return kept(&per_thread[hc_current()]);
    for (stream_t *s = streams; s; s = s->next)
        if (s == handle && !(s->flags & 0x80000000u)) return s;
    return NULL;
}
stream_t *hc_streams(void) {
    return streams;
}

static void stream_free(stream_t *stream) {
    stream_t **link = &streams;
    while (*link != stream) link = &(*link)->next;
    *link = stream->next;
    hc_nodes_clear(&stream->ends);
    stream_count--;
    free(stream);
}

/* -- the pump: runs work while the program is busy elsewhere ------------------------------- */
static void *pump(void *arg) {
    const double patience_sec = 1e-3 * (double)hostcuda_env("HOSTCUDA_PUMP_MS", 20);
    for (;;) {
        usleep(2000);
        if (hc_idle_sec() < patience_sec) continue;
        hc_lock();
        hostcuda_open();
        for (int i = 0; i < 64 && hc_step(); i++) {
        }
        hostcuda_close();
        hc_unlock();
    }
    return arg;
}

static void pump_start(void) {
    static bool started;
    pthread_t thread;
    if (started || !hostcuda_env("HOSTCUDA_PUMP_MS", 20)) return;
    started = true;
    if (!pthread_create(&thread, NULL, pump, NULL)) pthread_detach(thread);
}

/* -- queues ------------------------------------------------------------------------------------ */
cudaError_t hc_stream_push(stream_t *stream, work_t *work) {
    if (stream->capture) return hc_capture_add(stream, work);
    if (stream == legacy[stream->device]) {
        const cudaError_t error = hc_capture_implicit();
        if (error) return hc_work_drop(work), error;
    }
    pump_start();
    item_t *item = malloc(sizeof *item);
    *item = (item_t){.work = work, .number = ++next_number};
    *stream->tail = item;
    stream->tail = &item->next;
    return cudaSuccess;
}

EXPORT cudaError_t hostcuda_enqueue(cudaStream_t handle, const hostcuda_work_t *call) {
    hc_lock();
    work_t *work = hc_work_make(call);
    stream_t *stream = hc_stream(handle);
    cudaError_t error = hc_sticky();
    if (!error && !stream) error = cudaErrorInvalidResourceHandle;
    if (error)
        hc_work_drop(work);
    else
        error = hc_stream_push(stream, work);
    hc_unlock();
    return error;
}

/* The legacy stream waits for what blocking streams were given before, and they for it. */
static bool in_turn(const stream_t *stream) {
    const stream_t *whole = legacy[stream->device];
    if (!stream->head) return false;
    if (!whole || !stream->blocking) return true;
    if (stream != whole) return !whole->head || whole->head->number > stream->head->number;
    for (const stream_t *s = streams; s; s = s->next)
        if (s != whole && s->device == stream->device && s->blocking && s->head &&
            s->head->number < stream->head->number)
            return false;
    return true;
}

static uint64_t rank_of(const stream_t *stream) {
    static uint64_t key;
    static int left;
    static int seeded = -1;
    if (seeded < 0) seeded = hostcuda_env("HOSTCUDA_SEED", 1) != 0;
    if (!seeded) return stream->head->number;
    if (--left < 0) key = hostcuda_random(), left = (int)(hostcuda_random() % 64);
    const uint64_t z = (stream->id ^ key) * 0x9e3779b97f4a7c15u;
    return z ^ z >> 29;
}

/* True if the head of this stream moved. */
static bool advance(stream_t *stream) {
    item_t *item = stream->head;
    const bool first = !item->started;
    item->started = true;
    const hostcuda_state_t state = item->work->call.run(item->work->call.arg, first);
    if (state == HOSTCUDA_AGAIN) return false;
    if (state == HOSTCUDA_PARTLY) return true;
    stream->head = item->next;
    if (!stream->head) stream->tail = &stream->head;
    hc_work_drop(item->work);
    free(item);
    if (!stream->head && stream->flags & 0x80000000u) stream_free(stream);
    return true;
}

bool hc_step(void) {
    stream_t *list[MAX_STREAMS];
    uint64_t rank[MAX_STREAMS];
    int n = 0;
    if (hc_sticky()) return false;
    for (stream_t *s = streams; s; s = s->next) {
        if (!in_turn(s)) continue;
        const uint64_t r = rank_of(s);
        int at = n++;
        for (; at > 0 && rank[at - 1] > r; at--) list[at] = list[at - 1], rank[at] = rank[at - 1];
        list[at] = s;
        rank[at] = r;
    }
    for (int i = 0; i < n; i++)
        if (advance(list[i])) return true;
    return false;
}

cudaError_t hc_wait(bool (*done)(void *arg), void *arg) {
    useconds_t nap_us = 50;
    hostcuda_open();
    while (!done(arg) && !hc_sticky()) {
        if (hc_step()) {
            nap_us = 50;
            continue;
        }
        if (nap_us < 2000) nap_us *= 2; /* many ranks may wait on few cores */
        hostcuda_close();
        hc_unlock();
        usleep(nap_us);
        hc_lock();
        hostcuda_open();
    }
    hostcuda_close();
    return hc_sticky();
}

static bool is_empty(void *arg) {
    const stream_t *stream = arg;
    return !stream->head;
}
static bool are_empty(void *arg) {
    const int *device = arg;
    for (const stream_t *s = streams; s; s = s->next)
        if (s->device == *device && s->head) return false;
    return true;
}
/* Nothing is opened where nothing is to be done. */
cudaError_t hc_drain(stream_t *stream) {
    int device = hc_current();
    if (stream ? is_empty(stream) : are_empty(&device)) return hc_sticky();
    return stream ? hc_wait(is_empty, stream) : hc_wait(are_empty, &device);
}

/* -- entry points ------------------------------------------------------------------------------ */
EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    ENTER("%u %d", flags, priority);
    if (flags & ~(unsigned)cudaStreamNonBlocking) LEAVE(cudaErrorInvalidValue);
    hc_context_open(hc_current());
    *out = stream_new(hc_current(), flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
    if (*out) hostcuda_count("streams", 1);
    LEAVE(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}
EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    return cudaStreamCreateWithPriority(out, flags, 0);
}
EXPORT cudaError_t cudaStreamCreate(cudaStream_t *out) {
    return cudaStreamCreateWithPriority(out, 0, 0);
}

/* As the real one, returns at once; the stream goes when its work is done. */
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    ENTER("%s", "");
    stream_t *stream = handle ? hc_stream(handle) : NULL;
    if (!stream) LEAVE(cudaErrorInvalidResourceHandle);
    cudaError_t error = cudaSuccess;
    if (stream->capture)
        error = hc_capture_break(stream->capture, cudaErrorStreamCaptureUnsupported,
                                 "stream destroyed");
    hostcuda_count("streams", -1);
    stream->flags |= 0x80000000u;
    if (!stream->head) stream_free(stream);
    LEAVE(error);
}

static cudaError_t refuse_captured(const stream_t *stream, const char *call) {
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (!stream->capture) return cudaSuccess;
    return hc_capture_break(stream->capture, cudaErrorStreamCaptureUnsupported, call);
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    ENTER("%s", "");
    stream_t *stream = hc_stream(handle);
    cudaError_t error = refuse_captured(stream, __func__);
    if (!error) error = hc_drain(stream);
    LEAVE(error);
}
EXPORT cudaError_t cudaStreamQuery(cudaStream_t handle) {
    ENTER("%s", "");
    stream_t *stream = hc_stream(handle);
    const cudaError_t error = refuse_captured(stream, __func__);
    if (error) LEAVE(error);
    if (stream->head) {
        hostcuda_open();
        for (uint64_t n = 1 + hostcuda_random() % 4; n && hc_step(); n--) {
        }
        hostcuda_close();
    }
    LEAVE(stream->head ? cudaErrorNotReady : cudaSuccess);
}
EXPORT cudaError_t cudaDeviceSynchronize(void) {
    ENTER_UNSAFE("%s", "");
    LEAVE(hc_drain(NULL));
}

EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
    ENTER("%s", "");
    const stream_t *stream = hc_stream(handle);
    if (stream) *priority = stream->priority;
    LEAVE(stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags) {
    ENTER("%s", "");
    const stream_t *stream = hc_stream(handle);
    if (stream) *flags = stream->flags;
    LEAVE(stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
EXPORT cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device) {
    ENTER("%s", "");
    const stream_t *stream = hc_stream(handle);
    if (stream) *device = stream->device;
    LEAVE(stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
EXPORT cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long *id) {
    ENTER("%s", "");
    const stream_t *stream = hc_stream(handle);
    if (stream) *id = stream->id;
    LEAVE(stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

/* -- functions of the host --------------------------------------------------------------------- */
typedef struct {
    cudaHostFn_t function;
    void *data;
} host_call_t;

static hostcuda_state_t host_run(void *arg, bool first) {
    const host_call_t *call = arg;
    (void)first;
    hc_in_callback(true);
    call->function(call->data);
    hc_in_callback(false);
    return HOSTCUDA_DONE;
}
EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *data) {
    ENTER("%s", "");
    stream_t *stream = hc_stream(handle);
    if (!stream || !function)
        LEAVE(stream ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
    host_call_t *call = malloc(sizeof *call);
    *call = (host_call_t){function, data};
    LEAVE(hc_stream_push(stream,
                         hc_work_make(&(hostcuda_work_t){"host function", host_run, free, call})));
}
