/* Layer normalisation against plain double precision. */
#include "cpu_kernel_test.h"

/* What one row must give, from exact statistics. */
static void row_statistics(const float *x, int64_t width, double eps, double *out_mean,
                           double *out_rstd) {
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < width; i++) mean += x[i];
    mean /= (double)width;
    for (int64_t i = 0; i < width; i++) squares += (x[i] - mean) * (x[i] - mean);
    *out_mean = mean;
    *out_rstd = 1 / sqrt(squares / (double)width + eps);
}

typedef struct {
    int64_t rows, width;
    float *x, *dy, *gamma, *beta, *y, *mean, *rstd, *dx, *dgamma, *dbeta;
} ln_t;

static ln_t ln_make(int64_t rows, int64_t width, double mean, double deviation) {
    int64_t n = rows * width;
    return (ln_t){rows,
                  width,
                  kt_normal(n, 1, mean, deviation),
                  kt_normal(n, 2, 0.1, 1),
                  kt_normal(width, 3, 1, 0.3),
                  kt_normal(width, 4, 0, 0.5),
                  kt_zeros(n),
                  kt_zeros(rows),
                  kt_zeros(rows),
                  kt_zeros(n),
                  kt_zeros(width),
                  kt_zeros(width)};
}

static void ln_free(ln_t *l) {
    float *all[] = {l->x,    l->dy,   l->gamma, l->beta,   l->y,
                    l->mean, l->rstd, l->dx,    l->dgamma, l->dbeta};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void check_forward(ln_t *l, double eps, double relative) {
    int64_t r = l->rows, c = l->width;
    double *want = malloc((size_t)(r * c) * sizeof *want);
    tr_norm_attr_t attr = {(float)eps, TR_ACT_NONE};
    RUN(LAYERNORM_FWD, &attr, VIEWS(F32(l->x, r, c), F32(l->gamma, c), F32(l->beta, c)),
        VIEWS(F32(l->y, r, c), F32(l->mean, r), F32(l->rstd, r)));
    for (int64_t i = 0; i < r; i++) {
        double mean, rstd;
        row_statistics(l->x + i * c, c, (double)(float)eps, &mean, &rstd);
        kt_close(&l->mean[i], &mean, 1, 1e-6, 1e-6, "layer norm: mean");
        kt_close(&l->rstd[i], &rstd, 1, relative, 0, "layer norm: rstd");
        for (int64_t j = 0; j < c; j++)
            want[i * c + j] =
                ((double)l->x[i * c + j] - l->mean[i]) * l->rstd[i] * l->gamma[j] + l->beta[j];
    }
    kt_close(l->y, want, r * c, 1e-6, 2e-6, "layer norm: y");
    free(want);
}

static void reference_backward(const ln_t *l, double *dx, double *dgamma, double *dbeta) {
    int64_t c = l->width;
    for (int64_t i = 0; i < l->rows; i++) {
        double sum = 0, product = 0, mean = l->mean[i], rstd = l->rstd[i];
        const float *x = l->x + i * c, *dy = l->dy + i * c;
        for (int64_t j = 0; j < c; j++) {
            double g = (double)dy[j] * l->gamma[j], h = (x[j] - mean) * rstd;
            sum += g;
            product += g * h;
            dgamma[j] += dy[j] * h;
            dbeta[j] += dy[j];
        }
        for (int64_t j = 0; j < c; j++)
            dx[i * c + j] = rstd * ((double)dy[j] * l->gamma[j] - sum / (double)c -
                                    (x[j] - mean) * rstd * product / (double)c);
    }
}

static void run_backward(ln_t *l, tr_view_t dx) {
    int64_t r = l->rows, c = l->width;
    tr_norm_attr_t attr = {1e-5f, TR_ACT_NONE};
    RUN(LAYERNORM_BWD, &attr,
        VIEWS(F32(l->dy, r, c), F32(l->x, r, c), F32(l->gamma, c), F32(l->mean, r),
              F32(l->rstd, r)),
        VIEWS(dx, F32(l->dgamma, c), F32(l->dbeta, c)));
}

static void check_backward(ln_t *l) {
    int64_t r = l->rows, c = l->width;
    double *dx = calloc((size_t)(r * c), sizeof *dx), *dgamma = calloc((size_t)c, sizeof *dgamma),
           *dbeta = calloc((size_t)c, sizeof *dbeta), size = sqrt((double)r);
    reference_backward(l, dx, dgamma, dbeta);
    for (int absent = 0; absent < 2; absent++) {
        memset(l->dgamma, 0xff, (size_t)c * sizeof(float));
        memset(l->dbeta, 0xff, (size_t)c * sizeof(float));
        run_backward(l, absent ? ABSENT : F32(l->dx, r, c));
        kt_close(l->dgamma, dgamma, c, 2e-6, 3e-6 * size, "layer norm: dgamma");
        kt_close(l->dbeta, dbeta, c, 2e-6, 3e-6 * size, "layer norm: dbeta");
    }
    kt_close(l->dx, dx, r * c, 2e-6, 1e-5, "layer norm: dx");
    free(dx);
    free(dgamma);
    free(dbeta);
}

static void test_layernorm(void **state) {
    static const int64_t shapes[][2] = {{1, 3},     {3, 17},      {1, 768},
                                        {2000, 10}, {10007, 31},  {777, 32},
                                        {513, 768}, {100, 10003}, {4099, 33}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ln_t l = ln_make(shapes[i][0], shapes[i][1], 0.7, 1.3);
        check_forward(&l, 1e-5, 3e-6);
        check_backward(&l);
        ln_free(&l);
    }
}

static void test_large_mean(void **state) {
    ln_t l = ln_make(101, 769, 1000, 0.5);
    check_forward(&l, 1e-12, 1e-5);
    /* the first element unlike all others */
    for (int64_t i = 0; i < l.rows; i++) l.x[i * l.width] = 0;
    check_forward(&l, 1e-12, 1e-5);
    ln_free(&l);
    l = ln_make(101, 769, 10000, 0.005); /* the mean's own rounding is a tenth of the deviation */
    check_forward(&l, 1e-12, 1e-5);
    ln_free(&l);
}

static void test_one_column_and_nan(void **state) {
    ln_t l = ln_make(5, 1, 3, 1);
    check_forward(&l, 1e-5, 1e-6);
    ln_free(&l);
    l = ln_make(3, 40, 0, 1);
    l.x[45] = NAN;
    tr_norm_attr_t attr = {1e-5f, TR_ACT_NONE};
    RUN(LAYERNORM_FWD, &attr, VIEWS(F32(l.x, 3, 40), F32(l.gamma, 40), F32(l.beta, 40)),
        VIEWS(F32(l.y, 3, 40), F32(l.mean, 3), F32(l.rstd, 3)));
    for (int i = 0; i < 120; i++) assert_int_equal(isnan(l.y[i]), i / 40 == 1);
    ln_free(&l);
}

/* A long row of equal deviations: sums in float would all round to the same side. */
static void test_wide_row(void **state) {
    enum { WIDTH = 1 << 22 };
    ln_t l = ln_make(1, WIDTH, 0, 1);
    const tr_norm_attr_t attr = {1e-5f, TR_ACT_NONE};
    double mean, rstd;
    for (int64_t i = 0; i < WIDTH; i++) l.x[i] = i / 32 % 2 ? 0.7f : -0.7f;
    row_statistics(l.x, WIDTH, (double)1e-5f, &mean, &rstd);
    RUN(LAYERNORM_FWD, &attr, VIEWS(F32(l.x, 1, WIDTH), F32(l.gamma, WIDTH), F32(l.beta, WIDTH)),
        VIEWS(F32(l.y, 1, WIDTH), F32(l.mean, 1), F32(l.rstd, 1)));
    kt_close(l.mean, &mean, 1, 0, 1e-6, "layer norm of a wide row: mean");
    kt_close(l.rstd, &rstd, 1, 2e-6, 0, "layer norm of a wide row: rstd");
    ln_free(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layernorm),
        cmocka_unit_test(test_large_mean),
        cmocka_unit_test(test_one_column_and_nan),
        cmocka_unit_test(test_wide_row),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
