/* Counts of labels, or sums of targets, in an evaluation. The sums are those of the values of the
 * file in double: f32 values lose a small spread about a large mean before such sums do. */
#include "baseline.h"
#include "base/mem.h"

#include <math.h>

struct tr_baseline {
    const tr_session_t *s;
    int y;            /* index of the field */
    int64_t targets;  /* 0: classes */
    int64_t capacity; /* of sums */
    /* classes: samples of each; targets: samples, then the sum and the sum of squares of each */
    double *sums;
};

tr_status_t tr_baseline_create(const tr_session_t *s, tr_baseline_t **out) {
    const int y = tr_field_find(&s->info, "y");
    const bool has_classes = s->info.classes > 0,
               has_squares = s->model.loss == TR_LOSS_MSE || s->model.loss == TR_LOSS_AUTO;
    tr_baseline_t *b = NULL;
    *out = NULL;
    if (y < 0 || s->info.tokens > 0 || (has_classes ? !s->has_accuracy : !has_squares))
        return TR_OK;
    const tr_shape_t *shape = &s->info.field[y].shape;
    if (has_classes && shape->ndim > 0) return TR_OK;
    TR_TRY(tr_alloc(sizeof *b, "sums of labels", &b));
    b->s = s;
    b->y = y;
    b->targets = has_classes ? 0 : tr_shape_elems(shape);
    b->capacity = has_classes ? s->info.classes : 1 + 2 * b->targets;
    const tr_status_t status =
        tr_alloc((size_t)b->capacity * sizeof *b->sums, "sums of labels", &b->sums);
    if (status == TR_OK)
        *out = b;
    else
        tr_free(&b);
    return status;
}

void tr_baseline_destroy(tr_baseline_t **baseline) {
    if (*baseline) tr_free(&(*baseline)->sums);
    tr_free(baseline);
}

void tr_baseline_add(tr_baseline_t *b, const tr_batch_t *batch) {
    const int32_t *label = batch->field[b->y];
    const float *target = batch->field[b->y];
    for (int64_t i = 0; i < batch->valid; i++) {
        if (batch->weight[i] == 0) continue;
        if (b->targets == 0) {
            if (label[i] >= 0) b->sums[label[i]]++;
            continue;
        }
        b->sums[0]++;
        for (int64_t k = 0; k < b->targets; k++) {
            const double y = target[i * b->targets + k];
            b->sums[1 + 2 * k] += y;
            b->sums[2 + 2 * k] += y * y;
        }
    }
}

tr_status_t tr_baseline_score(tr_baseline_t *b, tr_eval_outcome_t *out) {
    out->baseline_accuracy = out->baseline_loss = NAN;
    if (!b) return TR_OK;
    if (b->s->world)
        TR_TRY(tr_world_allreduce(b->s->world, b->sums, (int)b->capacity, TR_REDUCE_SUM));
    if (b->targets == 0) {
        double most = 0, all = 0;
        for (int64_t c = 0; c < b->capacity; c++) {
            most = fmax(most, b->sums[c]);
            all += b->sums[c];
        }
        if (all > 0) out->baseline_accuracy = most / all;
        return TR_OK;
    }
    if (b->sums[0] == 0) return TR_OK;
    /* The loss is that of normalised targets. */
    const tr_floats_t *std = &b->s->preprocess->target.std;
    double sum = 0;
    for (int64_t k = 0; k < b->targets; k++) {
        const double n = b->sums[0], mean = b->sums[1 + 2 * k] / n,
                     spread = fmax(0, b->sums[2 + 2 * k] / n - mean * mean),
                     unit = std->count == 0 ? 1 : std->data[(size_t)k % std->count];
        sum += spread / (unit * unit);
    }
    out->baseline_loss = sum / (double)b->targets;
    return TR_OK;
}
