/* What a step on the strict device costs the host: waits, copies, launches; that a step of many
 * slots is fed in turn; and that its outcome is known one step later. */
#include "device/strict/strict_int.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "trainer/session.h"
#include "session/step.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "../../support/ok.h"

static const char text[] =
    "threads = 1\n"
    "[model]\nlayers = flatten, linear 16, relu, dropout 0.5, linear 10\n"
    "[data]\nformat = synthetic\nsynthetic_samples = 96\nsynthetic_shape = 6x6x1\n"
    "classes = 10\nbatch_size = 24\n";

typedef struct {
    tr_config_t *config;
    tr_session_t *s;
    tr_loader_t *loader;
    tr_train_step_t *train_step;
} trainer_t;

static trainer_t begin(const char *device, const char *micro_batch, const char *prefetch) {
    const char *const with[] = {device, micro_batch, prefetch};
    const tr_session_params_t params = {.purpose = TR_SESSION_TRAIN, .size = 1};
    const tr_config_table_t *const *tables;
    size_t count;
    trainer_t t = {0};
    OK(tr_all_tables(&tables, &count));
    OK(tr_config_create(tables, count, &t.config));
    OK(tr_config_load_text(t.config, "test.ini", text, sizeof text - 1));
    for (size_t i = 0; i < TR_COUNT(with); i++) OK(tr_config_set(t.config, with[i], "test"));
    OK(tr_config_check(t.config));
    OK(tr_session_create(t.config, NULL, &params, &t.s));
    OK(tr_session_start(t.s, NULL));
    OK(tr_session_loader(t.s, TR_SPLIT_TRAIN, false, 0, &t.loader));
    OK(tr_train_step_create(t.s, NULL, t.loader, &t.train_step));
    return t;
}

static void end(trainer_t *t) {
    tr_train_step_destroy(&t->train_step);
    tr_loader_destroy(&t->loader);
    tr_session_destroy(&t->s);
    tr_config_destroy(&t->config);
}

typedef struct {
    int64_t waits, copies, fills, kernels, launches;
} counts_t;

static void take_row(void *self, const char *name, const char *value) {
    counts_t *counts = self;
    if (!strcmp(name, "host waits")) counts->waits = atoll(value);
    if (!strcmp(name, "copies")) counts->copies = atoll(value);
    if (!strcmp(name, "fills")) counts->fills = atoll(value);
    if (!strcmp(name, "kernels")) counts->kernels = atoll(value);
    if (!strcmp(name, "launches")) counts->launches = atoll(value);
}

static counts_t counts_of(const trainer_t *t) {
    counts_t counts = {0};
    OK(t->s->device->ops->report(t->s->device, take_row, &counts));
    return counts;
}

/* A step as the loop runs it. */
static counts_t costs(trainer_t *t, int64_t step) {
    tr_step_outcome_t o;
    const counts_t before = counts_of(t);
    OK(tr_train_step_begin(t->train_step, step, 0.01, false, false, &o));
    assert_int_equal(o.step, step - 1);
    OK(tr_train_step_end(t->train_step, &o));
    assert_int_equal(o.step, -1);
    const counts_t after = counts_of(t);
    return (counts_t){after.waits - before.waits, after.copies - before.copies,
                      after.fills - before.fills, after.kernels - before.kernels,
                      after.launches - before.launches};
}

/* Steps 11 to 16, each: all programs are captured by then. */
static void expect(const char *micro_batch, const char *prefetch, int64_t waits, int64_t copies,
                   int64_t launches) {
    trainer_t t = begin("device=strict", micro_batch, prefetch);
    for (int64_t step = 0; step < 16; step++) {
        const counts_t c = costs(&t, step);
        if (step < 10) continue;
        assert_int_equal(c.waits, waits);
        assert_int_equal(c.copies, copies);
        assert_int_equal(c.fills, 0);
        assert_int_equal(c.kernels, 0);
        assert_int_equal(c.launches, launches);
    }
    end(&t);
}

/* A slot takes six copies: x, y, sample ids, weights, step block, stop wish. Sums and result come
 * back at the end. A launch for each slot, and one for `update`; one for both if there is one slot.
 */
static void one_wait_for_a_step(void **state) {
    expect("data.micro_batch=24", "data.prefetch=4", 1, 1 * 6 + 2, 1);
}

/* A slot waits for the copy of the one that had its set, unless the outcome of the step before says
 * that it is done; with one batch in the ring, for the copy of the one before. */
static void many_slots_wait_for_copies_alone(void **state) {
    expect("data.micro_batch=12", "data.prefetch=4", 1 + 1, 2 * 6 + 2, 2 + 1);
    expect("data.micro_batch=4", "data.prefetch=6", 1 + 5, 6 * 6 + 2, 6 + 1);
    expect("data.micro_batch=4", "data.prefetch=1", 1 + 6, 6 * 6 + 2, 6 + 1);
}

