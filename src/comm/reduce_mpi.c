/*
 * The collectives table implemented with MPI, in one of two modes, the same on all ranks:
 *
 *   thread  a communication thread runs blocking reductions in the order they were started;
 *   poll    the caller starts non-blocking reductions and advances them between its ops.
 *
 * Ranges in memory that the ranks of a node share go by reduce_shared.c. By MPI, a range is reduced
 * in pieces, and a reduce-scatter is an all-reduce: that of Open MPI 4.1.4 gathers all on one rank,
 * and takes longer (docs/performance.md). Device memory that the host cannot access is staged
 * through pinned memory, one piece at a time, so that copies and reductions overlap.
 */
#include "engine_int.h"
#include "base/clock.h"
#include "base/int_math.h"
#include "base/mem.h"
#include "base/trace.h"
#include <limits.h>
#include <string.h>

#define TESTS_A_CLOCK 64 /* MPI_Test calls between readings of the clock */
/* thread: in shared memory, less takes less time than it takes to wake the communication thread */
#define WAKE_BYTES ((int64_t)64 << 10)

static tr_reduction_t *reduce_slot_of(tr_engine_t *e, int64_t ticket) {
    return &e->slots[(ticket - 1 - e->origin) % TR_SLOTS];
}
static void *reduce_host_of(const tr_reduction_t *r) {
    return r->staging ? r->staging : r->data;
}
static bool reduce_uses_mpi(const tr_reduction_t *r) {
    return !r->shared || r->shared->across != MPI_COMM_NULL;
}

/* Of elements that are summed; MPI_DATATYPE_NULL: not supported. */
static MPI_Datatype mpi_type(tr_dtype_t dtype) {
    switch (dtype) {
    case TR_F32: return MPI_FLOAT;
    case TR_F64: return MPI_DOUBLE;
    case TR_I64: return MPI_INT64_T;
    default: return MPI_DATATYPE_NULL;
    }
}

/* Of elements that are only moved. */
static MPI_Datatype mpi_type_of_bytes(tr_dtype_t dtype) {
    const size_t bytes = tr_dtype_bytes(dtype);
    return bytes == 8   ? MPI_UINT64_T
           : bytes == 4 ? MPI_UINT32_T
           : bytes == 2 ? MPI_UINT16_T
                        : MPI_BYTE;
}

/* -- pinned memory ----------------------------------------------------------------------------- */

tr_status_t tr_engine_grow(tr_engine_t *e, int64_t bytes, void **memory, int64_t *held) {
    const tr_device_ops_t *ops = e->device->ops;
    if (*held >= bytes) return TR_OK;
    if (e->returned) TR_TRY(ops->event_sync(e->device, e->returned)); /* a copy may still read it */
    if (*memory) ops->host_free(e->device, *memory);
    *memory = NULL;
    *held = 0;
    TR_TRY(ops->host_alloc(e->device, (size_t)bytes, memory));
    *held = bytes;
    return TR_OK;
}

static tr_status_t reduce_to_host(tr_engine_t *e, tr_reduction_t *r, tr_stream_t *stream) {
    const tr_device_ops_t *ops = e->device->ops;
    if (e->staged) {
        TR_TRY(tr_engine_grow(e, r->bytes, &r->staging, &r->staging_bytes));
        if (e->returned) TR_TRY(ops->event_wait(e->device, e->returned, stream));
        TR_TRY(
            ops->copy(e->device, stream, r->staging, r->data, (size_t)r->bytes, TR_COPY_TO_HOST));
    }
    if (e->device->immediate) return TR_OK;
    if (!r->ready) TR_TRY(ops->event_create(e->device, 0, &r->ready));
    return ops->event_record(e->device, r->ready, stream);
}

tr_status_t tr_engine_to_device(tr_engine_t *e, void *data, const void *host, int64_t bytes,
                                tr_stream_t *stream) {
    const tr_device_ops_t *ops = e->device->ops;
    if (!e->staged) return TR_OK;
    if (!e->returned) TR_TRY(ops->event_create(e->device, 0, &e->returned));
    TR_TRY(ops->copy(e->device, stream, data, host, (size_t)bytes, TR_COPY_TO_DEVICE));
    return ops->event_record(e->device, e->returned, stream);
}

/* -- thread ------------------------------------------------------------------------------------ */

