/* One optimizer step: the slots of this rank, the reduction over slots and ranks, the update, and
 * the outcome, which is returned one step later. */
#include "feed.h"
#include "reduce_tree.h"
#include "session.h"
#include "base/clock.h"
#include "base/mem.h"
#include "comm/watchdog.h"
#include "device/loss_scale.h"

#include <math.h>
#include <string.h>

enum { RING = 2 }; /* steps whose outcome may be pending */

/* Results of a step from the device, in pinned memory. */
typedef struct {
    float sums[TR_SUM_COUNT];
    tr_step_result_t result;
    tr_loss_scale_t loss_scale; /* 0 if there is none */
} exchange_t;

/* Counters since the start: seconds of the host and of communication, and its last ticket. */
typedef struct {
    double stall, exposed, busy;
    tr_ticket_t ticket;
} times_t;

struct tr_train_step {
    tr_session_t *s;
    tr_collectives_t *collectives;
    tr_loader_t *loader;
    exchange_t *host;                     /* [RING], pinned; by step */
    tr_event_t *known[RING];              /* the copies to host[i] are done */
    tr_event_t *before;                   /* the update waits for it; NULL: none */
    bool whole;                           /* this step runs `last` and `update` in one */
    tr_feed_step_t step;                  /* of this step, for every micro-batch */
    times_t begun;                        /* counters at its start */
    times_t pending_begun, pending_ended; /* counters of the pending step */
    int64_t pending; /* the enqueued step whose outcome has not been read; -1: none */
    /* the last batch of the step whose outcome was returned last was fed `back` batches ago */
    int back;
    /* batches whose copies may be pending, oldest first; none if inputs are bound */
    tr_batch_t *copied[TR_FEED_SETS];
    int copied_count;
    /* if inputs are bound: kept until the outcome is known, to search it for non-finite values;
     * else NULL */
    tr_batch_t *last;
    /* [slot_count] tr_train_step_hold: the batches of the first step, reused; else NULL */
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
    t->pending = -1;
    TR_TRY_GOTO(s->device->ops->host_alloc(s->device, RING * sizeof *t->host, &host), fail);
    t->host = host;
    memset(host, 0, RING * sizeof *t->host);
    for (int i = 0; i < RING; i++)
        TR_TRY_GOTO(s->device->ops->event_create(s->device, 0, &t->known[i]), fail);
    *out = t;
    return TR_OK;
fail:
    tr_train_step_destroy(&t);
    return status;
}

