/* Losses, their gradients, and what is counted beside them. */
#include "cpu_kernel_test.h"

typedef struct {
    int64_t rows, width;
    float *x, *weight, *dloss, *loss, *lse, *dx;
    int64_t *label;
} xent_t;

static xent_t xent_make(int64_t rows, int64_t width, double deviation) {
    xent_t t = {rows,
                width,
                kt_normal(rows * width, 1, 0.3, deviation),
                kt_normal(rows, 2, 1, 0.2),
                kt_normal(rows, 3, 0.1, 0.01),
                kt_zeros(rows),
                kt_zeros(rows),
                kt_zeros(rows * width),
                malloc((size_t)rows * sizeof(int64_t))};
    for (int64_t i = 0; i < rows; i++) t.label[i] = i * 7919 % width;
    if (rows > 2) t.label[1] = -1;
    if (rows > 2) t.weight[2] = 0;
    return t;
}

static void xent_free(xent_t *t) {
    float *all[] = {t->x, t->weight, t->dloss, t->loss, t->lse, t->dx};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(t->label);
}

static void xent_run(xent_t *t, float smoothing, tr_view_t label) {
    int64_t r = t->rows, v = t->width;
    tr_xent_attr_t attr = {smoothing};
    RUN(XENT_FWD, &attr, VIEWS(F32(t->x, r, v), label, F32(t->weight, r)),
        VIEWS(F32(t->loss, r), F32(t->lse, r)));
    RUN(XENT_BWD, &attr,
        VIEWS(F32(t->x, r, v), label, F32(t->weight, r), F32(t->lse, r), F32(t->dloss, r)),
        VIEWS(F32(t->dx, r, v)));
}

/* One row's reference: loss, log sum exp, gradient. */
static void xent_row(const xent_t *t, int64_t row, double smoothing, double *loss, double *lse,
                     double *dx) {
    const float *x = t->x + row * t->width;
    double sum = 0, v = (double)t->width, live = t->label[row] >= 0 ? t->weight[row] : 0;
    float most = x[0];
    for (int64_t j = 0; j < t->width; j++) most = fmaxf(most, x[j]);
    const double max = most;
    for (int64_t j = 0; j < t->width; j++) sum += exp(x[j] - max);
    *lse = max + log(sum);
    *loss = 0;
    for (int64_t j = 0; j < t->width; j++) {
        double target = (j == t->label[row] ? 1 - smoothing : 0) + smoothing / v;
        *loss += live * target * (*lse - x[j]);
        dx[j] = live * t->dloss[row] * (exp(x[j] - *lse) - target);
    }
}

static void check_xent(int64_t rows, int64_t width, float smoothing, double deviation) {
    xent_t t = xent_make(rows, width, deviation);
    double *dx = malloc((size_t)width * sizeof *dx), loss, lse;
    xent_run(&t, smoothing, I64(t.label, rows));
    for (int64_t i = 0; i < rows; i++) {
        xent_row(&t, i, smoothing, &loss, &lse, dx);
        kt_close(&t.loss[i], &loss, 1, 1e-6, 1e-6, "cross-entropy: loss");
        kt_close(&t.lse[i], &lse, 1, 1e-6, 1e-6, "cross-entropy: lse");
        /* lse is rounded to a float: softmax inherits its absolute error */
        kt_close(t.dx + i * width, dx, width, 2e-6 + 1e-7 * fabs(lse), 3e-8 + 1e-8 * fabs(lse),
                 "cross-entropy: gradient");
    }
    tr_xent_attr_t attr = {smoothing};
    RUN(XENT_BWD, &attr,
        VIEWS(F32(t.x, rows, width), I64(t.label, rows), F32(t.weight, rows), F32(t.lse, rows),
              F32(t.dloss, rows)),
        VIEWS(F32(t.x, rows, width))); /* in place */
    assert_memory_equal(t.x, t.dx, (size_t)(rows * width) * sizeof(float));
    free(dx);
    xent_free(&t);
}

static void test_xent(void **state) {
    static const int64_t shapes[][2] = {{1, 1},     {3, 3},     {128, 10},
                                        {17, 1000}, {5, 50257}, {20011, 17}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_xent(shapes[i][0], shapes[i][1], 0, 1);
        check_xent(shapes[i][0], shapes[i][1], 0.1f, 3);
        /* far apart: exp would overflow without the maximum */
        check_xent(shapes[i][0], shapes[i][1], 0, 40);
    }
}

static void test_xent_labels(void **state) {
    xent_t t = xent_make(6, 5, 1), u = xent_make(6, 5, 1);
    int32_t label[6];
    for (int i = 0; i < 6; i++) label[i] = (int32_t)t.label[i];
    xent_run(&t, 0.1f, I64(t.label, 6));
    xent_run(&u, 0.1f, I32(label, 6));
    assert_memory_equal(t.loss, u.loss, 6 * sizeof(float));
    assert_memory_equal(t.dx, u.dx, 30 * sizeof(float));
    t.label[3] = 5; /* outside */
    t.label[4] = -2;
    for (int j = 0; j < 5; j++) t.x[5 + j] = t.x[10 + j] = NAN; /* ignored by label, by weight */
    t.x[26] = NAN;
    xent_run(&t, 0.1f, I64(t.label, 6));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(isnan(t.loss[i]), i >= 3);
        assert_int_equal(isnan(t.dx[5 * i]), i >= 3);
    }
    assert_true(t.loss[1] == 0 && t.loss[2] == 0 && t.dx[5] == 0 && t.dx[14] == 0);
    xent_free(&t);
    xent_free(&u);
}

