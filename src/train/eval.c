/* One pass over a split's data with the eval program. A batch's sums are read and added up here, in
 * double: f32 would count to 2^24 only. */
#include "ema.h"
#include "feed.h"
#include "session.h"
#include "trainer/clock.h"
#include "comm/watchdog.h"

#include <math.h>

#define AGREE_SEC 0.1 /* between two looks at whether some rank was asked to stop */

typedef struct {
    tr_session_t *s;
    tr_loader_t *loader;
    tr_eval_batch_fn each;
    void *self;
    double sums[TR_SUM_COUNT];
    bool has_more; /* batches */
} pass_t;

static tr_status_t run_batch(pass_t *p) {
    tr_session_t *s = p->s;
    tr_batch_t *batch = NULL;
    float part[TR_SUM_COUNT];
    TR_TRY(tr_loader_next(p->loader, &batch));
    p->has_more = batch != NULL;
    if (!batch) return TR_OK;
    TR_TRY(tr_feed_next(s->feed, batch, NULL));
    TR_TRY(tr_graph_zero_reduced(s->g, false));
    TR_TRY(tr_program_run(s->g, s->eval, NULL));
    TR_TRY(tr_feed_used(s->feed));
    TR_TRY(tr_tensor_read(s->g, s->sums, part));
    tr_feed_settled(s->feed, 0);
    for (int i = 0; i < TR_SUM_COUNT; i++) p->sums[i] += part[i];
    if (p->each) TR_TRY(p->each(p->self, s, batch));
    TR_TRY(tr_loader_release(p->loader, batch));
    tr_watchdog_mark(s->world);
    return TR_OK;
}

/* Up to `most` batches of this rank: fewer where they take long all at once, or the rank is asked
 * to stop. */
static tr_status_t run_some(pass_t *p, tr_asked_fn asked, double most, double *out_stop,
                            double *out_batch_sec) {
    const double start = tr_clock_sec();
    double done = 0;
    while (p->has_more && done < most && !asked() && tr_clock_sec() - start < 2 * AGREE_SEC) {
        TR_TRY(run_batch(p));
        done++;
    }
    *out_stop = asked() != 0;
    *out_batch_sec = done > 0 ? (tr_clock_sec() - start) / done : 0;
    return TR_OK;
}

/* Ranks need not have equally many batches: they agree about every AGREE_SEC, behind as many as the
 * slowest does in that time. */
static tr_status_t run_until_asked(pass_t *p, tr_asked_fn asked, bool *out_stopped) {
    enum { STOP, MORE, SEC, COUNT };
    for (double most = 1;;) {
        double all[COUNT];
        TR_TRY(run_some(p, asked, most, &all[STOP], &all[SEC]));
        all[MORE] = p->has_more;
        if (p->s->world) TR_TRY(tr_world_allreduce(p->s->world, all, COUNT, TR_REDUCE_MAX));
        *out_stopped = all[STOP] > 0 && all[MORE] > 0;
        if (*out_stopped || all[MORE] == 0) return TR_OK;
        most = fmax(1, fmin(2 * most, AGREE_SEC / all[SEC]));
    }
}

/* A NaN without a sign, which would be printed. */
static double mean(double sum, double n) {
    return isnan(sum / n) ? NAN : sum / n;
}

tr_status_t tr_session_evaluate(tr_session_t *s, tr_split_t split, tr_eval_batch_fn each,
                                void *self, tr_asked_fn asked, tr_eval_outcome_t *out) {
    pass_t pass = {.s = s, .each = each, .self = self, .has_more = true};
    double *sums = pass.sums;
    bool stopped = false;
    tr_status_t status = TR_OK;
    TR_TRY(tr_session_loader(s, split, true, 0, &pass.loader));
    TR_TRY_GOTO(tr_ema_begin(s), done);
    if (asked) TR_TRY_GOTO(run_until_asked(&pass, asked, &stopped), done);
    while (pass.has_more && !asked) TR_TRY_GOTO(run_batch(&pass), done);
    TR_TRY_GOTO(tr_ema_end(s), done);
    if (s->world)
        TR_TRY_GOTO(tr_world_allreduce(s->world, sums, TR_SUM_COUNT, TR_REDUCE_SUM), done);
    const double n = sums[TR_SUM_TERMS];
    *out = (tr_eval_outcome_t){
        .stopped = stopped,
        .terms = n,
        .loss = mean(sums[TR_SUM_LOSS], n),
        .accuracy = s->has_accuracy ? mean(sums[TR_SUM_CORRECT], n) : NAN,
        .topk = s->has_accuracy && s->model.topk > 1 ? mean(sums[TR_SUM_TOPK], n) : NAN};
done:
    tr_loader_destroy(&pass.loader);
    return status;
}
