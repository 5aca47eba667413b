/* Convolutions by Winograd's algorithm against direct sums in double, and that it was this algorithm
 * that computed them; and gradients of filters with few channels on one side. */
#include "cpu_kernel_test.h"
#include "base/half.h"

typedef struct {
    int64_t n, h, w, in, out;
    int size, pad_h, pad_w; /* the same padding on both sides, but for */
    bool bias, relu;
    int more; /* behind */
    /* volumes; d 0: images */
    int64_t d;
    int depth, pad_d;
} case_t;

/* Odd sizes, edges that cut tiles, channels that do not fill the last panel or are more than are
 * taken at a time, padding from none to all that a filter takes; more threads than groups of tiles,
 * in several blocks of which the last is not full everywhere; volumes, also of more planes than are
 * taken at a time, and with filters of any depth. */
static const case_t cases[] = {
    {3, 14, 14, 32, 64, 5, 2, 2, .more = 0},
    {2, 13, 9, 48, 16, 3, 1, 1, .bias = true, .relu = true},
    {5, 7, 7, 64, 48, 3, 1, 1, .bias = true},
    {20, 3, 3, 32, 80, 3, 1, 1, .more = 0},
    {2, 11, 17, 16, 32, 5, 0, 4, .relu = true},
    {2, 12, 10, 32, 16, 3, 2, 0, .more = 0},
    {90, 5, 6, 16, 16, 5, 1, 2, .more = 0},
    {3, 9, 7, 144, 208, 3, 1, 1, .bias = true},
    {2, 10, 8, 32, 16, 3, 0, 1, .bias = true, .relu = true, .more = 2},
    {133, 3, 3, 144, 96, 3, 1, 1, .more = 0},
    {2, 6, 5, 16, 32, 3, 1, 1, .bias = true, .relu = true, .d = 7, .depth = 3, .pad_d = 1},
    {1, 9, 8, 48, 16, 3, 1, 1, .d = 25, .depth = 3, .pad_d = 1},
    {3, 4, 7, 16, 16, 5, 2, 2, .d = 5, .depth = 4, .pad_d = 3},
    {5, 5, 4, 16, 16, 3, 1, 0, .bias = true, .more = 1, .d = 13, .depth = 1},
    {30, 3, 4, 16, 16, 3, 1, 1, .d = 14, .depth = 2},
};

typedef struct {
    const case_t *c;
    tr_conv_attr_t attr;
    int depth; /* of the filters */
    tr_shape_t x_shape, w_shape, y_shape;
    int64_t id, od, oh, ow, xs, ws, ys; /* planes; size of the output; elements */
    float *x, *w, *bias, *dy;
} data_t;

/* Without the size of planes where there are none. */
static tr_shape_t shape_of(const case_t *c, int64_t first, int64_t d, int64_t h, int64_t w,
                           int64_t channels) {
    return c->d ? (tr_shape_t){5, {first, d, h, w, channels}}
                : (tr_shape_t){4, {first, h, w, channels}};
}

static tr_view_t view_of(tr_shape_t shape, float *data) {
    return (tr_view_t){.data = data, .shape = shape, .dtype = TR_F32};
}

static data_t make(const case_t *c) {
    data_t d = {.c = c};
    const int kernel[] = {c->depth, c->size, c->size}, pad[] = {c->pad_d, c->pad_h, c->pad_w};
    d.attr = (tr_conv_attr_t){
        .spatial = c->d ? 3 : 2, .groups = 1, .act = c->relu ? TR_ACT_RELU : TR_ACT_NONE};
    for (int i = 0, from = 3 - d.attr.spatial; i < d.attr.spatial; i++) {
        d.attr.kernel[i] = kernel[from + i], d.attr.pad_lo[i] = pad[from + i];
        d.attr.pad_hi[i] = pad[from + i] + c->more;
        d.attr.stride[i] = d.attr.dilation[i] = 1;
    }
    d.id = c->d ? c->d : 1, d.depth = c->d ? c->depth : 1;
    d.od = c->d ? c->d + 2 * c->pad_d + c->more - c->depth + 1 : 1;
    d.oh = c->h + 2 * c->pad_h + c->more - c->size + 1,
    d.ow = c->w + 2 * c->pad_w + c->more - c->size + 1;
    d.x_shape = shape_of(c, c->n, d.id, c->h, c->w, c->in);
    d.w_shape = shape_of(c, c->out, d.depth, c->size, c->size, c->in);
    d.y_shape = shape_of(c, c->n, d.od, d.oh, d.ow, c->out);
    d.xs = tr_shape_elems(&d.x_shape), d.ws = tr_shape_elems(&d.w_shape),
    d.ys = tr_shape_elems(&d.y_shape);
    d.x = kt_normal(d.xs, 1, 0.3, 1), d.w = kt_normal(d.ws, 2, 0, 0.1);
    d.bias = kt_normal(c->out, 3, 0, 1), d.dy = kt_normal(d.ys, 4, 0.1, 1);
    return d;
}

