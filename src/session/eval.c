/* One pass over a split with the eval program. On an asynchronous device, the sums of a batch, and
 * the outputs of a regression, are read one batch later. They are added here in double, because f32
 * can count only to 2^24. */
#include "eval.h"
#include "base/clock.h"
#include "base/mem.h"
#include "baseline.h"
#include "comm/watchdog.h"
#include "ema.h"
#include "flight.h"

#include <math.h>
#include <string.h>

#define AGREE_SEC 0.1 /* between two checks whether a rank was asked to stop */

struct tr_evaluation {
    tr_loader_t *loader;
    tr_flight_t *flight;
};

typedef struct {
    tr_session_t *s;
    tr_flight_t *flight;
    tr_eval_each_t each;
    tr_baseline_t *baseline; /* NULL: none */
    double sums[TR_SUM_COUNT];
    int y;                /* index of the field "y" */
    int64_t batches;      /* enqueued */
    bool has_more, waits; /* more batches remain; wait after each */
} eval_pass_t;

void tr_evaluation_destroy(tr_evaluation_t **evaluation) {
    tr_evaluation_t *e = *evaluation;
    if (!e) return;
    tr_flight_destroy(&e->flight);
    tr_loader_destroy(&e->loader);
    tr_free(evaluation);
}

/* Scores of labels or targets of positions, at the start of a result: i64 or f64. */
static size_t eval_scores(const tr_session_t *s) {
    return tr_is_none(s->result.scores)
               ? 0
               : (size_t)tr_shape_elems(tr_shape_of(s->g, s->result.scores));
}

/* Outputs that the host needs for the scores of a regression. */
static size_t eval_outputs(const tr_session_t *s) {
    return eval_scores(s) > 0 ? 0 : (size_t)(s->order.micro_batch * s->targets);
}

static tr_status_t evaluation_create(tr_session_t *s, tr_split_t split, tr_evaluation_t **out) {
    tr_evaluation_t *e = NULL;
    TR_TRY(tr_alloc(sizeof *e, "an evaluation", &e));
    tr_status_t status = tr_session_loader(s, split, true, 0, &e->loader);
    if (status == TR_OK)
        status = tr_flight_create(s, e->loader,
                                  eval_scores(s) * sizeof(int64_t) +
                                      (TR_SUM_COUNT + eval_outputs(s)) * sizeof(float),
                                  &e->flight);
    if (status == TR_OK)
        *out = e;
    else
        tr_evaluation_destroy(&e);
    return status;
}

static void eval_add_scores(tr_session_t *s, const void *scores) {
    const tr_normalize_t *n = &s->preprocess->target;
    const int64_t *count = scores;
    if (s->confusion)
        for (size_t i = 0; i < eval_scores(s); i++) s->confusion[i] += count[i];
    else if (eval_scores(s) > 0)
        tr_target_sums_merge(s->target_sums, scores, n->mean.data, n->std.data, n->mean.count);
}

/* Adds the sums of the oldest batch. newest: number of batches fed since. */
static tr_status_t eval_take_sums(eval_pass_t *p, int newest) {
    const tr_batch_t *batch = tr_flight_oldest(p->flight, newest);
    const int64_t number = p->batches - 1 - newest;
    if (!batch) return TR_OK;
    TR_TRY(tr_flight_wait(p->flight, number, newest));
    const int64_t *scores = tr_flight_result(p->flight, number);
    const float *sums = (const float *)(const void *)(scores + eval_scores(p->s));
    for (int i = 0; i < TR_SUM_COUNT; i++) p->sums[i] += sums[i];
    eval_add_scores(p->s, scores);
    if (eval_outputs(p->s) > 0)
        tr_target_sums_add(p->s->target_sums, sums + TR_SUM_COUNT, batch->field[p->y],
                           batch->weight, p->s->order.micro_batch);
    if (p->baseline) tr_baseline_add(p->baseline, batch);
    if (number < p->each.batches) TR_TRY(p->each.call(p->each.self, p->s, batch));
    return tr_flight_release(p->flight, newest);
}

