/* One optimizer step: the slots of this rank, the reduction over slots and ranks, the update, and
 * the outcome, which is returned one step later. */
#include "step.h"
#include "base/clock.h"
#include "base/mem.h"
#include "comm/watchdog.h"
#include "device/device_trace.h"
#include "device/loss_scale.h"
#include "flight.h"
#include "reduce_tree.h"

#include <math.h>

/* Results of a step from the device, in pinned memory. */
typedef struct {
    float sums[TR_SUM_COUNT];
    tr_step_result_t result;
    tr_loss_scale_t loss_scale; /* 0 if there is none */
} step_result_t;

/* Counters since the start: seconds of the host and of communication, and its last ticket. */
typedef struct {
    double stall, exposed, busy;
    tr_ticket_t ticket;
} step_times_t;

struct tr_train_step {
    tr_session_t *s;
    tr_collectives_t *collectives;
    tr_loader_t *loader;
    tr_flight_t *flight;
    tr_event_t *before;  /* the update waits for it; NULL: none */
    bool whole;          /* this step runs `last` and `update` in one */
    tr_feed_step_t step; /* of this step, for every micro-batch */
    tr_device_span_t span;
    step_times_t begun; /* counters at its start */
    int64_t pending;    /* the enqueued step whose outcome has not been read; -1: none */
    step_times_t pending_begun, pending_ended; /* its counters */
    /* the last batch of the step whose outcome was returned last was fed `back` batches ago */
    int back;
};

tr_status_t tr_train_step_create(tr_session_t *s, tr_collectives_t *collectives,
                                 tr_loader_t *loader, tr_train_step_t **out) {
    tr_train_step_t *t = NULL;
    TR_TRY(tr_alloc(sizeof *t, "train_step", &t));
    t->s = s;
    t->collectives = collectives;
    t->loader = loader;
    t->pending = -1;
    tr_status_t status = tr_flight_create(s, loader, sizeof(step_result_t), &t->flight);
    if (status == TR_OK)
        *out = t;
    else
        tr_train_step_destroy(&t);
    return status;
}

void tr_train_step_destroy(tr_train_step_t **train_step) {
    if (!*train_step) return;
    tr_flight_destroy(&(*train_step)->flight);
    tr_free(train_step);
}

tr_status_t tr_train_step_hold(tr_train_step_t *t) {
    return tr_flight_hold(t->flight, t->s->slot_count);
}

/* The number by which slot i is fed (feed.h). */
static int64_t step_slot_number(const tr_train_step_t *t, int64_t i) {
    const tr_session_t *s = t->s;
    const int64_t most = (s->slots + s->params.size - 1) / s->params.size;
    return (t->step.step.step + 1) * most - s->slot_count + i;
}

static tr_status_t step_run_slot(tr_train_step_t *t, int64_t i) {
    tr_session_t *s = t->s;
    const bool is_last = i + 1 == s->slot_count;
    const tr_batch_t *batch;
    TR_TRY(tr_flight_feed(t->flight, step_slot_number(t, i), &t->step, &batch));
    if (!batch) return TR_FAIL(TR_ERR_INTERNAL, "The loader of the training data has ended.");
    const int program = is_last || s->tree ? s->last : i == 0 ? s->first : s->micro;
    TR_TRY(t->whole ? tr_program_run_both(s->g, program, s->update, t->collectives)
                    : tr_program_run(s->g, program, t->collectives));
    if (s->tree) TR_TRY(tr_reduce_tree_add(s->tree, s->first_slot + i));
    tr_watchdog_mark(s->world);
    if (is_last) return TR_OK;
    TR_TRY(tr_feed_used(s->feed));
    return s->device->immediate ? tr_flight_release(t->flight, 0) : TR_OK;
}

static step_times_t step_times(const tr_train_step_t *t) {
    const tr_collectives_t *c = t->collectives;
    if (!c) return (step_times_t){.stall = tr_loader_stall_sec(t->loader)};
    return (step_times_t){.stall = tr_loader_stall_sec(t->loader),
                          .exposed = c->unmeasured ? NAN : c->exposed_sec,
                          .busy = c->unmeasured ? NAN : c->busy_sec,
                          .ticket = c->started};
}

