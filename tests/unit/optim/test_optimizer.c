/*
 * The update program on a small model, y = x w^T + b, against the same steps computed here in
 * double precision: groups, decay, learning-rate factors, momentum, clipping, the average of the
 * weights.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "../../support/names.h"
#include "graph/program.h"
#include "base/mem.h"
#include "trainer/ops.h"
#include "optim/optim.h"

#include <math.h>
#include <string.h>

#define B      4
#define F      3
#define K      2
#define PARAMS (K * F + K)
#define STEPS  5
#define IDLE   512
#define LR     0.05

static const tr_optim_settings_t base = {.type = "sgd",
                                         .lr = LR,
                                         .weight_decay = 0.1,
                                         .momentum = 0,
                                         .beta1 = 0.9,
                                         .beta2 = 0.99,
                                         .eps = 1e-6};

typedef struct {
    tr_device_t *device;
    tr_graph_t *g;
    int micro, update;
    tr_tensor_t x, target, weight, w, b, frozen, idle, counts;
    tr_tensor_t samples, loss_sum;
} run_t;

static float x_of(int row, int i) {
    return (float)((row * 7 + i * 3) % 5) - 1.5f;
}
static float target_of(int row, int k) {
    return (float)(row - k);
}

#define ok(expr)                                                                                   \
    do {                                                                                           \
        if ((expr) != TR_OK) fail_msg("%s", tr_error_last()->message);                             \
    } while (0)

static void build_micro(run_t *r) {
    tr_graph_t *g = r->g;
    tr_tensor_t y, loss, seed;
    tr_param_spec_t matrix = {{TR_INIT_UNIFORM, 0.5}, true, true, 2};
    tr_param_spec_t bias = {{TR_INIT_CONST, 0.25}, true, false, 1};
    tr_param_spec_t still = {{TR_INIT_CONST, 3}, false, true, 1};
    ok(tr_program_begin(g, "last", TR_TRAIN, &r->micro));
    ok(tr_input(g, "x", TR_F32, &TR_SHAPE(B, F), &r->x));
    ok(tr_input(g, "y", TR_F32, &TR_SHAPE(B, K), &r->target));
    ok(tr_input(g, "weight", TR_F32, &TR_SHAPE(B), &r->weight));
    ok(tr_param(g, "w", &TR_SHAPE(K, F), &matrix, &r->w));
    ok(tr_param(g, "b", &TR_SHAPE(K), &bias, &r->b));
    ok(tr_param(g, "still", &TR_SHAPE(K, K), &still, &r->frozen));
    /* the loss does not depend on it */
    ok(tr_param(g, "idle", &TR_SHAPE(IDLE, IDLE), &matrix, &r->idle));
    ok(tr_linear(g, r->x, r->w, r->b, TR_ACT_NONE, &y));
    ok(tr_linear(g, y, r->frozen, TR_NONE, TR_ACT_NONE, &y));
    ok(tr_mse(g, y, r->target, r->weight, &loss));
    ok(tr_reduced(g, "counts", 2, &r->counts));
    ok(tr_slice(g, r->counts, 0, 1, &r->samples));
    ok(tr_slice(g, r->counts, 1, 1, &r->loss_sum));
    ok(tr_weighted_sum(g, r->weight, TR_NONE, r->samples));
    ok(tr_weighted_sum(g, loss, TR_NONE, r->loss_sum));
    ok(tr_const(g, "seed", &TR_SHAPE(B), 1.0 / B, &seed));
    ok(tr_backward(g, loss, seed, false));
    ok(tr_program_end(g));
}

