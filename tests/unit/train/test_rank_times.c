/* Times of ranks travel to rank 0 with the watchdog's beats; a metrics line tells the slowest rank
 * by them. */
//TEST np=3
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "train/metrics_ranks.h"
#include "comm/watchdog.h"
#include "base/clock.h"

static tr_world_t *world;
static int rank;

/* Each rank computes a second more than the one before, and waits for the slowest. */
static void add_second_steps(void) {
    tr_watchdog_add_times(world, 1 + rank, 0.5, 2 - rank);
}

static bool have_arrived(tr_rank_times_t *times, double compute_sec) {
    assert_true(tr_watchdog_times(world, times));
    return times[1].compute_sec == 2 * compute_sec && times[2].compute_sec == 3 * compute_sec;
}

static void beats_carry_times(void **state) {
    tr_rank_times_t times[3] = {0};
    add_second_steps();
    add_second_steps();
    for (int i = 0; rank == 0 && i < 3000 && !have_arrived(times, 2); i++) usleep(10 * 1000);
    OK(tr_world_barrier(world));
    if (rank != 0) return;
    assert_true(times[0].compute_sec == 2 && times[1].compute_sec == 4 &&
                times[2].compute_sec == 6);
    assert_true(times[1].data_sec == 1 && times[1].wait_sec == 2 && times[2].wait_sec == 0);
    assert_string_equal(times[2].host, tr_world_info(world)->host);
}

/* Telemetry travels as numbers whose meaning the watchdog does not know. */
static void beats_carry_values(void **state) {
    tr_rank_values_t got[3];
    double mine[TR_RANK_VALUES];
    bool have_all = false;
    for (int set = 1; set <= 3; set++) {
        for (int i = 0; i < TR_RANK_VALUES; i++) mine[i] = 1000 * set + 100 * rank + i;
        tr_watchdog_set_values(world, mine);
    }
    for (int i = 0; rank == 0 && i < 3000 && !have_all; i++) {
        tr_watchdog_values(world, got);
        have_all = got[1].value[0] == 3100 && got[2].value[0] == 3200;
        if (!have_all) usleep(10 * 1000);
    }
    OK(tr_world_barrier(world));
    if (rank != 0) return;
    for (int i = 0; i < TR_RANK_VALUES; i++)
        for (int r = 0; r < 3; r++) assert_true(got[r].value[i] == 3000 + 100 * r + i);
    assert_string_equal(got[0].host, tr_world_info(world)->host);
    assert_string_equal(got[2].host, got[0].host);
}

static double number(const json_t *line, const char *key) {
    assert_true(json_is_number(json_object_get(line, key)));
    return json_number_value(json_object_get(line, key));
}

static void a_line_tells_the_slowest(void **state) {
    tr_metrics_ranks_t ranks = {0};
    if (rank != 0) return;
    for (int i = 1; i <= 100; i++) tr_metrics_ranks_step(&ranks, 0.001 * i);
    json_t *line = json_object();
    OK(tr_metrics_ranks_line(&ranks, world, line));
    assert_in_range(number(line, "step_ms"), 49, 52);
    assert_in_range(number(line, "step_ms_p95"), 94, 97);
    assert_int_equal(number(line, "slowest_rank"), 2);
    assert_true(number(line, "wait_min") == 0 && number(line, "wait_max") > 0.5);
    assert_true(number(line, "compute_max") > 0.8 && number(line, "compute_min") < 0.3);
    assert_non_null(json_object_get(line, "slowest_host"));
    json_decref(line);
    line = json_object(); /* nothing new */
    OK(tr_metrics_ranks_line(&ranks, world, line));
    assert_int_equal(json_object_size(line), 0);
    json_decref(line);
    tr_metrics_ranks_close(&ranks);
}

/* 0.2 % of a step of 5 ms are 10 us. */
static void a_step_costs_little(void **state) {
    enum { CALLS = 100000, ROUNDS = 20 };
    static tr_metrics_ranks_t ranks;
    double best = 1;
    for (int round = 0; round < ROUNDS; round++) {
        const double begin = tr_clock_sec();
        for (int i = 0; i < CALLS; i++) {
            tr_watchdog_add_times(world, 1e-9, 0, 0);
            tr_metrics_ranks_step(&ranks, 1e-9);
        }
        const double sec = (tr_clock_sec() - begin) / CALLS;
        if (sec < best) best = sec;
    }
    print_message("%.1f ns per step\n", 1e9 * best);
    assert_true(best < 10e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beats_carry_times),
        cmocka_unit_test(beats_carry_values),
        cmocka_unit_test(a_line_tells_the_slowest),
        cmocka_unit_test(a_step_costs_little),
    };
    if (tr_world_open(NULL, &world) != TR_OK || tr_watchdog_start(world, 60, NULL) != TR_OK) {
        fprintf(stderr, "%s\n", tr_error_last()->message);
        return 1;
    }
    rank = tr_world_info(world)->rank;
    const int failed = cmocka_run_group_tests_name("rank times", tests, NULL, NULL);
    if (failed) tr_world_abort(world, 1); /* the others may wait */
    tr_world_close(&world);
    return 0;
}
