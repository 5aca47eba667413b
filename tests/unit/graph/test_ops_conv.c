/* Convolutions and poolings of one to three spatial dimensions, with stride, uneven padding,
 * dilation and groups. */
#include "../../support/op_harness.h"
#include <math.h>

/* -- a window over up to three dimensions, the absent ones in front of size 1 ------------------ */

typedef struct {
    int64_t n, in[3], out[3], channels, outputs;
    int64_t kernel[3], stride[3], pad[3], dilation[3];
} window_t;

static window_t window(const op_case_t *c, int spatial, const int *kernel, const int *stride,
                       const int *pad_lo, const int *dilation) {
    const tr_shape_t *x = &c->in[0].shape;
    window_t w = {
        .n = x->dim[0], .channels = x->dim[x->ndim - 1], .outputs = c->out.dim[c->out.ndim - 1]};
    for (int d = 0; d < 3; d++) {
        int s = d - (3 - spatial);
        w.in[d] = s < 0 ? 1 : x->dim[s + 1];
        w.out[d] = s < 0 ? 1 : c->out.dim[s + 1];
        w.kernel[d] = s < 0 ? 1 : kernel[s];
        w.stride[d] = s < 0 ? 1 : stride[s];
        w.pad[d] = s < 0 ? 0 : pad_lo[s];
        w.dilation[d] = s < 0 || !dilation ? 1 : dilation[s];
    }
    return w;
}

/* Splits flat position `i` of sizes `size`. */
static void split(int64_t i, const int64_t *size, int64_t *p) {
    for (int d = 2; d >= 0; d--) {
        p[d] = i % size[d];
        i /= size[d];
    }
}

/* The flat position in the image under tap `tap` of output `at`, -1 on padding. */
static int64_t under(const window_t *w, int64_t at, int64_t tap) {
    int64_t o[3], k[3], flat = 0;
    split(at, w->out, o);
    split(tap, w->kernel, k);
    for (int d = 0; d < 3; d++) {
        int64_t i = o[d] * w->stride[d] + k[d] * w->dilation[d] - w->pad[d];
        if (i < 0 || i >= w->in[d]) return -1;
        flat = flat * w->in[d] + i;
    }
    return flat;
}

static int64_t volume(const int64_t *size) {
    return size[0] * size[1] * size[2];
}

/* -- convolution ------------------------------------------------------------------------------- */

static tr_status_t build_conv(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                              tr_tensor_t *out) {
    return tr_conv(g, in[0], in[1], c->n_in > 2 ? in[2] : TR_NONE, c->attr, out);
}

static void conv(const op_case_t *c, const double *const *in, double *y) {
    const tr_conv_attr_t *a = c->attr;
    window_t w = window(c, a->spatial, a->kernel, a->stride, a->pad_lo, a->dilation);
    int64_t taps = volume(w.kernel), inputs = w.channels / a->groups,
            per_group = w.outputs / a->groups;
    int64_t pixels = volume(w.in), places = volume(w.out);
    for (int64_t n = 0; n < w.n; n++)
        for (int64_t at = 0; at < places; at++)
            for (int64_t k = 0; k < w.outputs; k++) {
                double sum = c->n_in > 2 ? in[2][k] : 0;
                for (int64_t tap = 0; tap < taps; tap++) {
                    int64_t pixel = under(&w, at, tap);
                    if (pixel < 0) continue;
                    const double *x =
                        in[0] + (n * pixels + pixel) * w.channels + k / per_group * inputs;
                    for (int64_t i = 0; i < inputs; i++)
                        sum += x[i] * in[1][(k * taps + tap) * inputs + i];
                }
                y[(n * places + at) * w.outputs + k] = op_act(a->act, sum);
            }
}

/* One line of the table: sizes of the image, then per dimension kernel, stride, padding low and
 * high, dilation. */
typedef struct {
    const char *name;
    int n, spatial, channels, outputs, groups;
    int size[3], kernel[3], stride[3], pad_lo[3], pad_hi[3], dilation[3];
    bool bias;
    tr_act_t act;
} conv_line_t;

