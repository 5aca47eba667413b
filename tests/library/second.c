/*
 * A small second device in a library of its own, with collectives of its own: what the seam of
 * device/library.h must carry. It computes with the program's cpu kernels in memory that the host
 * cannot see by its flags, and reduces through a file in shared memory, with no MPI. Only for
 * tests: everything blocks.
 */
#include "device/library.h"
#include "base/clock.h"
#include "base/mem.h"
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANKS_MAX   8
#define CHUNK_BYTES (1 << 16)

/* -- the device -------------------------------------------------------------------------------- */

typedef struct {
    tr_device_t base;
    tr_device_t *cpu;
    char handle; /* its address stands for every stream and event */
} second_t;

static tr_device_t *cpu_of(tr_device_t *device) {
    return ((second_t *)device)->cpu;
}

static tr_status_t second_alloc(tr_device_t *device, size_t bytes, unsigned flags, void **out) {
    return tr_alloc_aligned(bytes ? bytes : 1, 256, "memory of the second device", out);
}
static tr_status_t second_host_alloc(tr_device_t *device, size_t bytes, void **out) {
    return second_alloc(device, bytes, 0, out);
}
static void second_free(tr_device_t *device, void *pointer) {
    tr_free(&pointer);
}
static tr_status_t second_stream_create(tr_device_t *device, const char *name,
                                        tr_priority_t priority, tr_stream_t **out) {
    *out = (tr_stream_t *)&((second_t *)device)->handle;
    return TR_OK;
}
static void second_stream_destroy(tr_device_t *device, tr_stream_t *stream) {}
static tr_status_t second_stream_sync(tr_device_t *device, tr_stream_t *stream) {
    return TR_OK;
}
static tr_status_t second_event_create(tr_device_t *device, unsigned flags, tr_event_t **out) {
    *out = (tr_event_t *)&((second_t *)device)->handle;
    return TR_OK;
}
static void second_event_destroy(tr_device_t *device, tr_event_t *event) {}
static tr_status_t second_event_order(tr_device_t *device, tr_event_t *event, tr_stream_t *stream) {
    return TR_OK;
}
static tr_status_t second_event_sync(tr_device_t *device, tr_event_t *event) {
    return TR_OK;
}
static tr_status_t second_copy(tr_device_t *device, tr_stream_t *stream, void *dst, const void *src,
                               size_t bytes, tr_copy_kind_t kind) {
    memmove(dst, src, bytes);
    return TR_OK;
}
static tr_status_t second_zero(tr_device_t *device, tr_stream_t *stream, void *dst, size_t bytes) {
    memset(dst, 0, bytes);
    return TR_OK;
}
static void second_close(tr_device_t *device) {
    second_t *second = (second_t *)device;
    second->cpu->ops->close(second->cpu);
    tr_free(&second);
}

