/* The update program's ops over several steps, against the formulas in double: norm, correction,
 * clipping, SGD, Adam, averages. */
#include "../../support/op_harness.h"
#include "device/loss_scale.h"
#include <math.h>
#include <string.h>

enum { N = 37, STEPS = 4, STATES = 4 }; /* states: parameter, first and second moment, average */

typedef struct {
    const char *name;
    bool adam;
    tr_sgd_attr_t sgd;
    tr_adam_attr_t adam_attr;
    tr_update_range_t ranges[2]; /* the last of `end` N */
    double batch_size, samples, clip;
    double loss_scale; /* at the start; 0: none */
    int bad_step;      /* whose gradient is not finite; -1: none */
    int growth_steps;
} plan_t;

static const double AVERAGE_DECAY = 0.75;

static double gradient_of(const plan_t *p, int step, int i) {
    if (step == p->bad_step && i == N / 2) return INFINITY;
    return (float)op_random(p->name, step * N + i, -2, 2);
}

static double lr_of(int step) {
    return (float)(0.1 / (1 + step));
}

/* -- the reference ----------------------------------------------------------------------------- */

typedef struct {
    double state[STATES][N], norm, scale;
    int applied, finite;
    tr_loss_scale_t loss;
} reference_t;

static void reference_loss_scale(const plan_t *p, reference_t *r) {
    tr_loss_scale_t *l = &r->loss;
    l->overflowed = !r->finite && l->scale > 1;
    l->good = r->finite ? l->good + 1 : 0;
    if (l->overflowed > 0) l->skipped++, l->scale /= 2;
    if (p->growth_steps > 0 && (int)l->good == p->growth_steps) l->scale *= 2, l->good = 0;
}

static void reference_element(const plan_t *p, reference_t *r, double lr, double grad, int i) {
    double *x = &r->state[0][i], *m = &r->state[1][i], *v = &r->state[2][i];
    const tr_update_range_t *range = &p->ranges[i >= p->ranges[0].end];
    double decay = range->decay, g = grad * r->scale;
    if (!p->adam) {
        g += decay * *x;
        *m = p->sgd.momentum * *m + g;
        *x -= lr * range->lr_factor * (p->sgd.nesterov ? g + p->sgd.momentum * *m : *m);
    } else {
        lr *= range->lr_factor;
        if (p->adam_attr.decoupled)
            *x -= lr * decay * *x;
        else
            g += decay * *x;
        double b1 = p->adam_attr.beta1, b2 = p->adam_attr.beta2;
        *m = b1 * *m + (1 - b1) * g;
        *v = b2 * *v + (1 - b2) * g * g;
        *x -= lr * (*m / (1 - pow(b1, r->applied))) /
              (sqrt(*v / (1 - pow(b2, r->applied))) + p->adam_attr.eps);
    }
}

static void reference_step(const plan_t *p, reference_t *r, int step) {
    double squares = 0;
    for (int i = 0; i < N; i++) squares += gradient_of(p, step, i) * gradient_of(p, step, i);
    double unscale = p->batch_size / p->samples / (p->loss_scale > 0 ? r->loss.scale : 1);
    r->norm = sqrt(squares) * unscale;
    r->finite = isfinite(r->norm);
    if (p->loss_scale > 0) reference_loss_scale(p, r);
    if (!r->finite) return;
    r->applied++;
    r->scale = unscale * (p->clip > 0 ? fmin(1, p->clip / r->norm) : 1);
    const double decay = fmin(AVERAGE_DECAY, (1.0 + r->applied) / (10.0 + r->applied));
    for (int i = 0; i < N; i++) {
        reference_element(p, r, lr_of(step), gradient_of(p, step, i), i);
        r->state[3][i] = decay * r->state[3][i] + (1 - decay) * r->state[0][i];
    }
}

/* -- on a device ------------------------------------------------------------------------------- */

