/* run.until: the times it takes, and how early a run is to stop. */
#include "../../../src/train/until.h"
#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include "../../support/ok.h"

static void times(void **state) {
    char text[64];
    double until = -1;
    setenv("TZ", "UTC", 1);
    unsetenv("SLURM_JOB_END_TIME");
    static const char *const none[] = {"auto", "none", "", "N/A", "Unknown"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        OK(tr_until_parse(none[i], &until));
        assert_true(until == 0);
    }
    OK(tr_until_parse("4102444800", &until));
    assert_true(until == 4102444800);
    OK(tr_until_parse("2100-01-01T00:00:00", &until));
    assert_true(until == 4102444800);
    setenv("SLURM_JOB_END_TIME", "4102444801", 1);
    OK(tr_until_parse("auto", &until));
    assert_true(until == 4102444801);
    snprintf(text, sizeof text, "%.0f", tr_clock_unix_sec() - 10);
    OK(tr_until_parse(text, &until));
    assert_true(until == 0);
}

static void what_is_no_time(void **state) {
    static const char *const bad[] = {"soon", "30min", "3600", "2100-01-01",
                                      "2100-01-01T00:00:00Z"};
    double until;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tr_until_parse(bad[i], &until), TR_ERR_CONFIG);
        assert_non_null(strstr(tr_error_last()->message, bad[i]));
    }
}

static void slow_saves_stop_earlier(void **state) {
    assert_true(tr_until_margin_sec(1, 0, 0.01) >= 2);
    assert_true(tr_until_margin_sec(60, 0, 0.01) >= 120);
    assert_true(tr_until_margin_sec(0, 1e10, 0.01) > tr_until_margin_sec(0, 1e6, 0.01));
    assert_true(tr_until_margin_sec(1, 0, 100) >= 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times),
        cmocka_unit_test(what_is_no_time),
        cmocka_unit_test(slow_saves_stop_earlier),
    };
    return cmocka_run_group_tests_name("until", tests, NULL, NULL);
}
