/* Models run on strict: fused and unfused activations agree, trainable moves and frozen stays,
 * evaluation is not training. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "model_fixture.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROWS 6

#define ok(expr)                                                                                   \
    do {                                                                                           \
        if ((expr) != TR_OK) fail_msg("%s", tr_error_last()->message);                             \
    } while (0)

typedef struct {
    model_fixture_t f;
    int train, update, eval;
    tr_tensor_t gradient, eval_output;
} net_t;

static const tr_shape_t image = {4, {ROWS, 9, 8, 3}};

static void write_batch(net_t *n) {
    float x[ROWS * 9 * 8 * 3], weight[ROWS];
    int32_t y[ROWS];
    int64_t id[ROWS];
    tr_rng_t rng = tr_rng_make(3, TR_RNG_TEST, 0, 0);
    tr_step_t block = {.seed = 5, .step = 0, .lr = 0.01f, .weight_decay_scale = 1};
    for (size_t i = 0; i < TR_COUNT(x); i++) x[i] = (float)tr_rng_normal(&rng);
    for (int i = 0; i < ROWS; i++) weight[i] = 1, y[i] = i % 4, id[i] = i;
    ok(tr_tensor_write(n->f.g, n->f.batch.tensor[0], x));
    ok(tr_tensor_write(n->f.g, n->f.batch.tensor[1], y));
    ok(tr_tensor_write(n->f.g, n->f.batch.weight, weight));
    ok(tr_tensor_write(n->f.g, n->f.batch.sample_id, id));
    ok(tr_tensor_write(n->f.g, tr_graph_step(n->f.g), &block));
}

/* Programs for training, the update of running moments, and evaluation; planned, initialised, with
 * a batch in place. */
static void open_net_with(net_t *n, const char *layers, const char *key, const char *value) {
    tr_tensor_t seed, counts;
    memset(n, 0, sizeof *n);
    fixture_open(&n->f);
    fixture_set(&n->f, "model.layers", layers);
    fixture_set(&n->f, key, value);
    tr_graph_t *g = n->f.g;
    fixture_begin(&n->f, "last", TR_TRAIN, image, 4);
    n->train = n->f.program;
    ok(fixture_build(&n->f));
    ok(tr_keep(g, n->f.result.loss));
    ok(tr_const(g, "seed", &TR_SHAPE(ROWS), 1.0 / ROWS, &seed));
    ok(tr_reduced(g, "counts", 2, &counts));
    ok(tr_backward(g, n->f.result.loss, seed, false));
    ok(tr_program_end(g));
    tr_model_result_t trained = n->f.result;
    ok(tr_reduced_range(g, 0, tr_graph_layout(g).trainable_elems, &n->gradient));
    ok(tr_program_begin(g, "update", TR_PLAIN, &n->update));
    ok(tr_grad_norm(g, n->gradient, counts, TR_NONE, &(tr_grad_norm_attr_t){.batch_size = ROWS}));
    ok(tr_update_moments(g, 1));
    ok(tr_program_end(g));
    fixture_begin(&n->f, "eval", TR_EVAL, image, 4);
    n->eval = n->f.program;
    ok(fixture_build(&n->f));
    ok(tr_program_end(g));
    ok(tr_keep(g, n->f.result.output));
    n->eval_output = n->f.result.output;
    n->f.result = trained;
    ok(tr_graph_plan(g, 0));
    ok(tr_graph_allocate(g));
    ok(tr_graph_init_params(g, 11));
    write_batch(n);
}

static void open_net(net_t *n, const char *layers, const char *freeze) {
    open_net_with(n, layers, "model.freeze", freeze);
}

static void close_net(net_t *n) {
    fixture_close(&n->f);
}

static float *read_gradient(net_t *n, int64_t *out_count) {
    float *values;
    *out_count = tr_graph_layout(n->f.g).trainable_elems;
    ok(tr_alloc((size_t)*out_count * sizeof(float), "test", &values));
    ok(tr_tensor_read(n->f.g, n->gradient, values));
    return values;
}

static void train_once(net_t *n) {
    float counts[2] = {ROWS, 0};
    ok(tr_graph_zero_reduced(n->f.g));
    ok(tr_program_run(n->f.g, n->train, NULL));
    ok(tr_tensor_write(n->f.g, tr_graph_find(n->f.g, "counts"), counts));
    ok(tr_program_run(n->f.g, n->update, NULL));
}

static void expect_near(const float *a, const float *b, int64_t count, const char *what) {
    double largest = 0, difference = 0;
    for (int64_t i = 0; i < count; i++) {
        assert_true(isfinite(a[i]));
        largest = fmax(largest, fabs(a[i]));
        difference = fmax(difference, fabs(a[i] - b[i]));
    }
    if (largest == 0 || difference > 1e-5 * largest)
        fail_msg("%s: largest %g, difference %g", what, largest, difference);
}

