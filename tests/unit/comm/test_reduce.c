/* The MPI engine in both ways on the devices that are here, in memory that the ranks share, and in a
 * world without MPI (alone): exact sums, many in flight, any order of waits, other calls between. */
//TEST args=alone
//TEST np=1
//TEST np=2
//TEST np=3
//TEST np=4
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/collectives.h"
#include "comm/comm.h"
#include "base/mem.h"

static tr_world_t *world;
static const tr_world_info_t *info;
static tr_device_t *device;
static tr_stream_t *stream;
static tr_collectives_t *coll;
static void *scratch;      /* 256 bytes on the device */
static int gpus = 1 << 20; /* of all ranks; those with the same number modulo gpus share one */
static void *shared;       /* freed after the engine is closed; NULL: none */
/* Memory that the ranks of a node share, which the tests take theirs from; NULL: from the device */
#define ARENA_BYTES ((size_t)24 << 20)
static char *arena;
static size_t arena_used, arena_live;

static bool is_cuda(void) {
    return strcmp(device->ops->name, "cuda") == 0;
}

static tr_status_t allreduce(void *data, int64_t count, tr_dtype_t dtype, tr_stream_t *on,
                             tr_ticket_t *out) {
    const tr_collective_t what = {
        .kind = TR_ALLREDUCE, .data = data, .count = count, .dtype = dtype};
    return coll->ops->start(coll, &what, on, out);
}

/* Integer-valued, so that every order of summation gives the same bits. */
static float value(int rank, int64_t i, int salt) {
    return (float)((rank * 7 + i * 3 + salt) % 1001 - 500);
}
static float total(int64_t i, int salt) {
    float sum = 0;
    for (int r = 0; r < info->size; r++) sum += value(r, i, salt);
    return sum;
}

static void *take(size_t bytes) {
    void *data = NULL;
    if (!arena) {
        OK(device->ops->alloc(device, bytes, 0, &data));
        return data;
    }
    data = arena + arena_used;
    arena_used += (bytes + 15) / 8 * 8; /* seldom at the begin of a cache line */
    arena_live++;
    assert_true(arena_used <= ARENA_BYTES);
    return data;
}

static void give(void *data) {
    if (!arena)
        device->ops->free(device, data);
    else if (--arena_live == 0)
        arena_used = 0;
}

static void *put(const void *host, size_t bytes) {
    void *data = take(bytes + 1), *pinned = NULL;
    OK(device->ops->host_alloc(device, bytes + 1, &pinned));
    memcpy(pinned, host, bytes);
    OK(device->ops->copy(device, stream, data, pinned, bytes, TR_COPY_TO_DEVICE));
    OK(device->ops->stream_sync(device, stream));
    device->ops->host_free(device, pinned);
    return data;
}

static void get(void *host, const void *data, size_t bytes) {
    void *pinned = NULL;
    OK(device->ops->host_alloc(device, bytes + 1, &pinned));
    OK(device->ops->copy(device, stream, pinned, data, bytes, TR_COPY_TO_HOST));
    OK(device->ops->stream_sync(device, stream));
    memcpy(host, pinned, bytes);
    device->ops->host_free(device, pinned);
}

static float *make(int64_t count, int salt, void **out_device) {
    float *host = NULL;
    OK(tr_alloc((size_t)count * sizeof *host, "test", &host));
    for (int64_t i = 0; i < count; i++) host[i] = value(info->rank, i, salt);
    *out_device = put(host, (size_t)count * sizeof *host);
    return host;
}

static void check(float *host, void *data, int64_t count, int salt) {
    get(host, data, (size_t)count * sizeof *host);
    for (int64_t i = 0; i < count; i++)
        if (host[i] != total(i, salt))
            fail_msg("element %lld: %g, not %g", (long long)i, host[i], total(i, salt));
    give(data);
    tr_free(&host);
}

