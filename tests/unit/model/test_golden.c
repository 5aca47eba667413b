/*
 * Models against PyTorch: weights, inputs, losses, every gradient, and three steps of two
 * optimizers, from the files that tools/make-golden.py wrote (it says what is in them). The same on
 * every device that is present. Values there are of double precision, rounded once.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "../../support/op_harness.h"
#include "model_fixture.h"
#include "checkpoint/checkpoint.h"
#include "base/mem.h"
#include "optim/optim.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 3
/* Relative to the largest value of a tensor; of a gradient, to at least a thousandth of the largest
 * of all gradients. */
#define LOSS_TOLERANCE     2e-6
#define GRADIENT_TOLERANCE 1e-5
#define WEIGHT_TOLERANCE   1e-5
/* Adam divides by the gradient's size: a rounding error in a small gradient is as large in the
 * step. */
#define ADAM_TOLERANCE 5e-5

typedef struct {
    const char *file, *device, *optimizer;
    tr_safetensors_t *golden;
    json_t *settings; /* the file's metadata */
    tr_config_t *optim_config;
    model_fixture_t f;
    int train, update;
    int64_t rows;  /* samples */
    int64_t terms; /* of the loss; not all count if y is of positions */
    double counted;
    tr_tensor_t gradient;
} run_t;

static const tr_named_tensor_t *find(const run_t *r, const char *prefix, const char *name) {
    char full[128];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const tr_named_tensor_t *t = tr_safetensors_find(r->golden, full);
    if (!t) fail_msg("%s: there is no %s", r->file, full);
    return t;
}

static void *copy_of(const tr_named_tensor_t *t) {
    const size_t bytes = (size_t)tr_shape_elems(&t->shape) * tr_dtype_bytes(t->dtype);
    void *copy = NULL;
    MUST(tr_alloc(bytes, "golden values", &copy));
    MUST(tr_safetensors_read(t, 0, (int64_t)bytes, copy));
    return copy;
}

static double largest(const float *values, int64_t count) {
    float result = 0;
    for (int64_t i = 0; i < count; i++) result = fmaxf(result, fabsf(values[i]));
    return result;
}

static void expect(const run_t *r, const char *prefix, const char *name, const float *found,
                   double tolerance, double floor_) {
    const tr_named_tensor_t *t = find(r, prefix, name);
    const int64_t count = tr_shape_elems(&t->shape);
    float *expected = copy_of(t);
    const double bound = tolerance * fmax(largest(expected, count), floor_);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)found[i] - (double)expected[i]) <= bound))
            fail_msg("%s on %s, %s%s[%lld]: %.9g, PyTorch has %.9g; more than %.3g apart", r->file,
                     r->device, prefix, name, (long long)i, (double)found[i], (double)expected[i],
                     bound);
    tr_free(&expected);
}

/* -- building ---------------------------------------------------------------------------------- */

static void set_keys(run_t *r, const char *prefix, tr_config_t *config) {
    const char *key;
    json_t *value;
    json_object_foreach(r->settings, key, value) {
        tr_str_t text = {0};
        if (strncmp(key, prefix, strlen(prefix)) != 0) continue;
        tr_str_printf(&text, "%s=%s", strncmp(key, "model.", 6) == 0 ? key : strchr(key, '.') + 1,
                      json_string_value(value));
        MUST(tr_config_set(config, text.text, r->file));
        tr_str_free(&text);
    }
    MUST(tr_config_check(config));
}

static tr_optim_settings_t optimizer_settings(run_t *r) {
    static const tr_config_table_t *const tables[] = {&tr_optim_config};
    tr_optim_settings_t settings;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%s.", r->optimizer);
    MUST(tr_config_create(tables, 1, &r->optim_config));
    set_keys(r, prefix, r->optim_config);
    tr_config_read(r->optim_config, &tr_optim_config, &settings);
    return settings;
}

