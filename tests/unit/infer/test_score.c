/* Scores against counts made by hand and against plain formulas, whole on one rank and dealt out to
 * three. */
//TEST np=1
//TEST np=3
#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "infer/score.h"
#include "session/target_score.h"

#include <math.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"

static tr_world_t *world;
static int rank, size;

/* -- classes ----------------------------------------------------------------------------------- */

enum { CLASSES = 4, SAMPLES = 10 };
/* Class 3 neither occurs nor is predicted; class 2 is predicted only. The sample of weight 0 and
 * that without a label would change everything. */
static const int32_t truth[SAMPLES] = {0, 0, 0, 1, 1, 1, 1, 0, 3, -1};
static const int found[SAMPLES] = {0, 0, 1, 1, 1, 0, 2, -1, 3, 3};
static const float weight[SAMPLES] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 1};

static void make_scores(int sample, float *scores) {
    for (int c = 0; c < CLASSES; c++) scores[c] = c == found[sample] ? 2.0f : 1.0f - (float)c;
    if (found[sample] < 0) scores[2] = NAN;
}

/* Every rank counts its part of the samples. */
static tr_class_counts_t *count_all(void) {
    tr_class_counts_t *counts = NULL;
    OK(tr_class_counts_create(CLASSES, &counts));
    for (int i = 0; i < SAMPLES; i++) {
        float scores[CLASSES];
        if (i % size != rank) continue;
        make_scores(i, scores);
        tr_class_counts_add(counts, scores, &truth[i], &weight[i], 1);
    }
    OK(tr_class_counts_reduce(counts, world));
    return counts;
}

static void test_counts(void **state) {
    static const int64_t support[] = {4, 4, 0, 0}, predicted[] = {3, 3, 1, 0},
                         hits[] = {2, 2, 0, 0};
    static const int64_t pairs[CLASSES][CLASSES] = {{2, 1}, {1, 2, 1}};
    tr_class_counts_t *c = count_all();
    for (int i = 0; i < CLASSES; i++) {
        assert_int_equal(c->support[i], support[i]);
        assert_int_equal(c->predicted[i], predicted[i]);
        assert_int_equal(c->hits[i], hits[i]);
        for (int k = 0; k < CLASSES; k++) assert_int_equal(c->pairs[i * CLASSES + k], pairs[i][k]);
    }
    assert_int_equal(*c->unclear, 1);
    tr_class_counts_destroy(&c);
}

static void near(double found_value, double wanted) {
    assert_true(fabs(found_value - wanted) < 1e-12);
}

static void test_class_scores(void **state) {
    tr_class_counts_t *c = count_all();
    near(tr_class_score(c, 0).precision, 2.0 / 3);
    near(tr_class_score(c, 0).recall, 0.5);
    near(tr_class_score(c, 0).f1, 2 * (2.0 / 3) * 0.5 / (2.0 / 3 + 0.5));
    near(tr_class_score(c, 2).precision, 0);
    near(tr_class_score(c, 3).f1, 0);
    /* class 3 is in no average */
    near(tr_class_mean(c, false).precision, (2.0 / 3 + 2.0 / 3 + 0) / 3);
    near(tr_class_mean(c, false).recall, (0.5 + 0.5 + 0) / 3);
    near(tr_class_mean(c, true).recall, 0.5);
    tr_class_counts_destroy(&c);
}

static void test_confusions(void **state) {
    tr_class_counts_t *c = NULL;
    tr_class_pair_t pairs[8];
    OK(tr_class_counts_create(3, &c));
    static const int64_t counts[9] = {90, 4, 7, 7, 80, 0, 1, 9, 70};
    for (int k = 0; k < 9; k++) c->pairs[k] = counts[k];
    static const tr_class_pair_t wanted[] = {{2, 1, 9}, {0, 2, 7}, {1, 0, 7}, {0, 1, 4}, {2, 0, 1}};
    assert_int_equal(tr_class_confusions(c, 8, pairs), 5);
    for (size_t i = 0; i < 5; i++) assert_memory_equal(&pairs[i], &wanted[i], sizeof wanted[i]);
    assert_int_equal(tr_class_confusions(c, 2, pairs), 2);
    for (size_t i = 0; i < 2; i++) assert_memory_equal(&pairs[i], &wanted[i], sizeof wanted[i]);
    assert_int_equal(tr_class_confusions(c, 0, pairs), 0);
    tr_class_counts_destroy(&c);
}