static void test_sums_of_odd_counts(void **state) {
    const int64_t counts[] = {1, 3, 17, 1023, 65537, 1500001, 0};
    for (size_t c = 0; c < TR_COUNT(counts); c++) {
        void *data;
        tr_ticket_t ticket = 0;
        float *host = make(counts[c], (int)c, &data);
        OK(allreduce(data, counts[c], TR_F32, stream, &ticket));
        OK(coll->ops->wait(coll, ticket, stream));
        check(host, data, counts[c], (int)c);
    }
}

static void test_types(void **state) {
    double d[3] = {info->rank + 0.5, 1e300, -1};
    int64_t n[2] = {((int64_t)1 << 60) + info->rank, -info->rank};
    void *dd = put(d, sizeof d), *nd = put(n, sizeof n);
    tr_ticket_t ticket;
    OK(allreduce(dd, 3, TR_F64, stream, &ticket));
    OK(allreduce(nd, 2, TR_I64, stream, &ticket));
    OK(coll->ops->wait(coll, ticket, stream));
    get(d, dd, sizeof d);
    get(n, nd, sizeof n);
    int s = info->size;
    assert_true(d[0] == s * (s - 1) / 2.0 + s * 0.5 && d[2] == -s);
    assert_true(n[0] == s * ((int64_t)1 << 60) + s * (s - 1) / 2 && n[1] == -s * (s - 1) / 2);
    give(dd);
    give(nd);
    if (!is_cuda()) /* NCCL has them */
        assert_int_equal(allreduce(NULL, 1, TR_BF16, stream, &ticket), TR_ERR_CONFIG);
}

#define MANY 1100 /* more than MPI's engine keeps in flight */

static void test_many_in_flight(void **state) {
    void *data[MANY];
    float *host[MANY];
    tr_ticket_t tickets[MANY];
    const int many = is_cuda() ? 150 : MANY;
    for (int b = 0; b < many; b++) host[b] = make(b % 37 + 1, b, &data[b]);
    for (int b = 0; b < many; b++) {
        OK(allreduce(data[b], b % 37 + 1, TR_F32, stream, &tickets[b]));
        OK(coll->ops->progress(coll));
    }
    OK(coll->ops->wait(coll, tickets[many - 1], stream));
    for (int b = 0; b < many; b++) check(host[b], data[b], b % 37 + 1, b);
}

static void test_waits_in_any_order(void **state) {
    enum { N = 6 };
    const int order[N] = {3, 0, 5, 1, 4, 2};
    void *data[N];
    float *host[N];
    tr_ticket_t tickets[N];
    for (int b = 0; b < N; b++) host[b] = make(1001, b, &data[b]);
    for (int b = 0; b < N; b++) OK(allreduce(data[b], 1001, TR_F32, stream, &tickets[b]));
    for (int k = 0; k < N; k++) {
        OK(coll->ops->wait(coll, tickets[order[k]], stream));
        check(host[order[k]], data[order[k]], 1001, order[k]);
    }
    assert_int_equal(coll->ops->wait(coll, tickets[N - 1] + 1, stream), TR_ERR_INTERNAL);
}

/* Ranks reach the world's calls with different numbers of reductions moved on. */
static void test_world_calls_between(void **state) {
    enum { N = 12 };
    void *data[N];
    float *host[N];
    tr_ticket_t tickets[N];
    for (int b = 0; b < N; b++) host[b] = make(5000 + b, b, &data[b]);
    for (int b = 0; b < N; b++) {
        OK(allreduce(data[b], 5000 + b, TR_F32, stream, &tickets[b]));
        if ((b + info->rank) % 2) OK(coll->ops->progress(coll));
        double one = 1;
        OK(tr_world_allreduce(world, &one, 1, TR_REDUCE_SUM));
        assert_true(one == info->size);
        if (b % 4 == 0) OK(tr_world_barrier(world));
        if (b % 5 == 0)
            assert_int_equal(
                tr_world_agree(world, info->rank == 0 ? TR_FAIL(TR_ERR_IO, "x") : TR_OK),
                TR_ERR_IO);
    }
    OK(coll->ops->wait(coll, tickets[N - 1], stream));
    for (int b = 0; b < N; b++) check(host[b], data[b], 5000 + b, b);
}

