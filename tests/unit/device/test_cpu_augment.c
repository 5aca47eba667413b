/* Augmentation: whole-pixel moves exactly, affine maps against a reference in double. */
#include "cpu_kernel_test.h"

typedef struct {
    int64_t images, height, width, channels, elems;
    float *x, *y;
    int64_t *ids;
    tr_step_t step;
} batch_t;

static batch_t batch_make(int64_t images, int64_t height, int64_t width, int64_t channels) {
    int64_t elems = height * width * channels;
    batch_t b = {images,
                 height,
                 width,
                 channels,
                 elems,
                 kt_normal(images * elems, 1, 0, 1),
                 kt_zeros(images * elems),
                 malloc((size_t)images * sizeof(int64_t)),
                 {.seed = 42, .step = 17}};
    for (int64_t i = 0; i < images; i++) b.ids[i] = 1000 + 3 * i;
    return b;
}

static void batch_free(batch_t *b) {
    free(b->x);
    free(b->y);
    free(b->ids);
}

static void augment(batch_t *b, tr_augment_attr_t attr) {
    RUN(AUGMENT, &attr,
        VIEWS(F32(b->x, b->images, b->height, b->width, b->channels), I64(b->ids, b->images),
              BYTES(&b->step)),
        VIEWS(F32(b->y, b->images, b->height, b->width, b->channels)));
}

/* Element of image i, `fill` outside. */
static double pixel(const batch_t *b, int64_t i, int64_t y, int64_t x, int64_t c, double fill) {
    if (y < 0 || y >= b->height || x < 0 || x >= b->width) return fill;
    return b->x[i * b->elems + (y * b->width + x) * b->channels + c];
}

/* The words of image i: eight as kernels.h has them. */
static void draw(const batch_t *b, int64_t i, uint32_t words[8]) {
    for (uint32_t s = 0; s < 2; s++) {
        tr_rng_block_t block = tr_rng_philox(b->step.seed, TR_RNG_AUGMENT, s,
                                             (uint64_t)b->step.step, (uint64_t)b->ids[i]);
        memcpy(words + 4 * s, block.v, sizeof block.v);
    }
}

static double spread(uint32_t word, double range) {
    return (2.0 * (word >> 8) / 16777216.0 - 1) * range;
}
static int64_t shift(uint32_t word, int pad) {
    return (int64_t)floor(word * (2.0 * pad + 1) / 4294967296.0) - pad;
}

/* From a result pixel back to the source: flip, shift, then the inverse of the affine map by
 * Cramer's rule. */
static double reference(const batch_t *b, const tr_augment_attr_t *a, int64_t i, int64_t row,
                        int64_t column, int64_t c) {
    uint32_t w[8];
    draw(b, i, w);
    double angle = spread(w[0], a->rotate_deg) * M_PI / 180, zoom = 1 + spread(w[3], a->zoom);
    double k = tan(spread(w[4], a->shear_deg) * M_PI / 180);
    double m[4] = {zoom * cos(angle), zoom * (k * cos(angle) - sin(angle)), zoom * sin(angle),
                   zoom * (k * sin(angle) + cos(angle))};
    double cx = (double)(b->width - 1) / 2, cy = (double)(b->height - 1) / 2,
           det = m[0] * m[3] - m[1] * m[2];
    if (a->flip && w[7] & 0x80000000u) column = b->width - 1 - column;
    double px = (double)(column - shift(w[5], a->crop_pad)) - cx -
                spread(w[1], a->translate) * (double)b->width;
    double py = (double)(row - shift(w[6], a->crop_pad)) - cy -
                spread(w[2], a->translate) * (double)b->height;
    double x = cx + (m[3] * px - m[1] * py) / det, y = cy + (m[0] * py - m[2] * px) / det;
    double left = floor(x), top = floor(y), value = 0;
    for (int dy = 0; dy < 2; dy++)
        for (int dx = 0; dx < 2; dx++) {
            double weight = (dx ? x - left : 1 - x + left) * (dy ? y - top : 1 - y + top);
            value += weight * pixel(b, i, (int64_t)top + dy, (int64_t)left + dx, c, a->fill);
        }
    return value;
}

static void check_affine(int64_t height, int64_t width, int64_t channels, tr_augment_attr_t attr) {
    batch_t b = batch_make(13, height, width, channels);
    int64_t n = b.images * b.elems;
    double *want = malloc((size_t)n * sizeof *want);
    for (int64_t e = 0; e < n; e++)
        want[e] = reference(&b, &attr, e / b.elems, e % b.elems / (width * channels),
                            e / channels % width, e % channels);
    augment(&b, attr);
    kt_close(b.y, want, n, 0, 1e-6 * (double)(height + width) * 4, "augment");
    free(want);
    batch_free(&b);
}