static void test_class_of(void **state) {
    assert_int_equal(tr_class_of((float[]){1, 3, 3, 2}, 4), 1);
    assert_int_equal(tr_class_of((float[]){-INFINITY, -INFINITY}, 2), 0);
    assert_int_equal(tr_class_of((float[]){NAN, 1}, 2), -1);
    assert_int_equal(tr_class_of((float[]){2, 1, NAN}, 3), -1);
}

static void test_many_classes(void **state) {
    tr_class_counts_t *c = NULL;
    const int64_t classes = TR_CONFUSION_MAX + 1;
    float *scores = NULL;
    OK(tr_class_counts_create(classes, &c));
    assert_null(c->pairs);
    OK(tr_alloc((size_t)classes * sizeof *scores, "scores", &scores));
    scores[classes - 1] = 1;
    tr_class_counts_add(c, scores, &(int32_t){5}, &(float){1}, 1);
    OK(tr_class_counts_reduce(c, world));
    assert_int_equal(c->predicted[classes - 1], size);
    assert_int_equal(c->support[5], size);
    assert_int_equal(tr_class_confusions(c, 1, &(tr_class_pair_t){0}), 0);
    tr_free(&scores);
    tr_class_counts_destroy(&c);
}

/* -- targets ----------------------------------------------------------------------------------- */

enum { TARGETS = 3, ROWS = 1000 };

/* Target 0 is far from zero, where sums of squares would cancel; target 2 is constant. */
static void make_row(int i, float *predicted, float *y) {
    tr_rng_t rng = tr_rng_make(1, TR_RNG_SYNTHETIC, 0, (uint64_t)i);
    for (int k = 0; k < TARGETS; k++) {
        const float noise = (float)tr_rng_uniform(&rng);
        y[k] = k == 0 ? 30000 + noise : k == 1 ? noise : 0.1f;
        predicted[k] = y[k] + 0.25f * (float)(tr_rng_uniform(&rng) - 0.4);
    }
}

static void reference(int k, tr_target_score_t *out) {
    double mean = 0, spread = 0, squared = 0, absolute = 0, both = 0, either = 0;
    float p[TARGETS], y[TARGETS];
    for (int i = 0; i < ROWS; i++) make_row(i, p, y), mean += y[k] / (double)ROWS;
    for (int i = 0; i < ROWS; i++) {
        make_row(i, p, y);
        const double error = (double)p[k] - y[k];
        spread += (y[k] - mean) * (y[k] - mean);
        squared += error * error;
        absolute += fabs(error);
        both += p[k] >= 0.5F && y[k] >= 0.5F;
        either += p[k] >= 0.5F || y[k] >= 0.5F;
    }
    *out = (tr_target_score_t){squared / ROWS, absolute / ROWS, 1 - squared / spread, both / either,
                               2 * both / (either + both)};
}