typedef struct {
    op_bench_t b;
    tr_tensor_t gradient, counts, loss_scale, state[STATES];
} update_t;

static update_t build_update(const char *device, const plan_t *p) {
    static const char *const names[] = {"p", "m", "v", "average"};
    update_t u = {.b = op_begin(device, TR_PLAIN)};
    tr_graph_t *g = u.b.g;
    const size_t count = p->ranges[0].end == N ? 1 : 2;
    tr_tensor_t ranges;
    MUST(tr_const_bytes(g, "ranges", p->ranges, count * sizeof *p->ranges, &ranges));
    MUST(tr_input(g, "gradient", TR_F32, &TR_SHAPE(N), &u.gradient));
    MUST(tr_input(g, "counts", TR_F32, &TR_SHAPE(2), &u.counts));
    for (int i = 0; i < STATES; i++)
        MUST(tr_optim_state(g, names[i], TR_F32, &TR_SHAPE(N), false, &u.state[i]));
    const tr_grad_norm_attr_t norm = {p->batch_size, (float)p->clip, p->growth_steps};
    MUST(tr_loss_scale(g, &u.loss_scale));
    MUST(tr_grad_norm(g, u.gradient, u.counts, p->loss_scale > 0 ? u.loss_scale : TR_NONE, &norm));
    if (p->adam)
        MUST(tr_adam(g, u.gradient, u.state[0], u.state[1], u.state[2], ranges, &p->adam_attr));
    else
        MUST(tr_sgd(g, u.gradient, u.state[0], p->sgd.momentum > 0 ? u.state[1] : TR_NONE, ranges,
                    &p->sgd));
    MUST(tr_ema(g, u.state[0], u.state[3], (float)AVERAGE_DECAY));
    op_ready(&u.b);
    return u;
}

static void run_step(update_t *u, const plan_t *p, int step) {
    double gradient[N];
    tr_step_t block = {.step = step, .lr = (float)lr_of(step), .weight_decay_scale = 1};
    for (int i = 0; i < N; i++) gradient[i] = gradient_of(p, step, i);
    MUST(tr_tensor_write(u->b.g, tr_graph_step(u->b.g), &block));
    op_write(&u->b, u->gradient, gradient);
    op_write(&u->b, u->counts, (double[]){p->samples, 12});
    op_run(&u->b);
}

static void check_result(update_t *u, const reference_t *r) {
    tr_step_result_t result;
    MUST(tr_tensor_read(u->b.g, tr_graph_result(u->b.g), &result));
    assert_int_equal(result.finite, r->finite);
    assert_int_equal(result.applied, r->applied);
    if (!r->finite) {
        assert_true(result.scale == 0);
        return;
    }
    op_assert_close("norm", &result.grad_norm, &r->norm, 1, 1e-6);
    op_assert_close("scale", &result.scale, &r->scale, 1, 1e-6);
}

static void check_loss_scale(update_t *u, const reference_t *r) {
    tr_loss_scale_t found;
    MUST(tr_tensor_read(u->b.g, u->loss_scale, &found));
    assert_true(found.scale == r->loss.scale && found.good == r->loss.good);
    assert_true(found.skipped == r->loss.skipped && found.overflowed == r->loss.overflowed);
}

static void check_on(const char *device, const plan_t *p) {
    reference_t r = {0};
    update_t u = build_update(device, p);
    for (int i = 0; i < N; i++) r.state[0][i] = r.state[3][i] = (float)op_random("start", i, -1, 1);
    op_write(&u.b, u.state[0], r.state[0]);
    op_write(&u.b, u.state[3], r.state[3]);
    r.loss.scale = (float)p->loss_scale;
    MUST(tr_tensor_write(u.b.g, u.loss_scale, &r.loss));
    for (int step = 0; step < STEPS; step++) {
        run_step(&u, p, step);
        reference_step(p, &r, step);
        check_result(&u, &r);
        check_loss_scale(&u, &r);
        for (int k = 0; k < STATES; k++) {
            if (!p->adam && (k == 2 || (k == 1 && p->sgd.momentum == 0))) continue;
            float *found = op_read(&u.b, u.state[k]);
            op_assert_close(p->name, found, r.state[k], N, 1e-5);
            test_free(found);
        }
    }
    op_end(&u.b);
}

