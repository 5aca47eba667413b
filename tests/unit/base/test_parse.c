/* Numbers, sizes, durations: what is taken, what is refused, and how they are shown. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/comma_locale.h"

#include "base/str.h"

#include <math.h>
#include <string.h>

static void ints(void **state) {
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"12", 12},
                {"-3", -3},
                {"+4", 4},
                {"1_000_000", 1000000},
                {"1e6", 1000000},
                {"1.5e3", 1500},
                {"2.50e1", 25},
                {"100e-2", 1},
                {"0e99", 0},
                {"007", 7},
                {"1e18", 1000000000000000000},
                {"9007199254740993e0", 9007199254740993},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t value = 99;
        if (!tr_parse_int(good[i].text, &value) || value != good[i].value)
            fail_msg("%s: %lld", good[i].text, (long long)value);
    }
    static const char *const bad[] = {"",
                                      " 1",
                                      "1 ",
                                      "1.5",
                                      "1e-1",
                                      "0x10",
                                      "1__0",
                                      "_1",
                                      "1_",
                                      "--1",
                                      "-",
                                      "one",
                                      "1k",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "1e19",
                                      "1e99999",
                                      "."};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t value = 99;
        if (tr_parse_int(bad[i], &value)) fail_msg("'%s' was taken", bad[i]);
        assert_int_equal(value, 99);
    }
}

static void floats(void **state) {
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0.1", 0.1},
                {"-1e-3", -1e-3},
                {".5", 0.5},
                {"5.", 5},
                {"1_0.5", 10.5},
                {"3e-4", 3e-4},
                {"1e308", 1e308},
                {"4.9e-324", 4.9e-324},
                {"0.30000000000000004", 0.1 + 0.2},
                {"1e-9999", 0},
                {"123456789.123456789", 123456789.123456789}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        double value = 99;
        if (!tr_parse_float(good[i].text, &value) || value != good[i].value)
            fail_msg("%s: %.17g", good[i].text, value);
    }
    static const char *const bad[] = {"",   "inf",   "nan", "-inf", "0x1p3", "1,5",  "1e",
                                      "e5", "1e400", "1 ",  " 1",   "1f",    "1e+-3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double value;
        if (tr_parse_float(bad[i], &value)) fail_msg("'%s' was taken", bad[i]);
    }
}

static void floats_ignore_the_locale(void **state) {
    double value = 0;
    if (!set_comma_locale()) skip();
    assert_true(tr_parse_float("1.5", &value));
    assert_true(value == 1.5);
    assert_false(tr_parse_float("1,5", &value));
    setlocale(LC_ALL, "C");
}

static void numbers_of_any_length_are_no_harm(void **state) {
    char text[5000];
    memset(text, '1', sizeof text);
    text[4999] = '\0';
    double value;
    int64_t whole;
    assert_false(tr_parse_float(text, &value));
    assert_false(tr_parse_int(text, &whole));
    text[1] = '.';
    assert_false(tr_parse_float(text, &value));
    text[120] = '\0';
    assert_true(tr_parse_float(text, &value));
    assert_true(fabs(value - 10.0 / 9) < 1e-15);
}

static void bools(void **state) {
    bool value = false;
    assert_true(tr_parse_bool("Yes", &value) && value);
    assert_true(tr_parse_bool("off", &value) && !value);
    assert_true(tr_parse_bool("1", &value) && value);
    assert_true(tr_parse_bool("false", &value) && !value);
    assert_false(tr_parse_bool("y", &value));
    assert_false(tr_parse_bool("", &value));
    assert_false(tr_parse_bool("2", &value));
}

static void byte_sizes(void **state) {
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"64k", 65536},
                {"64 KiB", 65536},
                {"1MB", 1 << 20},
                {"2G", INT64_C(2) << 30},
                {"1.5k", 1536},
                {"100B", 100},
                {"1e3", 1000},
                {"-1k", -1024},
                {"7E", INT64_C(7) << 60},
                {"1t", INT64_C(1) << 40}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t value = 99;
        if (!tr_parse_bytes(good[i].text, &value) || value != good[i].value)
            fail_msg("%s: %lld", good[i].text, (long long)value);
    }
    static const char *const bad[] = {"",        "k",     "1x",    "1kk", "8E",
                                      "8.0001E", "1 k b", "1KiBB", "1_k"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t value = 99;
        if (tr_parse_bytes(bad[i], &value)) fail_msg("'%s' was taken", bad[i]);
        assert_int_equal(value, 99);
    }
}

static void durations(void **state) {
    static const struct {
        const char *text;
        double sec;
    } good[] = {{"90", 90},           {"90s", 90},   {"1.5 h", 5400}, {"10min", 600},
                {"10 m", 600},        {"1d", 86400}, {"250ms", 0.25}, {"1h30min", 5400},
                {"1 h 02 min", 3720}, {"0", 0}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        double sec = -1;
        if (!tr_parse_duration(good[i].text, &sec) || sec != good[i].sec)
            fail_msg("%s: %g", good[i].text, sec);
    }
    static const char *const bad[] = {"",           "s",      "1x",     "1h30", "0s 5",
                                      "10 minutes", "1epoch", "1e308d", "90 ",  "90,5s"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double sec;
        if (tr_parse_duration(bad[i], &sec)) fail_msg("'%s' was taken", bad[i]);
    }
}

static void shown_for_people(void **state) {
    char text[32];
    assert_string_equal(tr_format_bytes(0, text), "0 B");
    assert_string_equal(tr_format_bytes(1023, text), "1023 B");
    assert_string_equal(tr_format_bytes(1.5 * 1048576, text), "1.5 MiB");
    assert_string_equal(tr_format_bytes(1024 * 1023.99, text), "1.0 MiB");
    assert_string_equal(tr_format_count(999, text), "999");
    assert_string_equal(tr_format_count(12345, text), "12.3 k");
    assert_string_equal(tr_format_count(999999, text), "1.0 M");
    assert_string_equal(tr_format_duration(0.5, text), "500 ms");
    assert_string_equal(tr_format_duration(12.34, text), "12.3 s");
    assert_string_equal(tr_format_duration(59.96, text), "1 min 00 s");
    assert_string_equal(tr_format_duration(3725, text), "1 h 02 min");
    assert_string_equal(tr_format_duration(90000, text), "1 d 01 h");
    assert_string_equal(tr_format_duration(INFINITY, text), "?");
    tr_format_bytes(1e300, text);
    tr_format_count(-INFINITY, text);
    tr_format_duration(-1e300, text);
    assert_true(memchr(text, '\0', 32) != NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ints),
        cmocka_unit_test(floats),
        cmocka_unit_test(floats_ignore_the_locale),
        cmocka_unit_test(numbers_of_any_length_are_no_harm),
        cmocka_unit_test(bools),
        cmocka_unit_test(byte_sizes),
        cmocka_unit_test(durations),
        cmocka_unit_test(shown_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