static void check_conv(const conv_line_t *l) {
    op_case_t c = {l->name, l->bias ? 3 : 2, {{"x", .half = true}, {"w"}, {"b"}}};
    tr_conv_attr_t attr = {.spatial = l->spatial, .groups = l->groups, .act = l->act};
    tr_shape_t x = TR_SHAPE(l->n), w = TR_SHAPE(l->outputs), y = x;
    for (int d = 0; d < l->spatial; d++) {
        attr.kernel[d] = l->kernel[d];
        attr.stride[d] = l->stride[d] ? l->stride[d] : 1;
        attr.pad_lo[d] = l->pad_lo[d];
        attr.pad_hi[d] = l->pad_hi[d];
        attr.dilation[d] = l->dilation[d] ? l->dilation[d] : 1;
        x.dim[x.ndim++] = l->size[d];
        w.dim[w.ndim++] = l->kernel[d];
        y.dim[y.ndim++] =
            (l->size[d] + l->pad_lo[d] + l->pad_hi[d] - attr.dilation[d] * (l->kernel[d] - 1) - 1) /
                attr.stride[d] +
            1;
    }
    x.dim[x.ndim++] = l->channels;
    w.dim[w.ndim++] = l->channels / l->groups;
    y.dim[y.ndim++] = l->outputs;
    c.in[0].shape = x;
    c.in[1].shape = w;
    c.in[2].shape = TR_SHAPE(l->outputs);
    c.attr = &attr;
    c.out = y;
    c.build = build_conv;
    c.reference = conv;
    c.rounds_inside = l->act > TR_ACT_RELU;
    op_check(&c);
}

static void conv_2d(void **state) {
    static const conv_line_t lines[] = {
        {"conv same",
         2,
         2,
         3,
         5,
         1,
         {5, 7},
         {3, 3},
         .pad_lo = {1, 1},
         .pad_hi = {1, 1},
         .bias = true},
        {"conv relu", 1, 2, 2, 3, 1, {6, 5}, {3, 2}, .bias = true, .act = TR_ACT_RELU},
        {"conv gelu", 1, 2, 2, 3, 1, {4, 5}, {2, 3}, .bias = true, .act = TR_ACT_GELU},
        {"conv one channel", 3, 2, 1, 2, 1, {7, 7}, {5, 5}, .pad_lo = {2, 2}, .pad_hi = {2, 2}},
        {"conv of one size",
         2,
         2,
         4,
         4,
         1,
         {5, 4},
         {3, 3},
         .pad_lo = {1, 1},
         .pad_hi = {1, 1},
         .bias = true},
        {"conv 1x1", 2, 2, 7, 3, 1, {3, 5}, {1, 1}, .bias = true},
        {"conv of the whole image", 2, 2, 3, 4, 1, {3, 5}, {3, 5}, .bias = true},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) check_conv(&lines[i]);
}

static void conv_2d_strided(void **state) {
    static const conv_line_t lines[] = {
        {"conv stride 2", 2, 2, 3, 4, 1, {7, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, .bias = true},
        {"conv 1x1 stride 2", 1, 2, 4, 5, 1, {6, 7}, {1, 1}, {2, 2}},
        {"conv stride past the end", 1, 2, 2, 2, 1, {8, 9}, {2, 2}, {3, 5}, .bias = true},
        {"conv uneven padding",
         1,
         2,
         2,
         3,
         1,
         {5, 4},
         {4, 2},
         {1, 2},
         {1, 0},
         {2, 1},
         .bias = true},
        {"conv dilated",
         1,
         2,
         2,
         3,
         1,
         {9, 8},
         {3, 2},
         {1, 2},
         {2, 0},
         {2, 1},
         {2, 3},
         .bias = true},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) check_conv(&lines[i]);
}

static void conv_2d_grouped(void **state) {
    static const conv_line_t lines[] = {
        {"conv groups",
         2,
         2,
         6,
         4,
         2,
         {5, 4},
         {3, 3},
         .pad_lo = {1, 1},
         .pad_hi = {1, 1},
         .bias = true},
        {"conv depthwise",
         1,
         2,
         5,
         5,
         5,
         {6, 5},
         {3, 3},
         {2, 1},
         {1, 1},
         {1, 1},
         .bias = true,
         .act = TR_ACT_RELU},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) check_conv(&lines[i]);
}

static void conv_1d(void **state) {
    static const conv_line_t lines[] = {
        {"conv 1d", 2, 1, 3, 4, 1, {11}, {3}, {2}, {1}, {2}, .bias = true, .act = TR_ACT_TANH},
        {"conv 1d dilated groups", 2, 1, 4, 6, 2, {13}, {3}, {1}, {4}, {0}, {2}},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) check_conv(&lines[i]);
}

static void conv_3d(void **state) {
    static const conv_line_t lines[] = {
        {"conv 3d",
         1,
         3,
         2,
         3,
         1,
         {4, 3, 5},
         {3, 2, 3},
         .pad_lo = {1, 0, 1},
         .pad_hi = {1, 1, 1},
         .bias = true},
        {"conv 3d strided",
         2,
         3,
         1,
         2,
         1,
         {5, 4, 3},
         {2, 2, 2},
         {2, 1, 2},
         .pad_hi = {1, 0, 1},
         .bias = true,
         .act = TR_ACT_RELU},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) check_conv(&lines[i]);
}

/* On one side: the input, or the output of a 1 x 1 convolution. */
static void conv_few_channels(void **state) {
    static const conv_line_t lines[] = {
        {"conv of one channel",
         3,
         2,
         1,
         32,
         1,
         {9, 8},
         {3, 5},
         {2, 1},
         {2, 1},
         {1, 2},
         {2, 1},
         .bias = true},
        {"conv of two channels past the end", 2, 2, 2, 16, 1, {8, 9}, {2, 2}, {3, 5}},
        {"conv of four channels 3d",
         1,
         3,
         4,
         16,
         1,
         {3, 2, 4},
         {2, 2, 3},
         .pad_lo = {1, 0, 1},
         .pad_hi = {0, 1, 1}},
        {"conv 1x1 to three channels", 2, 2, 16, 3, 1, {3, 4}, {1, 1}, .bias = true},
        {"conv 1x1 to one channel, padded",
         1,
         2,
         16,
         1,
         1,
         {3, 2},
         {1, 1},
         .pad_lo = {1, 0},
         .pad_hi = {0, 1}},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) check_conv(&lines[i]);
}

/* -- pooling ----------------------------------------------------------------------------------- */

static tr_status_t build_pool(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                              tr_tensor_t *out) {
    return tr_pool(g, in[0], c->attr, out);
}

static void pool(const op_case_t *c, const double *const *in, double *y) {
    const tr_pool_attr_t *a = c->attr;
    window_t w = window(c, a->spatial, a->kernel, a->stride, a->pad_lo, NULL);
    int64_t pixels = volume(w.in), places = volume(w.out), taps = volume(w.kernel);
    for (int64_t i = 0; i < w.n * places * w.channels; i++) {
        int64_t channel = i % w.channels, at = i / w.channels % places, n = i / w.channels / places,
                count = 0;
        double largest = -INFINITY, sum = 0;
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t pixel = under(&w, at, tap);
            if (pixel < 0) continue;
            double x = in[0][(n * pixels + pixel) * w.channels + channel];
            largest = fmax(largest, x);
            sum += x;
            count++;
        }
        y[i] = a->max ? largest : sum / (double)count;
    }
}

