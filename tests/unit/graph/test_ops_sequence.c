/* Sequences: embedding, attention, and the sum before layer normalisation. */
#include "../../support/op_harness.h"
#include "base/rng.h"
#include <math.h>
#include <string.h>

/* -- embedding
 * ------------------------------------------------------------------------------------------- */

enum { TOKENS = 5, POSITIONS = 9 };

static tr_status_t build_embedding(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                   tr_tensor_t *out) {
    return tr_embedding(g, in[0], in[1], c->n_in > 2 ? in[2] : TR_NONE, TR_F32, out);
}

static void embedding(const op_case_t *c, const double *const *in, double *y) {
    const int64_t samples = c->out.dim[0], steps = c->out.dim[1], width = c->out.dim[2];
    for (int64_t i = 0; i < samples * steps; i++)
        for (int64_t k = 0; k < width; k++)
            y[i * width + k] = in[1][(int64_t)in[0][i] * width + k] +
                               (c->n_in > 2 ? in[2][i % steps * width + k] : 0);
}

static void check_embedding(int64_t samples, int64_t steps, int64_t width, tr_dtype_t dtype,
                            bool has_positions) {
    op_case_t c = {"embedding",
                   has_positions ? 3 : 2,
                   {{"id", TR_SHAPE(samples, steps), 0, TOKENS - 1, .dtype = dtype, .fixed = true},
                    {"wte", TR_SHAPE(TOKENS, width)},
                    {"wpe", TR_SHAPE(POSITIONS, width)}}};
    c.mode = TR_TRAIN;
    c.out = TR_SHAPE(samples, steps, width);
    c.build = build_embedding;
    c.reference = embedding;
    op_check(&c);
}

static void embeddings(void **state) {
    check_embedding(3, 7, 5, TR_U16, true);
    check_embedding(2, 9, 33, TR_U32, true);
    check_embedding(4, 1, 3, TR_I32, true);
    check_embedding(1, 1, 1, TR_U16, false);
}

/* y = (embedding + embedding) w^T with one table: its gradient is a product, and two more are added
 * to it in place. */
static tr_status_t build_tied(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                              tr_tensor_t *out) {
    tr_tensor_t x;
    TR_TRY(tr_embedding(g, in[0], in[1], TR_NONE, TR_F32, &x));
    TR_TRY(tr_add(g, x, in[2], TR_ACT_NONE, &x));
    return tr_linear(g, x, in[1], TR_NONE, TR_ACT_NONE, out);
}

static void tied(const op_case_t *c, const double *const *in, double *y) {
    const int64_t rows = tr_shape_elems(&c->in[0].shape), width = c->in[1].shape.dim[1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t v = 0; v < TOKENS; v++) {
            y[i * TOKENS + v] = 0;
            for (int64_t k = 0; k < width; k++)
                y[i * TOKENS + v] += (in[1][(int64_t)in[0][i] * width + k] + in[2][i * width + k]) *
                                     in[1][v * width + k];
        }
}

static void tied_embeddings(void **state) {
    op_case_t c = {"tied",
                   3,
                   {{"id", TR_SHAPE(3, 7), 0, TOKENS - 1, .dtype = TR_U16, .fixed = true},
                    {"wte", TR_SHAPE(TOKENS, 6)},
                    {"more", TR_SHAPE(3, 7, 6)}}};
    c.mode = TR_TRAIN;
    c.out = TR_SHAPE(3, 7, TOKENS);
    c.build = build_tied;
    c.reference = tied;
    c.adds_inside = true;
    op_check(&c);
}

