/* The fusion pass: what it merges, and what it must leave. That the results have the same bits is
 * checked by the cases of test_ops_norm.c, and for whole runs by tests/train/targets.t. */
#include "../../support/op_harness.h"

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
    const int expected[] = {p.add, p.bwd, p.sums, 0};
    op_bench_t b = op_begin(device, TR_TRAIN);
    if (p.off) tr_graph_fuse_nothing(b.g);
    build(b.g, &p);
    op_ready(&b);
    int found;
    for (int i = 0; tr_program_fused(b.g, b.program, i, &found); i++)
        assert_int_equal(found, expected[i]);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_merged),
        cmocka_unit_test(what_others_read_stays),
    };
    return cmocka_run_group_tests_name("fusion", tests, NULL, NULL);
}