/* Gradients and running moments of two steps, and the arena. */
static float *recomputed(const char *every, int64_t *out_count, size_t *out_arena) {
    static const char layers[] =
        "conv 8 3 pad=same, batchnorm, relu\n"
        "save a, repeat 3 { save b, conv 8 3 pad=same, relu, residual { conv 8 3 pad=same, "
        "batchnorm }, relu, add b }, concat a\n"
        "dropout 0.3, maxpool 2, flatten, linear 16, tanh, linear 4";
    net_t n;
    open_net_with(&n, layers, "model.recompute", every);
    train_once(&n);
    train_once(&n);
    float *values, *gradient = read_gradient(&n, out_count);
    ok(tr_alloc((size_t)(*out_count + 16) * sizeof(float), "test", &values));
    memcpy(values, gradient, (size_t)*out_count * sizeof(float));
    ok(tr_tensor_read(n.f.g, tr_graph_find(n.f.g, "batchnorm1.running_mean"), values + *out_count));
    ok(tr_tensor_read(n.f.g, tr_graph_find(n.f.g, "batchnorm1.running_var"),
                      values + *out_count + 8));
    *out_count += 16;
    *out_arena = tr_graph_memory(n.f.g).arena;
    tr_free(&gradient);
    close_net(&n);
    return values;
}

static void recomputed_layers_have_the_same_bits_and_less_memory(void **state) {
    static const char *const every[] = {"1", "3", "4", "100"};
    int64_t count, other;
    size_t stored, arena;
    float *kept = recomputed("none", &count, &stored);
    for (size_t i = 0; i < TR_COUNT(every); i++) {
        float *again = recomputed(every[i], &other, &arena);
        assert_int_equal(count, other);
        assert_memory_equal(kept, again, (size_t)count * sizeof *kept);
        if (strcmp(every[i], "4") == 0) assert_true(arena < stored);
        tr_free(&again);
    }
    tr_free(&kept);
    model_fixture_t f;
    fixture_open(&f);
    fixture_set(&f, "model.layers", "flatten, linear 4");
    fixture_set(&f, "model.recompute", "block");
    fixture_begin(&f, "last", TR_TRAIN, image, 4);
    fixture_expect_error(fixture_build(&f), TR_ERR_CONFIG, "model.recompute & 'block'");
    fixture_close(&f);
}

/* relu with a name of its own is never taken into the op before it. */
static void fused_and_unfused_give_the_same(void **state) {
    static const char *const fused = "conv 5 3, relu, conv 6 3 pad=same bias=no, batchnorm, relu, "
                                     "residual { conv 6 3 pad=same }, relu\n"
                                     "globalpool, linear 7, relu, linear 4";
    static const char *const apart =
        "conv 5 3, relu name=a, conv 6 3 pad=same bias=no, batchnorm, relu "
        "name=b, residual { conv 6 3 pad=same }, relu name=c\n"
        "globalpool, linear 7, relu name=d, linear 4";
    net_t a, b;
    float loss_a[ROWS], loss_b[ROWS];
    int64_t count_a, count_b;
    open_net(&a, fused, "");
    open_net(&b, apart, "");
    assert_true(tr_program_op_count(a.f.g, a.train) < tr_program_op_count(b.f.g, b.train));
    train_once(&a);
    train_once(&b);
    ok(tr_tensor_read(a.f.g, a.f.result.loss, loss_a));
    ok(tr_tensor_read(b.f.g, b.f.result.loss, loss_b));
    expect_near(loss_a, loss_b, ROWS, "loss");
    float *gradient_a = read_gradient(&a, &count_a), *gradient_b = read_gradient(&b, &count_b);
    assert_int_equal(count_a, count_b);
    expect_near(gradient_a, gradient_b, count_a, "gradient");
    tr_free(&gradient_a);
    tr_free(&gradient_b);
    close_net(&a);
    close_net(&b);
}

static void repeat_is_writing_it_out(void **state) {
    net_t a, b;
    float loss_a[ROWS], loss_b[ROWS];
    open_net(&a, "repeat 2 { conv 4 3 pad=same, batchnorm, relu }, globalpool, linear 4", "");
    open_net(&b,
             "conv 4 3 pad=same, batchnorm, relu, conv 4 3 pad=same, batchnorm, relu, globalpool, "
             "linear 4",
             "");
    train_once(&a);
    train_once(&b);
    ok(tr_tensor_read(a.f.g, a.f.result.loss, loss_a));
    ok(tr_tensor_read(b.f.g, b.f.result.loss, loss_b));
    assert_memory_equal(loss_a, loss_b, sizeof loss_a);
    close_net(&a);
    close_net(&b);
}

