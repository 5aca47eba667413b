/* What a run shows of itself: bounded curves, the newest line, the best validation. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/names.h"
#include "../../support/ok.h"

#include "monitor/board.h"
#include "report/record/newest.h"
#include "report/scaling/losses.h"

#include <math.h>
#include <string.h>

static void add(tr_board_t *board, json_t *line) {
    tr_board_add(board, line, 0);
    json_decref(line);
}

static void curves_are_bounded(void **state) {
    tr_board_t *board = NULL;
    tr_record_t view;
    (void)state;
    OK(tr_board_open("runs/some/", 100000, true, &board));
    assert_string_equal(tr_board_run(board), "some");
    tr_board_describe(board, json_pack("{s:i, s:i}", "ranks", 1, "batch_size", 10));
    OK(tr_board_view(board, &view));
    assert_int_equal(tr_newest_of(&view).step, -1);
    tr_record_free(&view);
    for (int i = 1; i <= 50001; i++) {
        add(board, json_pack("{s:i, s:f, s:i, s:f}", "step", i, "loss", 1.0 / i, "session", 1,
                             "unix_time", 0.5 * i));
        if (i % 10 == 0)
            add(board, json_pack("{s:i, s:f, s:b}", "step", i, "valid_loss", fabs(i - 7770.0),
                                 "best", i <= 7770));
    }
    OK(tr_board_view(board, &view));
    const size_t points = view.training.count;
    assert_in_range(points, TR_SPREAD_LINES, 2 * TR_SPREAD_LINES + 1);
    assert_in_range(view.validation.count, TR_SPREAD_LINES, 2 * TR_SPREAD_LINES + 1);
    /* equally spread, with the newest behind */
    for (size_t i = 0; i + 1 < points; i++)
        assert_int_equal(tr_rows_number(&view.training, i, "step"),
                         1 + (int64_t)i * view.training.every);
    const tr_newest_t n = tr_newest_of(&view);
    assert_int_equal(n.step, 50001);
    assert_int_equal(n.best_step, 7770);
    assert_true(fabs(n.eta_sec - 0.5 * 49999) < 1e-6);
    tr_record_free(&view);
    tr_board_close(&board);
}

static void add_at(tr_board_t *board, int step, double unix_time, int session, double stall) {
    add(board, json_pack("{s:i, s:f, s:i, s:f, s:f}", "step", step, "unix_time", unix_time,
                         "session", session, "data_stall", stall, "samples_per_sec", 1e6));
}

/* The last lines by their times; a line of an earlier session does not count. */
static void pace_is_that_of_the_last_lines(void **state) {
    tr_board_t *board = NULL;
    tr_record_t view;
    (void)state;
    OK(tr_board_open("some", 100, true, &board));
    tr_board_describe(board, json_pack("{s:i, s:i}", "ranks", 1, "batch_size", 10));
    add_at(board, 10, 0, 1, 0.5);
    add_at(board, 20, 1000, 2, 0.5);
    OK(tr_board_view(board, &view));
    assert_true(fabs(tr_newest_of(&view).samples_per_sec - 1e6) < 1);
    tr_record_free(&view);
    add_at(board, 30, 1001, 2, 0);
    add_at(board, 40, 1011, 2, 0.9);
    OK(tr_board_view(board, &view));
    const tr_newest_t n = tr_newest_of(&view);
    assert_true(fabs(n.samples_per_sec - 10 * 20 / 11.0) < 1e-6);
    assert_true(fabs(n.eta_sec - 60 / (20 / 11.0)) < 1e-6);
    assert_true(fabs(n.data_stall - 0.9 * 10 / 11) < 1e-6);
    tr_record_free(&view);
    tr_board_close(&board);
}

static void add_ranks(tr_board_t *board, int step, int slowest, double wait_min, double wait_max) {
    add(board, json_pack("{s:i, s:f, s:i, s:i, s:s, s:f, s:f}", "step", step, "unix_time",
                         (double)step, "session", 1, "slowest_rank", slowest, "slowest_host", "n",
                         "wait_min", wait_min, "wait_max", wait_max));
}

/* A rank that is the slowest now and then is not slow. */
static void the_rank_for_which_others_wait(void **state) {
    tr_board_t *board = NULL;
    tr_record_t view;
    (void)state;
    OK(tr_board_open("some", 100, true, &board));
    tr_board_describe(board, json_pack("{s:i, s:i}", "ranks", 4, "batch_size", 10));
    for (int i = 1; i <= 9; i++) add_ranks(board, i, i % 4, 0, 0.2);
    OK(tr_board_view(board, &view));
    assert_int_equal(tr_newest_of(&view).slow_rank, -1);
    assert_true(fabs(tr_newest_of(&view).line_sec - 1) < 1e-9);
    tr_record_free(&view);
    for (int i = 10; i <= 29; i++) add_ranks(board, i, 3, 0.1, i % 2 ? 0.5 : 0.3);
    add_ranks(board, 30, 3, 0, 0.3);
    OK(tr_board_view(board, &view));
    const tr_newest_t n = tr_newest_of(&view);
    assert_int_equal(n.slow_rank, 3);
    assert_true(fabs(n.slow_share - (10 * 0.4 + 9 * 0.2 + 0.3) / 20) < 1e-9);
    assert_string_equal(n.slow_host, "n");
    tr_record_free(&view);
    tr_board_close(&board);
}

/* While a run trains, its lines say how its ranks used the cores. */
static void cores_that_others_use(void **state) {
    tr_board_t *board = NULL;
    tr_record_t view;
    tr_str_t words = {0};
    (void)state;
    OK(tr_board_open("some", 100, true, &board));
    tr_board_describe(board, json_pack("{s:i, s:i, s:s, s:i, s:i}", "ranks", 2, "batch_size", 10,
                                       "device", "cpu", "threads", 1, "cores", 1));
    for (int i = 1; i <= 9; i++)
        add(board, json_pack("{s:i, s:f, s:i, s:f, s:f, s:f, s:f}", "step", i, "unix_time",
                             (double)i, "session", 1, "samples_per_sec", 10.0, "comm_exposed", 0.6,
                             "cpu_util", 0.3, "cpu_wait", i % 2 ? 0.8 : 0.55));
    OK(tr_board_view(board, &view));
    assert_true(fabs(tr_record_shared(&view) - 6.2 / 9) < 1e-9);
    tr_losses_explain_run(&view, &words);
    assert_names(words.text, "69 % & 0.3 cores & trainer doctor");
    assert_null(strstr(words.text, "network"));
    tr_str_free(&words);
    tr_record_free(&view);
    tr_board_close(&board);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves_are_bounded), cmocka_unit_test(pace_is_that_of_the_last_lines),
        cmocka_unit_test(the_rank_for_which_others_wait), cmocka_unit_test(cores_that_others_use)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