/* The times of the pending step, which is complete. By events, exactly those of its collectives;
 * by the host, what passed while the step was enqueued. */
static tr_status_t step_take_times(const tr_train_step_t *t, tr_step_outcome_t *out) {
    tr_collectives_t *c = t->collectives;
    step_times_t from = t->pending_begun, to = t->pending_ended;
    out->stall_sec = to.stall - from.stall;
    if (c && c->ops->settle) {
        TR_TRY(c->ops->settle(c, t->pending_begun.ticket));
        c->unmeasured = false;
        from = step_times(t);
        TR_TRY(c->ops->settle(c, t->pending_ended.ticket));
        to = step_times(t);
    }
    out->exposed_sec = to.exposed - from.exposed;
    out->busy_sec = to.busy - from.busy;
    return TR_OK;
}

static tr_status_t step_enqueue_outcome(tr_train_step_t *t) {
    tr_session_t *s = t->s;
    const int64_t step = t->step.step.step;
    step_result_t *to = tr_flight_result(t->flight, step);
    TR_TRY(tr_feed_used(s->feed)); /* `update` reads the step block, too */
    TR_TRY(tr_flight_read(t->flight, s->sums, to->sums));
    TR_TRY(tr_flight_read(t->flight, tr_graph_result(s->g), &to->result));
    if (!tr_is_none(s->loss_scale))
        TR_TRY(tr_flight_read(t->flight, s->loss_scale, &to->loss_scale));
    tr_device_trace_end(s->device, tr_graph_stream(s->g), t->span,
                        &(tr_span_t){.kind = TR_SPAN_STEP});
    return tr_flight_mark(t->flight, step);
}

/* Waits for the pending step. newest: number of batches fed since. */
static tr_status_t step_take_outcome(tr_train_step_t *t, int newest, tr_step_outcome_t *out) {
    const tr_session_t *s = t->s;
    TR_TRY(tr_flight_wait(t->flight, t->pending, newest));
    const step_result_t *from = tr_flight_result(t->flight, t->pending);
    const double n = from->sums[TR_SUM_TERMS];
    *out = (tr_step_outcome_t){
        .step = t->pending,
        .terms = n,
        .loss = from->sums[TR_SUM_LOSS] / n,
        .accuracy = s->has_accuracy ? from->sums[TR_SUM_CORRECT] / n : NAN,
        .topk = s->has_accuracy && s->model.topk > 1 ? from->sums[TR_SUM_TOPK] / n : NAN,
        .grad_norm = from->result.grad_norm,
        .finite = from->result.finite != 0,
        .overflowed = from->loss_scale.overflowed > 0,
        .loss_scale = from->loss_scale.scale,
        .overflows = (int64_t)from->loss_scale.skipped,
        .stop = fmodf(from->sums[TR_SUM_ASKED], TR_ASK_SAVE) > 0,
        .save = from->sums[TR_SUM_ASKED] >= TR_ASK_SAVE};
    TR_TRY(step_take_times(t, out));
    if (tr_trace_is_on()) {
        tr_device_trace_settle(s->device, t->pending + 1);
        if (tr_trace_step() == t->pending + 1) tr_trace_set_step(0); /* none has begun behind it */
    }
    t->pending = -1;
    t->back = newest;
    return tr_flight_release(t->flight, newest);
}

tr_status_t tr_train_step_begin(tr_train_step_t *t, int64_t step, double lr, int asks,
                                bool may_save, tr_step_outcome_t *out) {
    const tr_session_t *s = t->s;
    *out = (tr_step_outcome_t){.step = -1};
    t->begun = step_times(t);
    tr_trace_set_step(step + 1);
    t->span = tr_device_trace_begin(s->device, tr_graph_stream(s->g));
    t->step = (tr_feed_step_t){.step = {.seed = (uint64_t)s->train.seed,
                                        .step = step,
                                        .lr = (float)lr,
                                        .weight_decay_scale = 1},
                               .asks = (float)asks};
    /* Several ranks never do: a checkpoint of theirs is taken between the halves. */
    t->whole =
        !may_save && s->params.size == 1 && s->slot_count == 1 && !s->tree && !s->device->immediate;
    TR_TRY(step_run_slot(t, 0));
    if (t->whole) TR_TRY(step_enqueue_outcome(t));
    return t->pending >= 0 ? step_take_outcome(t, 1, out) : TR_OK;
}

