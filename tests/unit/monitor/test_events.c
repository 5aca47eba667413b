/* Event files of TensorBoard, and the text format of Prometheus. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "monitor/events.h"
#include "monitor/prometheus.h"
#include "base/mem.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

/* From tensorboard's data/server/masked_crc.rs. */
static void the_crc_is_that_of_tensorboard(void **state) {
    (void)state;
    assert_int_equal(tr_events_crc("\x1a\x11"
                                   "CRC test, one two",
                                   19),
                     0x5794d08a);
}

static uint64_t number_at(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | at[i];
    return value;
}

/* Reads the only file of `folder`; returns its length. */
static size_t read_only_file(const char *folder, unsigned char *out, size_t most) {
    char pattern[256];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/events.out.tfevents.??????????.*.0.trainer", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    FILE *file = fopen(found.gl_pathv[0], "rb");
    globfree(&found);
    assert_non_null(file);
    const size_t bytes = fread(out, 1, most, file);
    fclose(file);
    return bytes;
}

static void records_are_framed(void **state) {
    static const char tag[] = "train/loss";
    unsigned char bytes[4096];
    tr_events_t *events = NULL;
    size_t at = 0, records = 0;
    (void)state;
    OK(tr_events_create("frames", &events));
    OK(tr_events_start(events, 0, 1.5));
    OK(tr_events_scalar(events, tag, 300, 2.5, 0.25));
    tr_events_close(&events);
    const size_t count = read_only_file("frames", bytes, sizeof bytes);
    for (; at < count; records++) {
        const size_t length = number_at(bytes + at, 8);
        assert_true(at + 16 + length <= count);
        assert_int_equal(number_at(bytes + at + 8, 4), tr_events_crc(bytes + at, 8));
        assert_int_equal(number_at(bytes + at + 12 + length, 4),
                         tr_events_crc(bytes + at + 12, length));
        if (records == 2) { /* wall_time 2.5, step 300, summary: value: tag, simple_value 0.25 */
            const unsigned char *e = bytes + at + 12;
            double time;
            float value;
            memcpy(&time, e + 1, sizeof time);
            memcpy(&value, e + length - 4, sizeof value);
            assert_int_equal(e[0], 1 << 3 | 1);
            assert_true(time == 2.5 && value == 0.25f);
            assert_memory_equal(e + 9, "\x10\xac\x02", 3);
            assert_memory_equal(e + 12, "\x2a\x13\x0a\x11\x0a\x0a", 6);
            assert_memory_equal(e + 18, tag, strlen(tag));
        }
        at += 16 + length;
    }
    assert_int_equal(at, count);
    assert_int_equal(records, 3);
}

static void prometheus_has_base_units(void **state) {
    tr_prometheus_t p = tr_prometheus_new("a\"b\\c", "17", "n1");
    tr_str_t text = {0};
    json_t *line = json_loads("{\"step\": 20, \"loss\": 0.5, \"step_ms\": 12.5, \"tflops\": 2, "
                              "\"unix_time\": 1795627284.125, \"mfu\": null}",
                              0, NULL);
    (void)state;
    tr_prometheus_take(&p, line);
    json_decref(line);
    tr_prometheus_compose(&p, &text);
    const char *const wanted[] = {
        "\ntrainer_loss{run=\"a\\\"b\\\\c\",job=\"17\",host=\"n1\"} 0.5\n",
        "# TYPE trainer_steps_total counter\ntrainer_steps_total{",
        "\"n1\"} 0.0125\n",
        "\"n1\"} 2000000000000\n",
        "\"n1\"} 1795627284.125\n"};
    for (size_t i = 0; i < TR_COUNT(wanted); i++) assert_non_null(strstr(text.text, wanted[i]));
    assert_null(strstr(text.text, "trainer_mfu_ratio"));
    assert_int_equal(text.text[text.length - 1], '\n');
    tr_str_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_crc_is_that_of_tensorboard),
                                       cmocka_unit_test(records_are_framed),
                                       cmocka_unit_test(prometheus_has_base_units)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
