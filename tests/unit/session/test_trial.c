/* A trial trains as a loop of steps does, passes every outcome in order, ends where it is told to, and
 * begins again with the first weights. */
//TEST np=1
//TEST np=2
#include "trainer/log.h"
#include "base/mem.h"
#include "trainer/session.h"
#include "session/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "../../support/ok.h"

enum { STEPS = 12, STOP = 4 };

static tr_world_t *world;

static const char text[] =
    "threads = 1\n"
    "[model]\nlayers = flatten, linear 16, relu, linear 4\n"
    "[optimizer]\ntype = sgd\nlr = 0.3\n"
    "[schedule]\ntype = linear\nwarmup = 3\n"
    "[train]\nsteps = 12\n"
    "[data]\nformat = synthetic\nsynthetic_samples = 96\nsynthetic_shape = 4x4x1\nclasses = 4\n"
    "batch_size = 16\n";

static tr_config_t *config_of(const char *device) {
    const tr_config_table_t *const *tables;
    tr_config_t *config = NULL;
    size_t count;
    OK(tr_all_tables(&tables, &count));
    OK(tr_config_create(tables, count, &config));
    OK(tr_config_load_text(config, "test.ini", text, sizeof text - 1));
    OK(tr_config_set(config, device, "test"));
    OK(tr_config_check(config));
    return config;
}

/* The losses of the run, step by step. */
static void train(const char *device, double loss[STEPS]) {
    const tr_world_info_t *info = tr_world_info(world);
    const tr_session_params_t params = {
        .purpose = TR_SESSION_TRAIN, .rank = info->rank, .size = info->size};
    tr_config_t *config = config_of(device);
    tr_session_t *s = NULL;
    tr_collectives_t *c = NULL;
    tr_loader_t *loader = NULL;
    tr_train_step_t *train_step = NULL;
    tr_schedule_t *schedule = NULL;
    tr_step_outcome_t o;
    OK(tr_session_create(config, world, &params, &s));
    OK(tr_schedule_create(&s->schedule, s->optim.lr, STEPS, s->steps_per_epoch, &schedule));
    if (info->size > 1) OK(tr_world_collectives(world, s->device, &s->parallel, &c));
    OK(tr_session_start(s, c));
    OK(tr_session_loader(s, TR_SPLIT_TRAIN, false, 0, &loader));
    OK(tr_train_step_create(s, c, loader, &train_step));
    for (int64_t i = 0; i < STEPS; i++) {
        OK(tr_train_step_run(train_step, i, tr_schedule_lr(schedule, i), false, &o));
        loss[i] = o.loss;
    }
    tr_graph_drop_captures(s->g);
    if (c) tr_world_collectives_close(world, &c);
    tr_train_step_destroy(&train_step);
    tr_loader_destroy(&loader);
    tr_schedule_destroy(&schedule);
    tr_session_destroy(&s);
    tr_config_destroy(&config);
}

typedef struct {
    double loss[STEPS];
    int64_t count, stop; /* stop: the step after which it ends */
} losses_t;

static bool note(void *self, const tr_step_outcome_t *o, double sec) {
    losses_t *l = self;
    assert_int_equal(o->step, l->count);
    assert_true(sec > 0);
    l->loss[l->count++] = o->loss;
    return o->step != l->stop;
}

static void trains(const char *device) {
    const tr_trial_params_t params = {.scheduled = true};
    losses_t whole = {.stop = -1}, again = whole, part = {.stop = STOP}, constant = whole;
    double expected[STEPS];
    tr_trial_t t;
    train(device, expected);
    OK(tr_trial_open(config_of(device), world, &params, &t));
    OK(tr_trial_start(&t));
    const int64_t more = t.s->device->immediate ? 0 : 1;
    OK(tr_trial_run(&t, STEPS, t.s->optim.lr, note, &whole));
    assert_int_equal(whole.count, STEPS);
    assert_memory_equal(whole.loss, expected, sizeof expected);
    OK(tr_trial_reset(&t));
    OK(tr_trial_run(&t, STEPS, t.s->optim.lr, note, &part));
    assert_int_equal(part.count, STOP + 1 + more);
    assert_memory_equal(part.loss, expected, (STOP + 1) * sizeof *expected);
    OK(tr_trial_reset(&t));
    OK(tr_trial_run(&t, STEPS, t.s->optim.lr, note, &again));
    assert_memory_equal(again.loss, expected, sizeof expected);
    tr_trial_close(&t, TR_OK);

    OK(tr_trial_open(config_of(device), world, &(tr_trial_params_t){0}, &t));
    OK(tr_trial_start(&t));
    OK(tr_trial_run(&t, 1, t.s->optim.lr, note, &constant));
    OK(tr_trial_run(&t, STEPS - 1, t.s->optim.lr, note, &constant));
    assert_int_equal(constant.count, STEPS);
    assert_true(constant.loss[0] == expected[0] && constant.loss[1] != expected[1]);
    tr_trial_close(&t, TR_OK);
}

static void trains_on_the_cpu(void **state) {
    trains("device=cpu");
}

static void trains_on_an_asynchronous_device(void **state) {
    trains("device=strict");
}

int main(void) {
    if (tr_world_open(NULL, &world) != TR_OK) return 1;
    tr_log_set_level(TR_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trains_on_the_cpu),
        cmocka_unit_test(trains_on_an_asynchronous_device),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tr_world_close(&world);
    return failed;
}
