/* The fake libcudnn against sums in double precision, what it refuses, plans and their JSON. */
#include "cudnn_test.h"

/* -- the reference: direct sums, as dense arrays ----------------------------------------------- */
static void dims_of(const shape_t *s, int64_t *x, int64_t *w, int64_t *y) {
    x[0] = y[0] = s->n, x[1] = s->c, y[1] = w[0] = s->k, w[1] = s->c / s->groups;
    for (int i = 0; i < s->spatial; i++) {
        x[2 + i] = s->in[i], w[2 + i] = s->kernel[i];
        y[2 + i] = (s->in[i] + s->pre[i] + s->post[i] - (s->kernel[i] - 1) * s->dilation[i] - 1) /
                       s->step[i] +
                   1;
    }
}
static int64_t product(const int64_t *dim, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= dim[i];
    return n;
}
/* Adds into one of the three, by direction. */
static void reference(int direction, const shape_t *s, double *x, double *w, double *y) {
    int64_t xd[5], wd[5], yd[5];
    dims_of(s, xd, wd, yd);
    const int nd = s->spatial + 2;
    const int64_t outs = product(yd, 2, nd), taps = product(wd, 2, nd), ins = product(xd, 2, nd),
                  kg = s->k / s->groups;
    for (int64_t yi = 0; yi < s->n * s->k * outs; yi++)
        for (int64_t c = 0; c < wd[1]; c++)
            for (int64_t tap = 0; tap < taps; tap++) {
                int64_t o = yi % outs, q = tap, at = 0, size = 1;
                const int64_t k = yi / outs % s->k, n = yi / outs / s->k;
                bool inside = true;
                for (int i = s->spatial - 1; i >= 0; i--) {
                    const int64_t p =
                        o % yd[2 + i] * s->step[i] - s->pre[i] + q % wd[2 + i] * s->dilation[i];
                    inside &= p >= 0 && p < xd[2 + i];
                    at += p * size, size *= xd[2 + i], o /= yd[2 + i], q /= wd[2 + i];
                }
                if (!inside) continue;
                double *xe = &x[(n * s->c + k / kg * wd[1] + c) * ins + at],
                       *we = &w[(k * wd[1] + c) * taps + tap];
                if (direction == FORWARD)
                    y[yi] += *xe * *we;
                else if (direction == DATA)
                    *xe += y[yi] * *we;
                else
                    *we += *xe * y[yi];
            }
}

static double difference(const tensor_t *t, const double *want) {
    const double unit = t->type == FL ? 2e-6 : t->type == BF ? 5e-3 : 1e-3;
    double worst = 0;
    for (int64_t i = 0; i < t->count; i++)
        worst = fmax(worst, fabs(t->host[i] - want[i]) / unit / (1 + fabs(want[i])));
    return worst;
}

static const shape_t shapes[] = {
    {2, 2, 3, 4, 1, {7, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2,
     3,
     8,
     8,
     1,
     {9, 8},
     {3, 2},
     {2, 1},
     {0, 1},
     {1, 2},
     {1, 2}}, /* asymmetric, strided, dilated */
    {2, 2, 8, 12, 4, {5, 5}, {3, 3}, {1, 2}, {1, 1}, {1, 1}, {1, 1}},                  /* groups */
    {3, 2, 2, 3, 1, {4, 5, 3}, {3, 2, 3}, {1, 2, 1}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1}}, /* volumes */
    {2, 1, 8, 65, 1, {20, 20}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
};

static void test_convolutions(void **state) {
    const cudnnDataType_t types[] = {FL, BF, HF};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int bits = 0; bits < 18; bits++) {
            const shape_t *s = &shapes[i];
            const int direction = bits % 3, nd = s->spatial + 2;
            const bool nhwc = bits & 1;
            int64_t xd[5], wd[5], yd[5];
            dims_of(s, xd, wd, yd);
            tensor_t x = tensor(types[bits / 6], nd, xd, nhwc, false),
                     w = tensor(types[bits / 6], nd, wd, nhwc, false);
            tensor_t y = tensor(types[bits / 6], nd, yd, nhwc, false),
                     *out = direction == FORWARD ? &y
                            : direction == DATA  ? &x
                                                 : &w;
            D op = convolve(direction, s, x.desc, w.desc, y.desc), graph = graph_of(1, &op);
            double *want = calloc((size_t)out->count, sizeof *want);
            reference(direction, s, direction == DATA ? want : x.host,
                      direction == FILTER ? want : w.host, direction == FORWARD ? want : y.host);
            OK(execute(plan_of(graph), 3, (tensor_t *[]){&x, &w, &y}));
            download(out);
            assert_true(difference(out, want) < 4);
            free(want);
        }
}

