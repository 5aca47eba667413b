/* The world's functions on 1 to 4 ranks, with MPI's calls in the caller's thread and handed to a
 * communication thread; and without MPI (alone). */
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
#include <string.h>

#include "../../support/names.h"
#include "comm/world_int.h"
#include "base/clock.h"
#include "base/mem.h"
#include "comm/watchdog.h"
#include <unistd.h>

static tr_world_t *world;
static const tr_world_info_t *info;
static bool is_alone;

static void test_info(void **state) {
    assert_in_range(info->rank, 0, info->size - 1);
    assert_in_range(info->node, 0, info->nodes - 1);
    assert_in_range(info->local_rank, 0, info->local_size - 1);
    assert_in_range(info->local_size, 1, info->size);
    assert_true(info->cores >= 1);
    assert_in_range(info->cores_shared_by, 1, info->local_size);
    assert_true(info->host[0] != '\0');
    assert_non_null(strpbrk(info->mpi_version, "0123456789"));
    assert_null(strpbrk(info->mpi_version, "\n,"));
}

static void test_reductions(void **state) {
    double values[3] = {info->rank + 1, info->rank, -info->rank};
    OK(tr_world_allreduce(world, values, 3, TR_REDUCE_SUM));
    assert_true(values[0] == info->size * (info->size + 1) / 2.0);
    int64_t big[2] = {((int64_t)1 << 53) + 1 + info->rank, -info->rank}; /* no double holds it */
    OK(tr_world_allreduce_int(world, big, 2, TR_REDUCE_MAX));
    assert_true(big[0] == ((int64_t)1 << 53) + info->size);
    assert_int_equal(big[1], 0);
    int64_t low = 7 - info->rank;
    OK(tr_world_allreduce_int(world, &low, 1, TR_REDUCE_MIN));
    assert_int_equal(low, 8 - info->size);
}

/* Ranks of one machine have the same clock: the measured offset is no larger than its error. */
static void test_clock_offset(void **state) {
    const double before = tr_clock_sec();
    tr_clock_offset_t offset;
    OK(tr_world_clock_offset(world, &offset));
    assert_true(before <= offset.at_sec && offset.at_sec <= tr_clock_sec());
    assert_true(offset.error_sec >= 0);
    assert_true(offset.offset_sec <= offset.error_sec && -offset.offset_sec <= offset.error_sec);
    if (info->rank == 0) assert_true(offset.error_sec == 0);
}

static void test_broadcast(void **state) {
    for (int root = 0; root < info->size; root++) {
        char bytes[1001];
        memset(bytes, info->rank, sizeof bytes);
        OK(tr_world_broadcast(world, bytes, sizeof bytes, root));
        for (size_t i = 0; i < sizeof bytes; i++) assert_int_equal(bytes[i], root);
        char *text = NULL, mine[32];
        snprintf(mine, sizeof mine, "from %d", root);
        if (info->rank == root) OK(tr_strdup(root % 2 ? "" : mine, &text));
        OK(tr_world_broadcast_text(world, &text, root));
        assert_string_equal(text, root % 2 ? "" : mine);
        tr_free(&text);
    }
}

static void test_allgather(void **state) {
    struct {
        int rank;
        char tag[9];
    } mine = {info->rank, "x"}, all[4];
    OK(tr_world_allgather(world, &mine, sizeof mine, all));
    for (int r = 0; r < info->size; r++) assert_int_equal(all[r].rank, r);
    OK(tr_world_barrier(world));
}

static void test_agree_ok(void **state) {
    OK(tr_world_agree(world, TR_OK));
}

static void test_agree_each_rank_fails_once(void **state) {
    for (int bad = 0; bad < info->size; bad++) {
        tr_error_clear();
        tr_status_t mine = TR_OK;
        if (info->rank == bad) mine = TR_FAIL(TR_ERR_DATA, "file %d is cut short", bad);
        assert_int_equal(tr_world_agree(world, mine), TR_ERR_DATA);
        const tr_error_t *e = tr_error_last();
        assert_int_equal(e->code, TR_ERR_DATA);
        char want[64], names[96];
        snprintf(want, sizeof want, "file %d is cut short", bad);
        snprintf(names, sizeof names, "rank %d & %s", bad, want);
        assert_int_equal(e->origin, info->rank == bad ? TR_ORIGIN_MINE : TR_ORIGIN_PEER);
        if (info->rank == bad) {
            assert_string_equal(e->message, want);
        } else {
            assert_names(e->message, names);
            assert_non_null(strstr(e->trace, "test_agree_each_rank_fails_once"));
        }
    }
}

/* The lowest rank would take it over, whose message is of a peer: then nobody says it. */
static void test_agree_again(void **state) {
    const int last = info->size - 1;
    tr_status_t status = info->rank == last ? TR_FAIL(TR_ERR_IO, "disk") : TR_OK;
    for (int i = 0; i < 2; i++) status = tr_world_agree(world, status);
    const tr_error_t *e = tr_error_last();
    assert_true(status == TR_ERR_IO && e->code == TR_ERR_IO);
    assert_int_equal(e->origin, info->rank == last ? TR_ORIGIN_MINE : TR_ORIGIN_PEER);
    if (info->rank == last) assert_string_equal(e->message, "disk");
    assert_int_equal(TR_FAIL(TR_ERR_IO, "another"), TR_ERR_IO);
    assert_int_equal(tr_error_last()->origin, TR_ORIGIN_OPEN);
}

