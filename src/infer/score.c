/* Counts of classes, and the scores that follow from them. */
#include "score.h"
#include "base/mem.h"
#include "base/stats.h"

#include <math.h>

/* All counts are one block, so that one reduction sums them. */
static int64_t class_block(const tr_class_counts_t *c) {
    return 3 * c->classes + 1 + (c->classes <= TR_CONFUSION_MAX ? c->classes * c->classes : 0);
}

tr_status_t tr_class_counts_create(int64_t classes, tr_class_counts_t **out) {
    tr_class_counts_t *c = NULL;
    TR_TRY(tr_alloc(sizeof *c, "class counts", &c));
    c->classes = classes;
    const tr_status_t status =
        tr_alloc((size_t)class_block(c) * sizeof *c->support, "class counts", &c->support);
    if (status != TR_OK) {
        tr_free(&c);
        return status;
    }
    c->predicted = c->support + classes;
    c->hits = c->predicted + classes;
    c->unclear = c->hits + classes;
    if (classes <= TR_CONFUSION_MAX) c->pairs = c->unclear + 1;
    *out = c;
    return TR_OK;
}

void tr_class_counts_destroy(tr_class_counts_t **counts) {
    if (*counts) tr_free(&(*counts)->support);
    tr_free(counts);
}

void tr_class_probabilities(const float *scores, int64_t classes, float *out) {
    float most = scores[0];
    for (int64_t i = 1; i < classes; i++) most = fmaxf(most, scores[i]);
    const double largest = most;
    double sum = 0;
    for (int64_t i = 0; i < classes; i++) sum += exp(scores[i] - largest);
    for (int64_t i = 0; i < classes; i++) out[i] = (float)(exp(scores[i] - largest) / sum);
}

void tr_class_counts_add(tr_class_counts_t *c, const float *scores, const int32_t *label,
                         const float *weight, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) {
        if (weight[i] == 0 || label[i] < 0) continue;
        const int64_t truth = label[i], found = tr_class_of(scores + i * c->classes, c->classes);
        c->support[truth]++;
        if (found < 0) {
            ++*c->unclear;
            continue;
        }
        c->predicted[found]++;
        c->hits[truth] += truth == found;
        if (c->pairs) c->pairs[truth * c->classes + found]++;
    }
}

void tr_class_counts_take(tr_class_counts_t *c, const int64_t *confusion) {
    for (int64_t i = 0; i < c->classes; i++, confusion += c->classes + 1) {
        for (int64_t k = 0; k < c->classes; k++) {
            c->predicted[k] += confusion[k];
            if (c->pairs) c->pairs[i * c->classes + k] += confusion[k];
            c->support[i] += confusion[k];
        }
        c->hits[i] += confusion[i];
        c->support[i] += confusion[c->classes];
        *c->unclear += confusion[c->classes];
    }
}

tr_status_t tr_class_counts_reduce(tr_class_counts_t *c, tr_world_t *world) {
    if (!world) return TR_OK;
    return tr_world_allreduce_int(world, c->support, (int)class_block(c), TR_REDUCE_SUM);
}

static double score_ratio(int64_t part, int64_t whole) {
    return whole > 0 ? (double)part / (double)whole : 0;
}

tr_class_score_t tr_class_score(const tr_class_counts_t *c, int64_t i) {
    return (tr_class_score_t){
        .precision = score_ratio(c->hits[i], c->predicted[i]),
        .recall = score_ratio(c->hits[i], c->support[i]),
        .f1 = score_ratio(2 * c->hits[i], c->predicted[i] + c->support[i]),
        .iou = score_ratio(c->hits[i], c->predicted[i] + c->support[i] - c->hits[i])};
}

tr_class_score_t tr_class_mean(const tr_class_counts_t *c, bool weighted) {
    tr_class_score_t sum = {0};
    double weights = 0;
    for (int64_t i = 0; i < c->classes; i++) {
        if (c->support[i] + c->predicted[i] == 0) continue;
        const double weight = weighted ? (double)c->support[i] : 1;
        const tr_class_score_t score = tr_class_score(c, i);
        sum.precision += weight * score.precision;
        sum.recall += weight * score.recall;
        sum.f1 += weight * score.f1;
        sum.iou += weight * score.iou;
        weights += weight;
    }
    if (weights > 0)
        sum = (tr_class_score_t){sum.precision / weights, sum.recall / weights, sum.f1 / weights,
                                 sum.iou / weights};
    return sum;
}

size_t tr_class_confusions(const tr_class_counts_t *c, size_t max, tr_class_pair_t *out) {
    size_t found = 0;
    if (!c->pairs || max == 0) return 0;
    for (int64_t k = 0; k < c->classes * c->classes; k++) {
        const tr_class_pair_t pair = {k / c->classes, k % c->classes, c->pairs[k]};
        if (pair.count == 0 || pair.truth == pair.predicted) continue;
        if (found == max && pair.count <= out[max - 1].count) continue;
        size_t place = found < max ? found++ : max - 1;
        for (; place > 0 && out[place - 1].count < pair.count; place--) out[place] = out[place - 1];
        out[place] = pair;
    }
    return found;
}