static void check_mse(int64_t rows, int64_t width) {
    int64_t n = rows * width;
    float *y = kt_normal(n, 1, 0, 1), *target = kt_normal(n, 2, 0, 1),
          *weight = kt_normal(rows, 3, 1, 0.2), *dloss = kt_normal(rows, 4, 0.1, 0.02),
          *loss = kt_zeros(rows), *dy = kt_zeros(n);
    double *want = malloc((size_t)n * sizeof *want);
    weight[rows - 1] = rows > 1 ? 0 : weight[0];
    if (rows > 1) y[n - 1] = NAN; /* masked */
    RUN(MSE_FWD, NULL, VIEWS(F32(y, rows, width), F32(target, rows, width), F32(weight, rows)),
        VIEWS(F32(loss, rows)));
    RUN(MSE_BWD, NULL,
        VIEWS(F32(y, rows, width), F32(target, rows, width), F32(weight, rows), F32(dloss, rows)),
        VIEWS(F32(dy, rows, width)));
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t j = i * width; j < (i + 1) * width; j++) {
            double d = (double)y[j] - target[j];
            sum += d * d;
            want[j] = weight[i] == 0 ? 0 : 2 * (double)weight[i] * dloss[i] * d / (double)width;
        }
        sum = weight[i] == 0 ? 0 : weight[i] * sum / (double)width;
        kt_close(&loss[i], &sum, 1, 2e-6, 0, "mean squared error");
    }
    kt_close(dy, want, n, 1e-6, 1e-8, "mean squared error: gradient");
    float *all[] = {y, target, weight, dloss, loss, dy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(want);
}

/* Equal terms: sums in f32 would be rounded to the same side each time, by 1e-3 of the whole. */
static void check_mse_wide(void) {
    const int64_t width = 3000001;
    float *y = kt_zeros(width), *target = kt_zeros(width), weight = 1, loss = 0;
    for (int64_t i = 0; i < width; i++) y[i] = 0.3f;
    const double want = (double)y[0] * y[0];
    RUN(MSE_FWD, NULL, VIEWS(F32(y, 1, width), F32(target, 1, width), F32(&weight, 1)),
        VIEWS(F32(&loss, 1)));
    kt_close(&loss, &want, 1, 4e-6, 0, "mean squared error of a wide row");
    free(y), free(target);
}

static void test_mse(void **state) {
    check_mse_wide();
    check_mse(1, 1);
    check_mse(3, 17);
    check_mse(100003, 3);
    check_mse(2, 100003);
}

static float topk(const float *x, int64_t width, int64_t label, int k) {
    float weight = 0.75f, correct = -1;
    tr_topk_attr_t attr = {k};
    RUN(TOPK_CORRECT, &attr, VIEWS(F32(x, 1, width), I64(&label, 1), F32(&weight, 1)),
        VIEWS(F32(&correct, 1)));
    return correct;
}

static void test_topk(void **state) {
    float x[] = {1, 3, 2, 3, -5, 3};
    /* equal: the smaller index is larger */
    assert_true(topk(x, 6, 1, 1) == 0.75f && topk(x, 6, 3, 1) == 0);
    assert_true(topk(x, 6, 3, 2) == 0.75f && topk(x, 6, 5, 2) == 0 && topk(x, 6, 5, 3) == 0.75f);
    assert_true(topk(x, 6, 2, 3) == 0 && topk(x, 6, 2, 4) == 0.75f && topk(x, 6, 4, 5) == 0 &&
                topk(x, 6, 4, 6) == 0.75f);
    assert_true(topk(x, 6, -1, 6) == 0 && topk(x, 6, 6, 6) == 0);
    x[4] = NAN;
    assert_true(topk(x, 6, 1, 1) == 0);
    enum { ROWS = 3001, V = 37 };
    float *logits = kt_normal(ROWS * V, 1, 0, 1), *weight = kt_normal(ROWS, 2, 1, 0.1),
          *correct = kt_zeros(ROWS);
    int32_t *label = malloc(ROWS * sizeof *label);
    tr_topk_attr_t attr = {5};
    for (int i = 0; i < ROWS; i++) label[i] = i % V;
    RUN(TOPK_CORRECT, &attr, VIEWS(F32(logits, ROWS, V), I32(label, ROWS), F32(weight, ROWS)),
        VIEWS(F32(correct, ROWS)));
    for (int i = 0; i < ROWS; i++) {
        int larger = 0;
        for (int j = 0; j < V; j++) larger += logits[i * V + j] > logits[i * V + label[i]];
        assert_true(correct[i] == (larger < 5 ? weight[i] : 0));
    }
    free(logits);
    free(weight);
    free(correct);
    free(label);
}

static void test_weighted_sum(void **state) {
    static const int64_t sizes[] = {1, 3, 17, 1000003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int weighted = 0; weighted < 2; weighted++) {
            int64_t n = sizes[s];
            float *x = kt_normal(n, 1, 1, 1), *weight = kt_normal(n, 2, 1, 1), sum = 2.5f;
            double want = 2.5;
            for (int64_t i = 0; i < n; i++) want += x[i] * (weighted ? (double)weight[i] : 1);
            RUN(WEIGHTED_SUM, NULL, VIEWS(F32(x, n), weighted ? F32(weight, n) : ABSENT),
                VIEWS(F32(&sum, 1)));
            kt_close(&sum, &want, 1, 1e-7, 1e-7, "weighted sum"); /* double inside: one rounding */
            free(x);
            free(weight);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xent),         cmocka_unit_test(test_xent_labels),
        cmocka_unit_test(test_mse),          cmocka_unit_test(test_topk),
        cmocka_unit_test(test_weighted_sum),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
