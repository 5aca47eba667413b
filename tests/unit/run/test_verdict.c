/* The verdict of a run: its text, and that the first one stays. */
#include "run/verdict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include "../../support/ok.h"

static const char path[] = "a.verdict";

static const char *content(void) {
    static char text[8192];
    FILE *file = fopen(path, "r");
    if (!file) return "(no file)";
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static int in_job(void **state) {
    setenv("SLURM_JOB_ID", "17", 1);
    setenv("SLURM_RESTART_COUNT", "2", 1);
    tr_verdict_open(path);
    return tr_verdict_clear();
}

static void texts(void **state) {
    tr_verdict_write(TR_OK, "", NULL);
    assert_string_equal(content(), "done\njob 17 restart 2\n");
    tr_verdict_clear();
    tr_verdict_write(TR_ERR_RETRY, "rank 1 (n2) is gone", "n2");
    assert_string_equal(content(),
                        "again\njob 17 restart 2\nnode n2\nreason rank 1 (n2) is gone\n");
    tr_verdict_clear();
    unsetenv("SLURM_RESTART_COUNT");
    tr_verdict_open(path);
    tr_verdict_write(TR_ERR_CONFIG, "two\nlines", "");
    assert_string_equal(content(), "no 78 two lines\njob 17 restart 0\n");
    tr_verdict_clear();
    unsetenv("SLURM_JOB_ID");
    tr_verdict_open(path);
    tr_verdict_write(TR_OK, "", "");
    assert_string_equal(content(), "done\njob - restart -\n");
}

static void the_first_one_stays(void **state) {
    tr_verdict_write(TR_ERR_RETRY, "first", NULL);
    tr_verdict_write(TR_OK, "", NULL);
    assert_non_null(strstr(content(), "again"));
    OK(tr_verdict_clear());
    assert_string_equal(content(), "(no file)");
    OK(tr_verdict_clear());
}

static void a_provisional_one_gives_way(void **state) {
    tr_verdict_provisional("first");
    assert_string_equal(content(), "again\nprovisional\njob 17 restart 2\nreason first\n");
    tr_verdict_provisional("second");
    assert_non_null(strstr(content(), "second"));
    tr_verdict_write(TR_ERR_STOP, "nan", NULL);
    tr_verdict_provisional("third");
    tr_verdict_withdraw();
    assert_string_equal(content(), "no 93 nan\njob 17 restart 2\n");
    OK(tr_verdict_clear());
    tr_verdict_provisional("fourth");
    tr_verdict_withdraw();
    assert_string_equal(content(), "(no file)");
    tr_verdict_withdraw();
}

static void long_texts_are_cut(void **state) {
    static char reason[10000];
    memset(reason, 'x', sizeof reason - 1);
    tr_verdict_write(TR_ERR_RETRY, reason, NULL);
    assert_in_range(strlen(content()), 1000, 4096);
}

static void without_a_file_nothing_is_written(void **state) {
    tr_verdict_open("");
    tr_verdict_write(TR_OK, "", NULL);
    assert_string_equal(content(), "(no file)");
    tr_verdict_open(NULL);
    OK(tr_verdict_clear());
}

/* For a full disk: tests/faults/disk.t fills one. */
static void room_is_kept_until_a_verdict(void **state) {
    struct stat room;
    tr_verdict_reserve();
    assert_int_equal(stat("a.verdict.room", &room), 0);
    assert_in_range(room.st_size, 1000, 4096);
    tr_verdict_write(TR_OK, "", NULL);
    assert_string_equal(content(), "done\njob 17 restart 2\n");
    assert_int_equal(access("a.verdict.room", F_OK), -1);
}

/* A failure leaves nothing behind and ends nothing. */
static void folders_that_are_not_there(void **state) {
    tr_verdict_open("nowhere/verdict");
    tr_verdict_write(TR_OK, "", NULL);
    assert_int_not_equal(access("nowhere", F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(texts, in_job),
        cmocka_unit_test_setup(the_first_one_stays, in_job),
        cmocka_unit_test_setup(a_provisional_one_gives_way, in_job),
        cmocka_unit_test_setup(long_texts_are_cut, in_job),
        cmocka_unit_test_setup(without_a_file_nothing_is_written, in_job),
        cmocka_unit_test_setup(room_is_kept_until_a_verdict, in_job),
        cmocka_unit_test_setup(folders_that_are_not_there, in_job),
    };
    return cmocka_run_group_tests_name("verdict", tests, NULL, NULL);
}
