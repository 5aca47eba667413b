/* Batch and layer normalisation, and the way of the running moments. */
#include "../../support/op_harness.h"
#include <math.h>
#include <string.h>

typedef struct {
    float eps, momentum;
    tr_act_t act;
} norm_t;

/* -- batch normalisation ----------------------------------------------------------------------- */

static tr_status_t build_batchnorm(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                   tr_tensor_t *out) {
    const norm_t *norm = c->attr;
    tr_tensor_t mean, var;
    tr_shape_t channels = c->in[1].shape;
    TR_TRY(tr_model_state(g, "running_mean", &channels, 0.25, &mean));
    TR_TRY(tr_model_state(g, "running_var", &channels, 4, &var));
    return tr_batchnorm(g, in[0], in[1], in[2], mean, var, norm->eps, norm->momentum, norm->act,
                        out);
}

static void moments(const double *x, int64_t rows, int64_t channels, int64_t c, double *mean,
                    double *var) {
    *mean = *var = 0;
    for (int64_t r = 0; r < rows; r++) *mean += x[r * channels + c] / (double)rows;
    for (int64_t r = 0; r < rows; r++) *var += pow(x[r * channels + c] - *mean, 2) / (double)rows;
}

static void batchnorm(const op_case_t *c, const double *const *in, double *y) {
    const norm_t *norm = c->attr;
    int64_t channels = c->in[1].shape.dim[0], rows = tr_shape_elems(&c->out) / channels;
    for (int64_t k = 0; k < channels; k++) {
        double mean = 0.25, var = 4;
        if (c->mode == TR_TRAIN) moments(in[0], rows, channels, k, &mean, &var);
        for (int64_t r = 0; r < rows; r++)
            y[r * channels + k] = op_act(
                norm->act,
                (in[0][r * channels + k] - mean) / sqrt(var + norm->eps) * in[1][k] + in[2][k]);
    }
}

static void check_batchnorm(tr_shape_t x, tr_act_t act, tr_mode_t mode) {
    norm_t norm = {1e-3f, 0.1f, act};
    tr_shape_t channels = TR_SHAPE(x.dim[x.ndim - 1]);
    op_case_t c = {"batchnorm",
                   3,
                   {{"x", x, -2, 3, .half = true}, {"gamma", channels, 0.5, 2}, {"beta", channels}},
                   &norm,
                   mode,
                   x};
    c.build = build_batchnorm;
    c.reference = batchnorm;
    c.rounds_inside = act > TR_ACT_RELU;
    op_check(&c);
}

/* act(batchnorm(x) + a), which is one record where the device has a kernel for it and nothing else
 * reads the normalised values. The harness compares it with two records, bit for bit. */
static tr_status_t build_sum(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                             tr_tensor_t *out) {
    const norm_t *norm = c->attr, plain = {norm->eps, norm->momentum, TR_ACT_NONE};
    op_case_t of_norm = *c;
    tr_tensor_t y;
    of_norm.attr = &plain;
    TR_TRY(build_batchnorm(g, &of_norm, in, &y));
    return tr_add(g, y, in[3], norm->act, out);
}

static void sum(const op_case_t *c, const double *const *in, double *y) {
    const norm_t *norm = c->attr, plain = {norm->eps, norm->momentum, TR_ACT_NONE};
    op_case_t of_norm = *c;
    of_norm.attr = &plain;
    batchnorm(&of_norm, in, y);
    for (int64_t i = 0; i < tr_shape_elems(&c->out); i++) y[i] = op_act(norm->act, y[i] + in[3][i]);
}

static void check_sum(tr_shape_t x, tr_act_t act) {
    norm_t norm = {1e-3f, 0.1f, act};
    tr_shape_t channels = TR_SHAPE(x.dim[x.ndim - 1]);
    op_case_t c = {"batchnorm + a",
                   4,
                   {{"x", x, -2, 3, .half = true},
                    {"gamma", channels, 0.5, 2},
                    {"beta", channels},
                    {"a", x, -1, 1, .half = true}},
                   &norm,
                   TR_TRAIN,
                   x};
    c.build = build_sum;
    c.reference = sum;
    c.rounds_inside = true;
    op_check(&c);
}

