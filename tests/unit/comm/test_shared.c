/* Collectives in memory that the ranks of a node share: the order of their sums, types, groups,
 * ranks that are late; nodes that are only said to be some; and MPI in its place where a rank cannot
 * connect, where nodes have different numbers of ranks, and where it is turned off. */
//TEST np=2
//TEST np=3
//TEST np=4
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "comm/engine_int.h"

enum { COUNT = 12 * 1031, BYTES = 8 * COUNT };

static tr_world_t *world;
static tr_world_info_t real; /* of the world, as it was opened */
static tr_device_t *device;
static tr_stream_t *stream;
static tr_collectives_t *coll;
static char *block, *expected;
static tr_engine_choice_t choice;
static int refused; /* connections of the last rank that fail */

int connect(int link, const struct sockaddr *address, socklen_t bytes) {
    if (refused > 0 && address->sa_family == AF_UNIX) {
        refused--;
        errno = ECONNREFUSED;
        return -1;
    }
    return (int)syscall(SYS_connect, link, address, bytes);
}

static bool is_last(void) {
    return real.rank == real.size - 1;
}

static void open_engine(void) {
    const tr_parallel_settings_t settings = {.engine = (int)choice, .timeout = 60};
    OK(tr_world_collectives(world, device, &settings, &coll));
    OK(device->ops->alloc(device, BYTES, TR_ALLOC_SHARED_BY_RANKS, (void **)&block));
    if (coll->ops->share) OK(coll->ops->share(coll, block, BYTES));
}

static void close_engine(void) {
    tr_world_collectives_close(world, &coll);
    device->ops->free(device, block);
    world->info = real;
}

/* The i-th element of a rank: sums of it round, so that their order shows in their bits. */
static double value(int rank, int64_t i) {
    return (double)((i * 7919 + rank * 104729) % 9973) / (rank % 2 ? 3.0 : 7e4) - 1;
}

static void write_value(tr_dtype_t dtype, void *to, int rank, int64_t i, bool adds) {
    double *d = to;
    float *f = to;
    int64_t *n = to;
    if (dtype == TR_F64) d[i] = (adds ? d[i] : 0) + value(rank, i);
    if (dtype == TR_F32) f[i] = (adds ? f[i] : 0) + (float)value(rank, i);
    if (dtype == TR_I64) n[i] = (adds ? n[i] : 0) + (int64_t)(1e6 * value(rank, i));
}

static tr_ticket_t start(tr_collective_kind_t kind, int group, int64_t first, int64_t count,
                         tr_dtype_t dtype) {
    const tr_collective_t what = {kind,  group, block + first * (int64_t)tr_dtype_bytes(dtype),
                                  count, dtype, 0};
    tr_ticket_t ticket = 0;
    OK(coll->ops->start(coll, &what, stream, &ticket));
    return ticket;
}

/* The sums of `size` ranks from `base` on, every `step`-th, in their order. */
static void expect_sums(tr_dtype_t dtype, int64_t count, int base, int step, int size) {
    for (int64_t i = 0; i < count; i++)
        for (int r = 0; r < size; r++) write_value(dtype, expected, base + r * step, i, r > 0);
}

/* All kinds in the group of all ranks, of `count` elements. is_exact: sums are in the order of the
 * ranks; otherwise of integers. */
static void check_kinds(tr_dtype_t dtype, int64_t count) {
    const int64_t part = count / real.size, first = part * real.rank;
    const int64_t elem = (int64_t)tr_dtype_bytes(dtype);
    const bool halves = !is_last(); /* the last rank waits at once, the others late */
    for (int kind = TR_ALLREDUCE; kind <= TR_ALLGATHER; kind++) {
        if (kind != TR_ALLREDUCE) count = part * real.size;
        expect_sums(dtype, count, 0, 1, real.size);
        for (int64_t i = 0; i < count; i++)
            if (kind != TR_ALLGATHER) write_value(dtype, block, real.rank, i, false);
        if (kind == TR_ALLGATHER) {
            memset(block, 77, (size_t)(count * elem));
            memcpy(block + first * elem, expected + first * elem, (size_t)(part * elem));
        }
        const tr_ticket_t ticket = start((tr_collective_kind_t)kind, TR_GROUP_ALL, 0, count, dtype);
        if (halves) usleep(200);
        OK(coll->ops->progress(coll));
        OK(coll->ops->wait(coll, ticket, stream));
        if (kind == TR_REDUCE_SCATTER)
            assert_memory_equal(block + first * elem, expected + first * elem, part * elem);
        else
            assert_memory_equal(block, expected, count * elem);
    }
}

static void test_kinds(void **state) {
    const int64_t counts[] = {real.size, 12 * 7 + 1, COUNT};
    open_engine();
    assert_true(((tr_engine_t *)coll)->shares && ((tr_engine_t *)coll)->block_count == 1);
    for (size_t i = 0; i < TR_COUNT(counts); i++) {
        check_kinds(TR_F32, counts[i]);
        check_kinds(TR_F64, counts[i]);
        check_kinds(TR_I64, counts[i]);
    }
    close_engine();
}

/* Collectives of two groups and of all ranks are in flight at once; ranks wait in different orders
 * and call the world in between, before or after they wait. */
