/*
 * Collectives in memory that the ranks of a node share. Each rank owns a slice of the range. When
 * all ranks have started, it adds the slices of all, in the order of the ranks, and writes the sums
 * into the memory of all; no byte is copied twice. Between nodes the owners of a slice add theirs by
 * MPI in between.
 *
 * A rank has two words for each group, which count the collectives that it has started and that it
 * has done its part of. The others spin on them for some microseconds, and then sleep (futex).
 */
#include "base/clock.h"
#include "base/mem_shared.h"
#include "engine_int.h"
#include "trainer/log.h"
#include <linux/futex.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES  128  /* lines of caches that are fetched together */
#define SPINS       2000 /* readings of a word before sleeping: about 20 us */
#define YIELDS      100  /* in place of them where there are more ranks than cores */
#define SLEEP_NS    20000000
#define CHUNK_BYTES 4096 /* sums stay in the nearest cache */

typedef struct {
    alignas(LINE_BYTES) _Atomic uint32_t arrived;
    _Atomic uint32_t done;
    _Atomic uint32_t sleepers; /* threads that may sleep on one of the two */
} tr_shared_words_t;

/* -- opening ----------------------------------------------------------------------------------- */

static tr_status_t shared_make_group(const int *place, int count, int mine, MPI_Comm across,
                                     int words, tr_shared_group_t **out) {
    tr_shared_group_t *g = NULL;
    TR_TRY(tr_alloc(sizeof *g, "a group of ranks", &g));
    *g = (tr_shared_group_t){.count = count, .mine = mine, .across = across, .words = words};
    if (tr_alloc((size_t)count * sizeof *g->place, "a group of ranks", &g->place) != TR_OK) {
        tr_free(&g);
        return tr_error_last()->code;
    }
    for (int i = 0; i < count; i++) g->place[i] = place ? place[i] : i;
    *out = g;
    return TR_OK;
}

static tr_status_t shared_run_across(MPI_Comm comm, void *arg) {
    tr_engine_t *e = arg;
    MPI_Comm *across = &e->group[TR_GROUP_ALL].shared->across;
    TR_MPI(MPI_Comm_split, (e->comm, e->world->info.local_rank, e->world->info.node, across));
    TR_MPI(MPI_Comm_set_errhandler, (*across, MPI_ERRORS_RETURN));
    (void)comm;
    return TR_OK;
}

tr_status_t tr_shared_open(tr_engine_t *e) {
    const tr_world_info_t *info = &e->world->info;
    int64_t most[] = {info->local_size, -info->local_size};
    if (info->size == 1 || !e->device->host_visible || !e->device->immediate) return TR_OK;
    TR_TRY(tr_world_allreduce_int(e->world, most, 2, TR_REDUCE_MAX));
    if (most[0] == 1) return TR_OK;
    const char *wish = getenv("TRAINER_SHARED_MEMORY");
    tr_status_t status = TR_OK;
    if (wish && strcmp(wish, "0") == 0)
        status = TR_FAIL(TR_ERR_CONFIG, "TRAINER_SHARED_MEMORY=0");
    else if (most[0] != -most[1])
        status = TR_FAIL(TR_ERR_CONFIG, "the nodes have different numbers of ranks");
    status = tr_world_agree(e->world, status);
    if (status == TR_OK)
        status = tr_world_agree(e->world, tr_alloc_shared(TR_GROUPS * sizeof(tr_shared_words_t),
                                                          "words of groups", &e->own_words));
    if (status == TR_OK)
        status =
            tr_shared_map(e->world, e->own_words, TR_GROUPS * sizeof(tr_shared_words_t), &e->words);
    if (status == TR_OK)
        status = tr_world_agree(e->world, shared_make_group(NULL, info->local_size,
                                                            info->local_rank, MPI_COMM_NULL, 0,
                                                            &e->group[TR_GROUP_ALL].shared));
    if (status == TR_OK && info->nodes > 1) status = tr_world_run(e->world, shared_run_across, e);
    if (e->world->lost) return status;
    if (status != TR_OK) {
        TR_INFO("gradients are reduced by MPI, not in shared memory: %s", tr_error_last()->message);
        tr_shared_close(e);
    }
    e->shares = status == TR_OK;
    return TR_OK;
}

