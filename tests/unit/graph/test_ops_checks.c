/* What is refused, in words that help, and what the ops say they cost. */
#include "../../support/op_harness.h"
#include <string.h>

typedef struct {
    op_bench_t b;
    tr_graph_t *g;
    int made;
} shop_t;

static shop_t begin(tr_mode_t mode) {
    shop_t s = {.b = op_begin("cpu", mode)};
    s.g = s.b.g;
    return s;
}

static tr_tensor_t make(shop_t *s, tr_dtype_t type, tr_shape_t shape) {
    char name[16] = {'t', (char)('a' + s->made++), 0};
    tr_tensor_t t;
    MUST(tr_input(s->g, name, type, &shape, &t));
    return t;
}

static tr_tensor_t f32(shop_t *s, tr_shape_t shape) {
    return make(s, TR_F32, shape);
}

static tr_conv_attr_t square(int kernel, int pad) {
    return (tr_conv_attr_t){2,          {kernel, kernel}, {1, 1}, {pad, pad},
                            {pad, pad}, {1, 1},           1,      TR_ACT_NONE};
}

/* -- refusals ---------------------------------------------------------------------------------- */

/* The often-copied net for 28 x 28: 5, pool, 5, pool, 3, pool, 3, none of them padded. */
static void the_impossible_mnist_net(void **state) {
    static const int kernel[] = {5, 5, 3, 3}, channels[] = {1, 32, 64, 128, 256};
    tr_pool_attr_t pool = {2, {2, 2}, {2, 2}, .max = true};
    shop_t s = begin(TR_TRAIN);
    tr_tensor_t x = f32(&s, TR_SHAPE(8, 28, 28, 1)), w;
    for (int i = 0; i < 4; i++) {
        tr_conv_attr_t attr = square(kernel[i], 0);
        w = f32(&s, TR_SHAPE(channels[i + 1], kernel[i], kernel[i], channels[i]));
        tr_scope_push(s.g, i == 3 ? "conv4" : "conv");
        if (i < 3) {
            MUST(tr_conv(s.g, x, w, TR_NONE, &attr, &x));
            MUST(tr_pool(s.g, x, &pool, &x));
        } else {
            REFUSED(tr_conv(s.g, x, w, TR_NONE, &attr, &x), "conv4 & 3x3 & 1 x 1 x 128 & pad=same");
        }
        tr_scope_pop(s.g);
    }
    op_end(&s.b);
}

static void sizes_of_zero(void **state) {
    shop_t s = begin(TR_TRAIN);
    const tr_param_spec_t spec = {0};
    tr_tensor_t t, x = f32(&s, TR_SHAPE(2, 3));
    REFUSED(tr_param(s.g, "weight", &TR_SHAPE(0, 3), &spec, &t), "op.weight & (0, 3)");
    REFUSED(tr_input(s.g, "pixels", TR_U8, &TR_SHAPE(8, 0), &t), "pixels & (8, 0)");
    REFUSED(tr_const(s.g, "c", &TR_SHAPE(0), 1, &t), "(0)");
    REFUSED(tr_model_state(s.g, "m", &TR_SHAPE(-1), 0, &t), "(-1)");
    REFUSED(tr_reshape(s.g, x, &TR_SHAPE(6, 1, 0), &t), "(6, 1, 0)");
    op_end(&s.b);
}

static void convolutions_that_do_not_fit(void **state) {
    shop_t s = begin(TR_TRAIN);
    tr_tensor_t x = f32(&s, TR_SHAPE(2, 8, 8, 6)), y;
    tr_conv_attr_t attr = square(3, 1);
    REFUSED(tr_conv(s.g, x, f32(&s, TR_SHAPE(4, 3, 3, 5)), TR_NONE, &attr, &y),
            "op & (4, 3, 3, 5) & 6");
    REFUSED(tr_conv(s.g, x, f32(&s, TR_SHAPE(4, 3, 6)), TR_NONE, &attr, &y), "(4, 3, 6)");
    tr_tensor_t w = f32(&s, TR_SHAPE(4, 3, 3, 6));
    REFUSED(tr_conv(s.g, f32(&s, TR_SHAPE(2, 48)), w, TR_NONE, &attr, &y), "(2, 48)");
    REFUSED(tr_conv(s.g, make(&s, TR_U8, TR_SHAPE(2, 8, 8, 6)), w, TR_NONE, &attr, &y),
            "f32 & u8 & cast_normalize");
    REFUSED(tr_conv(s.g, x, w, f32(&s, TR_SHAPE(5)), &attr, &y), "bias & (4) & (5)");
    attr.groups = 4;
    REFUSED(tr_conv(s.g, x, w, TR_NONE, &attr, &y), "groups & 4 & 6");
    attr.groups = 1;
    attr.stride[1] = 0;
    REFUSED(tr_conv(s.g, x, w, TR_NONE, &attr, &y), "stride & 0");
    op_end(&s.b);
}