/* Numbers that bf16 tells apart, so that no window has two maxima: 8 bits times 16 powers of 2, in
 * a mixed order. */
static const double *distinct_values(void) {
    enum { COUNT = 4096 };
    static double values[COUNT];
    for (int i = 0; i < COUNT; i++) {
        int k = i * 797 % COUNT;
        values[i] = ldexp(128 + k % 128, k / 128 % 16 - 12) * (k < COUNT / 2 ? 1 : -1);
    }
    return values;
}

static void check_pool(const char *name, tr_shape_t x, tr_shape_t y, tr_pool_attr_t attr,
                       tr_mode_t mode) {
    assert_true(tr_shape_elems(&x) <= 4096);
    op_case_t c = {name,       1,    {{"x", x, .half = true, .values = distinct_values()}},
                   &attr,      mode, y,
                   build_pool, pool};
    op_check(&c);
}

static void pools_of_one_to_three_dimensions(void **state) {
    for (int max = 0; max < 2; max++)
        for (tr_mode_t mode = TR_TRAIN; mode <= TR_EVAL; mode++) {
            check_pool("pool 1d", TR_SHAPE(2, 7, 3), TR_SHAPE(2, 3, 3),
                       (tr_pool_attr_t){1, {2}, {2}, .max = max}, mode);
            check_pool("pool 2d", TR_SHAPE(2, 5, 7, 3), TR_SHAPE(2, 2, 3, 3),
                       (tr_pool_attr_t){2, {2, 2}, {2, 2}, .max = max}, mode);
            check_pool("pool 3d", TR_SHAPE(1, 4, 5, 3, 2), TR_SHAPE(1, 2, 4, 1, 2),
                       (tr_pool_attr_t){3, {2, 2, 3}, {2, 1, 1}, .max = max}, mode);
        }
}

static void overlapping_and_padded_pools(void **state) {
    for (int max = 0; max < 2; max++) {
        check_pool("pool 3x3 stride 2", TR_SHAPE(2, 7, 6, 2), TR_SHAPE(2, 4, 3, 2),
                   (tr_pool_attr_t){2, {3, 3}, {2, 2}, {1, 1}, {1, 1}, max}, TR_TRAIN);
        check_pool("pool of one size", TR_SHAPE(1, 5, 4, 3), TR_SHAPE(1, 5, 4, 3),
                   (tr_pool_attr_t){2, {3, 3}, {1, 1}, {1, 1}, {1, 1}, max}, TR_TRAIN);
        check_pool("pool uneven", TR_SHAPE(1, 5, 6, 3), TR_SHAPE(1, 5, 2, 3),
                   (tr_pool_attr_t){2, {2, 3}, {1, 3}, {0, 0}, {1, 2}, max}, TR_TRAIN);
    }
}

