/* Counts the labels of an evaluation. */
#include "baseline.h"
#include "base/mem.h"

#include <math.h>

struct tr_baseline {
    const tr_session_t *s;
    int y;          /* index of the field */
    double *counts; /* [classes] */
};

tr_status_t tr_baseline_create(const tr_session_t *s, tr_baseline_t **out) {
    const int y = tr_field_find(&s->info, "y");
    tr_baseline_t *b = NULL;
    *out = NULL;
    if (y < 0 || s->info.tokens > 0 || s->info.classes == 0 || !s->has_accuracy ||
        s->info.field[y].shape.ndim > 0)
        return TR_OK;
    TR_TRY(tr_alloc(sizeof *b, "counts of labels", &b));
    b->s = s;
    b->y = y;
    const tr_status_t status = tr_alloc((size_t)s->info.classes * sizeof *b->counts,
                                        "counts of labels", &b->counts);
    if (status == TR_OK)
        *out = b;
    else
        tr_free(&b);
    return status;
}

void tr_baseline_destroy(tr_baseline_t **baseline) {
    if (*baseline) tr_free(&(*baseline)->counts);
    tr_free(baseline);
}

void tr_baseline_add(tr_baseline_t *b, const tr_batch_t *batch) {
    const int32_t *label = batch->field[b->y];
    for (int64_t i = 0; i < batch->valid; i++)
        if (batch->weight[i] != 0 && label[i] >= 0) b->counts[label[i]]++;
}

tr_status_t tr_baseline_share(tr_baseline_t *b, double *out) {
    double most = 0, all = 0;
    *out = NAN;
    if (!b) return TR_OK;
    if (b->s->world)
        TR_TRY(tr_world_allreduce(b->s->world, b->counts, (int)b->s->info.classes, TR_REDUCE_SUM));
    for (int64_t c = 0; c < b->s->info.classes; c++) {
        most = fmax(most, b->counts[c]);
        all += b->counts[c];
    }
    if (all > 0) *out = most / all;
    return TR_OK;
}