static void destroy(data_t *d) {
    float *all[] = {d->x, d->w, d->bias, d->dy};
    for (int i = 0; i < 4; i++) free(all[i]);
}

/* Adds the products of one input pixel and one output pixel to whichever is not NULL. */
static void add(const data_t *d, int64_t x, int64_t y, int64_t place, double *out, double *dx,
                double *dw) {
    const case_t *c = d->c;
    for (int64_t k = 0; k < c->out; k++)
        for (int64_t i = 0; i < c->in; i++) {
            int64_t w = (k * d->depth * c->size * c->size + place) * c->in + i;
            if (out) out[y * c->out + k] += (double)d->x[x * c->in + i] * d->w[w];
            if (dx) dx[x * c->in + i] += (double)d->dy[y * c->out + k] * d->w[w];
            if (dw) dw[w] += (double)d->dy[y * c->out + k] * d->x[x * c->in + i];
        }
}

static void reference(const data_t *d, double *out, double *dx, double *dw) {
    const case_t *c = d->c;
    const int64_t pixels = d->od * d->oh * d->ow;
    for (int64_t n = 0; n < c->n; n++)
        for (int64_t y = 0; y < pixels; y++)
            for (int place = 0; place < d->depth * c->size * c->size; place++) {
                int64_t plane = y / (d->oh * d->ow) + place / (c->size * c->size) - c->pad_d;
                int64_t row = y / d->ow % d->oh + place / c->size % c->size - c->pad_h;
                int64_t column = y % d->ow + place % c->size - c->pad_w;
                if (plane < 0 || plane >= d->id || row < 0 || row >= c->h || column < 0 ||
                    column >= c->w)
                    continue;
                add(d, ((n * d->id + plane) * c->h + row) * c->w + column, n * pixels + y, place,
                    out, dx, dw);
            }
}

enum { MAX_OUT = 2 };

/* Within 1e-5 of the largest; and the first not with the bits of direct sums. */
static void check(tr_kernel_id_t id, const data_t *d, int n_in, const tr_view_t *in, int n_out,
                  const tr_view_t *out, double *const *want, const char *what) {
    tr_view_t direct[MAX_OUT];
    for (int o = 0; o < n_out; o++) {
        direct[o] = out[o];
        direct[o].data = kt_zeros(tr_shape_elems(&out[o].shape));
    }
    kt_run(id, &d->attr, n_in, in, n_out, out);
    kt_devices[0]->winograd = false;
    kt_run_on(kt_devices[0], id, &d->attr, n_in, in, n_out, direct);
    kt_devices[0]->winograd = true;
    for (int o = 0; o < n_out; o++) {
        int64_t count = tr_shape_elems(&out[o].shape);
        double largest = 0;
        for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(want[o][i]));
        kt_close(out[o].data, want[o], count, 0, 1e-5 * largest, what);
        kt_close(direct[o].data, want[o], count, 0, 1e-5 * largest, what);
        if (o == 0)
            assert_memory_not_equal(direct[o].data, out[o].data, (size_t)count * sizeof(float));
        free(direct[o].data);
    }
}

static void check_forward(const data_t *d, float *found, double *want) {
    const case_t *c = d->c;
    reference(d, want, NULL, NULL);
    for (int64_t i = 0; i < d->ys; i++) {
        if (c->bias) want[i] += d->bias[i % c->out];
        if (c->relu && want[i] < 0) want[i] = 0;
    }
    check(TR_K_CONV_FWD, d, 3,
          VIEWS(view_of(d->x_shape, d->x), view_of(d->w_shape, d->w),
                c->bias ? F32(d->bias, c->out) : ABSENT),
          1, VIEWS(view_of(d->y_shape, found)), &want, "forward");
}

