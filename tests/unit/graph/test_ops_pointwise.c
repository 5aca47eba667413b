/* Activations, add, scale, dropout, and the ops that write into tensors that exist. */
#include "../../support/op_harness.h"
#include "base/rng.h"
#include <math.h>
#include <string.h>

/* -- activations ------------------------------------------------------------------------------- */

static tr_status_t build_act(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                             tr_tensor_t *out) {
    return tr_activation(g, in[0], *(const tr_act_t *)c->attr, out);
}

static void act(const op_case_t *c, const double *const *in, double *y) {
    for (int64_t i = 0; i < tr_shape_elems(&c->out); i++)
        y[i] = op_act(*(const tr_act_t *)c->attr, in[0][i]);
}

static void activations(void **state) {
    const tr_shape_t shapes[] = {TR_SHAPE(1), TR_SHAPE(37), TR_SHAPE(2, 3, 1, 5, 3)};
    for (tr_act_t kind = TR_ACT_RELU; kind < TR_ACT_COUNT; kind++)
        for (int i = 0; i < 3; i++) {
            op_case_t c = {"activation", 1,        {{"x", shapes[i], -4, 4, .half = true}},
                           &kind,        TR_TRAIN, shapes[i],
                           build_act,    act};
            op_check(&c);
        }
}

/* Far from 0 nothing overflows. */
static void activations_of_large_values(void **state) {
    static const double x[] = {-1000, -90, -20, 20, 90, 1000};
    for (tr_act_t kind = TR_ACT_RELU; kind < TR_ACT_COUNT; kind++) {
        op_case_t c = {"large",   1,        {{"x", TR_SHAPE(6), .values = x}},
                       &kind,     TR_TRAIN, TR_SHAPE(6),
                       build_act, act};
        op_check(&c);
    }
}

static void no_activation_is_no_op(void **state) {
    tr_tensor_t x, y;
    op_bench_t b = op_begin("cpu", TR_TRAIN);
    MUST(tr_input(b.g, "x", TR_F32, &TR_SHAPE(3), &x));
    MUST(tr_activation(b.g, x, TR_ACT_NONE, &y));
    assert_int_equal(x.id, y.id);
    assert_int_equal(tr_program_op_count(b.g, b.program), 0);
    op_end(&b);
}

/* -- add and scale ----------------------------------------------------------------------------- */

static tr_status_t build_add(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                             tr_tensor_t *out) {
    return tr_add(g, in[0], in[c->n_in - 1], *(const tr_act_t *)c->attr, out);
}

static void add(const op_case_t *c, const double *const *in, double *y) {
    for (int64_t i = 0; i < tr_shape_elems(&c->out); i++)
        y[i] = op_act(*(const tr_act_t *)c->attr, in[0][i] + in[c->n_in - 1][i]);
}

static void additions(void **state) {
    static const tr_act_t kinds[] = {TR_ACT_NONE, TR_ACT_RELU, TR_ACT_GELU};
    tr_shape_t s = TR_SHAPE(3, 5, 7);
    for (int i = 0; i < 3; i++) {
        op_case_t two = {"add",     2,        {{"a", s, .half = true}, {"b", s, .half = true}},
                         &kinds[i], TR_TRAIN, s,
                         build_add, add};
        op_case_t same = {"add to itself", 1,  {{"a", s, .half = true}}, &kinds[i], TR_TRAIN, s,
                          build_add,       add};
        op_check(&two);
        op_check(&same);
    }
}

/* -- concat ------------------------------------------------------------------------------------ */

static tr_status_t build_concat(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                tr_tensor_t *out) {
    return tr_concat(g, in, c->n_in, out);
}

static void concat(const op_case_t *c, const double *const *in, double *y) {
    const int64_t channels = c->out.dim[c->out.ndim - 1];
    int64_t first = 0;
    for (int k = 0; k < c->n_in; k++) {
        const int64_t width = c->in[k].shape.dim[c->in[k].shape.ndim - 1];
        for (int64_t i = 0; i < tr_shape_elems(&c->in[k].shape); i++)
            y[i / width * channels + first + i % width] = in[k][i];
        first += width;
    }
}

static void concats(void **state) {
    op_case_t two = {
        "concat",
        2,
        {{"a", TR_SHAPE(3, 5, 7), .half = true}, {"b", TR_SHAPE(3, 5, 1), .half = true}},
        NULL,
        TR_TRAIN,
        TR_SHAPE(3, 5, 8),
        build_concat,
        concat,
        .needs = TR_K_CONCAT};
    op_case_t four = {"concat of four",
                      4,
                      {{"a", TR_SHAPE(4, 2)},
                       {"b", TR_SHAPE(4, 3), .fixed = true},
                       {"c", TR_SHAPE(4, 33)},
                       {"d", TR_SHAPE(4, 1)}},
                      NULL,
                      TR_TRAIN,
                      TR_SHAPE(4, 39),
                      build_concat,
                      concat,
                      .needs = TR_K_CONCAT};
    op_check(&two);
    op_check(&four);
}