void tr_train_step_destroy(tr_train_step_t **train_step) {
    tr_train_step_t *t = *train_step;
    if (!t) return;
    const tr_device_ops_t *ops = t->s->device->ops;
    (void)tr_graph_sync(t->s->g); /* copies to the ring and from batches may be pending */
    for (int i = 0; i < RING; i++)
        if (t->known[i]) ops->event_destroy(t->s->device, t->known[i]);
    if (t->host) ops->host_free(t->s->device, t->host);
    tr_free(&t->held);
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

/* Waits for the oldest copy and releases its batch. */
static tr_status_t release_copied(tr_train_step_t *t) {
    tr_batch_t *oldest = t->copied[0];
    TR_TRY(tr_feed_wait(t->s->feed, t->copied_count));
    for (int i = 1; i < t->copied_count; i++) t->copied[i - 1] = t->copied[i];
    t->copied_count--;
    return tr_loader_release(t->loader, oldest);
}

/* The next batch. If batches are copied, as many of the ring stay in use as there are input
 * sets. */
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

/* Keeps the batch as long as the device may read it. */
static tr_status_t put_batch(tr_train_step_t *t, tr_batch_t *batch, bool is_last) {
    if (t->held) return TR_OK;
    if (!t->s->device->immediate)
        t->copied[t->copied_count++] = batch;
    else if (is_last)
        t->last = batch;
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
    const int program = is_last || s->tree ? s->last : i == 0 ? s->first : s->micro;
    TR_TRY(t->whole ? tr_program_run_both(s->g, program, s->update, t->collectives)
                    : tr_program_run(s->g, program, t->collectives));
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

static times_t times(const tr_train_step_t *t) {
    const tr_collectives_t *c = t->collectives;
    if (!c) return (times_t){.stall = tr_loader_stall_sec(t->loader)};
    return (times_t){.stall = tr_loader_stall_sec(t->loader),
                     .exposed = c->unmeasured ? NAN : c->exposed_sec,
                     .busy = c->unmeasured ? NAN : c->busy_sec,
                     .ticket = c->started};
}

/* The times of the pending step, which is complete. By events, exactly those of its collectives;
 * by the host, what passed while the step was enqueued. */
static tr_status_t take_times(const tr_train_step_t *t, tr_step_outcome_t *out) {
    tr_collectives_t *c = t->collectives;
    times_t from = t->pending_begun, to = t->pending_ended;
    out->stall_sec = to.stall - from.stall;
    if (c && c->ops->settle) {
        TR_TRY(c->ops->settle(c, t->pending_begun.ticket));
        c->unmeasured = false;
        from = times(t);
        TR_TRY(c->ops->settle(c, t->pending_ended.ticket));
        to = times(t);
    }
    out->exposed_sec = to.exposed - from.exposed;
    out->busy_sec = to.busy - from.busy;
    return TR_OK;
}

static tr_status_t enqueue_update(tr_train_step_t *t) {
    tr_session_t *s = t->s;
    if (s->tree) TR_TRY(tr_reduce_tree_finish(s->tree, t->collectives));
    if (t->before) TR_TRY(s->device->ops->event_wait(s->device, t->before, tr_graph_stream(s->g)));
    t->before = NULL;
    return tr_program_run(s->g, s->update, NULL);
}

static tr_status_t enqueue_outcome(tr_train_step_t *t) {
    tr_session_t *s = t->s;
    exchange_t *host = &t->host[t->step.step.step % RING];
    TR_TRY(tr_feed_used(s->feed)); /* `update` reads the step block, too */
    TR_TRY(read_back(s, s->sums, host->sums));
    TR_TRY(read_back(s, tr_graph_result(s->g), &host->result));
    if (!tr_is_none(s->loss_scale)) TR_TRY(read_back(s, s->loss_scale, &host->loss_scale));
    return s->device->ops->event_record(s->device, t->known[t->step.step.step % RING],
                                        tr_graph_stream(s->g));
}

/* Waits for the pending step. newest: number of batches fed since. */
static tr_status_t take_outcome(tr_train_step_t *t, int newest, tr_step_outcome_t *out) {
    const tr_session_t *s = t->s;
    const exchange_t *host = &t->host[t->pending % RING];
    TR_TRY(s->device->ops->event_sync(s->device, t->known[t->pending % RING]));
    tr_feed_settled(s->feed, newest);
    while (t->copied_count > newest) TR_TRY(release_copied(t));
    const double n = host->sums[TR_SUM_TERMS];
    *out = (tr_step_outcome_t){
        .step = t->pending,
        .terms = n,
        .loss = host->sums[TR_SUM_LOSS] / n,
        .accuracy = s->has_accuracy ? host->sums[TR_SUM_CORRECT] / n : NAN,
        .topk = s->has_accuracy && s->model.topk > 1 ? host->sums[TR_SUM_TOPK] / n : NAN,
        .grad_norm = host->result.grad_norm,
        .finite = host->result.finite != 0,
        .overflowed = host->loss_scale.overflowed > 0,
        .loss_scale = host->loss_scale.scale,
        .overflows = (int64_t)host->loss_scale.skipped,
        .stop = host->sums[TR_SUM_STOP] > 0};
    TR_TRY(take_times(t, out));
    t->pending = -1;
    t->back = newest;
    return out->finite ? release_last(t) : TR_OK;
}

tr_status_t tr_train_step_begin(tr_train_step_t *t, int64_t step, double lr, bool stop_wanted,
                                bool may_save, tr_step_outcome_t *out) {
    const tr_session_t *s = t->s;
    *out = (tr_step_outcome_t){.step = -1};
    TR_TRY(release_last(t));
    t->begun = times(t);
    t->step = (tr_feed_step_t){.step = {.seed = (uint64_t)s->train.seed,
                                        .step = step,
                                        .lr = (float)lr,
                                        .weight_decay_scale = 1},
                               .stop = stop_wanted};
    t->whole = !may_save && s->slot_count == 1 && !s->tree && !s->device->immediate;
    TR_TRY(run_slot(t, 0));
    if (t->whole) TR_TRY(enqueue_outcome(t));
    return t->pending >= 0 ? take_outcome(t, 1, out) : TR_OK;
}

void tr_train_step_update_after(tr_train_step_t *t, tr_event_t *event) {
    t->before = event;
}

tr_status_t tr_train_step_end(tr_train_step_t *t, tr_step_outcome_t *out) {
    *out = (tr_step_outcome_t){.step = -1};
    for (int64_t i = 1; i < t->s->slot_count; i++) TR_TRY(run_slot(t, i));
    if (!t->whole) TR_TRY(enqueue_update(t));
    if (!t->whole) TR_TRY(enqueue_outcome(t));
    t->pending_begun = t->begun;
    t->pending_ended = times(t);
    t->pending = t->step.step.step;
    return t->s->device->immediate ? take_outcome(t, 0, out) : TR_OK;
}

tr_status_t tr_train_step_drain(tr_train_step_t *t, tr_step_outcome_t *out) {
    *out = (tr_step_outcome_t){.step = -1};
    return t->pending >= 0 ? take_outcome(t, 0, out) : TR_OK;
}

tr_status_t tr_train_step_run(tr_train_step_t *t, int64_t step, double lr, bool stop_wanted,
                              tr_step_outcome_t *out) {
    TR_TRY(tr_train_step_begin(t, step, lr, stop_wanted, false, out));
    TR_TRY(tr_train_step_end(t, out));
    return t->pending >= 0 ? tr_train_step_drain(t, out) : TR_OK;
}

tr_status_t tr_train_step_abandon(tr_train_step_t *t) {
    const tr_session_t *s = t->s;
    const bool has_begun = t->back > 0;
    if (!has_begun || s->tree || s->slot_count == 1) return TR_OK;
    return tr_program_run(s->g, s->last, t->collectives);
}

void tr_train_step_show(tr_train_step_t *t) {
    tr_feed_show(t->s->feed, t->back);
}
