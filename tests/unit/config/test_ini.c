/* The ini reader: what text means, what is refused, and that written values read back the same. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "../../support/names.h"
#include "config/ini.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* Every event as a line: "3 section.key=value" with newlines shown as |, or "3 !message". */
static tr_str_t seen;

static tr_status_t keep_key(void *self, const char *section, const char *key, const char *value,
                            int line) {
    tr_str_printf(&seen, "%d %s.%s=", line, section, key);
    for (; *value; value++) tr_str_append_bytes(&seen, *value == '\n' ? "|" : value, 1);
    tr_str_append(&seen, "\n");
    return TR_OK;
}

static tr_status_t keep_problem(void *self, int line, const char *message) {
    tr_str_printf(&seen, "%d !%s\n", line, message);
    return TR_OK;
}

static const tr_ini_events_t keep = {NULL, keep_key, keep_problem};

static const char *parse_bytes(const char *text, size_t bytes) {
    tr_str_free(&seen);
    tr_str_append(&seen, "");
    OK(tr_ini_parse(text, bytes, &keep));
    return seen.text;
}

static const char *parse(const char *text) {
    return parse_bytes(text, strlen(text));
}

static int tear_down(void **state) {
    tr_str_free(&seen);
    return tr_mem_stats().live != 0;
}

static void keys_and_sections(void **state) {
    assert_string_equal(parse(""), "");
    assert_string_equal(parse("a = 1"), "1 .a=1\n");
    assert_string_equal(parse("a=1\n\n[data]\nb =  two words \nc=\n[x.y]\nd.e = =\n"),
                        "1 .a=1\n4 data.b=two words\n5 data.c=\n7 x.y.d.e==\n");
    assert_string_equal(parse("data.batch_size = 64\n"), "1 .data.batch_size=64\n");
    assert_string_equal(parse("[ data ]  # here\nb=1"), "2 data.b=1\n");
}

static void bom_and_crlf(void **state) {
    assert_string_equal(parse("\xEF\xBB\xBF[a]\r\nb = c\r\n  d\r\n"), "2 a.b=c|d\n");
    assert_string_equal(parse("\xEF\xBB\xBF"), "");
}

static void comments(void **state) {
    assert_string_equal(parse("# a = 1\n  ; b = 2\na = 3 # x\nb = 4;5 ; y\nc = #6\n"),
                        "3 .a=3\n4 .b=4;5\n5 .c=\n");
    assert_string_equal(parse("a = say \"x # y\" now # z\n"), "1 .a=say \"x # y\" now\n");
    assert_string_equal(parse("a = 5\" disk # really\n"), "1 .a=5\" disk\n");
    assert_string_equal(parse("a = don't # do\n"), "1 .a=don't\n");
}

static void quotes(void **state) {
    assert_string_equal(parse("a = \" b # c \"\n"), "1 .a= b # c \n");
    assert_string_equal(parse("a = \"x\\n\\\"y\\\"\\\\z\\q\" # c\n"), "1 .a=x|\"y\"\\z\\q\n");
    assert_string_equal(parse("a = \"\"\n"), "1 .a=\n");
    assert_string_equal(parse("a = \"b\" and \"c\"\n"), "1 .a=\"b\" and \"c\"\n");
    assert_string_equal(parse("a = \"\nb = \"\\\"\n"), "1 .a=\"\n2 .b=\"\\\"\n");
}

static void continuation(void **state) {
    assert_string_equal(
        parse("[m]\nlayers = conv 32 5,\n   relu, # first\n\n   # none\n\tlinear 10\nb = 1"),
        "2 m.layers=conv 32 5,|relu,|linear 10\n7 m.b=1\n");
    assert_string_equal(parse("a =\n  b\n  c\n"), "1 .a=b|c\n");
    assert_string_equal(parse("a = 1\n  [b]\n  c = d\n"), "1 .a=1|[b]|c = d\n");
}

/* Whole files are often indented: only what is deeper than its key continues it. */
static void indented_files(void **state) {
    assert_string_equal(parse("[data]\n  a = 1\n  b = 2\n      more\n[x]\n\tc = 3\n\td = 4\n"),
                        "2 data.a=1\n3 data.b=2|more\n6 x.c=3\n7 x.d=4\n");
    assert_string_equal(parse("  a = 1\n b = 2\n"), "1 .a=1\n2 .b=2\n");
}

/* Each line of `text` has its names. */
static void expect_lines(const char *text, int count, const char *const *names) {
    for (int i = 0; i < count; i++, text += strcspn(text, "\n") + 1) {
        char line[512];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
        assert_names(line, names[i]);
    }
    assert_int_equal(*text, '\0');
}

static void problems(void **state) {
    expect_lines(parse("[data\na = 1"), 2, (const char *[]){"1 ! & [data]", "2 .a=1"});
    expect_lines(parse("[]\n[a] b\n["), 3,
                 (const char *[]){"1 ! & [data]", "2 ! & [data]", "3 ! & [data]"});
    expect_lines(parse("batch_size: 3\n = 4\na b = 5\n"), 3,
                 (const char *[]){"1 ! & key = value & 'batch_size: 3'",
                                  "2 ! & key = value & '= 4'", "3 ! & key = value & 'a b = 5'"});
}