static void losses(const char *device, const char *prefetch, double *out) {
    trainer_t t = begin(device, "data.micro_batch=4", prefetch);
    for (int64_t step = 0; step < 8; step++) {
        tr_step_outcome_t o;
        OK(tr_train_step_run(t.train_step, step, 0.01, false, &o));
        out[step] = o.loss;
    }
    end(&t);
}

static void copied_inputs_train_as_bound_ones(void **state) {
    double bound[8], copied[8], narrow[8];
    losses("device=cpu", "data.prefetch=4", bound);
    losses("device=strict", "data.prefetch=4", copied);
    losses("device=strict", "data.prefetch=1", narrow);
    assert_memory_equal(bound, copied, sizeof bound);
    assert_memory_equal(bound, narrow, sizeof bound);
}

/* On cpu at once, elsewhere at the begin of the next step or when drained; each once. */
static void outcomes_come_in_turn(void **state) {
    trainer_t now = begin("device=cpu", "data.micro_batch=12", "data.prefetch=4"),
              later = begin("device=strict", "data.micro_batch=12", "data.prefetch=4");
    tr_step_outcome_t a, b;
    double last = 0;
    for (int64_t step = 0; step < 6; step++) {
        const int asks = step == 3 ? TR_ASK_STOP : step == 4 ? TR_ASK_SAVE : TR_ASK_NOTHING;
        OK(tr_train_step_begin(now.train_step, step, 0.01, asks, false, &a));
        assert_int_equal(a.step, -1);
        OK(tr_train_step_end(now.train_step, &a));
        assert_int_equal(a.step, step);
        assert_true(a.stop == (step == 3) && a.save == (step == 4));
        OK(tr_train_step_drain(now.train_step, &b));
        assert_int_equal(b.step, -1);
        OK(tr_train_step_begin(later.train_step, step, 0.01, asks, false, &b));
        assert_int_equal(b.step, step - 1);
        assert_true(step == 0 ||
                    (b.loss == last && b.stop == (step == 4) && b.save == (step == 5)));
        OK(tr_train_step_end(later.train_step, &b));
        last = a.loss;
    }
    OK(tr_train_step_drain(later.train_step, &b));
    assert_true(b.step == 5 && b.loss == last);
    OK(tr_train_step_drain(later.train_step, &b));
    assert_int_equal(b.step, -1);
    end(&now);
    end(&later);
}

static void *params_of(trainer_t *t, size_t *bytes) {
    void *pinned = NULL;
    const void *params = tr_graph_region(t->s->g, TR_ROLE_PARAM, bytes);
    OK(t->s->device->ops->host_alloc(t->s->device, *bytes, &pinned));
    OK(t->s->device->ops->copy(t->s->device, tr_graph_stream(t->s->g), pinned, params, *bytes,
                               TR_COPY_TO_HOST));
    OK(tr_graph_sync(t->s->g));
    return pinned;
}

/* Step 4 makes the weights infinite, so step 5 has no loss. When that is known the next step has
 * begun; the weights are those that step 5 found, and its inputs can be looked through. */
static void a_step_without_a_loss_changes_nothing(const char *micro_batch) {
    trainer_t t = begin("device=strict", micro_batch, "data.prefetch=4");
    tr_step_outcome_t o;
    size_t bytes;
    int op = -1;
    for (int64_t step = 0; step < 5; step++)
        OK(tr_train_step_run(t.train_step, step, step == 4 ? INFINITY : 0.01, false, &o));
    assert_true(o.finite);
    void *before = params_of(&t, &bytes);
    OK(tr_train_step_begin(t.train_step, 5, 0.01, false, false, &o));
    OK(tr_train_step_end(t.train_step, &o));
    OK(tr_train_step_begin(t.train_step, 6, 0.01, false, false, &o));
    assert_true(o.step == 5 && !o.finite);
    OK(tr_train_step_abandon(t.train_step));
    void *after = params_of(&t, &bytes);
    assert_memory_equal(before, after, bytes);
    OK(tr_train_step_find_nonfinite(t.train_step, 5, &op));
    assert_true(op >= 0);
    t.s->device->ops->host_free(t.s->device, before);
    t.s->device->ops->host_free(t.s->device, after);
    end(&t);
}

static void a_loss_that_is_not_finite_changes_nothing(void **state) {
    a_step_without_a_loss_changes_nothing("data.micro_batch=24");
    a_step_without_a_loss_changes_nothing("data.micro_batch=12");
    a_step_without_a_loss_changes_nothing("data.micro_batch=4");
}

/* A step with one slot has updated the weights when the outcome of the step before is known. If that
 * has no loss, this one, which has, changes nothing; with on_nan = skip it does. */
