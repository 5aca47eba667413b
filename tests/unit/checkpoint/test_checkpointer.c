/* The background writer: saves what was handed over, keeps the best, reports failures and goes on.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../support/names.h"
#include "checkpoint/checkpoint_int.h"

#define DIR_NAME "checkpoints"

static float weights[1 << 18];
static tr_named_tensor_t model = {"w", TR_F32, TR_SHAPE(1 << 18), weights};

static tr_checkpoint_content_t content(int64_t step) {
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) weights[i] = (float)step;
    return (tr_checkpoint_content_t){
        .step = step, .model = &model, .model_count = 1, .state_json = "{}"};
}

static void save(tr_checkpointer_t *c, int64_t step, bool best) {
    tr_checkpoint_content_t now = content(step);
    OK(tr_checkpointer_submit(c, &now));
    if (best) tr_checkpointer_best(c, step);
    OK(tr_checkpointer_wait(c));
}

static void check_first(const char *name, int64_t step) {
    tr_checkpoint_t *c = NULL;
    char path[4096];
    float first;
    OK(tr_path_join(DIR_NAME, name, path));
    OK(tr_checkpoint_open(path, &c));
    assert_int_equal(c->step, step);
    OK(tr_safetensors_read(tr_safetensors_at(c->model, 0), 0, sizeof first, &first));
    assert_true(first == (float)step);
    tr_checkpoint_close(&c);
}

static int fresh(void **state) {
    return tr_remove_tree(DIR_NAME) != TR_OK;
}

static void test_saves_and_keeps_the_best(void **state) {
    tr_checkpointer_t *c = NULL;
    OK(tr_checkpointer_create(&(tr_checkpointer_params_t){.dir = DIR_NAME, .keep = 2}, &c));
    OK(tr_checkpointer_wait(c)); /* idle: nothing to wait for */
    for (int step = 1; step <= 6; step++) save(c, step, step == 2);
    tr_checkpointer_stats_t stats = tr_checkpointer_stats(c);
    assert_int_equal(stats.saved, 6);
    assert_int_equal(stats.failed, 0);
    assert_int_equal(stats.last_step, 6);
    assert_true(stats.last_bytes > (int64_t)sizeof weights && stats.last_write_sec > 0);
    tr_steps_t steps = {0};
    OK(tr_checkpoint_list(DIR_NAME, &steps));
    assert_int_equal(steps.count, 3);
    assert_int_equal(steps.data[2], 2);
    tr_vec_free(&steps);
    check_first("best", 2);
    check_first("latest", 6);
    save(c, 7, true); /* the old best may go now */
    check_first("best", 7);
    tr_checkpointer_destroy(&c);
    assert_null(c);
    assert_int_equal(access(DIR_NAME "/step-00000002", F_OK), -1);
    /* Another run of the program goes on where this one was, and still keeps the best. */
    OK(tr_checkpointer_create(&(tr_checkpointer_params_t){.dir = DIR_NAME, .keep = 1}, &c));
    save(c, 8, false);
    save(c, 9, false);
    tr_checkpointer_destroy(&c);
    check_first("best", 7);
    assert_int_equal(access(DIR_NAME "/step-00000008", F_OK), -1);
}

static void test_one_at_a_time(void **state) {
    tr_checkpointer_t *c = NULL;
    tr_checkpoint_content_t now = content(1);
    OK(tr_checkpointer_create(&(tr_checkpointer_params_t){.dir = DIR_NAME, .keep = 0}, &c));
    assert_false(tr_checkpointer_busy(c));
    int refused = 0;
    for (int round = 0; round < 50 && !refused;
         round++) { /* the writer may be done before the second comes, but not always */
        OK(tr_checkpointer_wait(c));
        OK(tr_checkpointer_submit(c, &now));
        refused = tr_checkpointer_submit(c, &now) == TR_ERR_INTERNAL;
    }
    assert_true(refused);
    tr_checkpointer_destroy(&c); /* waits */
    check_first("latest", 1);
}

static void test_failure_and_recovery(void **state) {
    tr_checkpointer_t *c = NULL;
    OK(tr_checkpointer_create(&(tr_checkpointer_params_t){.dir = DIR_NAME, .keep = 2}, &c));
    save(c, 1, true);
    /* A file is where the folder was: nothing can be written. */
    assert_int_equal(rename(DIR_NAME, "aside"), 0);
    close(open(DIR_NAME, O_CREAT | O_WRONLY, 0600));
    tr_checkpoint_content_t now = content(2);
    OK(tr_checkpointer_submit(c, &now));
    tr_checkpointer_best(c, 2); /* of one that is not there: the best stays */
    assert_int_equal(tr_checkpointer_wait(c), TR_ERR_IO);
    assert_error_names("step 2");
    assert_int_equal(tr_checkpointer_stats(c).failed, 1);
    assert_int_equal(tr_checkpointer_stats(c).last_error.code, TR_ERR_IO);
    unlink(DIR_NAME);
    assert_int_equal(rename("aside", DIR_NAME), 0);
    save(c, 3, false);
    assert_int_equal(tr_checkpointer_stats(c).last_error.code, TR_OK);
    assert_int_equal(tr_checkpointer_stats(c).saved, 2);
    check_first("best", 1);
    save(c, 2, false); /* tried again */
    tr_checkpointer_destroy(&c);
    check_first("best", 2);
}

static void test_refuses_bad_places(void **state) {
    tr_checkpointer_t *c = NULL;
    assert_int_equal(
        tr_checkpointer_create(&(tr_checkpointer_params_t){.dir = "absent/checkpoints", .keep = 2}, &c),
        TR_ERR_IO);
    close(open(DIR_NAME, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(tr_checkpointer_create(&(tr_checkpointer_params_t){.dir = DIR_NAME, .keep = 2}, &c),
                     TR_ERR_IO);
    unlink(DIR_NAME);
    if (geteuid() != 0) { /* root may write anywhere */
        assert_int_equal(mkdir(DIR_NAME, 0500), 0);
        assert_int_equal(tr_checkpointer_create(&(tr_checkpointer_params_t){.dir = DIR_NAME, .keep = 2}, &c),
                         TR_ERR_PERMISSION);
        chmod(DIR_NAME, 0700);
    }
    assert_null(c);
}

static int teardown(void **state) {
    return tr_remove_tree(DIR_NAME) != TR_OK || tr_mem_stats().live != 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_saves_and_keeps_the_best, fresh),
        cmocka_unit_test_setup(test_one_at_a_time, fresh),
        cmocka_unit_test_setup(test_failure_and_recovery, fresh),
        cmocka_unit_test_setup(test_refuses_bad_places, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
