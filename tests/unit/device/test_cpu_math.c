/* Products, convolutions, pooling and column sums against plain references in double precision, at
 * odd sizes. */
//TEST
//TEST OMP_THREAD_LIMIT=1
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "kernel_run.h"
#include "../../support/op_harness.h"
#include "base/mem.h"
#include "device/cpu/cpu_onednn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A single rounding, times the sum of the terms' magnitudes, times what long sums and approximated
 * functions add. */
#define RELATIVE  2e-6
#define ACT_ERROR 5e-6

static kernel_run_tensor_t input(const tr_shape_t *shape, const float *data) {
    return (kernel_run_tensor_t){.dtype = TR_F32, .shape = *shape, .data = data};
}

static kernel_run_tensor_t output(const tr_shape_t *shape, const double *expect,
                                  const double *bound) {
    return (kernel_run_tensor_t){
        .dtype = TR_F32, .shape = *shape, .expect = expect, .bound = bound};
}

static void bound_of(double *magnitude, int64_t count, double more) {
    for (int64_t i = 0; i < count; i++) magnitude[i] = magnitude[i] * RELATIVE + more;
}

/* -- products ---------------------------------------------------------------------------------- */

typedef struct {
    int leading; /* leading dimensions of A and C: 2 and then 3 */
    bool b_leading, trans_a, trans_b, bias;
    int m, n, k;
    float alpha, beta;
    tr_act_t act;
} matmul_case_t;

static tr_shape_t matrix_shape(int leading, int64_t rows, int64_t columns) {
    tr_shape_t shape = {.ndim = leading + 2};
    for (int i = 0; i < leading; i++) shape.dim[i] = 2 + i;
    shape.dim[leading] = rows, shape.dim[leading + 1] = columns;
    return shape;
}

static void matmul_reference(const matmul_case_t *t, int64_t batch, const float *a, const float *b,
                             const float *bias, const float *c0, double *c, double *bound) {
    for (int64_t i = 0; i < batch * t->m * t->n; i++) {
        int64_t l = i / (t->m * t->n), row = i / t->n % t->m, column = i % t->n;
        const float *al = a + l * t->m * t->k, *bl = t->b_leading ? b + l * t->k * t->n : b;
        for (int64_t j = 0; j < t->k; j++) {
            double x = t->trans_a ? al[j * t->m + row] : al[row * t->k + j];
            double y = t->trans_b ? bl[column * t->k + j] : bl[j * t->n + column];
            c[i] += x * y, bound[i] += fabs(x * y);
        }
        double value = (double)t->alpha * c[i] + (bias ? (double)bias[column] : 0);
        c[i] = op_act(t->act, value) + (t->beta != 0 ? (double)t->beta * (double)c0[i] : 0);
    }
}

static void try_matmul(const matmul_case_t *t) {
    char what[160];
    snprintf(what, sizeof what,
             "leading %d%s, %d x %d x %d, trans %d %d, bias %d, alpha %g, beta %g, act %d",
             t->leading, t->b_leading ? " of B too" : "", t->m, t->n, t->k, t->trans_a, t->trans_b,
             t->bias, (double)t->alpha, (double)t->beta, t->act);
    tr_shape_t as = matrix_shape(t->leading, t->trans_a ? t->k : t->m, t->trans_a ? t->m : t->k);
    tr_shape_t bs = matrix_shape(t->b_leading ? t->leading : 0, t->trans_b ? t->n : t->k,
                                 t->trans_b ? t->k : t->n);
    tr_shape_t cs = matrix_shape(t->leading, t->m, t->n), bias_shape = TR_SHAPE(t->n);
    int64_t count = tr_shape_elems(&cs);
    float *a = kernel_run_random(tr_shape_elems(&as), 1),
          *b = kernel_run_random(tr_shape_elems(&bs), 2);
    float *bias = kernel_run_random(t->n, 3), *c0 = kernel_run_random(count, 4);
    double *expect = kernel_run_zeros(count), *bound = kernel_run_zeros(count);
    matmul_reference(t, count / (t->m * t->n), a, b, t->bias ? bias : NULL, c0, expect, bound);
    bound_of(bound, count, ACT_ERROR);
    const tr_matmul_attr_t attr = {t->trans_a, t->trans_b, t->alpha, t->beta, t->act};
    kernel_run_t run = {.id = TR_K_MATMUL, .what = what, .attr = &attr, .n_in = 3, .n_out = 1};
    run.in[0] = input(&as, a), run.in[1] = input(&bs, b);
    run.in[2] = t->bias ? input(&bias_shape, bias) : KERNEL_RUN_ABSENT;
    run.out[0] = output(&cs, expect, bound);
    if (t->beta != 0) run.out[0].data = c0; /* else C begins as NaN: it must not be read */
    kernel_run(&run);
    tr_free(&a), tr_free(&b), tr_free(&bias), tr_free(&c0), tr_free(&expect), tr_free(&bound);
}