static void test_agree_on_the_worst(void **state) {
    tr_error_clear();
    tr_status_t mine = info->rank == 0 ? TR_FAIL(TR_ERR_IO, "disk")
                                       : TR_FAIL(TR_ERR_CONFIG, "key of %d", info->rank);
    tr_status_t want = info->size == 1 ? TR_ERR_IO : TR_ERR_CONFIG;
    assert_int_equal(tr_world_agree(world, mine), want);
    assert_int_equal(tr_error_last()->code, want);
    /* Of equals the lowest rank speaks. */
    assert_non_null(strstr(tr_error_last()->message, info->size == 1 ? "disk" : "key of 1"));
}

static void test_agree_without_a_record(void **state) {
    tr_error_clear();
    assert_int_equal(tr_world_agree(world, info->rank == info->size - 1 ? TR_ERR_MEMORY : TR_OK),
                     TR_ERR_MEMORY);
    if (info->rank != info->size - 1)
        assert_non_null(strstr(tr_error_last()->message, tr_status_name(TR_ERR_MEMORY)));
}

static void test_same(void **state) {
    const char *text = "step 7";
    OK(tr_world_same(world, "The step", text, strlen(text)));
    if (info->size == 1) return;
    tr_error_clear();
    int mine = info->rank == info->size - 1;
    assert_int_equal(tr_world_same(world, "The seed", &mine, sizeof mine), TR_ERR_INTERNAL);
    char list[32];
    snprintf(list, sizeof list, "(%d)", info->size - 1);
    assert_non_null(strstr(tr_error_last()->message, "The seed"));
    assert_non_null(strstr(tr_error_last()->message, list));
    /* The same bytes, but not as many. */
    assert_int_equal(tr_world_same(world, "The list", "aaaa", info->rank ? 3 : 4), TR_ERR_INTERNAL);
}

static void test_mpi_errors_return(void **state) {
    char byte = 0;
    if (is_alone) return;
    assert_int_equal(tr_world_broadcast(world, &byte, 1, info->size + 5), TR_ERR_INTERNAL);
    assert_non_null(strstr(tr_error_last()->message, "MPI_Bcast"));
}

/* Errors of a program that embeds us are its own matter, of whatever communicator. */
static void test_leaves_error_handlers(void **state) {
    MPI_Comm theirs, *const of[] = {&theirs, &(MPI_Comm){MPI_COMM_WORLD}};
    tr_world_t *second = NULL;
    if (is_alone) return;
    assert_int_equal(MPI_Comm_dup(MPI_COMM_WORLD, &theirs), MPI_SUCCESS);
    for (int i = 0; i < 2; i++) MPI_Comm_set_errhandler(*of[i], MPI_ERRORS_ARE_FATAL);
    OK(tr_world_open(&theirs, &second));
    for (int i = 0; i < 2; i++) {
        MPI_Errhandler found;
        MPI_Comm_get_errhandler(*of[i], &found);
        assert_true(found == MPI_ERRORS_ARE_FATAL);
        MPI_Errhandler_free(&found);
    }
    char byte = 0;
    assert_int_equal(tr_world_broadcast(second, &byte, 1, info->size + 5), TR_ERR_INTERNAL);
    tr_world_close(&second);
    MPI_Comm_free(&theirs);
}

/* Longer than the limit of a wait, for rank 0 waits for a disk. */
static void test_waits_for_checkpoints(void **state) {
    const double limit_sec = world->timeout_sec;
    world->timeout_sec = 0.2;
    tr_watchdog_phase(world, TR_PHASE_CHECKPOINT, 1);
    if (info->rank == 0) usleep(600000);
    OK(tr_world_barrier(world));
    tr_watchdog_phase(world, TR_PHASE_STEP, 2);
    world->timeout_sec = limit_sec;
}

static int use_thread(void **state) {
    tr_worker_t *worker = NULL;
    if (tr_worker_start(world->comm, &worker) != TR_OK) return -1;
    world->worker = worker;
    world->timeout_sec = 60;
    return 0;
}

static int stop_thread(void **state) {
    tr_worker_stop(&world->worker);
    return 0;
}

/* Ending a world that has no MPI returns, and nothing that a world does starts MPI. */
static void test_without_mpi(void **state) {
    int initialised = 1;
    tr_world_t *second = NULL;
    if (!is_alone) return;
    OK(tr_world_open_alone(&second));
    OK(tr_watchdog_start(second, 60, NULL));
    assert_true(CPU_COUNT(tr_world_node_cores(second)) >= info->cores);
    tr_world_abort(second, 1);
    tr_world_close(&second);
    assert_int_equal(MPI_Initialized(&initialised), MPI_SUCCESS);
    assert_false(initialised);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_clock_offset),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_allgather),
        cmocka_unit_test(test_agree_ok),
        cmocka_unit_test(test_agree_each_rank_fails_once),
        cmocka_unit_test(test_agree_again),
        cmocka_unit_test(test_agree_on_the_worst),
        cmocka_unit_test(test_agree_without_a_record),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_leaves_error_handlers),
        cmocka_unit_test(test_waits_for_checkpoints),
        cmocka_unit_test(test_without_mpi),
        cmocka_unit_test(test_mpi_errors_return), /* last: the thread stops at a failure */
    };
    is_alone = argc > 1 && strcmp(argv[1], "alone") == 0;
    if ((is_alone ? tr_world_open_alone(&world) : tr_world_open(NULL, &world)) != TR_OK) {
        fprintf(stderr, "%s\n", tr_error_last()->message);
        return 1;
    }
    info = tr_world_info(world);
    int failed = cmocka_run_group_tests_name("direct", tests, NULL, NULL);
    failed += cmocka_run_group_tests_name("thread", tests, use_thread, stop_thread);
    if (failed) tr_world_abort(world, 1); /* the others may wait */
    tr_world_close(&world);
    if (tr_mem_stats().live)
        fprintf(stderr, "%lld allocations are left\n", (long long)tr_mem_stats().live);
    return failed || tr_mem_stats().live != 0;
}
