/* Batch and layer normalisation against plain double precision. */
#include "cpu_kernel_test.h"

typedef struct {
    int64_t rows, channels;
    bool relu;
    float eps;
    float *x, *dy, *gamma, *beta, *y, *mean, *rstd, *moments, *dx, *dgamma, *dbeta;
} bn_t;

static bn_t bn_make(int64_t rows, int64_t channels, bool relu, double mean, double deviation) {
    int64_t n = rows * channels;
    return (bn_t){rows,
                  channels,
                  relu,
                  1e-5f,
                  kt_normal(n, 1, mean, deviation),
                  kt_normal(n, 2, 0.1, 1),
                  kt_normal(channels, 3, 1, 0.3),
                  kt_normal(channels, 4, 0, 0.5),
                  kt_zeros(n),
                  kt_zeros(channels),
                  kt_zeros(channels),
                  kt_zeros(2 * channels),
                  kt_zeros(n),
                  kt_zeros(channels),
                  kt_zeros(channels)};
}

static void bn_free(bn_t *b) {
    float *all[] = {b->x,    b->dy,      b->gamma, b->beta,   b->y,    b->mean,
                    b->rstd, b->moments, b->dx,    b->dgamma, b->dbeta};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void bn_forward(bn_t *b) {
    int64_t r = b->rows, c = b->channels;
    tr_norm_attr_t attr = {b->eps, b->relu ? TR_ACT_RELU : TR_ACT_NONE};
    memset(b->moments, 0, (size_t)(2 * c) * sizeof *b->moments); /* the kernel adds to them */
    RUN(BATCHNORM_TRAIN, &attr, VIEWS(F32(b->x, r, c), F32(b->gamma, c), F32(b->beta, c)),
        VIEWS(F32(b->y, r, c), F32(b->mean, c), F32(b->rstd, c), F32(b->moments, 2, c)));
}

static void bn_backward(bn_t *b, float *dx) {
    int64_t r = b->rows, c = b->channels;
    tr_norm_attr_t attr = {b->eps, b->relu ? TR_ACT_RELU : TR_ACT_NONE};
    RUN(BATCHNORM_BWD, &attr,
        VIEWS(F32(b->dy, r, c), F32(b->x, r, c), F32(b->gamma, c), F32(b->beta, c), F32(b->mean, c),
              F32(b->rstd, c)),
        VIEWS(dx ? F32(dx, r, c) : ABSENT, F32(b->dgamma, c), F32(b->dbeta, c)));
}

/* Mean and sum of squared differences of a channel, two passes in double. */
static void exact_moments(const bn_t *b, int64_t channel, double *out_mean, double *out_squares) {
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < b->rows; i++) mean += b->x[i * b->channels + channel];
    mean /= (double)b->rows;
    for (int64_t i = 0; i < b->rows; i++) squares += pow(b->x[i * b->channels + channel] - mean, 2);
    *out_mean = mean;
    *out_squares = squares;
}

static void check_statistics(const bn_t *b, double relative) {
    double n = (double)b->rows;
    for (int64_t c = 0; c < b->channels; c++) {
        double mean, squares;
        exact_moments(b, c, &mean, &squares);
        double rstd = 1 / sqrt(squares / n + (double)b->eps);
        double variance = b->rows > 1 ? squares / (n - 1) : squares / n;
        kt_close(&b->mean[c], &mean, 1, 1e-6, 1e-6, "batch norm: mean");
        kt_close(&b->rstd[c], &rstd, 1, relative, 0, "batch norm: rstd");
        kt_close(&b->moments[c], &mean, 1, 1e-6, 1e-6, "batch norm: moments, mean");
        kt_close(&b->moments[b->channels + c], &variance, 1, relative, 1e-12,
                 "batch norm: moments, variance");
    }
}

/* From the kernel's own mean and rstd, which are tested apart: what is left is rounding. */
static void check_output(const bn_t *b) {
    int64_t n = b->rows * b->channels;
    double *want = malloc((size_t)n * sizeof *want);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = i % b->channels;
        double v = ((double)b->x[i] - b->mean[c]) * b->rstd[c] * b->gamma[c] + b->beta[c];
        want[i] = b->relu && v < 0 ? 0 : v;
    }
    kt_close(b->y, want, n, 1e-6, 2e-6, "batch norm: y");
    free(want);
}