static void matmul_of_every_layout(void **state) {
    static const int sizes[][3] = {{1, 1, 1},  {1, 5, 3},     {5, 1, 3},   {3, 5, 1},
                                   {17, 3, 5}, {64, 10, 256}, {33, 65, 47}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t trans = 0; trans < 4; trans++) {
            matmul_case_t t = {
                .trans_a = trans & 1, .trans_b = trans & 2, .bias = i % 2, .alpha = 1};
            t.m = sizes[i][0], t.n = sizes[i][1], t.k = sizes[i][2];
            t.leading = (int)(i + trans) % 3;
            try_matmul(&t);
            t.b_leading = true;
            if (t.leading) try_matmul(&t);
        }
}

static void matmul_with_alpha_beta_and_activation(void **state) {
    static const float alphas[] = {1, -0.5f}, betas[] = {0, 1, 0.25f};
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 3; b++)
            for (int i = 0; i < 10; i++) {
                matmul_case_t t = {
                    .m = 9, .n = 21, .k = 14, .alpha = alphas[a], .beta = betas[b], .act = i % 5};
                t.bias = i % 2, t.leading = i >= 5, t.b_leading = i >= 8,
                t.trans_a = i >= 5 && i < 7;
                t.trans_b = i % 3 == 0;
                try_matmul(&t);
            }
}

static void matmul_of_the_models(void **state) {
    try_matmul(&(matmul_case_t){.m = 64,
                                .n = 256,
                                .k = 784,
                                .trans_b = true,
                                .bias = true,
                                .alpha = 1,
                                .act = TR_ACT_RELU});
    try_matmul(&(matmul_case_t){.m = 256, .n = 784, .k = 64, .trans_a = true, .alpha = 1});
    try_matmul(
        &(matmul_case_t){.m = 256, .n = 784, .k = 64, .trans_a = true, .alpha = 1, .beta = 1});
    try_matmul(&(matmul_case_t){.m = 64, .n = 256, .k = 10, .alpha = 1});
}

/* Rows of B that are a multiple of 2 KiB apart. */
static void matmul_of_a_copy(void **state) {
    for (int trans = 0; trans < 2; trans++) {
        matmul_case_t t = {.m = 50, .n = 512, .k = 31, .trans_a = trans, .alpha = 1};
        t.bias = !trans, t.act = trans ? TR_ACT_NONE : TR_ACT_GELU;
        try_matmul(&t);
        t.n = 1024, t.beta = 1, t.act = TR_ACT_NONE, t.bias = false;
        try_matmul(&t);
    }
    try_matmul(&(matmul_case_t){.leading = 1, .m = 27, .n = 512, .k = 9, .alpha = 1});
}

static void column_sum_does_not_depend_on_threads(void **state) {
    static const int sizes[][2] = {{1, 1},    {1, 17},    {7, 3},     {64, 10},
                                   {5000, 1}, {30001, 5}, {3, 70001}, {4099, 64}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tr_shape_t xs = TR_SHAPE(sizes[i][0], sizes[i][1]), ys = TR_SHAPE(sizes[i][1]);
        float *x = kernel_run_random(tr_shape_elems(&xs), (uint32_t)i);
        double *expect = kernel_run_zeros(ys.dim[0]), *bound = kernel_run_zeros(ys.dim[0]);
        for (int64_t j = 0; j < tr_shape_elems(&xs); j++) {
            expect[j % ys.dim[0]] += (double)x[j];
            bound[j % ys.dim[0]] += fabs((double)x[j]);
        }
        bound_of(bound, ys.dim[0], 1e-7);
        kernel_run_t run = {.id = TR_K_COLUMN_SUM, .what = "column sum", .n_in = 1, .n_out = 1};
        run.in[0] = input(&xs, x), run.out[0] = output(&ys, expect, bound);
        run.same_for_threads = true;
        kernel_run(&run);
        tr_free(&x), tr_free(&expect), tr_free(&bound);
    }
}