static void test_affine(void **state) {
    static const int64_t sizes[][3] = {
        {28, 28, 1}, {32, 32, 3}, {17, 200, 2}, {5, 3, 4}, {1, 1, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t h = sizes[i][0], w = sizes[i][1], c = sizes[i][2];
        check_affine(h, w, c, (tr_augment_attr_t){.rotate_deg = 10, .translate = 0.1f});
        check_affine(h, w, c, (tr_augment_attr_t){.rotate_deg = 180, .fill = -2.5f});
        check_affine(h, w, c, (tr_augment_attr_t){.zoom = 0.5f});
        check_affine(h, w, c, (tr_augment_attr_t){.shear_deg = 30, .fill = 1});
        check_affine(h, w, c, (tr_augment_attr_t){20, 0.9f, 0.3f, 15, 0.5f, 3, true});
    }
}

static void test_moves(void **state) {
    static const int64_t sizes[][3] = {{32, 32, 3}, {3, 5, 1}, {1, 1, 2}, {8, 7, 17}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int flip = 0; flip < 2; flip++) {
            batch_t b = batch_make(200, sizes[s][0], sizes[s][1], sizes[s][2]);
            tr_augment_attr_t attr = {.crop_pad = 4, .flip = flip, .fill = 9};
            augment(&b, attr);
            for (int64_t e = 0; e < b.images * b.elems; e++)
                assert_true(b.y[e] == reference(&b, &attr, e / b.elems,
                                                e % b.elems / (b.width * b.channels),
                                                e / b.channels % b.width, e % b.channels));
            batch_free(&b);
        }
}

/* Shifts cover [-pad, pad], and half of the images are mirrored: seen in the result, not in the
 * words. */
static void test_distribution(void **state) {
    batch_t b = batch_make(2000, 1, 9, 1);
    int64_t seen[9] = {0}, mirrored = 0;
    memset(b.x, 0, (size_t)(b.images * b.elems) * sizeof *b.x);
    for (int64_t i = 0; i < b.images; i++) b.x[i * 9 + 4] = 1;
    augment(&b, (tr_augment_attr_t){.crop_pad = 4});
    for (int64_t e = 0; e < b.images * 9; e++) seen[e % 9] += b.y[e] == 1;
    int64_t inside = 0;
    for (int j = 0; j < 9; j++) inside += seen[j];
    for (int j = 0; j < 9; j++) assert_true(labs(9 * seen[j] - inside) < 9 * 40);
    assert_true(labs(9 * inside - 2000) < 9 * 80); /* where the row stays: shift in y of 0 */
    for (int64_t i = 0; i < b.images; i++) b.x[i * 9] = 1;
    augment(&b, (tr_augment_attr_t){.flip = true});
    for (int64_t i = 0; i < b.images; i++) mirrored += b.y[i * 9 + 8] == 1;
    assert_true(mirrored > 880 && mirrored < 1120);
    batch_free(&b);
}

/* A positive angle turns x (to the right) towards y (downwards). */
static void test_direction(void **state) {
    batch_t b = batch_make(1, 9, 9, 1);
    uint32_t words[8] = {0};
    for (b.ids[0] = 0; words[0] < 0xfffc0000u; b.ids[0]++) draw(&b, 0, words);
    b.ids[0]--; /* a sample that draws very nearly the whole angle */
    memset(b.x, 0, (size_t)b.elems * sizeof *b.x);
    b.x[4 * 9 + 8] = 1;
    augment(&b, (tr_augment_attr_t){.rotate_deg = 90});
    assert_true(b.y[8 * 9 + 4] > 0.99f && b.y[0 * 9 + 4] < 0.01f);
    batch_free(&b);
}

static void test_identity(void **state) {
    batch_t b = batch_make(7, 28, 28, 1);
    augment(&b, (tr_augment_attr_t){0});
    assert_memory_equal(b.x, b.y, (size_t)(b.images * b.elems) * sizeof *b.x);
    b.x[3] = NAN;
    augment(&b,
            /* by the affine way: weights are exactly 0 and 1 */
            (tr_augment_attr_t){.rotate_deg = 1e-30f});
    b.x[3] = b.y[3] = b.y[2] = b.x[2];
    assert_memory_equal(b.x, b.y, (size_t)(b.images * b.elems) * sizeof *b.x);
    batch_free(&b);
}

/* The same sample is moved alike wherever it stands in a batch, and otherwise in another step. */
static void test_follows_sample(void **state) {
    batch_t b = batch_make(2, 28, 28, 1), c = batch_make(2, 28, 28, 1);
    tr_augment_attr_t attr = {.rotate_deg = 10, .translate = 0.1f};
    augment(&b, attr);
    memcpy(c.x, b.x + b.elems, (size_t)b.elems * sizeof *b.x);
    c.ids[0] = b.ids[1];
    augment(&c, attr);
    assert_memory_equal(c.y, b.y + b.elems, (size_t)b.elems * sizeof *b.x);
    c.step.step++;
    augment(&c, attr);
    assert_memory_not_equal(c.y, b.y + b.elems, (size_t)b.elems * sizeof *b.x);
    batch_free(&b);
    batch_free(&c);
}

/* Refused before anything is allocated: a tap's place would not fit into 32 bits. */
static void test_too_large(void **state) {
    tr_augment_attr_t attr = {.rotate_deg = 10};
    tr_kernel_call_t call = {.n_in = 1, .attr = &attr, .in = {F32(NULL, 1, 46336, 46336, 1)}};
    const tr_kernel_t *kernel = &kt_devices[0]->ops->kernels[TR_K_AUGMENT];
    size_t bytes;
    assert_int_equal(kernel->prepare(kt_devices[0], &call, &call.state, &bytes), TR_OK);
    assert_true(bytes == 46340 * 46340 * sizeof(float));
    call.in[0].shape.dim[1] += 2;
    assert_int_equal(kernel->prepare(kt_devices[0], &call, &call.state, &bytes), TR_ERR_CONFIG);
    attr = (tr_augment_attr_t){.flip = true}; /* counts in 64 bits */
    assert_int_equal(kernel->prepare(kt_devices[0], &call, &call.state, &bytes), TR_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_affine),         cmocka_unit_test(test_moves),
        cmocka_unit_test(test_distribution),   cmocka_unit_test(test_direction),
        cmocka_unit_test(test_too_large),      cmocka_unit_test(test_identity),
        cmocka_unit_test(test_follows_sample),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
