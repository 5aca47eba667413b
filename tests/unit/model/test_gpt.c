/*
 * gpt against PyTorch (tests/golden/gpt.safetensors, from tools/make-golden.py): logits, losses and
 * every gradient, whatever is kept or computed again, on every device that is present.
 */
#include "../../support/op_harness.h"
#include "../../support/tensor_data.h"
#include "model_fixture.h"
#include "checkpoint/checkpoint.h"
#include "base/mem.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    tr_safetensors_t *golden;
    tr_device_t *device;
    tr_config_t *config;
    tr_graph_t *g;
    tr_model_batch_t batch;
    tr_model_result_t result;
    int program;
    int64_t samples, steps;
} run_t;

static const tr_named_tensor_t *find(const run_t *r, const char *prefix, const char *name) {
    char full[160];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const tr_named_tensor_t *t = tr_safetensors_find(r->golden, full);
    if (!t) fail_msg("the golden file has no %s", full);
    return t;
}

static void set(run_t *r, const char *key, const char *value) {
    char text[160];
    snprintf(text, sizeof text, "%s=%s", key, value);
    MUST(tr_config_set(r->config, text, "test"));
}

static void open_run(run_t *r, const char *device, const char *settings[][2]) {
    static const tr_config_table_t *tables[2];
    const tr_model_t *gpt;
    char path[256];
    const char *key;
    json_t *value;
    *r = (run_t){0};
    const char *root = getenv("TRAINER_ROOT");
    snprintf(path, sizeof path, "%s/tests/golden/gpt.safetensors", root ? root : ".");
    MUST(tr_safetensors_open(path, &r->golden));
    MUST(tr_model_find("gpt", &gpt));
    tables[0] = &tr_model_config, tables[1] = gpt->config;
    MUST(tr_config_create(tables, 2, &r->config));
    json_t *metadata = json_loads(tr_safetensors_metadata(r->golden), 0, NULL);
    json_object_foreach(metadata, key, value) if (strncmp(key, "model.", 6) == 0)
        set(r, key, json_string_value(value));
    json_decref(metadata);
    set(r, "model.type", "gpt");
    for (int i = 0; settings[i][0]; i++) set(r, settings[i][0], settings[i][1]);
    MUST(tr_config_check(r->config));
    r->device = op_open(device);
    MUST(tr_graph_create(r->device, &r->g));
    r->samples = find(r, "", "x")->shape.dim[0];
    r->steps = find(r, "", "x")->shape.dim[1];
}

static void close_run(run_t *r) {
    tr_graph_destroy(&r->g);
    tr_device_close(&r->device);
    tr_config_destroy(&r->config);
    tr_safetensors_close(&r->golden);
}

static int64_t counted(const run_t *r) {
    int32_t *y = tensor_data(find(r, "", "y"));
    int64_t n = 0;
    for (int64_t i = 0; i < r->samples * r->steps; i++) n += y[i] >= 0;
    free(y);
    return n;
}

/* The gradient is of the mean over the labels that count. */
static void build(run_t *r, tr_mode_t mode, bool has_labels, tr_dtype_t dtype) {
    tr_model_batch_t *b = &r->batch;
    MUST(tr_program_begin(r->g, "test", mode, &r->program));
    *b = (tr_model_batch_t){.count = has_labels ? 2 : 1, .name = {"x", "y"}, .dtype = dtype};
    const tr_shape_t shape = TR_SHAPE(r->samples, r->steps);
    for (int i = 0; i < b->count; i++)
        MUST(tr_input(r->g, b->name[i], TR_I32, &shape, &b->tensor[i]));
    MUST(tr_input(r->g, "sample_id", TR_I64, &TR_SHAPE(r->samples), &b->sample_id));
    MUST(tr_input(r->g, "weight", TR_F32, &TR_SHAPE(r->samples), &b->weight));
    MUST(tr_model_build(r->g, r->config, b, &r->result));
    MUST(tr_keep(r->g, has_labels ? r->result.loss : r->result.output));
    if (has_labels) MUST(tr_keep(r->g, r->result.terms));
    if (mode == TR_TRAIN) {
        tr_tensor_t seed;
        MUST(tr_model_loss_seed(r->g, b, r->samples * r->steps, &seed));
        MUST(tr_backward(r->g, r->result.loss, seed, false));
    }
    MUST(tr_program_end(r->g));
    MUST(tr_graph_plan(r->g, 0));
    MUST(tr_graph_allocate(r->g));
    MUST(tr_graph_init_params(r->g, 1));
}

static void write(run_t *r, tr_tensor_t t, const tr_named_tensor_t *from) {
    assert_true(tr_shape_equal(tr_shape_of(r->g, t), &from->shape));
    void *data = tensor_data(from);
    MUST(tr_tensor_write(r->g, t, data));
    free(data);
}