static void build(run_t *r) {
    tr_graph_t *g = r->f.g;
    tr_tensor_t seed, counts, samples, loss_sum;
    const tr_optim_settings_t settings = optimizer_settings(r);
    const tr_named_tensor_t *x = find(r, "", "x"), *y = find(r, "", "y");
    const json_t *counted = json_object_get(r->settings, "terms");
    const int64_t classes = atoi(json_string_value(json_object_get(r->settings, "classes")));
    r->rows = x->shape.dim[0];
    if (counted)
        fixture_begin_dense(&r->f, "last", TR_TRAIN, x->shape, y->shape, classes);
    else
        fixture_begin(&r->f, "last", TR_TRAIN, x->shape,
                      y->dtype == TR_I32 ? classes : -y->shape.dim[1]);
    r->train = r->f.program;
    MUST(fixture_build(&r->f));
    MUST(tr_keep(g, r->f.result.loss));
    MUST(tr_reduced(g, "counts", 2, &counts));
    MUST(tr_slice(g, counts, 0, 1, &samples));
    MUST(tr_slice(g, counts, 1, 1, &loss_sum));
    const tr_tensor_t terms = tr_is_none(r->f.result.terms) ? r->f.batch.weight : r->f.result.terms;
    r->terms = tr_shape_elems(tr_shape_of(g, r->f.result.loss));
    r->counted = counted ? atof(json_string_value(counted)) : (double)r->terms;
    MUST(tr_weighted_sum(g, terms, TR_NONE, samples));
    MUST(tr_weighted_sum(g, r->f.result.loss, TR_NONE, loss_sum));
    MUST(tr_const(g, "seed", &TR_SHAPE(r->terms), 1.0 / (double)r->terms, &seed));
    MUST(tr_backward(g, r->f.result.loss, seed, false));
    MUST(tr_program_end(g));
    MUST(tr_reduced_range(g, 0, tr_graph_layout(g).trainable_elems, &r->gradient));
    MUST(tr_program_begin(g, "update", TR_PLAIN, &r->update));
    MUST(tr_optimizer_build(g, &settings, counts, (double)r->terms));
    MUST(tr_update_moments(g, 1));
    MUST(tr_program_end(g));
    MUST(tr_graph_plan(g, 0));
    MUST(tr_graph_allocate(g));
    MUST(tr_graph_init_params(g, 1));
}

static void write_from(run_t *r, tr_tensor_t t, const tr_named_tensor_t *golden) {
    void *values = copy_of(golden);
    if (!tr_shape_equal(tr_shape_of(r->f.g, t), &golden->shape))
        fail_msg("%s: %s has another shape here", r->file, golden->name);
    MUST(tr_tensor_write(r->f.g, t, values));
    tr_free(&values);
}

/* A parameter or running moment, by the golden name behind `prefix`. */
static tr_tensor_t tensor_of(const run_t *r, const char *name) {
    tr_tensor_t t = tr_graph_find(r->f.g, name);
    if (tr_is_none(t)) fail_msg("%s: the model here has no %s", r->file, name);
    return t;
}

static void write_start(run_t *r) {
    float weight[64];
    int64_t id[64], parameters = 0;
    assert_true(r->rows <= 64);
    for (int64_t i = 0; i < r->rows; i++) weight[i] = 1, id[i] = i;
    write_from(r, r->f.batch.tensor[0], find(r, "", "x"));
    write_from(r, r->f.batch.tensor[1], find(r, "", "y"));
    MUST(tr_tensor_write(r->f.g, r->f.batch.weight, weight));
    MUST(tr_tensor_write(r->f.g, r->f.batch.sample_id, id));
    for (size_t i = 0; i < tr_safetensors_count(r->golden); i++) {
        const tr_named_tensor_t *t = tr_safetensors_at(r->golden, i);
        if (strncmp(t->name, "param.", 6) != 0) continue;
        write_from(r, tensor_of(r, t->name + 6), t);
        parameters += tr_shape_elems(&t->shape);
    }
    assert_int_equal(parameters, fixture_parameters(&r->f)); /* none is left out */
}

/* -- running and comparing --------------------------------------------------------------------- */

static double step(run_t *r, int64_t number, float lr) {
    float loss[512];
    double sum = 0;
    const tr_step_t block = {.seed = 1, .step = number, .lr = lr, .weight_decay_scale = 1};
    MUST(tr_tensor_write(r->f.g, tr_graph_step(r->f.g), &block));
    MUST(tr_graph_zero_reduced(r->f.g));
    MUST(tr_program_run(r->f.g, r->train, NULL));
    assert_true(r->terms <= 512);
    MUST(tr_tensor_read(r->f.g, r->f.result.loss, loss));
    if (number == 0) expect(r, "", "loss", loss, LOSS_TOLERANCE, 0);
    for (int64_t i = 0; i < r->terms; i++) sum += (double)loss[i];
    return sum / r->counted;
}