static tr_status_t eval_run_batch(eval_pass_t *p) {
    tr_session_t *s = p->s;
    const tr_batch_t *batch;
    TR_TRY(tr_flight_feed(p->flight, p->batches, NULL, &batch));
    p->has_more = batch != NULL;
    if (!batch) return eval_take_sums(p, 0);
    const int64_t number = p->batches++;
    TR_TRY(tr_program_run(s->g, s->eval, NULL));
    TR_TRY(tr_feed_used(s->feed));
    int64_t *scores = tr_flight_result(p->flight, number);
    float *sums = (float *)(void *)(scores + eval_scores(s));
    if (eval_scores(s) > 0) TR_TRY(tr_flight_read(p->flight, s->result.scores, scores));
    TR_TRY(tr_flight_read(p->flight, s->sums, sums));
    if (eval_outputs(s) > 0)
        TR_TRY(tr_flight_read(p->flight, s->result.output, sums + TR_SUM_COUNT));
    TR_TRY(tr_flight_mark(p->flight, number));
    TR_TRY(eval_take_sums(p, p->waits || number < p->each.batches ? 0 : 1));
    tr_watchdog_mark(s->world);
    return TR_OK;
}

/* Ranks may have different numbers of batches. They agree about every AGREE_SEC, after as many
 * batches as the slowest rank completes in that time; fewer if they take long or the rank is asked
 * to stop. */
static tr_status_t eval_run_until_asked(eval_pass_t *p, tr_asked_fn asked, bool *out_stopped) {
    enum { STOP, MORE, SEC, COUNT };
    for (double most = 1;;) {
        const double start = tr_clock_sec();
        double all[COUNT], done = 0;
        while (p->has_more && done < most && !asked() && tr_clock_sec() - start < 2 * AGREE_SEC) {
            TR_TRY(eval_run_batch(p));
            done++;
        }
        all[STOP] = asked() != 0;
        all[MORE] = p->has_more;
        all[SEC] = done > 0 ? (tr_clock_sec() - start) / done : 0;
        if (p->s->world) TR_TRY(tr_world_allreduce(p->s->world, all, COUNT, TR_REDUCE_MAX));
        *out_stopped = all[STOP] > 0 && all[MORE] > 0;
        if (*out_stopped || all[MORE] == 0) return TR_OK;
        most = fmax(1, fmin(2 * most, AGREE_SEC / all[SEC]));
    }
}

static tr_status_t eval_run_pass(eval_pass_t *p, tr_asked_fn asked, bool *out_stopped) {
    TR_TRY(tr_ema_begin(p->s));
    if (asked) TR_TRY(eval_run_until_asked(p, asked, out_stopped));
    while (p->has_more && !asked) TR_TRY(eval_run_batch(p));
    TR_TRY(eval_take_sums(p, 0));
    return tr_ema_end(p->s);
}

/* A NaN with positive sign: a sign would be printed. */
static double eval_mean(double sum, double n) {
    return isnan(sum / n) ? NAN : sum / n;
}

/* Sets the scores that follow from the confusion matrix (classes, classes + 1), exact for any number
 * of positions; the last column counts outputs that are not finite. */
static void eval_score_classes(const int64_t *count, int64_t classes, bool has_baseline,
                               tr_eval_outcome_t *out) {
    double all = 0, hits = 0, most = 0, sum = 0, occur = 0;
    for (int64_t c = 0; c < classes; c++) {
        double support = 0, predicted = 0;
        const double hit = (double)count[c * (classes + 1) + c];
        for (int64_t k = 0; k <= classes; k++) support += (double)count[c * (classes + 1) + k];
        for (int64_t k = 0; k < classes; k++) predicted += (double)count[k * (classes + 1) + c];
        all += support;
        hits += hit;
        most = fmax(most, support);
        if (support + predicted == 0) continue;
        sum += hit / (support + predicted - hit);
        occur++;
    }
    out->accuracy = all > 0 ? hits / all : NAN;
    out->iou = occur > 0 ? sum / occur : NAN;
    if (has_baseline && all > 0) out->baseline_accuracy = most / all;
}

