/*
 * Scores of a trained classifier over a data set, of samples or of their positions. Each rank adds its batches; the ranks are summed
 * once. Counts are integers and therefore equal for any number of ranks.
 */
#ifndef TR_INFER_SCORE_H
#define TR_INFER_SCORE_H

#include "comm/comm.h"

#define TR_CONFUSION_MAX 2048 /* most classes with a confusion matrix: 32 MiB */

typedef struct {
    int64_t classes;
    int64_t *support;   /* [classes] samples of the class */
    int64_t *predicted; /* [classes] samples predicted as the class */
    int64_t *hits;      /* [classes] samples of the class predicted correctly */
    /* [classes * classes] (true class, predicted class); NULL for more than TR_CONFUSION_MAX */
    int64_t *pairs;
    int64_t *unclear; /* [1] samples with a NaN score, which have no prediction */
} tr_class_counts_t;

tr_status_t tr_class_counts_create(int64_t classes, tr_class_counts_t **out);
void tr_class_counts_destroy(tr_class_counts_t **counts);
/* Softmax of `classes` scores; in place if out is scores. */
void tr_class_probabilities(const float *scores, int64_t classes, float *out);
/* scores (rows, classes), label (rows) in [0, classes). Skips rows with weight 0 or label -1. */
void tr_class_counts_add(tr_class_counts_t *counts, const float *scores, const int32_t *label,
                         const float *weight, int64_t rows);
/* Adds the counts of tr_confusion, (classes, classes + 1). */
void tr_class_counts_take(tr_class_counts_t *counts, const int64_t *confusion);
/* Sums over all ranks. Collective; world NULL: does nothing. */
tr_status_t tr_class_counts_reduce(tr_class_counts_t *counts, tr_world_t *world);

/* precision = hits / predicted, recall = hits / support, f1 their harmonic mean, which is the Dice
 * coefficient; iou = hits / (support + predicted - hits), the Jaccard index; 0 if a divisor is 0. */
typedef struct {
    double precision, recall, f1, iou;
} tr_class_score_t;
tr_class_score_t tr_class_score(const tr_class_counts_t *counts, int64_t class_index);
/* Mean score of the classes that occur or were predicted; weighted: by support. */
tr_class_score_t tr_class_mean(const tr_class_counts_t *counts, bool weighted);

typedef struct {
    int64_t truth, predicted, count;
} tr_class_pair_t;
/* The most frequent confusions of two classes, at most `max`, in descending order, then by class.
 * Returns their number. */
size_t tr_class_confusions(const tr_class_counts_t *counts, size_t max, tr_class_pair_t *out);

#endif