tr_status_t tr_shared_add_block(tr_collectives_t *c, void *data, size_t bytes) {
    tr_engine_t *e = (tr_engine_t *)c;
    if (bytes == 0 || e->block_count == TR_BLOCKS) return TR_OK;
    const tr_status_t status = tr_shared_map(e->world, data, bytes, &e->block[e->block_count]);
    if (status == TR_OK)
        e->block_count++;
    else if (e->world->lost)
        return status;
    else
        TR_INFO("gradients are reduced by MPI, not in shared memory: %s", tr_error_last()->message);
    return TR_OK;
}

tr_status_t tr_shared_join(tr_engine_t *e, int split, tr_group_t *group) {
    const tr_world_info_t *info = &e->world->info;
    int mine[] = {info->node, info->local_rank}, *all = NULL, count = 0;
    if (!e->shares || split >= TR_GROUPS || group->size == 1) return TR_OK;
    TR_TRY(tr_alloc(3 * (size_t)group->size * sizeof *all, "places of ranks", &all));
    const int code = MPI_Allgather(mine, 2, MPI_INT, all, 2, MPI_INT, group->comm);
    tr_status_t status = code == MPI_SUCCESS
                             ? TR_OK
                             : tr_mpi_check(code, "MPI_Allgather", __FILE__, __LINE__, __func__);
    int *place = &all[2 * group->size];
    for (int r = 0; status == TR_OK && r < group->size; r++)
        if (all[2 * r] == info->node) place[count++] = all[2 * r + 1];
    if (status == TR_OK && count == group->size)
        status = shared_make_group(place, count, group->rank, MPI_COMM_NULL, split, &group->shared);
    tr_free(&all);
    return status;
}

void tr_shared_close(tr_engine_t *e) {
    for (int i = 0; i < TR_GROUPS; i++) {
        tr_shared_group_t *g = e->group[i].shared;
        if (!g) continue;
        tr_mpi_free(&g->across);
        tr_free(&g->place);
        tr_free(&e->group[i].shared);
    }
    for (int i = 0; i < e->block_count; i++) tr_shared_unmap(&e->block[i]);
    e->block_count = 0;
    tr_shared_unmap(&e->words);
    tr_free(&e->own_words);
}

const tr_shared_map_t *tr_shared_find(const tr_engine_t *e, const void *data, int64_t bytes) {
    for (int i = 0; i < e->block_count; i++) {
        const char *begin = e->block[i].of[e->block[i].mine];
        if ((const char *)data >= begin && (const char *)data + bytes <= begin + e->block[i].bytes)
            return &e->block[i];
    }
    return NULL;
}

const void *tr_shared_next(const tr_collectives_t *c, const void *data, int64_t bytes) {
    const tr_shared_map_t *block = c->ops->share == tr_shared_add_block
                                       ? tr_shared_find((const tr_engine_t *)c, data, bytes)
                                       : NULL;
    if (!block) return NULL;
    return block->of[(block->mine + 1) % block->count] +
           ((const char *)data - block->of[block->mine]);
}

/* -- words ------------------------------------------------------------------------------------- */

static tr_shared_words_t *shared_words_of(const tr_reduction_t *r, int i) {
    const tr_shared_group_t *g = r->shared;
    return &((tr_shared_words_t *)r->engine->words.of[g->place[i]])[g->words];
}