static void open_run(run_t *r, const tr_optim_settings_t *settings) {
    tr_device_params_t params = {.threads = 1};
    memset(r, 0, sizeof *r);
    ok(tr_device_open("strict", &params, &r->device));
    ok(tr_graph_create(r->device, &r->g));
    build_micro(r);
    ok(tr_program_begin(r->g, "update", TR_PLAIN, &r->update));
    ok(tr_optimizer_build(r->g, settings, r->counts, B));
    ok(tr_program_end(r->g));
    ok(tr_graph_plan(r->g, 0));
    ok(tr_graph_allocate(r->g));
    ok(tr_graph_init_params(r->g, 7));
    ok(tr_optimizer_start(r->g));
}

static void close_run(run_t *r) {
    tr_graph_destroy(&r->g);
    tr_device_close(&r->device);
}

static void step(run_t *r, int64_t number) {
    float x[B * F], y[B * K], weight[B];
    tr_step_t block = {.seed = 7, .step = number, .lr = LR, .weight_decay_scale = 1};
    for (int row = 0; row < B; row++) {
        for (int i = 0; i < F; i++) x[row * F + i] = x_of(row, i);
        for (int k = 0; k < K; k++) y[row * K + k] = target_of(row, k);
        weight[row] = 1;
    }
    ok(tr_tensor_write(r->g, r->x, x));
    ok(tr_tensor_write(r->g, r->target, y));
    ok(tr_tensor_write(r->g, r->weight, weight));
    ok(tr_tensor_write(r->g, tr_graph_step(r->g), &block));
    ok(tr_graph_zero_reduced(r->g));
    ok(tr_program_run(r->g, r->micro, NULL));
    ok(tr_program_run(r->g, r->update, NULL));
}

/* w (K, F), then b (K). */
static void read_params(run_t *r, float params[PARAMS]) {
    ok(tr_tensor_read(r->g, r->w, params));
    ok(tr_tensor_read(r->g, r->b, params + K * F));
}

static void start(run_t *r, double params[PARAMS]) {
    float values[PARAMS];
    read_params(r, values);
    for (int i = 0; i < PARAMS; i++) params[i] = values[i];
}

/* Gradient of the mean over the batch of the mean over K of the squared error of (x w^T + b)
 * still^T, still all 3. */
static void gradient(const double params[PARAMS], double grad[PARAMS]) {
    memset(grad, 0, PARAMS * sizeof *grad);
    for (int row = 0; row < B; row++) {
        double y[K], sum = 0, d = 0;
        for (int k = 0; k < K; k++) {
            y[k] = params[K * F + k];
            for (int i = 0; i < F; i++) y[k] += params[k * F + i] * x_of(row, i);
            sum += y[k];
        }
        for (int k = 0; k < K; k++) d += 3 * 2 * (3 * sum - target_of(row, k)) / K / B;
        for (int k = 0; k < K; k++) {
            grad[K * F + k] += d;
            for (int i = 0; i < F; i++) grad[k * F + i] += d * x_of(row, i);
        }
    }
}

static double norm(const double grad[PARAMS]) {
    double sum = 0;
    for (int i = 0; i < PARAMS; i++) sum += grad[i] * grad[i];
    return sqrt(sum);
}

static bool is_matrix(int i) {
    return i < K * F;
}
static double lr_of(int i) {
    return is_matrix(i) ? 2 * LR : LR;
}

static void expect_params(run_t *r, const double expected[PARAMS], int64_t number) {
    float found[PARAMS];
    read_params(r, found);
    for (int i = 0; i < PARAMS; i++)
        if (fabs(found[i] - expected[i]) > 2e-5 * (1 + fabs(expected[i])))
            fail_msg("step %d, parameter %d: %.8g, expected %.8g", (int)number, i, (double)found[i],
                     expected[i]);
}