static void junk_is_one_problem(void **state) {
    expect_lines(parse_bytes("a = 1\nb\0c = 2\n", 14), 1, (const char *[]){"2 ! & UTF-8 & 0x00"});
    expect_lines(parse("a = 1\n\x89HDF\r\n\x1a\n"), 1, (const char *[]){"3 ! & UTF-8 & 0x1a"});
    static char line[TR_INI_LINE_BYTES + 100];
    memset(line, 'a', sizeof line);
    memcpy(line + sizeof line - 7, "\nb = 2\n", 7);
    expect_lines(parse_bytes(line, sizeof line), 2,
                 (const char *[]){"1 ! & 262237 & 262144", "2 .b=2"});
}

static void input_needs_no_terminator(void **state) {
    char text[] = {'a', ' ', '=', ' ', '1', '2'};
    assert_string_equal(parse_bytes(text, 5), "1 .a=1\n");
    for (size_t bytes = 0; bytes <= sizeof text; bytes++) parse_bytes(text, bytes);
}

static tr_status_t refuse(void *self, const char *section, const char *key, const char *value,
                          int line) {
    return TR_FAIL(TR_ERR_IO, "no %s", key);
}

static void callback_failure_is_handed_up(void **state) {
    assert_int_equal(tr_ini_parse("a=1\nb=2", 7, &(tr_ini_events_t){NULL, refuse, keep_problem}),
                     TR_ERR_IO);
    assert_string_equal(tr_error_last()->message, "no a");
}

static void memory_runs_out_cleanly(void **state) {
    static const char text[] =
        "[s]\nkey = value value value value\n   more more more more more more\nb = 2\n";
    int failures = 0;
    for (int nth = 1; nth < 20; nth++) {
        tr_str_free(&seen);
        tr_mem_fail_at(nth);
        tr_status_t status = tr_ini_parse(text, sizeof text - 1, &keep);
        tr_mem_fail_at(0);
        failures += status == TR_ERR_MEMORY || seen.status == TR_ERR_MEMORY;
        assert_true(status == TR_OK || status == TR_ERR_MEMORY);
    }
    assert_true(failures >= 3);
}

static tr_status_t compare(void *self, const char *section, const char *key, const char *value,
                           int line) {
    assert_string_equal(key, "k");
    assert_string_equal(value, *(const char **)self);
    *(const char **)self = NULL;
    return TR_OK;
}

static tr_status_t no_problem(void *self, int line, const char *message) {
    fail_msg("line %d: %s", line, message);
    return TR_OK;
}

static void expect_round_trip(const char *value) {
    tr_str_t out = {0};
    tr_ini_append(&out, "k", value);
    assert_int_equal(out.status, TR_OK);
    const char *awaited = value;
    assert_int_equal(
        tr_ini_parse(out.text, out.length, &(tr_ini_events_t){&awaited, compare, no_problem}),
        TR_OK);
    assert_null(awaited);
    tr_str_free(&out);
}

static void values_round_trip(void **state) {
    static const char *const values[] = {"",         "1",        "a b",
                                         " a",       "a ",       "\"",
                                         "\"a\"",    "\"a",      "a # b",
                                         "a ;b",     "#",        "a\nb",
                                         "a\n\nb",   "a\n# b",   "\na",
                                         "a\n",      "a\n  b",   "[x]",
                                         "a\n[x]",   "a\nb = c", "\\",
                                         "a\\n # ",  "\t",       "a\tb",
                                         "a\rb",     "\r\n",     "\"a\" # \"b\"",
                                         "\"\\\"",   "=",        "conv 32 5,\nrelu,\nlinear 10",
                                         "\xC3\xA4", "'a' # b",  "\"a # b",
                                         "\"a\"\nb"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) expect_round_trip(values[i]);
    static char longest[TR_INI_VALUE_BYTES + 1];
    memset(longest, '"', TR_INI_VALUE_BYTES);
    expect_round_trip(longest);
}

/* All short texts over the characters that mean something. */
static void short_values_round_trip(void **state) {
    static const char alphabet[] = "a \n\"\\#[=\t";
    enum { LETTERS = sizeof alphabet - 1, LENGTH = 4 };
    for (int code = 0; code < LETTERS * LETTERS * LETTERS * LETTERS; code++) {
        char value[LENGTH + 1] = "";
        for (int i = 0, rest = code; i < LENGTH; i++, rest /= LETTERS)
            value[i] = alphabet[rest % LETTERS];
        expect_round_trip(value);
    }
}

static void layer_text_stays_readable(void **state) {
    tr_str_t out = {0};
    tr_ini_append(&out, "layers", "conv 32 5,\nrelu");
    assert_string_equal(out.text, "layers = conv 32 5,\n    relu\n");
    tr_str_free(&out);
}

#define INI_TEST(name) cmocka_unit_test_teardown(name, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        INI_TEST(keys_and_sections),
        INI_TEST(bom_and_crlf),
        INI_TEST(comments),
        INI_TEST(quotes),
        INI_TEST(continuation),
        INI_TEST(indented_files),
        INI_TEST(problems),
        INI_TEST(junk_is_one_problem),
        INI_TEST(input_needs_no_terminator),
        INI_TEST(callback_failure_is_handed_up),
        INI_TEST(memory_runs_out_cleanly),
        INI_TEST(values_round_trip),
        INI_TEST(short_values_round_trip),
        INI_TEST(layer_text_stays_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