/* -- convolutions ------------------------------------------------------------------------------ */

typedef struct {
    int images, channels, filters, in[3];
    tr_conv_attr_t attr;
    bool bias;
} conv_case_t;

/* A shape around the spatial dimensions. */
static tr_shape_t around(int64_t first, const int64_t *spatial, int count, int64_t last) {
    tr_shape_t shape = {.ndim = count + 2};
    shape.dim[0] = first, shape.dim[count + 1] = last;
    for (int i = 0; i < count; i++) shape.dim[i + 1] = spatial[i];
    return shape;
}

/* The case with three spatial dimensions: missing leading ones count as one. */
typedef struct {
    int64_t in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
} cube_t;

static cube_t cube_of(const conv_case_t *t) {
    cube_t c;
    for (int i = 0; i < 3; i++) {
        int from = i - (3 - t->attr.spatial);
        c.in[i] = c.out[i] = c.kernel[i] = c.stride[i] = c.dilation[i] = 1, c.pad[i] = 0;
        if (from < 0) continue;
        c.in[i] = t->in[from], c.kernel[i] = t->attr.kernel[from],
        c.stride[i] = t->attr.stride[from];
        c.pad[i] = t->attr.pad_lo[from], c.dilation[i] = t->attr.dilation[from];
        c.out[i] =
            (c.in[i] + c.pad[i] + t->attr.pad_hi[from] - c.dilation[i] * (c.kernel[i] - 1) - 1) /
                c.stride[i] +
            1;
    }
    return c;
}

/* The position in the image that output position `o` sees through kernel position `k`, or -1 in the
 * padding. */
static int64_t seen(const cube_t *c, int64_t o, int64_t k) {
    int64_t at = 0, o_at[3] = {o / c->out[2] / c->out[1], o / c->out[2] % c->out[1], o % c->out[2]};
    int64_t k_at[3] = {k / c->kernel[2] / c->kernel[1], k / c->kernel[2] % c->kernel[1],
                       k % c->kernel[2]};
    for (int i = 0; i < 3; i++) {
        int64_t p = o_at[i] * c->stride[i] - c->pad[i] + k_at[i] * c->dilation[i];
        if (p < 0 || p >= c->in[i]) return -1;
        at = at * c->in[i] + p;
    }
    return at;
}

static int64_t volume(const int64_t *size) {
    return size[0] * size[1] * size[2];
}

typedef struct {
    float *x, *w, *bias, *dy;
    double *y, *dx, *dw, *dbias, *y_bound, *dx_bound, *dw_bound, *dbias_bound;
    int64_t x_count, w_count, y_count;
} conv_data_t;

static void conv_reference(const conv_case_t *t, conv_data_t *d) {
    cube_t c = cube_of(t);
    int64_t in = volume(c.in), out = volume(c.out), taps = volume(c.kernel);
    int64_t group_in = t->channels / t->attr.groups, group_out = t->filters / t->attr.groups;
    for (int64_t i = 0; i < d->y_count; i++) {
        int64_t filter = i % t->filters, position = i / t->filters % out,
                image = i / t->filters / out;
        d->y[i] = d->y_bound[i] = 0;
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t at = seen(&c, position, tap);
            if (at < 0) continue;
            int64_t x0 = (image * in + at) * t->channels + filter / group_out * group_in;
            int64_t w0 = (filter * taps + tap) * group_in;
            for (int64_t j = 0; j < group_in; j++) {
                double x = d->x[x0 + j], w = d->w[w0 + j], dy = d->dy[i];
                d->y[i] += x * w, d->y_bound[i] += fabs(x * w);
                d->dx[x0 + j] += dy * w, d->dx_bound[x0 + j] += fabs(dy * w);
                d->dw[w0 + j] += dy * x, d->dw_bound[w0 + j] += fabs(dy * x);
            }
        }
        d->y[i] = op_act(t->attr.act, d->y[i] + (t->bias ? (double)d->bias[filter] : 0));
        d->dbias[filter] += (double)d->dy[i], d->dbias_bound[filter] += fabs((double)d->dy[i]);
    }
}

