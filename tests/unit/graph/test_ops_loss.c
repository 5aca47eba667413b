/* Losses and hits: smoothing, ignored labels, masked samples, ties. */
#include "../../support/op_harness.h"
#include <math.h>

/* -- cross-entropy ----------------------------------------------------------------------------- */

static tr_status_t build_xent(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                              tr_tensor_t *out) {
    return tr_cross_entropy(g, in[0], in[1], in[2], *(const float *)c->attr, out);
}

static void xent(const op_case_t *c, const double *const *in, double *y) {
    double smoothing = *(const float *)c->attr;
    const tr_shape_t *logits = &c->in[0].shape;
    int64_t rows = c->out.dim[0], classes = logits->dim[logits->ndim - 1];
    for (int64_t r = 0; r < rows; r++) {
        const double *x = in[0] + r * classes;
        double largest = -INFINITY, sum = 0, loss = 0;
        for (int64_t k = 0; k < classes; k++) largest = fmax(largest, x[k]);
        for (int64_t k = 0; k < classes; k++) sum += exp(x[k] - largest);
        for (int64_t k = 0; k < classes; k++)
            loss -= (smoothing / (double)classes + (in[1][r] == (double)k ? 1 - smoothing : 0)) *
                    (x[k] - largest - log(sum));
        y[r] = in[1][r] < 0 ? 0 : in[2][r] * loss;
    }
}

static void check_xent(tr_shape_t logits, double range, float smoothing, tr_dtype_t label_type) {
    static const double labels[] = {2, 0, -1, 4, 1, 3}, weights[] = {1, 0.5, 1, 0, 2, 1};
    tr_shape_t rows = logits;
    rows.ndim--;
    op_case_t c = {"cross-entropy",
                   3,
                   {{"logits", logits, -range, range},
                    {"label", rows, .dtype = label_type, .fixed = true, .values = labels},
                    {"weight", rows, .fixed = true, .values = weights}}};
    c.attr = &smoothing;
    c.out = TR_SHAPE(tr_shape_elems(&rows));
    c.build = build_xent;
    c.reference = xent;
    op_check(&c);
}

static void cross_entropy(void **state) {
    check_xent(TR_SHAPE(6, 5), 3, 0, TR_I64);
    check_xent(TR_SHAPE(6, 5), 3, 0, TR_I32);
    check_xent(TR_SHAPE(6, 17), 3, 0, TR_I64);
}

static void cross_entropy_with_smoothing(void **state) {
    check_xent(TR_SHAPE(6, 5), 3, 0.1f, TR_I64);
    check_xent(TR_SHAPE(6, 5), 3, 0.9f, TR_I32);
}

static void cross_entropy_of_large_scores(void **state) {
    check_xent(TR_SHAPE(6, 7), 90, 0, TR_I64);
    check_xent(TR_SHAPE(6, 7), 1000, 0.1f, TR_I64);
}

static void cross_entropy_of_sequences(void **state) {
    check_xent(TR_SHAPE(2, 3, 5), 3, 0.1f, TR_I32);
}

/* A masked sample may hold anything: padding is never read as a number. */
static void masked_samples_hold_anything(void **state) {
    static const double logits[] = {1, 2, NAN, INFINITY, 0.5, 0.25};
    op_devices_t devices = op_devices();
    for (int d = 0; d < devices.count; d++) {
        tr_tensor_t x, label, weight, seed, loss;
        op_bench_t b = op_begin(devices.name[d], TR_TRAIN);
        MUST(tr_param(b.g, "x", &TR_SHAPE(3, 2), &(tr_param_spec_t){.trainable = true}, &x));
        MUST(tr_input(b.g, "label", TR_I64, &TR_SHAPE(3), &label));
        MUST(tr_input(b.g, "weight", TR_F32, &TR_SHAPE(3), &weight));
        MUST(tr_input(b.g, "seed", TR_F32, &TR_SHAPE(3), &seed));
        MUST(tr_cross_entropy(b.g, x, label, weight, 0, &loss));
        MUST(tr_keep(b.g, loss));
        MUST(tr_backward(b.g, loss, seed, false));
        op_ready(&b);
        op_write(&b, x, logits);
        op_write(&b, label, (double[]){0, 1, 1});
        op_write(&b, weight, (double[]){1, 0, 1});
        op_write(&b, seed, (double[]){1, 1, 1});
        op_run(&b);
        double p = 1 / (1 + exp(1)), q = 1 / (1 + exp(0.25));
        float *value = op_read(&b, loss), *grad = op_read(&b, tr_graph_find(b.g, "op.x.grad"));
        op_assert_close("loss", value, (double[]){-log(p), 0, -log(q)}, 3, 1e-6);
        op_assert_close("gradient", grad, (double[]){p - 1, 1 - p, 0, 0, 1 - q, q - 1}, 6, 1e-6);
        test_free(value);
        test_free(grad);
        op_end(&b);
    }
}

