/* The recorder of spans: what it keeps, in which step, from several threads, and that it is off. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "base/mem.h"
#include "base/thread.h"
#include "base/trace.h"

static void nothing_is_recorded_while_it_is_off(void **state) {
    const int64_t live = tr_mem_stats().live;
    (void)state;
    assert_true(tr_trace_begin() == 0);
    tr_trace_end(tr_trace_begin(), &(tr_span_t){.kind = TR_SPAN_OP});
    tr_trace_add(&(tr_span_t){.kind = TR_SPAN_OP});
    tr_spans_t spans = tr_trace_stop();
    assert_int_equal(spans.count, 0);
    assert_null(spans.data);
    OK(tr_trace_start(4));
    assert_int_equal(tr_trace_start(4), TR_ERR_INTERNAL);
    const double begun = tr_trace_begin();
    assert_true(begun > 0);
    spans = tr_trace_stop();
    assert_int_equal(spans.count, 0);
    tr_free(&spans.data);
    tr_trace_end(begun, &(tr_span_t){.kind = TR_SPAN_OP}); /* begun while it was on */
    assert_int_equal(tr_mem_stats().live, live);
}

static void spans_have_their_step_and_their_times(void **state) {
    const double before = tr_clock_sec();
    (void)state;
    OK(tr_trace_start(8));
    for (int step = 1; step <= 2; step++) {
        tr_trace_set_step(step);
        tr_trace_end(tr_trace_begin(), &(tr_span_t){.kind = TR_SPAN_READ, .number = 7, .lane = 3});
    }
    tr_trace_add(&(tr_span_t){.kind = TR_SPAN_OP, .step = 9, .begin_sec = 1, .end_sec = 2});
    tr_spans_t spans = tr_trace_stop();
    assert_int_equal(spans.count, 3);
    assert_int_equal(spans.dropped, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(spans.data[i].step, i + 1);
        assert_int_equal(spans.data[i].number, 7);
        assert_int_equal(spans.data[i].lane, 3);
        assert_true(before <= spans.data[i].begin_sec);
        assert_true(spans.data[i].begin_sec <= spans.data[i].end_sec);
        assert_true(spans.data[i].end_sec <= tr_clock_sec());
    }
    assert_int_equal(spans.data[2].step, 9);
    assert_true(spans.data[2].end_sec == 2);
    tr_free(&spans.data);
}

enum { THREADS = 4, EACH = 2000, ROOM = 5000 };

static void *record(void *self) {
    const int64_t lane = (int64_t)(intptr_t)self;
    for (int i = 0; i < EACH; i++) {
        const tr_span_t span = {.lane = (int)lane, .number = i, .bytes = lane * EACH + i};
        tr_trace_end(tr_trace_begin(), &span);
    }
    return NULL;
}

static void threads_record_at_the_same_time(void **state) {
    pthread_t threads[THREADS];
    int64_t next[THREADS] = {0};
    (void)state;
    OK(tr_trace_start(ROOM));
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(tr_thread_start("record", record, (void *)i, &threads[i]), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    tr_spans_t spans = tr_trace_stop();
    assert_int_equal(spans.count, ROOM);
    assert_int_equal(spans.dropped, THREADS * EACH - ROOM);
    for (size_t i = 0; i < spans.count; i++) { /* whole, and in the order of each thread */
        const tr_span_t *span = &spans.data[i];
        assert_int_equal(span->bytes, span->lane * EACH + span->number);
        assert_int_equal(span->number, next[span->lane]++);
    }
    tr_free(&spans.data);
}

/* What is recorded while the trace ends is in it as a whole or not at all. */
static void it_may_end_while_threads_record(void **state) {
    pthread_t threads[THREADS];
    (void)state;
    OK(tr_trace_start(THREADS * EACH));
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(tr_thread_start("record", record, (void *)i, &threads[i]), 0);
    tr_spans_t spans = tr_trace_stop();
    for (size_t i = 0; i < spans.count; i++)
        assert_int_equal(spans.data[i].bytes, spans.data[i].lane * EACH + spans.data[i].number);
    tr_free(&spans.data);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_recorded_while_it_is_off),
                                       cmocka_unit_test(spans_have_their_step_and_their_times),
                                       cmocka_unit_test(threads_record_at_the_same_time),
                                       cmocka_unit_test(it_may_end_while_threads_record)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
