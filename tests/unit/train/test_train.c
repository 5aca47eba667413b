/* Whole runs in one process: a step allocates nothing, and a run leaves nothing behind. */
//TEST timeout=120
//TEST np=2 timeout=120
#include "comm/comm.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "device/isa.h"
#include "session/eval.h"
#include "weights/state.h"
#include "trainer/session.h"
#include "trainer/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "../../support/names.h"
#include "../../support/ok.h"

static tr_world_t *world;
static bool with_watchdog;

static const char text[] =
    "threads = 1\n"
    "[model]\nlayers = conv 8 3x3 pad=same bias=no, batchnorm, relu, maxpool 2, globalpool, "
    "dropout 0.2, "
    "linear 10\n"
    "[data]\nformat = synthetic\nsynthetic_samples = 100\nsynthetic_shape = 12x12x1\nclasses = 10\n"
    "batch_size = 24\nmicro_batch = 4\nrotate = 10\n"
    "[optimizer]\nclip_norm = 1\nema = 0.9\n"
    "[log]\nevery = 1\n";

static tr_config_t *config_of(const char *const *with) {
    const tr_config_table_t *const *tables;
    tr_config_t *config = NULL;
    size_t count;
    OK(tr_all_tables(&tables, &count));
    OK(tr_config_create(tables, count, &config));
    OK(tr_config_load_text(config, "test.ini", text, sizeof text - 1));
    for (; *with; with++) OK(tr_config_set(config, *with, "test"));
    OK(tr_config_check(config));
    return config;
}

/* Allocations of a run; `with` are further settings, NULL behind the last. */
static int64_t allocations(const char *const *with) {
    const tr_train_params_t params = {.config_path = "test.ini", .version = "test"};
    const tr_mem_stats_t before = tr_mem_stats();
    tr_config_t *config = config_of(with);
    OK(tr_train(config, world, &params));
    tr_config_destroy(&config);
    const tr_mem_stats_t after = tr_mem_stats();
    if (!with_watchdog) { /* the first run starts one, which stays as long as the world */
        with_watchdog = true;
        return 0;
    }
    assert_int_equal(after.live, before.live);
    assert_int_equal(after.live_bytes, before.live_bytes);
    return after.calls - before.calls;
}

/* 100 samples in batches of 24: the longer run straddles epochs and ends some. */
static void compare_lengths(const char *how, const char *fewer_steps) {
    char small[] = "run.dir=run-2-0", large[] = "run.dir=run-20-0";
    static int run = 0;
    small[sizeof small - 2] = large[sizeof large - 2] = (char)('0' + run++);
    const char *const warm[] = {"train.steps=2",
                                "train.valid_every=0",
                                "checkpoint.every=0",
                                how,
                                "run.dir=warm",
                                "resume=auto",
                                NULL};
    const char *const two[] = {fewer_steps, "train.valid_every=0", "checkpoint.every=0", how, small,
                               NULL};
    const char *const twenty[] = {
        "train.steps=20", "train.valid_every=0", "checkpoint.every=0", how, large, NULL};
    if (!with_watchdog) (void)allocations(warm); /* registries and the like, too */
    assert_int_equal(allocations(two), allocations(twenty));
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    compare_lengths("parallel.reproducible=no", "train.steps=2");
}

static void nor_does_one_of_the_fixed_tree(void **state) {
    (void)state;
    compare_lengths("parallel.reproducible=yes", "train.steps=2");
}

static void nor_on_the_strict_device(void **state) {
    (void)state;
    /* by then programs are captured, and the lists of the device have their full length */
    compare_lengths("device=strict", "train.steps=16");
}

static void validation_and_checkpoints_leave_nothing(void **state) {
    (void)state;
    const char *const often[] = {"train.steps=20", "train.valid_every=2", "checkpoint.every=3",
                                 "run.dir=run-often", NULL};
    (void)allocations(often);
}

/* Bytes of a table, not of a picture: one mean and deviation serve them all. */
static void many_features_share_one_mean(void **state) {
    (void)state;
    const char *const flat[] = {"train.steps=2",          "data.synthetic_shape=784",
                                "model.layers=linear 10", "data.rotate=0",
                                "run.dir=run-flat",       NULL};
    (void)allocations(flat);
}