static void check_gradients(run_t *r) {
    const int64_t count = tr_graph_layout(r->f.g).trainable_elems;
    float *values = NULL;
    MUST(tr_alloc((size_t)count * sizeof *values, "gradient", &values));
    MUST(tr_tensor_read(r->f.g, r->gradient, values));
    for (int64_t i = 0; i < count; i++) /* as `update` corrects it */
        values[i] *= (float)((double)r->terms / r->counted);
    for (size_t i = 0; i < tr_safetensors_count(r->golden); i++) {
        const tr_named_tensor_t *t = tr_safetensors_at(r->golden, i);
        if (strncmp(t->name, "grad.", 5) != 0) continue;
        const tr_tensor_info_t *info = tr_tensor_info(r->f.g, tensor_of(r, t->name + 5));
        expect(r, "grad.", t->name + 5, values + info->block_elems, GRADIENT_TOLERANCE,
               1e-3 * largest(values, count));
    }
    tr_free(&values);
}

static void check_tensors(run_t *r, const char *prefix, double tolerance) {
    for (size_t i = 0; i < tr_safetensors_count(r->golden); i++) {
        const tr_named_tensor_t *t = tr_safetensors_at(r->golden, i);
        const char *name = t->name + strlen(prefix);
        if (strncmp(t->name, prefix, strlen(prefix)) != 0 || strncmp(name, "state.", 6) == 0 ||
            strcmp(name, "losses") == 0)
            continue;
        const tr_tensor_t found = tensor_of(r, name);
        float *values = NULL;
        MUST(tr_alloc((size_t)tr_shape_elems(&t->shape) * sizeof *values, "values", &values));
        assert_true(tr_shape_equal(tr_shape_of(r->f.g, found), &t->shape));
        MUST(tr_tensor_read(r->f.g, found, values));
        expect(r, prefix, name, values, tolerance, 0);
        tr_free(&values);
    }
}

static void train(run_t *r) {
    tr_optim_settings_t settings;
    float losses[STEPS];
    char prefix[32], state[32];
    const double tolerance = strcmp(r->optimizer, "sgd") == 0 ? WEIGHT_TOLERANCE : ADAM_TOLERANCE;
    tr_config_read(r->optim_config, &tr_optim_config, &settings);
    for (int64_t i = 0; i < STEPS; i++) {
        losses[i] = (float)step(r, i, (float)settings.lr);
        if (i == 0) check_gradients(r);
        MUST(tr_program_run(r->f.g, r->update, NULL));
    }
    snprintf(prefix, sizeof prefix, "%s.", r->optimizer);
    snprintf(state, sizeof state, "%s.state.", r->optimizer);
    expect(r, prefix, "losses", losses, tolerance, 0);
    check_tensors(r, prefix, tolerance);
    check_tensors(r, state, tolerance);
}

static void compare(const char *device, const char *name, const char *optimizer) {
    char path[256];
    run_t r = {.file = name, .device = device, .optimizer = optimizer};
    const char *root = getenv("TRAINER_ROOT");
    snprintf(path, sizeof path, "%s/tests/golden/%s.safetensors", root ? root : ".", name);
    MUST(tr_safetensors_open(path, &r.golden));
    assert_non_null(r.settings = json_loads(tr_safetensors_metadata(r.golden), 0, NULL));
    fixture_open_on(&r.f, device, 2);
    set_keys(&r, "model.", r.f.config);
    build(&r);
    write_start(&r);
    train(&r);
    fixture_close(&r.f);
    tr_config_destroy(&r.optim_config);
    tr_safetensors_close(&r.golden);
    json_decref(r.settings);
}

static void check(const char *name) {
    const op_devices_t devices = op_devices();
    assert_true(devices.count > 0);
    for (int i = 0; i < devices.count; i++) {
        const int64_t live = tr_mem_stats().live;
        compare(devices.name[i], name, "sgd");
        compare(devices.name[i], name, "adamw");
        assert_int_equal(tr_mem_stats().live, live);
    }
}

#define MODELS                                                                                     \
    MODEL(mlp)                                                                                     \
    MODEL(conv)                                                                                    \
    MODEL(residual)                                                                                \
    MODEL(layernorm)                                                                               \
    MODEL(groupnorm)                                                                               \
    MODEL(volumes) MODEL(unet) MODEL(huber) MODEL(multihot) MODEL(weights) MODEL(dense)            \
        MODEL(dense_weights) MODEL(dense_smoothing) MODEL(dense_dice) MODEL(dense_dice_ce)         \
            MODEL(dense_mse) MODEL(dense_mae) MODEL(dense_huber) MODEL(dense_bce)
#define MODEL(name)                                                                                \
    static void name##_equals_pytorch(void **state) {                                              \
        check(#name);                                                                              \
    }
MODELS
#undef MODEL

int main(void) {
    const struct CMUnitTest tests[] = {
#define MODEL(name) cmocka_unit_test(name##_equals_pytorch),
        MODELS
#undef MODEL
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