static conv_data_t conv_data(const conv_case_t *t) {
    cube_t c = cube_of(t);
    conv_data_t d = {.x_count = t->images * volume(c.in) * t->channels,
                     .w_count = t->filters * volume(c.kernel) * (t->channels / t->attr.groups),
                     .y_count = t->images * volume(c.out) * t->filters};
    d.x = kernel_run_random(d.x_count, 1), d.w = kernel_run_random(d.w_count, 2);
    d.bias = kernel_run_random(t->filters, 3), d.dy = kernel_run_random(d.y_count, 4);
    d.y = kernel_run_zeros(d.y_count), d.y_bound = kernel_run_zeros(d.y_count);
    d.dx = kernel_run_zeros(d.x_count), d.dx_bound = kernel_run_zeros(d.x_count);
    d.dw = kernel_run_zeros(d.w_count), d.dw_bound = kernel_run_zeros(d.w_count);
    d.dbias = kernel_run_zeros(t->filters), d.dbias_bound = kernel_run_zeros(t->filters);
    conv_reference(t, &d);
    bound_of(d.y_bound, d.y_count, t->attr.act == TR_ACT_NONE ? 1e-6 : ACT_ERROR);
    bound_of(d.dx_bound, d.x_count, 1e-6);
    bound_of(d.dw_bound, d.w_count, 1e-6);
    bound_of(d.dbias_bound, t->filters, 1e-6);
    return d;
}

static void conv_free(conv_data_t *d) {
    tr_free(&d->x), tr_free(&d->w), tr_free(&d->bias), tr_free(&d->dy);
    tr_free(&d->y), tr_free(&d->dx), tr_free(&d->dw), tr_free(&d->dbias);
    tr_free(&d->y_bound), tr_free(&d->dx_bound), tr_free(&d->dw_bound), tr_free(&d->dbias_bound);
}

static void try_conv(const conv_case_t *t) {
    char what[200];
    const tr_conv_attr_t *a = &t->attr;
    snprintf(what, sizeof what,
             "%d-D conv of %d x %d x %d, %d to %d channels, groups %d, kernel %d, stride %d, "
             "dilation %d",
             a->spatial, t->in[0], t->in[1], t->in[2], t->channels, t->filters, a->groups,
             a->kernel[0], a->stride[0], a->dilation[0]);
    cube_t c = cube_of(t);
    const int skip = 3 - a->spatial;
    tr_shape_t xs = around(t->images, c.in + skip, a->spatial, t->channels);
    tr_shape_t ys = around(t->images, c.out + skip, a->spatial, t->filters);
    tr_shape_t ws = around(t->filters, c.kernel + skip, a->spatial, t->channels / a->groups),
               bs = TR_SHAPE(t->filters);
    conv_data_t d = conv_data(t);
    kernel_run_t fwd = {.id = TR_K_CONV_FWD, .what = what, .attr = a, .n_in = 3, .n_out = 1};
    fwd.in[0] = input(&xs, d.x), fwd.in[1] = input(&ws, d.w);
    fwd.in[2] = t->bias ? input(&bs, d.bias) : KERNEL_RUN_ABSENT;
    fwd.out[0] = output(&ys, d.y, d.y_bound);
    kernel_run(&fwd);
    kernel_run_t bwd = {.id = TR_K_CONV_BWD_DATA, .what = what, .attr = a, .n_in = 2, .n_out = 1};
    bwd.in[0] = input(&ys, d.dy), bwd.in[1] = input(&ws, d.w),
    bwd.out[0] = output(&xs, d.dx, d.dx_bound);
    kernel_run(&bwd);
    kernel_run_t wgt = {
        .id = TR_K_CONV_BWD_WEIGHTS, .what = what, .attr = a, .n_in = 2, .n_out = 2};
    wgt.in[0] = input(&xs, d.x), wgt.in[1] = input(&ys, d.dy),
    wgt.out[0] = output(&ws, d.dw, d.dw_bound);
    wgt.out[1] = t->bias ? output(&bs, d.dbias, d.dbias_bound) : KERNEL_RUN_ABSENT;
    kernel_run(&wgt);
    conv_free(&d);
}

#define CONV(...) try_conv(&(conv_case_t){__VA_ARGS__})
#define ONES                                                                                       \
    { 1, 1, 1 }

