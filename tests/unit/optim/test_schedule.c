/* Learning-rate schedules against their closed forms, at the ends and in between; lengths as text.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "../../support/names.h"
#include "base/mem.h"
#include "optim/optim.h"

#include <math.h>
#include <string.h>

static const tr_schedule_settings_t base = {.type = "constant",
                                            .warmup = "0",
                                            .milestones = "50%, 75%",
                                            .gamma = 0.1,
                                            .final_factor = 0,
                                            .decay = "20%"};

static tr_schedule_t *make(tr_schedule_settings_t settings, int64_t total, double steps_per_epoch) {
    tr_schedule_t *schedule = NULL;
    if (tr_schedule_create(&settings, 0.5, total, steps_per_epoch, &schedule) != TR_OK)
        fail_msg("%s", tr_error_last()->message);
    return schedule;
}

#define assert_lr(schedule, step, expected)                                                        \
    assert_float_equal(tr_schedule_lr(schedule, step), expected, 1e-12)

static void constant_with_and_without_warmup(void **state) {
    tr_schedule_settings_t settings = base;
    tr_schedule_t *s = make(settings, 100, 10);
    assert_lr(s, 0, 0.5);
    assert_lr(s, 99, 0.5);
    assert_lr(s, 1000, 0.5);
    tr_schedule_destroy(&s);
    assert_null(s);
    settings.warmup = "10";
    s = make(settings, 100, 10);
    for (int64_t i = 0; i < 10; i++) assert_lr(s, i, 0.5 * (double)(i + 1) / 10);
    assert_lr(s, 10, 0.5);
    assert_lr(s, 99, 0.5);
    tr_schedule_destroy(&s);
}

static void cosine_is_half_a_period(void **state) {
    tr_schedule_settings_t settings = base;
    settings.type = "cosine";
    tr_schedule_t *s = make(settings, 100, 10);
    for (int64_t i = 0; i <= 100; i++) assert_lr(s, i, 0.25 * (1 + cos(M_PI * (double)i / 100)));
    assert_lr(s, 500, 0);
    tr_schedule_destroy(&s);
    settings.warmup = "20%", settings.final_factor = 0.1;
    s = make(settings, 100, 10);
    assert_lr(s, 0, 0.5 / 20);
    assert_lr(s, 19, 0.5);
    assert_lr(s, 20, 0.5);
    assert_lr(s, 60, 0.5 * 0.55);
    assert_lr(s, 99, 0.5 * (0.1 + 0.45 * (1 + cos(M_PI * 79 / 80))));
    assert_lr(s, 100, 0.05);
    tr_schedule_destroy(&s);
}

static void linear_falls_evenly(void **state) {
    tr_schedule_settings_t settings = base;
    settings.type = "linear", settings.warmup = "1epoch", settings.final_factor = 0.2;
    tr_schedule_t *s = make(settings, 50, 10);
    assert_lr(s, 9, 0.5);
    assert_lr(s, 10, 0.5);
    assert_lr(s, 30, 0.5 * 0.6);
    assert_lr(s, 49, 0.5 * (1 - 0.8 * 39 / 40));
    assert_lr(s, 50, 0.1);
    tr_schedule_destroy(&s);
}

static void steps_multiply_at_milestones(void **state) {
    tr_schedule_settings_t settings = base;
    settings.type = "step", settings.milestones = "30, 4.5epoch\n 75%, 1000";
    tr_schedule_t *s = make(settings, 100, 10);
    assert_lr(s, 29, 0.5);
    assert_lr(s, 30, 0.05);
    assert_lr(s, 44, 0.05);
    assert_lr(s, 45, 0.005);
    assert_lr(s, 74, 0.005);
    assert_lr(s, 75, 0.0005);
    assert_lr(s, 99, 0.0005);
    tr_schedule_destroy(&s);
}

static void wsd_is_stable_then_falls(void **state) {
    tr_schedule_settings_t settings = base;
    settings.type = "wsd", settings.warmup = "10", settings.decay = "40",
    settings.final_factor = 0.25;
    tr_schedule_t *s = make(settings, 100, 10);
    assert_lr(s, 0, 0.05);
    assert_lr(s, 10, 0.5);
    assert_lr(s, 60, 0.5);
    assert_lr(s, 80, 0.5 * (1 - 0.75 * 0.5));
    assert_lr(s, 100, 0.5 * 0.25);
    tr_schedule_destroy(&s);
    settings.decay = "0";
    s = make(settings, 100, 10);
    assert_lr(s, 99, 0.5);
    tr_schedule_destroy(&s);
}

static void the_whole_run_may_be_warmup(void **state) {
    static const char *const types[] = {"constant", "step", "cosine", "linear", "wsd"};
    for (size_t i = 0; i < TR_COUNT(types); i++) {
        tr_schedule_settings_t settings = base;
        settings.type = types[i], settings.warmup = "100%", settings.decay = "0",
        settings.milestones = "";
        tr_schedule_t *s = make(settings, 8, 10);
        assert_lr(s, 0, 0.5 / 8);
        assert_lr(s, 7, 0.5);
        assert_true(isfinite(tr_schedule_lr(s, 8)));
        tr_schedule_destroy(&s);
    }
}

static void expect(tr_schedule_settings_t settings, int64_t total, const char *names) {
    tr_schedule_t *schedule = NULL;
    int64_t live = tr_mem_stats().live;
    tr_status_t status = tr_schedule_create(&settings, 0.5, total, 10, &schedule);
    assert_int_equal(status, TR_ERR_CONFIG);
    assert_error_names(names);
    assert_null(schedule);
    assert_int_equal(tr_mem_stats().live, live);
    tr_error_clear();
}

static void bad_settings_are_refused(void **state) {
    tr_schedule_settings_t s = base;
    s.warmup = "101";
    expect(s, 100, "schedule.warmup & 101 & 100");
    s.warmup = "11epoch";
    expect(s, 100, "schedule.warmup & 11epoch & 110");
    s.warmup = "soon";
    expect(s, 100, "schedule.warmup & 500 & 2epoch & 5% & 'soon'");
    s = base, s.type = "cosin";
    expect(s, 100, "'cosin' & 'cosine'");
    s.type = "exponential";
    expect(s, 100, "'exponential' & constant & step & cosine & linear & wsd");
    s = base, s.type = "wsd", s.warmup = "50%", s.decay = "51%";
    expect(s, 100, "schedule.warmup & 50% & schedule.decay & 51%");
    s = base, s.type = "step", s.milestones = "75%, 50%";
    expect(s, 100, "schedule.milestones & '50%' & 50 & 75");
    s.milestones = "50%, x";
    expect(s, 100, "schedule.milestones & 'x'");
    expect(base, 0, "0");
}

static void lengths(void **state) {
    static const struct {
        const char *text;
        double steps;
    } good[] = {{"500", 500},  {"0", 0},       {"1e3", 1000},         {"500steps", 500},
                {"1 step", 1}, {"2epoch", 75}, {"0.5 epochs", 18.75}, {"5%", 10},
                {"2.5 %", 5},  {"100%", 200}};
    static const char *const bad[] = {"",    "x",         "-1",     "1.5",  "epoch",   "%",
                                      "5%%", "2 epoch s", "1e999%", "nan%", "-2epoch", "2epoch5"};
    double steps;
    for (size_t i = 0; i < TR_COUNT(good); i++)
        if (!tr_parse_steps(good[i].text, 200, 37.5, &steps) || fabs(steps - good[i].steps) > 1e-12)
            fail_msg("'%s' is %g", good[i].text, steps);
    for (size_t i = 0; i < TR_COUNT(bad); i++)
        if (tr_parse_steps(bad[i], 200, 37.5, &steps))
            fail_msg("'%s' is taken as %g", bad[i], steps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_with_and_without_warmup),
        cmocka_unit_test(cosine_is_half_a_period),
        cmocka_unit_test(linear_falls_evenly),
        cmocka_unit_test(steps_multiply_at_milestones),
        cmocka_unit_test(wsd_is_stable_then_falls),
        cmocka_unit_test(the_whole_run_may_be_warmup),
        cmocka_unit_test(bad_settings_are_refused),
        cmocka_unit_test(lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