static void test_broadcast(void **state) {
    for (int root = 0; root < info->size; root++) {
        float host[777];
        void *pending, *data;
        float *other = make(999, 1, &pending);
        tr_ticket_t ticket;
        for (int i = 0; i < 777; i++) host[i] = value(info->rank, i, root);
        data = put(host, sizeof host);
        OK(allreduce(pending, 999, TR_F32, stream, &ticket));
        OK(coll->ops->broadcast(coll, data, 777, TR_F32, root, stream));
        OK(coll->ops->wait(coll, ticket, stream));
        get(host, data, sizeof host);
        for (int i = 0; i < 777; i++) assert_true(host[i] == value(root, i, root));
        give(data);
        check(other, pending, 999, 1);
    }
}

/* A ring: every rank hands its block to the next, size times; even ranks send first. */
static void test_send_and_receive(void **state) {
    enum { N = 70001 };
    if (info->size == 1) return;
    int next = (info->rank + 1) % info->size, previous = (info->rank + info->size - 1) % info->size;
    void *data, *arrived;
    float *host = make(N, 0, &data);
    arrived = put(host, N * sizeof *host);
    for (int hop = 0; hop < 3; hop++) {
        if (info->rank > 0) OK(coll->ops->receive(coll, arrived, N, TR_F32, previous, stream));
        OK(coll->ops->send(coll, data, N, TR_F32, next, stream));
        if (info->rank == 0) OK(coll->ops->receive(coll, arrived, N, TR_F32, previous, stream));
        void *swap = data;
        data = arrived;
        arrived = swap;
    }
    get(host, data, N * sizeof *host);
    int from = ((info->rank - 3) % info->size + info->size) % info->size;
    for (int i = 0; i < N; i++) assert_true(host[i] == value(from, i, 0));
    give(data);
    give(arrived);
    tr_free(&host);
}

/* Work that keeps a stream behind the others, where streams run for themselves. */
static void delay(tr_stream_t *late, int works) {
    for (int i = 0; i < works; i++) OK(device->ops->zero(device, late, scratch, 1));
}

/* Brought back on one stream, which is late, read on another. */
static void test_two_streams(void **state) {
    tr_stream_t *first = stream, *second = NULL;
    OK(device->ops->stream_create(device, "second", TR_PRIORITY_NORMAL, &second));
    for (int round = 0; round < 20; round++) {
        void *data;
        tr_ticket_t ticket;
        float *host = make(3001, round, &data);
        OK(allreduce(data, 3001, TR_F32, first, &ticket));
        delay(first, 50);
        OK(coll->ops->wait(coll, ticket, first));
        OK(coll->ops->wait(coll, ticket, second));
        stream = second;
        check(host, data, 3001, round);
        stream = first;
    }
    device->ops->stream_destroy(device, second);
}

/* More pieces than there are slots, and the stream that reads their staging memory is late. */
static void test_slots_used_again(void **state) {
    enum { N = 1100 };
    tr_stream_t *first = stream, *second = NULL;
    void *data[N];
    float *host[N];
    tr_ticket_t ticket;
    if (is_cuda()) return; /* NCCL has no staging memory */
    OK(device->ops->stream_create(device, "second", TR_PRIORITY_NORMAL, &second));
    for (int b = 0; b < N; b++) OK(allreduce(scratch, 5, TR_F32, first, &ticket));
    /* all slots have memory: getting more would end all delays */
    OK(coll->ops->wait(coll, ticket, first));
    for (int b = 0; b < N; b++) host[b] = make(5, b, &data[b]);
    delay(second, 8000);
    for (int b = 0; b < N; b++) {
        OK(allreduce(data[b], 5, TR_F32, first, &ticket));
        OK(coll->ops->wait(coll, ticket, second));
    }
    OK(device->ops->stream_sync(device, second));
    for (int b = 0; b < N; b++) check(host[b], data[b], 5, b);
    device->ops->stream_destroy(device, second);
}

