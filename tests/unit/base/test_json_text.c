/* Short numbers in JSON text. */
#include "base/json_text.h"
#include "base/str.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static void check(const char *text, const char *expected) {
    char buffer[256];
    snprintf(buffer, sizeof buffer, "%s", text);
    tr_json_shorten(buffer);
    assert_string_equal(buffer, expected);
}

static void test_fewest_digits(void **state) {
    check("{\"lr\": 0.10000000000000001, \"n\": 12}", "{\"lr\": 0.1, \"n\": 12}");
    check("[1.0,-0.0,2.5,3.3333333333333335]", "[1.0,-0.0,2.5,3.3333333333333335]");
    check("[true,false,null,100000000000000000000]", "[true,false,null,100000000000000000000]");
    check("[1.0000000000000001e-5,9.9999999999999995e-7]", "[1e-05,1e-06]");
    check("{\"a \\\" 0.10000000000000001\": 0.29999999999999999}",
          "{\"a \\\" 0.10000000000000001\": 0.3}");
}

static void test_reads_back(void **state) {
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        char text[64];
        double value;
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        memcpy(&value, &bits, sizeof value);
        if (!(value - value == 0)) continue;
        snprintf(text, sizeof text, "%.17g", value);
        if (!strpbrk(text, ".e")) continue;
        tr_json_shorten(text);
        assert_true(tr_strtod(text, NULL) == value);
    }
}

static void test_rounding(void **state) {
    assert_true(tr_round_digits(0.1234567891, 6) == 0.123457);
    assert_true(tr_round_digits(123456789, 6) == 123457000);
    assert_true(tr_round_digits(0, 6) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fewest_digits),
        cmocka_unit_test(test_reads_back),
        cmocka_unit_test(test_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
