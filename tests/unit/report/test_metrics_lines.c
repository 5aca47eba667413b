/* Lines of metrics.jsonl as rows of numbers: the values that jansson reads, whatever a line looks like, and
 * bounded numbers of lines. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "base/mem.h"
#include "report/record/metrics_lines.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const tr_key_t keys[] = {{"step", TR_VALUE_NUMBER},
                                {"loss", TR_VALUE_NUMBER},
                                {"valid_loss", TR_VALUE_NUMBER},
                                {"best", TR_VALUE_FLAG},
                                {"host", TR_VALUE_TEXT}};
enum { KEYS = sizeof keys / sizeof *keys };
static tr_rows_t training, validation;

static void ask(void) {
    for (size_t i = 0; i < KEYS; i++) {
        tr_rows_ask(&training, keys[i].name, keys[i].kind);
        tr_rows_ask(&validation, keys[i].name, keys[i].kind);
    }
}

static void drop(void) {
    tr_rows_free(&training);
    tr_rows_free(&validation);
}

static void read_lines(tr_lines_t lines, size_t most) {
    const tr_metrics_lines_t how = {.lines = lines, .most = most};
    drop();
    ask();
    OK(tr_metrics_lines_read("metrics.jsonl", &how, &training, &validation));
}

static void write_text(const char *text) {
    FILE *file = fopen("metrics.jsonl", "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* The row of a line is that of jansson: of training, of a validation, or none. */
static void expect_as_jansson(const char *line) {
    json_t *object = json_loads(line, 0, NULL);
    const bool is_other = !json_is_object(object) || json_object_get(object, "alert"),
               is_validation = json_object_get(object, "valid_loss");
    write_text(line);
    read_lines(TR_LINES_ALL, 0);
    if (training.count != (size_t)(!is_other && !is_validation) ||
        validation.count != (size_t)(!is_other && is_validation))
        fail_msg("%zu of training, %zu validations in %s", training.count, validation.count, line);
    const tr_rows_t *rows = is_validation ? &validation : &training;
    for (int i = 0; i < KEYS && rows->count > 0; i++) {
        const json_t *value = json_object_get(object, keys[i].name);
        const double found = tr_rows_at(rows, 0, i);
        const char *text = tr_rows_text(rows, found);
        if (keys[i].kind == TR_VALUE_TEXT && json_is_string(value))
            assert_string_equal(text, json_string_value(value));
        const double expected =
            keys[i].kind == TR_VALUE_TEXT   ? (json_is_string(value) ? found : NAN)
            : keys[i].kind == TR_VALUE_FLAG ? (json_is_boolean(value) ? json_is_true(value) : NAN)
            : json_is_number(value)         ? json_number_value(value)
                                            : NAN;
        if (isnan(expected) != isnan(found) || (!isnan(expected) && expected != found))
            fail_msg("%s is %.17g, not %.17g, in %s", keys[i].name, found, expected, line);
    }
    json_decref(object);
}

static void odd_lines_have_the_values_of_jansson(void **state) {
    static const char *const lines[] = {
        "{\"step\":10,\"epoch\":2.5,\"loss\":1.25,\"host\":\"n1\"}\n",
        "{\"step\":10,\"epoch\":2.5,\"loss\":1.25}", /* a line that was just being written */
        "{\"step\":10,\"epoch\":2.5,\"loss\":1.2",
        "{\"step\":10,\"epoch\":2.5,\"loss\":1.25,\"other\":tru}\n",
        "{\"step\":10,\"epoch\":2.5,\"loss\":1.25}}\n",
        "{\"step\":10,\"epoch\":2.5,\"loss\":1.25},\n",
        "{\"step\":10,\"epoch\":2.5,\"loss\":null,\"accuracy\":null,\"best\":true}\n",
        "{\"step\":10,\"epoch\":2.5,\"valid_loss\":null,\"best\":false}\n",
        "{\"step\":10,\"epoch\":2.5,\"valid_loss\":1,\"best\":1,\"host\":7}\n",
        "{\"step\":10,\"alert\":\"loss > 2x\",\"begins\":true,\"value\":2.5}\n",
        "{\"alert\":null,\"step\":10}\n",
        "{ \"step\" : 10, \"loss\" : 3 }\r\n",
        "{\"valid_loss\":0.5,\"step\":10,\"loss\":1}\n",
        "{\"step\":10,\"nested\":{\"valid_loss\":1,\"loss\":2},\"list\":[1,2],\"loss\":3}\n",
        "{\"step\":10,\"epoch\":1,\"loss\":1,\"text\":\"\\u00e9\\\"\",\"host\":\"\\n\"}\n",
        "{\"step\":10,\"epoch\":1,\"loss\":1,\"host\":\"\xc3\xa9\"}\n",
        "{\"step\":10,\"epoch\":1,\"loss\":1,\"host\":\"\xff\"}\n",
        "{\"step\":10,\"epoch\":1,\"loss\":1,\"host\":\"\t\"}\n",
        "{\"step\":10,\"epoch\":1,\"loss\":1,\"loss\":2,\"loss\":true}\n",
        "{\"step\":10,\"epoch\":1,\"loss\":1,\"los\":2,\"losses\":3}\n",
        "{}\n",
        "[]\n",
        "7\n",
        "\n",
        "not json\n",
    };
    (void)state;
    for (size_t i = 0; i < TR_COUNT(lines); i++) expect_as_jansson(lines[i]);
    drop();
}