static void poolings_that_do_not_fit(void **state) {
    shop_t s = begin(TR_TRAIN);
    tr_tensor_t y, small = f32(&s, TR_SHAPE(2, 1, 3, 16));
    tr_pool_attr_t attr = {2, {2, 2}, {2, 2}, .max = true};
    REFUSED(tr_pool(s.g, small, &attr, &y), "2x2 & 1 x 3 x 16");
    REFUSED(tr_pool(s.g, f32(&s, TR_SHAPE(2, 16)), &attr, &y), "(2, 16)");
    attr.pad_lo[0] = 2;
    REFUSED(tr_pool(s.g, small, &attr, &y), "kernel & stride & 2");
    REFUSED(tr_global_avgpool(s.g, f32(&s, TR_SHAPE(2, 16)), &y), "(2, 16)");
    op_end(&s.b);
}

static void products_and_sums_that_do_not_fit(void **state) {
    shop_t s = begin(TR_TRAIN);
    tr_tensor_t y, x = f32(&s, TR_SHAPE(4, 10));
    REFUSED(tr_linear(s.g, x, f32(&s, TR_SHAPE(3, 12)), TR_NONE, TR_ACT_NONE, &y),
            "(4, 10) & (3, 12) & 10 & 12");
    REFUSED(tr_linear(s.g, x, f32(&s, TR_SHAPE(10)), TR_NONE, TR_ACT_NONE, &y), "(10)");
    REFUSED(tr_linear(s.g, x, f32(&s, TR_SHAPE(3, 10)), f32(&s, TR_SHAPE(4)), TR_ACT_NONE, &y),
            "bias & (3) & (4)");
    REFUSED(tr_matmul(s.g, f32(&s, TR_SHAPE(2, 4, 5)), f32(&s, TR_SHAPE(3, 5, 6)),
                      &(tr_matmul_attr_t){.alpha = 1}, &y),
            "(2, 4, 5) & (3, 5, 6)");
    REFUSED(tr_matmul(s.g, x, x, &(tr_matmul_attr_t){.alpha = 1, .beta = 1, .trans_b = true}, &y),
            "beta");
    REFUSED(tr_add(s.g, x, f32(&s, TR_SHAPE(4, 9)), TR_ACT_NONE, &y),
            "(4, 10) & (4, 9) & shortcut");
    op_end(&s.b);
}

static void normalisations_that_do_not_fit(void **state) {
    shop_t s = begin(TR_TRAIN);
    tr_tensor_t x = f32(&s, TR_SHAPE(4, 10)), ten = f32(&s, TR_SHAPE(10)),
                nine = f32(&s, TR_SHAPE(9)), y;
    REFUSED(tr_batchnorm(s.g, x, ten, nine, ten, ten, 1e-5f, 0.1f, TR_ACT_NONE, &y),
            "beta & (10) & (9)");
    REFUSED(tr_batchnorm(s.g, ten, ten, ten, ten, ten, 1e-5f, 0.1f, TR_ACT_NONE, &y), "op & 1");
    REFUSED(tr_batchnorm(s.g, x, ten, ten, ten, ten, 0, 0.1f, TR_ACT_NONE, &y), "eps");
    REFUSED(tr_layernorm(s.g, x, nine, ten, 1e-5f, &y), "gamma & (10) & (9)");
    op_end(&s.b);
}