static tr_status_t reduce_call_blocking(const tr_reduction_t *r) {
    void *data = reduce_host_of(r);
    if (r->kind == TR_ALLGATHER)
        TR_MPI(MPI_Allgather,
               (MPI_IN_PLACE, 0, r->type, data, (int)(r->count / r->size), r->type, r->comm));
    else
        TR_MPI(MPI_Allreduce, (MPI_IN_PLACE, data, (int)r->count, r->type, MPI_SUM, r->comm));
    return TR_OK;
}

/* Completes the collectives in shared memory up to `ticket`, on the communication thread or on the
 * caller's. timeout_sec: 0: none. */
static tr_status_t reduce_run_shared(tr_engine_t *e, int64_t ticket, double timeout_sec) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += (time_t)timeout_sec + 1;
    if ((timeout_sec > 0 ? pthread_mutex_timedlock(&e->order, &deadline)
                         : pthread_mutex_lock(&e->order)) != 0) {
        e->given_up = true;
        return tr_mpi_timed_out(timeout_sec, ticket);
    }
    tr_status_t status = TR_OK;
    if (e->ran < ticket && e->ran < e->origin) e->ran = e->origin;
    for (; status == TR_OK && e->ran < ticket; e->ran++) {
        tr_reduction_t *r = reduce_slot_of(e, e->ran + 1);
        if (!reduce_uses_mpi(r)) status = tr_shared_run(r, timeout_sec);
    }
    pthread_mutex_unlock(&e->order);
    return status;
}

static tr_status_t reduce_run_reduction(MPI_Comm comm, void *arg) {
    (void)comm;
    tr_reduction_t *r = arg;
    tr_engine_t *e = r->engine;
    if (!reduce_uses_mpi(r)) return reduce_run_shared(e, r->ticket, 0);
    if (r->shared) return tr_shared_run(r, 0);
    if (!e->device->immediate) {
        TR_TRY(e->device->ops->event_sync(e->device, r->ready));
        r->begin_sec = tr_clock_sec();
    }
    TR_HEARTBEAT_ADD(e->world->heartbeat.entered, 1);
    TR_TRY(reduce_call_blocking(r));
    TR_HEARTBEAT_ADD(e->world->heartbeat.completed, 1);
    r->end_sec = tr_clock_sec();
    return TR_OK;
}

/* -- poll -------------------------------------------------------------------------------------- */

static tr_status_t reduce_call_nonblocking(tr_reduction_t *r) {
    void *data = reduce_host_of(r);
    if (r->kind == TR_ALLGATHER)
        TR_MPI(MPI_Iallgather, (MPI_IN_PLACE, 0, r->type, data, (int)(r->count / r->size), r->type,
                                r->comm, &r->request));
    else
        TR_MPI(MPI_Iallreduce,
               (MPI_IN_PLACE, data, (int)r->count, r->type, MPI_SUM, r->comm, &r->request));
    return TR_OK;
}

/* *out_begun: false if a rank of this node has not started the collective. */
static tr_status_t reduce_begin_next(tr_engine_t *e, bool *out_begun) {
    tr_reduction_t *r = reduce_slot_of(e, e->begun + 1);
    *out_begun = true;
    if (r->shared) {
        TR_TRY(tr_shared_begin(r, true));
        *out_begun = r->summed;
        e->begun += r->summed;
        return TR_OK;
    }
    if (!e->device->immediate) {
        TR_TRY(e->device->ops->event_sync(e->device, r->ready));
        r->begin_sec = tr_clock_sec();
    }
    TR_TRY(reduce_call_nonblocking(r));
    e->begun++;
    TR_HEARTBEAT_ADD(e->world->heartbeat.entered, 1);
    return TR_OK;
}

/* Begins those up to `ticket` that can begin. */
static tr_status_t reduce_begin_until(tr_engine_t *e, int64_t ticket) {
    for (bool begun = true; begun && e->begun < ticket;) TR_TRY(reduce_begin_next(e, &begun));
    return TR_OK;
}

/* Advances pieces in MPI, records completions, and submits pieces that are ready. */
static tr_status_t reduce_move_on(tr_engine_t *e) {
    bool complete = true;
    while (e->tested < e->begun) {
        tr_reduction_t *r = reduce_slot_of(e, e->tested + 1);
        int sent = 0;
        if (r->shared)
            TR_TRY(tr_shared_test(r, &complete));
        else
            TR_MPI(MPI_Test, (&r->request, &sent, MPI_STATUS_IGNORE));
        if (!(r->shared ? complete : sent)) break;
        r->end_sec = tr_clock_sec();
        e->tested++;
        TR_HEARTBEAT_ADD(e->world->heartbeat.completed, 1);
    }
    return e->device->immediate ? reduce_begin_until(e, min64(e->started, e->tested + TR_WINDOW))
                                : TR_OK;
}