static void test_interleaved(void **state) {
    enum { N = 501 };
    int group = 0;
    open_engine();
    OK(coll->ops->split(coll, real.rank % 2, &group));
    const int members = (real.size + 1 - real.rank % 2) / 2;
    for (int round = 0; round < 20; round++) {
        tr_ticket_t ticket[4];
        double sum = 1;
        for (int64_t i = 0; i < 4 * N; i++)
            write_value(TR_F64, block + i / N * N * 8, real.rank, i % N, false);
        for (int k = 0; k < 4; k++) {
            if ((real.rank + round + k) % 3 == 0)
                nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
            ticket[k] = start(TR_ALLREDUCE, k % 2 ? group : TR_GROUP_ALL, k * N, N, TR_F64);
        }
        if ((real.rank + round) % 2) OK(coll->ops->wait(coll, ticket[round % 4], stream));
        OK(tr_world_allreduce(world, &sum, 1, TR_REDUCE_SUM));
        assert_true(sum == real.size);
        OK(coll->ops->wait(coll, ticket[3], stream));
        expect_sums(TR_F64, N, 0, 1, real.size);
        assert_memory_equal(block, expected, N * 8);
        assert_memory_equal(block + 2 * N * 8, expected, N * 8);
        expect_sums(TR_F64, N, real.rank % 2, 2, members);
        assert_memory_equal(block + N * 8, expected, N * 8);
        assert_memory_equal(block + 3 * N * 8, expected, N * 8);
    }
    close_engine();
}

/* Of integers, which every order of summation gives. */
static void test_nodes(void **state) {
    if (real.size != 4) return;
    for (int layout = 0; layout < 2; layout++) { /* in blocks of ranks, or in turns */
        world->info.nodes = world->info.local_size = 2;
        world->info.node = layout ? real.rank % 2 : real.rank / 2;
        world->info.local_rank = layout ? real.rank / 2 : real.rank % 2;
        open_engine();
        assert_true(((tr_engine_t *)coll)->shares && ((tr_engine_t *)coll)->block_count == 1);
        check_kinds(TR_I64, COUNT);
        check_kinds(TR_I64, 13);
        close_engine();
    }
}

/* Sums are right without shared memory, and every rank knows of it. */
static void check_without(bool has_share) {
    open_engine();
    assert_int_equal(((tr_engine_t *)coll)->shares, has_share);
    assert_int_equal(((tr_engine_t *)coll)->block_count, 0);
    assert_int_equal(coll->ops->share != NULL, has_share);
    check_kinds(TR_I64, COUNT);
    close_engine();
}

static void test_uneven_nodes(void **state) {
    if (real.size == 2) return;
    world->info.nodes = 2;
    world->info.node = is_last();
    world->info.local_size = is_last() ? 1 : real.size - 1;
    world->info.local_rank = is_last() ? 0 : real.rank;
    check_without(false);
}

static void test_refused(void **state) {
    refused = is_last();
    check_without(false);
    assert_int_equal(refused, 0);
    open_engine(); /* the words are shared, and a second block is not */
    void *second = NULL;
    OK(device->ops->alloc(device, 100, TR_ALLOC_SHARED_BY_RANKS, &second));
    refused = is_last();
    OK(coll->ops->share(coll, second, 100));
    assert_int_equal(refused, 0);
    assert_int_equal(((tr_engine_t *)coll)->block_count, 1);
    check_kinds(TR_F32, COUNT);
    close_engine();
    device->ops->free(device, second);
}

static void test_private_memory(void **state) {
    open_engine();
    void *own = NULL;
    OK(device->ops->alloc(device, 100, is_last() ? 0 : TR_ALLOC_SHARED_BY_RANKS, &own));
    OK(coll->ops->share(coll, own, 100));
    assert_int_equal(((tr_engine_t *)coll)->block_count, 1);
    close_engine();
    device->ops->free(device, own);
}

static void test_turned_off(void **state) {
    if (is_last()) setenv("TRAINER_SHARED_MEMORY", "0", 1);
    check_without(false);
    unsetenv("TRAINER_SHARED_MEMORY");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),      cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_nodes),      cmocka_unit_test(test_uneven_nodes),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_private_memory),
        cmocka_unit_test(test_turned_off),
    };
    int failed = tr_world_open(NULL, &world) != TR_OK ||
                 tr_device_open("cpu", &(tr_device_params_t){.threads = 1}, &device) != TR_OK ||
                 device->ops->stream_create(device, "test", TR_PRIORITY_NORMAL, &stream) != TR_OK ||
                 tr_alloc(BYTES, "test", &expected) != TR_OK;
    if (!failed) real = *tr_world_info(world);
    for (int engine = TR_ENGINE_THREAD; !failed && engine <= TR_ENGINE_POLL; engine++) {
        choice = (tr_engine_choice_t)engine;
        failed = cmocka_run_group_tests_name(engine == TR_ENGINE_POLL ? "poll" : "thread", tests,
                                             NULL, NULL);
    }
    if (failed) {
        fprintf(stderr, "%s\n", tr_error_last()->message);
        tr_world_abort(world, 1); /* the others may wait */
    }
    tr_free(&expected);
    device->ops->stream_destroy(device, stream);
    tr_device_close(&device);
    tr_world_close(&world);
    return tr_mem_stats().live != 0;
}
