/* Range, mean and deviation in one pass. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "../../support/names.h"
#include "base/stats.h"

#include <math.h>

enum { ROWS = 1000, WIDTH = 3 };

/* Three columns: a large offset, which the difference of sums of squares does not survive; small
 * numbers; all equal. */
static void fill(double *values) {
    for (int i = 0; i < ROWS; i++) {
        values[i * WIDTH] = 1e9 + i % 7;
        /* begins with one that is far from the rest */
        values[i * WIDTH + 1] = i ? 1e-3 * (i % 11) : 50;
        values[i * WIDTH + 2] = 123456.7;
    }
}

static void check(const tr_stats_t *stats, const double *values) {
    for (int c = 0; c < WIDTH; c++) {
        long double mean = 0, squares = 0;
        for (int i = 0; i < ROWS; i++) mean += values[i * WIDTH + c] / (long double)ROWS;
        for (int i = 0; i < ROWS; i++) squares += powl(values[i * WIDTH + c] - mean, 2);
        const double deviation = (double)sqrtl(squares / ROWS);
        assert_int_equal(stats[c].count, ROWS);
        double min = INFINITY, max = -INFINITY;
        for (int i = 0; i < ROWS; i++)
            min = fmin(min, values[i * WIDTH + c]), max = fmax(max, values[i * WIDTH + c]);
        assert_true(stats[c].min == min && stats[c].max == max);
        assert_true(fabsl(stats[c].mean - mean) <= 1e-12L * (fabsl(mean) + deviation));
        assert_true(fabs(tr_stats_deviation(&stats[c]) - deviation) <= 1e-6 * deviation + 1e-9);
    }
}

static void pieces_of_any_size(void **state) {
    double values[ROWS * WIDTH];
    fill(values);
    for (int64_t piece = 1; piece <= ROWS; piece = piece * 3 + 1) {
        tr_stats_t stats[WIDTH] = {0};
        for (int64_t i = 0; i < ROWS; i += piece)
            tr_stats_add(stats, WIDTH, values + i * WIDTH, i + piece < ROWS ? piece : ROWS - i);
        check(stats, values);
        assert_true(tr_stats_deviation(&stats[2]) == 0 && stats[2].mean == 123456.7);
    }
}

static void nothing_and_no_numbers(void **state) {
    tr_stats_t stats = {0};
    tr_stats_add(&stats, 1, NULL, 0);
    assert_true(stats.count == 0 && tr_stats_deviation(&stats) == 0);
    tr_stats_add(&stats, 1, (double[]){1, NAN, 2}, 3);
    assert_true(isnan(stats.mean) && isnan(tr_stats_deviation(&stats)));
}

/* Ordinary doubles lose nothing; neither do equal ones, nor what is one number but for the last
 * bits. */
static void what_floats_round_away(void **state) {
    const struct {
        double offset, step;
        bool rounded;
    } columns[] = {{0, 1, false},       {-1.2e6, 1e-3, true}, {2e8, 1, true},
                   {1.7e9, 0.25, true}, {1e5, 1, false},      {0.1, 0, false},
                   {0.1, 1e-17, false}, {1e5, 2e-11, false},  {1e-30, 1e-31, false},
                   {-3e9, 7, true},     {16777216, 1, true},  {1000, 0.01, false}};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        tr_stats_t stats = {0};
        for (int k = 0; k < 100; k++)
            tr_stats_add(&stats, 1, &(double){columns[i].offset + k * columns[i].step}, 1);
        if (tr_stats_is_rounded(&stats) != columns[i].rounded) fail_msg("column %zu", i);
    }
    char text[128];
    tr_stats_t stats = {0};
    tr_stats_add(&stats, 1, (double[]){2e8, 2e8 + 2, 2e8 + 7}, 3);
    assert_names(tr_stats_format_rounding(&stats, text), "200000000 & 200000007 & 32-bit & 7");
    assert_false(tr_stats_is_rounded(&(tr_stats_t){0}));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_of_any_size),
                                       cmocka_unit_test(nothing_and_no_numbers),
                                       cmocka_unit_test(what_floats_round_away)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