static void test_statistics(void **state) {
    void *data;
    float *host = make(100000, 0, &data);
    tr_ticket_t ticket;
    if (coll->ops->settle) OK(coll->ops->settle(coll, coll->started));
    coll->unmeasured = false;
    coll->bytes = coll->calls = 0;
    coll->busy_sec = coll->exposed_sec = 0;
    OK(allreduce(data, 60000, TR_F32, stream, &ticket));
    OK(allreduce((float *)data + 60000, 40000, TR_F32, stream, &ticket));
    OK(coll->ops->wait(coll, ticket, stream));
    OK(device->ops->stream_sync(device, stream)); /* a GPU's times are known then */
    if (coll->ops->settle) OK(coll->ops->settle(coll, ticket));
    assert_false(coll->unmeasured);
    assert_int_equal(coll->calls, 2);
    assert_int_equal(coll->bytes, 400000);
    if (info->size > 1) assert_true(coll->busy_sec > 0 && coll->exposed_sec > 0);
    assert_true(coll->busy_sec < 5 && coll->exposed_sec < 5);
    check(host, data, 100000, 0);
}

/* Runs `kind` on elements of `group` and reads them back. */
static void collect(tr_collective_kind_t kind, int group, float *host, int64_t count) {
    void *data = put(host, (size_t)count * sizeof *host);
    const tr_collective_t what = {kind, group, data, count, TR_F32, 0};
    tr_ticket_t ticket = 0;
    OK(coll->ops->start(coll, &what, stream, &ticket));
    OK(coll->ops->wait(coll, ticket, stream));
    get(host, data, (size_t)count * sizeof *host);
    give(data);
}

static void test_reduce_scatter_and_allgather(void **state) {
    enum { PART = 70001 };
    const int64_t count = (int64_t)PART * info->size, first = (int64_t)PART * info->rank;
    float *host = NULL;
    OK(tr_alloc((size_t)count * sizeof *host, "test", &host));
    for (int64_t i = 0; i < count; i++) host[i] = value(info->rank, i, 3);
    collect(TR_REDUCE_SCATTER, TR_GROUP_ALL, host, count);
    for (int64_t i = first; i < first + PART; i++) assert_true(host[i] == total(i, 3));
    for (int64_t i = 0; i < count; i++)
        if (i < first || i >= first + PART) host[i] = -1e9f; /* the other ranks' parts */
    collect(TR_ALLGATHER, TR_GROUP_ALL, host, count);
    for (int64_t i = 0; i < count; i++) assert_true(host[i] == total(i, 3));
    char byte[4 * 3], letters[] = "abcdefghijkl";
    for (int i = 0; i < 3 * info->size; i++) byte[i] = i / 3 == info->rank ? letters[i] : '?';
    void *data = put(byte, sizeof byte);
    const tr_collective_t gather = {TR_ALLGATHER, TR_GROUP_ALL, data, 3 * info->size, TR_U8, 0};
    tr_ticket_t ticket = 0;
    OK(coll->ops->start(coll, &gather, stream, &ticket));
    OK(coll->ops->wait(coll, ticket, stream));
    get(byte, data, sizeof byte);
    assert_memory_equal(byte, letters, 3 * (size_t)info->size);
    give(data);
    const tr_collective_t odd = {TR_ALLGATHER, TR_GROUP_ALL, NULL, count + 1, TR_F32, 0};
    if (info->size > 1)
        assert_int_equal(coll->ops->start(coll, &odd, stream, &ticket), TR_ERR_INTERNAL);
    tr_free(&host);
}