static void numbers_have_the_values_of_jansson(void **state) {
    static const char *const numbers[] = {"0",
                                          "-0",
                                          "0.0",
                                          "-0.0",
                                          "1",
                                          "-1",
                                          "01",
                                          "-",
                                          "+1",
                                          ".5",
                                          "1.",
                                          "1.e3",
                                          "1e",
                                          "1e+",
                                          "1E5",
                                          "1e-5",
                                          "6.0e+22",
                                          "1e22",
                                          "1e23",
                                          "3.3e-22",
                                          "1e-23",
                                          "0.1",
                                          "0.30000000000000004",
                                          "1.2791043281555177",
                                          "9007199254740992.0",
                                          "9007199254740993.0",
                                          "9007199254740993",
                                          "999999999999999999",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "-9223372036854775808",
                                          "123456789012345678901234567890.5",
                                          "0.00000000000000000000000000000123456789012345678",
                                          "2.2250738585072011e-308",
                                          "5e-324",
                                          "1e-400",
                                          "1e308",
                                          "1.7976931348623157e308",
                                          "1e309",
                                          "-1e400",
                                          "1e0000000001",
                                          "4.35",
                                          "0.5e-1",
                                          "1795727426.039",
                                          "NaN",
                                          "Infinity",
                                          "0x10",
                                          "1 ",
                                          "1_0",
                                          "00",
                                          "0e0",
                                          "17179869184",
                                          "2.5e249",
                                          "2.5e250"};
    char line[256];
    uint64_t bits = 1;
    (void)state;
    for (size_t i = 0; i < TR_COUNT(numbers); i++) {
        snprintf(line, sizeof line, "{\"step\":1,\"epoch\":%s,\"loss\":%s}\n", numbers[i],
                 numbers[i]);
        expect_as_jansson(line);
    }
    for (int i = 0; i < 200; i++) {
        double value;
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        memcpy(&value, &bits, sizeof value);
        if (i % 3 > 0) value = (double)(int64_t)(bits >> 20) / pow(10, (double)(bits % 25));
        if (!isfinite(value)) continue;
        snprintf(line, sizeof line, "{\"step\":%d,\"epoch\":0,\"loss\":%.*g}\n", i,
                 1 + (int)(bits >> 40) % 17, value);
        expect_as_jansson(line);
    }
    drop();
}

/* A run of 20,000 lines with 200 validations, the best of which is that of step 14,000. */
static void write_run(void) {
    FILE *file = fopen("metrics.jsonl", "w");
    assert_non_null(file);
    for (int i = 1; i <= 20000; i++) {
        fprintf(file, "{\"step\":%d,\"epoch\":%.3f,\"loss\":%.17g,\"host\":\"n%d\"}\n", i,
                i / 100.0, 1.0 / i, i % 3);
        if (i % 100 == 0)
            fprintf(file, "{\"step\":%d,\"epoch\":1,\"valid_loss\":2.5,\"best\":%s}\n", i,
                    i <= 14000 ? "true" : "false");
        if (i % 100 == 0) fprintf(file, "{\"step\":%d,\"alert\":\"loss\"}\n", i);
    }
    fclose(file);
}

static double number(const tr_rows_t *rows, size_t i, const char *key) {
    assert_in_range(i, 0, rows->count - 1);
    return tr_rows_number(rows, i, key);
}

static void long_runs_take_bounded_memory(void **state) {
    const int64_t before = tr_mem_stats().live_bytes;
    (void)state;
    write_run();
    read_lines(TR_LINES_ALL, 0);
    assert_int_equal(training.count, 20000);
    assert_int_equal(validation.count, 200);
    assert_true(number(&training, 17776, "loss") == 1.0 / 17777);
    assert_string_equal(tr_rows_text(&training, number(&training, 17776, "host")), "n2");
    /* eight bytes for each of five numbers, and room for a quarter */
    assert_in_range(tr_mem_stats().live_bytes - before, 1, 5 * 8 * 20300 / 4 * 5 + 20000);
    read_lines(TR_LINES_SPREAD, 100);
    assert_in_range(training.count, 100, 199);
    assert_int_equal(validation.count, 200);
    for (size_t i = 0; i < training.count; i++)
        assert_true(number(&training, i, "step") == 1 + (double)i * (double)training.every);
    size_t best = validation.count;
    while (best-- > 0 && number(&validation, best, "best") != 1) {
    }
    assert_true(number(&validation, best, "step") == 14000);
    assert_in_range(tr_mem_stats().live_bytes - before, 1, 5 * 8 * 600);
    read_lines(TR_LINES_NEWEST, 50);
    assert_int_equal(training.count, 50);
    for (size_t i = 0; i < 50; i++) assert_true(number(&training, i, "step") == 19951 + (double)i);
    assert_int_equal(validation.count, 61);
    assert_true(number(&validation, 0, "step") == 14000 &&
                number(&validation, 60, "step") == 20000);
    drop();
    assert_int_equal(tr_mem_stats().live_bytes, before);
    unlink("metrics.jsonl");
    read_lines(TR_LINES_ALL, 0);
    assert_int_equal(training.count + validation.count, 0);
    drop();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(odd_lines_have_the_values_of_jansson),
                                       cmocka_unit_test(numbers_have_the_values_of_jansson),
                                       cmocka_unit_test(long_runs_take_bounded_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