static void batchnorm_and_sum(void **state) {
    check_sum(TR_SHAPE(9, 5), TR_ACT_NONE);
    check_sum(TR_SHAPE(3, 3, 5, 7), TR_ACT_RELU);
    check_sum(TR_SHAPE(2, 2, 2, 64), TR_ACT_RELU);
}

static void batchnorm_in_training(void **state) {
    check_batchnorm(TR_SHAPE(9, 5), TR_ACT_NONE, TR_TRAIN);
    check_batchnorm(TR_SHAPE(3, 3, 5, 7), TR_ACT_NONE, TR_TRAIN);
    check_batchnorm(TR_SHAPE(2, 2, 3, 2, 3), TR_ACT_NONE, TR_TRAIN);
    check_batchnorm(TR_SHAPE(2, 1, 1, 17), TR_ACT_NONE, TR_TRAIN);
}

static void batchnorm_with_relu(void **state) {
    check_batchnorm(TR_SHAPE(3, 3, 5, 7), TR_ACT_RELU, TR_TRAIN);
    check_batchnorm(TR_SHAPE(13, 1), TR_ACT_RELU, TR_TRAIN);
}

static void batchnorm_with_an_unfused_activation(void **state) {
    check_batchnorm(TR_SHAPE(4, 3, 5), TR_ACT_GELU, TR_TRAIN);
}

static void batchnorm_in_eval(void **state) {
    check_batchnorm(TR_SHAPE(2, 3, 5, 7), TR_ACT_NONE, TR_EVAL);
    check_batchnorm(TR_SHAPE(9, 5), TR_ACT_RELU, TR_EVAL);
    check_batchnorm(TR_SHAPE(1, 3), TR_ACT_TANH, TR_EVAL);
}

/* -- running moments: two layers, two training programs, one update ---------------------------- */

enum { ROWS = 6, CHANNELS = 3, SLOTS = 2 };

static tr_status_t build_layer(tr_graph_t *g, const char *name, tr_tensor_t x, tr_tensor_t *out) {
    tr_shape_t channels = TR_SHAPE(CHANNELS);
    tr_param_spec_t spec = {.init = {TR_INIT_CONST, 1}, .trainable = true};
    tr_tensor_t gamma, beta, mean, var;
    tr_scope_push(g, name);
    TR_TRY(tr_param(g, "weight", &channels, &spec, &gamma));
    TR_TRY(tr_param(g, "bias", &channels, &spec, &beta));
    TR_TRY(tr_model_state(g, "running_mean", &channels, 0, &mean));
    TR_TRY(tr_model_state(g, "running_var", &channels, 1, &var));
    TR_TRY(tr_batchnorm(g, x, gamma, beta, mean, var, 1e-5f, 0.1f, TR_ACT_NONE, out));
    tr_scope_pop(g);
    return TR_OK;
}

static void build_training(op_bench_t *b, const char *name, bool recompute, bool accumulate,
                           tr_tensor_t *x) {
    tr_tensor_t y, seed;
    if (strcmp(name, "test") != 0) MUST(tr_program_begin(b->g, name, TR_TRAIN, &b->program));
    MUST(tr_input(b->g, "x", TR_F32, &TR_SHAPE(ROWS, CHANNELS), x));
    MUST(tr_input(b->g, "seed", TR_F32, &TR_SHAPE(ROWS, CHANNELS), &seed));
    if (recompute) tr_recompute_begin(b->g);
    MUST(build_layer(b->g, "bn1", *x, &y));
    MUST(build_layer(b->g, "bn2", y, &y));
    if (recompute) tr_recompute_end(b->g);
    MUST(tr_backward(b->g, y, seed, accumulate));
    MUST(tr_program_end(b->g));
}