#define KERNEL(name, ...)                                                                          \
    static tr_status_t run_##name(tr_device_t *d, tr_stream_t *s, const tr_kernel_call_t *c) {     \
        return cpu_of(d)->ops->kernels[TR_K_##name].run(cpu_of(d), NULL, c);                       \
    }                                                                                              \
    static tr_status_t prepare_##name(tr_device_t *d, const tr_kernel_call_t *c, void **state,     \
                                      size_t *n) {                                                 \
        const tr_kernel_t *kernel = &cpu_of(d)->ops->kernels[TR_K_##name];                         \
        return kernel->prepare ? kernel->prepare(cpu_of(d), c, state, n) : TR_OK;                  \
    }                                                                                              \
    static void release_##name(tr_device_t *d, void *state) {                                      \
        const tr_kernel_t *kernel = &cpu_of(d)->ops->kernels[TR_K_##name];                         \
        if (kernel->release) kernel->release(cpu_of(d), state);                                    \
    }
#include "device/kernels.def"
#undef KERNEL

static const tr_kernel_t second_kernels[TR_K_COUNT] = {
#define KERNEL(name, ...) [TR_K_##name] = {run_##name, prepare_##name, release_##name, NULL},
#include "device/kernels.def"
#undef KERNEL
};

static const tr_device_ops_t second_ops = {
    .name = "cuda",
    .close = second_close,
    .alloc = second_alloc,
    .free = second_free,
    .host_alloc = second_host_alloc,
    .host_free = second_free,
    .stream_create = second_stream_create,
    .stream_destroy = second_stream_destroy,
    .stream_sync = second_stream_sync,
    .event_create = second_event_create,
    .event_destroy = second_event_destroy,
    .event_record = second_event_order,
    .event_wait = second_event_order,
    .event_sync = second_event_sync,
    .copy = second_copy,
    .zero = second_zero,
    .kernels = second_kernels,
};

/* -- the collectives: every rank shows a chunk, waits for all, and reads all chunks ------------ */

typedef struct {
    _Atomic int arrived, generation;
    _Atomic int full[RANKS_MAX]; /* mail for this rank is there */
    char chunk[RANKS_MAX][CHUNK_BYTES];
    char mail[RANKS_MAX][CHUNK_BYTES];
} board_t;

typedef struct {
    tr_collectives_t base;
    tr_progress_words_t progress;
    board_t *board;
    double timeout_sec;
} reducer_t;

static tr_status_t wait_until(const reducer_t *r, const _Atomic int *value, int expected) {
    const double deadline = tr_clock_sec() + r->timeout_sec;
    while (atomic_load(value) != expected) {
        if (tr_clock_sec() > deadline)
            return TR_FAIL(TR_ERR_RETRY, "A peer did not come within %.0f s.", r->timeout_sec);
        sched_yield();
    }
    return TR_OK;
}

static tr_status_t meet(reducer_t *r) {
    const int generation = atomic_load(&r->board->generation);
    if (atomic_fetch_add(&r->board->arrived, 1) + 1 == r->base.size) {
        atomic_store(&r->board->arrived, 0);
        atomic_store(&r->board->generation, generation + 1);
    }
    return wait_until(r, &r->board->generation, generation + 1);
}

/* Element `at + i` of `count`, from all ranks' chunks; `own` keeps what it was. */
static float combine(const reducer_t *r, tr_collective_kind_t kind, int64_t count, int64_t at,
                     int64_t i, float own) {
    const int owner = (int)((at + i) / (count / r->base.size));
    float sum = 0;
    if (kind == TR_ALLGATHER) return ((const float *)r->board->chunk[owner])[i];
    if (kind == TR_REDUCE_SCATTER && owner != r->base.rank) return own;
    for (int p = 0; p < r->base.size; p++) sum += ((const float *)r->board->chunk[p])[i];
    return sum;
}

static tr_status_t start(tr_collectives_t *c, const tr_collective_t *what, tr_stream_t *stream,
                         tr_ticket_t *out) {
    reducer_t *r = (reducer_t *)c;
    const int64_t most = CHUNK_BYTES / (int64_t)sizeof(float);
    if (what->dtype != TR_F32 || what->group != TR_GROUP_ALL)
        return TR_FAIL(TR_ERR_CONFIG, "The second device reduces f32 over all ranks, not %s.",
                       tr_dtype_name(what->dtype));
    atomic_fetch_add(&r->progress.entered, 1);
    for (int64_t at = 0; at < what->count; at += most) {
        const int64_t n = what->count - at < most ? what->count - at : most;
        float *data = (float *)what->data + at;
        memcpy(r->board->chunk[c->rank], data, (size_t)n * sizeof *data);
        TR_TRY(meet(r));
        for (int64_t i = 0; i < n; i++)
            data[i] = combine(r, what->kind, what->count, at, i, data[i]);
        TR_TRY(meet(r));
    }
    atomic_fetch_add(&r->progress.completed, 1);
    c->bytes += what->count * (int64_t)sizeof(float);
    *out = ++c->calls;
    return TR_OK;
}

static tr_status_t wait_for(tr_collectives_t *c, tr_ticket_t ticket, tr_stream_t *stream) {
    return TR_OK;
}
static tr_status_t progress(tr_collectives_t *c) {
    return TR_OK;
}

static tr_status_t broadcast(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                             int root, tr_stream_t *stream) {
    reducer_t *r = (reducer_t *)c;
    const int64_t bytes = count * (int64_t)tr_dtype_bytes(dtype);
    for (int64_t at = 0; at < bytes; at += CHUNK_BYTES) {
        const size_t n = (size_t)(bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES);
        if (c->rank == root) memcpy(r->board->chunk[root], (char *)data + at, n);
        TR_TRY(meet(r));
        if (c->rank != root) memcpy((char *)data + at, r->board->chunk[root], n);
        TR_TRY(meet(r));
    }
    return TR_OK;
}

static tr_status_t send(tr_collectives_t *c, const void *data, int64_t count, tr_dtype_t dtype,
                        int to, tr_stream_t *stream) {
    reducer_t *r = (reducer_t *)c;
    const int64_t bytes = count * (int64_t)tr_dtype_bytes(dtype);
    for (int64_t at = 0; at < bytes; at += CHUNK_BYTES) {
        TR_TRY(wait_until(r, &r->board->full[to], 0));
        memcpy(r->board->mail[to], (const char *)data + at,
               (size_t)(bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES));
        atomic_store(&r->board->full[to], 1);
    }
    return TR_OK;
}

static tr_status_t receive(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                           int from, tr_stream_t *stream) {
    reducer_t *r = (reducer_t *)c;
    const int64_t bytes = count * (int64_t)tr_dtype_bytes(dtype);
    for (int64_t at = 0; at < bytes; at += CHUNK_BYTES) {
        TR_TRY(wait_until(r, &r->board->full[c->rank], 1));
        memcpy((char *)data + at, r->board->mail[c->rank],
               (size_t)(bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES));
        atomic_store(&r->board->full[c->rank], 0);
    }
    return TR_OK;
}

static tr_status_t split(tr_collectives_t *c, int color, int *out_group) {
    return TR_FAIL(TR_ERR_CONFIG, "The second device has one group of ranks.");
}
static tr_status_t check(tr_collectives_t *c) {
    return TR_OK;
}

static tr_status_t close_reducer(tr_collectives_t **c, double timeout_sec) {
    reducer_t *r = (reducer_t *)*c;
    munmap(r->board, sizeof *r->board);
    tr_free(&r);
    *c = NULL;
    return TR_OK;
}

static const tr_collectives_ops_t reducer_ops = {
    .start = start,
    .wait = wait_for,
    .progress = progress,
    .broadcast = broadcast,
    .send = send,
    .receive = receive,
    .split = split,
    .check = check,
    .close = close_reducer,
};

static tr_status_t make_id(tr_device_t *device, void *out_id) {
    snprintf(out_id, TR_COLLECTIVES_ID_BYTES, "/trainer-second-%d", (int)getpid());
    return TR_OK;
}

static tr_status_t map_board(const char *name, bool create, board_t **out) {
    const int fd = shm_open(name, create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
    if (fd < 0 || (create && ftruncate(fd, sizeof **out) != 0))
        return TR_FAIL(TR_ERR_INTERNAL, "Shared memory %s cannot be opened.", name);
    void *board = mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (board == MAP_FAILED)
        return TR_FAIL(TR_ERR_MEMORY, "Shared memory %s cannot be mapped.", name);
    *out = board;
    return TR_OK;
}

static tr_status_t open_reducer(const tr_collectives_params_t *params, tr_collectives_t **out) {
    const tr_peers_t *peers = params->peers;
    board_t *board = NULL;
    reducer_t *r = NULL;
    tr_status_t status = TR_OK;
    if (params->rank == 0) status = map_board(params->id, true, &board);
    TR_TRY(peers->agree(peers->self, status));
    if (params->rank > 0) status = map_board(params->id, false, &board);
    status = peers->agree(peers->self, status);
    if (params->rank == 0) shm_unlink(params->id);
    TR_TRY(status);
    TR_TRY(tr_alloc(sizeof *r, "the second device's collectives", &r));
    r->base = (tr_collectives_t){
        .ops = &reducer_ops, .rank = params->rank, .size = params->size, .words = &r->progress};
    r->board = board;
    r->timeout_sec = params->timeout_sec;
    *out = &r->base;
    return TR_OK;
}

static const tr_collectives_engine_t reducer = {
    .name = "second", .make_id = make_id, .open = open_reducer};

/* -- the backend ------------------------------------------------------------------------------- */

static tr_status_t second_open(const tr_device_params_t *params, tr_device_t **out) {
    const tr_backend_t *cpu = NULL;
    second_t *second = NULL;
    TR_TRY(tr_backend_find("cpu", &cpu));
    TR_TRY(tr_alloc(sizeof *second, "the second device", &second));
    tr_status_t status = cpu->open(params, &second->cpu);
    if (status != TR_OK) {
        tr_free(&second);
        return status;
    }
    second->base = *second->cpu;
    second->base.ops = &second_ops;
    second->base.collectives = &reducer;
    second->base.host_visible = false;
    snprintf(second->base.description, sizeof second->base.description,
             "the second device of the tests");
    *out = &second->base;
    return TR_OK;
}

const tr_backend_t tr_library_backend = {
    .name = "cuda", .help = "A second device, for tests.", .open = second_open};