static void run(run_t *r) {
    float weight[16];
    int64_t id[16], parameters = 0, found = 0;
    for (int i = 0; i < 16; i++) weight[i] = 1, id[i] = 100 + i;
    const tr_step_t step = {.seed = 3, .step = 5, .lr = 1};
    MUST(tr_tensor_write(r->g, tr_graph_step(r->g), &step));
    for (int i = 0; i < r->batch.count; i++)
        write(r, r->batch.tensor[i], find(r, "", r->batch.name[i]));
    MUST(tr_tensor_write(r->g, r->batch.weight, weight));
    MUST(tr_tensor_write(r->g, r->batch.sample_id, id));
    for (size_t i = 0; i < tr_safetensors_count(r->golden); i++) {
        const tr_named_tensor_t *t = tr_safetensors_at(r->golden, i);
        if (strncmp(t->name, "param.", 6) != 0) continue;
        write(r, tr_graph_find(r->g, t->name + 6), t);
        parameters++;
    }
    for (int32_t i = 1; i <= tr_graph_tensor_count(r->g); i++)
        found += tr_is_param(r->g, (tr_tensor_t){i});
    assert_int_equal(parameters, found); /* none has another name */
    MUST(tr_program_run(r->g, r->program, NULL));
    MUST(tr_graph_sync(r->g));
}

/* The distance of two tensors as a part of the norm of the second. */
static double distance(const float *found, const float *expected, int64_t count) {
    double off = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        off += pow((double)found[i] - expected[i], 2);
        norm += pow(expected[i], 2);
    }
    return sqrt(off / norm);
}

static void expect(run_t *r, tr_tensor_t t, const tr_named_tensor_t *golden, double factor,
                   double most) {
    const int64_t count = tr_shape_elems(&golden->shape);
    float *found = op_read(&(op_bench_t){.g = r->g}, t), *expected = tensor_data(golden);
    for (int64_t i = 0; i < count; i++) found[i] *= (float)factor;
    const double off = distance(found, expected, count);
    if (!(off <= most)) fail_msg("%s: %g of its norm away from PyTorch's", golden->name, off);
    test_free(found);
    free(expected);
}

static void check_training(const char *device, const char *settings[][2], tr_dtype_t dtype,
                           double most) {
    run_t r;
    open_run(&r, device, settings);
    build(&r, TR_TRAIN, true, dtype);
    run(&r);
    expect(&r, r.result.loss, find(&r, "", "loss"), 1, most);
    float *terms = op_read(&(op_bench_t){.g = r.g}, r.result.terms);
    int32_t *y = tensor_data(find(&r, "", "y"));
    for (int64_t i = 0; i < r.samples * r.steps; i++) assert_true(terms[i] == (y[i] >= 0));
    test_free(terms);
    free(y);
    for (size_t i = 0; i < tr_safetensors_count(r.golden); i++) {
        const tr_named_tensor_t *t = tr_safetensors_at(r.golden, i);
        char name[160];
        if (strncmp(t->name, "grad.", 5) != 0) continue;
        snprintf(name, sizeof name, "%s.grad", t->name + 5);
        expect(&r, tr_graph_find(r.g, name), t, (double)(r.samples * r.steps) / (double)counted(&r),
               most);
    }
    close_run(&r);
}

static void losses_and_gradients(void **state) {
    static const char *ways[][3][2] = {
        {{NULL}},
        {{"model.attention", "standard"}},
        {{"model.recompute", "attention"}, {"model.attention", "standard"}},
        {{"model.recompute", "block"}},
        {{"model.recompute", "2"}}};
    const op_devices_t devices = op_devices();
    for (int d = 0; d < devices.count; d++)
        for (int way = 0; way < 5; way++) check_training(devices.name[d], ways[way], TR_F32, 1e-5);
    for (int d = 0; d < devices.count; d++) check_training(devices.name[d], ways[0], TR_BF16, 3e-2);
    for (int d = 0; d < devices.count; d++) check_training(devices.name[d], ways[0], TR_F16, 4e-3);
}

static void logits(void **state) {
    static const char *none[1][2] = {{NULL}};
    const op_devices_t devices = op_devices();
    for (int d = 0; d < devices.count; d++) {
        run_t r;
        open_run(&r, devices.name[d], none);
        build(&r, TR_EVAL, false, TR_F32);
        run(&r);
        expect(&r, r.result.output, find(&r, "", "logits"), 1, 1e-5);
        close_run(&r);
    }
}