/* Between two turns of a loop that waits for r: for a rank of this node, or for MPI. */
static tr_status_t reduce_pause(tr_engine_t *e, const tr_reduction_t *r, int64_t turn,
                                double *deadline) {
    if (!reduce_uses_mpi(r))
        tr_shared_pause(r);
    else if (turn % TESTS_A_CLOCK)
        return TR_OK;
    else if (e->world->info.more_than_cores)
        sched_yield();
    if (*deadline == 0) *deadline = tr_clock_sec() + e->timeout_sec;
    if (e->timeout_sec > 0 && tr_clock_sec() > *deadline)
        return tr_mpi_timed_out(e->timeout_sec, e->tested + 1);
    return TR_OK;
}

/* Waits for `ticket`; those up to `last` are needed next. */
static tr_status_t reduce_wait_polled(tr_engine_t *e, int64_t ticket, int64_t last) {
    double deadline = 0;
    for (int64_t turn = 0;; turn++) {
        TR_TRY(reduce_begin_until(e, min64(last, e->tested + TR_WINDOW)));
        TR_TRY(reduce_move_on(e));
        if (e->tested >= ticket) return TR_OK;
        TR_TRY(reduce_pause(e, reduce_slot_of(e, e->tested + 1), turn, &deadline));
    }
}

static tr_status_t reduce_begin_polled(tr_engine_t *e) {
    double deadline = 0;
    for (int64_t turn = 0;; turn++) {
        TR_TRY(reduce_begin_until(e, e->started));
        if (e->begun == e->started) return TR_OK;
        TR_TRY(reduce_move_on(e));
        if (e->begun < e->started)
            TR_TRY(reduce_pause(e, reduce_slot_of(e, e->begun + 1), turn, &deadline));
    }
}

tr_status_t tr_engine_begin_all(tr_engine_t *e) {
    if (e->worker) {
        if (e->held <= e->retired) return TR_OK;
        tr_reduction_t *r = reduce_slot_of(e, e->held);
        e->held = 0;
        return tr_worker_submit(e->worker, reduce_run_reduction, r, &r->job);
    }
    if (e->begun == e->started) return TR_OK;
    TR_HEARTBEAT_ADD(e->world->heartbeat.blocked, 1);
    const tr_status_t status = reduce_begin_polled(e);
    TR_HEARTBEAT_ADD(e->world->heartbeat.blocked, -1);
    e->world->lost = e->world->lost || status == TR_ERR_RETRY;
    return status;
}

static tr_status_t reduce_before_world(void *engine) {
    return tr_engine_begin_all(engine);
}

/* -- the table --------------------------------------------------------------------------------- */

/* Records a collective when its last piece is retired. */
static void reduce_mpi_trace(tr_engine_t *e, const tr_reduction_t *r, double begin_sec) {
    if (e->trace_begin_sec == 0) e->trace_begin_sec = begin_sec;
    if (r->whole_bytes == 0) return;
    tr_trace_add(&(tr_span_t){.kind = TR_SPAN_COLLECTIVE,
                              .step = tr_trace_step(),
                              .number = r->bucket,
                              .bytes = r->whole_bytes,
                              .begin_sec = e->trace_begin_sec,
                              .end_sec = r->end_sec > begin_sec ? r->end_sec : begin_sec});
    e->trace_begin_sec = 0;
}

static tr_status_t reduce_retire_next(tr_engine_t *e, int64_t last, tr_stream_t *stream) {
    int64_t ticket = e->retired + 1;
    tr_reduction_t *r = reduce_slot_of(e, ticket);
    if (!e->worker)
        TR_TRY(reduce_wait_polled(e, ticket, last));
    else if (reduce_uses_mpi(r))
        TR_TRY(tr_worker_wait(e->worker, r->job, e->timeout_sec));
    else
        TR_TRY(reduce_run_shared(e, ticket, e->timeout_sec));
    /* Overlapping intervals count once: they end in the order of their tickets. */
    const double begin = r->begin_sec > e->busy_until_sec ? r->begin_sec : e->busy_until_sec;
    if (tr_trace_is_on() && tr_trace_step() > 0) reduce_mpi_trace(e, r, begin);
    if (r->end_sec > begin) {
        e->base.busy_sec += r->end_sec - begin;
        e->busy_until_sec = r->end_sec;
    }
    e->retired = ticket;
    return tr_engine_to_device(e, r->data, r->staging, r->bytes, stream);
}

