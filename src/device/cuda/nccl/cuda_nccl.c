/*
 * Collectives by NCCL.
 *
 * All communication is in one stream of high priority, in the order of the calls. An event makes it
 * wait for the work that was given to the caller's stream, and another makes the caller's stream
 * wait for it. Nothing here waits for a collective on the host, so a step can be captured.
 *
 * Communicators do not block: a call may answer ncclInProgress, and is asked about until it is
 * done or its time is over.
 */
#include "cuda_nccl.h"
#include "device/cuda/cuda_errors.h"
#include "device/cuda/cuda_times.h"
#include "device/collectives.h"
#include "base/clock.h"
#include "trainer/log.h"
#include "base/mem.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GROUPS = 16, DONE_EVENTS = 64 };
#define POLL_SEC 100e-6
/* Most calls end sooner than a sleep: NCCL enqueues each collective from a thread of its own. */
#define SPIN_SEC 200e-6
/* A collective may take this many times the time limit: the watchdog, where it runs, is first, and
 * names the rank that is missing. */
#define HANG_FACTOR 1.5
/* Before this version, graphs with collectives between nodes have deadlocked (vllm#52504,
 * marin#7344, nccl#2353). */
#define CAPTURED_BETWEEN_NODES_FROM 23004

typedef struct {
    ncclComm_t comm;
    int rank, size;
} group_t;

typedef struct {
    tr_collectives_t base;
    cuda_device_t *cuda;
    const cuda_nccl_t *nccl;
    pthread_t thread;    /* the only one that calls; waits of others ask nothing */
    cudaStream_t stream; /* of all communication */
    group_t group[GROUPS];
    int group_count;
    tr_progress_words_t *words;    /* pinned */
    cudaEvent_t ready;             /* the work that a call is ordered after */
    cudaEvent_t done[DONE_EVENTS]; /* ticket t, or a later one, at t % DONE_EVENTS */
    cuda_times_t times;            /* of collectives and waits, by ticket */
    ncclWindow_t window;
    bool windows; /* all ranks can register memory */
    double timeout_sec;
    int64_t seen_entered, seen_completed; /* the words when they last changed */
    double seen_sec;                      /* when that was */
    bool failed; /* NCCL gave an error: communicators can only be aborted */
    ncclUniqueId id;
} engine_t;

static engine_t *engine_of(tr_collectives_t *c) {
    return (engine_t *)c;
}

/* -- errors and waits -------------------------------------------------------------------------- */

/* The row of a result: that of CUDA's error where the GPU has failed or where NCCL says that CUDA
 * did. A GPU that does not work, or that two ranks share, is found while opening. */
static cuda_error_t cuda_nccl_row(const engine_t *e, ncclResult_t result, const char *detail) {
    static const char said[] = "Cuda failure ";
    const bool is_opening = e->cuda->collectives != &e->base;
    cuda_error_t now = tr_cuda_error_now();
    const bool is_of_cuda = now.blames || result == ncclUnhandledCudaError;
    /* NCCL calls CUDA in a thread of its own, whose last error this thread does not see. */
    const char *place = detail ? strstr(detail, said) : NULL;
    if (is_of_cuda && now.number == 0 && place)
        now = tr_cuda_error(CUDA_ERRORS_RUNTIME, atoi(place + sizeof said - 1));
    if (is_of_cuda && now.number == 0 && !is_opening) now.code = TR_ERR_RETRY;
    cuda_error_t row = is_of_cuda ? now : tr_cuda_error(CUDA_ERRORS_NCCL, (int)result);
    if (is_opening && row.code == TR_ERR_INTERNAL &&
        (result == ncclInvalidUsage || result == ncclUnhandledCudaError))
        row.code = TR_ERR_CONFIG;
    return row;
}

/* While the communicator opens: a sentence about the interfaces, for an error of the network. */
enum { NETWORK_BYTES = 700 };
static void nccl_network_text(const engine_t *e, char text[NETWORK_BYTES]) {
    if (e->cuda->collectives != &e->base) tr_cuda_nccl_network(&e->id, text, NETWORK_BYTES);
}