static void copy_param(net_t *from, const char *name, net_t *to, const char *as) {
    float values[1024];
    const tr_tensor_t t = tr_graph_find(from->f.g, name);
    assert_true(tr_shape_elems(tr_shape_of(from->f.g, t)) <= (int64_t)TR_COUNT(values));
    ok(tr_tensor_read(from->f.g, t, values));
    ok(tr_tensor_write(to->f.g, tr_graph_find(to->f.g, as), values));
}

/* A saved tensor is what a block of residual or concat would have had. */
static void taps_are_blocks_written_out(void **state) {
    static const struct {
        const char *taps, *blocks, *scope;
    } pairs[] = {{"conv 6 3, save a, conv 6 3 pad=same, add a, relu, globalpool, linear 4",
                  "conv 6 3, residual { conv 6 3 pad=same }, relu, globalpool, linear 4",
                  "residual1"},
                 {"conv 6 3, save a, conv 5 3 pad=same, relu, concat a, globalpool, linear 4",
                  "conv 6 3, concat { conv 5 3 pad=same, relu } { }, globalpool, linear 4",
                  "concat1.branch1"}};
    for (size_t i = 0; i < TR_COUNT(pairs); i++) {
        net_t a, b;
        float loss_a[ROWS], loss_b[ROWS];
        char weight[64], bias[64];
        int64_t count_a, count_b;
        open_net(&a, pairs[i].taps, "");
        open_net(&b, pairs[i].blocks, "");
        snprintf(weight, sizeof weight, "%s.conv1.weight", pairs[i].scope);
        snprintf(bias, sizeof bias, "%s.conv1.bias", pairs[i].scope);
        copy_param(&a, "conv2.weight", &b, weight);
        copy_param(&a, "conv2.bias", &b, bias);
        ok(tr_graph_zero_reduced(a.f.g));
        ok(tr_graph_zero_reduced(b.f.g));
        ok(tr_program_run(a.f.g, a.train, NULL));
        ok(tr_program_run(b.f.g, b.train, NULL));
        ok(tr_tensor_read(a.f.g, a.f.result.loss, loss_a));
        ok(tr_tensor_read(b.f.g, b.f.result.loss, loss_b));
        assert_memory_equal(loss_a, loss_b, sizeof loss_a);
        float *gradient_a = read_gradient(&a, &count_a), *gradient_b = read_gradient(&b, &count_b);
        assert_int_equal(count_a, count_b);
        expect_near(gradient_a, gradient_b, count_a, "gradient");
        tr_free(&gradient_a);
        tr_free(&gradient_b);
        close_net(&a);
        close_net(&b);
    }
}

static void frozen_norms_keep_their_moments_going(void **state) {
    net_t n;
    float mean[4], variance[4];
    open_net(&n, "conv 4 3 trainable=no, batchnorm, relu, globalpool, linear 4", "batchnorm1.*");
    train_once(&n);
    assert_int_equal(tr_graph_layout(n.f.g).frozen_elems > 0, 1);
    ok(tr_tensor_read(n.f.g, tr_graph_find(n.f.g, "batchnorm1.running_mean"), mean));
    ok(tr_tensor_read(n.f.g, tr_graph_find(n.f.g, "batchnorm1.running_var"), variance));
    for (int c = 0; c < 4; c++) assert_true(mean[c] != 0 && variance[c] != 1 && isfinite(mean[c]));
    close_net(&n);
}

static void evaluation_drops_nothing_and_uses_running_moments(void **state) {
    net_t n;
    float first[ROWS * 4], second[ROWS * 4];
    open_net(&n, "conv 4 3, batchnorm, relu, globalpool, dropout 0.5, linear 4", "");
    ok(tr_program_run(n.f.g, n.eval, NULL));
    ok(tr_tensor_read(n.f.g, n.eval_output, first));
    ok(tr_program_run(n.f.g, n.eval, NULL));
    ok(tr_tensor_read(n.f.g, n.eval_output, second));
    assert_memory_equal(first, second, sizeof first);
    train_once(&n);
    ok(tr_program_run(n.f.g, n.eval, NULL));
    ok(tr_tensor_read(n.f.g, n.eval_output, second));
    assert_memory_not_equal(first, second, sizeof first);
    close_net(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_and_unfused_give_the_same),
        cmocka_unit_test(repeat_is_writing_it_out),
        cmocka_unit_test(taps_are_blocks_written_out),
        cmocka_unit_test(recomputed_layers_have_the_same_bits_and_less_memory),
        cmocka_unit_test(frozen_norms_keep_their_moments_going),
        cmocka_unit_test(evaluation_drops_nothing_and_uses_running_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
