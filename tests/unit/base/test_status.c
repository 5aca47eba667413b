/* The error record: first message kept, frames added, nothing stale, nothing overrun. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "../../support/names.h"
#include "trainer/status.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static tr_status_t fails(int number) {
    return TR_FAIL(TR_ERR_DATA, "expected 1, found %d", number);
}

static tr_status_t passes_on(int number) {
    TR_TRY(fails(number));
    return TR_OK;
}

static tr_status_t cleans_up(int number, int *cleaned) {
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(passes_on(number), done);
done:
    *cleaned = 1;
    return status;
}

static void records_message_and_frames(void **state) {
    int cleaned = 0;
    errno = EEXIST;
    assert_int_equal(cleans_up(7, &cleaned), TR_ERR_DATA);
    assert_int_equal(errno, EEXIST);
    assert_int_equal(cleaned, 1);
    const tr_error_t *error = tr_error_last();
    assert_int_equal(error->code, TR_ERR_DATA);
    assert_string_equal(error->message, "expected 1, found 7");
    const char *first = strstr(error->trace, "fails ("),
               *second = strstr(error->trace, "passes_on ("),
               *third = strstr(error->trace, "cleans_up (");
    assert_non_null(first);
    assert_true(first < second && second < third);
}

static void clear_leaves_nothing(void **state) {
    fails(1);
    tr_error_clear();
    assert_int_equal(tr_error_last()->code, TR_OK);
    assert_string_equal(tr_error_last()->message, "");
    assert_string_equal(tr_error_last()->trace, "");
}

/* A code returned without a record must not be explained by an older message. */
static void stale_message_is_dropped(void **state) {
    fails(1);
    tr_error_frame(TR_ERR_IO, "f.c", 3, "g");
    assert_int_equal(tr_error_last()->code, TR_ERR_IO);
    assert_error_names("g (f.c:3) & 'io'");
    assert_string_equal(tr_error_last()->trace, "g (f.c:3)");
}

static void long_messages_are_cut_visibly(void **state) {
    static char text[3 * TR_ERROR_MESSAGE_BYTES];
    memset(text, 'x', sizeof text - 1);
    (void)TR_FAIL(TR_ERR_IO, "%s", text);
    const char *message = tr_error_last()->message;
    assert_int_equal(strlen(message), TR_ERROR_MESSAGE_BYTES - 1);
    assert_string_equal(message + strlen(message) - 3, "...");
}

static void message_may_quote_the_last_one(void **state) {
    fails(5);
    (void)TR_FAIL(TR_ERR_IO, "after: %s", tr_error_last()->message);
    assert_string_equal(tr_error_last()->message, "after: expected 1, found 5");
}

static void deep_traces_keep_whole_inner_frames(void **state) {
    fails(1);
    for (int i = 0; i < 1000; i++) tr_error_frame(TR_ERR_DATA, "some_file.c", i, "some_function");
    const char *trace = tr_error_last()->trace;
    assert_int_equal(strncmp(trace, "fails (", 7), 0);
    assert_true(strlen(trace) < TR_ERROR_TRACE_BYTES);
    assert_int_equal(trace[strlen(trace) - 1], ')');
}

static void *fail_elsewhere(void *out) {
    fails(9);
    *(tr_error_t *)out = *tr_error_last();
    return NULL;
}

static void records_are_per_thread_and_portable(void **state) {
    tr_error_clear();
    static tr_error_t handed;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &handed), 0);
    pthread_join(thread, NULL);
    assert_int_equal(tr_error_last()->code, TR_OK);
    assert_int_equal(tr_error_set(&handed), TR_ERR_DATA);
    assert_string_equal(tr_error_last()->message, "expected 1, found 9");
}

static void codes_have_names(void **state) {
    assert_string_equal(tr_status_name(TR_ERR_CONFIG), "config");
    assert_string_equal(tr_status_name((tr_status_t)1), "unknown");
    assert_int_equal(tr_status_of_errno(ENOENT), TR_ERR_NOINPUT);
    assert_int_equal(tr_status_of_errno(EACCES), TR_ERR_PERMISSION);
    assert_int_equal(tr_status_of_errno(ENOSPC), TR_ERR_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_message_and_frames),
        cmocka_unit_test(clear_leaves_nothing),
        cmocka_unit_test(stale_message_is_dropped),
        cmocka_unit_test(long_messages_are_cut_visibly),
        cmocka_unit_test(message_may_quote_the_last_one),
        cmocka_unit_test(deep_traces_keep_whole_inner_frames),
        cmocka_unit_test(records_are_per_thread_and_portable),
        cmocka_unit_test(codes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