static void conv_one_dimension(void **state) {
    CONV(2, 1, 3, {20}, {1, {3}, {1}, {1}, {1}, ONES, 1, TR_ACT_NONE}, true);
    CONV(3, 5, 17, {33}, {1, {4}, {2}, {0}, {3}, ONES, 1, TR_ACT_TANH}, false);
    CONV(1, 16, 32, {40}, {1, {3}, {3}, {2}, {0}, {2}, 1, TR_ACT_GELU}, true);
    CONV(2, 6, 9, {12}, {1, {1}, {1}, {0}, {0}, ONES, 3, TR_ACT_NONE}, true);
}

static void conv_two_dimensions(void **state) {
    CONV(4, 1, 32, {28, 28}, {2, {5, 5}, {1, 1}, {2, 2}, {2, 2}, ONES, 1, TR_ACT_NONE}, true);
    CONV(2, 32, 64, {14, 14}, {2, {5, 5}, {1, 1}, {2, 2}, {2, 2}, ONES, 1, TR_ACT_NONE}, false);
    CONV(2, 64, 128, {7, 7}, {2, {3, 3}, {1, 1}, {1, 1}, {1, 1}, ONES, 1, TR_ACT_RELU}, true);
    CONV(1, 3, 16, {9, 11}, {2, {3, 2}, {2, 3}, {1, 0}, {0, 2}, ONES, 1, TR_ACT_RELU}, true);
    CONV(3, 17, 5, {10, 7}, {2, {3, 3}, {1, 2}, {2, 2}, {1, 2}, {2, 1}, 1, TR_ACT_SIGMOID}, true);
    CONV(2, 1, 1, {6, 5}, {2, {2, 3}, {1, 1}, {0, 1}, {0, 1}, ONES, 1, TR_ACT_NONE}, true);
    CONV(2, 24, 40, {8, 8}, {2, {1, 1}, {2, 2}, {0, 0}, {0, 0}, ONES, 1, TR_ACT_NONE}, false);
    CONV(1, 3, 64, {30, 30}, {2, {7, 7}, {2, 2}, {3, 3}, {3, 3}, ONES, 1, TR_ACT_RELU}, true);
}

static void conv_groups(void **state) {
    CONV(2, 8, 12, {9, 9}, {2, {3, 3}, {1, 1}, {1, 1}, {1, 1}, ONES, 4, TR_ACT_NONE}, true);
    CONV(2, 19, 19, {8, 6}, {2, {3, 3}, {2, 1}, {1, 1}, {1, 1}, ONES, 19, TR_ACT_RELU}, true);
    CONV(1, 32, 64, {7, 7}, {2, {3, 3}, {1, 1}, {1, 1}, {1, 1}, ONES, 2, TR_ACT_GELU}, false);
}

static void conv_three_dimensions(void **state) {
    CONV(2, 4, 16, {8, 8, 8}, {3, {3, 3, 3}, ONES, ONES, ONES, ONES, 1, TR_ACT_NONE}, true);
    CONV(1, 3, 5, {7, 5, 6}, {3, {2, 3, 1}, {2, 1, 3}, {0, 1, 0}, {1, 2, 0}, ONES, 1, TR_ACT_RELU},
         true);
    CONV(1, 16, 17, {6, 6, 6},
         {3, {2, 2, 2}, {1, 1, 2}, {1, 0, 1}, {0, 2, 1}, {2, 1, 2}, 1, TR_ACT_NONE}, false);
    CONV(1, 6, 4, {4, 5, 4}, {3, {3, 3, 3}, ONES, ONES, ONES, ONES, 2, TR_ACT_NONE}, true);
}

/* The reference code of oneDNN is correct, and hundreds of times slower: nothing else would notice.
 * Below AVX2 it has nothing else for some. */