static void shared_futex(_Atomic uint32_t *word, int op, uint32_t value,
                         const struct timespec *timeout) {
    (void)syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

/* The order of the store and the loads, here and in tr_shared_pause, is that of one total order: a
 * thread that goes to sleep sees the new value, or is seen. */
static void shared_publish(_Atomic uint32_t *word, _Atomic uint32_t *sleepers, uint32_t value) {
    atomic_store(word, value);
    if (atomic_load(sleepers) > 0) shared_futex(word, FUTEX_WAKE, INT32_MAX, NULL);
}

/* Whether word `done` (else `arrived`) of all ranks has reached the number of r; sets r->lacks. */
static bool shared_have_all(tr_reduction_t *r, bool done) {
    for (int i = 0; i < r->shared->count; i++) {
        tr_shared_words_t *w = shared_words_of(r, i);
        _Atomic uint32_t *word = done ? &w->done : &w->arrived;
        const uint32_t seen = atomic_load_explicit(word, memory_order_acquire);
        if ((int32_t)(seen - r->number) >= 0) continue;
        r->lacks = (tr_shared_wait_t){word, &w->sleepers, seen};
        return false;
    }
    return true;
}

void tr_shared_pause(const tr_reduction_t *r) {
    const tr_shared_wait_t *w = &r->lacks;
    const bool crowded = r->engine->world->info.more_than_cores;
    const struct timespec sleep = {.tv_nsec = SLEEP_NS};
    if (!w->word) return; /* it has not been tried yet */
    for (int i = 0; i < (crowded ? YIELDS : SPINS); i++) {
        if (atomic_load_explicit(w->word, memory_order_acquire) != w->seen) return;
        if (crowded) sched_yield();
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
    atomic_fetch_add(w->sleepers, 1);
    if (atomic_load(w->word) == w->seen) shared_futex(w->word, FUTEX_WAIT, w->seen, &sleep);
    atomic_fetch_sub(w->sleepers, 1);
}

/* -- data -------------------------------------------------------------------------------------- */

/* The part of r in the memory of the i-th rank, from byte `first` of the range on. */
static char *shared_at(const tr_reduction_t *r, int i, int64_t first) {
    const ptrdiff_t offset = (char *)r->data - r->block->of[r->block->mine];
    return r->block->of[r->shared->place[i]] + offset + first;
}

/* The bytes that the i-th rank owns: equal parts, or slices of whole cache lines. */
static void shared_slice(const tr_reduction_t *r, int i, int64_t *out_first, int64_t *out_bytes) {
    const int count = r->shared->count;
    const int64_t unit = r->kind == TR_ALLREDUCE ? LINE_BYTES : r->bytes / count;
    const int64_t units = (r->bytes + unit - 1) / unit;
    const int64_t first = units * i / count * unit, last = units * (i + 1) / count * unit;
    *out_first = first < r->bytes ? first : r->bytes;
    *out_bytes = (last < r->bytes ? last : r->bytes) - *out_first;
}

#define SHARED_ADD(NAME, T)                                                                        \
    static void NAME(void *restrict sum, const void *restrict a, const void *restrict b,           \
                     int64_t bytes) {                                                              \
        T *restrict s = sum;                                                                       \
        const T *restrict x = a, *restrict y = b;                                                  \
        for (int64_t i = 0; i < bytes / (int64_t)sizeof(T); i++) s[i] = x[i] + y[i];               \
    }
SHARED_ADD(shared_add_f32, float)
SHARED_ADD(shared_add_f64, double)
SHARED_ADD(shared_add_i64, uint64_t) /* wraps */

/* Sums this rank's slice, in the order of the ranks, into the memory of all, or of this one. */
static void shared_sum(const tr_reduction_t *r, bool into_all) {
    const int count = r->shared->count;
    int64_t first, bytes;
    alignas(64) char sum[CHUNK_BYTES], next[CHUNK_BYTES];
    shared_slice(r, r->shared->mine, &first, &bytes);
    for (int64_t at = first; at < first + bytes; at += CHUNK_BYTES) {
        const int64_t n = first + bytes - at < CHUNK_BYTES ? first + bytes - at : CHUNK_BYTES;
        void *have = sum, *want = next;
        for (int i = 1; i < count; i++) {
            const void *a = i == 1 ? shared_at(r, 0, at) : have, *b = shared_at(r, i, at);
            if (r->dtype == TR_F32) shared_add_f32(want, a, b, n);
            if (r->dtype == TR_F64) shared_add_f64(want, a, b, n);
            if (r->dtype == TR_I64) shared_add_i64(want, a, b, n);
            void *swap = have;
            have = want;
            want = swap;
        }
        for (int i = 0; i < count; i++)
            if (into_all || i == r->shared->mine) memcpy(shared_at(r, i, at), have, (size_t)n);
    }
}

/* Copies the slice of rank `from` to rank `to`. */
static void shared_copy(const tr_reduction_t *r, int from, int to) {
    int64_t first, bytes;
    shared_slice(r, from, &first, &bytes);
    memcpy(shared_at(r, to, first), shared_at(r, from, first), (size_t)bytes);
}

/* -- a collective ------------------------------------------------------------------------------ */

void tr_shared_arrive(tr_reduction_t *r) {
    tr_shared_words_t *w = shared_words_of(r, r->shared->mine);
    r->number = ++r->shared->started;
    r->summed = r->finished = false;
    r->lacks = (tr_shared_wait_t){0};
    TR_HEARTBEAT_ADD(r->engine->world->heartbeat.entered, 1);
    shared_publish(&w->arrived, &w->sleepers, r->number);
}

/* All that this rank does for the others is done. */
static void shared_finish(tr_reduction_t *r) {
    tr_shared_words_t *w = shared_words_of(r, r->shared->mine);
    if (r->shared->across != MPI_COMM_NULL)
        for (int i = 0; i < r->shared->count; i++)
            if (i != r->shared->mine) shared_copy(r, r->shared->mine, i);
    r->finished = true;
    shared_publish(&w->done, &w->sleepers, r->number);
}

tr_status_t tr_shared_begin(tr_reduction_t *r, bool nonblocking) {
    const tr_shared_group_t *g = r->shared;
    if (!shared_have_all(r, false)) return TR_OK;
    if (r->kind == TR_ALLGATHER)
        for (int i = 0; i < g->count; i++) {
            if (i != g->mine) shared_copy(r, i, g->mine);
        }
    else
        shared_sum(r, r->kind == TR_ALLREDUCE && g->across == MPI_COMM_NULL);
    r->summed = true;
    if (g->across == MPI_COMM_NULL) {
        shared_finish(r);
        return TR_OK;
    }
    int64_t first, bytes;
    shared_slice(r, g->mine, &first, &bytes);
    void *slice = shared_at(r, g->mine, first);
    const int count = (int)(bytes / (int64_t)tr_dtype_bytes(r->dtype));
    if (nonblocking) {
        TR_MPI(MPI_Iallreduce,
               (MPI_IN_PLACE, slice, count, r->type, MPI_SUM, g->across, &r->request));
        return TR_OK;
    }
    TR_MPI(MPI_Allreduce, (MPI_IN_PLACE, slice, count, r->type, MPI_SUM, g->across));
    shared_finish(r);
    return TR_OK;
}

tr_status_t tr_shared_test(tr_reduction_t *r, bool *out_complete) {
    int sent = r->finished;
    *out_complete = false;
    if (!r->finished) {
        TR_MPI(MPI_Test, (&r->request, &sent, MPI_STATUS_IGNORE));
        if (sent) shared_finish(r);
    }
    *out_complete = sent && shared_have_all(r, true);
    return TR_OK;
}

tr_status_t tr_shared_run(tr_reduction_t *r, double timeout_sec) {
    tr_engine_t *e = r->engine;
    double deadline = 0;
    for (bool complete = false;;) {
        if (!r->summed) TR_TRY(tr_shared_begin(r, false));
        if (r->summed) TR_TRY(tr_shared_test(r, &complete));
        if (complete) break;
        tr_shared_pause(r);
        if (deadline == 0) deadline = tr_clock_sec() + timeout_sec;
        if (e->given_up || (timeout_sec > 0 && tr_clock_sec() > deadline)) {
            e->given_up = true;
            return tr_mpi_timed_out(timeout_sec, r->number);
        }
    }
    r->end_sec = tr_clock_sec();
    TR_HEARTBEAT_ADD(e->world->heartbeat.completed, 1);
    return TR_OK;
}