static void check_gradients(const data_t *d, float *found, double *dx, double *dw) {
    const case_t *c = d->c;
    const tr_view_t dy = view_of(d->y_shape, d->dy);
    float *found_bias = kt_zeros(c->out);
    double *db = calloc((size_t)c->out, sizeof *db);
    reference(d, NULL, dx, dw);
    for (int64_t i = 0; i < d->ys; i++) db[i % c->out] += d->dy[i];
    check(TR_K_CONV_BWD_DATA, d, 2, VIEWS(dy, view_of(d->w_shape, d->w)), 1,
          VIEWS(view_of(d->x_shape, found)), &dx, "gradient of the input");
    check(TR_K_CONV_BWD_WEIGHTS, d, 2, VIEWS(view_of(d->x_shape, d->x), dy), c->bias ? 2 : 1,
          VIEWS(view_of(d->w_shape, found), F32(found_bias, c->out)), (double *const[]){dw, db},
          "gradients of filters and bias");
    free(found_bias);
    free(db);
}

static void convolutions(void **state) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        data_t d = make(&cases[i]);
        int64_t most = d.xs > d.ys ? d.xs : d.ys;
        most = most > d.ws ? most : d.ws;
        float *found = kt_zeros(most);
        double *want[3];
        for (int k = 0; k < 3; k++) want[k] = calloc((size_t)most, sizeof(double));
        check_forward(&d, found, want[0]);
        check_gradients(&d, found, want[1], want[2]);
        for (int k = 0; k < 3; k++) free(want[k]);
        free(found);
        destroy(&d);
    }
}

/* The same bits for any number of threads (kt_run), of rows that are longer than what is summed in a
 * register, too. */
static void few_channels(void **state) {
    static const case_t few[] = {
        {5, 9, 8, 3, 16, 3, 1, 1, .bias = true},
        {2, 3, 300, 1, 32, 5, 2, 2, .more = 0},
        {3, 7, 5, 48, 2, 1, 0, 0, .bias = true},
        {2, 5, 6, 4, 16, 3, 1, 1, .d = 7, .depth = 3, .pad_d = 1},
    };
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        const case_t *c = &few[i];
        data_t d = make(c);
        float *dw = kt_zeros(d.ws), *db = kt_zeros(c->out);
        double *want = calloc((size_t)d.ws, sizeof *want), largest = 0;
        reference(&d, NULL, NULL, want);
        for (int64_t k = 0; k < d.ws; k++) largest = fmax(largest, fabs(want[k]));
        kt_run(TR_K_CONV_BWD_WEIGHTS, &d.attr, 2,
               VIEWS(view_of(d.x_shape, d.x), view_of(d.y_shape, d.dy)), c->bias ? 2 : 1,
               VIEWS(view_of(d.w_shape, dw), F32(db, c->out)));
        kt_close(dw, want, d.ws, 0, 1e-6 * largest, "gradients of filters");
        free(dw);
        free(db);
        free(want);
        destroy(&d);
    }
}

/* Numbers of 16 bits; x becomes what they are. */
static uint16_t *rounded(float *x, int64_t count, tr_dtype_t dtype) {
    uint16_t *bits = calloc((size_t)count, sizeof *bits);
    for (int64_t i = 0; i < count; i++) {
        bits[i] = dtype == TR_BF16 ? tr_bf16_of_float(x[i]) : tr_f16_of_float(x[i]);
        x[i] = dtype == TR_BF16 ? tr_float_of_bf16(bits[i]) : tr_float_of_f16(bits[i]);
    }
    return bits;
}

static void check_rounded(const uint16_t *found, const double *want, int64_t count,
                          tr_dtype_t dtype, const char *what) {
    float *y = kt_zeros(count);
    double largest = 0;
    for (int64_t i = 0; i < count; i++) {
        y[i] = dtype == TR_BF16 ? tr_float_of_bf16(found[i]) : tr_float_of_f16(found[i]);
        largest = fmax(largest, fabs(want[i]));
    }
    kt_close(y, want, count, dtype == TR_BF16 ? 0x1p-8 : 0x1p-11, 1e-5 * largest, what);
    free(y);
}

/* Convolutions of 16 bits are sums of f32 that are rounded once; gradients of filters are f32. Those
 * of f16 are never computed by direct sums where Winograd's algorithm is faster. */