/* The table's gradient needs no memory but its place in the reduced block, and no op of its own. */
static void a_tied_gradient_is_added_in_place(void **state) {
    tr_tensor_t id, wte, x, seed;
    op_bench_t b = op_begin("cpu", TR_TRAIN);
    MUST(tr_input(b.g, "id", TR_U16, &TR_SHAPE(2, 3), &id));
    MUST(tr_input(b.g, "seed", TR_F32, &TR_SHAPE(2, 3, TOKENS), &seed));
    MUST(tr_param(b.g, "wte", &TR_SHAPE(TOKENS, 4), &(tr_param_spec_t){.trainable = true}, &wte));
    MUST(tr_embedding(b.g, id, wte, TR_NONE, TR_F32, &x));
    MUST(tr_linear(b.g, x, wte, TR_NONE, TR_ACT_NONE, &x));
    MUST(tr_backward(b.g, x, seed, false));
    const int last = tr_program_op_count(b.g, b.program) - 1;
    const tr_op_t *op = tr_program_op(b.g, b.program, last);
    assert_string_equal(op->row->name, "embedding_bwd");
    assert_int_equal(tr_tensor_info(b.g, op->out[0])->role, TR_ROLE_VIEW);
    op_end(&b);
}

static void an_id_outside_the_vocabulary_gives_nan(void **state) {
    op_devices_t devices = op_devices();
    for (int d = 0; d < devices.count; d++) {
        tr_tensor_t id, wte, x;
        op_bench_t b = op_begin(devices.name[d], TR_EVAL);
        MUST(tr_input(b.g, "id", TR_I32, &TR_SHAPE(1, 3), &id));
        MUST(tr_input(b.g, "wte", TR_F32, &TR_SHAPE(2, 1), &wte));
        MUST(tr_embedding(b.g, id, wte, TR_NONE, TR_F32, &x));
        MUST(tr_keep(b.g, x));
        op_ready(&b);
        op_write(&b, id, (double[]){1, 2, -1});
        op_write(&b, wte, (double[]){3, 4});
        op_run(&b);
        float *found = op_read(&b, x);
        assert_true(found[0] == 4 && isnan(found[1]) && isnan(found[2]));
        test_free(found);
        op_end(&b);
    }
}

/* -- attention
 * ------------------------------------------------------------------------------------------- */

typedef struct {
    int heads;
    bool keeps;
    float p;
    uint32_t stream;
} attention_t;

static const double sample_ids[] = {5, 0, 1234567890123};

static tr_status_t build_attention(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                   tr_tensor_t *out) {
    const attention_t *a = c->attr;
    return tr_attention(g, in[0], a->heads, in[1], a->p, a->keeps, out);
}

static double factor(const attention_t *a, double sample, int64_t element) {
    const uint64_t e = (uint64_t)element;
    if (a->p == 0) return 1;
    tr_rng_block_t block = tr_rng_philox(OP_SEED, TR_RNG_DROPOUT, a->stream, (uint64_t)sample,
                                         (uint64_t)OP_STEP << 32 | e / 4);
    return block.v[e % 4] >= (uint32_t)((double)a->p * 0x1p32) ? (float)(1 / (1 - (double)a->p))
                                                               : 0;
}

static void attention(const op_case_t *c, const double *const *in, double *y) {
    const attention_t *a = c->attr;
    const int64_t samples = c->out.dim[0], steps = c->out.dim[1], width = c->out.dim[2],
                  size = width / a->heads;
    double *score = test_malloc((size_t)steps * sizeof *score);
    memset(y, 0, (size_t)tr_shape_elems(&c->out) * sizeof *y);
    for (int64_t i = 0; i < samples * a->heads * steps; i++) {
        const int64_t t = i % steps, h = i / steps % a->heads, b = i / steps / a->heads;
        const double *qkv = in[0] + b * steps * 3 * width + h * size, *q = qkv + t * 3 * width;
        double sum = 0, max = -INFINITY;
        for (int64_t k = 0; k <= t; k++) {
            score[k] = 0;
            for (int64_t d = 0; d < size; d++)
                score[k] += q[d] * qkv[k * 3 * width + width + d] / sqrt((double)size);
            max = fmax(max, score[k]);
        }
        for (int64_t k = 0; k <= t; k++) sum += score[k] = exp(score[k] - max);
        for (int64_t k = 0; k <= t; k++)
            for (int64_t d = 0; d < size; d++)
                y[(b * steps + t) * width + h * size + d] +=
                    score[k] / sum * factor(a, in[1][b], (h * steps + t) * steps + k) *
                    qkv[k * 3 * width + 2 * width + d];
    }
    test_free(score);
}

