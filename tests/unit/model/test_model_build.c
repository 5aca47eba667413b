/* Models built from text: names, shapes, counts, freezing, losses, and what is said of impossible
 * ones. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "model_fixture.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tr_shape_t mnist = {4, {4, 28, 28, 1}};

static void expect(const char *layers, tr_shape_t x, int64_t classes, const char *names) {
    model_fixture_t f;
    int64_t live = tr_mem_stats().live;
    fixture_open(&f);
    fixture_set(&f, "model.layers", layers);
    fixture_begin(&f, "last", TR_TRAIN, x, classes);
    fixture_expect_error(fixture_build(&f), TR_ERR_CONFIG, names);
    fixture_close(&f);
    assert_int_equal(tr_mem_stats().live, live);
}

static const tr_tensor_info_t *find(const model_fixture_t *f, const char *name) {
    tr_tensor_t t = tr_graph_find(f->g, name);
    if (tr_is_none(t)) fail_msg("there is no tensor '%s'", name);
    return tr_tensor_info(f->g, t);
}

/* Opens, builds a training program of `layers` on x. */
static void build(model_fixture_t *f, const char *layers, tr_shape_t x, int64_t classes) {
    fixture_open(f);
    fixture_set(f, "model.layers", layers);
    fixture_begin(f, "last", TR_TRAIN, x, classes);
    if (fixture_build(f) != TR_OK) fail_msg("%s", tr_error_last()->message);
}

static void names_and_kinds_of_parameters(void **state) {
    model_fixture_t f;
    build(&f,
          "conv 8 3, batchnorm, relu, repeat 2 { residual { conv 8 3 pad=same bias=no, batchnorm } "
          "{ conv 8 "
          "1, batchnorm }, relu }\n"
          "conv 8 3 name=last lr_factor=0.5, globalpool, linear 10",
          mnist, 10);
    assert_true(find(&f, "conv1.weight")->param.decay);
    assert_false(find(&f, "conv1.bias")->param.decay);
    assert_false(find(&f, "batchnorm1.weight")->param.decay);
    assert_int_equal(find(&f, "batchnorm1.running_var")->role, TR_ROLE_MODEL_STATE);
    find(&f, "residual1.conv1.weight");
    find(&f, "residual2.batchnorm1.running_mean");
    find(&f, "residual2.shortcut.conv1.bias");
    assert_true(tr_is_none(tr_graph_find(f.g, "residual2.conv1.bias")));
    assert_true(find(&f, "last.weight")->param.lr_factor == 0.5f);
    assert_true(find(&f, "linear1.weight")->param.lr_factor == 1);
    tr_shape_t kernel = {4, {8, 3, 3, 1}}, matrix = {2, {10, 8}};
    assert_true(tr_shape_equal(&find(&f, "conv1.weight")->shape, &kernel));
    assert_true(tr_shape_equal(&find(&f, "linear1.weight")->shape, &matrix));
    assert_true(tr_shape_equal(tr_shape_of(f.g, f.result.output), &TR_SHAPE(4, 10)));
    assert_true(tr_shape_equal(tr_shape_of(f.g, f.result.loss), &TR_SHAPE(4)));
    assert_true(tr_is_none(f.result.correct_topk));
    fixture_close(&f);
}

static void initial_values_have_their_scale(void **state) {
    model_fixture_t f;
    build(&f, "conv 8 3x5 groups=2 name=c, batchnorm init=zero, globalpool, linear 10",
          (tr_shape_t){4, {4, 28, 28, 4}}, 10);
    assert_int_equal(find(&f, "c.weight")->param.init.kind, TR_INIT_NORMAL);
    assert_float_equal(find(&f, "c.weight")->param.init.value, 0.18257418583505536,
                       1e-12); /* sqrt(2 / (3 5 8 / 2)) */
    assert_float_equal(find(&f, "batchnorm1.weight")->param.init.value, 0, 0);
    assert_int_equal(find(&f, "linear1.bias")->param.init.kind, TR_INIT_UNIFORM);
    assert_float_equal(find(&f, "linear1.bias")->param.init.value, 0.35355339059327373,
                       1e-12); /* 1 / sqrt(8) */
    fixture_close(&f);
}

/* Output sizes: PyTorch's floor((in + 2 p - d (k - 1) - 1) / s) + 1, and ceil(in / s) for pad=same.
 */
