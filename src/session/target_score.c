/* Sums over the targets of a regression, and the scores that follow from them. */
#include "target_score.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

tr_status_t tr_target_sums_create(int64_t targets, tr_target_sums_t **out) {
    tr_target_sums_t *t = NULL;
    TR_TRY(tr_alloc(sizeof *t, "target sums", &t));
    t->targets = targets;
    const tr_status_t status =
        tr_alloc((size_t)targets * 4 * sizeof *t->absolute, "target sums", &t->absolute);
    if (status != TR_OK) {
        tr_free(&t);
        return status;
    }
    t->squared = t->absolute + targets;
    t->spread = t->squared + targets;
    t->mean = t->spread + targets;
    *out = t;
    return TR_OK;
}

void tr_target_sums_destroy(tr_target_sums_t **sums) {
    if (*sums) tr_free(&(*sums)->absolute);
    tr_free(sums);
}

void tr_target_sums_reset(tr_target_sums_t *t) {
    t->samples = 0;
    memset(t->absolute, 0, (size_t)t->targets * 4 * sizeof *t->absolute);
}

void tr_target_sums_add(tr_target_sums_t *t, const float *predicted, const float *truth,
                        const float *weight, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) {
        if (weight[i] == 0) continue;
        t->samples++;
        for (int64_t k = 0; k < t->targets; k++) {
            const double y = truth[i * t->targets + k], error = predicted[i * t->targets + k] - y;
            const double before = y - t->mean[k];
            t->absolute[k] += fabs(error);
            t->squared[k] += error * error;
            t->mean[k] += before / (double)t->samples;
            t->spread[k] += before * (y - t->mean[k]);
        }
    }
}

/* The spread about the common mean is the sum over ranks of their spread plus samples * (own mean -
 * common mean)^2, which avoids differences of large sums (Chan, Golub, LeVeque 1983). */
tr_status_t tr_target_sums_reduce(tr_target_sums_t *t, tr_world_t *world) {
    double *common = NULL;
    int64_t all = t->samples;
    tr_status_t status = TR_OK;
    if (!world) return TR_OK;
    TR_TRY(tr_world_allreduce_int(world, &all, 1, TR_REDUCE_SUM));
    TR_TRY(tr_alloc((size_t)t->targets * sizeof *common, "target sums", &common));
    for (int64_t k = 0; k < t->targets; k++)
        common[k] = t->mean[k] * (double)t->samples / (double)all;
    TR_TRY_GOTO(tr_world_allreduce(world, common, (int)t->targets, TR_REDUCE_SUM), done);
    for (int64_t k = 0; k < t->targets; k++) {
        const double off = t->mean[k] - common[k];
        t->spread[k] += (double)t->samples * off * off;
        t->mean[k] = common[k];
    }
    t->samples = all;
    TR_TRY_GOTO(tr_world_allreduce(world, t->absolute, (int)(3 * t->targets), TR_REDUCE_SUM), done);
done:
    tr_free(&common);
    return status;
}

tr_target_score_t tr_target_score(const tr_target_sums_t *t, int64_t k) {
    /* Ignore a spread that comes from rounding a constant target: different f32 values differ by
     * more than 1e-8 of their magnitude. */
    const double n = (double)t->samples, nothing = n * t->mean[k] * t->mean[k] * 1e-28;
    return (tr_target_score_t){.mse = t->squared[k] / n,
                               .mae = t->absolute[k] / n,
                               .r2 =
                                   t->spread[k] > nothing ? 1 - t->squared[k] / t->spread[k] : NAN};
}

tr_target_score_t tr_target_mean(const tr_target_sums_t *t) {
    tr_target_score_t sum = {0};
    double with_r2 = 0;
    for (int64_t k = 0; k < t->targets; k++) {
        const tr_target_score_t score = tr_target_score(t, k);
        sum.mse += score.mse / (double)t->targets;
        sum.mae += score.mae / (double)t->targets;
        if (isnan(score.r2)) continue;
        sum.r2 += score.r2;
        with_r2++;
    }
    sum.r2 = with_r2 > 0 ? sum.r2 / with_r2 : NAN;
    return sum;
}

double tr_target_baseline(const tr_target_sums_t *t, const float *std, size_t count) {
    double sum = 0;
    for (int64_t k = 0; k < t->targets; k++) {
        const double unit = count == 0 ? 1 : std[(size_t)k % count];
        sum += t->spread[k] / (unit * unit);
    }
    return t->samples > 0 ? sum / (double)t->samples / (double)t->targets : NAN;
}
