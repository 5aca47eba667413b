/* Sums over the targets of a regression, and the scores that follow from them. */
#include "target_score.h"
#include "base/mem.h"
#include "trainer/ops.h"

#include <math.h>
#include <string.h>

enum { ARRAYS = 8 };

tr_status_t tr_target_sums_create(int64_t targets, tr_target_sums_t **out) {
    tr_target_sums_t *t = NULL;
    TR_TRY(tr_alloc(sizeof *t, "target sums", &t));
    t->targets = targets;
    const tr_status_t status =
        tr_alloc((size_t)targets * ARRAYS * sizeof *t->absolute, "target sums", &t->absolute);
    if (status != TR_OK) {
        tr_free(&t);
        return status;
    }
    t->squared = t->absolute + targets;
    t->spread = t->squared + targets;
    t->both = t->spread + targets;
    t->found = t->both + targets;
    t->truth = t->found + targets;
    t->mean = t->truth + targets;
    t->count = t->mean + targets;
    *out = t;
    return TR_OK;
}

void tr_target_sums_destroy(tr_target_sums_t **sums) {
    if (*sums) tr_free(&(*sums)->absolute);
    tr_free(sums);
}

void tr_target_sums_reset(tr_target_sums_t *t) {
    memset(t->absolute, 0, (size_t)t->targets * ARRAYS * sizeof *t->absolute);
}

void tr_target_sums_add(tr_target_sums_t *t, const float *predicted, const float *truth,
                        const float *weight, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) {
        if (weight[i] == 0) continue;
        for (int64_t k = 0; k < t->targets; k++) {
            const double y = truth[i * t->targets + k], x = predicted[i * t->targets + k],
                         error = x - y;
            const double before = y - t->mean[k];
            t->absolute[k] += fabs(error);
            t->squared[k] += error * error;
            t->mean[k] += before / ++t->count[k];
            t->spread[k] += before * (y - t->mean[k]);
            t->both[k] += y >= 0.5 && x >= 0.5;
            t->found[k] += x >= 0.5;
            t->truth[k] += y >= 0.5;
        }
    }
}

/* The spread about a common mean is the sum of the spreads of the parts plus count * (own mean -
 * common mean)^2, which avoids differences of large sums (Chan, Golub, LeVeque 1983). */
void tr_target_sums_merge(tr_target_sums_t *t, const double *added, const float *mean,
                          const float *std, size_t count) {
    for (int64_t k = 0; k < t->targets; k++, added += TR_TARGET_SUM_COUNT) {
        const double n = added[0], unit = count ? std[(size_t)k % count] : 1,
                     middle = count ? mean[(size_t)k % count] : 0;
        if (n == 0) continue;
        const double own = added[3] / n, spread = fmax(added[4] - n * own * own, 0) * unit * unit,
                     off = own * unit + middle - t->mean[k], all = t->count[k] + n;
        t->absolute[k] += added[1] * unit;
        t->squared[k] += added[2] * unit * unit;
        t->spread[k] += spread + off * off * t->count[k] * n / all;
        t->both[k] += added[5];
        t->found[k] += added[6];
        t->truth[k] += added[7];
        t->mean[k] += off * n / all;
        t->count[k] = all;
    }
}

tr_status_t tr_target_sums_reduce(tr_target_sums_t *t, tr_world_t *world) {
    double *all = NULL, *common;
    const int64_t targets = t->targets;
    tr_status_t status = TR_OK;
    if (!world) return TR_OK;
    TR_TRY(tr_alloc(2 * (size_t)targets * sizeof *all, "target sums", &all));
    common = all + targets;
    for (int64_t k = 0; k < targets; k++) {
        all[k] = t->count[k];
        common[k] = t->mean[k] * t->count[k];
    }
    TR_TRY_GOTO(tr_world_allreduce(world, all, (int)(2 * targets), TR_REDUCE_SUM), done);
    for (int64_t k = 0; k < targets; k++) {
        common[k] /= all[k] > 0 ? all[k] : 1;
        t->spread[k] += t->count[k] * (t->mean[k] - common[k]) * (t->mean[k] - common[k]);
        t->mean[k] = common[k];
        t->count[k] = all[k];
    }
    status = tr_world_allreduce(world, t->absolute, (int)(6 * targets), TR_REDUCE_SUM);
done:
    tr_free(&all);
    return status;
}

tr_target_score_t tr_target_score(const tr_target_sums_t *t, int64_t k) {
    /* Ignore a spread that comes from rounding a constant target: different f32 values differ by
     * more than 1e-8 of their magnitude. */
    const double n = t->count[k], nothing = n * t->mean[k] * t->mean[k] * 1e-28,
                 either = t->found[k] + t->truth[k] - t->both[k];
    return (tr_target_score_t){.mse = t->squared[k] / n,
                               .mae = t->absolute[k] / n,
                               .r2 =
                                   t->spread[k] > nothing ? 1 - t->squared[k] / t->spread[k] : NAN,
                               .iou = either > 0 ? t->both[k] / either : NAN,
                               .dice = either > 0 ? 2 * t->both[k] / (either + t->both[k]) : NAN};
}

/* Adds a score to *sum and *count unless it is NaN. */
static void score_add_known(double score, double *sum, double *count) {
    if (isnan(score)) return;
    *sum += score;
    ++*count;
}

tr_target_score_t tr_target_mean(const tr_target_sums_t *t) {
    tr_target_score_t sum = {0};
    double with_r2 = 0, with_iou = 0, with_dice = 0;
    for (int64_t k = 0; k < t->targets; k++) {
        const tr_target_score_t score = tr_target_score(t, k);
        sum.mse += score.mse / (double)t->targets;
        sum.mae += score.mae / (double)t->targets;
        score_add_known(score.r2, &sum.r2, &with_r2);
        score_add_known(score.iou, &sum.iou, &with_iou);
        score_add_known(score.dice, &sum.dice, &with_dice);
    }
    sum.r2 = with_r2 > 0 ? sum.r2 / with_r2 : NAN;
    sum.iou = with_iou > 0 ? sum.iou / with_iou : NAN;
    sum.dice = with_dice > 0 ? sum.dice / with_dice : NAN;
    return sum;
}

double tr_target_baseline(const tr_target_sums_t *t, const float *std, size_t count) {
    double sum = 0, all = 0;
    for (int64_t k = 0; k < t->targets; k++) {
        const double unit = count == 0 ? 1 : std[(size_t)k % count];
        sum += t->spread[k] / (unit * unit);
        all += t->count[k];
    }
    return all > 0 ? sum / all : NAN;
}