static void windows(void **state) {
    static const struct {
        const char *layers;
        tr_shape_t in, out;
    } cases[] = {
        {"conv 3 5", {4, {2, 28, 28, 1}}, {4, {2, 24, 24, 3}}},
        {"conv 3 5 pad=same", {4, {2, 28, 27, 1}}, {4, {2, 28, 27, 3}}},
        {"conv 3 4 pad=same", {4, {2, 9, 10, 1}}, {4, {2, 9, 10, 3}}},
        {"conv 3 3 pad=same stride=2", {4, {2, 9, 10, 1}}, {4, {2, 5, 5, 3}}},
        {"conv 3 7 pad=3 stride=2", {4, {2, 224, 224, 3}}, {4, {2, 112, 112, 3}}},
        {"conv 3 3x1 pad=1x0 dilation=2x1", {4, {2, 9, 10, 1}}, {4, {2, 7, 10, 3}}},
        {"conv 6 3 groups=3", {3, {2, 9, 3}}, {3, {2, 7, 6}}},
        {"conv 6 3x3x3 stride=2x1x1", {5, {2, 9, 8, 7, 4}}, {5, {2, 4, 6, 5, 6}}},
        {"maxpool 2", {4, {2, 9, 10, 1}}, {4, {2, 4, 5, 1}}},
        {"maxpool 3 stride=2 pad=1", {4, {2, 112, 112, 8}}, {4, {2, 56, 56, 8}}},
        {"avgpool 3 stride=1 pad=same", {3, {2, 9, 3}}, {3, {2, 9, 3}}},
        {"global_avgpool", {5, {2, 9, 8, 7, 4}}, {2, {2, 4}}},
        {"flatten", {4, {2, 9, 10, 3}}, {2, {2, 270}}},
        {"relu, gelu, sigmoid, tanh, layernorm, dropout 0.3", {2, {2, 7}}, {2, {2, 7}}},
    };
    for (size_t i = 0; i < TR_COUNT(cases); i++) {
        model_fixture_t f;
        char found[96];
        build(&f, cases[i].layers, cases[i].in, 0);
        if (!tr_shape_equal(tr_shape_of(f.g, f.result.output), &cases[i].out))
            fail_msg("%s: %s", cases[i].layers,
                     tr_shape_format(tr_shape_of(f.g, f.result.output), found));
        assert_true(tr_is_none(f.result.loss));
        fixture_close(&f);
    }
}

static void impossible_shapes_say_what_to_do(void **state) {
    /* The often-copied net of four convolutions and three poolings: 28 -> 24 12 -> 8 4 -> 2 1 ->
     * nothing left. */
    expect("conv 32 5x5, batchnorm, relu, maxpool 2, conv 64 5x5, batchnorm, relu, maxpool 2\n"
           "conv 128 3x3, batchnorm, relu, maxpool 2, conv 256 3x3, batchnorm, relu, globalpool, "
           "linear 10",
           mnist, 10, "2 & 43 & conv4 & 3x3 & (1, 1, 128) & pad=same");
    expect("linear 10", mnist, 10, "linear1 & (28, 28, 1) & globalpool");
    expect("flatten, conv 3 3", mnist, 10, "conv1 & (28, 28, 1) & (784)");
    expect("flatten, globalpool", mnist, 10, "globalpool & (784)");
    expect("conv 3 3x3x3", mnist, 10, "kernel & 'conv' & 3 & 2");
    expect("conv 4 3 groups=2", mnist, 10, "groups=2 & 1 & 4");
    expect("maxpool 2 pad=2", mnist, 10, "maxpool1 & 2");
    expect("conv 8 3, globalpool, linear 10", mnist, 12, "10 & data.y & 12 & linear 12");
    expect("conv 8 3", mnist, 10, "(26, 26, 8) & data.y & 10 & globalpool & flatten & linear 10");
    expect("flatten, linear 3", mnist, -4, "3 & data.y & 4 & linear 4");
    expect("", mnist, 10, "model.layers");
    expect("repeat 1000 { repeat 1000 { relu } }", mnist, 10, "10000");
    expect("relu name=a, tanh name=a", mnist, 10, "1 & 14 & 'a'");
    expect("relu name=relu2, relu", mnist, 10, "1 & 18 & 'relu2'");
    expect("repeat 2 { relu name=a }", mnist, 10, "'a' & repeat & name=");
}

