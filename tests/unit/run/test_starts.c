/* sessions.jsonl: what is counted, and lines that are damaged. */
#include "run/starts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include "../../support/ok.h"

static void put(const char *event, double write_sec) {
    json_t *line = json_pack("{s:s, s:f}", "event", event, "checkpoint_write_sec", write_sec);
    OK(tr_starts_append("run", line));
}

static void sessions(void **state) {
    tr_starts_t found;
    assert_int_equal(mkdir("run", 0777), 0);
    OK(tr_starts_read("run", &found));
    assert_int_equal(found.count, 0);
    put("start", 0);
    put("end", 1.5);
    put("start", 0);
    OK(tr_starts_read("run", &found));
    assert_int_equal(found.count, 2);
    assert_true(found.slowest_write_sec == 1.5);

    FILE *file = fopen("run/sessions.jsonl", "a"); /* killed while it wrote */
    assert_non_null(file);
    fputs("{\"event\":\"sta", file);
    fclose(file);
    put("start", 0);
    OK(tr_starts_read("run", &found));
    assert_int_equal(found.count, 3);
}

/* Neither a pipe nor a file without end keeps anyone waiting. */
static void no_lines(void **state) {
    tr_starts_t found;
    assert_int_equal(mkdir("odd", 0777), 0);
    assert_int_equal(mkfifo("odd/sessions.jsonl", 0666), 0);
    assert_int_equal(tr_starts_read("odd", &found), TR_ERR_DATA);
    assert_non_null(strstr(tr_error_last()->message, "odd/sessions.jsonl"));
    assert_int_equal(unlink("odd/sessions.jsonl"), 0);
    assert_int_equal(close(creat("odd/sessions.jsonl", 0666)), 0);
    assert_int_equal(truncate("odd/sessions.jsonl", (off_t)1 << 40), 0);
    assert_int_equal(tr_starts_read("odd", &found), TR_ERR_DATA);
    assert_non_null(strstr(tr_error_last()->message, "odd/sessions.jsonl"));
}

static void no_folder(void **state) {
    assert_int_not_equal(tr_starts_append("nowhere", json_object()), TR_OK);
    assert_non_null(strstr(tr_error_last()->message, "nowhere/sessions.jsonl"));
    assert_int_equal(tr_starts_append("nowhere", NULL), TR_ERR_INTERNAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions),
        cmocka_unit_test(no_lines),
        cmocka_unit_test(no_folder),
    };
    return cmocka_run_group_tests_name("sessions", tests, NULL, NULL);
}