static void check_sgd(const tr_optim_settings_t *settings) {
    run_t r;
    double p[PARAMS], v[PARAMS] = {0}, grad[PARAMS];
    int64_t live = tr_mem_stats().live;
    open_run(&r, settings);
    start(&r, p);
    for (int64_t t = 0; t < STEPS; t++) {
        step(&r, t);
        gradient(p, grad);
        double size = norm(grad), clip = settings->clip_norm > 0 && size > settings->clip_norm
                                             ? settings->clip_norm / size
                                             : 1;
        for (int i = 0; i < PARAMS; i++) {
            double d = grad[i] * clip + (is_matrix(i) ? settings->weight_decay * p[i] : 0);
            v[i] = settings->momentum * v[i] + d;
            p[i] -= lr_of(i) * (settings->nesterov ? d + settings->momentum * v[i] : v[i]);
        }
        expect_params(&r, p, t);
    }
    close_run(&r);
    assert_int_equal(tr_mem_stats().live, live);
}

static void sgd(void **state) {
    tr_optim_settings_t s = base;
    s.lr = LR;
    check_sgd(&s);
    s.clip_norm = 0.5;
    check_sgd(&s);
    s.momentum = 0.9;
    check_sgd(&s);
    s.nesterov = true;
    check_sgd(&s);
}

static void check_adam(const tr_optim_settings_t *settings, bool decoupled) {
    run_t r;
    double p[PARAMS], m[PARAMS] = {0}, v[PARAMS] = {0}, grad[PARAMS];
    open_run(&r, settings);
    start(&r, p);
    for (int64_t t = 0; t < STEPS; t++) {
        step(&r, t);
        gradient(p, grad);
        for (int i = 0; i < PARAMS; i++) {
            double decay = is_matrix(i) ? settings->weight_decay : 0,
                   d = grad[i] + (decoupled ? 0 : decay * p[i]);
            m[i] = settings->beta1 * m[i] + (1 - settings->beta1) * d;
            v[i] = settings->beta2 * v[i] + (1 - settings->beta2) * d * d;
            double mean = m[i] / (1 - pow(settings->beta1, (double)t + 1));
            double square = v[i] / (1 - pow(settings->beta2, (double)t + 1));
            if (decoupled) p[i] -= lr_of(i) * decay * p[i];
            p[i] -= lr_of(i) * mean / (sqrt(square) + settings->eps);
        }
        expect_params(&r, p, t);
    }
    close_run(&r);
}

static void adam_and_adamw(void **state) {
    tr_optim_settings_t s = base;
    s.type = "adam";
    check_adam(&s, false);
    s.type = "adamw";
    check_adam(&s, true);
}

static void average_starts_at_the_weights_and_follows(void **state) {
    run_t r;
    enum { ROOM = 2 * TR_SQUARES_BLOCK };
    static float found[ROOM];
    double p[PARAMS], average[PARAMS];
    tr_optim_settings_t s = base;
    s.ema = 0.75;
    open_run(&r, &s);
    start(&r, p);
    memcpy(average, p, sizeof p);
    tr_tensor_t ema = tr_graph_find(r.g, TR_EMA_STATE);
    int64_t w_at = tr_tensor_info(r.g, r.w)->block_elems,
            b_at = tr_tensor_info(r.g, r.b)->block_elems;
    assert_true(tr_tensor_info(r.g, ema)->mirrors_params);
    assert_true(tr_graph_layout(r.g).trainable_elems <= ROOM);
    for (int64_t t = 0; t < STEPS; t++) {
        step(&r, t);
        start(&r, p);
        ok(tr_tensor_read(r.g, ema, found));
        for (int i = 0; i < PARAMS; i++) {
            /* update t + 1 */
            const double decay = fmin(0.75, (2.0 + (double)t) / (11.0 + (double)t));
            average[i] = decay * average[i] + (1 - decay) * p[i];
            float value = is_matrix(i) ? found[w_at + i] : found[b_at + i - K * F];
            assert_float_equal(value, average[i], 1e-5);
        }
    }
    close_run(&r);
}

static void frozen_parameters_stay(void **state) {
    run_t r;
    float values[K * K];
    open_run(&r, &base);
    for (int64_t t = 0; t < STEPS; t++) step(&r, t);
    ok(tr_tensor_read(r.g, r.frozen, values));
    for (int i = 0; i < K * K; i++) assert_true(values[i] == 3);
    close_run(&r);
}