/* -- fusions ----------------------------------------------------------------------------------- */
static const shape_t small = {2, 2, 8, 16, 1, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};

static void test_bias_relu(void **state) {
    int64_t xd[4], wd[4], yd[4], bd[] = {1, 16, 1, 1};
    dims_of(&small, xd, wd, yd);
    tensor_t x = tensor(BF, 4, xd, true, false), w = tensor(BF, 4, wd, true, false),
             b = tensor(BF, 4, bd, true, false);
    tensor_t v1 = tensor(FL, 4, yd, true, true), v2 = tensor(FL, 4, yd, true, true),
             y = tensor(BF, 4, yd, true, false);
    D ops[] = {pointwise(CUDNN_POINTWISE_RELU_FWD, v2.desc, NULL, y.desc, NULL), /* in any order */
               convolve(FORWARD, &small, x.desc, w.desc, v1.desc),
               pointwise(CUDNN_POINTWISE_ADD, v1.desc, b.desc, v2.desc, NULL)};
    double *want = calloc((size_t)y.count, sizeof *want);
    reference(FORWARD, &small, x.host, w.host, want);
    for (int64_t i = 0; i < y.count; i++) want[i] = fmax(0, want[i] + b.host[i / 36 % 16]);
    OK(execute(plan_of(graph_of(3, ops)), 4, (tensor_t *[]){&x, &w, &b, &y}));
    download(&y);
    assert_true(difference(&y, want) < 2);
}

/* -- refusals: what the real library was seen to do -------------------------------------------- */
static cudnnStatus_t filter_gradient(cudnnDataType_t type, cudnnDataType_t into, int64_t c,
                                     bool through_identity) {
    shape_t s = small;
    s.c = c;
    int64_t xd[4], wd[4], yd[4], found;
    D configs[8];
    dims_of(&s, xd, wd, yd);
    tensor_t x = tensor(type, 4, xd, true, false), y = tensor(type, 4, yd, true, false);
    tensor_t w = tensor(into, 4, wd, true, through_identity),
             out = tensor(into, 4, wd, true, false);
    D ops[] = {convolve(FILTER, &s, x.desc, w.desc, y.desc), NULL};
    if (through_identity)
        ops[1] = pointwise(CUDNN_POINTWISE_IDENTITY, w.desc, NULL, out.desc, NULL);
    return configurations(graph_of(1 + through_identity, ops), &found, configs);
}

