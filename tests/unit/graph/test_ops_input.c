/* What happens to a batch before the model: conversion of every type, and augmentation against the
 * map that kernels.h gives. */
#include "../../support/op_harness.h"
#include "base/rng.h"
#include <math.h>

/* -- conversion -------------------------------------------------------------------------------- */

static tr_status_t build_normalize(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                   tr_tensor_t *out) {
    return tr_cast_normalize(g, in[0], c->n_in > 1 ? in[1] : TR_NONE, c->n_in > 2 ? in[2] : TR_NONE,
                             out);
}

static void normalize(const op_case_t *c, const double *const *in, double *y) {
    int64_t channels = c->out.dim[c->out.ndim - 1];
    for (int64_t i = 0; i < tr_shape_elems(&c->out); i++)
        y[i] = in[0][i] * (c->n_in > 1 ? in[1][i % channels] : 1) +
               (c->n_in > 2 ? in[2][i % channels] : 0);
}

static void check_normalize(tr_dtype_t type, double low, double high, tr_shape_t shape, int n_in) {
    tr_shape_t channels = TR_SHAPE(shape.dim[shape.ndim - 1]);
    op_case_t c = {"cast_normalize",
                   n_in,
                   {{"x", shape, low, high, type, .fixed = true},
                    {"scale", channels, 0.5, 2, .fixed = true},
                    {"shift", channels, .fixed = true}}};
    c.out = shape;
    c.build = build_normalize;
    c.reference = normalize;
    op_check(&c);
}

static void every_type_is_converted(void **state) {
    static const struct {
        tr_dtype_t type;
        double low, high;
    } lines[] = {{TR_F32, -3, 3},         {TR_F64, -3, 3},
                 {TR_BF16, -128, 127},    {TR_F16, -2047, 2047},
                 {TR_U8, 0, 255},         {TR_I8, -128, 127},
                 {TR_U16, 0, 65535},      {TR_I16, -32768, 32767},
                 {TR_U32, 0, 4294967295}, {TR_I32, -2147483648, 2147483647},
                 {TR_U64, 0, 1e15},       {TR_I64, -1e15, 1e15}};
    assert_int_equal(sizeof lines / sizeof *lines, TR_DTYPE_COUNT);
    for (int i = 0; i < TR_DTYPE_COUNT; i++) {
        if (lines[i].type != TR_F32)
            check_normalize(lines[i].type, lines[i].low, lines[i].high, TR_SHAPE(3, 5, 7, 3), 1);
        check_normalize(lines[i].type, lines[i].low, lines[i].high, TR_SHAPE(3, 5, 7, 3), 2);
        check_normalize(lines[i].type, lines[i].low, lines[i].high, TR_SHAPE(2, 17), 3);
        check_normalize(lines[i].type, lines[i].low, lines[i].high, TR_SHAPE(11, 1), 3);
    }
}

static void f32_as_it_is_needs_no_op(void **state) {
    tr_tensor_t x, y;
    op_bench_t b = op_begin("cpu", TR_TRAIN);
    MUST(tr_input(b.g, "x", TR_F32, &TR_SHAPE(3, 4), &x));
    MUST(tr_cast_normalize(b.g, x, TR_NONE, TR_NONE, &y));
    assert_int_equal(x.id, y.id);
    op_end(&b);
}

/* -- augmentation ------------------------------------------------------------------------------ */

typedef struct {
    double m[2][2], t[2]; /* source = m p + t */
    int shift[2];
    bool flip;
} map_t;

static double spread(uint32_t word, double range) {
    return (2 * (double)tr_rng_to_float(word) - 1) * range;
}

/* The inverse of p -> c + t + R Z (p - c), solved as two equations. */
static map_t draw(const tr_augment_attr_t *a, int64_t sample, double width, double height) {
    tr_rng_block_t w = tr_rng_philox(OP_SEED, TR_RNG_AUGMENT, 0, OP_STEP, (uint64_t)sample);
    tr_rng_block_t v = tr_rng_philox(OP_SEED, TR_RNG_AUGMENT, 1, OP_STEP, (uint64_t)sample);
    double angle = spread(w.v[0], a->rotate_deg) * M_PI / 180, zoom = 1 + spread(w.v[3], a->zoom);
    double shear = tan(spread(v.v[0], a->shear_deg) * M_PI / 180), c = cos(angle), s = sin(angle);
    double f[2][2] = {{zoom * c, zoom * (c * shear - s)}, {zoom * s, zoom * (s * shear + c)}};
    double det = f[0][0] * f[1][1] - f[0][1] * f[1][0],
           centre[2] = {(width - 1) / 2, (height - 1) / 2};
    double to[2] = {centre[0] + spread(w.v[1], a->translate) * width,
                    centre[1] + spread(w.v[2], a->translate) * height};
    map_t map = {.m = {{f[1][1] / det, -f[0][1] / det}, {-f[1][0] / det, f[0][0] / det}}};
    for (int i = 0; i < 2; i++) {
        map.t[i] = centre[i] - map.m[i][0] * to[0] - map.m[i][1] * to[1];
        map.shift[i] =
            (int)(((uint64_t)v.v[1 + i] * (uint64_t)(2 * a->crop_pad + 1)) >> 32) - a->crop_pad;
    }
    map.flip = a->flip && v.v[3] >> 31;
    return map;
}