/* Memory for the scores of the pass, empty. */
static tr_status_t eval_prepare_scores(tr_session_t *s) {
    const size_t cells = eval_scores(s);
    if (s->target_sums) tr_target_sums_reset(s->target_sums);
    if (s->targets > 0 && !s->target_sums)
        TR_TRY(tr_target_sums_create(s->targets, &s->target_sums));
    if (cells > 0 && s->info.classes > 0 && !s->confusion)
        TR_TRY(tr_alloc(cells * sizeof *s->confusion, "the confusion matrix", &s->confusion));
    if (s->confusion) memset(s->confusion, 0, cells * sizeof *s->confusion);
    return TR_OK;
}

tr_status_t tr_session_evaluate(tr_session_t *s, tr_split_t split, const tr_eval_each_t *each,
                                tr_asked_fn asked, tr_eval_outcome_t *out) {
    const bool is_validation = tr_session_trains(s) && split == TR_SPLIT_VALID;
    tr_evaluation_t *e = is_validation ? s->validation : NULL;
    eval_pass_t pass = {.s = s,
                        .each = each ? *each : (tr_eval_each_t){0},
                        .y = tr_field_find(&s->info, "y"),
                        .has_more = true,
                        .waits = s->device->immediate || s->data.prefetch == 1};
    tr_target_score_t target = {.mae = NAN, .r2 = NAN, .iou = NAN};
    double share = NAN, mean_loss = NAN; /* of the baseline */
    bool stopped = false;
    TR_TRY(eval_prepare_scores(s));
    /* Validations reuse one loader, unless a pass over it was not completed. */
    if (is_validation) s->validation = NULL;
    tr_status_t status = e ? tr_loader_restart(e->loader) : evaluation_create(s, split, &e);
    if (status == TR_OK && !is_validation) status = tr_baseline_create(s, &pass.baseline);
    if (status == TR_OK) {
        pass.flight = e->flight;
        status = eval_run_pass(&pass, asked, &stopped);
    }
    if (is_validation && status == TR_OK && !stopped)
        s->validation = e;
    else
        tr_evaluation_destroy(&e);
    if (status == TR_OK && s->world)
        status = tr_world_allreduce(s->world, pass.sums, TR_SUM_COUNT, TR_REDUCE_SUM);
    if (status == TR_OK && s->world && s->confusion)
        status = tr_world_allreduce_int(s->world, s->confusion, (int)eval_scores(s), TR_REDUCE_SUM);
    if (status == TR_OK && s->targets > 0) {
        status = tr_target_sums_reduce(s->target_sums, s->world);
        if (status == TR_OK) target = tr_target_mean(s->target_sums);
        if (status == TR_OK && !is_validation &&
            (s->model.loss == TR_LOSS_MSE || s->model.loss == TR_LOSS_AUTO))
            mean_loss = tr_target_baseline(s->target_sums, s->preprocess->target.std.data,
                                           s->preprocess->target.std.count);
    }
    if (status == TR_OK) status = tr_baseline_share(pass.baseline, &share);
    tr_baseline_destroy(&pass.baseline);
    const double n = pass.sums[TR_SUM_TERMS];
    *out = (tr_eval_outcome_t){
        .stopped = stopped,
        .terms = n,
        .loss = eval_mean(pass.sums[TR_SUM_LOSS], n),
        .accuracy = s->has_accuracy ? eval_mean(pass.sums[TR_SUM_CORRECT], n) : NAN,
        .topk = s->has_accuracy && s->model.topk > 1 ? eval_mean(pass.sums[TR_SUM_TOPK], n) : NAN,
        .iou = tr_session_has_masks(s) ? target.iou : NAN,
        .r2 = s->model.loss == TR_LOSS_BINARY_CROSS_ENTROPY ? NAN : target.r2,
        .baseline_accuracy = share,
        .baseline_loss = mean_loss};
    if (s->confusion) eval_score_classes(s->confusion, s->info.classes, !is_validation, out);
    return status;
}
