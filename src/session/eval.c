/* One pass over a split with the eval program. On an asynchronous device, the sums of a batch are
 * read one batch later. They are added here in double, because f32 can count only to 2^24. */
#include "ema.h"
#include "feed.h"
#include "session.h"
#include "base/clock.h"
#include "base/mem.h"
#include "comm/watchdog.h"

#include <math.h>

#define AGREE_SEC 0.1 /* between two checks whether a rank was asked to stop */

enum { RING = 2 }; /* batches whose sums are being copied */

struct tr_evaluation {
    tr_session_t *s;
    tr_loader_t *loader;
    float (*sums)[TR_SUM_COUNT]; /* [RING], pinned */
    tr_event_t *known[RING];     /* the copies to sums[i] are done */
};

typedef struct {
    tr_session_t *s;
    tr_evaluation_t *e;
    tr_eval_batch_fn each;
    void *self;
    double sums[TR_SUM_COUNT];
    int64_t batches;      /* enqueued */
    tr_batch_t *pending;  /* its sums are not read yet; NULL: none */
    bool has_more, waits; /* more batches remain; wait after each */
} pass_t;

/* -- state kept between passes ----------------------------------------------------------------- */

void tr_evaluation_destroy(tr_evaluation_t **evaluation) {
    tr_evaluation_t *e = *evaluation;
    if (!e) return;
    const tr_device_ops_t *ops = e->s->device->ops;
    (void)tr_graph_sync(e->s->g); /* copies may be under way from batches */
    tr_loader_destroy(&e->loader);
    for (int i = 0; i < RING; i++)
        if (e->known[i]) ops->event_destroy(e->s->device, e->known[i]);
    if (e->sums) ops->host_free(e->s->device, e->sums);
    tr_free(evaluation);
}

static tr_status_t create(tr_session_t *s, tr_split_t split, tr_evaluation_t **out) {
    const tr_device_ops_t *ops = s->device->ops;
    tr_evaluation_t *e = NULL;
    tr_status_t status = TR_OK;
    void *sums = NULL;
    TR_TRY(tr_alloc(sizeof *e, "an evaluation", &e));
    e->s = s;
    TR_TRY_GOTO(ops->host_alloc(s->device, RING * sizeof *e->sums, &sums), fail);
    e->sums = sums;
    for (int i = 0; i < RING; i++) TR_TRY_GOTO(ops->event_create(s->device, 0, &e->known[i]), fail);
    TR_TRY_GOTO(tr_session_loader(s, split, true, 0, &e->loader), fail);
    *out = e;
    return TR_OK;
fail:
    tr_evaluation_destroy(&e);
    return status;
}

/* Validations reuse one loader. */
static bool is_kept(const tr_session_t *s, tr_split_t split) {
    return s->params.training && split == TR_SPLIT_VALID;
}

static tr_status_t begin(tr_session_t *s, tr_split_t split, tr_evaluation_t **out) {
    if (!is_kept(s, split) || !s->validation) return create(s, split, out);
    *out = s->validation;
    s->validation = NULL;
    return tr_loader_restart((*out)->loader);
}

static void end(tr_session_t *s, tr_split_t split, bool is_whole, tr_evaluation_t **e) {
    if (is_kept(s, split) && is_whole)
        s->validation = *e;
    else
        tr_evaluation_destroy(e);
}

/* -- batches ----------------------------------------------------------------------------------- */

/* newest: number of batches fed since. */
static tr_status_t settle(pass_t *p, int newest) {
    tr_session_t *s = p->s;
    tr_batch_t *batch = p->pending;
    const int64_t at = (p->batches - 1 - newest) % RING;
    if (!batch) return TR_OK;
    p->pending = NULL;
    TR_TRY(s->device->ops->event_sync(s->device, p->e->known[at]));
    tr_feed_settled(s->feed, newest);
    for (int i = 0; i < TR_SUM_COUNT; i++) p->sums[i] += p->e->sums[at][i];
    if (p->each) TR_TRY(p->each(p->self, s, batch));
    return tr_loader_release(p->e->loader, batch);
}

static tr_status_t enqueue(pass_t *p, const tr_batch_t *batch) {
    tr_session_t *s = p->s;
    const tr_device_ops_t *ops = s->device->ops;
    const tr_tensor_info_t *sums = tr_tensor_info(s->g, s->sums);
    const int64_t at = p->batches++ % RING;
    TR_TRY(tr_feed_next(s->feed, batch, NULL));
    TR_TRY(tr_program_run(s->g, s->eval, NULL));
    TR_TRY(tr_feed_used(s->feed));
    TR_TRY(ops->copy(s->device, tr_graph_stream(s->g), p->e->sums[at], sums->data, sums->bytes,
                     TR_COPY_TO_HOST));
    return ops->event_record(s->device, p->e->known[at], tr_graph_stream(s->g));
}

static tr_status_t run_batch(pass_t *p) {
    tr_batch_t *batch = NULL;
    TR_TRY(tr_loader_next(p->e->loader, &batch));
    p->has_more = batch != NULL;
    if (!batch) return settle(p, 0);
    TR_TRY(enqueue(p, batch));
    TR_TRY(settle(p, 1));
    p->pending = batch;
    if (p->waits) TR_TRY(settle(p, 0));
    tr_watchdog_mark(p->s->world);
    return TR_OK;
}

/* Processes up to `most` batches of this rank; fewer if they take long or the rank is asked to
 * stop. */
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

/* Ranks may have different numbers of batches. They agree about every AGREE_SEC, after as many
 * batches as the slowest rank completes in that time. */
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

/* A NaN with positive sign: a sign would be printed. */
static double mean(double sum, double n) {
    return isnan(sum / n) ? NAN : sum / n;
}

static tr_status_t run_pass(pass_t *p, tr_asked_fn asked, bool *out_stopped) {
    TR_TRY(tr_ema_begin(p->s));
    if (asked) TR_TRY(run_until_asked(p, asked, out_stopped));
    while (p->has_more && !asked) TR_TRY(run_batch(p));
    TR_TRY(settle(p, 0));
    return tr_ema_end(p->s);
}

tr_status_t tr_session_evaluate(tr_session_t *s, tr_split_t split, tr_eval_batch_fn each,
                                void *self, tr_asked_fn asked, tr_eval_outcome_t *out) {
    pass_t pass = {.s = s,
                   .each = each,
                   .self = self,
                   .has_more = true,
                   .waits = s->device->immediate || each || s->data.prefetch == 1};
    double *sums = pass.sums;
    bool stopped = false;
    tr_status_t status = begin(s, split, &pass.e);
    if (status == TR_OK) status = run_pass(&pass, asked, &stopped);
    end(s, split, status == TR_OK && !stopped, &pass.e);
    TR_TRY(status);
    if (s->world) TR_TRY(tr_world_allreduce(s->world, sums, TR_SUM_COUNT, TR_REDUCE_SUM));
    const double n = sums[TR_SUM_TERMS];
    *out = (tr_eval_outcome_t){
        .stopped = stopped,
        .terms = n,
        .loss = mean(sums[TR_SUM_LOSS], n),
        .accuracy = s->has_accuracy ? mean(sums[TR_SUM_CORRECT], n) : NAN,
        .topk = s->has_accuracy && s->model.topk > 1 ? mean(sums[TR_SUM_TOPK], n) : NAN};
    return TR_OK;
}