static void losses_that_do_not_fit(void **state) {
    shop_t s = begin(TR_TRAIN);
    tr_tensor_t x = f32(&s, TR_SHAPE(4, 10)), label = make(&s, TR_I64, TR_SHAPE(4)),
                weight = f32(&s, TR_SHAPE(4)), y;
    REFUSED(tr_cross_entropy(s.g, x, f32(&s, TR_SHAPE(4)), weight, 0, &y), "f32 & mse");
    REFUSED(tr_cross_entropy(s.g, x, make(&s, TR_I64, TR_SHAPE(5)), weight, 0, &y), "(4) & (5)");
    REFUSED(tr_cross_entropy(s.g, x, label, weight, 1, &y), "smoothing & 1");
    REFUSED(tr_mse(s.g, x, f32(&s, TR_SHAPE(4, 9)), weight, &y), "target & (4, 10) & (4, 9)");
    REFUSED(tr_topk_correct(s.g, x, label, weight, 11, &y), "10 & 11");
    op_end(&s.b);
}

static void random_ops_that_do_not_fit(void **state) {
    shop_t s = begin(TR_TRAIN);
    tr_tensor_t x = f32(&s, TR_SHAPE(4, 10)), id = make(&s, TR_I64, TR_SHAPE(4)), y;
    REFUSED(tr_dropout(s.g, x, id, 1, &y), "dropout & 1");
    REFUSED(tr_dropout(s.g, x, make(&s, TR_I32, TR_SHAPE(4)), 0.5f, &y), "i64 & i32");
    REFUSED(tr_augment(s.g, x, id, &(tr_augment_attr_t){.flip = true}, &y), "(4, 10)");
    op_end(&s.b);
}

/* -- costs ------------------------------------------------------------------------------------- */

static const tr_op_t *op_named(const shop_t *s, const char *name) {
    for (int i = 0; i < tr_program_op_count(s->g, s->b.program); i++) {
        const tr_op_t *op = tr_program_op(s->g, s->b.program, i);
        if (strcmp(op->row->name, name) == 0) return op;
    }
    fail_msg("no op %s", name);
    return NULL;
}

static void assert_cost(const shop_t *s, const char *name, double flops, double bytes) {
    const tr_op_t *op = op_named(s, name);
    if (tr_op_flops(s->g, op) != flops)
        fail_msg("%s: %g FLOPs, expected %g", name, tr_op_flops(s->g, op), flops);
    if (tr_op_bytes(s->g, op) != bytes)
        fail_msg("%s: %g bytes, expected %g", name, tr_op_bytes(s->g, op), bytes);
}

static tr_tensor_t param(shop_t *s, const char *name, tr_shape_t shape) {
    tr_tensor_t t;
    MUST(tr_param(s->g, name, &shape, &(tr_param_spec_t){.trainable = true}, &t));
    return t;
}

static void costs_of_a_linear_layer(void **state) {
    shop_t s = begin(TR_TRAIN);
    tr_tensor_t y;
    MUST(tr_linear(s.g, f32(&s, TR_SHAPE(4, 10)), param(&s, "w", TR_SHAPE(3, 10)),
                   param(&s, "b", TR_SHAPE(3)), TR_ACT_NONE, &y));
    assert_cost(&s, "matmul", 2 * 4 * 10 * 3, 4 * (40 + 30 + 3 + 12));
    MUST(tr_backward(s.g, y, f32(&s, TR_SHAPE(4, 3)), false));
    assert_cost(&s, "column_sum", 12, 4 * (12 + 3));
    /* x needs no gradient: there is none of it */
    assert_int_equal(tr_program_op_count(s.g, s.b.program), 3);
    op_end(&s.b);
}

static void costs_of_a_convolution(void **state) {
    shop_t s = begin(TR_TRAIN);
    tr_tensor_t y;
    tr_conv_attr_t attr = {2, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 2, TR_ACT_NONE};
    tr_tensor_t x = param(&s, "x", TR_SHAPE(5, 8, 6, 4)), w = param(&s, "w", TR_SHAPE(6, 3, 3, 2));
    MUST(tr_conv(s.g, x, w, TR_NONE, &attr, &y));
    MUST(tr_backward(s.g, y, f32(&s, TR_SHAPE(5, 4, 3, 6)), false));
    double in = 5 * 8 * 6 * 4, out = 5 * 4 * 3 * 6, weights = 6 * 9 * 2, flops = 2 * out * 9 * 2;
    assert_cost(&s, "conv", flops, 4 * (in + weights + out));
    assert_cost(&s, "conv_bwd_data", flops, 4 * (in + weights + out));
    assert_cost(&s, "conv_bwd_weights", flops, 4 * (in + weights + out));
    op_end(&s.b);
}

