/* Convolutions by Winograd's algorithm against direct sums in double; and that it was this algorithm that computed them. */
#include "cpu_kernel_test.h"

typedef struct {
    int64_t n, h, w, in, out;
    int size, pad_h, pad_w; /* the same padding on both sides */
    bool bias, relu;
} case_t;

/* Odd sizes, edges that cut tiles, channels that do not fill the last panel, padding from none to all that a filter takes. */
static const case_t cases[] = {
    {3, 14, 14, 32, 64, 5, 2, 2, false, false}, {2, 13, 9, 48, 16, 3, 1, 1, true, true},
    {5, 7, 7, 64, 48, 3, 1, 1, true, false},    {20, 3, 3, 32, 80, 3, 1, 1, false, false},
    {2, 11, 17, 16, 32, 5, 0, 4, false, true},  {2, 12, 10, 32, 16, 3, 2, 0, false, false},
    {90, 5, 6, 16, 16, 5, 1, 2, false, false},
};

typedef struct {
    const case_t *c;
    tr_conv_attr_t attr;
    int64_t oh, ow, xs, ws, ys; /* size of the output; elements */
    float *x, *w, *bias, *dy;
} data_t;

static data_t make(const case_t *c) {
    data_t d = {.c = c};
    d.attr = (tr_conv_attr_t){2,
                              {c->size, c->size},
                              {1, 1},
                              {c->pad_h, c->pad_w},
                              {c->pad_h, c->pad_w},
                              {1, 1},
                              1,
                              c->relu ? TR_ACT_RELU : TR_ACT_NONE};
    d.oh = c->h + 2 * c->pad_h - c->size + 1, d.ow = c->w + 2 * c->pad_w - c->size + 1;
    d.xs = c->n * c->h * c->w * c->in, d.ws = c->out * c->size * c->size * c->in,
    d.ys = c->n * d.oh * d.ow * c->out;
    d.x = kt_normal(d.xs, 1, 0.3, 1), d.w = kt_normal(d.ws, 2, 0, 0.1);
    d.bias = kt_normal(c->out, 3, 0, 1), d.dy = kt_normal(d.ys, 4, 0.1, 1);
    return d;
}

static void destroy(data_t *d) {
    float *all[] = {d->x, d->w, d->bias, d->dy};
    for (int i = 0; i < 4; i++) free(all[i]);
}

/* Adds the products of one input pixel and one output pixel to whichever is not NULL. */
static void add(const data_t *d, int64_t x, int64_t y, int64_t place, double *out, double *dx, double *dw) {
    const case_t *c = d->c;
    for (int64_t k = 0; k < c->out; k++)
        for (int64_t i = 0; i < c->in; i++) {
            int64_t w = (k * c->size * c->size + place) * c->in + i;
            if (out) out[y * c->out + k] += (double)d->x[x * c->in + i] * d->w[w];
            if (dx) dx[x * c->in + i] += (double)d->dy[y * c->out + k] * d->w[w];
            if (dw) dw[w] += (double)d->dy[y * c->out + k] * d->x[x * c->in + i];
        }
}

static void reference(const data_t *d, double *out, double *dx, double *dw) {
    const case_t *c = d->c;
    for (int64_t n = 0; n < c->n; n++)
        for (int64_t y = 0; y < d->oh * d->ow; y++)
            for (int place = 0; place < c->size * c->size; place++) {
                int64_t row = y / d->ow + place / c->size - c->pad_h;
                int64_t column = y % d->ow + place % c->size - c->pad_w;
                if (row < 0 || row >= c->h || column < 0 || column >= c->w) continue;
                add(d, (n * c->h + row) * c->w + column, n * d->oh * d->ow + y, place, out, dx, dw);
            }
}

/* Within 1e-5 of the largest; and not the bits of direct sums. */
static void check(tr_kernel_id_t id, const data_t *d, int n_in, const tr_view_t *in, tr_view_t out,
                  const double *want, const char *what) {
    int64_t count = tr_shape_elems(&out.shape);
    double largest = 0;
    float *direct = kt_zeros(count);
    tr_view_t direct_out = out;
    direct_out.data = direct;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(want[i]));
    kt_run(id, &d->attr, n_in, in, 1, &out);
    kt_close(out.data, want, count, 0, 1e-5 * largest, what);
    for (int i = 0; i < 2; i++) kt_devices[i]->winograd = false;
    kt_run(id, &d->attr, n_in, in, 1, &direct_out);
    for (int i = 0; i < 2; i++) kt_devices[i]->winograd = true;
    kt_close(direct, want, count, 0, 1e-5 * largest, what);
    assert_memory_not_equal(direct, out.data, (size_t)count * sizeof *direct);
    free(direct);
}

static void check_forward(const data_t *d, float *found, double *want) {
    const case_t *c = d->c;
    reference(d, want, NULL, NULL);
    for (int64_t i = 0; i < d->ys; i++) {
        if (c->bias) want[i] += d->bias[i % c->out];
        if (c->relu && want[i] < 0) want[i] = 0;
    }
    check(TR_K_CONV_FWD, d, 3,
          VIEWS(F32(d->x, c->n, c->h, c->w, c->in), F32(d->w, c->out, c->size, c->size, c->in),
                c->bias ? F32(d->bias, c->out) : ABSENT),
          F32(found, c->n, d->oh, d->ow, c->out), want, "forward");
}

static void convolutions(void **state) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        data_t d = make(&cases[i]);
        const case_t *c = d.c;
        int64_t most = d.xs > d.ys ? d.xs : d.ys;
        most = most > d.ws ? most : d.ws;
        float *found = kt_zeros(most);
        double *want[3];
        for (int k = 0; k < 3; k++) want[k] = calloc((size_t)most, sizeof(double));
        check_forward(&d, found, want[0]);
        reference(&d, NULL, want[1], want[2]);
        tr_view_t dy = F32(d.dy, c->n, d.oh, d.ow, c->out);
        check(TR_K_CONV_BWD_DATA, &d, 2, VIEWS(dy, F32(d.w, c->out, c->size, c->size, c->in)),
              F32(found, c->n, c->h, c->w, c->in), want[1], "gradient of the input");
        check(TR_K_CONV_BWD_WEIGHTS, &d, 2, VIEWS(F32(d.x, c->n, c->h, c->w, c->in), dy),
              F32(found, c->out, c->size, c->size, c->in), want[2], "gradient of the filters");
        for (int k = 0; k < 3; k++) free(want[k]);
        free(found);
        destroy(&d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(convolutions)};
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