static tr_status_t fail_nccl(engine_t *e, const group_t *group, ncclResult_t result,
                             const char *call) {
    const char *detail = e->nccl->GetLastError(group->comm);
    const cuda_error_t row = cuda_nccl_row(e, result, detail);
    char network[NETWORK_BYTES] = "";
    e->failed = true;
    if (result == ncclSystemError || result == ncclRemoteError) nccl_network_text(e, network);
    return tr_cuda_error_record(
        &row, __FILE__, __LINE__, __func__,
        "NCCL: %s failed on rank %d of %d: %s%s%.300s (%s; NCCL_DEBUG=WARN prints more)%s", call,
        e->base.rank, e->base.size, e->nccl->GetErrorString(result), detail && *detail ? ": " : "",
        detail ? detail : "", *row.name ? row.name : "a bug", network);
}

static void pause_poll(void) {
    const struct timespec nap = {0, (long)(POLL_SEC * 1e9)};
    nanosleep(&nap, NULL);
}

/* Calls that make an object answer ncclSuccess while they are in progress. */
static ncclResult_t nccl_begun(ncclResult_t result) {
    return result == ncclSuccess ? ncclInProgress : result;
}

/* The result of a call that may still be in progress. */
static tr_status_t settle(engine_t *e, const group_t *group, ncclResult_t result, const char *call,
                          double timeout_sec) {
    const double began = tr_clock_sec();
    while (result == ncclInProgress) {
        const ncclResult_t asked = e->nccl->CommGetAsyncError(group->comm, &result);
        if (asked != ncclSuccess) result = asked;
        if (result != ncclInProgress) break;
        if (timeout_sec > 0 && tr_clock_sec() - began > timeout_sec) {
            char network[NETWORK_BYTES] = "";
            e->failed = true;
            nccl_network_text(e, network);
            return TR_FAIL(
                TR_ERR_RETRY,
                "NCCL: %s on rank %d of %d did not end within %.1f s: a rank is missing, "
                "or the network is down. NCCL_DEBUG=INFO prints more%s",
                call, e->base.rank, e->base.size, timeout_sec, network);
        }
        if (tr_clock_sec() - began > SPIN_SEC) pause_poll();
    }
    return result == ncclSuccess ? TR_OK : fail_nccl(e, group, result, call);
}
#define NCCL_TRY(e, group, name, ...)                                                              \
    TR_TRY(settle((e), (group), (e)->nccl->name(__VA_ARGS__), "nccl" #name, (e)->timeout_sec))

static tr_status_t fail_if_failed(const engine_t *e) {
    if (!e->failed) return TR_OK;
    return TR_FAIL(TR_ERR_RETRY, "NCCL failed earlier on rank %d of %d; start the job again",
                   e->base.rank, e->base.size);
}

/* -- times ------------------------------------------------------------------------------------- */

static tr_status_t cuda_nccl_is_capturing(cudaStream_t stream, bool *out) {
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    CUDA_TRY(cudaStreamIsCapturing(stream, &state));
    *out = state != cudaStreamCaptureStatusNone;
    return TR_OK;
}

static void nccl_replayed(tr_collectives_t *c, tr_ticket_t first, tr_ticket_t last) {
    tr_cuda_times_replayed(&engine_of(c)->times, first, last, c->started + 1);
    c->started += last - first + 1;
}

/* For the trace: a collective, not the wait for it. */
static void nccl_trace(void *self, const cuda_interval_t *i) {
    const engine_t *e = self;
    const tr_collectives_trace_t *trace = &e->base.trace;
    float begin_ms = 0, end_ms = 0;
    if (i->sum == &e->base.busy_sec && !i->captured &&
        cudaEventElapsedTime(&begin_ms, trace->origin->handle, i->from) == cudaSuccess &&
        cudaEventElapsedTime(&end_ms, trace->origin->handle, i->to) == cudaSuccess)
        trace->take(trace->self, i->ticket, begin_ms * 1e-3, end_ms * 1e-3);
    else
        (void)cudaGetLastError();
}

static tr_status_t nccl_settle(tr_collectives_t *c, tr_ticket_t ticket) {
    engine_t *e = engine_of(c);
    TR_TRY(tr_cuda_enter(&e->cuda->base));
    tr_cuda_times_settle(&e->times, ticket, c->trace.origin ? nccl_trace : NULL, e);
    if (e->times.lost) c->unmeasured = true;
    e->times.lost = false;
    return TR_OK;
}

/* -- the table --------------------------------------------------------------------------------- */

static tr_status_t cuda_nccl_type_of(tr_dtype_t dtype, ncclDataType_t *out) {
    switch (dtype) {
    case TR_F32: return *out = ncclFloat32, TR_OK;
    case TR_F64: return *out = ncclFloat64, TR_OK;
    case TR_F16: return *out = ncclFloat16, TR_OK;
    case TR_BF16: return *out = ncclBfloat16, TR_OK;
    case TR_I32: return *out = ncclInt32, TR_OK;
    case TR_I64: return *out = ncclInt64, TR_OK;
    case TR_U8: return *out = ncclUint8, TR_OK;
    default: return TR_FAIL(TR_ERR_CONFIG, "NCCL has no sums of %s", tr_dtype_name(dtype));
    }
}

typedef struct {
    enum { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, SEND, RECEIVE } kind;
    const group_t *group;
    char *data;
    int64_t count;
    tr_dtype_t dtype;
    int peer;
} call_t;

static tr_status_t call_nccl(engine_t *e, const call_t *c, ncclDataType_t type) {
    const group_t *g = c->group;
    const size_t n = (size_t)c->count, part = n / (size_t)g->size;
    char *own = c->data + (size_t)g->rank * part * tr_dtype_bytes(c->dtype);
    switch (c->kind) {
    case ALLREDUCE:
        NCCL_TRY(e, g, AllReduce, c->data, c->data, n, type, ncclSum, g->comm, e->stream);
        break;
    case REDUCE_SCATTER:
        NCCL_TRY(e, g, ReduceScatter, c->data, own, part, type, ncclSum, g->comm, e->stream);
        break;
    case ALLGATHER: NCCL_TRY(e, g, AllGather, own, c->data, part, type, g->comm, e->stream); break;
    case BROADCAST:
        NCCL_TRY(e, g, Broadcast, c->data, c->data, n, type, c->peer, g->comm, e->stream);
        break;
    case SEND: NCCL_TRY(e, g, Send, c->data, n, type, c->peer, g->comm, e->stream); break;
    case RECEIVE: NCCL_TRY(e, g, Recv, c->data, n, type, c->peer, g->comm, e->stream); break;
    }
    return TR_OK;
}

/* Behind what `stream` has; messages between two ranks are not in the order that all ranks share,
 * so they do not count. */
static tr_status_t nccl_enqueue(engine_t *e, const call_t *c, cudaStream_t stream,
                                tr_ticket_t *out) {
    const bool counts = c->kind != SEND && c->kind != RECEIVE;
    ncclDataType_t type = ncclFloat32;
    bool capturing = false;
    TR_TRY(fail_if_failed(e));
    TR_TRY(tr_cuda_enter(&e->cuda->base));
    TR_TRY(cuda_nccl_type_of(c->dtype, &type));
    TR_TRY(cuda_nccl_is_capturing(stream, &capturing));
    CUDA_TRY(cudaEventRecord(e->ready, stream));
    CUDA_TRY(cudaStreamWaitEvent(e->stream, e->ready, 0));
    if (counts) TR_TRY(tr_cuda_count(e->stream, &e->words->entered));
    const cuda_interval_t busy = tr_cuda_times_begin(&e->times, e->stream, capturing);
    const tr_status_t status = call_nccl(e, c, type);
    if (status == TR_OK) /* else nothing is measured any more */
        tr_cuda_times_end(&e->times, busy, e->stream, e->base.started + 1, &e->base.busy_sec);
    TR_TRY(status);
    *out = ++e->base.started;
    if (counts) TR_TRY(tr_cuda_count(e->stream, &e->words->completed));
    CUDA_TRY(cudaEventRecord(e->done[*out % DONE_EVENTS], e->stream));
    e->base.calls++;
    e->base.bytes += c->count * (int64_t)tr_dtype_bytes(c->dtype);
    return TR_OK;
}

static tr_status_t nccl_start(tr_collectives_t *c, const tr_collective_t *what, tr_stream_t *stream,
                              tr_ticket_t *out) {
    engine_t *e = engine_of(c);
    if (what->group < 0 || what->group >= e->group_count)
        return TR_FAIL(TR_ERR_INTERNAL, "Group %d of ranks was never created.", what->group);
    const call_t call = {.kind = what->kind == TR_ALLREDUCE        ? ALLREDUCE
                                 : what->kind == TR_REDUCE_SCATTER ? REDUCE_SCATTER
                                                                   : ALLGATHER,
                         .group = &e->group[what->group],
                         .data = what->data,
                         .count = what->count,
                         .dtype = what->dtype};
    if (call.kind != ALLREDUCE && what->count % call.group->size != 0)
        return TR_FAIL(TR_ERR_INTERNAL, "%lld elements cannot be split into %d equal parts.",
                       (long long)what->count, call.group->size);
    return nccl_enqueue(e, &call, stream->handle, out);
}

static tr_status_t nccl_wait(tr_collectives_t *c, tr_ticket_t ticket, tr_stream_t *stream) {
    engine_t *e = engine_of(c);
    bool capturing = false;
    if (ticket > c->started)
        return TR_FAIL(TR_ERR_INTERNAL, "Cannot wait for ticket %lld: only %lld were issued.",
                       (long long)ticket, (long long)c->started);
    TR_TRY(fail_if_failed(e));
    TR_TRY(tr_cuda_enter(&e->cuda->base));
    TR_TRY(cuda_nccl_is_capturing(stream->handle, &capturing));
    const cuda_interval_t exposed = tr_cuda_times_begin(&e->times, stream->handle, capturing);
    const cudaError_t error = cudaStreamWaitEvent(stream->handle, e->done[ticket % DONE_EVENTS], 0);
    tr_cuda_times_end(&e->times, exposed, stream->handle, ticket, &c->exposed_sec);
    return tr_cuda_check(error, "cudaStreamWaitEvent");
}

static tr_status_t nccl_progress(tr_collectives_t *c) {
    (void)c; /* the device needs no help */
    return TR_OK;
}

static tr_status_t at_once(tr_collectives_t *c, call_t call, tr_stream_t *stream) {
    engine_t *e = engine_of(c);
    tr_ticket_t ticket = 0;
    call.group = &e->group[TR_GROUP_ALL];
    TR_TRY(nccl_enqueue(e, &call, stream->handle, &ticket));
    return nccl_wait(c, ticket, stream);
}

static tr_status_t nccl_broadcast(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                                  int root, tr_stream_t *stream) {
    return at_once(
        c, (call_t){.kind = BROADCAST, .data = data, .count = count, .dtype = dtype, .peer = root},
        stream);
}

static tr_status_t nccl_send(tr_collectives_t *c, const void *data, int64_t count, tr_dtype_t dtype,
                             int to, tr_stream_t *stream) {
    return at_once(
        c, (call_t){.kind = SEND, .data = (char *)data, .count = count, .dtype = dtype, .peer = to},
        stream);
}

static tr_status_t nccl_receive(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                                int from, tr_stream_t *stream) {
    return at_once(
        c, (call_t){.kind = RECEIVE, .data = data, .count = count, .dtype = dtype, .peer = from},
        stream);
}

static tr_status_t nccl_split(tr_collectives_t *c, int color, int *out_group) {
    engine_t *e = engine_of(c);
    const group_t *all = &e->group[TR_GROUP_ALL];
    *out_group = -1;
    TR_TRY(fail_if_failed(e));
    if (e->group_count == GROUPS)
        return TR_FAIL(TR_ERR_INTERNAL, "The limit of %d groups of ranks is reached.", GROUPS);
    TR_TRY(tr_cuda_enter(&e->cuda->base));
    group_t *group = &e->group[e->group_count];
    group->comm = NULL;
    /* The old communicator is in progress, and group->comm is NULL, until the split is complete. */
    const ncclResult_t result =
        e->nccl->CommSplit(all->comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color, all->rank,
                           &group->comm, NULL);
    TR_TRY(settle(e, all, nccl_begun(result), "ncclCommSplit", e->timeout_sec));
    if (color < 0) return TR_OK;
    NCCL_TRY(e, group, CommCount, group->comm, &group->size);
    NCCL_TRY(e, group, CommUserRank, group->comm, &group->rank);
    *out_group = e->group_count++;
    return TR_OK;
}

/* A collective that was entered and is not completed for too long. */
static tr_status_t fail_if_hanging(engine_t *e) {
    const int64_t entered = e->words->entered, completed = e->words->completed;
    const double now = tr_clock_sec();
    if (entered != e->seen_entered || completed != e->seen_completed || completed == entered) {
        e->seen_entered = entered;
        e->seen_completed = completed;
        e->seen_sec = now;
    }
    if (e->timeout_sec <= 0 || now - e->seen_sec <= HANG_FACTOR * e->timeout_sec) return TR_OK;
    e->failed = true;
    return TR_FAIL(TR_ERR_RETRY,
                   "NCCL: collective %lld of rank %d of %d has not completed for %.1f s: another "
                   "rank did not reach it, or the network is down. NCCL_DEBUG=INFO prints more",
                   (long long)entered, e->base.rank, e->base.size, now - e->seen_sec);
}

static tr_status_t nccl_check(tr_collectives_t *c) {
    engine_t *e = engine_of(c);
    if (!pthread_equal(pthread_self(), e->thread)) return TR_OK;
    TR_TRY(fail_if_failed(e));
    for (int i = 0; i < e->group_count; i++) {
        ncclResult_t state = ncclSuccess;
        const ncclResult_t result = e->nccl->CommGetAsyncError(e->group[i].comm, &state);
        if (result == ncclSuccess && (state == ncclSuccess || state == ncclInProgress)) continue;
        return fail_nccl(e, &e->group[i], result == ncclSuccess ? state : result, "a collective");
    }
    return fail_if_hanging(e);
}

/* -- memory that ranks share ------------------------------------------------------------------- */

static tr_status_t alloc_shared(tr_device_t *device, size_t bytes, void **out) {
    const char *reason = NULL;
    const cuda_nccl_t *nccl = tr_cuda_nccl_load(&reason);
    const ncclResult_t result = nccl->MemAlloc(out, bytes);
    if (result == ncclSuccess) return TR_OK;
    (void)cudaGetLastError();
    return TR_FAIL(TR_ERR_MEMORY, "%s: no %.1f MiB of memory that ranks share: ncclMemAlloc: %s",
                   device->description, (double)bytes / 0x1p20, nccl->GetErrorString(result));
}

static void free_shared(tr_device_t *device, void *memory) {
    const char *reason = NULL;
    (void)device;
    (void)tr_cuda_nccl_load(&reason)->MemFree(memory);
}

/* NCCL gives no window where the machine has none, and that is no error. */
static tr_status_t nccl_share(tr_collectives_t *c, void *data, size_t bytes) {
    engine_t *e = engine_of(c);
    const group_t *all = &e->group[TR_GROUP_ALL];
    if (!e->windows || e->window) return TR_OK;
    TR_TRY(tr_cuda_enter(&e->cuda->base));
    const ncclResult_t result = e->nccl->CommWindowRegister(all->comm, data, bytes, &e->window,
                                                            NCCL_WIN_COLL_SYMMETRIC);
    return settle(e, all, nccl_begun(result), "ncclCommWindowRegister", e->timeout_sec);
}

/* -- opening and closing ----------------------------------------------------------------------- */

static void free_engine(engine_t *e) {
    tr_cuda_times_free(&e->times);
    for (int i = 0; i < DONE_EVENTS; i++)
        if (e->done[i]) cudaEventDestroy(e->done[i]);
    if (e->ready) cudaEventDestroy(e->ready);
    if (e->stream) cudaStreamDestroy(e->stream);
    if (e->words) cudaFreeHost(e->words);
    tr_free(&e);
}

/* What is enqueued ends without a result. */
static void abort_all(engine_t *e) {
    for (int i = e->group_count - 1; i >= 0; i--) (void)e->nccl->CommAbort(e->group[i].comm);
    e->group_count = 0;
}

static tr_status_t finish_stream(engine_t *e, double timeout_sec) {
    const double began = tr_clock_sec();
    cudaError_t error;
    while ((error = cudaStreamQuery(e->stream)) == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* "not ready" is no error */
        TR_TRY(nccl_check(&e->base));
        if (timeout_sec > 0 && tr_clock_sec() - began > timeout_sec)
            return TR_FAIL(TR_ERR_RETRY,
                           "NCCL: collectives of rank %d of %d did not end within %.1f s",
                           e->base.rank, e->base.size, timeout_sec);
        pause_poll();
    }
    return tr_cuda_check(error, "work of the communication stream");
}

static tr_status_t finalize(engine_t *e, double timeout_sec) {
    TR_TRY(fail_if_failed(e));
    TR_TRY(finish_stream(e, timeout_sec));
    if (e->window) {
        const group_t *all = &e->group[TR_GROUP_ALL];
        NCCL_TRY(e, all, CommWindowDeregister, all->comm, e->window);
    }
    for (int i = e->group_count - 1; i >= 0; i--) {
        const group_t *g = &e->group[i];
        TR_TRY(settle(e, g, e->nccl->CommFinalize(g->comm), "ncclCommFinalize", timeout_sec));
        (void)e->nccl->CommDestroy(g->comm);
        e->group_count--;
    }
    return TR_OK;
}

static tr_status_t nccl_close(tr_collectives_t **c, double timeout_sec) {
    engine_t *e = engine_of(*c);
    const bool had_failed = e->failed;
    *c = NULL;
    e->cuda->collectives = NULL;
    TR_TRY(tr_cuda_enter(&e->cuda->base));
    const tr_status_t status = had_failed ? TR_OK : finalize(e, timeout_sec);
    abort_all(e); /* those that finalize left */
    free_engine(e);
    return status;
}

static const tr_collectives_ops_t nccl_ops = {
    .start = nccl_start,
    .wait = nccl_wait,
    .progress = nccl_progress,
    .broadcast = nccl_broadcast,
    .send = nccl_send,
    .receive = nccl_receive,
    .split = nccl_split,
    .share = nccl_share,
    .replayed = nccl_replayed,
    .settle = nccl_settle,
    .check = nccl_check,
    .close = nccl_close,
};

static tr_status_t make_events(engine_t *e) {
    int least = 0, greatest = 0;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cudaStreamCreateWithPriority(&e->stream, cudaStreamNonBlocking, greatest));
    CUDA_TRY(cudaEventCreateWithFlags(&e->ready, cudaEventDisableTiming));
    for (int i = 0; i < DONE_EVENTS; i++)
        CUDA_TRY(cudaEventCreateWithFlags(&e->done[i], cudaEventDisableTiming));
    CUDA_TRY(cudaHostAlloc((void **)&e->words, sizeof *e->words, cudaHostAllocPortable));
    memset(e->words, 0, sizeof *e->words);
    return TR_OK;
}

static tr_status_t init_all(engine_t *e, const void *id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    group_t *all = &e->group[TR_GROUP_ALL];
    config.blocking = 0;
    memcpy(&e->id, id, sizeof e->id);
    *all = (group_t){.rank = e->base.rank, .size = e->base.size};
    const ncclResult_t result =
        e->nccl->CommInitRankConfig(&all->comm, all->size, e->id, all->rank, &config);
    if (all->comm) e->group_count = 1;
    return settle(e, all, result, "ncclCommInitRankConfig", e->timeout_sec);
}

static tr_status_t make_engine(const tr_collectives_params_t *params, engine_t **out) {
    const char *reason = NULL;
    engine_t *e = NULL;
    const cuda_nccl_t *nccl = tr_cuda_nccl_load(&reason);
    if (!nccl) return TR_FAIL(TR_ERR_CONFIG, "%s", reason);
    TR_TRY(tr_cuda_enter(params->device));
    TR_TRY(tr_alloc(sizeof *e, "the NCCL engine", &e));
    *out = e;
    e->cuda = cuda_self(params->device);
    e->nccl = nccl;
    e->thread = pthread_self();
    e->timeout_sec = params->timeout_sec;
    e->base = (tr_collectives_t){.ops = &nccl_ops, .rank = params->rank, .size = params->size};
    TR_TRY(make_events(e));
    e->base.words = e->words;
    return init_all(e, params->id);
}

static tr_status_t windows_of_this_rank(const cuda_nccl_t *n, tr_windows_t wanted) {
    const bool has = n->MemAlloc && n->MemFree && n->CommWindowRegister && n->CommWindowDeregister;
    if (wanted != TR_WINDOWS_ON) return TR_FAIL(TR_ERR_CONFIG, "parallel.windows is not on");
    if (!has) return TR_FAIL(TR_ERR_CONFIG, "NCCL %d cannot register memory", n->version);
    return TR_OK;
}

static tr_status_t capture_of_this_rank(const cuda_nccl_t *n, int nodes) {
    if (nodes == 1 || n->version >= CAPTURED_BETWEEN_NODES_FROM) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "NCCL %d.%d.%d: collectives between nodes run op by op, because in versions "
                   "below 2.30.4 they have deadlocked in graphs, and they may hang op by op, too: "
                   "install NCCL 2.30.4 or later",
                   n->version / 10000, n->version / 100 % 100, n->version % 100);
}

