/* The choice of a token against a reference that sorts all of them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "infer/generate.h"
#include "base/rng.h"

enum { COUNT = 40, DRAWS = 20000 };
static float scores[COUNT];

static int by_score(const void *a, const void *b) {
    const int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    if (scores[i] != scores[k]) return scores[i] > scores[k] ? -1 : 1;
    return i - k;
}

static void make_scores(uint32_t stream) {
    tr_rng_t rng = tr_rng_make(7, TR_RNG_SYNTHETIC, stream, 0);
    for (int i = 0; i < COUNT; i++) scores[i] = (float)(3 * tr_rng_uniform(&rng));
    scores[11] = scores[23]; /* a tie */
}

/* The probability of each token. */
static void expect(const tr_sampling_t *s, double out[COUNT]) {
    int32_t order[COUNT];
    double sum = 0, top = 0;
    int kept = s->top_k > 0 && s->top_k < COUNT ? (int)s->top_k : COUNT;
    for (int i = 0; i < COUNT; i++) order[i] = i, out[i] = 0;
    qsort(order, COUNT, sizeof *order, by_score);
    for (int i = 0; i < kept; i++) sum += exp(scores[order[i]] / s->temperature);
    for (int i = 0; i < kept; i++) {
        if (i > 0 && top >= s->top_p) break;
        top += out[order[i]] = exp(scores[order[i]] / s->temperature) / sum;
    }
    for (int i = 0; i < COUNT; i++) out[i] /= top;
}

static int32_t sample(const tr_sampling_t *s, uint64_t text, uint64_t position) {
    int32_t order[COUNT];
    return tr_sample(s, text, position, scores, COUNT, order);
}

/* Tokens without a probability are never drawn; the others as often as they should be, within five
 * standard deviations. */
static void check(const tr_sampling_t *s) {
    double p[COUNT];
    int drawn[COUNT] = {0};
    expect(s, p);
    for (int i = 0; i < DRAWS; i++) drawn[sample(s, (uint64_t)i % 5, (uint64_t)i / 5)]++;
    for (int i = 0; i < COUNT; i++) {
        const double mean = DRAWS * p[i], deviation = sqrt(mean * (1 - p[i]));
        if (fabs(drawn[i] - mean) > 5 * deviation + 1e-9)
            fail_msg("temperature %g, top_k %d, top_p %g: token %d was drawn %d times, expected "
                     "%.1f +- %.1f",
                     s->temperature, (int)s->top_k, s->top_p, i, drawn[i], mean, deviation);
    }
}

static void probabilities(void **state) {
    static const tr_sampling_t settings[] = {
        {.temperature = 1, .top_p = 1, .seed = 1},
        {.temperature = 0.3, .top_p = 1, .seed = 2},
        {.temperature = 2, .top_p = 1, .top_k = 5, .seed = 3},
        {.temperature = 1, .top_p = 0.5, .seed = 4},
        {.temperature = 1, .top_p = 0.01, .seed = 5},
        {.temperature = 0.7, .top_p = 0.8, .top_k = 12, .seed = 6},
        {.temperature = 1, .top_p = 1, .top_k = COUNT + 9, .seed = 7},
    };
    for (uint32_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        make_scores(i);
        check(&settings[i]);
    }
}

static void greedy(void **state) {
    const tr_sampling_t zero = {.temperature = 0, .top_p = 1},
                        one = {.temperature = 1, .top_k = 1, .top_p = 1, .seed = 3};
    for (uint32_t stream = 0; stream < 20; stream++) {
        int32_t best = 0;
        make_scores(stream);
        for (int32_t i = 1; i < COUNT; i++) best = scores[i] > scores[best] ? i : best;
        assert_int_equal(sample(&zero, 0, stream), best);
        assert_int_equal(sample(&one, 0, stream), best);
    }
    for (int i = 0; i < COUNT; i++) scores[i] = 1;
    assert_int_equal(sample(&zero, 0, 0), 0); /* of equals the first */
}

static void keyed_by_seed_text_and_position(void **state) {
    const tr_sampling_t a = {.temperature = 1, .top_p = 1, .seed = 1},
                        b = {.temperature = 1, .top_p = 1, .seed = 2};
    int differ[3] = {0};
    make_scores(0);
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(sample(&a, 3, i), sample(&a, 3, i));
        differ[0] += sample(&a, 3, i) != sample(&b, 3, i);
        differ[1] += sample(&a, 3, i) != sample(&a, 4, i);
        differ[2] += sample(&a, 3, i) != sample(&a, 3, i + 1);
    }
    for (int i = 0; i < 3; i++) assert_true(differ[i] > 50);
}

/* As for tokens that have no text. */
static void minus_infinity_is_never_drawn(void **state) {
    static const tr_sampling_t settings[] = {
        {.temperature = 0, .top_p = 1},
        {.temperature = 2, .top_p = 1, .seed = 1},
        {.temperature = 2, .top_p = 0.999, .seed = 2},
        {.temperature = 2, .top_p = 1, .top_k = COUNT - 2, .seed = 3},
    };
    (void)state;
    make_scores(1);
    for (int i = 0; i < COUNT; i += 3) scores[i] = -INFINITY;
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++)
        for (uint64_t i = 0; i < 2000; i++) assert_int_not_equal(sample(&settings[s], 0, i) % 3, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities),
        cmocka_unit_test(greedy),
        cmocka_unit_test(minus_infinity_is_never_drawn),
        cmocka_unit_test(keyed_by_seed_text_and_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