static tr_status_t reduce_wait_for(tr_collectives_t *c, tr_ticket_t ticket, tr_stream_t *stream) {
    tr_engine_t *e = (tr_engine_t *)c;
    double begin = tr_clock_sec();
    if (ticket > e->started)
        return TR_FAIL(TR_ERR_INTERNAL, "Cannot wait for ticket %lld: only %lld were issued.",
                       (long long)ticket, (long long)e->started);
    /* Results that an earlier wait copied back on another stream. */
    if (e->returned) TR_TRY(e->device->ops->event_wait(e->device, e->returned, stream));
    tr_status_t status = TR_OK;
    TR_HEARTBEAT_ADD(e->world->heartbeat.blocked, 1);
    while (status == TR_OK && e->retired < ticket) status = reduce_retire_next(e, ticket, stream);
    TR_HEARTBEAT_ADD(e->world->heartbeat.blocked, -1);
    e->world->lost = e->world->lost || status == TR_ERR_RETRY;
    TR_TRY(status);
    c->exposed_sec += tr_clock_sec() - begin;
    return TR_OK;
}

/* Whether collectives of the kind go by shared memory where their range is in it. */
static bool reduce_shares(const tr_group_t *group, tr_collective_kind_t kind) {
    return group->shared && (kind == TR_ALLREDUCE || group->shared->across == MPI_COMM_NULL);
}

/* `piece`: a collective, or a part of an all-reduce. */
static tr_status_t reduce_start_piece(tr_engine_t *e, const tr_group_t *group,
                                      const tr_collective_t *piece, tr_stream_t *stream) {
    if (e->started - e->retired == TR_SLOTS)
        TR_TRY(reduce_wait_for(&e->base, e->retired + 1, stream));
    /* every step in the pinned memory of the first */
    if (e->started == e->retired) e->origin = e->started;
    tr_reduction_t *r = reduce_slot_of(e, e->started + 1);
    /* the caller may have done its job */
    if (e->worker) TR_TRY(tr_worker_wait(e->worker, r->job, e->timeout_sec));
    r->engine = e;
    r->ticket = e->started + 1;
    r->comm = group->comm;
    r->rank = group->rank;
    r->size = group->size;
    r->kind = piece->kind;
    r->data = piece->data;
    r->type =
        piece->kind == TR_ALLGATHER ? mpi_type_of_bytes(piece->dtype) : mpi_type(piece->dtype);
    r->dtype = piece->dtype;
    r->count = piece->count;
    r->bytes = piece->count * (int64_t)tr_dtype_bytes(piece->dtype);
    r->block = tr_shared_find(e, r->data, r->bytes);
    r->shared = r->block && reduce_shares(group, r->kind) ? group->shared : NULL;
    r->bucket = piece->bucket;
    r->whole_bytes = 0;
    TR_TRY(reduce_to_host(e, r, stream));
    r->begin_sec = tr_clock_sec();
    if (r->shared) tr_shared_arrive(r);
    if (e->worker && !reduce_uses_mpi(r) && r->bytes <= WAKE_BYTES)
        e->held = r->ticket;
    else if (e->worker)
        TR_TRY(tr_worker_submit(e->worker, reduce_run_reduction, r, &r->job));
    e->started++;
    return TR_OK;
}

static tr_status_t reduce_mpi_progress(tr_collectives_t *c) {
    tr_engine_t *e = (tr_engine_t *)c;
    return e->worker || e->tested == e->started ? TR_OK : reduce_move_on(e);
}

static tr_status_t reduce_check_collective(const tr_engine_t *e, const tr_collective_t *what) {
    if (what->group < 0 || what->group >= e->group_count)
        return TR_FAIL(TR_ERR_INTERNAL, "Group %d of ranks was never created.", what->group);
    const int size = e->group[what->group].size;
    if (what->kind != TR_ALLGATHER && mpi_type(what->dtype) == MPI_DATATYPE_NULL)
        return TR_FAIL(TR_ERR_CONFIG,
                       "MPI reductions support f32, f64 and i64, not %s. Set parallel.engine = "
                       "nccl on GPUs.",
                       tr_dtype_name(what->dtype));
    if (what->kind != TR_ALLREDUCE && (what->count % size != 0 || what->count / size > INT_MAX))
        return TR_FAIL(TR_ERR_INTERNAL,
                       "%lld elements cannot be split into %d equal parts of less than 2^31 "
                       "elements.",
                       (long long)what->count, size);
    return TR_OK;
}