/* -- mean squared error ------------------------------------------------------------------------ */

static tr_status_t build_mse(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                             tr_tensor_t *out) {
    return tr_mse(g, in[0], in[1], in[2], out);
}

static void mse(const op_case_t *c, const double *const *in, double *y) {
    int64_t samples = c->out.dim[0], width = tr_shape_elems(&c->in[0].shape) / samples;
    for (int64_t b = 0; b < samples; b++) {
        y[b] = 0;
        for (int64_t i = b * width; i < (b + 1) * width; i++)
            y[b] += in[2][b] * (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]) / (double)width;
    }
}

static void mean_squared_error(void **state) {
    static const double weights[] = {1, 0.5, 0, 1, 2};
    const tr_shape_t shapes[] = {TR_SHAPE(5, 7), TR_SHAPE(5), TR_SHAPE(5, 2, 3), TR_SHAPE(5, 1)};
    for (int i = 0; i < 4; i++) {
        op_case_t c = {"mse",
                       3,
                       {{"y", shapes[i]},
                        {"target", shapes[i], .fixed = true},
                        {"weight", TR_SHAPE(5), .fixed = true, .values = weights}}};
        c.out = TR_SHAPE(5);
        c.build = build_mse;
        c.reference = mse;
        op_check(&c);
    }
}

/* -- Huber loss, binary cross-entropy ---------------------------------------------------------- */

static const float delta = 0.75f;

static tr_status_t build_huber(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                               tr_tensor_t *out) {
    return tr_huber(g, in[0], in[1], in[2], delta, out);
}

static tr_status_t build_bce(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                             tr_tensor_t *out) {
    return tr_binary_cross_entropy(g, in[0], in[1], in[2], out);
}

static void mean_of(const op_case_t *c, const double *const *in, double *y,
                    double (*loss)(double, double)) {
    const int64_t samples = c->out.dim[0], width = tr_shape_elems(&c->in[0].shape) / samples;
    for (int64_t b = 0; b < samples; b++) {
        y[b] = 0;
        for (int64_t i = b * width; i < (b + 1) * width; i++)
            y[b] += in[2][b] * loss(in[0][i], in[1][i]) / (double)width;
    }
}

static double huber_of(double y, double t) {
    const double error = fabs(y - t);
    return error <= delta ? error * error / 2 : delta * (error - delta / 2);
}

static double bce_of(double y, double t) {
    return t * log1p(exp(-y)) + (1 - t) * (y + log1p(exp(-y)));
}

static void huber(const op_case_t *c, const double *const *in, double *y) {
    mean_of(c, in, y, huber_of);
}

static void bce(const op_case_t *c, const double *const *in, double *y) {
    mean_of(c, in, y, bce_of);
}

static void losses_of_numbers(void **state) {
    static const double weights[] = {1, 0.5, 0, 1, 2};
    for (int i = 0; i < 2; i++) {
        op_case_t c = {i ? "binary cross-entropy" : "huber",
                       3,
                       {{"y", TR_SHAPE(5, 7), -3, 3},
                        {"target", TR_SHAPE(5, 7), i ? 0 : -3, i ? 1 : 3, .fixed = true},
                        {"weight", TR_SHAPE(5), .fixed = true, .values = weights}}};
        c.out = TR_SHAPE(5);
        c.build = i ? build_bce : build_huber;
        c.reference = i ? bce : huber;
        c.needs = i ? TR_K_BCE_FWD : TR_K_HUBER_FWD;
        op_check(&c);
    }
}