/* Neither parameters nor states move. */
static void a_gradient_that_is_not_finite_is_skipped(void **state) {
    run_t r;
    float before[PARAMS], after[PARAMS], bad[B * F];
    tr_optim_settings_t s = base;
    s.type = "adamw";
    open_run(&r, &s);
    step(&r, 0);
    read_params(&r, before);
    for (int i = 0; i < B * F; i++) bad[i] = INFINITY;
    ok(tr_tensor_write(r.g, r.x, bad));
    ok(tr_graph_zero_reduced(r.g));
    ok(tr_program_run(r.g, r.micro, NULL));
    ok(tr_program_run(r.g, r.update, NULL));
    read_params(&r, after);
    assert_memory_equal(before, after, sizeof before);
    close_run(&r);
}

static void states_mirror_all_trainable_parameters(void **state) {
    static const struct {
        const char *type, *name;
    } kinds[] = {{"sgd", "sgd.momentum"}, {"adam", "adam.m"}, {"adamw", "adam.v"}};
    for (size_t i = 0; i < TR_COUNT(kinds); i++) {
        run_t r;
        tr_optim_settings_t s = base;
        s.type = kinds[i].type, s.momentum = 0.9;
        open_run(&r, &s);
        const tr_tensor_info_t *info = tr_tensor_info(r.g, tr_graph_find(r.g, kinds[i].name));
        assert_int_equal(info->role, TR_ROLE_OPTIM_STATE);
        assert_true(info->mirrors_params);
        assert_int_equal(tr_shape_elems(&info->shape), tr_graph_layout(r.g).trainable_elems);
        close_run(&r);
    }
}

static void expect_bad(const tr_optim_settings_t *settings, const char *names) {
    assert_int_equal(tr_optimizer_check(settings), TR_ERR_CONFIG);
    assert_error_names(names);
}

static tr_status_t build_nothing(tr_graph_t *g, const tr_optim_settings_t *settings,
                                 tr_tensor_t ranges) {
    return TR_OK;
}

static void types_are_checked_and_registered(void **state) {
    static const tr_optimizer_t own = {"lion", "A test's.", build_nothing};
    tr_optim_settings_t s = base;
    s.type = "adamv";
    expect_bad(&s, "'adamv' & 'adam'");
    s.type = "lion";
    expect_bad(&s, "'lion' & adamw & sgd");
    s = base, s.nesterov = true;
    expect_bad(&s, "nesterov & momentum & 0");
    OK(tr_optimizer_register(&own));
    assert_int_equal(tr_optimizer_register(&own), TR_ERR_CONFIG);
    s = base, s.type = "lion";
    OK(tr_optimizer_check(&s));
}

/* One that a program registered updates all parameters at once. */
static void a_registered_optimizer_is_not_sharded(void **state) {
    tr_optim_settings_t s = base;
    tr_device_t *device = NULL;
    tr_graph_t *g = NULL;
    s.type = "lion";
    OK(tr_device_open("cpu", &(tr_device_params_t){.threads = 1}, &device));
    OK(tr_graph_create(device, &g));
    tr_graph_shard(g, &(tr_sharding_t){.first_bytes = 1, .bytes = 1, .ranks = 2});
    assert_int_equal(tr_optimizer_build(g, &s, TR_NONE, 1), TR_ERR_CONFIG);
    assert_error_names("parallel.zero & lion");
    tr_graph_destroy(&g);
    tr_device_close(&device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd),
        cmocka_unit_test(adam_and_adamw),
        cmocka_unit_test(average_starts_at_the_weights_and_follows),
        cmocka_unit_test(frozen_parameters_stay),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_skipped),
        cmocka_unit_test(states_mirror_all_trainable_parameters),
        cmocka_unit_test(types_are_checked_and_registered),
        cmocka_unit_test(a_registered_optimizer_is_not_sharded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
