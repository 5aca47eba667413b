/* The fusion pass: what it merges, and what it must leave. That the results have the same bits is
 * checked by the cases of test_ops_norm.c, and for whole runs by tests/train/targets.t. */
#include "../../support/op_harness.h"
#include <string.h>

enum { ROWS = 6, CHANNELS = 5 };

typedef struct {
    bool off;           /* no fusion */
    bool keeps_norm;    /* the normalised values are read after the run */
    bool uses_norm;     /* and by another op */
    bool accumulates;   /* the gradients are added up over micro-batches */
    int add, bwd, sums; /* how often each pattern is expected */
} plan_t;

static tr_status_t parameter(tr_graph_t *g, const char *name, tr_tensor_t *out) {
    const tr_param_spec_t spec = {.init = {TR_INIT_CONST, 1}, .trainable = true};
    return tr_param(g, name, &TR_SHAPE(CHANNELS), &spec, out);
}

/* relu(batchnorm(x) + a) with a parameter in a. */
static void build(tr_graph_t *g, const plan_t *p) {
    const tr_shape_t channels = TR_SHAPE(CHANNELS);
    tr_tensor_t x, a, seed, gamma, beta, mean, var, y;
    MUST(tr_input(g, "x", TR_F32, &TR_SHAPE(ROWS, CHANNELS), &x));
    MUST(tr_input(g, "a", TR_F32, &TR_SHAPE(ROWS, CHANNELS), &a));
    MUST(tr_input(g, "seed", TR_F32, &TR_SHAPE(ROWS, CHANNELS), &seed));
    MUST(parameter(g, "gamma", &gamma));
    MUST(parameter(g, "beta", &beta));
    MUST(tr_model_state(g, "mean", &channels, 0, &mean));
    MUST(tr_model_state(g, "var", &channels, 1, &var));
    MUST(tr_batchnorm(g, x, gamma, beta, mean, var, 1e-5f, 0.1f, TR_ACT_NONE, &y));
    if (p->keeps_norm) MUST(tr_keep(g, y));
    if (p->uses_norm) MUST(tr_scale(g, y, 2, &a));
    MUST(tr_add(g, a, y, TR_ACT_RELU, &y));
    MUST(tr_backward(g, y, seed, p->accumulates));
}

static void check(const char *device, plan_t p) {
    const struct {
        const char *name;
        int count;
    } expected[] = {{"batchnorm_train + add", p.add},
                    {"act_bwd + batchnorm_bwd", p.bwd},
                    {"gradient + accumulate", p.sums}};
    op_bench_t b = op_begin(device, TR_TRAIN);
    if (p.off) tr_graph_fuse_nothing(b.g);
    build(b.g, &p);
    op_ready(&b);
    int found, all = 0;
    const char *name;
    for (int i = 0; (name = tr_program_fused(b.g, b.program, i, &found)); i++) {
        all += found;
        for (size_t k = 0; k < sizeof expected / sizeof *expected; k++)
            if (strcmp(name, expected[k].name) == 0) assert_int_equal(found, expected[k].count);
    }
    assert_int_equal(all, p.add + p.bwd + p.sums);
    op_run(&b);
    op_end(&b);
}

static void groups_are_merged(void **state) {
    op_devices_t devices = op_devices();
    for (int i = 0; i < devices.count; i++) {
        check(devices.name[i], (plan_t){.add = 1, .bwd = 1});
        check(devices.name[i], (plan_t){.accumulates = true, .add = 1, .bwd = 1, .sums = 2});
        check(devices.name[i], (plan_t){.off = true, .accumulates = true});
    }
}

static void what_others_read_stays(void **state) {
    op_devices_t devices = op_devices();
    for (int i = 0; i < devices.count; i++) {
        check(devices.name[i], (plan_t){.keeps_norm = true, .bwd = 1});
        /* the gradient of the normalised values is a sum of two then */
        check(devices.name[i], (plan_t){.uses_norm = true});
    }
}

static int times(const op_bench_t *b, const char *pattern) {
    const char *name;
    int found;
    for (int i = 0; (name = tr_program_fused(b->g, b->program, i, &found)); i++)
        if (strcmp(name, pattern) == 0) return found;
    fail_msg("there is no pattern '%s'", pattern);
    return 0;
}

/* -- a table that is the head's weight, too ----------------------------------------------------- */

enum { SAMPLES = 2, STEPS = 5, EMBED = 8, TOKENS = 11 };

