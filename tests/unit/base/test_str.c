/* The growing buffer, UTF-8, nearest names, glob patterns, hash. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/comma_locale.h"
#include "../../support/ok.h"

#include "base/str.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void buffer_grows_and_is_taken(void **state) {
    int64_t live = tr_mem_stats().live;
    tr_str_t s = {0};
    for (int i = 0; i < 1000; i++) tr_str_printf(&s, "%03d,", i);
    tr_str_append(&s, "");
    tr_str_append_bytes(&s, "end...", 3);
    assert_int_equal(s.length, 4003);
    assert_int_equal(strlen(s.text), 4003);
    assert_int_equal(strncmp(s.text + 4 * 512, "512,", 4), 0);
    char *text = NULL;
    OK(tr_str_take(&s, &text));
    assert_string_equal(text + 4000, "end");
    assert_null(s.text);
    tr_free(&text);
    OK(tr_str_take(&s, &text));
    assert_string_equal(text, "");
    tr_free(&text);
    assert_int_equal(tr_mem_stats().live, live);
}

static void failed_growth_is_remembered(void **state) {
    tr_str_t s = {0};
    tr_mem_fail_at(1);
    tr_str_append(&s, "lost");
    tr_str_append(&s, "lost too");
    tr_str_printf(&s, "%d", 1);
    char *text = NULL;
    assert_int_equal(tr_str_take(&s, &text), TR_ERR_MEMORY);
    assert_null(text);
    assert_int_equal(s.status, TR_OK);
}

static const char *nearest(const char *name) {
    static const char *const names[] = {"batch_size", "micro_batch", "lr",
                                        "epochs",     "steps",       "seed"};
    const char *found = tr_nearest(name, names, 6);
    return found ? found : "-";
}

static void nearest_name_is_found(void **state) {
    assert_string_equal(nearest("bach_size"), "batch_size");
    assert_string_equal(nearest("batchsize"), "batch_size");
    assert_string_equal(nearest("Batch_Size"), "batch_size");
    assert_string_equal(nearest("batch_szie"), "batch_size");
    assert_string_equal(nearest("batch"), "batch_size");
    assert_string_equal(nearest("epoch"), "epochs");
    assert_string_equal(nearest("rl"), "lr");
    assert_string_equal(nearest("sede"), "seed");
}

static void far_names_are_not_guessed(void **state) {
    assert_string_equal(nearest("temperature"), "-");
    assert_string_equal(nearest("x"), "-");
    assert_string_equal(nearest(""), "-");
    char longest[300];
    memset(longest, 'b', sizeof longest);
    longest[299] = '\0';
    assert_string_equal(nearest(longest), "-");
    assert_null(tr_nearest("lr", NULL, 0));
}

static void globs_match(void **state) {
    assert_true(tr_glob_match("*.h5", "train_0.h5"));
    assert_true(tr_glob_match("a*b*c", "aXbXbXc"));
    assert_true(tr_glob_match("??", "ab"));
    assert_true(tr_glob_match("*", ""));
    assert_true(tr_glob_match("**x**", "x"));
    assert_true(tr_glob_match("", ""));
    assert_false(tr_glob_match("*.h5", "train.h5x"));
    assert_false(tr_glob_match("?", ""));
    assert_false(tr_glob_match("", "a"));
    assert_false(tr_glob_match("a*b", "aXc"));
    char text[2001];
    memset(text, 'a', 2000);
    text[2000] = '\0';
    assert_false(tr_glob_match("*a*a*a*a*a*a*a*a*b", text)); /* not exponential */
}

static void utf8_comes_back(void **state) {
    for (uint32_t code = 1; code < 0x110000; code++) {
        char text[5] = "";
        uint32_t found = 0;
        if (code >= 0xD800 && code < 0xE000) continue;
        const int bytes = tr_utf8_encode(code, text);
        if (tr_utf8_decode(text, &found) != bytes || found != code || (size_t)bytes != strlen(text))
            fail_msg("U+%04X", (unsigned)code);
    }
}

