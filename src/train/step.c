/* One optimizer step: this rank's slots, the reduction over slots and ranks, the update. */
#include "feed.h"
#include "reduce_tree.h"
#include "session.h"
#include "trainer/clock.h"
#include "trainer/mem.h"
#include "comm/watchdog.h"

#include <math.h>
#include <string.h>

/* What comes from the device each step, in memory that copies may use asynchronously. */
typedef struct {
    float sums[TR_SUM_COUNT];
    tr_step_result_t result;
} exchange_t;

struct tr_train_step {
    tr_session_t *s;
    tr_collectives_t *collectives;
    tr_loader_t *loader;
    exchange_t *host;
    tr_feed_step_t step; /* of this step, for every micro-batch */
    /* batches whose copies may not be done yet, the oldest first; none where inputs are bound */
    tr_batch_t *copied[TR_FEED_SETS];
    int copied_count;
    /* of the step, until its outcome is known: what is not finite is looked for in it; else NULL */
    tr_batch_t *last;
    /* [slot_count] tr_train_step_hold: the first step's batches, for every step; else NULL */
    tr_batch_t **held;
};

tr_status_t tr_train_step_create(tr_session_t *s, tr_collectives_t *collectives,
                                 tr_loader_t *loader, tr_train_step_t **out) {
    tr_train_step_t *t = NULL;
    tr_status_t status = TR_OK;
    void *host = NULL;
    TR_TRY(tr_alloc(sizeof *t, "train_step", &t));
    t->s = s;
    t->collectives = collectives;
    t->loader = loader;
    TR_TRY_GOTO(s->device->ops->host_alloc(s->device, sizeof *t->host, &host), fail);
    t->host = host;
    memset(host, 0, sizeof *t->host);
    *out = t;
    return TR_OK;
fail:
    tr_free(&t);
    return status;
}

void tr_train_step_destroy(tr_train_step_t **train_step) {
    if (!*train_step) return;
    (*train_step)->s->device->ops->host_free((*train_step)->s->device, (*train_step)->host);
    tr_free(&(*train_step)->held);
    tr_free(train_step);
}

tr_status_t tr_train_step_hold(tr_train_step_t *t) {
    return tr_alloc((size_t)t->s->slot_count * sizeof *t->held, "held batches", &t->held);
}

static tr_status_t read_back(const tr_session_t *s, tr_tensor_t t, void *host) {
    const tr_tensor_info_t *info = tr_tensor_info(s->g, t);
    return s->device->ops->copy(s->device, tr_graph_stream(s->g), host, info->data, info->bytes,
                                TR_COPY_TO_HOST);
}

static tr_status_t begin(tr_train_step_t *t, int64_t step, double lr, bool stop_wanted) {
    tr_session_t *s = t->s;
    t->step = (tr_feed_step_t){.step = {.seed = (uint64_t)s->train.seed,
                                        .step = step,
                                        .lr = (float)lr,
                                        .loss_scale = 1,
                                        .weight_decay_scale = 1},
                               .stop = stop_wanted};
    return tr_graph_zero_reduced(s->g, s->accumulate);
}

/* Waits for the oldest copy and gives its batch back. */
static tr_status_t release_copied(tr_train_step_t *t) {
    tr_batch_t *oldest = t->copied[0];
    TR_TRY(tr_feed_wait(t->s->feed, t->copied_count));
    for (int i = 1; i < t->copied_count; i++) t->copied[i - 1] = t->copied[i];
    t->copied_count--;
    return tr_loader_release(t->loader, oldest);
}

/* The next batch; where they are copied, as many of the ring stay in use as there are sets. */
static tr_status_t take_batch(tr_train_step_t *t, int64_t i, tr_batch_t **out) {
    const int64_t prefetch = t->s->data.prefetch,
                  most = prefetch < TR_FEED_SETS ? prefetch : TR_FEED_SETS;
    *out = t->held ? t->held[i] : NULL;
    if (*out) return TR_OK;
    while (t->copied_count > 0 && t->copied_count >= most) TR_TRY(release_copied(t));
    TR_TRY(tr_loader_next(t->loader, out));
    if (t->held) t->held[i] = *out;
    return TR_OK;
}