static int count_ops(const tr_graph_t *g, int program, const char *name) {
    int count = 0;
    for (int i = 0; i < tr_program_op_count(g, program); i++) {
        const tr_op_t *op = tr_program_op(g, program, i);
        count += op->row && strcmp(op->row->name, name) == 0;
    }
    return count;
}

/* Both micro-batches of a step leave their moments once, recompute or not; the update takes their
 * mean. */
static void check_moments(const char *device, bool recompute) {
    double x[2][ROWS * CHANNELS], mean[CHANNELS] = {0}, var[CHANNELS];
    for (int k = 0; k < CHANNELS; k++) var[k] = 0.9;
    for (int slot = 0; slot < SLOTS; slot++) {
        for (int i = 0; i < ROWS * CHANNELS; i++)
            x[slot][i] = (float)op_random("moments", slot * 100 + i, -1, 3);
        for (int k = 0; k < CHANNELS; k++) {
            double m, v;
            moments(x[slot], ROWS, CHANNELS, k, &m, &v);
            mean[k] += 0.1 * m / SLOTS;
            var[k] += 0.1 * v * ROWS / (ROWS - 1) / SLOTS;
        }
    }
    tr_tensor_t in;
    op_bench_t b = op_begin(device, TR_TRAIN);
    int micro = b.program, last, update;
    build_training(&b, "test", recompute, true, &in);
    build_training(&b, "last", recompute, true, &in);
    last = b.program;
    MUST(tr_program_begin(b.g, "update", TR_PLAIN, &update));
    MUST(tr_update_moments(b.g, SLOTS));
    assert_int_equal(count_ops(b.g, update, "moments_update"), 1);
    assert_int_equal(count_ops(b.g, micro, "batchnorm_train"), recompute ? 4 : 2);
    op_ready(&b);
    op_write(&b, in, x[0]);
    MUST(tr_program_run(b.g, micro, NULL));
    op_write(&b, in, x[1]);
    MUST(tr_program_run(b.g, last, NULL));
    MUST(tr_tensor_write(b.g, tr_graph_result(b.g), &(tr_step_result_t){.finite = 1}));
    MUST(tr_program_run(b.g, update, NULL));
    float *running_mean = op_read(&b, tr_graph_find(b.g, "op.bn1.running_mean"));
    float *running_var = op_read(&b, tr_graph_find(b.g, "op.bn1.running_var"));
    op_assert_close("running mean", running_mean, mean, CHANNELS, 1e-5);
    op_assert_close("running variance", running_var, var, CHANNELS, 1e-5);

    /* A step that is not finite changes nothing. */
    MUST(tr_tensor_write(b.g, tr_graph_result(b.g), &(tr_step_result_t){.finite = 0}));
    MUST(tr_program_run(b.g, update, NULL));
    float *again = op_read(&b, tr_graph_find(b.g, "op.bn1.running_mean"));
    assert_memory_equal(again, running_mean, CHANNELS * sizeof(float));
    test_free(running_mean);
    test_free(running_var);
    test_free(again);
    op_end(&b);
}

static void running_moments(void **state) {
    op_devices_t devices = op_devices();
    for (int i = 0; i < devices.count; i++)
        for (int recompute = 0; recompute < 2; recompute++)
            check_moments(devices.name[i], recompute);
}

/* One step of a program that normalises x and -2 x, by one layer or by two whose states are in one
 * scope. */