static void residuals_that_do_not_fit_name_a_shortcut(void **state) {
    expect("conv 8 3 pad=same, residual { conv 16 3 stride=2 pad=same, relu }", mnist, 10,
           "residual1 & (14, 14, 16) & (28, 28, 8) & { conv 16 1 stride=2 bias=no, batchnorm }");
    expect("residual { conv 16 3 pad=same } { conv 8 1 }", mnist, 10,
           "{ conv 16 1 bias=no, batchnorm }");
    expect("flatten, residual { linear 10 }", mnist, 10, "{ linear 10 }");
}

static void concats(void **state) {
    model_fixture_t f;
    build(&f, "concat { conv 8 3 pad=same } { conv 4 1, relu } { }, globalpool, linear 10", mnist,
          10);
    find(&f, "concat1.branch1.conv1.weight");
    find(&f, "concat1.branch2.conv1.bias");
    tr_shape_t matrix = {2, {10, 13}};
    assert_true(tr_shape_equal(&find(&f, "linear1.weight")->shape, &matrix));
    fixture_close(&f);
    expect("concat { conv 8 3 } { conv 4 1 }", mnist, 10,
           "concat1 & (26, 26, 8) & 2 & (28, 28, 4) & pad=same");
}

static void taps(void **state) {
    model_fixture_t f;
    build(&f,
          "conv 8 3 pad=same, save a, repeat 2 { save b, conv 8 3 pad=same, add b, relu }\n"
          "concat a name=joined, globalpool, linear 10",
          mnist, 10);
    find(&f, "conv3.weight");
    tr_shape_t matrix = {2, {10, 16}};
    assert_true(tr_shape_equal(&find(&f, "linear1.weight")->shape, &matrix));
    fixture_close(&f);
    expect("save a, conv 8 3, globalpool, linear 10", mnist, 10, "line 1, column 1 & 'save a'");
    expect("save a, conv 8 3, save a, add a", mnist, 10, "line 1, column 1 & 'save a'");
    expect("save a, conv 8 3, concat b", mnist, 10, "column 19 & 'b' & 'a'");
    expect("add b, save b", mnist, 10, "column 1 & 'b'");
    expect("save a, conv 8 3 pad=same, add a", mnist, 10, "add1 & (28, 28, 8) & 'a' & (28, 28, 1)");
    expect("save a, maxpool 3, conv 8 3, concat a", mnist, 10,
           "concat1 & (7, 7, 8) & 'a' & (28, 28, 1)");
    expect("save a, concat a { conv 8 3 } { conv 8 3 }", mnist, 10, "concat");
    expect("concat", mnist, 10, "concat");
    expect("concat { conv 8 3 }", mnist, 10, "concat");
}

static const tr_shape_t *output_of(model_fixture_t *f, const char *layers, tr_shape_t x) {
    tr_tensor_t in, out;
    fixture_open(f);
    fixture_begin(f, "last", TR_TRAIN, x, 10);
    in = f->batch.tensor[0];
    if (tr_layers_append(f->g, f->config, &f->batch, layers, in, &out) != TR_OK)
        fail_msg("%s", tr_error_last()->message);
    return tr_shape_of(f->g, out);
}

static void layers_that_enlarge(void **state) {
    static const struct {
        const char *layers;
        int64_t height, width, channels;
    } cases[] = {{"upsample 2", 56, 56, 1},
                 {"upsample 3x1 mode=linear", 84, 28, 1},
                 {"convtranspose 6 2 stride=2", 56, 56, 6},
                 {"convtranspose 6 3 stride=2 pad=same bias=no, leakyrelu 0.2", 56, 56, 6},
                 {"convtranspose 6 4x3 stride=2x1 pad=1x0, relu", 56, 30, 6},
                 {"convtranspose 6 3 stride=2 pad=1 outpad=1", 56, 56, 6}};
    for (size_t i = 0; i < TR_COUNT(cases); i++) {
        model_fixture_t f;
        const tr_shape_t expected = {4, {4, cases[i].height, cases[i].width, cases[i].channels}};
        assert_true(tr_shape_equal(output_of(&f, cases[i].layers, mnist), &expected));
        fixture_close(&f);
    }
    expect("flatten, upsample 2", mnist, 10, "upsample & (784)");
    expect("upsample 2x2x2", mnist, 10, "factor & 3 & 2");
    expect("convtranspose 8 2 stride=2 outpad=2", mnist, 10,
           "convtranspose1 & outpad 2 & stride 2");
    expect("convtranspose 8 2 stride=3 pad=same", mnist, 10,
           "convtranspose1 & kernel 2 & stride 3");
    expect("convtranspose 8 2 pad=15", mnist, 10, "convtranspose1 & 15 & (28, 28, 1)");
}