/* The gradient of the table after two micro-batches; returns how many records were merged. */
static int tied_gradient(const char *device, bool fuses, float **out) {
    const tr_param_spec_t spec = {.trainable = true};
    double value[TOKENS * EMBED], id[SAMPLES * STEPS];
    tr_tensor_t wte, ids, weight, dloss, h, loss, count;
    op_bench_t b = op_begin(device, TR_TRAIN);
    if (!fuses) tr_graph_fuse_nothing(b.g);
    MUST(tr_param(b.g, "wte", &TR_SHAPE(TOKENS, EMBED), &spec, &wte));
    MUST(tr_input(b.g, "id", TR_I32, &TR_SHAPE(SAMPLES, STEPS), &ids));
    MUST(tr_input(b.g, "weight", TR_F32, &TR_SHAPE(SAMPLES), &weight));
    MUST(tr_input(b.g, "dloss", TR_F32, &TR_SHAPE(SAMPLES * STEPS), &dloss));
    MUST(tr_embedding(b.g, ids, wte, TR_NONE, TR_F32, &h));
    MUST(tr_head_loss(b.g, h, wte, ids, weight, dloss, &loss, &count));
    MUST(tr_backward(b.g, loss, dloss, true));
    op_ready(&b);
    for (int i = 0; i < TOKENS * EMBED; i++) value[i] = op_random("wte", i, -1, 1);
    for (int i = 0; i < SAMPLES * STEPS; i++) id[i] = i * 7 % TOKENS;
    op_write(&b, wte, value), op_write(&b, ids, id);
    for (int i = 0; i < SAMPLES * STEPS; i++) value[i] = 1;
    op_write(&b, weight, value), op_write(&b, dloss, value);
    op_run(&b);
    op_run(&b);
    *out = op_read(&b, tr_graph_find(b.g, "op.wte.grad"));
    const int merged = times(&b, "gradient + accumulate");
    op_end(&b);
    return merged;
}

static void a_tied_table_adds_to_its_gradient(void **state) {
    op_devices_t devices = op_devices();
    for (int d = 0; d < devices.count; d++) {
        float *fused = NULL, *plain = NULL;
        double expected[TOKENS * EMBED];
        assert_int_equal(tied_gradient(devices.name[d], true, &fused), 1);
        assert_int_equal(tied_gradient(devices.name[d], false, &plain), 0);
        for (int i = 0; i < TOKENS * EMBED; i++) expected[i] = plain[i];
        op_assert_close("the gradient", fused, expected, TOKENS * EMBED, 1e-5);
        test_free(fused), test_free(plain);
    }
}

/* -- the input --------------------------------------------------------------------------------- */

typedef struct {
    const char *device;
    tr_dtype_t dtype;          /* of the stored images */
    tr_augment_attr_t augment; /* nothing: the images are only normalised */
    bool has_scale, fuses;
} input_t;

enum { IMAGES = 3, HEIGHT = 7, WIDTH = 5, COLOURS = 3, PIXELS = IMAGES * HEIGHT * WIDTH * COLOURS };

/* The images in bf16, as bits. */
static void prepare_images(const input_t *c, int expected, uint16_t *out) {
    static const float scale[COLOURS] = {0.01f, 0.02f, 0.3f}, shift[COLOURS] = {-1, 0.5f, 0};
    const tr_shape_t shape = TR_SHAPE(IMAGES, HEIGHT, WIDTH, COLOURS);
    op_bench_t b = op_begin(c->device, TR_TRAIN);
    tr_tensor_t x, id, a = TR_NONE, s = TR_NONE, y;
    double values[PIXELS], ids[IMAGES] = {4, 9, 2};
    for (int i = 0; i < PIXELS; i++) values[i] = i * 37 % 256;
    if (!c->fuses) tr_graph_fuse_nothing(b.g);
    MUST(tr_input(b.g, "x", c->dtype, &shape, &x));
    MUST(tr_input(b.g, "id", TR_I64, &TR_SHAPE(IMAGES), &id));
    if (c->has_scale) MUST(tr_const_values(b.g, "scale", scale, COLOURS, &a));
    if (c->has_scale) MUST(tr_const_values(b.g, "shift", shift, COLOURS, &s));
    MUST(tr_cast_normalize(b.g, x, a, s, &y));
    MUST(tr_augment(b.g, y, id, &c->augment, &y));
    MUST(tr_cast(b.g, y, TR_BF16, &y));
    MUST(tr_keep(b.g, y));
    op_ready(&b);
    assert_int_equal(tr_program_op_count(b.g, b.program), expected);
    op_write(&b, x, values);
    op_write(&b, id, ids);
    op_run(&b);
    MUST(tr_tensor_read(b.g, y, out));
    op_end(&b);
}

