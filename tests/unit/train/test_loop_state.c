/* The state of a training run: every transition of saving, and which validation is the best. */
#include "../../../src/train/loop_state.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static tr_loop_state_t at(tr_save_state_t save, int64_t step, int64_t saved_step) {
    tr_loop_state_t s = tr_loop_state_new();
    s.save = save;
    s.step = step;
    s.saved_step = saved_step;
    return s;
}

static void expect(tr_save_state_t from, tr_save_event_t event, tr_save_state_t to,
                   tr_save_action_t action, int64_t saved_step) {
    tr_loop_state_t s = at(from, 7, 5);
    assert_int_equal(tr_loop_state_save(&s, event), action);
    assert_int_equal(s.save, to);
    assert_int_equal(s.saved_step, saved_step);
    assert_int_equal(s.step, 7);
}

static void transitions(void **state) {
    expect(TR_SAVE_IDLE, TR_SAVE_DUE, TR_SAVE_WRITING, TR_SAVE_TAKE, 7);
    expect(TR_SAVE_IDLE, TR_SAVE_LINK, TR_SAVE_WRITING, TR_SAVE_NOTHING, 5);
    expect(TR_SAVE_WRITING, TR_SAVE_LINK, TR_SAVE_WRITING, TR_SAVE_NOTHING, 5);
    expect(TR_SAVE_PENDING, TR_SAVE_LINK, TR_SAVE_PENDING, TR_SAVE_NOTHING, 5);
    expect(TR_SAVE_READY, TR_SAVE_LINK, TR_SAVE_PENDING, TR_SAVE_NOTHING, 5);
    expect(TR_SAVE_IDLE, TR_SAVE_WRITTEN, TR_SAVE_IDLE, TR_SAVE_NOTHING, 5);
    expect(TR_SAVE_IDLE, TR_SAVE_FAILED, TR_SAVE_IDLE, TR_SAVE_NOTHING, 5);
    expect(TR_SAVE_WRITING, TR_SAVE_DUE, TR_SAVE_PENDING, TR_SAVE_NOTHING, 5);
    expect(TR_SAVE_WRITING, TR_SAVE_WRITTEN, TR_SAVE_IDLE, TR_SAVE_NOTHING, 5);
    expect(TR_SAVE_WRITING, TR_SAVE_FAILED, TR_SAVE_IDLE, TR_SAVE_FORGET, -1);
    expect(TR_SAVE_PENDING, TR_SAVE_DUE, TR_SAVE_PENDING, TR_SAVE_NOTHING, 5);
    expect(TR_SAVE_PENDING, TR_SAVE_WRITTEN, TR_SAVE_READY, TR_SAVE_NOTHING, 5);
    expect(TR_SAVE_PENDING, TR_SAVE_FAILED, TR_SAVE_READY, TR_SAVE_FORGET, -1);
    expect(TR_SAVE_READY, TR_SAVE_DUE, TR_SAVE_WRITING, TR_SAVE_TAKE, 7);
    expect(TR_SAVE_READY, TR_SAVE_WRITTEN, TR_SAVE_READY, TR_SAVE_NOTHING, 5);
    expect(TR_SAVE_READY, TR_SAVE_FAILED, TR_SAVE_READY, TR_SAVE_NOTHING, 5);
}

/* A checkpoint that was due while the writer was busy is of the step that finds it idle. */
static void pending_save_is_taken_later(void **state) {
    tr_loop_state_t s = at(TR_SAVE_IDLE, 10, -1);
    assert_int_equal(tr_loop_state_save(&s, TR_SAVE_DUE), TR_SAVE_TAKE);
    assert_true(tr_loop_state_is_writing(&s) && !tr_loop_state_save_pending(&s));
    assert_int_equal(tr_loop_state_save(&s, TR_SAVE_DUE), TR_SAVE_NOTHING); /* of the same step */
    assert_false(tr_loop_state_save_pending(&s));
    s.step = 20;
    assert_int_equal(tr_loop_state_save(&s, TR_SAVE_DUE), TR_SAVE_NOTHING);
    assert_true(tr_loop_state_is_writing(&s) && tr_loop_state_save_pending(&s));
    s.step = 21;
    (void)tr_loop_state_save(&s, TR_SAVE_WRITTEN);
    assert_true(!tr_loop_state_is_writing(&s) && tr_loop_state_save_pending(&s));
    assert_int_equal(tr_loop_state_save(&s, TR_SAVE_DUE), TR_SAVE_TAKE);
    assert_int_equal(s.saved_step, 21);
    assert_false(tr_loop_state_save_pending(&s));
}

static void validations(void **state) {
    tr_loop_state_t s = tr_loop_state_new();
    tr_loop_state_step_done(&s, true);
    assert_true(s.step == 1 && s.valid_pending);
    assert_true(tr_loop_state_validated(&s, 2, 0.5, false));
    assert_true(s.best_step == 1 && s.best_loss == 2 && s.stale == 0 && !s.valid_pending);
    tr_loop_state_step_done(&s, false);
    assert_false(s.valid_pending);
    tr_loop_state_step_done(&s, true);
    assert_false(tr_loop_state_validated(&s, 2, 0.9, false)); /* not smaller */
    assert_false(tr_loop_state_validated(&s, NAN, NAN, false));
    assert_true(s.best_step == 1 && s.best_score == 0.5 && s.stale == 2);
}

static void best_by_accuracy(void **state) {
    tr_loop_state_t s = tr_loop_state_new();
    assert_false(tr_loop_state_validated(&s, 1, NAN, true));
    assert_true(tr_loop_state_validated(&s, 3, 0, true));
    assert_false(tr_loop_state_validated(&s, 3, 0, true)); /* neither better nor a smaller loss */
    assert_true(tr_loop_state_validated(&s, 4, 0.25, true));
    assert_true(s.best_loss == 4 && s.stale == 0);
    assert_false(tr_loop_state_validated(&s, 1, 0, true));
    assert_false(tr_loop_state_validated(&s, NAN, 0.25, true));
    /* A broken tie does not delay an early stop. */
    tr_loop_state_step_done(&s, true);
    assert_true(tr_loop_state_validated(&s, 3.5, 0.25, true));
    assert_true(s.best_loss == 3.5 && s.best_step == 1 && s.stale == 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transitions),
        cmocka_unit_test(pending_save_is_taken_later),
        cmocka_unit_test(validations),
        cmocka_unit_test(best_by_accuracy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