/* The device may still read the batch: it is kept for as long as that. */
static tr_status_t put_batch(tr_train_step_t *t, tr_batch_t *batch, bool is_last) {
    if (t->held) return TR_OK;
    if (is_last)
        t->last = batch;
    else if (!t->s->device->immediate)
        t->copied[t->copied_count++] = batch;
    else
        return tr_loader_release(t->loader, batch);
    return TR_OK;
}

static tr_status_t run_slot(tr_train_step_t *t, int64_t i) {
    tr_session_t *s = t->s;
    const bool is_last = i + 1 == s->slot_count;
    tr_batch_t *batch = NULL;
    TR_TRY(take_batch(t, i, &batch));
    TR_TRY(tr_feed_next(s->feed, batch, &t->step));
    /* every slot is a leaf of its own */
    if (s->tree && i > 0) TR_TRY(tr_graph_zero_reduced(s->g, false));
    TR_TRY(tr_program_run(s->g, is_last || s->tree ? s->last : s->micro, t->collectives));
    if (s->tree) TR_TRY(tr_reduce_tree_add(s->tree, s->first_slot + i));
    if (!is_last) TR_TRY(tr_feed_used(s->feed));
    tr_watchdog_mark(s->world);
    return put_batch(t, batch, is_last);
}

static tr_status_t release_last(tr_train_step_t *t) {
    tr_batch_t *batch = t->last;
    t->last = NULL;
    return batch ? tr_loader_release(t->loader, batch) : TR_OK;
}

static tr_status_t finish(tr_train_step_t *t, tr_step_outcome_t *out) {
    tr_session_t *s = t->s;
    if (s->tree) TR_TRY(tr_reduce_tree_finish(s->tree, t->collectives));
    TR_TRY(tr_program_run(s->g, s->update, NULL));
    TR_TRY(tr_feed_used(s->feed)); /* `update` reads the step block, too */
    TR_TRY(read_back(s, s->sums, t->host->sums));
    TR_TRY(read_back(s, tr_graph_result(s->g), &t->host->result));
    TR_TRY(tr_graph_sync(s->g));
    tr_feed_settled(s->feed);
    while (t->copied_count > 0) TR_TRY(release_copied(t));
    const float *sums = t->host->sums;
    const double n = sums[TR_SUM_TERMS];
    out->terms = n;
    out->loss = sums[TR_SUM_LOSS] / n;
    out->accuracy = s->has_accuracy ? sums[TR_SUM_CORRECT] / n : NAN;
    out->topk = s->has_accuracy && s->model.topk > 1 ? sums[TR_SUM_TOPK] / n : NAN;
    out->grad_norm = t->host->result.grad_norm;
    out->finite = t->host->result.finite != 0;
    out->stop = sums[TR_SUM_STOP] > 0;
    return TR_OK;
}

tr_status_t tr_train_step_run(tr_train_step_t *t, int64_t step, double lr, bool stop_wanted,
                              tr_step_outcome_t *out) {
    tr_collectives_t *c = t->collectives;
    const double stall = tr_loader_stall_sec(t->loader), exposed = c ? c->exposed_sec : 0,
                 busy = c ? c->busy_sec : 0;
    *out = (tr_step_outcome_t){0};
    TR_TRY(release_last(t));
    TR_TRY(begin(t, step, lr, stop_wanted));
    for (int64_t i = 0; i < t->s->slot_count; i++) TR_TRY(run_slot(t, i));
    TR_TRY(finish(t, out));
    out->stall_sec = tr_loader_stall_sec(t->loader) - stall;
    out->exposed_sec = c ? c->exposed_sec - exposed : 0;
    out->busy_sec = c ? c->busy_sec - busy : 0;
    return out->finite ? release_last(t) : TR_OK;
}