static uint32_t stream_of_attention(float p) {
    tr_tensor_t qkv, id, y;
    op_bench_t b = op_begin("cpu", TR_TRAIN);
    MUST(tr_input(b.g, "qkv", TR_F32, &TR_SHAPE(1, 1, 3), &qkv));
    MUST(tr_input(b.g, "id", TR_I64, &TR_SHAPE(1), &id));
    MUST(tr_attention(b.g, qkv, 1, id, p, false, &y));
    const tr_op_t *op = tr_program_op(b.g, b.program, 0);
    const uint32_t stream = ((const tr_attention_attr_t *)op->attr)->stream;
    op_end(&b);
    return stream;
}

static void check_attention(int64_t samples, int64_t steps, int heads, int64_t size, float p) {
    attention_t a = {.heads = heads, .p = p, .stream = stream_of_attention(p)};
    op_case_t c = {
        "attention",
        2,
        {{"qkv", TR_SHAPE(samples, steps, 3 * heads * size), -2, 2, .half = true},
         {"id", TR_SHAPE(samples), .dtype = TR_I64, .fixed = true, .values = sample_ids}}};
    c.attr = &a;
    c.mode = TR_TRAIN;
    c.out = TR_SHAPE(samples, steps, heads * size);
    c.build = build_attention;
    c.reference = attention;
    for (int keeps = 0; keeps < 2; keeps++) {
        a.keeps = keeps;
        op_check(&c);
    }
}

static void attention_at_odd_sizes(void **state) {
    check_attention(2, 7, 3, 5, 0);
    check_attention(1, 1, 2, 3, 0);
    check_attention(1, 17, 1, 1, 0);
    check_attention(1, 70, 1, 2, 0); /* two tiles */
}

static void attention_with_dropout(void **state) {
    check_attention(3, 6, 2, 3, 0.25f);
    check_attention(1, 67, 1, 1, 0.5f);
}

/* What a row says stays the same when later tokens change. */
static void attention_does_not_look_ahead(void **state) {
    enum { STEPS = 131, WIDTH = 4 };
    op_devices_t devices = op_devices();
    for (int d = 0; d < devices.count; d++) {
        double x[STEPS * 3 * WIDTH];
        tr_tensor_t qkv, y;
        op_bench_t b = op_begin(devices.name[d], TR_EVAL);
        MUST(tr_input(b.g, "qkv", TR_F32, &TR_SHAPE(1, STEPS, 3 * WIDTH), &qkv));
        MUST(tr_attention(b.g, qkv, 2, TR_NONE, 0, false, &y));
        MUST(tr_keep(b.g, y));
        op_ready(&b);
        for (int i = 0; i < STEPS * 3 * WIDTH; i++) x[i] = op_random("ahead", i, -3, 3);
        op_write(&b, qkv, x);
        op_run(&b);
        float *before = op_read(&b, y);
        for (int i = 100 * 3 * WIDTH; i < STEPS * 3 * WIDTH; i++) x[i] = NAN;
        op_write(&b, qkv, x);
        op_run(&b);
        float *after = op_read(&b, y);
        assert_memory_equal(before, after, 64 * WIDTH * sizeof *before);
        assert_true(isnan(after[100 * WIDTH]));
        test_free(before), test_free(after);
        op_end(&b);
    }
}

static void attention_refuses(void **state) {
    tr_tensor_t qkv, y;
    op_bench_t b = op_begin("cpu", TR_TRAIN);
    MUST(tr_input(b.g, "qkv", TR_F32, &TR_SHAPE(2, 3, 12), &qkv));
    REFUSED(tr_attention(b.g, qkv, 3, TR_NONE, 0, false, &y), "3 & (2, 3, 12)");
    REFUSED(tr_attention(b.g, qkv, 2, TR_NONE, 0.5f, false, &y), "op");
    op_end(&b);
}

/* -- residual and layer normalisation
 * -------------------------------------------------------------------- */

