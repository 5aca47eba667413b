/* The kernels that continue texts, against double precision: products of few rows, the caches, and
 * attention to them. On one, two and seven threads the results must be the same bits. */
#include "cpu_kernel_test.h"
#include "base/half.h"
#include "trainer/attributes.h"

/* -- products of few rows ---------------------------------------------------------------------- */

typedef struct {
    int64_t M, K, N;
    bool trans_b, has_bias;
    tr_dtype_t type; /* of B */
} case_t;

static void check_product(const case_t *c) {
    const tr_matmul_attr_t attr = {.trans_b = c->trans_b, .alpha = 1};
    const int64_t M = c->M, K = c->K, N = c->N;
    float *a = kt_normal(M * K, 1, 0, 1), *b = kt_normal(K * N, 2, 0, 1),
          *bias = kt_normal(N, 3, 0, 1), *out = kt_zeros(M * N), *one = kt_zeros(N);
    uint16_t *half = calloc((size_t)(K * N), sizeof *half);
    double *want = calloc((size_t)(M * N), sizeof *want);
    for (int64_t i = 0; c->type == TR_BF16 && i < K * N; i++)
        b[i] = tr_float_of_bf16(half[i] = tr_bf16_of_float(b[i]));
    for (int64_t i = 0; c->type == TR_F16 && i < K * N; i++)
        b[i] = tr_float_of_f16(half[i] = tr_f16_of_float(b[i]));
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double sum = c->has_bias ? bias[j] : 0;
            for (int64_t k = 0; k < K; k++)
                sum += (double)a[i * K + k] * b[c->trans_b ? j * K + k : k * N + j];
            want[i * N + j] = sum;
        }
    tr_view_t right = F32(b, c->trans_b ? N : K, c->trans_b ? K : N);
    if (c->type != TR_F32) right.data = half, right.dtype = c->type;
    const tr_view_t bias_view = c->has_bias ? F32(bias, N) : ABSENT;
    RUN(MATMUL_ROWS, &attr, VIEWS(F32(a, M, K), right, bias_view), VIEWS(F32(out, M, N)));
    kt_close(out, want, M * N, 1e-5, 2e-6 * sqrt((double)K) + 1e-6, "product of few rows");
    /* A row alone: the same bits as among others. */
    for (int64_t i = 0; i < M; i++) {
        RUN(MATMUL_ROWS, &attr, VIEWS(F32(a + i * K, 1, K), right, bias_view),
            VIEWS(F32(one, 1, N)));
        assert_memory_equal(one, out + i * N, (size_t)N * sizeof *one);
    }
    free(a), free(b), free(bias), free(out), free(one), free(half), free(want);
}

static void products_of_few_rows(void **state) {
    static const int64_t rows[] = {1, 2, 4, 5, 16, 19},
                         sizes[][2] = {{1, 1}, {7, 5}, {16, 64}, {33, 67}, {130, 200}, {259, 131}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int way = 0; way < 12; way++)
                check_product(&(case_t){rows[r], sizes[s][0], sizes[s][1], way & 1, way & 2,
                                        (tr_dtype_t)(way / 4)});
}

/* -- caches ------------------------------------------------------------------------------------ */

/* Rounded elements of a cache, and their values. */
static void *narrow(float *x, int64_t count, tr_dtype_t type) {
    if (type == TR_F32) return x;
    uint16_t *half = calloc((size_t)count, sizeof *half);
    for (int64_t i = 0; i < count; i++) {
        half[i] = type == TR_BF16 ? tr_bf16_of_float(x[i]) : tr_f16_of_float(x[i]);
        x[i] = type == TR_BF16 ? tr_float_of_bf16(half[i]) : tr_float_of_f16(half[i]);
    }
    return half;
}

static tr_view_t view_of(void *data, tr_dtype_t type, tr_shape_t shape) {
    return (tr_view_t){.data = data, .dtype = type, .shape = shape};
}

enum { ROWS = 3, POSITIONS = 41, HEADS = 2, STEPS = 4, SAMPLES = 2 };
enum { CHANNELS = 2 * 41 }; /* of a head: vectors of any width, and a rest */