/* A training of one rank, for what is tested without a run; both are the caller's to destroy. */
static tr_session_t *open_session(tr_config_t **out_config) {
    const char *const none[] = {NULL};
    const tr_session_params_t params = {.purpose = TR_SESSION_TRAIN, .size = 1};
    tr_session_t *session = NULL;
    *out_config = config_of(none);
    OK(tr_session_create(*out_config, NULL, &params, &session));
    return session;
}

/* Every allocation of a snapshot fails once. */
static void a_snapshot_without_memory_leaves_nothing(void **state) {
    (void)state;
    tr_config_t *config;
    tr_session_t *session = open_session(&config);
    const int64_t live = tr_mem_stats().live;
    tr_status_t status = TR_ERR_MEMORY;
    for (int64_t nth = 1; status != TR_OK; nth++) {
        tr_snapshot_t *snapshot = NULL;
        tr_mem_fail_at(nth);
        status = tr_snapshot_create(session, &snapshot);
        tr_mem_fail_at(0);
        assert_true(status == TR_OK || status == TR_ERR_MEMORY);
        if (status == TR_OK) tr_snapshot_destroy(&snapshot);
        assert_int_equal(tr_mem_stats().live, live);
        assert_true(nth < 1000);
    }
    tr_session_destroy(&session);
    tr_config_destroy(&config);
}

/* -- checkpoints with an average of the weights ------------------------------------------------ */

enum { FIRST_ELEMS = 8 * 3 * 3 }; /* of conv1.weight */

static void put(tr_session_t *s, float trained, float average) {
    const tr_tensor_t ema = tr_graph_find(s->g, TR_EMA_STATE);
    const int64_t elems = tr_tensor_info(s->g, ema)->shape.dim[0];
    float *values = malloc((size_t)elems * sizeof *values);
    for (int64_t i = 0; i < elems; i++) values[i] = average;
    OK(tr_tensor_write(s->g, ema, values));
    for (int i = 0; i < FIRST_ELEMS; i++) values[i] = trained;
    OK(tr_tensor_write(s->g, tr_graph_find(s->g, "conv1.weight"), values));
    free(values);
}

static void expect(tr_session_t *s, float trained, float average) {
    const tr_tensor_t weight = tr_graph_find(s->g, "conv1.weight"),
                      ema = tr_graph_find(s->g, TR_EMA_STATE);
    const int64_t at = tr_tensor_info(s->g, weight)->block_elems,
                  elems = tr_tensor_info(s->g, ema)->shape.dim[0];
    float found[FIRST_ELEMS], *values = malloc((size_t)elems * sizeof *values);
    OK(tr_tensor_read(s->g, weight, found));
    OK(tr_tensor_read(s->g, ema, values));
    for (int i = 0; i < FIRST_ELEMS; i++) {
        assert_true(found[i] == trained);
        assert_true(values[at + i] == average);
    }
    free(values);
}

/* As they were written once: the trained weights in the model's file, the averages as NAME.ema in
 * the optimizer's. */
static void make_old(tr_checkpoint_content_t *c, tr_named_tensor_t *model,
                     tr_named_tensor_t *optimizer) {
    static char names[16][64];
    memcpy(model, c->model, c->model_count * sizeof *model);
    memcpy(optimizer, c->optimizer, c->optimizer_count * sizeof *optimizer);
    for (size_t i = 0, count = 0; i < c->optimizer_count; i++) {
        const size_t length = strlen(optimizer[i].name) - strlen(".raw");
        if (strcmp(optimizer[i].name + length, ".raw") != 0) continue;
        assert_true(count < 16);
        snprintf(names[count], sizeof names[count], "%.*s.ema", (int)length, optimizer[i].name);
        for (size_t k = 0; k < c->model_count; k++)
            if (strlen(model[k].name) == length &&
                strncmp(model[k].name, optimizer[i].name, length) == 0) {
                const void *data = model[k].data;
                model[k].data = optimizer[i].data;
                optimizer[i].data = data;
            }
        optimizer[i].name = names[count++];
    }
    c->model = model;
    c->optimizer = optimizer;
}

