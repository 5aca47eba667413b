/* Clocks run forward and agree with the system. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static void monotonic(void **state) {
    double before = tr_clock_sec(), exec_before = tr_clock_since_exec_sec();
    nanosleep(&(struct timespec){0, 60000000}, NULL);
    double slept = tr_clock_sec() - before, exec_slept = tr_clock_since_exec_sec() - exec_before;
    assert_true(slept >= 0.059 && slept < 30);
    assert_true(exec_slept >= 0.04 && exec_slept < 30);
    assert_true(exec_before < 60);
}

static void date_is_utc(void **state) {
    char text[32];
    struct tm utc = {0};
    time_t before = time(NULL);
    tr_clock_iso8601(text);
    assert_int_equal(sscanf(text, "%d-%d-%dT%d:%d:%dZ", &utc.tm_year, &utc.tm_mon, &utc.tm_mday,
                            &utc.tm_hour, &utc.tm_min, &utc.tm_sec),
                     6);
    utc.tm_year -= 1900;
    utc.tm_mon--;
    time_t shown = timegm(&utc);
    assert_true(shown >= before && shown <= time(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(monotonic), cmocka_unit_test(date_is_utc)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
