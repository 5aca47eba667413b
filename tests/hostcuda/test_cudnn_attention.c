/* Causal attention, forward, composed of simple operations, against a direct sum. */
#include "cudnn_test.h"

enum { B = 2, H = 3, T = 9, C = 8 };

static D product(D a, D b, D c) {
    D m = create(CUDNN_BACKEND_MATMUL_DESCRIPTOR),
      d = create(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    const cudnnDataType_t compute = FL;
    SET(m, MATMUL_COMP_TYPE, DATA_TYPE, 1, &compute);
    OK(cudnnBackendFinalize(m));
    SET(d, OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR, 1, &m);
    SET(d, OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR, 1, &a);
    SET(d, OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR, 1, &b);
    SET(d, OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR, 1, &c);
    OK(cudnnBackendFinalize(d));
    return d;
}
static D reduction(cudnnReduceTensorOp_t mode, D x, D y) {
    D r = create(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    D d = create(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    const cudnnDataType_t compute = FL;
    SET(r, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, &mode);
    SET(r, REDUCTION_COMP_TYPE, DATA_TYPE, 1, &compute);
    OK(cudnnBackendFinalize(r));
    SET(d, OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR, 1, &r);
    SET(d, OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR, 1, &x);
    SET(d, OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR, 1, &y);
    OK(cudnnBackendFinalize(d));
    return d;
}
static D index_along(int64_t axis, D x, D y) {
    D p = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    D d = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    const cudnnDataType_t compute = FL;
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_GEN_INDEX;
    SET(p, POINTWISE_MODE, POINTWISE_MODE, 1, &mode);
    SET(p, POINTWISE_MATH_PREC, DATA_TYPE, 1, &compute);
    SET(p, POINTWISE_AXIS, INT64, 1, &axis);
    OK(cudnnBackendFinalize(p));
    SET(d, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1, &p);
    SET(d, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1, &x);
    SET(d, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1, &y);
    OK(cudnnBackendFinalize(d));
    return d;
}
static D choose(D x, D b, D which, D y) {
    D p = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    D d = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    const cudnnDataType_t compute = FL;
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_BINARY_SELECT;
    SET(p, POINTWISE_MODE, POINTWISE_MODE, 1, &mode);
    SET(p, POINTWISE_MATH_PREC, DATA_TYPE, 1, &compute);
    OK(cudnnBackendFinalize(p));
    SET(d, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1, &p);
    SET(d, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1, &x);
    SET(d, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1, &b);
    SET(d, OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR, 1, &which);
    SET(d, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1, &y);
    OK(cudnnBackendFinalize(d));
    return d;
}

/* q, k and v packed as (B, T, 3, H, C), which is what strides are for; k seen as (B, H, C, T). */
static void pack(tensor_t *t, int which, bool turned, const tensor_t *packed) {
    const int64_t step_t = 3 * H * C;
    const int64_t stride[] = {T * step_t, C, turned ? 1 : step_t, turned ? step_t : 1};
    memcpy(t->stride, stride, sizeof stride);
    t->device = (uint16_t *)packed->device + which * H * C;
    t->desc = describe(t, 16);
}
static double packed_at(const tensor_t *packed, int b, int t, int which, int h, int c) {
    return packed->host[(((b * T + t) * 3 + which) * H + h) * C + c];
}

static void test_causal_attention(void **state) {
    const int64_t pd[] = {1, 1, B * T * 3, H * C}, xd[] = {B, H, T, C}, kd[] = {B, H, C, T};
    const int64_t sd[] = {B, H, T, T}, rd[] = {B, H, T, 1}, one[] = {1, 1, 1, 1};
    tensor_t packed = tensor(BF, 4, pd, false, false), y = tensor(BF, 4, xd, false, false);
    tensor_t q = tensor(BF, 4, xd, false, true), k = tensor(BF, 4, kd, false, true);
    tensor_t v = tensor(BF, 4, xd, false, true), low = tensor(FL, 4, one, false, false);
    tensor_t *inputs[] = {&q, &k, &v};
    for (int i = 0; i < 3; i++) {
        inputs[i]->is_virtual = false;
        pack(inputs[i], i, i == 1, &packed);
    }
    low.host[0] = -1e30;
    upload(&low);
    tensor_t s[9], r[2]; /* virtual: scores and what becomes of them */
    for (int i = 0; i < 9; i++) s[i] = tensor(FL, 4, sd, false, true);
    for (int i = 0; i < 2; i++) r[i] = tensor(FL, 4, rd, false, true);
    D ops[] = {
        product(q.desc, k.desc, s[0].desc),
        index_along(2, s[0].desc, s[1].desc),
        index_along(3, s[0].desc, s[2].desc),
        pointwise(CUDNN_POINTWISE_CMP_GE, s[1].desc, s[2].desc, s[3].desc, NULL),
        choose(s[0].desc, low.desc, s[3].desc, s[4].desc),
        reduction(CUDNN_REDUCE_TENSOR_MAX, s[4].desc, r[0].desc),
        pointwise(CUDNN_POINTWISE_SUB, s[4].desc, r[0].desc, s[5].desc, NULL),
        pointwise(CUDNN_POINTWISE_EXP, s[5].desc, NULL, s[6].desc, NULL),
        reduction(CUDNN_REDUCE_TENSOR_ADD, s[6].desc, r[1].desc),
        pointwise(CUDNN_POINTWISE_DIV, s[6].desc, r[1].desc, s[7].desc, NULL),
        product(s[7].desc, v.desc, y.desc),
    };
    OK(execute(plan_of(graph_of(11, ops)), 5, (tensor_t *[]){&q, &k, &v, &low, &y}));
    download(&y);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int t = 0; t < T; t++)
                for (int c = 0; c < C; c++) {
                    double sum = 0, weighted = 0;
                    for (int u = 0; u <= t; u++) {
                        double score = 0;
                        for (int e = 0; e < C; e++)
                            score += packed_at(&packed, b, t, 0, h, e) *
                                     packed_at(&packed, b, u, 1, h, e);
                        sum += exp(score);
                        weighted += exp(score) * packed_at(&packed, b, u, 2, h, c);
                    }
                    const double got = y.host[((b * H + h) * T + t) * C + c];
                    assert_true(fabs(got - weighted / sum) < 5e-3);
                }
}

static int setup(void **state) {
    return cudnnCreate(&handle);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_causal_attention)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