static void group_normalisation(void **state) {
    model_fixture_t f;
    const tr_shape_t expected = {4, {4, 28, 28, 6}};
    assert_true(tr_shape_equal(
        output_of(&f, "conv 6 3 pad=same, groupnorm 3, relu, groupnorm 6 eps=1e-3", mnist),
        &expected));
    const tr_shape_t channels = TR_SHAPE(6);
    assert_true(tr_shape_equal(&find(&f, "groupnorm1.weight")->shape, &channels));
    assert_true(tr_shape_equal(&find(&f, "groupnorm2.bias")->shape, &channels));
    fixture_close(&f);
    expect("conv 6 3, groupnorm 4", mnist, 10, "groupnorm1 & 6 & 4");
    expect("flatten, linear 6, groupnorm 6, linear 10", mnist, 10, "groupnorm1 & 6 & (6)");
    expect("conv 6 3, groupnorm", mnist, 10, "groupnorm & GROUPS");
}

static void freezing(void **state) {
    model_fixture_t f;
    fixture_open(&f);
    fixture_set(&f, "model.layers",
                "conv 8 3 trainable=no, batchnorm, relu, residual trainable=no { conv 8 3 "
                "pad=same, batchnorm }\n"
                "conv 8 3, globalpool, linear 10");
    fixture_set(&f, "model.freeze", "batchnorm1.*,  linear?.bias");
    fixture_begin(&f, "last", TR_TRAIN, mnist, 10);
    assert_int_equal(fixture_build(&f), TR_OK);
    static const char *const frozen[] = {"conv1.weight", "conv1.bias", "batchnorm1.weight",
                                         "residual1.conv1.weight", "linear1.bias"};
    for (size_t i = 0; i < TR_COUNT(frozen); i++)
        if (find(&f, frozen[i])->param.trainable) fail_msg("%s is trainable", frozen[i]);
    assert_true(find(&f, "conv2.weight")->param.trainable);
    assert_true(find(&f, "linear1.weight")->param.trainable);
    /* Its moments go on: batch statistics normalise while training, so the running ones have to
     * follow. */
    assert_int_equal(find(&f, "batchnorm1.running_mean")->role, TR_ROLE_MODEL_STATE);
    fixture_close(&f);

    fixture_open(&f);
    fixture_set(&f, "model.layers", "flatten, linear 10");
    fixture_set(&f, "model.freeze", "linear1.bias, conv*");
    fixture_begin(&f, "last", TR_TRAIN, mnist, 10);
    fixture_expect_error(fixture_build(&f), TR_ERR_CONFIG, "'conv*' & 'linear1.weight'");
    fixture_close(&f);
}

static void patterns(void **state) {
    assert_true(tr_model_freezes("conv1.*", "conv1.weight"));
    assert_true(tr_model_freezes(" a ,\tconv?.bias , b", "conv1.bias"));
    assert_false(tr_model_freezes("conv1.*", "conv10.weight"));
    assert_false(tr_model_freezes("", "conv1.weight"));
    assert_false(tr_model_freezes(NULL, "conv1.weight"));
    assert_false(tr_model_freezes(" , ,", ""));
}

/* Batch normalisation over one value per channel: its output would not depend on its input. */
static void lone_moments(void **state) {
    static const struct {
        const char *layers, *mean;
        int64_t samples;
        tr_mode_t mode;
    } cases[] = {
        {"flatten, linear 4, batchnorm, linear 2", "batchnorm1.running_mean", 1, TR_TRAIN},
        {"conv 2 3, batchnorm, maxpool 2, residual { batchnorm }, flatten, linear 2",
         "residual1.batchnorm1.running_mean", 1, TR_TRAIN},
        {"flatten, linear 4, batchnorm, linear 2", NULL, 2, TR_TRAIN},
        {"conv 2 3, batchnorm, flatten, linear 2", NULL, 1, TR_TRAIN},
        {"flatten, linear 4, batchnorm, linear 2", NULL, 1, TR_EVAL},
    };
    for (size_t i = 0; i < TR_COUNT(cases); i++) {
        model_fixture_t f;
        fixture_open(&f);
        fixture_set(&f, "model.layers", cases[i].layers);
        fixture_set(&f, "model.freeze", "batchnorm*");
        if (!cases[i].mean) fixture_set(&f, "model.freeze", "");
        fixture_begin(&f, "last", cases[i].mode, TR_SHAPE(cases[i].samples, 4, 4, 1), 2);
        OK(fixture_build(&f));
        OK(tr_program_end(f.g));
        const tr_tensor_t mean = tr_lone_moments(f.g, f.program);
        assert_int_equal(tr_is_none(mean), !cases[i].mean);
        if (cases[i].mean) assert_string_equal(tr_tensor_info(f.g, mean)->name, cases[i].mean);
        fixture_close(&f);
    }
}