static void test_refusals(void **state) {
    OK(filter_gradient(BF, BF, 8, false));
    OK(filter_gradient(BF, FL, 8, true));
    assert_true(filter_gradient(BF, FL, 8, false) >= CUDNN_STATUS_NOT_SUPPORTED);
    assert_true(filter_gradient(BF, FL, 3, true) >= CUDNN_STATUS_NOT_SUPPORTED);
    OK(filter_gradient(FL, FL, 3, false));

    int64_t xd[4], wd[4], yd[4];
    dims_of(&small, xd, wd, yd);
    yd[3]++; /* a wrong extent */
    tensor_t x = tensor(FL, 4, xd, true, false), w = tensor(FL, 4, wd, true, false),
             y = tensor(FL, 4, yd, true, false);
    D op = create(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR),
      conv = convolution(&small);
    const float one = 1;
    SET(op, OPERATION_CONVOLUTION_FORWARD_CONV_DESC, BACKEND_DESCRIPTOR, 1, &conv);
    SET(op, OPERATION_CONVOLUTION_FORWARD_X, BACKEND_DESCRIPTOR, 1, &x.desc);
    SET(op, OPERATION_CONVOLUTION_FORWARD_W, BACKEND_DESCRIPTOR, 1, &w.desc);
    SET(op, OPERATION_CONVOLUTION_FORWARD_Y, BACKEND_DESCRIPTOR, 1, &y.desc);
    SET(op, OPERATION_CONVOLUTION_FORWARD_ALPHA, FLOAT, 1, &one);
    assert_true(cudnnBackendFinalize(op) >= CUDNN_STATUS_BAD_PARAM); /* beta is missing */
    SET(op, OPERATION_CONVOLUTION_FORWARD_BETA, FLOAT, 1, &one);
    assert_int_equal(cudnnBackendFinalize(op), CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    assert_true(cudnnBackendSetAttribute(op, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
                                         &one) != 0);
    assert_true(cudnnBackendSetAttribute(x.desc, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4,
                                         xd) != 0); /* finalized */
    char why[200] = "";
    cudnnGetLastErrorString(why, sizeof why);
    assert_true(*why);
}

static void test_plans(void **state) {
    int64_t xd[4], wd[4], yd[4], n = 0;
    dims_of(&small, xd, wd, yd);
    tensor_t x = tensor(BF, 4, xd, true, false), w = tensor(BF, 4, wd, true, false),
             y = tensor(BF, 4, yd, true, false);
    D op = convolve(FORWARD, &small, x.desc, w.desc, y.desc), plan = plan_of(graph_of(1, &op));
    OK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                CUDNN_TYPE_CHAR, 0, &n, NULL));
    char *json = malloc((size_t)n);
    OK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                CUDNN_TYPE_CHAR, n, &n, json));
    assert_int_equal(strlen(json) + 1, n);
    OK(execute(plan, 3, (tensor_t *[]){&x, &w, &y}));
    download(&y);
    double *first = malloc((size_t)y.count * sizeof *first);
    memcpy(first, y.host, (size_t)y.count * sizeof *first);
    OK(cudaMemset(y.device, 0, (size_t)y.count * 2));
    for (int damaged = 0; damaged < 2; damaged++) {
        D restored = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        if (damaged) json[n / 2] = 'z';
        SET(restored, EXECUTION_PLAN_HANDLE, HANDLE, 1, &handle);
        SET(restored, EXECUTION_PLAN_JSON_REPRESENTATION, CHAR, n, json);
        if (damaged)
            assert_true(cudnnBackendFinalize(restored) != 0);
        else {
            OK(cudnnBackendFinalize(restored));
            OK(execute(restored, 3, (tensor_t *[]){&x, &w, &y}));
            download(&y);
            assert_memory_equal(first, y.host, (size_t)y.count * sizeof *first);
        }
    }
    assert_int_equal(execute(plan, 2, (tensor_t *[]){&x, &w}), CUDNN_STATUS_BAD_PARAM);
    tensor_t odd = x;
    odd.device = (char *)x.device + 2;
    assert_int_equal(execute(plan, 3, (tensor_t *[]){&odd, &w, &y}),
                     CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
}

/* Strides of NCHW on data in NHWC order: the planted mistake changes the result. */
static void test_swapped_strides_show(void **state) {
    int64_t xd[4], wd[4], yd[4];
    dims_of(&small, xd, wd, yd);
    tensor_t x = tensor(FL, 4, xd, true, false), w = tensor(FL, 4, wd, true, false),
             y = tensor(FL, 4, yd, true, false);
    tensor_t wrong = tensor(FL, 4, xd, false, false);
    wrong.device = x.device;
    double *want = calloc((size_t)y.count, sizeof *want);
    reference(FORWARD, &small, x.host, w.host, want);
    D op = convolve(FORWARD, &small, wrong.desc, w.desc, y.desc);
    OK(execute(plan_of(graph_of(1, &op)), 3, (tensor_t *[]){&wrong, &w, &y}));
    download(&y);
    assert_true(difference(&y, want) > 100);
}

static void test_engines_differ(void **state) {
    int64_t xd[4], wd[4], yd[4], found = 0;
    D configs[8];
    dims_of(&small, xd, wd, yd);
    tensor_t x = tensor(FL, 4, xd, true, false), w = tensor(FL, 4, wd, true, false),
             y = tensor(FL, 4, yd, true, false);
    D op = convolve(FILTER, &small, x.desc, w.desc, y.desc);
    OK(configurations(graph_of(1, &op), &found, configs));
    int tf32 = 0, loose = 0;
    for (int64_t i = 0; i < found; i++) {
        tf32 += has_note(configs[i], CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
        loose += has_note(configs[i], CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    }
    assert_true(tf32 && loose && found > tf32 + loose - 1);
    assert_true(
        has_note(configs[0],
                 CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)); /* offered first, as by the real one */
}

static int setup(void **state) {
    return cudnnCreate(&handle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_bias_relu),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_swapped_strides_show),
        cmocka_unit_test(test_engines_differ),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
