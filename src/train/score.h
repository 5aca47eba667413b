/*
 * Scores of a trained model over a data set: counts of a classifier, errors of a regression. Filled
 * batch by batch on each rank, summed over the ranks once. Counts are integers, so they are the
 * same for any number of ranks.
 */
#ifndef TRAINER_SCORE_H
#define TRAINER_SCORE_H

#include "trainer/comm.h"

/* -- classes ----------------------------------------------------------------------------------- */

#define TR_CONFUSION_MAX 2048 /* pairs of classes are counted up to so many classes: 32 MiB */

typedef struct {
    int64_t classes;
    int64_t *support;   /* [classes] samples of the class */
    int64_t *predicted; /* [classes] samples taken for it */
    int64_t *hits;      /* [classes] samples of it that were taken for it */
    /* [classes * classes] (true class, predicted class); NULL beyond TR_CONFUSION_MAX */
    int64_t *pairs;
    int64_t *unclear; /* one: samples with NaN among their scores, predicted as nothing */
} tr_class_counts_t;

tr_status_t tr_class_counts_create(int64_t classes, tr_class_counts_t **out);
void tr_class_counts_destroy(tr_class_counts_t **counts);
/* The class of the largest of `classes` scores, the first of equal ones; -1 where one is NaN. */
int64_t tr_class_of(const float *scores, int64_t classes);
/* Softmax of `classes` scores; out may be the same memory. */
void tr_class_probabilities(const float *scores, int64_t classes, float *out);
/* scores (rows, classes), label (rows) in [0, classes); rows with weight 0 or label -1 are left
 * out. */
void tr_class_counts_add(tr_class_counts_t *counts, const float *scores, const int32_t *label,
                         const float *weight, int64_t rows);
/* Sums over the ranks, for all of them. Collective; world NULL: nothing to do. */
tr_status_t tr_class_counts_reduce(tr_class_counts_t *counts, tr_world_t *world);

/* precision = hits / predicted, recall = hits / support, f1 their harmonic mean; 0 where a divisor
 * is 0. */
typedef struct {
    double precision, recall, f1;
} tr_class_score_t;
tr_class_score_t tr_class_score(const tr_class_counts_t *counts, int64_t class_index);
/* Mean of the scores of those classes that occur or were predicted; weighted: by their support. */
tr_class_score_t tr_class_mean(const tr_class_counts_t *counts, bool weighted);

typedef struct {
    int64_t truth, predicted, count;
} tr_class_pair_t;
/* The up to `max` most frequent confusions of two different classes, most frequent first, equal
 * ones by class. Returns how many. */
size_t tr_class_confusions(const tr_class_counts_t *counts, size_t max, tr_class_pair_t *out);

/* -- targets of a regression ------------------------------------------------------------------- */

/* Per target: sums of |error| and error^2, mean of the targets and sum of their squared distances
 * from it. */
typedef struct {
    int64_t targets, samples;
    double *absolute, *squared, *mean, *spread; /* [targets] */
} tr_target_sums_t;

tr_status_t tr_target_sums_create(int64_t targets, tr_target_sums_t **out);
void tr_target_sums_destroy(tr_target_sums_t **sums);
/* predicted, truth (rows, targets); rows with weight 0 are left out. */
void tr_target_sums_add(tr_target_sums_t *sums, const float *predicted, const float *truth,
                        const float *weight, int64_t rows);
/* Collective; world NULL: nothing to do. */
tr_status_t tr_target_sums_reduce(tr_target_sums_t *sums, tr_world_t *world);

/* r2 = 1 - squared errors / spread of the target; NaN for a target that is the same everywhere. */
typedef struct {
    double mse, mae, r2;
} tr_target_score_t;
tr_target_score_t tr_target_score(const tr_target_sums_t *sums, int64_t target);
/* Over all targets; r2 is the mean of those that have one. */
tr_target_score_t tr_target_mean(const tr_target_sums_t *sums);

#endif