static void concat_refuses_other_sizes(void **state) {
    tr_tensor_t x[2], y;
    op_bench_t b = op_begin("cpu", TR_TRAIN);
    MUST(tr_input(b.g, "a", TR_F32, &TR_SHAPE(3, 4), &x[0]));
    MUST(tr_input(b.g, "b", TR_F32, &TR_SHAPE(2, 4), &x[1]));
    REFUSED(tr_concat(b.g, x, 2, &y), "op & (3, 4) & (2, 4)");
    op_end(&b);
}

static tr_status_t build_scale(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                               tr_tensor_t *out) {
    return tr_scale(g, in[0], -0.75f, out);
}

static void scale(const op_case_t *c, const double *const *in, double *y) {
    for (int64_t i = 0; i < tr_shape_elems(&c->out); i++) y[i] = -0.75 * in[0][i];
}

static void scales(void **state) {
    op_case_t c = {"scale",     1,        {{"x", TR_SHAPE(5, 9), .half = true}},
                   NULL,        TR_TRAIN, TR_SHAPE(5, 9),
                   build_scale, scale};
    op_check(&c);
}

/* A residual block: what goes around and what goes through meet in one gradient. */
static tr_status_t build_residual(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                  tr_tensor_t *out) {
    tr_tensor_t half, inner;
    TR_TRY(tr_scale(g, in[0], 0.5f, &half));
    TR_TRY(tr_activation(g, half, TR_ACT_TANH, &inner));
    TR_TRY(tr_add(g, inner, half, TR_ACT_RELU, out));
    return tr_add(g, *out, in[0], TR_ACT_NONE, out);
}

static void residual(const op_case_t *c, const double *const *in, double *y) {
    for (int64_t i = 0; i < tr_shape_elems(&c->out); i++)
        y[i] = fmax(tanh(in[0][i] / 2) + in[0][i] / 2, 0) + in[0][i];
}

static void residual_blocks(void **state) {
    op_case_t c = {"residual",     1,        {{"x", TR_SHAPE(4, 11), .half = true}},
                   NULL,           TR_TRAIN, TR_SHAPE(4, 11),
                   build_residual, residual};
    op_check(&c);
}

/* -- dropout ----------------------------------------------------------------------------------- */

typedef struct {
    float p;
    uint32_t stream;
} drop_t;

static const double sample_ids[] = {5, 0, 1234567890123, 7};

static tr_status_t build_dropout(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                 tr_tensor_t *out) {
    return tr_dropout(g, in[0], in[1], ((const drop_t *)c->attr)->p, out);
}

static void dropout(const op_case_t *c, const double *const *in, double *y) {
    const drop_t *drop = c->attr;
    int64_t samples = c->out.dim[0], width = tr_shape_elems(&c->out) / samples;
    for (int64_t i = 0; i < samples * width; i++) {
        uint64_t e = (uint64_t)(i % width), id = (uint64_t)in[1][i / width];
        tr_rng_block_t block = tr_rng_philox(OP_SEED, TR_RNG_DROPOUT, drop->stream, id,
                                             (uint64_t)OP_STEP << 32 | e / 4);
        bool kept = block.v[e % 4] >= (uint32_t)((double)drop->p * 0x1p32);
        y[i] = kept ? in[0][i] * (float)(1 / (1 - (double)drop->p)) : 0;
    }
}

static uint32_t stream_of(const tr_graph_t *g, int program, int which) {
    for (int i = 0; i < tr_program_op_count(g, program); i++) {
        const tr_op_t *op = tr_program_op(g, program, i);
        if (strcmp(op->row->name, "dropout") == 0 && which-- == 0)
            return ((const tr_dropout_attr_t *)op->attr)->stream;
    }
    fail_msg("the program has no such dropout");
    return 0;
}

static void append_two(op_bench_t *b, float p) {
    tr_tensor_t x, id, y;
    MUST(tr_input(b->g, "x", TR_F32, &TR_SHAPE(4, 6), &x));
    MUST(tr_input(b->g, "id", TR_I64, &TR_SHAPE(4), &id));
    MUST(tr_dropout(b->g, x, id, p, &y));
    MUST(tr_dropout(b->g, y, id, p, &y));
}