static void losses(void **state) {
    model_fixture_t f;
    fixture_open(&f);
    fixture_set(&f, "model.layers", "flatten, linear 10");
    fixture_set(&f, "model.topk", "5");
    fixture_begin(&f, "last", TR_TRAIN, mnist, 10);
    assert_int_equal(fixture_build(&f), TR_OK);
    assert_false(tr_is_none(f.result.correct));
    assert_false(tr_is_none(f.result.correct_topk));
    OK(tr_program_end(f.g));
    fixture_set(&f, "model.topk", "11");
    fixture_begin(&f, "other", TR_TRAIN, mnist, 10);
    fixture_expect_error(fixture_build(&f), TR_ERR_CONFIG, "model.topk & 11 & 10");
    fixture_set(&f, "model.loss", "mse");
    fixture_expect_error(fixture_build(&f), TR_ERR_CONFIG, "data.y & 10 & cross_entropy");
    fixture_close(&f);

    build(&f, "flatten, linear 4", mnist, -4);
    assert_true(tr_is_none(f.result.correct));
    assert_true(tr_shape_equal(tr_shape_of(f.g, f.result.loss), &TR_SHAPE(4)));
    fixture_set(&f, "model.loss", "cross_entropy");
    fixture_expect_error(fixture_build(&f), TR_ERR_CONFIG, "cross_entropy & data.y & mse");
    fixture_close(&f);
}

static void equal_builds_give_equal_ops(void **state) {
    model_fixture_t f;
    build(&f,
          "conv 8 3, batchnorm, relu, residual { conv 8 3 pad=same }, relu, globalpool, linear 16, "
          "relu, "
          "dropout 0.5, linear 10",
          mnist, 10);
    int first = f.program;
    int64_t parameters = fixture_parameters(&f);
    OK(tr_program_end(f.g));
    fixture_begin(&f, "again", TR_TRAIN, mnist, 10);
    assert_int_equal(fixture_build(&f), TR_OK);
    OK(tr_program_end(f.g));
    assert_int_equal(fixture_parameters(&f), parameters);
    int count = tr_program_op_count(f.g, first);
    assert_true(count > 5);
    assert_int_equal(tr_program_op_count(f.g, f.program), count);
    for (int i = 0; i < count; i++) {
        const tr_op_t *a = tr_program_op(f.g, first, i), *b = tr_program_op(f.g, f.program, i);
        assert_ptr_equal(a->row, b->row);
        assert_string_equal(a->label, b->label);
        assert_int_equal(a->attr_bytes, b->attr_bytes);
        if (a->attr_bytes > 0 && strcmp(a->row->name, "dropout") != 0)
            assert_memory_equal(a->attr, b->attr, a->attr_bytes);
        for (int k = 0; k < a->n_in; k++)
            if (tr_tensor_info(f.g, a->in[k])->role == TR_ROLE_PARAM)
                assert_int_equal(a->in[k].id, b->in[k].id);
    }
    fixture_close(&f);
}

static int count_ops(const model_fixture_t *f, const char *name) {
    int count = 0;
    for (int i = 0; i < tr_program_op_count(f->g, f->program); i++)
        count += strstr(tr_program_op(f->g, f->program, i)->row->name, name) != NULL;
    return count;
}

static void a_plain_relu_joins_the_op_before_it(void **state) {
    model_fixture_t f;
    build(&f,
          "conv 8 3, relu, batchnorm, relu, residual { relu }, relu, globalpool, linear 4, relu, "
          "linear 10",
          mnist, 10);
    /* the one that stands alone */
    assert_int_equal(count_ops(&f, "relu") + count_ops(&f, "act"), 1);
    fixture_close(&f);
    build(&f,
          "conv 8 3, relu name=a, batchnorm, relu name=b, globalpool, linear 4, gelu, linear 10",
          mnist, 10);
    assert_int_equal(count_ops(&f, "relu") + count_ops(&f, "gelu") + count_ops(&f, "act"), 3);
    fixture_close(&f);
}