static float first_of(const tr_safetensors_t *file, const char *name) {
    float value;
    const tr_named_tensor_t *t = tr_safetensors_find(file, name);
    assert_non_null(t);
    OK(tr_safetensors_read(t, 0, sizeof value, &value));
    return value;
}

static void check_kind(tr_session_t *s, tr_snapshot_t *snapshot,
                       const tr_checkpoint_content_t *content, const char *dir, bool is_old) {
    char *path = NULL;
    tr_weights_t *weights = NULL;
    OK(tr_checkpoint_write(dir, content, &path));
    OK(tr_weights_open(path, &weights));
    assert_true(first_of(weights->model, "conv1.weight") == (is_old ? 1 : 2));
    assert_true(first_of(weights->checkpoint->optimizer,
                         is_old ? "conv1.weight.ema" : "conv1.weight.raw") == (is_old ? 2 : 1));
    put(s, 0, 0);
    OK(tr_snapshot_restore(snapshot, weights->checkpoint));
    expect(s, 1, 2);
    put(s, 0, 3);
    OK(tr_snapshot_init(snapshot, weights));
    expect(s, 2, 3);
    tr_weights_close(&weights);
    tr_free(&path);
}

/* The model's file holds what was scored, the optimizer's what is trained; those of before still
 * load. */
static void checkpoints_hold_averages(void **state) {
    (void)state;
    tr_config_t *config;
    tr_session_t *session = open_session(&config);
    tr_snapshot_t *snapshot = NULL;
    tr_checkpoint_content_t content;
    tr_named_tensor_t model[64], optimizer[64];
    session->params.loaded = true;
    OK(tr_session_start(session, NULL));
    expect(session, 0, 0); /* nothing was drawn for what is loaded */
    OK(tr_snapshot_create(session, &snapshot));
    for (int is_old = 0; is_old < 2; is_old++) {
        char dir[64];
        snprintf(dir, sizeof dir, "averages-%d-%d", is_old, tr_world_info(world)->rank);
        put(session, 1, 2);
        OK(tr_snapshot_take(snapshot));
        tr_snapshot_content(snapshot, &content);
        content.step = 1;
        assert_true(content.model_count <= 64 && content.optimizer_count <= 64);
        if (is_old) make_old(&content, model, optimizer);
        check_kind(session, snapshot, &content, dir, is_old);
    }
    tr_snapshot_destroy(&snapshot);
    tr_session_destroy(&session);
    tr_config_destroy(&config);
}

static double score(tr_session_t *session) {
    tr_eval_outcome_t outcome;
    OK(tr_session_evaluate(session, TR_SPLIT_VALID, NULL, NULL, &outcome));
    return outcome.loss;
}

/* Programs that ran already use the parameters that were written or restored since. */
static void half_precision_copies_follow(void **state) {
    (void)state;
    const char *const with[] = {"precision=bf16", "optimizer.ema=0", "data.valid=synthetic", NULL};
    const tr_session_params_t params = {.purpose = TR_SESSION_TRAIN, .size = 1};
    tr_config_t *config = config_of(with);
    tr_session_t *session = NULL;
    tr_snapshot_t *snapshot = NULL;
    tr_weights_t *weights = NULL;
    tr_checkpoint_content_t content;
    const float other[FIRST_ELEMS] = {3};
    char dir[64], *path = NULL;
    snprintf(dir, sizeof dir, "copies-%d", tr_world_info(world)->rank);
    OK(tr_session_create(config, NULL, &params, &session));
    OK(tr_session_start(session, NULL));
    OK(tr_snapshot_create(session, &snapshot));
    OK(tr_snapshot_take(snapshot));
    tr_snapshot_content(snapshot, &content);
    OK(tr_checkpoint_write(dir, &content, &path));
    OK(tr_weights_open(path, &weights));
    const double first = score(session);
    OK(tr_tensor_write(session->g, tr_graph_find(session->g, "conv1.weight"), other));
    const double second = score(session);
    assert_true(second != first);
    OK(tr_snapshot_restore(snapshot, weights->checkpoint));
    assert_true(score(session) == first);
    tr_weights_close(&weights);
    tr_free(&path);
    tr_snapshot_destroy(&snapshot);
    tr_session_destroy(&session);
    tr_config_destroy(&config);
}