/* An all-reduce by MPI is split into pieces, so that each slice of it is one, if it goes by shared
 * memory on each node. The others move each byte once and are not split. */
static tr_status_t reduce_start_run(tr_collectives_t *c, const tr_collective_t *what,
                                    tr_stream_t *stream, tr_ticket_t *out) {
    tr_engine_t *e = (tr_engine_t *)c;
    TR_TRY(reduce_check_collective(e, what));
    const tr_group_t *group = &e->group[what->group];
    const int64_t elem = (int64_t)tr_dtype_bytes(what->dtype);
    const bool shares = group->shared && tr_shared_find(e, what->data, what->count * elem);
    tr_collective_t piece = *what;
    if (piece.kind == TR_REDUCE_SCATTER && !(shares && reduce_shares(group, piece.kind)))
        piece.kind = TR_ALLREDUCE;
    int64_t most = what->count;
    if (piece.kind == TR_ALLREDUCE && !shares) most = TR_PIECE_BYTES / elem;
    if (piece.kind == TR_ALLREDUCE && shares && group->shared->across != MPI_COMM_NULL)
        most = group->shared->count * TR_PIECE_BYTES / elem;
    c->calls++;
    c->bytes += what->count * elem;
    if (group->size == 1) {
        if (e->started == e->retired) e->retired = e->begun = e->tested = ++e->started;
        *out = e->started;
        return TR_OK;
    }
    for (int64_t at = 0; at < what->count; at += most) {
        piece.data = (char *)what->data + at * elem;
        piece.count = min64(most, what->count - at);
        TR_TRY(reduce_start_piece(e, group, &piece, stream));
    }
    reduce_slot_of(e, e->started)->whole_bytes = what->count * elem;
    *out = e->started;
    return reduce_mpi_progress(c);
}

/* -- groups ------------------------------------------------------------------------------------ */

typedef struct {
    tr_engine_t *engine;
    int color;
    tr_group_t group;
} split_t;

static tr_status_t reduce_run_split(MPI_Comm comm, void *arg) {
    (void)comm;
    split_t *s = arg;
    const int color = s->color < 0 ? MPI_UNDEFINED : s->color, split = ++s->engine->splits;
    TR_MPI(MPI_Comm_split, (s->engine->comm, color, s->engine->base.rank, &s->group.comm));
    if (s->color < 0) return TR_OK;
    TR_MPI(MPI_Comm_set_errhandler, (s->group.comm, MPI_ERRORS_RETURN));
    TR_MPI(MPI_Comm_rank, (s->group.comm, &s->group.rank));
    TR_MPI(MPI_Comm_size, (s->group.comm, &s->group.size));
    return tr_shared_join(s->engine, split, &s->group);
}

static tr_status_t reduce_mpi_split(tr_collectives_t *c, int color, int *out_group) {
    tr_engine_t *e = (tr_engine_t *)c;
    split_t s = {.engine = e, .color = color, .group = {MPI_COMM_NULL, 0, 1, NULL}};
    *out_group = -1;
    if (e->group_count == TR_GROUPS)
        return TR_FAIL(TR_ERR_INTERNAL, "The limit of %d groups of ranks is reached.", TR_GROUPS);
    TR_TRY(tr_engine_begin_all(e));
    TR_TRY(tr_world_run(e->world, reduce_run_split, &s));
    if (color < 0) return TR_OK;
    *out_group = e->group_count;
    e->group[e->group_count++] = s.group;
    return TR_OK;
}

static tr_status_t reduce_mpi_check(tr_collectives_t *c) {
    const tr_engine_t *e = (const tr_engine_t *)c;
    if (!e->world->lost) return TR_OK;
    return TR_FAIL(TR_ERR_RETRY, "The connection to a rank was lost earlier; start the job again.");
}

static tr_status_t reduce_close_engine(tr_collectives_t **c, double timeout_sec);

static const tr_collectives_ops_t mpi_ops = {
    .start = reduce_start_run,
    .wait = reduce_wait_for,
    .progress = reduce_mpi_progress,
    .broadcast = tr_engine_broadcast,
    .send = tr_engine_send,
    .receive = tr_engine_receive,
    .split = reduce_mpi_split,
    .check = reduce_mpi_check,
    .close = reduce_close_engine,
};

/* -- opening ----------------------------------------------------------------------------------- */

