/* What networks need whose output is a field: upsampling, transposed convolution, bias, leaky
 * relu. */
#include "../../support/op_harness.h"
#include <math.h>

/* Sizes of three spatial dimensions, the absent ones in front of size 1. */
static void sizes_of(const tr_shape_t *shape, int64_t size[3]) {
    const int spatial = shape->ndim - 2;
    for (int d = 0; d < 3; d++) size[d] = d < 3 - spatial ? 1 : shape->dim[d - (3 - spatial) + 1];
}

static void split(int64_t i, const int64_t size[3], int64_t p[3]) {
    for (int d = 2; d >= 0; d--) {
        p[d] = i % size[d];
        i /= size[d];
    }
}

static int64_t join(const int64_t size[3], const int64_t p[3]) {
    return (p[0] * size[1] + p[1]) * size[2] + p[2];
}

/* -- upsampling -------------------------------------------------------------------------------- */

static tr_status_t build_upsample(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                  tr_tensor_t *out) {
    return tr_upsample(g, in[0], c->attr, out);
}

/* The weight of input i in output o: of the hat of width 1 around (o + 1/2) / factor - 1/2, which
 * is moved into the range of the inputs. */
static double upsample_weight(int64_t o, int64_t i, int64_t inputs, int64_t factor, bool linear) {
    const double at = ((double)o + 0.5) / (double)factor - 0.5;
    if (!linear) return o / factor == i;
    return fmax(0, 1 - fabs(fmin(fmax(at, 0), (double)(inputs - 1)) - (double)i));
}

static void upsample(const op_case_t *c, const double *const *in, double *y) {
    const tr_upsample_attr_t *attr = c->attr;
    const int64_t channels = c->out.dim[c->out.ndim - 1];
    int64_t from[3], to[3], o[3], i[3];
    sizes_of(&c->in[0].shape, from);
    sizes_of(&c->out, to);
    const int64_t inputs = from[0] * from[1] * from[2], outputs = to[0] * to[1] * to[2];
    for (int64_t at = 0; at < tr_shape_elems(&c->out); at++) {
        const int64_t channel = at % channels, image = at / channels / outputs;
        split(at / channels % outputs, to, o);
        y[at] = 0;
        for (int64_t k = 0; k < inputs; k++) {
            double weight = 1;
            split(k, from, i);
            for (int d = 0; d < 3; d++)
                weight *= upsample_weight(o[d], i[d], from[d], to[d] / from[d], attr->linear);
            y[at] += weight * in[0][(image * inputs + k) * channels + channel];
        }
    }
}