typedef struct {
    const double *data;
    int64_t height, width, channels;
    double fill;
} image_t;

static double pixel(const image_t *image, int64_t x, int64_t y, int64_t channel) {
    if (x < 0 || y < 0 || x >= image->width || y >= image->height) return image->fill;
    return image->data[(y * image->width + x) * image->channels + channel];
}

static double bilinear(const image_t *image, double x, double y, int64_t channel) {
    int64_t left = (int64_t)floor(x), top = (int64_t)floor(y);
    double right = x - (double)left, down = y - (double)top;
    return (1 - down) * ((1 - right) * pixel(image, left, top, channel) +
                         right * pixel(image, left + 1, top, channel)) +
           down * ((1 - right) * pixel(image, left, top + 1, channel) +
                   right * pixel(image, left + 1, top + 1, channel));
}

static void augment(const op_case_t *c, const double *const *in, double *y) {
    const tr_augment_attr_t *a = c->attr;
    const tr_shape_t *s = &c->out;
    int64_t elems = s->dim[1] * s->dim[2] * s->dim[3];
    for (int64_t n = 0; n < s->dim[0]; n++) {
        image_t image = {in[0] + n * elems, s->dim[1], s->dim[2], s->dim[3], a->fill};
        map_t map = draw(a, (int64_t)in[1][n], (double)image.width, (double)image.height);
        for (int64_t i = 0; i < elems; i++) {
            int64_t channel = i % image.channels, column = i / image.channels % image.width,
                    row = i / image.channels / image.width;
            double px = (double)((map.flip ? image.width - 1 - column : column) - map.shift[0]),
                   py = (double)(row - map.shift[1]);
            double x = map.m[0][0] * px + map.m[0][1] * py + map.t[0],
                   z = map.m[1][0] * px + map.m[1][1] * py + map.t[1];
            y[n * elems + i] = bilinear(&image, x, z, channel);
        }
    }
}

static tr_status_t build_augment(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                 tr_tensor_t *out) {
    return tr_augment(g, in[0], in[1], c->attr, out);
}

/* Coordinates are float on the device: an error of some 1e-6 of the width, times the steps of a
 * noisy image. */
static void check_augment(const char *name, tr_augment_attr_t attr, double tolerance) {
    static const double ids[] = {0, 17, 123456789012, 3, 4};
    const tr_shape_t shapes[] = {TR_SHAPE(5, 9, 7, 1), TR_SHAPE(5, 6, 11, 3)};
    for (int i = 0; i < 2; i++) {
        op_case_t c = {name,
                       2,
                       {{"x", shapes[i], .fixed = true},
                        {"id", TR_SHAPE(5), .dtype = TR_I64, .fixed = true, .values = ids}}};
        c.attr = &attr;
        c.out = shapes[i];
        c.tolerance = tolerance;
        c.build = build_augment;
        c.reference = augment;
        op_check(&c);
    }
}

static void affine_maps(void **state) {
    check_augment("rotate", (tr_augment_attr_t){.rotate_deg = 30}, 1e-4);
    check_augment("translate", (tr_augment_attr_t){.translate = 0.2f, .fill = 0.5f}, 1e-4);
    check_augment("zoom", (tr_augment_attr_t){.zoom = 0.3f, .fill = -1}, 1e-4);
    check_augment("shear", (tr_augment_attr_t){.shear_deg = 20}, 1e-4);
    check_augment("all", (tr_augment_attr_t){10, 0.1f, 0.1f, 5, 0.25f, 2, true}, 1e-4);
}

static void whole_pixels(void **state) {
    check_augment("crop", (tr_augment_attr_t){.crop_pad = 3, .fill = 7}, 1e-7);
    check_augment("flip", (tr_augment_attr_t){.flip = true}, 1e-7);
    check_augment("crop and flip", (tr_augment_attr_t){.crop_pad = 2, .flip = true}, 1e-7);
}

static void nothing_to_do_is_no_op(void **state) {
    tr_tensor_t x, id, y;
    op_bench_t b = op_begin("cpu", TR_TRAIN);
    MUST(tr_input(b.g, "x", TR_F32, &TR_SHAPE(2, 3, 3, 1), &x));
    MUST(tr_input(b.g, "id", TR_I64, &TR_SHAPE(2), &id));
    MUST(tr_augment(b.g, x, id, &(tr_augment_attr_t){.fill = 3}, &y));
    assert_int_equal(x.id, y.id);
    MUST(tr_program_end(b.g));
    MUST(tr_program_begin(b.g, "eval", TR_EVAL, &b.program));
    MUST(tr_augment(b.g, x, id, &(tr_augment_attr_t){.flip = true}, &y));
    assert_int_equal(x.id, y.id);
    op_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_converted),
        cmocka_unit_test(f32_as_it_is_needs_no_op),
        cmocka_unit_test(affine_maps),
        cmocka_unit_test(whole_pixels),
        cmocka_unit_test(nothing_to_do_is_no_op),
    };
    return cmocka_run_group_tests_name("ops: input", tests, NULL, NULL);
}