/* All ranks must choose alike: blocking and non-blocking collectives do not match each other. */
static tr_status_t reduce_choose_thread(tr_world_t *w, const tr_device_t *device, int engine,
                                        bool *out) {
    const tr_world_info_t *info = &w->info;
    if (engine == TR_ENGINE_THREAD && !w->any_thread)
        return TR_FAIL(TR_ERR_CONFIG,
                       "parallel.engine=thread requires an MPI that supports calls from another "
                       "thread; %s does not. Set parallel.engine=poll.",
                       info->mpi_version);
    bool spare = device->threads == 0 ? !info->more_than_cores
                                      : info->cores / info->cores_shared_by > device->threads;
    int64_t wish =
        engine == TR_ENGINE_THREAD || (engine == TR_ENGINE_AUTO && w->any_thread && spare);
    TR_TRY(tr_world_allreduce_int(w, &wish, 1, TR_REDUCE_MIN));
    *out = wish && info->size > 1;
    return TR_OK;
}

static tr_status_t reduce_run_duplicate(MPI_Comm comm, void *arg) {
    tr_engine_t *e = arg;
    TR_MPI(MPI_Comm_dup, (comm, &e->comm));
    TR_MPI(MPI_Comm_set_errhandler, (e->comm, MPI_ERRORS_RETURN));
    return TR_OK;
}

static tr_status_t reduce_open_engine(tr_engine_t *e, const tr_parallel_settings_t *settings) {
    bool thread = false;
    if (e->world->worker)
        return TR_FAIL(
            TR_ERR_INTERNAL,
            "The world already has a communication thread: close its collectives first.");
    TR_TRY(reduce_choose_thread(e->world, e->device, settings->engine, &thread));
    TR_TRY(tr_world_run(e->world, reduce_run_duplicate, e));
    if (!thread) return TR_OK;
    TR_TRY(tr_worker_start(e->world->comm, &e->worker));
    e->world->worker = e->worker;
    e->world->timeout_sec = e->timeout_sec;
    return TR_OK;
}

tr_status_t tr_engine_open(tr_world_t *world, tr_device_t *device,
                           const tr_parallel_settings_t *settings, tr_collectives_t **out) {
    tr_engine_t *e = NULL;
    TR_TRY(tr_alloc(sizeof *e, "MPI engine", &e));
    e->ops = mpi_ops;
    e->base =
        (tr_collectives_t){.ops = &e->ops, .rank = world->info.rank, .size = world->info.size};
    pthread_mutex_init(&e->order, NULL);
    e->world = world;
    e->comm = MPI_COMM_NULL;
    e->device = device;
    e->staged = !device->host_visible;
    e->timeout_sec = tr_watchdog_is_linked(world) ? 0 : settings->timeout;
    tr_collectives_t *opened = &e->base;
    tr_status_t status = reduce_open_engine(e, settings);
    if (status == TR_OK) {
        e->group[TR_GROUP_ALL] = (tr_group_t){e->comm, e->base.rank, e->base.size, NULL};
        e->group_count = 1;
        status = tr_shared_open(e);
    }
    if (status != TR_OK) {
        (void)reduce_close_engine(&opened, 0);
        return status;
    }
    if (e->shares) {
        e->ops.share = tr_shared_add_block;
        world->engine = e;
        world->before_run = reduce_before_world;
    }
    *out = opened;
    return TR_OK;
}

static tr_status_t reduce_close_engine(tr_collectives_t **c, double timeout_sec) {
    (void)timeout_sec; /* do not call MPI: it might wait for a lost peer */
    tr_engine_t *e = (tr_engine_t *)*c;
    const tr_device_ops_t *ops = e->device->ops;
    e->world->worker = NULL;
    e->world->before_run = NULL;
    tr_worker_stop(&e->worker);
    *c = NULL;
    if (e->world->lost) return TR_OK; /* MPI is still in a call that uses all this */
    for (int i = 0; i < TR_SLOTS; i++) {
        if (e->slots[i].ready) ops->event_destroy(e->device, e->slots[i].ready);
        if (e->slots[i].staging) ops->host_free(e->device, e->slots[i].staging);
    }
    if (e->returned) ops->event_destroy(e->device, e->returned);
    if (e->point) ops->host_free(e->device, e->point);
    tr_shared_close(e);
    pthread_mutex_destroy(&e->order);
    for (int i = 1; i < e->group_count; i++) tr_mpi_free(&e->group[i].comm);
    tr_mpi_free(&e->comm);
    tr_free(&e);
    return TR_OK;
}
