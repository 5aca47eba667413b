/* Tables of rows of structs: text and its widths, JSON, CSV, numbers of a plot. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    int batch;
    double sec, low, high;
    size_t bytes;
    bool fits;
    char note[32];
} row_t;

static const tr_table_column_t columns[] = {
    TR_COLUMN(row_t, "name", "name", STRING, name, .is_left = true),
    TR_COLUMN(row_t, "batch_size", "batch", INT, batch, .width = 6),
    TR_COLUMN(row_t, "step_ms", "ms", REAL, sec, .format = "%.1f", .scale = 1e3, .key_scale = 1e3),
    TR_COLUMN(row_t, "band.low", "low", REAL, low, .format = "%.2f", .above = "band", .drop = 1),
    TR_COLUMN(row_t, "band.high", "high", REAL, high, .format = "%.2f", .above = "band", .drop = 2),
    TR_COLUMN(row_t, "bytes", "memory", SIZE, bytes, .people = tr_format_bytes,
              .zero_is_missing = true),
    TR_COLUMN(row_t, "fits", "fits", BOOL, fits, .no = "NO"),
    TR_COLUMN(row_t, "note", "", CHARS, note, .missing = "", .is_left = true, .is_optional = true),
};
static const row_t rows[] = {
    {"\xC3\xA9t\xC3\xA9", 8, 0.0125, 1, 2.5, 2048, true, "best"},
    {"b", 123456, NAN, 0.5, NAN, 0, false, ""},
};

static void text_is_aligned_by_code_points(void **state) {
    const tr_table_t t = TR_TABLE(columns, row_t);
    tr_str_t out = {0};
    tr_table_text(&t, rows, 2, 0, &out);
    assert_string_equal(out.text,
                        "                          band\n"
                        "name   batch    ms   low  high   memory  fits\n"
                        "\xC3\xA9t\xC3\xA9        8  12.5  1.00  2.50  2.0 KiB   yes  best\n"
                        "b     123456     -  0.50     -        -    NO\n");
    tr_str_free(&out);
}

static void a_list_is_indented_and_has_no_headings(void **state) {
    const tr_table_t t = TR_TABLE(columns, row_t, .indent = 2, .has_no_heads = true);
    tr_str_t out = {0};
    tr_table_text(&t, &rows[1], 1, 0, &out);
    assert_string_equal(out.text, "  b     123456   -  0.50     -       -    NO\n");
    tr_str_free(&out);
}

static void narrow_terminals_drop_columns(void **state) {
    const tr_table_t t = TR_TABLE(columns, row_t);
    tr_str_t out = {0};
    tr_table_text(&t, rows, 1, 48, &out);
    assert_non_null(strstr(out.text, "low"));
    assert_null(strstr(out.text, "high"));
    tr_str_free(&out);
    tr_table_text(&t, rows, 1, 10, &out);
    assert_null(strstr(out.text, "low"));
    assert_null(strstr(out.text, "band"));
    assert_non_null(strstr(out.text, "memory"));
    tr_str_free(&out);
}

static void lines_come_one_at_a_time(void **state) {
    const tr_table_t t = TR_TABLE(columns, row_t);
    tr_str_t out = {0};
    tr_table_line(&t, &rows[1], &out);
    assert_string_equal(out.text, "b     123456   -  0.50     -       -    NO\n");
    tr_str_free(&out);
}

static void json_has_objects_and_nulls(void **state) {
    const tr_table_t t = TR_TABLE(columns, row_t);
    json_t *list = tr_table_json(&t, rows, 2),
           *right =
               json_loads("[{\"name\": \"\xC3\xA9t\xC3\xA9\", \"batch_size\": 8, \"step_ms\": 12.5,"
                          " \"band\": {\"low\": 1.0, \"high\": 2.5}, \"bytes\": 2048,"
                          " \"fits\": true, \"note\": \"best\"},"
                          "{\"name\": \"b\", \"batch_size\": 123456, \"step_ms\": null,"
                          " \"band\": {\"low\": 0.5, \"high\": null}, \"bytes\": null,"
                          " \"fits\": false}]",
                          0, NULL);
    assert_non_null(right);
    assert_true(json_equal(list, right));
    json_decref(list);
    json_decref(right);
}

static void csv_quotes_and_leaves_empty(void **state) {
    const tr_table_t t = TR_TABLE(columns, row_t);
    row_t row = rows[1];
    tr_str_t out = {0};
    row.name = "a,\"b\"";
    row.sec = 1.0 / 3;
    tr_table_csv(&t, &row, 1, true, &out);
    assert_string_equal(out.text, "name,batch_size,step_ms,band.low,band.high,bytes,fits,note\n"
                                  "\"a,\"\"b\"\"\",123456,333.333,0.5,,,0,\n");
    tr_str_free(&out);
}

static void plots_take_numbers(void **state) {
    const tr_table_t t = TR_TABLE(columns, row_t);
    assert_true(tr_table_number(&t, &rows[0], "step_ms") == 12.5);
    assert_true(isnan(tr_table_number(&t, &rows[1], "bytes")));
    assert_true(isnan(tr_table_number(&t, &rows[0], "no such key")));
}

static void text_wraps_at_blanks(void **state) {
    tr_str_t out = {0};
    tr_text_wrap("one \xC3\xA9t\xC3\xA9 three", 7, &out);
    assert_string_equal(out.text, "one \xC3\xA9t\xC3\xA9\nthree\n");
    tr_str_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_aligned_by_code_points),
        cmocka_unit_test(a_list_is_indented_and_has_no_headings),
        cmocka_unit_test(narrow_terminals_drop_columns),
        cmocka_unit_test(lines_come_one_at_a_time),
        cmocka_unit_test(json_has_objects_and_nulls),
        cmocka_unit_test(csv_quotes_and_leaves_empty),
        cmocka_unit_test(plots_take_numbers),
        cmocka_unit_test(text_wraps_at_blanks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
