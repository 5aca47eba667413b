/* The timeline of a rank: valid JSON, times on the clock of rank 0, names, and sums of its spans. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "profile/trace_file.h"

#include <math.h>
#include <string.h>

static tr_span_t spans_data[] = {{.kind = TR_SPAN_STEP, .step = 3, .begin_sec = 10, .end_sec = 20},
                                 {.kind = TR_SPAN_READ,
                                  .step = 3,
                                  .lane = 2,
                                  .number = 7,
                                  .bytes = 99,
                                  .begin_sec = 15,
                                  .end_sec = 15.5},
                                 {.kind = TR_SPAN_WAIT,
                                  .step = 3,
                                  .name = "a\"b\\",
                                  .detail = "c\n",
                                  .begin_sec = 16,
                                  .end_sec = 18},
                                 {.kind = TR_SPAN_WAIT, .begin_sec = 21, .end_sec = 25}};
static const tr_spans_t spans = {spans_data, 4, 5};

/* The clock of the rank is 1 s behind before the trace, and 1.001 s after it. */
static const tr_trace_file_t file = {
    .rank = 1, .host = "node \"x\"", .clock = {{10, 1, 2e-6}, {20, 1.001, 3e-6}, 11}};

static const json_t *event(const json_t *trace, const char *category) {
    size_t i;
    json_t *found;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, found) {
        const char *cat = json_string_value(json_object_get(found, "cat"));
        if (cat && strcmp(cat, category) == 0) return found;
    }
    fail_msg("there is no %s", category);
    return NULL;
}

static double number(const json_t *object, const char *key) {
    assert_true(json_is_number(json_object_get(object, key)));
    return json_number_value(json_object_get(object, key));
}

static void times_drift_evenly_between_the_measured_offsets(void **state) {
    json_error_t error;
    (void)state;
    OK(tr_trace_file_write(&file, &spans, "trace.json"));
    json_t *trace = json_load_file("trace.json", 0, &error);
    if (!trace) fail_msg("line %d: %s", error.line, error.text);
    const json_t *step = event(trace, "step"), *read = event(trace, "read"),
                 *other = json_object_get(trace, "otherData");
    assert_true(fabs(number(step, "ts")) < 1e-3);
    assert_true(fabs(number(step, "dur") - 10.001e6) < 1e-2);
    assert_true(fabs(number(read, "ts") - 5.0005e6) < 1e-2);
    assert_true(fabs(number(read, "dur") - 0.50005e6) < 1e-2);
    assert_true(number(read, "tid") == number(step, "tid") + 8); /* the third loader */
    assert_true(number(json_object_get(read, "args"), "samples") == 7);
    assert_true(number(json_object_get(read, "args"), "bytes") == 99);
    assert_string_equal(
        json_string_value(json_object_get(event(trace, "wait for buckets"), "name")), "a\"b\\ c\n");
    assert_true(fabs(number(other, "clock_error_us") - 3) < 1e-9);
    assert_true(number(other, "spans_dropped") == 5);
    json_decref(trace);
}

static void a_folder_that_is_not_there(void **state) {
    (void)state;
    assert_int_equal(tr_trace_file_write(&file, &spans, "none/trace.json"), TR_ERR_NOINPUT);
}

static void spans_between_steps_do_not_count(void **state) {
    tr_rank_profile_t r = {0};
    tr_spans_t none = {spans_data + 1, 3, 0};
    (void)state;
    assert_true(tr_rank_profile_take(&spans, &r));
    assert_true(fabs(r.step_sec - 10) < 1e-12 && fabs(r.wait_sec - 2) < 1e-12 &&
                fabs(r.read_sec - 0.5) < 1e-12 && r.read_bytes == 99 && r.dropped == 5);
    assert_false(tr_rank_profile_take(&none, &r));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_drift_evenly_between_the_measured_offsets),
        cmocka_unit_test(a_folder_that_is_not_there),
        cmocka_unit_test(spans_between_steps_do_not_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
