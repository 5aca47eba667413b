/* What a step on the strict device costs the host: waits, copies, kernels; and that a step of many
 * slots is fed in turn. */
#include "trainer/log.h"
#include "trainer/mem.h"
#include "trainer/train.h"
#include "train/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define OK(expr)                                                                                   \
    do {                                                                                           \
        if ((expr) != TR_OK) fail_msg("%s: %s", #expr, tr_error_last()->message);                  \
    } while (0)

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
    const tr_session_params_t params = {.training = true, .size = 1};
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
    int64_t waits, copies;
} counts_t;

static void take_row(void *self, const char *name, const char *value) {
    counts_t *counts = self;
    if (!strcmp(name, "host waits")) counts->waits = atoll(value);
    if (!strcmp(name, "copies")) counts->copies = atoll(value);
}

static counts_t counts_of(const trainer_t *t) {
    counts_t counts = {-1, -1};
    OK(t->s->device->ops->report(t->s->device, take_row, &counts));
    return counts;
}

/* Waits and copies of steps 3 to 10, each. */
static void expect(const char *micro_batch, const char *prefetch, int64_t waits, int64_t copies) {
    trainer_t t = begin("device=strict", micro_batch, prefetch);
    for (int64_t step = 0; step < 10; step++) {
        tr_step_outcome_t o;
        const counts_t before = counts_of(&t);
        OK(tr_train_step_run(t.train_step, step, 0.01, false, &o));
        const counts_t after = counts_of(&t);
        if (step < 2) continue;
        assert_int_equal(after.waits - before.waits, waits);
        assert_int_equal(after.copies - before.copies, copies);
    }
    end(&t);
}

/* A slot takes six copies: x, y, sample ids, weights, step block, stop wish. Sums and result come
 * back at the end. */
static void one_wait_for_a_step(void **state) {
    expect("data.micro_batch=24", "data.prefetch=4", 1, 1 * 6 + 2);
    expect("data.micro_batch=12", "data.prefetch=4", 1, 2 * 6 + 2);
}

/* Of six slots the third and later ones wait for the copy of the one that had their set. */
static void many_slots_wait_for_copies_alone(void **state) {
    expect("data.micro_batch=4", "data.prefetch=6", 1 + 4, 6 * 6 + 2);
    expect("data.micro_batch=4", "data.prefetch=1", 1 + 5, 6 * 6 + 2);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_wait_for_a_step),
        cmocka_unit_test(many_slots_wait_for_copies_alone),
        cmocka_unit_test(copied_inputs_train_as_bound_ones),
    };
    tr_log_set_level(TR_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