/* -- optimizer state that the checkpoint does not have, or the session ------------------------- */

/* Restores a checkpoint of a run with the setting `then`, in which the optimizer's tensor `at` is
 * called `name`; NULL: it is left out. */
static tr_status_t restore_other(tr_session_t *s, tr_snapshot_t *snapshot, const char *then,
                                 const char *at, const char *name) {
    const char *const with[] = {then, NULL};
    tr_config_t *config = config_of(with);
    tr_str_t settings = {0};
    tr_checkpoint_content_t content;
    tr_named_tensor_t tensors[64];
    tr_weights_t *weights = NULL;
    char dir[64], *path = NULL;
    size_t count = 0;
    snprintf(dir, sizeof dir, "other-%d", tr_world_info(world)->rank);
    OK(tr_config_serialize(config, &settings));
    json_t *state = json_pack("{s:s}", "config", settings.text);
    OK(tr_snapshot_take(snapshot));
    tr_snapshot_content(snapshot, &content);
    for (size_t i = 0; i < content.optimizer_count; i++) {
        tensors[count] = content.optimizer[i];
        if (strcmp(tensors[count].name, at) == 0) tensors[count].name = name;
        count += tensors[count].name != NULL;
    }
    content.step = 1;
    content.optimizer = tensors;
    content.optimizer_count = count;
    content.state_json = json_dumps(state, 0);
    OK(tr_checkpoint_write(dir, &content, &path));
    OK(tr_weights_open(path, &weights));
    const tr_status_t status = tr_snapshot_restore(snapshot, weights->checkpoint);
    tr_weights_close(&weights);
    tr_free(&path);
    free((char *)(uintptr_t)content.state_json);
    json_decref(state);
    tr_str_free(&settings);
    tr_config_destroy(&config);
    return status;
}

static float first_moment(tr_session_t *s) {
    const tr_tensor_t m = tr_graph_find(s->g, "adam.m"),
                      weight = tr_graph_find(s->g, "conv1.weight");
    const int64_t elems = tr_tensor_info(s->g, m)->shape.dim[0];
    float *values = malloc((size_t)elems * sizeof *values);
    OK(tr_tensor_read(s->g, m, values));
    const float value = values[tr_tensor_info(s->g, weight)->block_elems];
    free(values);
    return value;
}

static void only_changed_keys_explain_other_states(void **state) {
    (void)state;
    const char *const m = "conv1.weight.adam.m", *const raw = "linear1.bias.raw";
    const struct {
        const char *then, *at, *name;
    } refused[] = {{"train.steps=3", m, NULL},
                   {"optimizer.type=sgd", m, NULL}, /* the other moments are there */
                   {"optimizer.ema=0", m, NULL},
                   {"model.freeze=linear1.*", m, NULL},
                   {"model.freeze=conv1.weight", m, "conv1.weight.adam.n"},
                   {"optimizer.type=sgd", raw, NULL},
                   {"optimizer.ema=0", raw, NULL}, /* so are the other trained weights */
                   {"optimizer.type=sgd", "step_result", NULL}};
    tr_config_t *config;
    tr_session_t *session = open_session(&config);
    const tr_tensor_t weight = tr_graph_find(session->g, "conv1.weight");
    const tr_step_result_t result = {.applied = 7};
    tr_snapshot_t *snapshot = NULL;
    OK(tr_session_start(session, NULL));
    OK(tr_snapshot_create(session, &snapshot));
    OK(tr_tensor_write(session->g, tr_graph_result(session->g), &result));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(
            restore_other(session, snapshot, refused[i].then, refused[i].at, refused[i].name),
            TR_ERR_CONFIG);
        assert_error_names(refused[i].name ? refused[i].name : refused[i].at);
    }
    OK(restore_other(session, snapshot, "train.steps=3", "none", NULL));
    assert_int_equal(tr_tensor_info(session->g, weight)->updates_before, 0);
    const int64_t elems =
        tr_tensor_info(session->g, tr_graph_find(session->g, "adam.m"))->shape.dim[0];
    float *ones = malloc((size_t)elems * sizeof *ones);
    for (int64_t i = 0; i < elems; i++) ones[i] = 1;
    OK(tr_tensor_write(session->g, tr_graph_find(session->g, "adam.m"), ones));
    free(ones);
    OK(restore_other(session, snapshot, "model.freeze=conv1.*", m, NULL));
    assert_true(first_moment(session) == 0);
    assert_int_equal(tr_tensor_info(session->g, weight)->updates_before, 7);
    tr_snapshot_destroy(&snapshot);
    tr_session_destroy(&session);
    tr_config_destroy(&config);
}

