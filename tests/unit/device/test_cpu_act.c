/* Activation functions: accuracy over the whole range, gradients, in place, values that are not
 * numbers. */
#include "cpu_kernel_test.h"
#include "../../support/op_harness.h"

static void forward(tr_act_t act, float *x, float *y, int64_t n) {
    tr_act_attr_t attr = {act};
    RUN(ACT_FWD, &attr, VIEWS(F32(x, n)), VIEWS(F32(y, n)));
}

/* Relative accuracy over all magnitudes at which the result is a normal number. */
static void test_accuracy(void **state) {
    enum { N = 400001 };
    float *x = kt_zeros(N), *y = kt_zeros(N);
    double *want = malloc(N * sizeof *want);
    for (int i = 0; i < N; i++) x[i] = (float)((i - N / 2) * (12.9 / (N / 2)));
    for (int i = 0; i < 1000; i++) x[i] = (float)pow(10, -i * 0.03) * (i & 1 ? -1 : 1);
    for (tr_act_t act = TR_ACT_NONE; act < TR_ACT_COUNT; act++) {
        for (int i = 0; i < N; i++) want[i] = op_act(act, x[i]);
        forward(act, x, y, N);
        /* exp magnifies the rounding of its argument, which is up to 87 */
        const double tolerance = act == TR_ACT_GELU ? 6e-7 : act == TR_ACT_GELU_TANH ? 2e-5 : 3e-7;
        kt_close(y, want, N, tolerance, act == TR_ACT_GELU_TANH ? 1e-36 : 0, "activation");
    }
    free(x);
    free(y);
    free(want);
}

static void test_extremes(void **state) {
    float x[] = {0, -0.0f, 100, -100, 1e30f, -1e30f, INFINITY, -INFINITY, NAN}, y[9];
    static const double relu[] = {0, 0, 100, 0, 1e30f, 0, INFINITY, 0, NAN};
    static const double sigmoid[] = {0.5, 0.5, 1, 0, 1, 0, 1, 0, NAN},
                        hyperbolic[] = {0, 0, 1, -1, 1, -1, 1, -1, NAN};
    static const double gelu[] = {0, 0, 100, 0, 1e30f, 0, INFINITY};
    forward(TR_ACT_RELU, x, y, 9);
    kt_close(y, relu, 9, 0, 0, "relu");
    forward(TR_ACT_SIGMOID, x, y, 9);
    kt_close(y, sigmoid, 9, 0, 1e-37, "sigmoid");
    forward(TR_ACT_TANH, x, y, 9);
    kt_close(y, hyperbolic, 9, 0, 0, "tanh");
    forward(TR_ACT_GELU, x, y, 9);
    kt_close(y, gelu, 7, 0, 0, "gelu");
    assert_true(isnan(y[8]));
}

static void check_backward(tr_act_t act, int64_t n) {
    float *x = kt_normal(n, 1, 0, 2), *dy = kt_normal(n, 2, 0, 1), *y = kt_zeros(n),
          *dx = kt_zeros(n);
    double *want = malloc((size_t)n * sizeof *want);
    tr_act_attr_t attr = {act};
    forward(act, x, y, n);
    float *v = tr_act_keeps_input(act) ? x : y;
    for (int64_t i = 0; i < n; i++) want[i] = dy[i] * op_act_slope(act, v[i]);
    RUN(ACT_BWD, &attr, VIEWS(F32(dy, n), F32(v, n)), VIEWS(F32(dx, n)));
    const double bound = act == TR_ACT_GELU_TANH ? 3e-6 : 3e-7;
    kt_close(dx, want, n, bound, tr_act_keeps_input(act) ? bound : 0, "activation, gradient");
    RUN(ACT_BWD, &attr, VIEWS(F32(dy, n), F32(v, n)), VIEWS(F32(dy, n)));
    assert_memory_equal(dx, dy, (size_t)n * sizeof *dx);
    forward(act, x, x, n); /* in place */
    assert_memory_equal(x, y, (size_t)n * sizeof *x);
    free(x);
    free(dy);
    free(y);
    free(dx);
    free(want);
}

static void test_backward(void **state) {
    static const int64_t sizes[] = {1, 3, 17, 100003};
    for (tr_act_t act = TR_ACT_NONE; act < TR_ACT_COUNT; act++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) check_backward(act, sizes[s]);
}

/* An element's result is the same wherever it stands in a vector. */
static void test_position(void **state) {
    enum { N = 77 };
    for (tr_act_t act = TR_ACT_NONE; act < TR_ACT_COUNT; act++) {
        float *x = kt_normal(N, 5, 0, 3), y[N], one;
        forward(act, x, y, N);
        for (int i = 0; i < N; i++) {
            forward(act, x + i, &one, 1);
            assert_memory_equal(&one, &y[i], sizeof one);
        }
        free(x);
    }
}

/* Behind a product and a convolution, too, whatever computes them: a NaN among the inputs reaches
 * the result. */
static void test_relu_hides_no_nan(void **state) {
    enum { ROWS = 40, COLUMNS = 48, SIDE = 6 };
    float *x = kt_normal(SIDE * SIDE * ROWS * COLUMNS, 1, 0, 1),
          *w = kt_normal(COLUMNS * COLUMNS, 2, 0, 1), *y = kt_zeros(SIDE * SIDE * ROWS * COLUMNS),
          *bias = kt_zeros(COLUMNS);
    const tr_matmul_attr_t product = {.alpha = 1, .act = TR_ACT_RELU};
    const tr_conv_attr_t conv = {2, {1, 1}, {2, 2}, {0}, {0}, {1, 1}, 1, TR_ACT_RELU};
    x[3] = NAN;
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        const tr_view_t b = with_bias ? F32(bias, COLUMNS) : ABSENT;
        RUN(MATMUL, &product, VIEWS(F32(x, ROWS, COLUMNS), F32(w, COLUMNS, COLUMNS), b),
            VIEWS(F32(y, ROWS, COLUMNS)));
        for (int i = 0; i < ROWS * COLUMNS; i++) assert_true(i < COLUMNS ? isnan(y[i]) : y[i] >= 0);
        RUN(CONV_FWD, &conv,
            VIEWS(F32(x, ROWS, SIDE, SIDE, COLUMNS), F32(w, COLUMNS, 1, 1, COLUMNS), b),
            VIEWS(F32(y, ROWS, SIDE / 2, SIDE / 2, COLUMNS)));
        for (int i = 0; i < ROWS * SIDE / 2 * SIDE / 2 * COLUMNS; i++)
            assert_true(i < COLUMNS ? isnan(y[i]) : y[i] >= 0);
    }
    free(x), free(w), free(y), free(bias);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accuracy),          cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_relu_hides_no_nan), cmocka_unit_test(test_backward),
        cmocka_unit_test(test_position),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