static void upsamplings(void **state) {
    static const struct {
        tr_shape_t x, y;
        int factor[3];
    } cases[] = {{{3, {2, 5, 3}}, {3, {2, 15, 3}}, {3}},
                 {{4, {2, 3, 4, 17}}, {4, {2, 6, 8, 17}}, {2, 2}},
                 {{4, {1, 3, 1, 2}}, {4, {1, 12, 5, 2}}, {4, 5}},
                 {{5, {1, 2, 3, 2, 2}}, {5, {1, 4, 3, 6, 2}}, {2, 1, 3}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int linear = 0; linear < 2; linear++) {
            tr_upsample_attr_t attr = {.spatial = cases[i].x.ndim - 2, .linear = linear};
            for (int d = 0; d < 3; d++) attr.factor[d] = cases[i].factor[d];
            op_case_t c = {linear ? "upsample linear" : "upsample nearest",
                           1,
                           {{"x", cases[i].x, .half = true}},
                           &attr,
                           TR_TRAIN,
                           cases[i].y,
                           build_upsample,
                           upsample,
                           .needs = TR_K_UPSAMPLE_FWD};
            op_check(&c);
        }
}

/* PyTorch: interpolate(torch.tensor([[[1., 2, 4]]]), scale_factor=2, mode="linear") */
static void upsampling_has_the_values_of_pytorch(void **state) {
    const tr_upsample_attr_t attr = {.spatial = 1, .factor = {2}, .linear = true};
    tr_tensor_t in, y;
    op_bench_t b = op_begin("cpu", TR_EVAL);
    MUST(tr_input(b.g, "x", TR_F32, &TR_SHAPE(1, 3, 1), &in));
    MUST(tr_upsample(b.g, in, &attr, &y));
    MUST(tr_keep(b.g, y));
    op_ready(&b);
    op_write(&b, in, (double[]){1, 2, 4});
    op_run(&b);
    float *value = op_read(&b, y);
    op_assert_close("values", value, (double[]){1, 1.25, 1.75, 2.5, 3.5, 4}, 6, 1e-7);
    test_free(value);
    op_end(&b);
}

/* -- transposed convolution -------------------------------------------------------------------- */

static int out_pad[3];

static tr_status_t build_transpose(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                   tr_tensor_t *out) {
    return tr_conv_transpose(g, in[0], in[1], c->attr, out_pad, out);
}

/* Every input adds its multiple of the kernel to the output. */
static void transpose(const op_case_t *c, const double *const *in, double *y) {
    const tr_conv_attr_t *attr = c->attr;
    const tr_shape_t *x = &c->in[0].shape, *w = &c->in[1].shape;
    const int64_t channels = x->dim[x->ndim - 1], outputs = c->out.dim[c->out.ndim - 1];
    const int64_t per_group = outputs / attr->groups, group_in = channels / attr->groups;
    int64_t from[3], to[3], kernel[3], i[3], k[3], o[3];
    sizes_of(x, from);
    sizes_of(&c->out, to);
    sizes_of(w, kernel);
    const int64_t pixels = from[0] * from[1] * from[2], taps = kernel[0] * kernel[1] * kernel[2];
    for (int64_t at = 0; at < tr_shape_elems(&c->out); at++) y[at] = 0;
    for (int64_t at = 0; at < tr_shape_elems(x); at++)
        for (int64_t tap = 0; tap < taps; tap++) {
            const int64_t channel = at % channels, image = at / channels / pixels;
            bool inside = true;
            split(at / channels % pixels, from, i);
            split(tap, kernel, k);
            for (int d = 0; d < 3; d++) {
                const int s = d - (3 - attr->spatial);
                o[d] =
                    s < 0 ? 0 : i[d] * attr->stride[s] + k[d] * attr->dilation[s] - attr->pad_lo[s];
                inside &= o[d] >= 0 && o[d] < to[d];
            }
            for (int64_t q = 0; inside && q < per_group; q++)
                y[((image * to[0] * to[1] * to[2]) + join(to, o)) * outputs +
                  channel / group_in * per_group + q] +=
                    in[0][at] * in[1][(channel * taps + tap) * per_group + q];
        }
}

static void transposed_convolutions(void **state) {
    static const struct {
        tr_shape_t x, w, y;
        tr_conv_attr_t attr;
        int out_pad[3];
    } cases[] = {
        {{3, {2, 5, 3}}, {3, {3, 4, 2}}, {3, {2, 12, 2}}, {1, {4}, {2}, {0}, {0}, {1}, 1}, {0}},
        {{4, {2, 3, 4, 3}},
         {4, {3, 2, 2, 4}},
         {4, {2, 6, 8, 4}},
         {2, {2, 2}, {2, 2}, {0}, {0}, {1, 1}, 1},
         {0}},
        {{4, {1, 4, 3, 4}},
         {4, {4, 3, 3, 3}},
         {4, {1, 8, 6, 6}},
         {2, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 2},
         {1, 1}},
        {{4, {1, 3, 4, 2}},
         {4, {2, 3, 2, 3}},
         {4, {1, 6, 4, 3}},
         {2, {3, 2}, {1, 1}, {0, 0}, {1, 1}, {2, 1}, 1},
         {0}},
        {{5, {1, 2, 3, 2, 2}},
         {5, {2, 2, 2, 2, 3}},
         {5, {1, 4, 6, 4, 3}},
         {3, {2, 2, 2}, {2, 2, 2}, {0}, {0}, {1, 1, 1}, 1},
         {0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int d = 0; d < 3; d++) out_pad[d] = cases[i].out_pad[d];
        op_case_t c = {
            "conv_transpose", 2,        {{"x", cases[i].x, .half = true}, {"w", cases[i].w}},
            &cases[i].attr,   TR_TRAIN, cases[i].y,
            build_transpose,  transpose};
        op_check(&c);
    }
}

/* -- element by element ------------------------------------------------------------------------ */

static tr_status_t build_bias(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                              tr_tensor_t *out) {
    return tr_bias(g, in[0], in[1], ((const tr_add_attr_t *)c->attr)->act, out);
}

static void bias(const op_case_t *c, const double *const *in, double *y) {
    const int64_t width = c->in[1].shape.dim[0];
    const bool cut = ((const tr_add_attr_t *)c->attr)->act == TR_ACT_RELU;
    for (int64_t i = 0; i < tr_shape_elems(&c->out); i++) {
        y[i] = in[0][i] + in[1][i % width];
        if (cut) y[i] = fmax(y[i], 0);
    }
}

static void biases(void **state) {
    for (int cut = 0; cut < 2; cut++) {
        const tr_add_attr_t attr = {cut ? TR_ACT_RELU : TR_ACT_NONE};
        op_case_t c = {
            "bias",     2,        {{"x", TR_SHAPE(2, 3, 19), .half = true}, {"b", TR_SHAPE(19)}},
            &attr,      TR_TRAIN, TR_SHAPE(2, 3, 19),
            build_bias, bias,     .needs = TR_K_BIAS};
        op_check(&c);
    }
}

static tr_status_t build_leaky(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                               tr_tensor_t *out) {
    return tr_leaky_relu(g, in[0], 0.25f, out);
}

static void leaky(const op_case_t *c, const double *const *in, double *y) {
    for (int64_t i = 0; i < tr_shape_elems(&c->out); i++)
        y[i] = in[0][i] > 0 ? in[0][i] : 0.25 * in[0][i];
}

static void leaky_relus(void **state) {
    op_case_t c = {"leaky_relu", 1,        {{"x", TR_SHAPE(5, 19), .half = true}},
                   NULL,         TR_TRAIN, TR_SHAPE(5, 19),
                   build_leaky,  leaky,    .needs = TR_K_LEAKY_RELU_FWD};
    op_check(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(upsamplings),
        cmocka_unit_test(upsampling_has_the_values_of_pytorch),
        cmocka_unit_test(transposed_convolutions),
        cmocka_unit_test(biases),
        cmocka_unit_test(leaky_relus),
    };
    return cmocka_run_group_tests_name("ops of fields", tests, NULL, NULL);
}