/* *out: whether all ranks can what `mine` says of this one: TR_ERR_CONFIG is no, whose message stays
 * the last error. */
static tr_status_t nccl_all_can(const tr_peers_t *peers, tr_status_t mine, bool *out) {
    const tr_status_t all = peers->agree(peers->self, mine);
    *out = all == TR_OK;
    return all == TR_ERR_CONFIG ? TR_OK : all;
}

static tr_status_t agree_on_features(engine_t *e, const tr_collectives_params_t *p) {
    TR_TRY(nccl_all_can(p->peers, windows_of_this_rank(e->nccl, p->windows), &e->windows));
    if (!e->windows && p->windows == TR_WINDOWS_ON)
        TR_WARN("parallel.windows: %s", tr_error_last()->message);
    TR_TRY(nccl_all_can(p->peers, capture_of_this_rank(e->nccl, p->nodes), &e->base.capturable));
    if (!e->base.capturable)
        snprintf(e->base.advice, sizeof e->base.advice, "%.500s", tr_error_last()->message);
    tr_error_clear();
    return TR_OK;
}

static tr_status_t nccl_open(const tr_collectives_params_t *params, tr_collectives_t **out) {
    engine_t *e = NULL;
    tr_status_t status = params->peers->agree(params->peers->self, make_engine(params, &e));
    if (status == TR_OK) status = agree_on_features(e, params);
    if (status != TR_OK) {
        if (e) abort_all(e);
        if (e) free_engine(e);
        return status;
    }
    e->cuda->collectives = &e->base;
    if (e->windows) e->cuda->shared = (cuda_shared_memory_t){alloc_shared, free_shared, NULL};
    *out = &e->base;
    return TR_OK;
}

static const char *nccl_unavailable(tr_device_t *device) {
    const char *reason = NULL;
    (void)device;
    (void)tr_cuda_nccl_load(&reason);
    return reason;
}

static tr_status_t nccl_make_id(tr_device_t *device, void *out_id) {
    const char *reason = NULL;
    const cuda_nccl_t *nccl = tr_cuda_nccl_load(&reason);
    ncclUniqueId id;
    _Static_assert(sizeof id <= TR_COLLECTIVES_ID_BYTES, "an id fits");
    if (!nccl) return TR_FAIL(TR_ERR_CONFIG, "%s", reason);
    TR_TRY(tr_cuda_enter(device));
    const ncclResult_t result = nccl->GetUniqueId(&id);
    if (result != ncclSuccess)
        return TR_FAIL(TR_ERR_RETRY, "NCCL: ncclGetUniqueId failed: %s: %.300s",
                       nccl->GetErrorString(result), nccl->GetLastError(NULL));
    memcpy(out_id, &id, sizeof id);
    return TR_OK;
}

const tr_collectives_engine_t tr_cuda_nccl = {
    .name = "nccl",
    .unavailable = nccl_unavailable,
    .make_id = nccl_make_id,
    .open = nccl_open,
};