/* Ranks of equal parity; the last rank of three or more is of no group. */
static void test_groups(void **state) {
    const bool is_out = info->size > 2 && info->rank == info->size - 1;
    int group = 0;
    OK(coll->ops->split(coll, is_out ? -1 : info->rank % 2, &group));
    assert_int_equal(group < 0, is_out);
    float sums[5], expected = 0;
    for (int r = info->rank % 2; r < info->size - (info->size > 2); r += 2)
        expected += (float)(r + 1);
    for (int i = 0; i < 5; i++) sums[i] = (float)(info->rank + 1);
    if (!is_out) collect(TR_ALLREDUCE, group, sums, 5);
    for (int i = 0; i < 5; i++)
        assert_true(sums[i] == (is_out ? (float)(info->rank + 1) : expected));
    const tr_collective_t unknown = {TR_ALLREDUCE, 9, NULL, 1, TR_F32, 0};
    tr_ticket_t ticket = 0;
    assert_int_equal(coll->ops->start(coll, &unknown, stream, &ticket), TR_ERR_INTERNAL);
    OK(coll->ops->check(coll));
}

/* Memory that the engine may register. */
static void test_shared_memory(void **state) {
    enum { N = 5000 };
    float host[N], *memory = NULL;
    void *pinned = NULL;
    tr_ticket_t ticket;
    if (!coll->ops->share) return;
    OK(device->ops->alloc(device, sizeof host, TR_ALLOC_SHARED_BY_RANKS, (void **)&memory));
    OK(coll->ops->share(coll, memory, sizeof host));
    OK(device->ops->host_alloc(device, sizeof host, &pinned));
    for (int i = 0; i < N; i++) ((float *)pinned)[i] = value(info->rank, i, 9);
    OK(device->ops->copy(device, stream, memory, pinned, sizeof host, TR_COPY_TO_DEVICE));
    OK(allreduce(memory, N, TR_F32, stream, &ticket));
    OK(coll->ops->wait(coll, ticket, stream));
    get(host, memory, sizeof host);
    for (int i = 0; i < N; i++) assert_true(host[i] == total(i, 9));
    device->ops->host_free(device, pinned);
    shared = memory;
}

static void test_progress_words(void **state) {
    if (!coll->words) return;
    const int64_t before = coll->words->completed;
    tr_ticket_t ticket;
    OK(allreduce(scratch, 3, TR_F32, stream, &ticket));
    OK(coll->ops->wait(coll, ticket, stream));
    OK(device->ops->stream_sync(device, stream));
    assert_int_equal(coll->words->completed, before + 1);
    assert_int_equal(coll->words->entered, before + 1);
}

/* Each launch adds its own times of the captured all-reduce. */
static void expect_times(tr_ticket_t ticket, int launches) {
    if (!coll->ops->settle) return;
    OK(coll->ops->settle(coll, coll->started));
    for (int k = 0; k < launches; k++) {
        const double busy = coll->busy_sec, exposed = coll->exposed_sec;
        coll->ops->replayed(coll, ticket, ticket);
        OK(coll->ops->settle(coll, coll->started));
        assert_true(coll->busy_sec > busy && coll->exposed_sec > exposed);
        assert_false(coll->unmeasured);
    }
}

/* A captured all-reduce works, and counts, in every launch. */
static void test_captured(void **state) {
    enum { N = 257, LAUNCHES = 3 };
    const tr_device_ops_t *ops = device->ops;
    tr_executable_t *executable = NULL;
    tr_ticket_t ticket;
    void *data;
    float host[N], *first = make(N, 2, &data), factor = 1;
    if (!coll->capturable || !ops->capture_begin) {
        give(data);
        tr_free(&first);
        return;
    }
    const int64_t before = coll->words->completed;
    OK(ops->capture_begin(device, stream));
    OK(allreduce(data, N, TR_F32, stream, &ticket));
    OK(coll->ops->wait(coll, ticket, stream));
    OK(ops->capture_end(device, stream, &executable));
    get(host, data, sizeof host);
    for (int i = 0; i < N; i++) assert_true(host[i] == first[i]);
    for (int k = 0; k < LAUNCHES; k++) OK(ops->executable_launch(device, executable, stream));
    get(host, data, sizeof host);
    for (int k = 1; k < LAUNCHES; k++) factor *= (float)info->size;
    for (int i = 0; i < N; i++) assert_true(host[i] == total(i, 2) * factor);
    assert_int_equal(coll->words->completed, before + LAUNCHES);
    assert_int_equal(coll->words->entered, before + LAUNCHES);
    expect_times(ticket, LAUNCHES);
    ops->executable_destroy(device, executable);
    give(data);
    tr_free(&first);
}