void tr_train_step_update_after(tr_train_step_t *t, tr_event_t *event) {
    t->before = event;
}

tr_status_t tr_train_step_end(tr_train_step_t *t, tr_step_outcome_t *out) {
    tr_session_t *s = t->s;
    *out = (tr_step_outcome_t){.step = -1};
    for (int64_t i = 1; i < s->slot_count; i++) TR_TRY(step_run_slot(t, i));
    if (!t->whole) {
        if (s->tree) TR_TRY(tr_reduce_tree_finish(s->tree, t->collectives));
        if (t->before)
            TR_TRY(s->device->ops->event_wait(s->device, t->before, tr_graph_stream(s->g)));
        t->before = NULL;
        TR_TRY(tr_program_run(s->g, s->update, t->collectives));
        TR_TRY(step_enqueue_outcome(t));
    }
    t->pending_begun = t->begun;
    t->pending_ended = step_times(t);
    t->pending = t->step.step.step;
    return s->device->immediate ? step_take_outcome(t, 0, out) : TR_OK;
}

tr_status_t tr_train_step_drain(tr_train_step_t *t, tr_step_outcome_t *out) {
    *out = (tr_step_outcome_t){.step = -1};
    return t->pending >= 0 ? step_take_outcome(t, 0, out) : TR_OK;
}

tr_status_t tr_train_step_run(tr_train_step_t *t, int64_t step, double lr, int asks,
                              tr_step_outcome_t *out) {
    TR_TRY(tr_train_step_begin(t, step, lr, asks, false, out));
    TR_TRY(tr_train_step_end(t, out));
    return t->pending >= 0 ? tr_train_step_drain(t, out) : TR_OK;
}

tr_status_t tr_train_step_abandon(tr_train_step_t *t) {
    const tr_session_t *s = t->s;
    const bool has_begun = t->back > 0;
    /* where gradients are sharded, each micro-batch has completed its own */
    if (!has_begun || s->tree || s->slot_count == 1 || tr_gradients_are_sharded(s->g)) return TR_OK;
    tr_feed_use(s->feed, step_slot_number(t, s->slot_count - 1));
    return tr_program_run(s->g, s->last, t->collectives);
}

/* Feeds slot i again, and looks through the outputs of its ops. */
static tr_status_t step_search_slot(tr_train_step_t *t, tr_loader_t *loader, int64_t i,
                                    const tr_feed_step_t *step, int *out_op) {
    tr_session_t *s = t->s;
    tr_batch_t *batch = NULL;
    TR_TRY(tr_loader_next(loader, &batch));
    if (!batch) return TR_FAIL(TR_ERR_INTERNAL, "The loader of the training data has ended.");
    TR_TRY(tr_feed_next(s->feed, step_slot_number(t, i), batch, step));
    /* The sums contain values of other slots and ranks. */
    TR_TRY(tr_graph_zero_reduced(s->g));
    TR_TRY(tr_program_find_nonfinite(s->g, s->last, out_op));
    TR_TRY(tr_feed_used(s->feed));
    TR_TRY(tr_feed_wait(s->feed, 1));
    tr_watchdog_mark(s->world);
    return tr_loader_release(loader, batch);
}

tr_status_t tr_train_step_find_nonfinite(tr_train_step_t *t, int64_t step, int *out_op) {
    tr_session_t *s = t->s;
    const tr_feed_step_t again = {
        .step = {.seed = (uint64_t)s->train.seed, .step = step, .weight_decay_scale = 1}};
    tr_loader_t *loader = NULL;
    tr_status_t status = TR_OK;
    *out_op = -1;
    TR_TRY(tr_graph_sync(s->g)); /* the next step, which may be enqueued, reads the inputs */
    TR_TRY(tr_session_loader(s, TR_SPLIT_TRAIN, false, step, &loader));
    for (int64_t i = 0; i < s->slot_count && status == TR_OK && *out_op < 0; i++)
        status = step_search_slot(t, loader, i, &again, out_op);
    tr_loader_destroy(&loader);
    return status;
}