static void append_to(tr_dtype_t type) {
    static const tr_attention_attr_t attr = {.heads = HEADS};
    /* row of the caches, first position, tokens that count */
    const int32_t place[SAMPLES * 3] = {2, 5, 4, 0, 0, 2};
    const int64_t cached = ROWS * POSITIONS * CHANNELS;
    float *qkv = kt_normal(SAMPLES * STEPS * 3 * CHANNELS, 1, 0, 1),
          *keys = kt_normal(cached, 2, 0, 1), *values = kt_normal(cached, 3, 0, 1),
          *want_keys = kt_zeros(cached), *want_values = kt_zeros(cached);
    void *got_keys = narrow(keys, cached, type), *got_values = narrow(values, cached, type);
    memcpy(want_keys, keys, (size_t)cached * sizeof *keys);
    memcpy(want_values, values, (size_t)cached * sizeof *values);
    for (int b = 0; b < SAMPLES; b++)
        for (int t = 0; t < place[3 * b + 2]; t++)
            for (int c = 0; c < CHANNELS; c++) {
                const int at = (place[3 * b] * POSITIONS + place[3 * b + 1] + t) * CHANNELS + c;
                const float *from = qkv + (b * STEPS + t) * 3 * CHANNELS + c;
                want_keys[at] = from[CHANNELS], want_values[at] = from[2 * CHANNELS];
            }
    const tr_shape_t shape = TR_SHAPE(ROWS, POSITIONS, CHANNELS);
    RUN(CACHE_APPEND, &attr, VIEWS(F32(qkv, SAMPLES, STEPS, 3 * CHANNELS), I32(place, SAMPLES, 3)),
        VIEWS(view_of(got_keys, type, shape), view_of(got_values, type, shape)));
    void *half_keys = narrow(want_keys, cached, type),
         *half_values = narrow(want_values, cached, type);
    assert_memory_equal(got_keys, half_keys, (size_t)cached * tr_dtype_bytes(type));
    assert_memory_equal(got_values, half_values, (size_t)cached * tr_dtype_bytes(type));
    if (type != TR_F32) free(got_keys), free(got_values), free(half_keys), free(half_values);
    free(qkv), free(keys), free(values), free(want_keys), free(want_values);
}

static void appended_to_caches(void **state) {
    for (tr_dtype_t type = TR_F32; type <= TR_F16; type++) append_to(type);
}

/* One query over `seen` keys and values, whose rows are CHANNELS apart. */
static void attend(const float *q, const float *keys, const float *values, int seen, double *out) {
    enum { SIZE = CHANNELS / HEADS };
    double score[POSITIONS], max = -INFINITY, sum = 0;
    for (int k = 0; k < seen; k++) {
        score[k] = 0;
        for (int d = 0; d < SIZE; d++) score[k] += (double)q[d] * keys[k * CHANNELS + d];
        score[k] /= sqrt(SIZE);
        max = fmax(max, score[k]);
    }
    for (int k = 0; k < seen; k++) sum += score[k] = exp(score[k] - max);
    for (int d = 0; d < SIZE; d++) {
        out[d] = 0;
        for (int k = 0; k < seen; k++) out[d] += score[k] / sum * values[k * CHANNELS + d];
    }
}

/* `steps` 1: single queries, which have a way of their own. */
static void attend_to(tr_dtype_t type, int steps) {
    static const tr_attention_attr_t attr = {.heads = HEADS};
    const int32_t place[SAMPLES * 3] = {2, 30, steps, 0, 0, steps > 1 ? 2 : 1};
    const int64_t cached = ROWS * POSITIONS * CHANNELS, count = SAMPLES * steps * CHANNELS;
    float *qkv = kt_normal(3 * count, 1, 0, 1), *keys = kt_normal(cached, 2, 0, 1),
          *values = kt_normal(cached, 3, 0, 1), *out = kt_zeros(count);
    double *want = calloc((size_t)count, sizeof *want);
    /* What is not seen may be anything. */
    for (int i = 2 * CHANNELS; i < POSITIONS * CHANNELS; i++) keys[i] = values[i] = NAN;
    void *held_keys = narrow(keys, cached, type), *held_values = narrow(values, cached, type);
    for (int b = 0; b < SAMPLES; b++)
        for (int t = 0; t < place[3 * b + 2]; t++)
            for (int c = 0; c < CHANNELS; c += CHANNELS / HEADS) {
                const int row = place[3 * b] * POSITIONS * CHANNELS + c;
                attend(qkv + (b * steps + t) * 3 * CHANNELS + c, keys + row, values + row,
                       place[3 * b + 1] + t + 1, want + (b * steps + t) * CHANNELS + c);
            }
    const tr_shape_t shape = TR_SHAPE(ROWS, POSITIONS, CHANNELS);
    RUN(ATTENTION_CACHED, &attr,
        VIEWS(F32(qkv, SAMPLES, steps, 3 * CHANNELS), I32(place, SAMPLES, 3),
              view_of(held_keys, type, shape), view_of(held_values, type, shape)),
        VIEWS(F32(out, SAMPLES, steps, CHANNELS)));
    kt_close(out, want, count, 1e-5, 2e-6, "attention to caches");
    if (type != TR_F32) free(held_keys), free(held_values);
    free(qkv), free(keys), free(values), free(out), free(want);
}

static void attention_to_caches(void **state) {
    for (tr_dtype_t type = TR_F32; type <= TR_F16; type++) {
        attend_to(type, STEPS);
        attend_to(type, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_few_rows),
        cmocka_unit_test(appended_to_caches),
        cmocka_unit_test(attention_to_caches),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