static void sixteen_bits(void **state) {
    static const size_t some[] = {1, 4, 10};
    for (int k = 0; k < 6; k++) {
        const tr_dtype_t dtype = k % 2 ? TR_F16 : TR_BF16;
        data_t d = make(&cases[some[k / 2]]);
        const case_t *c = d.c;
        uint16_t *in[] = {rounded(d.x, d.xs, dtype), rounded(d.w, d.ws, dtype),
                          rounded(d.dy, d.ys, dtype)};
        tr_view_t x = {in[0], dtype, d.x_shape}, w = {in[1], dtype, d.w_shape},
                  dy = {in[2], dtype, d.y_shape}, y = dy, dx = x;
        double *want[] = {calloc((size_t)d.ys, sizeof(double)),
                          calloc((size_t)d.xs, sizeof(double)),
                          calloc((size_t)d.ws, sizeof(double))},
               largest = 0;
        float *dw = kt_zeros(d.ws), *direct = kt_zeros(d.ws);
        y.data = calloc((size_t)d.ys, 2), dx.data = calloc((size_t)d.xs, 2);
        reference(&d, want[0], want[1], want[2]);
        for (int64_t i = 0; i < d.ys; i++) {
            if (c->bias) want[0][i] += d.bias[i % c->out];
            if (c->relu && want[0][i] < 0) want[0][i] = 0;
        }
        for (int64_t i = 0; i < d.ws; i++) largest = fmax(largest, fabs(want[2][i]));
        kt_run_on(kt_devices[1], TR_K_CONV_FWD, &d.attr, 3,
                  VIEWS(x, w, c->bias ? F32(d.bias, c->out) : ABSENT), 1, &y);
        check_rounded(y.data, want[0], d.ys, dtype, "forward");
        kt_run_on(kt_devices[1], TR_K_CONV_BWD_DATA, &d.attr, 2, VIEWS(dy, w), 1, &dx);
        check_rounded(dx.data, want[1], d.xs, dtype, "gradient of the input");
        kt_run_on(kt_devices[2], TR_K_CONV_BWD_WEIGHTS, &d.attr, 2, VIEWS(x, dy), 1,
                  VIEWS(view_of(d.w_shape, dw)));
        kt_close(dw, want[2], d.ws, 0, 1e-5 * largest, "gradient of filters");
        kt_devices[0]->winograd = false;
        kt_run_on(kt_devices[0], TR_K_CONV_BWD_WEIGHTS, &d.attr, 2, VIEWS(x, dy), 1,
                  VIEWS(view_of(d.w_shape, direct)));
        kt_devices[0]->winograd = true;
        if (dtype == TR_F16) assert_memory_not_equal(direct, dw, (size_t)d.ws * sizeof(float));
        void *all[] = {in[0], in[1], in[2], want[0], want[1], want[2], dw, direct, y.data, dx.data};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
        destroy(&d);
    }
}

/* A pixel that is NaN makes each output NaN that it is part of, behind a relu too, and none of
 * another image. */
static void not_a_number(void **state) {
    static const case_t c = {2, 13, 9, 16, 32, 3, 1, 1, .bias = true, .relu = true};
    enum { ROW = 5, COLUMN = 4 };
    data_t d = make(&c);
    float *y = kt_zeros(d.ys);
    d.x[((c.h + ROW) * c.w + COLUMN) * c.in + 3] = NAN; /* of image 1 */
    kt_run(TR_K_CONV_FWD, &d.attr, 3,
           VIEWS(F32(d.x, c.n, c.h, c.w, c.in), F32(d.w, c.out, 3, 3, c.in), F32(d.bias, c.out)), 1,
           VIEWS(F32(y, c.n, d.oh, d.ow, c.out)));
    for (int64_t i = 0; i < d.ys; i++) {
        int64_t pixel = i / c.out % (d.oh * d.ow), image = i / c.out / (d.oh * d.ow);
        bool touched = llabs(pixel / d.ow - ROW) <= 1 && llabs(pixel % d.ow - COLUMN) <= 1;
        if (image == 0) assert_true(isfinite(y[i]));
        if (image == 1 && touched) assert_true(isnan(y[i]));
    }
    free(y);
    destroy(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions), cmocka_unit_test(few_channels),
        cmocka_unit_test(sixteen_bits), cmocka_unit_test(not_a_number)};
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
