/* Philox against its published known answers, and the sequences drawn from it. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/rng.h"

#include <math.h>
#include <string.h>

/* Known answers of the authors' Random123 for philox4x32 with ten rounds; counter words c0..c3 are
 * b, then a. */
static void known_answers(void **state) {
    static const struct {
        uint64_t a, b;
        tr_philox_key_t key;
        uint32_t answer[4];
    } cases[] = {
        {0, 0, {{0, 0}}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX,
         UINT64_MAX,
         {{UINT32_MAX, UINT32_MAX}},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x0370734413198a2e,
         0x85a308d3243f6a88,
         {{0xa4093822, 0x299f31d0}},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        tr_rng_block_t block = tr_philox(cases[i].key, cases[i].a, cases[i].b);
        assert_memory_equal(block.v, cases[i].answer, sizeof block.v);
    }
}

/* One change in any argument changes the block. */
static void arguments_are_told_apart(void **state) {
    tr_rng_block_t blocks[] = {tr_rng_philox(0, 1, 0, 0, 0),
                               tr_rng_philox(1, 1, 0, 0, 0),
                               tr_rng_philox(0, 2, 0, 0, 0),
                               tr_rng_philox(0, 1, 1, 0, 0),
                               tr_rng_philox(0, 1, 0, 1, 0),
                               tr_rng_philox(0, 1, 0, 0, 1),
                               tr_rng_philox(UINT64_C(1) << 63, 1, 0, 0, 0),
                               tr_rng_philox(0, 1, 0, UINT64_C(1) << 63, 0),
                               tr_rng_philox(0, 1, 0, 0, UINT64_C(1) << 63),
                               tr_rng_philox(0, 0, 1, 0, 0)};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(&blocks[i], &blocks[j], sizeof blocks[i]);
}

/* Checkpoints hold no random state: these values must never change. */
static void numbers_are_fixed_for_ever(void **state) {
    tr_rng_block_t block = tr_rng_philox(42, TR_RNG_TEST, 3, 5, 7);
    static const uint32_t expected[4] = {0x7a99e497, 0x69fa8b15, 0x4b529965, 0x9bb21273};
    assert_memory_equal(block.v, expected, sizeof expected);
    tr_rng_t rng = tr_rng_make(42, TR_RNG_TEST, 3, 5);
    int64_t items[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const int64_t shuffled[8] = {0, 7, 4, 1, 5, 2, 6, 3};
    tr_rng_shuffle(&rng, items, 8);
    assert_memory_equal(items, shuffled, sizeof items);
}

static void sequence_is_the_blocks_in_turn(void **state) {
    tr_rng_t rng = tr_rng_make(9, TR_RNG_TEST, 1, 4);
    for (uint64_t b = 0; b < 5; b++) {
        tr_rng_block_t block = tr_rng_philox(9, TR_RNG_TEST, 1, 4, b);
        for (int word = 0; word < 4; word++) assert_int_equal(tr_rng_u32(&rng), block.v[word]);
    }
}

static void below_is_in_range_and_even(void **state) {
    tr_rng_t rng = tr_rng_make(1, TR_RNG_TEST, 0, 0);
    enum { N = 7, DRAWS = 70000 };
    int counts[N] = {0};
    for (int i = 0; i < DRAWS; i++) {
        uint64_t value = tr_rng_below(&rng, N);
        assert_true(value < N);
        counts[value]++;
    }
    double chi2 = 0, expected = (double)DRAWS / N;
    for (int i = 0; i < N; i++) chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
    assert_true(chi2 < 22.5); /* 6 degrees of freedom: 0.1 % */
    for (int i = 0; i < 100; i++) assert_int_equal(tr_rng_below(&rng, 1), 0);
    uint64_t huge = (UINT64_C(1) << 63) + 1;
    int above = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t value = tr_rng_below(&rng, huge);
        assert_true(value < huge);
        above += value > huge / 2;
    }
    assert_true(above > 420 && above < 580);
}

static void uniform_and_normal_have_their_moments(void **state) {
    tr_rng_t rng = tr_rng_make(2, TR_RNG_TEST, 0, 0);
    enum { DRAWS = 200000 };
    double sum = 0, sum2 = 0, sum4 = 0, mean_uniform = 0;
    for (int i = 0; i < DRAWS; i++) {
        double u = tr_rng_uniform(&rng), z = tr_rng_normal(&rng);
        assert_true(u >= 0 && u < 1);
        assert_true(isfinite(z));
        mean_uniform += u / DRAWS;
        sum += z;
        sum2 += z * z;
        sum4 += z * z * z * z;
    }
    assert_true(fabs(mean_uniform - 0.5) < 0.003);
    assert_true(fabs(sum / DRAWS) < 0.01);
    assert_true(fabs(sum2 / DRAWS - 1) < 0.015);
    assert_true(fabs(sum4 / DRAWS - 3) < 0.12);
}

static void words_become_floats_below_one(void **state) {
    assert_true(tr_rng_to_float(0) == 0.0f);
    assert_true(tr_rng_to_float(UINT32_MAX) < 1.0f);
    assert_true(tr_rng_to_float(UINT32_C(1) << 31) == 0.5f);
}

static void shuffle_is_a_permutation(void **state) {
    tr_rng_t rng = tr_rng_make(3, TR_RNG_TEST, 0, 0);
    int64_t items[257], moved = 0;
    char seen[257] = {0};
    for (int i = 0; i < 257; i++) items[i] = i;
    tr_rng_shuffle(&rng, items, 257);
    for (int i = 0; i < 257; i++) {
        assert_false(seen[items[i]]);
        seen[items[i]] = 1;
        moved += items[i] != i;
    }
    assert_true(moved > 240);
    tr_rng_shuffle(&rng, items, 0);
    tr_rng_shuffle(&rng, NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(arguments_are_told_apart),
        cmocka_unit_test(numbers_are_fixed_for_ever),
        cmocka_unit_test(sequence_is_the_blocks_in_turn),
        cmocka_unit_test(below_is_in_range_and_even),
        cmocka_unit_test(uniform_and_normal_have_their_moments),
        cmocka_unit_test(words_become_floats_below_one),
        cmocka_unit_test(shuffle_is_a_permutation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
