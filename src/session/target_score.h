/*
 * Scores of a regression over a data set. Each rank adds its batches; the ranks are summed once.
 */
#ifndef TR_SESSION_TARGET_SCORE_H
#define TR_SESSION_TARGET_SCORE_H

#include "comm/comm.h"

/* Per target: sums of |error| and error^2, mean of the target and sum of squared differences from
 * it; of probabilities, how often the target, the prediction, and both are at least 1/2. */
typedef struct {
    int64_t targets;
    double *count; /* [targets] numbers that were predicted: samples, or positions */
    double *absolute, *squared, *mean, *spread; /* [targets] */
    double *both, *found, *truth;               /* [targets] */
} tr_target_sums_t;

tr_status_t tr_target_sums_create(int64_t targets, tr_target_sums_t **out);
void tr_target_sums_destroy(tr_target_sums_t **sums);
/* As after tr_target_sums_create. */
void tr_target_sums_reset(tr_target_sums_t *sums);
/* predicted, truth (rows, targets). Skips rows with weight 0. */
void tr_target_sums_add(tr_target_sums_t *sums, const float *predicted, const float *truth,
                        const float *weight, int64_t rows);
/* Adds sums of tr_target_sums, f64 (targets, TR_TARGET_SUM_COUNT), of values that are normalised with
 * `std` and `mean` (count values, repeated; count 0: not normalised). */
void tr_target_sums_merge(tr_target_sums_t *sums, const double *added, const float *mean,
                          const float *std, size_t count);
/* Sums over all ranks. Collective; world NULL: does nothing. */
tr_status_t tr_target_sums_reduce(tr_target_sums_t *sums, tr_world_t *world);

/* r2 = 1 - squared errors / spread of the target, the coefficient of determination; NaN for a
 * constant target (Draper and Smith, Applied Regression Analysis, 1998, chapter 1). iou, dice: of
 * probabilities, at the threshold 1/2, the Jaccard index both / (found + truth - both) and the Dice
 * coefficient 2 both / (found + truth); NaN where nothing is there or found. */
typedef struct {
    double mse, mae, r2, iou, dice;
} tr_target_score_t;
tr_target_score_t tr_target_score(const tr_target_sums_t *sums, int64_t target);
/* Over all targets; r2, iou and dice are the means of those that have one, as `uniform_average` of
 * scikit-learn's r2_score and of torchmetrics' R2Score. */
tr_target_score_t tr_target_mean(const tr_target_sums_t *sums);
/* The mean squared error of predicting the mean of each target, over all targets in units of `std`
 * (count values, repeated; count 0: of the data). NaN without samples. */
double tr_target_baseline(const tr_target_sums_t *sums, const float *std, size_t count);

#endif