static void utf8_is_told_from_bytes(void **state) {
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {
        {"", 0},
        {"Kuh", 3},
        {"K\xc3\xbch", 4},
        {"K\xfch", 1},           /* Latin-1 */
        {"a\xe7\x8c\xab", 4},    /* U+732B */
        {"\xf0\x9f\x90\x88", 4}, /* U+1F408 */
        {"\xf4\x8f\xbf\xbf", 4}, /* U+10FFFF, the last */
        {"\xf4\x90\x80\x80", 0}, /* beyond */
        {"a\xc0\x80", 1},        /* longer than need be */
        {"\xe0\x9f\xbf", 0},     /* the same */
        {"\xed\xa0\x80", 0},     /* a surrogate */
        {"ab\xc3", 2},           /* cut off */
        {"\xe7\x8c", 0},         /* the same */
        {"\x80", 0},             /* no first byte */
        {"\xff\xfe", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(tr_utf8_bytes(cases[i].text, SIZE_MAX), cases[i].bytes);
    const size_t whole[] = {0, 0, 0, 3, 4, 4, 6, 6}; /* of U+732B, a, U+00FC */
    for (size_t most = 0; most < sizeof whole / sizeof *whole; most++)
        assert_int_equal(tr_utf8_bytes("\xe7\x8c\xab\x61\xc3\xbc", most), whole[most]);
    uint32_t code = 0;
    assert_int_equal(tr_utf8_decode("\xe7\x8c\xab!", &code), 3);
    assert_int_equal(code, 0x732b);
}

/* Published FNV-1a test values: they keep checkpoints readable. */
static void hash_is_fnv1a(void **state) {
    assert_true(tr_hash_name("") == 0xcbf29ce484222325u);
    assert_true(tr_hash_name("a") == 0xaf63dc4c8601ec8cu);
    assert_true(tr_hash_name("foobar") == 0x85944171f73967e8u);
}

static void file_names(void **state) {
    assert_string_equal(tr_file_name("runs/a.ini"), "a.ini");
    assert_string_equal(tr_file_name("a.ini"), "a.ini");
    assert_string_equal(tr_file_name("/runs/"), "");
}

static void numbers_have_a_point_in_any_locale(void **state) {
    char text[32], *end;
    tr_str_t s = {0};
    if (!set_comma_locale()) skip();
    snprintf(text, sizeof text, "%g", 1.5);
    assert_string_equal(text, "1,5");
    tr_str_printf(&s, "%.9g", 1.5);
    assert_string_equal(s.text, "1.5");
    tr_str_free(&s);
    tr_snprintf(text, sizeof text, "%g", 1.5);
    assert_string_equal(text, "1.5");
    assert_string_equal(tr_format_bytes(1536, text), "1.5 KiB");
    (void)TR_FAIL(TR_ERR_CONFIG, "found %g", 1.5);
    assert_string_equal(tr_error_last()->message, "found 1.5");
    assert_true(tr_strtod("1.5x", &end) == 1.5);
    assert_string_equal(end, "x");
    snprintf(text, sizeof text, "%g", 1.5);
    assert_string_equal(text, "1,5"); /* the program's own is as it was */
    setlocale(LC_ALL, "C");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_names),
        cmocka_unit_test(buffer_grows_and_is_taken),
        cmocka_unit_test(failed_growth_is_remembered),
        cmocka_unit_test(nearest_name_is_found),
        cmocka_unit_test(far_names_are_not_guessed),
        cmocka_unit_test(globs_match),
        cmocka_unit_test(utf8_is_told_from_bytes),
        cmocka_unit_test(utf8_comes_back),
        cmocka_unit_test(hash_is_fnv1a),
        cmocka_unit_test(numbers_have_a_point_in_any_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