/* The part of the FLOPs of direct sums that is left by the way with the fewest. */
static double least_share(tr_conv_attr_t attr, tr_shape_t x_shape, int64_t outputs,
                          const char *name, bool winograd) {
    shop_t s = begin(TR_TRAIN);
    const int64_t in = x_shape.dim[x_shape.ndim - 1];
    tr_shape_t w_shape = {attr.spatial + 2, {outputs}};
    for (int d = 0; d < attr.spatial; d++) w_shape.dim[d + 1] = attr.kernel[d];
    w_shape.dim[attr.spatial + 1] = in;
    tr_tensor_t y, x = param(&s, "x", x_shape), w = param(&s, "w", w_shape);
    s.b.device->winograd = winograd;
    MUST(tr_conv(s.g, x, w, TR_NONE, &attr, &y));
    MUST(tr_backward(s.g, y, f32(&s, *tr_shape_of(s.g, y)), false));
    const tr_op_t *op = op_named(&s, name);
    const double share = tr_op_least_flops(s.g, op) / tr_op_flops(s.g, op);
    op_end(&s.b);
    return share;
}

static void least_costs_of_a_convolution(void **state) {
    static const char *const ops[] = {"conv", "conv_bwd_data", "conv_bwd_weights"};
    const tr_conv_attr_t volume = {3,         {2, 3, 3}, {1, 1, 1}, {0, 1, 1},
                                   {0, 1, 1}, {1, 1, 1}, 1,         TR_ACT_NONE};
    tr_conv_attr_t strided = square(3, 1);
    strided.stride[1] = 2;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const tr_shape_t image = TR_SHAPE(2, 9, 8, 8);
        assert_true(least_share(square(3, 1), image, 16, ops[i], true) == 36 / 144.0);
        assert_true(least_share(square(5, 2), image, 16, ops[i], true) == 36 / 100.0);
        assert_true(least_share(volume, TR_SHAPE(2, 4, 9, 8, 8), 16, ops[i], true) == 36 / 144.0);
        assert_true(least_share(square(3, 1), image, 16, ops[i], false) == 1);
        assert_true(least_share(square(3, 1), image, 12, ops[i], true) == 1);
        assert_true(least_share(square(1, 0), image, 16, ops[i], true) == 1);
        assert_true(least_share(strided, image, 16, ops[i], true) == 1);
    }
}

static void costs_of_an_update_count_reads_and_writes(void **state) {
    shop_t s = begin(TR_PLAIN);
    tr_tensor_t g = f32(&s, TR_SHAPE(100)), p = f32(&s, TR_SHAPE(100)), m = f32(&s, TR_SHAPE(100)),
                v = f32(&s, TR_SHAPE(100)), ranges;
    const tr_update_range_t all = {100, 0, 1, 0};
    MUST(tr_const_bytes(s.g, "ranges", &all, sizeof all, &ranges));
    MUST(tr_adam(s.g, g, p, m, v, ranges, &(tr_adam_attr_t){0}));
    MUST(tr_accumulate(s.g, g, p));
    assert_cost(&s, "adam", 16 * 100,
                4 * 700 + (double)(sizeof(tr_step_t) + sizeof(tr_step_result_t) + sizeof all));
    assert_cost(&s, "accumulate", 100, 4 * 300);
    op_end(&s.b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_impossible_mnist_net),
        cmocka_unit_test(sizes_of_zero),
        cmocka_unit_test(convolutions_that_do_not_fit),
        cmocka_unit_test(poolings_that_do_not_fit),
        cmocka_unit_test(products_and_sums_that_do_not_fit),
        cmocka_unit_test(normalisations_that_do_not_fit),
        cmocka_unit_test(losses_that_do_not_fit),
        cmocka_unit_test(random_ops_that_do_not_fit),
        cmocka_unit_test(costs_of_a_linear_layer),
        cmocka_unit_test(costs_of_a_convolution),
        cmocka_unit_test(least_costs_of_a_convolution),
        cmocka_unit_test(costs_of_an_update_count_reads_and_writes),
    };
    return cmocka_run_group_tests_name("ops: checks and costs", tests, NULL, NULL);
}