static bool next_step_updates(const char *on_nan) {
    trainer_t t = begin("device=strict", "data.micro_batch=24", on_nan);
    const tr_tensor_t bias = tr_graph_find(t.s->g, "linear1.bias");
    tr_step_outcome_t o;
    size_t bytes;
    float good[16], bad[16] = {NAN};
    assert_false(tr_is_none(bias));
    for (int64_t step = 0; step < 8; step++)
        OK(tr_train_step_run(t.train_step, step, 0.01, false, &o));
    void *before = params_of(&t, &bytes);
    OK(tr_tensor_read(t.s->g, bias, good));
    OK(tr_tensor_write(t.s->g, bias, bad));
    OK(tr_train_step_begin(t.train_step, 8, 0.01, false, false, &o));
    OK(tr_train_step_end(t.train_step, &o));
    OK(tr_tensor_write(t.s->g, bias, good));
    OK(tr_train_step_begin(t.train_step, 9, 0.01, false, false, &o));
    assert_true(o.step == 8 && !o.finite);
    void *after = params_of(&t, &bytes);
    const bool updates = memcmp(before, after, bytes) != 0;
    t.s->device->ops->host_free(t.s->device, before);
    t.s->device->ops->host_free(t.s->device, after);
    end(&t);
    return updates;
}

static void a_whole_step_after_one_without_a_loss(void **state) {
    assert_false(next_step_updates("train.on_nan=stop"));
    assert_true(next_step_updates("train.on_nan=skip"));
}

/* Between the halves of a step that may be saved, the weights are those of the step before. */
static void a_step_that_may_be_saved_waits(void **state) {
    trainer_t t = begin("device=strict", "data.micro_batch=24", "data.prefetch=4");
    tr_step_outcome_t o;
    size_t bytes;
    for (int64_t step = 0; step < 8; step++)
        OK(tr_train_step_run(t.train_step, step, 0.01, false, &o));
    void *before = params_of(&t, &bytes);
    OK(tr_train_step_begin(t.train_step, 8, 0.01, false, true, &o));
    void *between = params_of(&t, &bytes);
    assert_memory_equal(before, between, bytes);
    OK(tr_train_step_end(t.train_step, &o));
    void *after = params_of(&t, &bytes);
    assert_memory_not_equal(before, after, bytes);
    t.s->device->ops->host_free(t.s->device, before);
    t.s->device->ops->host_free(t.s->device, between);
    t.s->device->ops->host_free(t.s->device, after);
    end(&t);
}

/* -- the trace --------------------------------------------------------------------------------- */

static void write_line(void *file, const char *stream, const char *what, size_t amount) {
    fprintf(file, amount > 0 ? "%-8s %s %zu\n" : "%-8s %s\n", stream, what, amount);
}

/* All that the host does in steps 3 to 10, counted from 1, of two micro-batches each. */
static void write_trace(FILE *file) {
    trainer_t t = begin("device=strict", "data.micro_batch=12", "data.prefetch=4");
    tr_step_outcome_t o;
    for (int64_t step = 0; step < 10; step++) {
        if (step == 2) tr_strict_trace(t.s->device, write_line, file);
        if (step >= 2) fprintf(file, "step %d\n", (int)step + 1);
        OK(tr_train_step_begin(t.train_step, step, 0.01, false, false, &o));
        OK(tr_train_step_end(t.train_step, &o));
    }
    tr_strict_trace(t.s->device, NULL, NULL);
    end(&t);
}

/* A change that is meant: run this program with the path of the golden file as its argument. */
static void what_the_host_does_in_a_step(void **state) {
    char path[4096], *found = NULL, *golden = NULL;
    size_t found_bytes = 0, golden_bytes = 0;
    snprintf(path, sizeof path, "%s/tests/golden/steps.txt", getenv("TRAINER_ROOT"));
    FILE *file = open_memstream(&found, &found_bytes);
    write_trace(file);
    fclose(file);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_true(getdelim(&golden, &golden_bytes, '\0', file) > 0);
    fclose(file);
    if (strcmp(found, golden) != 0) fail_msg("found, instead of %s:\n%s", path, found);
    free(found);
    free(golden);
}

static int make_golden(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file) return 1;
    write_trace(file);
    return fclose(file) != 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_wait_for_a_step),
        cmocka_unit_test(many_slots_wait_for_copies_alone),
        cmocka_unit_test(copied_inputs_train_as_bound_ones),
        cmocka_unit_test(outcomes_come_in_turn),
        cmocka_unit_test(a_loss_that_is_not_finite_changes_nothing),
        cmocka_unit_test(a_whole_step_after_one_without_a_loss),
        cmocka_unit_test(a_step_that_may_be_saved_waits),
        cmocka_unit_test(what_the_host_does_in_a_step),
    };
    tr_log_set_level(TR_LOG_WARN);
    if (argc > 1) return make_golden(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