static void check(plan_t p) {
    op_devices_t devices = op_devices();
    for (int i = 0; i < devices.count; i++) check_on(devices.name[i], &p);
}

static plan_t plan(const char *name) {
    return (plan_t){name, .batch_size = 8, .samples = 8, .bad_step = -1, .ranges = {{N, 0, 1}}};
}

/* Two ranges that differ in decay and factor. */
static void set_ranges(plan_t *p, float decay, float lr_factor) {
    p->ranges[0] = (tr_update_range_t){16, decay, lr_factor, 0};
    p->ranges[1] = (tr_update_range_t){N, 0, 1, 0};
}

static void sgd(void **state) {
    plan_t p = plan("sgd");
    check(p);
    set_ranges(&p, 0.1f, 0.5f);
    check(p);
}

static void sgd_with_momentum(void **state) {
    plan_t p = plan("momentum");
    p.sgd = (tr_sgd_attr_t){.momentum = 0.9f};
    p.ranges[0].decay = 0.01f;
    check(p);
    p.sgd.nesterov = true;
    check(p);
}

static void adam(void **state) {
    plan_t p = plan("adam");
    p.adam = true;
    p.adam_attr = (tr_adam_attr_t){0.9f, 0.999f, 1e-8f, false};
    check(p);
    p.adam_attr = (tr_adam_attr_t){0.8f, 0.95f, 1e-3f, false};
    set_ranges(&p, 0.1f, 0.5f);
    check(p);
}

static void adam_with_decoupled_decay(void **state) {
    plan_t p = plan("adamw");
    p.adam = true;
    p.adam_attr = (tr_adam_attr_t){0.9f, 0.99f, 1e-8f, true};
    set_ranges(&p, 0.1f, 2);
    check(p);
}

static void correction_unscale_and_clip(void **state) {
    plan_t p = plan("clip");
    p.sgd = (tr_sgd_attr_t){.momentum = 0.9f};
    p.samples = 7; /* of 8: one was masked */
    p.loss_scale = 1024;
    check(p);
    p.clip = 1e-3;
    check(p);
    p.clip = 1e6;
    check(p);
}

static void a_step_that_is_not_finite_changes_nothing(void **state) {
    plan_t p = plan("not finite");
    p.bad_step = 1;
    p.sgd = (tr_sgd_attr_t){.momentum = 0.9f};
    check(p);
    p.adam = true;
    p.adam_attr = (tr_adam_attr_t){0.9f, 0.999f, 1e-8f, true};
    p.ranges[0].decay = 0.1f;
    check(p);
}

/* It halves at the step that overflows, grows back after two good ones, and stays at 1. */
static void the_loss_scale_follows_overflows(void **state) {
    plan_t p = plan("loss scale");
    p.sgd = (tr_sgd_attr_t){.momentum = 0.9f};
    p.growth_steps = 2;
    for (int bad = -1; bad < STEPS; bad++)
        for (p.loss_scale = 1; p.loss_scale <= 4; p.loss_scale *= 2) {
            p.bad_step = bad;
            check(p);
        }
    p.growth_steps = 0;
    check(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loss_scale_follows_overflows),
        cmocka_unit_test(sgd),
        cmocka_unit_test(sgd_with_momentum),
        cmocka_unit_test(adam),
        cmocka_unit_test(adam_with_decoupled_decay),
        cmocka_unit_test(correction_unscale_and_clip),
        cmocka_unit_test(a_step_that_is_not_finite_changes_nothing),
    };
    return cmocka_run_group_tests_name("ops: update", tests, NULL, NULL);
}