static char *state_text(const tr_session_t *session) {
    json_t *state = tr_state_json(session, 3);
    char *written = state ? json_dumps(state, JSON_SORT_KEYS) : NULL;
    json_decref(state);
    return written;
}

/* Half of a configuration in a checkpoint would pass for the whole. */
static void a_state_is_whole_or_none(void **state) {
    (void)state;
    tr_config_t *config;
    tr_session_t *session = open_session(&config);
    char *whole = state_text(session), *written = NULL;
    assert_non_null(whole);
    int64_t nth = 1;
    for (; !written; nth++) {
        tr_mem_fail_at(nth);
        written = state_text(session);
        tr_mem_fail_at(0);
        if (written) assert_string_equal(written, whole);
        assert_true(nth < 1000);
    }
    assert_true(nth > 4);
    free(written);
    free(whole);
    tr_session_destroy(&session);
    tr_config_destroy(&config);
}

static char said[1024]; /* the lines of the log */
static void keep_said(void *self, tr_log_level_t level, const char *line) {
    (void)self;
    (void)level;
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", line);
}

static void a_state_names_the_instructions(void **state) {
    (void)state;
    static const char *const then[] = {NULL, "", "x86-64-v9"};
    tr_config_t *config;
    tr_session_t *session = open_session(&config);
    tr_checkpoint_t checkpoint = {.path = "then", .state = tr_state_json(session, 3)};
    const char *now = json_string_value(json_object_get(checkpoint.state, "isa"));
    assert_non_null(now);
    assert_string_equal(now, tr_isa_name(tr_isa_used()));
    tr_log_set_sink(keep_said, NULL);
    for (size_t i = 0; i < sizeof then / sizeof *then; i++) {
        said[0] = '\0';
        if (!then[i]) /* as in a checkpoint of an earlier release */
            json_object_del(checkpoint.state, "isa");
        else
            json_object_set_new(checkpoint.state, "isa",
                                json_string(*then[i] ? then[i] : tr_isa_name(tr_isa_used())));
        OK(tr_state_check(session, &checkpoint));
        const bool is_noted = then[i] && *then[i];
        assert_true((strstr(said, "x86-64-v9") != NULL) == is_noted);
        assert_true((strstr(said, tr_isa_name(tr_isa_used())) != NULL) == is_noted);
    }
    tr_log_set_sink(NULL, NULL);
    json_decref(checkpoint.state);
    tr_session_destroy(&session);
    tr_config_destroy(&config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(nor_does_one_of_the_fixed_tree),
        cmocka_unit_test(nor_on_the_strict_device),
        cmocka_unit_test(validation_and_checkpoints_leave_nothing),
        cmocka_unit_test(many_features_share_one_mean),
        cmocka_unit_test(a_snapshot_without_memory_leaves_nothing),
        cmocka_unit_test(a_state_is_whole_or_none),
        cmocka_unit_test(a_state_names_the_instructions),
        cmocka_unit_test(checkpoints_hold_averages),
        cmocka_unit_test(half_precision_copies_follow),
        cmocka_unit_test(only_changed_keys_explain_other_states),
    };
    if (tr_world_open(NULL, &world) != TR_OK) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tr_world_close(&world);
    return failed;
}