static void conv_is_never_the_reference_code(void **state) {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2")) skip();
#endif
    static const int shapes[][5] = {{1, 28, 32, 5, 1},   {32, 14, 64, 5, 1}, {64, 7, 128, 3, 1},
                                    {128, 3, 256, 3, 1}, {3, 32, 16, 3, 1},  {16, 32, 32, 3, 2},
                                    {16, 32, 32, 1, 2},  {3, 64, 64, 7, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = CPU_DNN_CONV_FWD; kind <= CPU_DNN_CONV_BWD_WEIGHTS; kind++) {
            cpu_dnn_t *dnn = NULL;
            const int c = shapes[i][0], h = shapes[i][1], k = shapes[i][2], f = shapes[i][3],
                      s = shapes[i][4];
            const int p = (h + f / 2 * 2 - f) / s + 1;
            cpu_dnn_desc_t desc = {.kind = (cpu_dnn_kind_t)kind, .threads = 2};
            desc.src = (cpu_dnn_tensor_t){4, {2, c, h, h}, {c * h * h, 1, h * c, c}, TR_F32};
            desc.weights = (cpu_dnn_tensor_t){4, {k, c, f, f}, {f * f * c, 1, f * c, c}, TR_F32};
            desc.dst = (cpu_dnn_tensor_t){4, {2, k, p, p}, {k * p * p, 1, p * k, k}, TR_F32};
            for (int d = 0; d < 2; d++)
                desc.stride[d] = s, desc.dilation[d] = 1, desc.pad_lo[d] = desc.pad_hi[d] = f / 2;
            OK(tr_cpu_dnn_create(&desc, &dnn));
            if (strncmp(tr_cpu_dnn_implementation(dnn), "ref", 3) == 0)
                fail_msg("kind %d of %d to %d channels, kernel %d: oneDNN has only %s", kind, c, k,
                         f, tr_cpu_dnn_implementation(dnn));
            tr_cpu_dnn_destroy(&dnn);
        }
}

/* -- pooling ----------------------------------------------------------------------------------- */

typedef struct {
    int images, channels, in[3];
    tr_pool_attr_t attr;
} pool_case_t;

static bool beats(float x, float best) {
    return isnan(x) ? !isnan(best) : x > best;
}

typedef struct {
    double *y, *dx, *y_bound, *dx_bound;
    int32_t *index;
} pool_result_t;

static void pool_reference(const pool_case_t *t, const cube_t *c, const float *x, const float *dy,
                           pool_result_t *r) {
    int64_t in = volume(c->in), out = volume(c->out), taps = volume(c->kernel);
    for (int64_t i = 0; i < t->images * out * t->channels; i++) {
        int64_t channel = i % t->channels, position = i / t->channels % out,
                image = i / t->channels / out;
        int64_t best = -1, count = 0;
        const float *base = x + image * in * t->channels + channel;
        double sum = 0, *dx = r->dx + image * in * t->channels + channel;
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t at = seen(c, position, tap);
            if (at < 0) continue;
            if (best < 0 || beats(base[at * t->channels], base[best * t->channels])) best = at;
            sum += (double)base[at * t->channels], count++;
        }
        r->index[i] = (int32_t)best;
        r->y[i] = t->attr.max ? (double)base[best * t->channels] : sum / (double)count;
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t at = seen(c, position, tap);
            if (at < 0) continue;
            if (t->attr.max)
                dx[at * t->channels] += at == best ? (double)dy[i] : 0;
            else
                dx[at * t->channels] += (double)dy[i] / (double)count;
        }
    }
}