static void check_input(input_t c, int records, int merged) {
    uint16_t apart[PIXELS], together[PIXELS];
    prepare_images(&c, records, apart);
    c.fuses = true;
    prepare_images(&c, merged, together);
    assert_memory_equal(apart, together, sizeof apart);
}

static void the_input_is_one_record(void **state) {
    const tr_augment_attr_t affine = {.rotate_deg = 20, .zoom = 0.2f, .fill = 0.25f, .flip = true},
                            moves = {.crop_pad = 2, .fill = -3, .flip = true}, none = {0};
    op_devices_t devices = op_devices();
    for (int i = 0; i < devices.count; i++) {
        const char *device = devices.name[i];
        check_input((input_t){device, TR_U8, affine, true}, 3, 1);
        check_input((input_t){device, TR_U8, moves, true}, 3, 1);
        check_input((input_t){device, TR_U8, moves, false}, 3, 1);
        check_input((input_t){device, TR_F32, affine, true}, 3, 1);
        check_input((input_t){device, TR_U8, none, true}, 2, 1);
        check_input((input_t){device, TR_U16, affine, true}, 3, 2); /* a type it does not read */
    }
}

/* -- sums of gradients ------------------------------------------------------------------------- */

enum { SIDE = 4, WIDE = 8, ELEMS = 2 * SIDE * SIDE * WIDE };

/* The gradient of a in relu(a) + conv(relu(a)), which is a sum of two. */
static float *residual_gradient(const char *device, bool fuses, int *out_merged) {
    const tr_shape_t shape = TR_SHAPE(2, SIDE, SIDE, WIDE);
    const tr_conv_attr_t conv = {
        .spatial = 2, .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
    const tr_param_spec_t spec = {.init = {TR_INIT_NORMAL, 1}, .trainable = true};
    op_bench_t b = op_begin(device, TR_TRAIN);
    tr_tensor_t a, w, r, y, seed;
    double values[ELEMS];
    for (int i = 0; i < ELEMS; i++) values[i] = op_random("seed", i, -1, 1);
    if (!fuses) tr_graph_fuse_nothing(b.g);
    MUST(tr_param(b.g, "a", &shape, &spec, &a));
    MUST(tr_param(b.g, "w", &TR_SHAPE(WIDE, 1, 1, WIDE), &spec, &w));
    MUST(tr_input(b.g, "seed", TR_F32, &shape, &seed));
    MUST(tr_activation(b.g, a, TR_ACT_RELU, &r));
    MUST(tr_conv(b.g, r, w, TR_NONE, &conv, &y));
    MUST(tr_add(b.g, y, r, TR_ACT_NONE, &y));
    MUST(tr_activation(b.g, y, TR_ACT_TANH, &y));
    MUST(tr_backward(b.g, y, seed, false));
    op_ready(&b);
    *out_merged = times(&b, "conv_bwd_data + add");
    op_write(&b, seed, values);
    op_run(&b);
    float *found = op_read(&b, tr_graph_find(b.g, "op.a.grad"));
    op_end(&b);
    return found;
}

static void products_add_to_gradients(void **state) {
    op_devices_t devices = op_devices();
    for (int i = 0; i < devices.count; i++) {
        tr_device_t *device = op_open(devices.name[i]);
        const int can = device->ops->kernels[TR_K_CONV_BWD_DATA].adds & 1;
        int merged;
        tr_device_close(&device);
        float *apart = residual_gradient(devices.name[i], false, &merged);
        assert_int_equal(merged, 0);
        float *together = residual_gradient(devices.name[i], true, &merged);
        assert_int_equal(merged, can);
        double expected[ELEMS];
        for (int k = 0; k < ELEMS; k++) expected[k] = (double)apart[k];
        op_assert_close("the gradient", together, expected, ELEMS, 1e-6);
        test_free(apart);
        test_free(together);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_merged),
        cmocka_unit_test(what_others_read_stays),
        cmocka_unit_test(a_tied_table_adds_to_its_gradient),
        cmocka_unit_test(the_input_is_one_record),
        cmocka_unit_test(products_add_to_gradients),
    };
    return cmocka_run_group_tests_name("fusion", tests, NULL, NULL);
}