/* All of both outputs: y + 2 sum. */
static tr_status_t build_both(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                              tr_tensor_t *out) {
    tr_tensor_t sum, y;
    TR_TRY(tr_residual_layernorm(g, in[0], in[1], in[2], in[3], 1e-3f, &sum, &y));
    TR_TRY(tr_scale(g, sum, 2, &sum));
    return tr_add(g, y, sum, TR_ACT_NONE, out);
}
static tr_status_t build_normal(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                tr_tensor_t *out) {
    tr_tensor_t sum;
    return tr_residual_layernorm(g, in[0], in[1], in[2], in[3], 1e-3f, &sum, out);
}
static tr_status_t build_sum(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                             tr_tensor_t *out) {
    tr_tensor_t y;
    return tr_residual_layernorm(g, in[0], in[1], in[2], in[3], 1e-3f, out, &y);
}

static void residual(const op_case_t *c, const double *const *in, double *y) {
    const int64_t width = c->in[2].shape.dim[0], rows = tr_shape_elems(&c->out) / width;
    const bool *parts = c->attr; /* y, sum */
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, variance = 0;
        for (int64_t k = r * width; k < (r + 1) * width; k++)
            mean += (in[0][k] + in[1][k]) / (double)width;
        for (int64_t k = r * width; k < (r + 1) * width; k++)
            variance += pow(in[0][k] + in[1][k] - mean, 2) / (double)width;
        for (int64_t k = 0; k < width; k++) {
            const double sum = in[0][r * width + k] + in[1][r * width + k];
            const double normal =
                (sum - mean) / sqrt(variance + (double)1e-3f) * in[2][k] + in[3][k];
            y[r * width + k] = (parts[0] ? normal : 0) + (parts[0] && parts[1] ? 2 * sum
                                                          : parts[1]           ? sum
                                                                               : 0);
        }
    }
}

static void residual_layernorms(void **state) {
    static const bool parts[][2] = {{true, true}, {true, false}, {false, true}};
    static tr_status_t (*const builds[])(tr_graph_t *, const op_case_t *, const tr_tensor_t *,
                                         tr_tensor_t *) = {build_both, build_normal, build_sum};
    const tr_shape_t shapes[] = {TR_SHAPE(3, 5, 7), TR_SHAPE(1, 33), TR_SHAPE(70, 3)};
    for (int i = 0; i < 2; i++)
        for (int s = 0; s < 3; s++) {
            const tr_shape_t x = shapes[s], channels = TR_SHAPE(x.dim[x.ndim - 1]);
            op_case_t c = {"residual_layernorm",
                           4,
                           {{"a", x, -2, 3, .half = true},
                            {"b", x, .half = true},
                            {"gamma", channels, 0.5, 2},
                            {"beta", channels}}};
            c.mode = TR_TRAIN;
            c.out = x;
            c.attr = parts[i];
            c.build = builds[i];
            c.reference = residual;
            c.rounds_inside = true;
            op_check(&c);
        }
}

/* Of the sum alone: gamma and beta have no part in it. */
static void the_sum_alone(void **state) {
    static const bool part[] = {false, true};
    op_case_t c = {"residual_sum",
                   4,
                   {{"a", TR_SHAPE(2, 5)},
                    {"b", TR_SHAPE(2, 5)},
                    {"gamma", TR_SHAPE(5), .fixed = true},
                    {"beta", TR_SHAPE(5), .fixed = true}}};
    c.mode = TR_TRAIN;
    c.out = TR_SHAPE(2, 5);
    c.attr = part;
    c.build = build_sum;
    c.reference = residual;
    op_check(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings),
        cmocka_unit_test(tied_embeddings),
        cmocka_unit_test(a_tied_gradient_is_added_in_place),
        cmocka_unit_test(an_id_outside_the_vocabulary_gives_nan),
        cmocka_unit_test(attention_at_odd_sizes),
        cmocka_unit_test(attention_with_dropout),
        cmocka_unit_test(attention_does_not_look_ahead),
        cmocka_unit_test(attention_refuses),
        cmocka_unit_test(residual_layernorms),
        cmocka_unit_test(the_sum_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