static void try_pool(const pool_case_t *t, bool with_nan) {
    char what[200];
    const tr_pool_attr_t *a = &t->attr;
    snprintf(what, sizeof what, "%d-D %s pool of %d x %d x %d, %d channels, kernel %d, stride %d",
             a->spatial, a->max ? "max" : "average", t->in[0], t->in[1], t->in[2], t->channels,
             a->kernel[0], a->stride[0]);
    conv_case_t as_conv = {.attr = {.spatial = a->spatial, .dilation = ONES}};
    memcpy(as_conv.in, t->in, sizeof as_conv.in);
    memcpy(as_conv.attr.kernel, a->kernel, sizeof a->kernel),
        memcpy(as_conv.attr.stride, a->stride, sizeof a->stride);
    memcpy(as_conv.attr.pad_lo, a->pad_lo, sizeof a->pad_lo),
        memcpy(as_conv.attr.pad_hi, a->pad_hi, sizeof a->pad_hi);
    cube_t c = cube_of(&as_conv);
    tr_shape_t xs = around(t->images, c.in + 3 - a->spatial, a->spatial, t->channels);
    tr_shape_t ys = around(t->images, c.out + 3 - a->spatial, a->spatial, t->channels);
    int64_t x_count = tr_shape_elems(&xs), y_count = tr_shape_elems(&ys);
    float *x = kernel_run_random(x_count, 5), *dy = kernel_run_random(y_count, 6);
    for (int64_t i = 0; i < x_count; i++) x[i] = (float)(int)(x[i] * 4); /* few values: ties */
    for (int64_t i = 0; with_nan && i < x_count; i += 11) x[i] = NAN;
    pool_result_t r = {kernel_run_zeros(y_count), kernel_run_zeros(x_count),
                       kernel_run_zeros(y_count), kernel_run_zeros(x_count),
                       (int32_t *)kernel_run_zeros(y_count)};
    pool_reference(t, &c, x, dy, &r);
    for (int64_t i = 0; i < y_count; i++) r.y_bound[i] = a->max ? 0 : 4e-6;
    for (int64_t i = 0; i < x_count; i++) r.dx_bound[i] = 4e-6;
    kernel_run_t fwd = {.id = TR_K_POOL_FWD,
                        .what = what,
                        .attr = a,
                        .n_in = 1,
                        .n_out = 2,
                        .same_for_threads = true};
    fwd.in[0] = input(&xs, x), fwd.out[0] = output(&ys, r.y, r.y_bound);
    fwd.out[1] = a->max ? (kernel_run_tensor_t){.dtype = TR_I32, .shape = ys, .exact = r.index}
                        : KERNEL_RUN_ABSENT;
    kernel_run(&fwd);
    fwd.out[1] = KERNEL_RUN_ABSENT; /* evaluation keeps no index */
    kernel_run(&fwd);
    kernel_run_t bwd = {.id = TR_K_POOL_BWD,
                        .what = what,
                        .attr = a,
                        .n_in = 2,
                        .n_out = 1,
                        .same_for_threads = true};
    bwd.in[0] = input(&ys, dy), bwd.out[0] = output(&xs, r.dx, r.dx_bound);
    bwd.in[1] = a->max ? (kernel_run_tensor_t){.dtype = TR_I32, .shape = ys, .data = r.index}
                       : KERNEL_RUN_ABSENT;
    kernel_run(&bwd);
    tr_free(&x), tr_free(&dy), tr_free(&r.y), tr_free(&r.dx), tr_free(&r.y_bound),
        tr_free(&r.dx_bound), tr_free(&r.index);
}

static void pool_of_every_kind(void **state) {
    static const pool_case_t cases[] = {
        {3, 32, {28, 28}, {2, {2, 2}, {2, 2}, {0}, {0}, true}},
        {2, 5, {7, 9}, {2, {2, 2}, {2, 2}, {0}, {0}, true}},
        {2, 17, {8, 7}, {2, {3, 3}, {2, 2}, {1, 1}, {1, 0}, true}},
        {1, 1, {9, 9}, {2, {3, 2}, {1, 3}, {2, 0}, {0, 1}, true}},
        {5, 130, {7, 7}, {2, {7, 7}, {7, 7}, {0}, {0}, true}},
        {2, 3, {21}, {1, {4}, {3}, {1}, {2}, true}},
        {2, 20, {6, 5, 4}, {3, {2, 2, 2}, {2, 2, 2}, {0}, {0}, true}},
        {1, 3, {5, 4, 6}, {3, {3, 2, 3}, {1, 2, 2}, {1, 0, 2}, {1, 1, 0}, true}},
        {40, 70, {12, 12}, {2, {2, 2}, {2, 2}, {0}, {0}, true}}, /* enough work for two threads */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pool_case_t t = cases[i];
        try_pool(&t, false);
        try_pool(&t, true);
        t.attr.max = false;
        try_pool(&t, false);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_of_every_layout),
        cmocka_unit_test(matmul_with_alpha_beta_and_activation),
        cmocka_unit_test(matmul_of_the_models),
        cmocka_unit_test(matmul_of_a_copy),
        cmocka_unit_test(column_sum_does_not_depend_on_threads),
        cmocka_unit_test(conv_one_dimension),
        cmocka_unit_test(conv_two_dimensions),
        cmocka_unit_test(conv_groups),
        cmocka_unit_test(conv_three_dimensions),
        cmocka_unit_test(conv_is_never_the_reference_code),
        cmocka_unit_test(pool_of_every_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
