/* A replayed step is the step run op by op, bit for bit: in one slot and several, with collectives
 * between the captured stretches, and with those inside a capture. */
//TEST np=1
//TEST np=2
#include "../../support/deferred.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "trainer/session.h"
#include "session/step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "../../support/ok.h"

enum { STEPS = 10 };

static tr_world_t *world;

static const char text[] =
    "device = strict\nthreads = 1\n"
    "[model]\nlayers = conv 4 3x3 bias=no, batchnorm, relu, flatten, linear 16, relu, dropout 0.5, "
    "linear 10\n"
    "[optimizer]\ntype = adamw\nema = 0.9\nclip_norm = 1\n"
    "[parallel]\nbucket_first = 1KiB\n"
    "[data]\nformat = synthetic\nsynthetic_samples = 96\nsynthetic_shape = 6x6x1\nclasses = 10\n"
    "batch_size = 24\n";

typedef enum { MPI_ENGINE, DEFERRED, REFUSES } engine_t;
typedef struct {
    double loss[STEPS], norm[STEPS];
    void *params;
    size_t param_bytes;
    int64_t kernels, launches, waits; /* of the last step */
} run_t;

static void take_row(void *self, const char *name, const char *value) {
    run_t *run = self;
    if (!strcmp(name, "kernels")) run->kernels = atoll(value) - run->kernels;
    if (!strcmp(name, "launches")) run->launches = atoll(value) - run->launches;
    if (!strcmp(name, "host waits")) run->waits = atoll(value) - run->waits;
}

static void read_params(tr_session_t *s, run_t *run) {
    void *pinned = NULL;
    const void *params = tr_graph_region(s->g, TR_ROLE_PARAM, &run->param_bytes);
    OK(s->device->ops->host_alloc(s->device, run->param_bytes, &pinned));
    OK(s->device->ops->copy(s->device, tr_graph_stream(s->g), pinned, params, run->param_bytes,
                            TR_COPY_TO_HOST));
    OK(tr_graph_sync(s->g));
    OK(tr_alloc(run->param_bytes, "test", &run->params));
    memcpy(run->params, pinned, run->param_bytes);
    s->device->ops->host_free(s->device, pinned);
}

static void train(tr_session_t *s, engine_t engine, run_t *run) {
    tr_loader_t *loader = NULL;
    tr_train_step_t *train_step = NULL;
    tr_collectives_t *c = NULL;
    if (engine != MPI_ENGINE)
        OK(deferred_open(world, s->device, engine == REFUSES, &c));
    else if (tr_world_info(world)->size > 1)
        OK(tr_world_collectives(world, s->device, &s->parallel, &c));
    OK(tr_session_start(s, c));
    OK(tr_session_loader(s, TR_SPLIT_TRAIN, false, 0, &loader));
    OK(tr_train_step_create(s, c, loader, &train_step));
    for (int64_t step = 0; step < STEPS; step++) {
        tr_step_outcome_t o;
        run->kernels = run->launches = run->waits = 0;
        OK(s->device->ops->report(s->device, take_row, run));
        OK(tr_train_step_run(train_step, step, 0.01 / (double)(1 + step), false, &o));
        OK(s->device->ops->report(s->device, take_row, run));
        run->loss[step] = o.loss;
        run->norm[step] = o.grad_norm;
    }
    read_params(s, run);
    tr_train_step_destroy(&train_step);
    tr_loader_destroy(&loader);
    tr_graph_drop_captures(s->g);
    if (engine != MPI_ENGINE)
        OK(c->ops->close(&c, 0));
    else if (c)
        tr_world_collectives_close(world, &c);
}

static run_t run(const char *capture, const char *micro_batch, const char *reproducible,
                 engine_t engine) {
    const char *const with[] = {capture, micro_batch, reproducible};
    const tr_world_info_t *info = tr_world_info(world);
    const tr_session_params_t params = {
        .purpose = TR_SESSION_TRAIN, .rank = info->rank, .size = info->size};
    const tr_config_table_t *const *tables;
    tr_config_t *config = NULL;
    tr_session_t *s = NULL;
    run_t run = {0};
    size_t count;
    OK(tr_all_tables(&tables, &count));
    OK(tr_config_create(tables, count, &config));
    OK(tr_config_load_text(config, "test.ini", text, sizeof text - 1));
    for (size_t i = 0; i < TR_COUNT(with); i++) OK(tr_config_set(config, with[i], "test"));
    OK(tr_config_check(config));
    OK(tr_session_create(config, world, &params, &s));
    train(s, engine, &run);
    tr_session_destroy(&s);
    tr_config_destroy(&config);
    return run;
}

static void expect_same(run_t *a, run_t *b) {
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->norm, b->norm, sizeof a->norm);
    assert_int_equal(a->param_bytes, b->param_bytes);
    assert_memory_equal(a->params, b->params, a->param_bytes);
    tr_free(&a->params);
    tr_free(&b->params);
}

static void compare(const char *micro_batch, const char *reproducible, engine_t engine) {
    run_t by_op = run("capture=no", micro_batch, reproducible, MPI_ENGINE),
          replayed = run("capture=yes", micro_batch, reproducible, engine);
    assert_true(by_op.kernels > 20 && by_op.launches == 0);
    assert_int_equal(replayed.kernels, 0);
    assert_true(replayed.launches > 0);
    expect_same(&by_op, &replayed);
}

static void replayed_is_op_by_op(void **state) {
    compare("data.micro_batch=12", "parallel.reproducible=no", MPI_ENGINE);
    compare("data.micro_batch=4", "parallel.reproducible=no", MPI_ENGINE);
    compare("data.micro_batch=4", "parallel.reproducible=yes", MPI_ENGINE);
}

static void expect_launches(const char *micro_batch, int64_t launches) {
    run_t whole = run("capture=yes", micro_batch, "parallel.reproducible=no", DEFERRED);
    assert_int_equal(whole.launches, launches);
    assert_int_equal(whole.waits, 1);
    tr_free(&whole.params);
}

/* One launch a slot and one for `update`, or one for both if there is one rank with one slot; one
 * wait. */
static void a_whole_step_is_captured(void **state) {
    const int size = tr_world_info(world)->size;
    compare("data.micro_batch=12", "parallel.reproducible=no", DEFERRED);
    expect_launches("data.micro_batch=12", 2 / size + 1);
    if (size == 1) expect_launches("data.micro_batch=24", 1);
}

/* An error inside a capture is none outside of it: `last` runs op by op, `update` is captured. */
static void a_refused_capture_runs_op_by_op(void **state) {
    if (tr_world_info(world)->size == 1) skip();
    run_t by_op = run("capture=no", "data.micro_batch=12", "parallel.reproducible=no", MPI_ENGINE),
          refused = run("capture=yes", "data.micro_batch=12", "parallel.reproducible=no", REFUSES);
    assert_true(refused.kernels > 20);
    assert_int_equal(refused.launches, 1);
    expect_same(&by_op, &refused);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replayed_is_op_by_op),
        cmocka_unit_test(a_whole_step_is_captured),
        cmocka_unit_test(a_refused_capture_runs_op_by_op),
    };
    tr_log_set_level(TR_LOG_WARN);
    if (tr_world_open(NULL, &world) != TR_OK) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tr_world_close(&world);
    return failed;
}