static void step_of_two_inputs(const char *device, bool one_layer, const double *x,
                               const char *state, const double *expected) {
    const tr_shape_t channels = TR_SHAPE(CHANNELS);
    tr_tensor_t in, ones, zeros, mean, var, y;
    int update;
    op_bench_t b = op_begin(device, TR_TRAIN);
    MUST(tr_input(b.g, "x", TR_F32, &TR_SHAPE(ROWS, CHANNELS), &in));
    MUST(tr_const(b.g, "ones", &channels, 1, &ones));
    MUST(tr_const(b.g, "zeros", &channels, 0, &zeros));
    for (int i = 0; i < 2; i++) {
        MUST(tr_model_state(b.g, i && !one_layer ? "mean2" : "mean1", &channels, 0, &mean));
        MUST(tr_model_state(b.g, i && !one_layer ? "var2" : "var1", &channels, 1, &var));
        MUST(tr_scale(b.g, in, i ? -2 : 1, &y));
        MUST(tr_batchnorm(b.g, y, ones, zeros, mean, var, 1e-5f, 0.1f, TR_ACT_NONE, &y));
    }
    MUST(tr_program_end(b.g));
    MUST(tr_program_begin(b.g, "update", TR_PLAIN, &update));
    MUST(tr_update_moments(b.g, 1));
    op_ready(&b);
    op_write(&b, in, x);
    op_run(&b);
    MUST(tr_tensor_write(b.g, tr_graph_result(b.g), &(tr_step_result_t){.finite = 1}));
    MUST(tr_program_run(b.g, update, NULL));
    float *found = op_read(&b, tr_graph_find(b.g, state));
    op_assert_close(state, found, expected, CHANNELS, 1e-5);
    test_free(found);
    op_end(&b);
}

static void running_moments_of_a_layer_used_twice_and_of_two_in_one_scope(void **state) {
    op_devices_t devices = op_devices();
    double x[ROWS * CHANNELS], first[CHANNELS], second[CHANNELS], both[CHANNELS], var[CHANNELS];
    for (int i = 0; i < ROWS * CHANNELS; i++) x[i] = (float)op_random("two inputs", i, -1, 3);
    for (int k = 0; k < CHANNELS; k++) {
        double m, v;
        moments(x, ROWS, CHANNELS, k, &m, &v);
        first[k] = 0.1 * m, second[k] = 0.1 * -2 * m;
        both[k] = (first[k] + second[k]) / 2;
        var[k] = 0.9 + 0.1 * (1 + 4) / 2 * v * ROWS / (ROWS - 1);
    }
    for (int i = 0; i < devices.count; i++) {
        step_of_two_inputs(devices.name[i], true, x, "op.mean1", both);
        step_of_two_inputs(devices.name[i], true, x, "op.var1", var);
        step_of_two_inputs(devices.name[i], false, x, "op.mean1", first);
        step_of_two_inputs(devices.name[i], false, x, "op.mean2", second);
    }
}

/* -- layer normalisation ----------------------------------------------------------------------- */

static tr_status_t build_layernorm(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                   tr_tensor_t *out) {
    return tr_layernorm(g, in[0], in[1], in[2], ((const norm_t *)c->attr)->eps, out);
}

static void layernorm(const op_case_t *c, const double *const *in, double *y) {
    double eps = ((const norm_t *)c->attr)->eps;
    int64_t channels = c->in[1].shape.dim[0], rows = tr_shape_elems(&c->out) / channels;
    for (int64_t r = 0; r < rows; r++) {
        double mean, var;
        moments(in[0] + r * channels, channels, 1, 0, &mean, &var);
        for (int64_t k = 0; k < channels; k++)
            y[r * channels + k] =
                (in[0][r * channels + k] - mean) / sqrt(var + eps) * in[1][k] + in[2][k];
    }
}

static void check_layernorm(tr_shape_t x) {
    norm_t norm = {.eps = 1e-4f};
    tr_shape_t channels = TR_SHAPE(x.dim[x.ndim - 1]);
    op_case_t c = {"layernorm",
                   3,
                   {{"x", x, -1, 4, .half = true}, {"gamma", channels, 0.5, 2}, {"beta", channels}},
                   &norm};
    c.out = x;
    c.build = build_layernorm;
    c.reference = layernorm;
    op_check(&c);
}

static void layernorm_of_any_rank(void **state) {
    check_layernorm(TR_SHAPE(7, 13));
    check_layernorm(TR_SHAPE(1, 33));
    check_layernorm(TR_SHAPE(2, 3, 17));
    check_layernorm(TR_SHAPE(2, 2, 3, 5));
}