static void test_targets(void **state) {
    static const float middle[] = {5}, unit[] = {2}; /* of normalised values, which are merged */
    tr_target_sums_t *t = NULL, *merged = NULL;
    double mse = 0;
    OK(tr_target_sums_create(TARGETS, &t));
    OK(tr_target_sums_create(TARGETS, &merged));
    for (int i = 0; i < ROWS; i++) {
        float p[2][TARGETS], y[2][TARGETS] = {0};
        if (i * i % size != rank) continue; /* unequal parts; with three ranks one has none */
        make_row(i, p[0], y[0]);
        for (int k = 0; k < TARGETS; k++) p[1][k] = 1e6f;
        tr_target_sums_add(t, p[0], y[0], (float[]){1, 0}, 2);
        double added[TARGETS][8];
        for (int k = 0; k < TARGETS; k++) {
            const double is = ((double)y[0][k] - 5) / 2, off = ((double)p[0][k] - y[0][k]) / 2;
            const double set = p[0][k] >= 0.5F, wanted = y[0][k] >= 0.5F;
            memcpy(added[k],
                   (double[]){1, fabs(off), off * off, is, is * is, set * wanted, set, wanted},
                   sizeof added[k]);
        }
        tr_target_sums_merge(merged, added[0], middle, unit, 1);
    }
    OK(tr_target_sums_reduce(t, world));
    OK(tr_target_sums_reduce(merged, world));
    for (int k = 0; k < TARGETS; k++) {
        const tr_target_score_t a = tr_target_score(t, k), b = tr_target_score(merged, k);
        assert_true(t->count[k] == ROWS && merged->count[k] == ROWS);
        assert_true(fabs(b.mse - a.mse) < 1e-9 * a.mse && fabs(b.mae - a.mae) < 1e-9 * a.mae);
        if (k == 1) assert_true(fabs(a.r2 - b.r2) < 1e-9); /* normalised values are near zero */
        assert_true(k == 2 ? isnan(a.iou) && isnan(b.dice) : a.iou == b.iou && a.dice == b.dice);
    }
    for (int k = 0; k < TARGETS; k++) {
        tr_target_score_t wanted;
        const tr_target_score_t score = tr_target_score(t, k);
        reference(k, &wanted);
        mse += wanted.mse / TARGETS;
        assert_true(fabs(score.mse - wanted.mse) < 1e-9 * wanted.mse);
        assert_true(fabs(score.mae - wanted.mae) < 1e-9 * wanted.mae);
        if (k == 2)
            assert_true(isnan(score.r2));
        else
            assert_true(fabs(score.r2 - wanted.r2) < 1e-6 && score.iou == wanted.iou &&
                        score.dice == wanted.dice);
    }
    const tr_target_score_t mean = tr_target_mean(t);
    near(mean.mse, mse);
    near(mean.r2, (tr_target_score(t, 0).r2 + tr_target_score(t, 1).r2) / 2);
    near(mean.iou, (1 + tr_target_score(t, 1).iou) / 2);
    near(mean.dice, (1 + tr_target_score(t, 1).dice) / 2);
    tr_target_sums_destroy(&t);
    tr_target_sums_destroy(&merged);
}

/* Of positions there may be more than a float or 32 bits can count. */
static void counts_of_positions(void **state) {
    static const int64_t many = (int64_t)1 << 40, confusion[] = {3 * many, many, 1, 0, many + 1, 0};
    tr_class_counts_t *counts = NULL;
    OK(tr_class_counts_create(2, &counts));
    tr_class_counts_take(counts, confusion);
    assert_true(counts->support[0] == 4 * many + 1 && counts->support[1] == many + 1);
    assert_true(counts->predicted[1] == 2 * many + 1 && *counts->unclear == 1);
    near(tr_class_score(counts, 0).iou, 0.75);
    near(tr_class_score(counts, 1).iou, 0.5);
    near(tr_class_mean(counts, false).iou, 0.625);
    tr_class_counts_destroy(&counts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),       cmocka_unit_test(test_class_scores),
        cmocka_unit_test(test_confusions),   cmocka_unit_test(test_class_of),
        cmocka_unit_test(test_many_classes), cmocka_unit_test(test_targets),
        cmocka_unit_test(counts_of_positions),
    };
    if (tr_world_open(NULL, &world) != TR_OK) return 1;
    rank = tr_world_info(world)->rank;
    size = tr_world_info(world)->size;
    const int64_t before = tr_mem_stats().live;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (tr_mem_stats().live != before) failed++, print_error("memory is left\n");
    tr_world_close(&world);
    return failed;
}