static tr_status_t build_own(tr_graph_t *g, const tr_config_t *config,
                             const tr_model_batch_t *batch, tr_model_result_t *out) {
    tr_tensor_t w, y;
    tr_param_spec_t spec = {
        .init = {TR_INIT_CONST, 0.5}, .trainable = true, .decay = true, .lr_factor = 1};
    TR_TRY(tr_param(g, "own.weight", &TR_SHAPE(10, 6), &spec, &w));
    TR_TRY(tr_linear(g, batch->tensor[0], w, TR_NONE, TR_ACT_NONE, &y));
    return tr_model_loss(g, config, batch, y, out);
}

static void programs_register_models_of_their_own(void **state) {
    static const tr_model_t own = {.name = "own", .help = "A test's.", .build = build_own};
    model_fixture_t f;
    const tr_model_t *found;
    OK(tr_model_register(&own));
    fixture_expect_error(tr_model_register(&own), TR_ERR_CONFIG, "'own'");
    fixture_expect_error(tr_model_find("sequentail", &found), TR_ERR_CONFIG,
                         "'sequentail' & 'sequential'");
    fixture_expect_error(tr_model_find("transformer", &found), TR_ERR_CONFIG,
                         "'transformer' & sequential & own");
    fixture_open(&f);
    fixture_set(&f, "model.type", "own");
    fixture_begin(&f, "last", TR_TRAIN, TR_SHAPE(3, 6), 10);
    assert_int_equal(fixture_build(&f), TR_OK);
    assert_int_equal(fixture_parameters(&f), 60);
    fixture_close(&f);
}

/* Parameters of the shipped configs: counted by hand, and as published. */
static void shipped_configs_have_their_parameters(void **state) {
    static const struct {
        const char *file;
        tr_shape_t x;
        int64_t classes, parameters;
        bool is_dense;
    } configs[] = {
        {"mnist_mlp.ini", {4, {4, 28, 28, 1}}, 10, 203530, false},
        {"mnist_cnn.ini", {4, {4, 28, 28, 1}}, 10, 463402, false},
        {"cifar10_resnet20.ini", {4, {4, 32, 32, 3}}, 10, 272474, false},
        {"imagenet_resnet50.ini", {4, {2, 224, 224, 3}}, 1000, 25557032, false},
        {"cosmoflow_tiny.ini", {5, {2, 32, 32, 32, 4}}, -4, 87908, false},
        {"unet_tiny.ini", {4, {2, 64, 64, 1}}, 3, 105915, true},
        {"unet3d_tiny.ini", {5, {2, 24, 24, 24, 1}}, 3, 211515, true},
        {"deepcam.ini", {4, {1, 768, 1152, 16}}, 3, 31045251, true},
    };
    const char *root = getenv("TRAINER_ROOT");
    for (size_t i = 0; i < TR_COUNT(configs); i++) {
        model_fixture_t f;
        char path[4096];
        snprintf(path, sizeof path, "%s/configs/%s", root != NULL ? root : ".", configs[i].file);
        fixture_open(&f);
        fixture_load(&f, path);
        tr_shape_t y = configs[i].x;
        y.ndim--; /* a label of each position */
        if (configs[i].is_dense)
            fixture_begin_dense(&f, "last", TR_TRAIN, configs[i].x, y, configs[i].classes);
        else
            fixture_begin(&f, "last", TR_TRAIN, configs[i].x, configs[i].classes);
        f.batch.class_weights = (float[]){1, 1, 1}; /* for balanced */
        if (fixture_build(&f) != TR_OK)
            fail_msg("%s: %s", configs[i].file, tr_error_last()->message);
        if (fixture_parameters(&f) != configs[i].parameters)
            fail_msg("%s: %lld parameters", configs[i].file, (long long)fixture_parameters(&f));
        fixture_close(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_kinds_of_parameters),
        cmocka_unit_test(initial_values_have_their_scale),
        cmocka_unit_test(windows),
        cmocka_unit_test(impossible_shapes_say_what_to_do),
        cmocka_unit_test(residuals_that_do_not_fit_name_a_shortcut),
        cmocka_unit_test(concats),
        cmocka_unit_test(taps),
        cmocka_unit_test(layers_that_enlarge),
        cmocka_unit_test(group_normalisation),
        cmocka_unit_test(freezing),
        cmocka_unit_test(patterns),
        cmocka_unit_test(lone_moments),
        cmocka_unit_test(losses),
        cmocka_unit_test(equal_builds_give_equal_ops),
        cmocka_unit_test(a_plain_relu_joins_the_op_before_it),
        cmocka_unit_test(programs_register_models_of_their_own),
        cmocka_unit_test(shipped_configs_have_their_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