/* -- weights of classes ------------------------------------------------------------------------ */

static tr_status_t build_weight(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                tr_tensor_t *out) {
    return tr_class_weight(g, in[0], in[1], in[2], out);
}

static void class_weight(const op_case_t *c, const double *const *in, double *y) {
    for (int64_t i = 0; i < c->out.dim[0]; i++)
        y[i] = in[1][i] < 0 ? 0 : in[0][i] * in[2][(int)in[1][i]];
}

static void weights_of_classes(void **state) {
    static const double labels[] = {2, 0, -1, 1, 2}, weights[] = {1, 0.5, 1, 0, 2},
                        of_class[] = {3, 1, 0.25};
    op_case_t c = {"class weight",
                   3,
                   {{"weight", TR_SHAPE(5), .fixed = true, .values = weights},
                    {"label", TR_SHAPE(5), .dtype = TR_I32, .fixed = true, .values = labels},
                    {"of_class", TR_SHAPE(3), .fixed = true, .values = of_class}}};
    c.out = TR_SHAPE(5);
    c.build = build_weight;
    c.reference = class_weight;
    c.needs = TR_K_CLASS_WEIGHT;
    op_check(&c);
}

/* -- hits -------------------------------------------------------------------------------------- */

static tr_status_t build_topk(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                              tr_tensor_t *out) {
    return tr_topk_correct(g, in[0], in[1], in[2], *(const int *)c->attr, out);
}

static void topk(const op_case_t *c, const double *const *in, double *y) {
    int64_t rows = c->in[0].shape.dim[0], classes = c->in[0].shape.dim[1];
    for (int64_t r = 0; r < rows; r++) {
        const double *x = in[0] + r * classes;
        int64_t label = (int64_t)in[1][r], larger = 0;
        for (int64_t k = 0; label >= 0 && k < classes; k++)
            larger += x[k] > x[label] || (x[k] == x[label] && k < label);
        bool any_nan = false;
        for (int64_t k = 0; k < classes; k++) any_nan |= isnan(x[k]);
        y[r] = label >= 0 && !any_nan && larger < *(const int *)c->attr ? in[2][r] : 0;
    }
}

static void top_k(void **state) {
    static const double x[] = {1,        2,  3,       0, /* */ 2, 2, 2,       2,   /* */ 5, 4,
                               3,        2,  /* */ 0, 0, 1,       0, /* */ 1, NAN, 0,       0,
                               /* */ -1, -2, -3,      -4};
    static const double labels[] = {2, 1, 3, 3, 0, -1}, weights[] = {1, 1, 1, 0.5, 1, 1};
    for (int k = 1; k <= 4; k++) {
        op_case_t c = {"top-k",
                       3,
                       {{"x", TR_SHAPE(6, 4), .fixed = true, .values = x},
                        {"label", TR_SHAPE(6), .dtype = TR_I32, .fixed = true, .values = labels},
                        {"weight", TR_SHAPE(6), .fixed = true, .values = weights}}};
        c.attr = &k;
        c.out = TR_SHAPE(6);
        c.build = build_topk;
        c.reference = topk;
        op_check(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(cross_entropy_with_smoothing),
        cmocka_unit_test(cross_entropy_of_large_scores),
        cmocka_unit_test(cross_entropy_of_sequences),
        cmocka_unit_test(masked_samples_hold_anything),
        cmocka_unit_test(mean_squared_error),
        cmocka_unit_test(losses_of_numbers),
        cmocka_unit_test(weights_of_classes),
        cmocka_unit_test(top_k),
    };
    return cmocka_run_group_tests_name("ops: losses", tests, NULL, NULL);
}
