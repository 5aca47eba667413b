/* Attention of some blocks of queries and keys and its gradient against double precision. On one
 * thread, each head alone, and on two and seven, which share the heads or their blocks, the results
 * must be the same bits. */
#include "cpu_kernel_test.h"
#include "device/kernels.h"
#include "trainer/attributes.h"

enum { SAMPLES = 2, STEPS = 203, HEADS = 3, SIZE = 20, CHANNELS = HEADS * SIZE };
enum { INDEX = SAMPLES * HEADS };
static const int64_t ids[SAMPLES] = {7, 123456789012};
static const tr_step_t step = {.seed = 5, .step = 3};

/* The factor of dropout of the probability of query t for key k, as kernels.h specifies it. */
static double factor_of(const tr_attention_attr_t *attr, int b, int h, int t, int k) {
    const uint64_t e = (uint64_t)((h * STEPS + t) * STEPS + k);
    if (attr->p == 0) return 1;
    const tr_rng_block_t block = tr_rng_philox(step.seed, TR_RNG_DROPOUT, attr->stream,
                                               (uint64_t)ids[b], (uint64_t)step.step << 32 | e / 4);
    return block.v[e % 4] >= (uint32_t)((double)attr->p * 0x1p32) ? 1 / (1 - (double)attr->p) : 0;
}

/* Of one head: y and dqkv, of which each row is 3 CHANNELS. */
static void attend(const tr_attention_attr_t *attr, const float *qkv, const float *dy, int b, int h,
                   double *y, double *lse, double *dqkv) {
    const double scale = 1 / sqrt((double)SIZE);
    for (int t = 0; t < STEPS; t++) {
        double p[STEPS], dp[STEPS], max = -INFINITY, sum = 0, delta = 0;
        const float *q = qkv + t * 3 * CHANNELS;
        for (int k = 0; k <= t; k++) {
            const float *key = qkv + k * 3 * CHANNELS + CHANNELS;
            p[k] = dp[k] = 0;
            for (int d = 0; d < SIZE; d++) p[k] += scale * q[d] * key[d];
            for (int d = 0; d < SIZE; d++)
                dp[k] += (double)dy[t * CHANNELS + d] * key[CHANNELS + d];
            max = fmax(max, p[k]);
        }
        for (int k = 0; k <= t; k++) sum += exp(p[k] - max);
        lse[t] = max + log(sum);
        for (int k = 0; k <= t; k++) {
            p[k] = exp(p[k] - lse[t]);
            dp[k] *= factor_of(attr, b, h, t, k);
            delta += p[k] * dp[k];
        }
        for (int k = 0; k <= t; k++) {
            const double dropped = p[k] * factor_of(attr, b, h, t, k),
                         ds = scale * p[k] * (dp[k] - delta);
            const float *key = qkv + k * 3 * CHANNELS + CHANNELS;
            for (int d = 0; d < SIZE; d++) {
                y[t * CHANNELS + d] += dropped * key[CHANNELS + d];
                dqkv[t * 3 * CHANNELS + d] += ds * key[d];
                dqkv[k * 3 * CHANNELS + CHANNELS + d] += ds * q[d];
                dqkv[k * 3 * CHANNELS + 2 * CHANNELS + d] += dropped * dy[t * CHANNELS + d];
            }
        }
    }
}

static void check(float dropout, bool keeps) {
    const tr_attention_attr_t attr = {.heads = HEADS, .p = dropout, .stream = 9};
    const int64_t count = SAMPLES * STEPS * CHANNELS, scores = INDEX * STEPS * STEPS;
    float *qkv = kt_normal(3 * count, 1, 0, 1.5), *dy = kt_normal(count, 2, 0, 1),
          *y = kt_zeros(count), *dqkv = kt_zeros(3 * count), *lse = kt_zeros(INDEX * STEPS),
          *kept = kt_zeros(scores);
    double *want = calloc((size_t)count, sizeof *want),
           *want_lse = calloc(INDEX * STEPS, sizeof *want_lse),
           *want_gradient = calloc((size_t)(3 * count), sizeof *want_gradient);
    for (int i = 0; i < INDEX; i++) {
        const int b = i / HEADS, h = i % HEADS, at = b * STEPS * CHANNELS + h * SIZE,
                  three = b * STEPS * 3 * CHANNELS + h * SIZE;
        attend(&attr, qkv + three, dy + at, b, h, want + at, want_lse + i * STEPS,
               want_gradient + three);
    }
    const tr_view_t qkv_view = F32(qkv, SAMPLES, STEPS, 3 * CHANNELS),
                    y_view = F32(y, SAMPLES, STEPS, CHANNELS),
                    lse_view = F32(lse, SAMPLES, HEADS, STEPS),
                    kept_view = keeps ? F32(kept, SAMPLES, HEADS, STEPS, STEPS) : ABSENT,
                    id_view = dropout > 0 ? I64(ids, SAMPLES) : ABSENT,
                    step_view = dropout > 0 ? BYTES(&step) : ABSENT;
    RUN(ATTENTION_FWD, &attr, VIEWS(qkv_view, id_view, step_view),
        VIEWS(y_view, lse_view, kept_view));
    kt_close(y, want, count, 1e-5, 4e-6, "attention");
    kt_close(lse, want_lse, INDEX * STEPS, 1e-6, 4e-6, "its log of sums");
    for (int64_t i = 0; keeps && i < scores; i++)
        if (i % STEPS > i / STEPS % STEPS) assert_true(kept[i] == 0);
    RUN(ATTENTION_BWD, &attr,
        VIEWS(F32(dy, SAMPLES, STEPS, CHANNELS), qkv_view, y_view, lse_view, kept_view, id_view,
              step_view),
        VIEWS(F32(dqkv, SAMPLES, STEPS, 3 * CHANNELS)));
    kt_close(dqkv, want_gradient, 3 * count, 2e-5, 1e-5, "the gradient of attention");
    free(qkv), free(dy), free(y), free(dqkv), free(lse), free(kept);
    free(want), free(want_lse), free(want_gradient);
}

static void recomputed(void **state) {
    check(0, false);
}
static void kept(void **state) {
    check(0, true);
}
static void with_dropout(void **state) {
    check(0.25f, false);
    check(0.25f, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputed),
        cmocka_unit_test(kept),
        cmocka_unit_test(with_dropout),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