static float *gradients(const char *device, const char *settings[][2], int64_t *count) {
    run_t r;
    open_run(&r, device, settings);
    set(&r, "model.dropout", "0.3");
    build(&r, TR_TRAIN, true, TR_F32);
    run(&r);
    size_t bytes;
    const tr_tensor_t loss = r.result.loss;
    tr_graph_region(r.g, TR_ROLE_REDUCED, &bytes);
    *count = tr_graph_layout(r.g).trainable_elems + r.samples * r.steps;
    float *found = test_calloc((size_t)*count, sizeof *found),
          *losses = op_read(&(op_bench_t){.g = r.g}, loss);
    memcpy(found, losses, (size_t)(r.samples * r.steps) * sizeof *found);
    test_free(losses);
    int64_t at = r.samples * r.steps;
    for (int32_t i = 1; i <= tr_graph_tensor_count(r.g); i++) {
        const tr_tensor_info_t *info = tr_tensor_info(r.g, (tr_tensor_t){i});
        if (info->role != TR_ROLE_REDUCED || !strstr(info->name, ".grad")) continue;
        MUST(tr_tensor_read(r.g, (tr_tensor_t){i}, found + at));
        at += tr_shape_elems(&info->shape);
    }
    close_run(&r);
    return found;
}

/* Dropout on: what is computed again has the same bits; standard and flash differ by rounding. */
static void recompute_has_the_same_bits(void **state) {
    static const char *ways[][2][2] = {{{"model.recompute", "none"}},
                                       {{"model.recompute", "attention"}},
                                       {{"model.recompute", "block"}},
                                       {{"model.recompute", "2"}}};
    static const char *standard[][2] = {{"model.attention", "standard"}, {NULL}};
    const op_devices_t devices = op_devices();
    for (int d = 0; d < devices.count; d++) {
        int64_t count, other;
        float *kept = gradients(devices.name[d], ways[0], &count);
        for (int way = 1; way < 4; way++) {
            float *again = gradients(devices.name[d], ways[way], &other);
            assert_int_equal(count, other);
            assert_memory_equal(kept, again, (size_t)count * sizeof *kept);
            test_free(again);
        }
        float *stored = gradients(devices.name[d], standard, &other);
        assert_true(distance(stored, kept, count) < 1e-5);
        test_free(stored);
        test_free(kept);
    }
}

static void check_refused(const char *key, const char *value, const char *part) {
    const char *settings[][2] = {{key, value}, {NULL}};
    run_t r;
    open_run(&r, "cpu", settings);
    MUST(tr_program_begin(r.g, "test", TR_EVAL, &r.program));
    r.batch = (tr_model_batch_t){.count = 1, .name = {"x"}, .classes = 29};
    MUST(tr_input(r.g, "x", TR_I32, &TR_SHAPE(r.samples, r.steps), &r.batch.tensor[0]));
    MUST(tr_input(r.g, "weight", TR_F32, &TR_SHAPE(r.samples), &r.batch.weight));
    fixture_expect_error(tr_model_build(r.g, r.config, &r.batch, &r.result), TR_ERR_CONFIG, part);
    close_run(&r);
}

static void refusals(void **state) {
    check_refused("model.n_head", "5", "model.n_head = 5");
    check_refused("model.recompute", "blocks", "'blocks'");
    check_refused("model.recompute", "3", "'3'");
    check_refused("model.context", "10", "model.context = 10");
    check_refused("model.vocab_size", "28", "model.vocab_size = 28");
}

/* Parameters of the shipped configs, as published; the small ones counted by hand. */
static void shipped_configs_have_their_parameters(void **state) {
    static const struct {
        const char *file;
        int64_t vocab_size, parameters;
    } configs[] = {{"gpt_tiny.ini", 66, 804224},        {"gpt_char.ini", 66, 10745472},
                   {"gpt2_124m.ini", 50257, 124439808}, {"gpt2_350m.ini", 50257, 354823168},
                   {"gpt2_774m.ini", 50257, 774030080}, {"gpt2_1558m.ini", 50257, 1557611200}};
    const char *root = getenv("TRAINER_ROOT");
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        model_fixture_t f = {0};
        const tr_model_t *gpt;
        const tr_config_table_t *tables[2];
        char path[4096];
        snprintf(path, sizeof path, "%s/configs/%s", root ? root : ".", configs[i].file);
        MUST(tr_model_find("gpt", &gpt));
        tables[0] = &tr_model_config, tables[1] = gpt->config;
        MUST(tr_config_create(tables, 2, &f.config));
        fixture_load(&f, path);
        f.device = op_open("cpu");
        MUST(tr_graph_create(f.device, &f.g));
        MUST(tr_program_begin(f.g, "eval", TR_EVAL, &f.program));
        f.batch = (tr_model_batch_t){.count = 1, .name = {"x"}, .classes = configs[i].vocab_size};
        MUST(tr_input(f.g, "x", TR_I32, &TR_SHAPE(1, 8), &f.batch.tensor[0]));
        MUST(tr_input(f.g, "weight", TR_F32, &TR_SHAPE(1), &f.batch.weight));
        MUST(fixture_build(&f));
        assert_int_equal(fixture_parameters(&f), configs[i].parameters);
        fixture_close(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients),
        cmocka_unit_test(logits),
        cmocka_unit_test(recompute_has_the_same_bits),
        cmocka_unit_test(refusals),
        cmocka_unit_test(shipped_configs_have_their_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