static void dropout_masks(void **state) {
    const tr_shape_t shapes[] = {TR_SHAPE(4, 6), TR_SHAPE(4, 3, 5, 2), TR_SHAPE(4)};
    op_bench_t b = op_begin("cpu", TR_TRAIN);
    append_two(&b, 0.5f);
    drop_t drop = {0, stream_of(b.g, b.program, 0)};
    op_end(&b);
    for (int i = 0; i < 3; i++)
        for (int p = 1; p < 4; p++) {
            drop.p = 0.25f * (float)p;
            op_case_t c = {
                "dropout",
                2,
                {{"x", shapes[i], .half = true},
                 {"id", TR_SHAPE(4), .dtype = TR_I64, .fixed = true, .values = sample_ids}}};
            c.attr = &drop;
            c.out = shapes[i];
            c.build = build_dropout;
            c.reference = dropout;
            op_check(&c);
        }
}

static void equal_programs_have_equal_streams(void **state) {
    op_bench_t b = op_begin("cpu", TR_TRAIN);
    int first = b.program, second;
    append_two(&b, 0.5f);
    MUST(tr_program_end(b.g));
    MUST(tr_program_begin(b.g, "last", TR_TRAIN, &second));
    append_two(&b, 0.5f);
    assert_int_not_equal(stream_of(b.g, first, 0), stream_of(b.g, first, 1));
    assert_int_equal(stream_of(b.g, first, 0), stream_of(b.g, second, 0));
    assert_int_equal(stream_of(b.g, first, 1), stream_of(b.g, second, 1));
    op_end(&b);
}

static void dropout_is_nothing_in_eval_and_for_0(void **state) {
    op_bench_t b = op_begin("cpu", TR_EVAL);
    append_two(&b, 0.5f);
    assert_int_equal(tr_program_op_count(b.g, b.program), 0);
    op_end(&b);
    b = op_begin("cpu", TR_TRAIN);
    append_two(&b, 0);
    assert_int_equal(tr_program_op_count(b.g, b.program), 0);
    op_end(&b);
}

/* -- into tensors that exist ------------------------------------------------------------------- */

static void check_into(const char *device) {
    static const double x[] = {1, 2, 3, 4, 5, 6}, w[] = {1, 0, 0.5, 1, 0, 2};
    tr_tensor_t in, weight, sum, weighted, total, copied;
    op_bench_t b = op_begin(device, TR_PLAIN);
    MUST(tr_input(b.g, "x", TR_F32, &TR_SHAPE(2, 3), &in));
    MUST(tr_input(b.g, "w", TR_F32, &TR_SHAPE(6), &weight));
    MUST(tr_reduced(b.g, "sum", 1, &sum));
    MUST(tr_reduced(b.g, "weighted", 1, &weighted));
    MUST(tr_reduced(b.g, "total", 6, &total));
    MUST(tr_optim_state(b.g, "copied", TR_F32, &TR_SHAPE(6), false, &copied));
    MUST(tr_weighted_sum(b.g, in, TR_NONE, sum));
    MUST(tr_weighted_sum(b.g, in, weight, weighted));
    MUST(tr_accumulate(b.g, in, total));
    MUST(tr_copy(b.g, in, copied));
    op_ready(&b);
    op_write(&b, in, x);
    op_write(&b, weight, w);
    op_run(&b);
    op_run(&b);
    float *found[] = {op_read(&b, sum), op_read(&b, weighted), op_read(&b, total),
                      op_read(&b, copied)};
    op_assert_close("sum", found[0], (double[]){42}, 1, 1e-7);
    op_assert_close("weighted sum", found[1], (double[]){2 * (1 + 1.5 + 4 + 12)}, 1, 1e-7);
    op_assert_close("accumulated", found[2], (double[]){2, 4, 6, 8, 10, 12}, 6, 1e-7);
    op_assert_close("copied", found[3], x, 6, 1e-7);
    for (int i = 0; i < 4; i++) test_free(found[i]);
    op_end(&b);
}

static void sums_and_copies(void **state) {
    op_devices_t devices = op_devices();
    for (int i = 0; i < devices.count; i++) check_into(devices.name[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations),
        cmocka_unit_test(activations_of_large_values),
        cmocka_unit_test(no_activation_is_no_op),
        cmocka_unit_test(additions),
        cmocka_unit_test(concats),
        cmocka_unit_test(concat_refuses_other_sizes),
        cmocka_unit_test(scales),
        cmocka_unit_test(residual_blocks),
        cmocka_unit_test(dropout_masks),
        cmocka_unit_test(equal_programs_have_equal_streams),
        cmocka_unit_test(dropout_is_nothing_in_eval_and_for_0),
        cmocka_unit_test(sums_and_copies),
    };
    return cmocka_run_group_tests_name("ops: element by element", tests, NULL, NULL);
}