/* Where several are equal the first one is the maximum and gets the gradient; NaN is larger than
 * all. */
static void max_pool_of_equal_values(void **state) {
    static const double x[] = {1, 1, 0, 5, 5, 5, NAN, 2, 3};
    tr_pool_attr_t attr = {.spatial = 1, .kernel = {3}, .stride = {3}, .max = true};
    op_devices_t devices = op_devices();
    for (int d = 0; d < devices.count; d++) {
        tr_tensor_t in, seed, y;
        op_bench_t b = op_begin(devices.name[d], TR_TRAIN);
        MUST(tr_param(b.g, "x", &TR_SHAPE(1, 9, 1), &(tr_param_spec_t){.trainable = true}, &in));
        MUST(tr_input(b.g, "seed", TR_F32, &TR_SHAPE(1, 3, 1), &seed));
        MUST(tr_pool(b.g, in, &attr, &y));
        MUST(tr_keep(b.g, y));
        MUST(tr_backward(b.g, y, seed, false));
        op_ready(&b);
        op_write(&b, in, x);
        op_write(&b, seed, (double[]){1, 2, 3});
        op_run(&b);
        float *value = op_read(&b, y), *grad = op_read(&b, tr_graph_find(b.g, "op.x.grad"));
        assert_true(value[0] == 1 && value[1] == 5 && isnan(value[2]));
        op_assert_close("gradient", grad, (double[]){1, 0, 0, 2, 0, 0, 3, 0, 0}, 9, 1e-7);
        test_free(value);
        test_free(grad);
        op_end(&b);
    }
}

static tr_status_t build_global(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                tr_tensor_t *out) {
    return tr_global_avgpool(g, in[0], out);
}

static void global(const op_case_t *c, const double *const *in, double *y) {
    const tr_shape_t *x = &c->in[0].shape;
    int64_t channels = c->out.dim[1], pixels = tr_shape_elems(x) / x->dim[0] / channels;
    for (int64_t i = 0; i < tr_shape_elems(&c->out); i++) {
        y[i] = 0;
        for (int64_t p = 0; p < pixels; p++)
            y[i] += in[0][(i / channels * pixels + p) * channels + i % channels];
        y[i] /= (double)pixels;
    }
}

static void global_average(void **state) {
    const tr_shape_t shapes[] = {TR_SHAPE(3, 7, 5), TR_SHAPE(2, 3, 5, 7), TR_SHAPE(2, 3, 2, 5, 3)};
    for (size_t i = 0; i < 3; i++) {
        op_case_t c = {"global average", 1, {{"x", shapes[i], .half = true}}};
        c.out = TR_SHAPE(shapes[i].dim[0], shapes[i].dim[shapes[i].ndim - 1]);
        c.build = build_global;
        c.reference = global;
        op_check(&c);
    }
}

/* Of equal values, in one float of whose sum each would be rounded the same way: 5e-4 of the mean.
 */
static void global_average_of_a_large_image(void **state) {
    enum { SIZE = 500, CHANNELS = 17 };
    op_devices_t devices = op_devices();
    double *x = test_malloc(SIZE * SIZE * CHANNELS * sizeof *x), expected[CHANNELS];
    for (int i = 0; i < SIZE * SIZE * CHANNELS; i++) x[i] = 0.1;
    for (int c = 0; c < CHANNELS; c++) expected[c] = 0.1;
    for (int d = 0; d < devices.count; d++) {
        tr_tensor_t in, y;
        op_bench_t b = op_begin(devices.name[d], TR_EVAL);
        MUST(tr_input(b.g, "x", TR_F32, &TR_SHAPE(1, SIZE, SIZE, CHANNELS), &in));
        MUST(tr_global_avgpool(b.g, in, &y));
        MUST(tr_keep(b.g, y));
        op_ready(&b);
        op_write(&b, in, x);
        op_run(&b);
        float *found = op_read(&b, y);
        op_assert_close("mean", found, expected, CHANNELS, 1e-6);
        test_free(found);
        op_end(&b);
    }
    test_free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_2d),
        cmocka_unit_test(conv_2d_strided),
        cmocka_unit_test(conv_2d_grouped),
        cmocka_unit_test(conv_1d),
        cmocka_unit_test(conv_3d),
        cmocka_unit_test(conv_few_channels),
        cmocka_unit_test(pools_of_one_to_three_dimensions),
        cmocka_unit_test(overlapping_and_padded_pools),
        cmocka_unit_test(max_pool_of_equal_values),
        cmocka_unit_test(global_average),
        cmocka_unit_test(global_average_of_a_large_image),
    };
    return cmocka_run_group_tests_name("ops: convolution and pooling", tests, NULL, NULL);
}