static tr_status_t open_arena(void) {
    TR_TRY(device->ops->alloc(device, ARENA_BYTES, TR_ALLOC_SHARED_BY_RANKS, (void **)&arena));
    return coll->ops->share(coll, arena, ARENA_BYTES);
}

static int run_on(const char *name, int engine, bool in_arena) {
    const tr_parallel_settings_t settings = {.engine = engine, .timeout = 60};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_of_odd_counts),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_many_in_flight),
        cmocka_unit_test(test_waits_in_any_order),
        cmocka_unit_test(test_world_calls_between),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_send_and_receive),
        cmocka_unit_test(test_two_streams),
        cmocka_unit_test(test_slots_used_again),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_reduce_scatter_and_allgather),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_progress_words),
        cmocka_unit_test(test_captured),
    };
    static const char *const engines[] = {"auto", "nccl", "thread", "poll"};
    const int index = strcmp(name, "cuda") == 0 ? info->local_rank % gpus : 0;
    char title[64];
    snprintf(title, sizeof title, "%s, %s%s", name, engines[engine], in_arena ? ", shared" : "");
    if (tr_device_open(name, &(tr_device_params_t){.threads = 1, .index = index, .seed = 5},
                       &device) != TR_OK) {
        printf("[  SKIPPED ] %s: %s\n", title, tr_error_last()->message);
        return 0;
    }
    int failed = device->ops->stream_create(device, "test", TR_PRIORITY_NORMAL, &stream) != TR_OK ||
                 device->ops->alloc(device, 256, 0, &scratch) != TR_OK ||
                 tr_world_collectives(world, device, &settings, &coll) != TR_OK ||
                 (in_arena && open_arena() != TR_OK) ||
                 cmocka_run_group_tests_name(title, tests, NULL, NULL);
    if (failed) {
        fprintf(stderr, "%s: %s\n", title, tr_error_last()->message);
        tr_world_abort(world, 1); /* the others may wait */
    }
    tr_world_collectives_close(world, &coll);
    if (shared) device->ops->free(device, shared);
    if (arena) device->ops->free(device, arena);
    shared = arena = NULL;
    device->ops->free(device, scratch);
    device->ops->stream_destroy(device, stream);
    tr_device_close(&device);
    return failed;
}

/* test_reduce cuda [GPUS]: on GPUs, one a rank, or the fakes of tests/hostcuda; GPUS: so many for all. */
int main(int argc, char **argv) {
    const bool is_alone = argc > 1 && strcmp(argv[1], "alone") == 0;
    if ((is_alone ? tr_world_open_alone(&world) : tr_world_open(NULL, &world)) != TR_OK) {
        fprintf(stderr, "%s\n", tr_error_last()->message);
        return 1;
    }
    info = tr_world_info(world);
    int failed = 0;
    if (argc > 2 && atoi(argv[2]) > 0) gpus = atoi(argv[2]);
    if (argc > 1 && strcmp(argv[1], "cuda") == 0)
        failed = run_on("cuda", TR_ENGINE_NCCL, false);
    else
        failed = run_on("cpu", TR_ENGINE_THREAD, false) + run_on("cpu", TR_ENGINE_POLL, false) +
                 run_on("strict", TR_ENGINE_THREAD, false) +
                 run_on("strict", TR_ENGINE_POLL, false);
    if (argc == 1 && info->size > 1)
        failed += run_on("cpu", TR_ENGINE_THREAD, true) + run_on("cpu", TR_ENGINE_POLL, true);
    tr_world_close(&world);
    if (tr_mem_stats().live)
        fprintf(stderr, "%lld allocations are left\n", (long long)tr_mem_stats().live);
    return failed || tr_mem_stats().live != 0;
}