/* -- group normalisation ----------------------------------------------------------------------- */

static tr_status_t build_groupnorm(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                   tr_tensor_t *out) {
    return tr_groupnorm(g, in[0], in[1], in[2], c->attr, out);
}

static void groupnorm(const op_case_t *c, const double *const *in, double *y) {
    const tr_groupnorm_attr_t *attr = c->attr;
    const int64_t channels = c->in[1].shape.dim[0], samples = c->out.dim[0],
                  rows = tr_shape_elems(&c->out) / (channels * samples),
                  of_group = channels / attr->groups, count = rows * of_group;
    double *values = test_malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < samples * attr->groups; i++) {
        const int64_t first = i / attr->groups * rows * channels + i % attr->groups * of_group;
        double mean, var;
        for (int64_t j = 0; j < count; j++)
            values[j] = in[0][first + j / of_group * channels + j % of_group];
        moments(values, count, 1, 0, &mean, &var);
        for (int64_t j = 0; j < count; j++) {
            const int64_t at = first + j / of_group * channels + j % of_group, k = at % channels;
            const double v = (values[j] - mean) / sqrt(var + attr->eps) * in[1][k] + in[2][k];
            y[at] = attr->act == TR_ACT_RELU && v < 0 ? 0 : v;
        }
    }
    test_free(values);
}

/* offset: of the inputs, against which their deviation is small */
static void check_groupnorm(tr_shape_t x, int groups, tr_act_t act, double offset) {
    const tr_groupnorm_attr_t attr = {.eps = 1e-4f, .act = act, .groups = groups};
    const tr_shape_t channels = TR_SHAPE(x.dim[x.ndim - 1]);
    op_case_t c = {"groupnorm",
                   3,
                   {{"x", x, offset - 1, offset + 4, .half = offset == 0},
                    {"gamma", channels, 0.5, 2},
                    {"beta", channels, 0.25, 1}},
                   &attr,
                   .needs = TR_K_GROUPNORM_FWD};
    c.out = x;
    c.build = build_groupnorm;
    c.reference = groupnorm;
    if (offset != 0) c.tolerance = c.grad_tolerance = 1e-3;
    op_check(&c);
}

static void groupnorm_of_any_rank(void **state) {
    check_groupnorm(TR_SHAPE(3, 12), 3, TR_ACT_NONE, 0);
    check_groupnorm(TR_SHAPE(2, 7, 6), 6, TR_ACT_NONE, 0);
    check_groupnorm(TR_SHAPE(3, 5, 7, 10), 1, TR_ACT_NONE, 0);
    check_groupnorm(TR_SHAPE(2, 4, 3, 5, 8), 2, TR_ACT_NONE, 0);
    check_groupnorm(TR_SHAPE(2, 3, 3, 300), 100, TR_ACT_NONE, 0);
    check_groupnorm(TR_SHAPE(2, 200, 3), 3, TR_ACT_NONE, 1000);
}

/* By the finite differences of values that are not near 0. */
static void groupnorm_with_relu(void **state) {
    check_groupnorm(TR_SHAPE(2, 5, 6, 8), 4, TR_ACT_RELU, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batchnorm_in_training),
        cmocka_unit_test(batchnorm_with_relu),
        cmocka_unit_test(batchnorm_and_sum),
        cmocka_unit_test(batchnorm_with_an_unfused_activation),
        cmocka_unit_test(batchnorm_in_eval),
        cmocka_unit_test(running_moments),
        cmocka_unit_test(running_moments_of_a_layer_used_twice_and_of_two_in_one_scope),
        cmocka_unit_test(layernorm_of_any_rank),
        cmocka_unit_test(groupnorm_of_any_rank),
        cmocka_unit_test(groupnorm_with_relu),
    };
    return cmocka_run_group_tests_name("ops: normalisation", tests, NULL, NULL);
}