static void check_gradients(const bn_t *b, const float *dy, const float *dx) {
    int64_t n = b->rows * b->channels;
    double *want = malloc((size_t)n * sizeof *want), rows = (double)b->rows;
    for (int64_t c = 0; c < b->channels; c++) {
        double sum = 0, product = 0, size = 0, mean = b->mean[c], rstd = b->rstd[c];
        for (int64_t i = c; i < n; i += b->channels) {
            double g = b->relu && !(b->y[i] > 0) ? 0 : dy[i], h = (b->x[i] - mean) * rstd;
            sum += g;
            product += g * h;
            size += fabs(g) * (1 + fabs(h));
        }
        for (int64_t i = c; i < n; i += b->channels) {
            double g = b->relu && !(b->y[i] > 0) ? 0 : dy[i], h = (b->x[i] - mean) * rstd;
            want[i] = b->gamma[c] * rstd * (g - sum / rows - h * product / rows);
        }
        kt_close(&b->dbeta[c], &sum, 1, 1e-6, 1e-6 * size, "batch norm: dbeta");
        kt_close(&b->dgamma[c], &product, 1, 1e-6, 1e-6 * size, "batch norm: dgamma");
    }
    if (dx) kt_close(dx, want, n, 2e-6, 1e-5, "batch norm: dx");
    free(want);
}

static void check_batchnorm(int64_t rows, int64_t channels, bool relu) {
    bn_t b = bn_make(rows, channels, relu, 0.7, 1.3);
    int64_t n = rows * channels;
    bn_forward(&b);
    check_statistics(&b, 3e-6);
    check_output(&b);
    bn_backward(&b, b.dx);
    check_gradients(&b, b.dy, b.dx);
    bn_backward(&b, NULL);
    check_gradients(&b, b.dy, NULL);
    float *dy = kt_zeros(n);
    memcpy(dy, b.dy, (size_t)n * sizeof *dy);
    bn_backward(&b, b.dy); /* in place */
    check_gradients(&b, dy, b.dy);
    assert_memory_equal(b.dy, b.dx, (size_t)n * sizeof *dy);
    free(dy);
    bn_free(&b);
}

static void test_batchnorm(void **state) {
    static const int64_t shapes[][2] = {
        {1, 1},      {2, 3},     {1000, 1},  {100003, 1}, {777, 3},    {12345, 16},
        {4099, 17},  {3000, 32}, {2000, 63}, {513, 64},   {300, 100},  {67, 1000},
        {129, 2048}, {64, 10},   {1023, 5},  {1, 2048},   {20000, 20}, {130, 1025}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_batchnorm(shapes[i][0], shapes[i][1], false);
        check_batchnorm(shapes[i][0], shapes[i][1], true);
    }
}

/* Digits that E[x^2] - E[x]^2 would lose: a mean of 1000 deviations and more. */
static void test_batchnorm_large_mean(void **state) {
    static const int64_t shapes[][2] = {{20011, 1}, {5003, 7}, {4001, 32}, {777, 256}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        bn_t b = bn_make(shapes[i][0], shapes[i][1], true, 1000, 0.5);
        b.eps = 1e-12f;
        bn_forward(&b);
        check_statistics(&b, 3e-6);
        check_output(&b);
        b.x[0] = 0; /* an outlier in the very first row */
        bn_forward(&b);
        check_statistics(&b, 3e-6);
        bn_free(&b);
    }
}

static void test_batchnorm_constant(void **state) {
    bn_t b = bn_make(5001, 3, false, 123.25, 0);
    bn_forward(&b);
    for (int c = 0; c < 3; c++) assert_true(b.mean[c] == 123.25f && b.moments[3 + c] == 0);
    check_statistics(&b, 1e-6);
    check_output(&b);
    bn_free(&b);
}

/* A NaN spoils its channel, and no other. */
static void test_batchnorm_nan(void **state) {
    bn_t b = bn_make(999, 6, true, 0, 1);
    b.x[6 * 500 + 2] = NAN;
    bn_forward(&b);
    for (int c = 0; c < 6; c++) {
        assert_int_equal(isnan(b.mean[c]), c == 2);
        assert_int_equal(isnan(b.rstd[c]), c == 2);
        assert_int_equal(isnan(b.y[c]), c == 2);
        assert_int_equal(isnan(b.moments[6 + c]), c == 2);
    }
    bn_free(&b);
}

static void test_batchnorm_eval(void **state) {
    bn_t b = bn_make(777, 19, true, 0.5, 2);
    float *mean = kt_normal(19, 8, 0.4, 0.1), *variance = kt_normal(19, 9, 4, 0.3);
    tr_norm_attr_t attr = {b.eps, TR_ACT_RELU};
    RUN(BATCHNORM_EVAL, &attr,
        VIEWS(F32(b.x, 7, 111, 19), F32(b.gamma, 19), F32(b.beta, 19), F32(mean, 19),
              F32(variance, 19)),
        VIEWS(F32(b.y, 7, 111, 19)));
    for (int c = 0; c < 19; c++) {
        b.mean[c] = mean[c];
        b.rstd[c] = (float)(1 / sqrt((double)variance[c] + (double)b.eps));
    }
    check_output(&b);
    free(mean);
    free(variance);
    bn_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batchnorm),          cmocka_unit_test(test_batchnorm_large_mean),
        cmocka_unit_test(test_batchnorm_constant), cmocka_unit_test(test_batchnorm_nan),
        cmocka_unit_test(test_batchnorm_eval),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
