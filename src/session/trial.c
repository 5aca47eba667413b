/* Opens a session for some training steps, runs them, and closes it. */
#include "trial.h"
#include "base/clock.h"

static int trial_ranks(const tr_trial_t *t) {
    return t->world ? tr_world_info(t->world)->size : 1;
}

tr_status_t tr_trial_open(tr_config_t *config, tr_world_t *world, const tr_trial_params_t *params,
                          tr_trial_t *t) {
    *t = (tr_trial_t){.params = *params, .config = config, .world = world};
    const tr_session_params_t session = {.purpose = params->evaluation ? TR_SESSION_TRAIN
                                                                       : TR_SESSION_MEASURE,
                                         .rank = world ? tr_world_info(world)->rank : 0,
                                         .size = trial_ranks(t)};
    TR_TRY(tr_session_create(config, world, &session, &t->s));
    tr_session_t *s = t->s;
    if (params->scheduled)
        TR_TRY(
            tr_schedule_create(&s->schedule, 1, s->total_steps, s->steps_per_epoch, &t->schedule));
    if (trial_ranks(t) > 1)
        TR_TRY(tr_world_collectives(world, s->device, &s->parallel, &t->collectives));
    return tr_session_fit(s);
}

tr_status_t tr_trial_start(tr_trial_t *t) {
    return tr_session_start(t->s, t->collectives);
}

tr_status_t tr_trial_reset(tr_trial_t *t) {
    tr_train_step_destroy(&t->train_step);
    tr_loader_destroy(&t->loader);
    return tr_session_reset(t->s);
}

static tr_status_t trial_begin(tr_trial_t *t) {
    tr_session_t *s = t->s;
    t->step = 0;
    if (t->params.held && s->data.prefetch < s->slot_count + 1)
        s->data.prefetch = s->slot_count + 1;
    TR_TRY(tr_session_loader(s, TR_SPLIT_TRAIN, false, 0, &t->loader));
    TR_TRY(tr_train_step_create(s, t->collectives, t->loader, &t->train_step));
    return t->params.held ? tr_train_step_hold(t->train_step) : TR_OK;
}

/* Of step i of `steps`. */
static double trial_factor(const tr_trial_t *t, int64_t i, int64_t steps) {
    const double part = ((double)i + 0.5) / (double)steps;
    return t->schedule ? tr_schedule_lr(t->schedule, (int64_t)(part * (double)t->s->total_steps))
                       : 1;
}

/* Step -1: no outcome is known. */
static bool trial_pass(tr_trial_step_fn each, void *self, const tr_step_outcome_t *o,
                       double *since) {
    const double now = tr_clock_sec(), sec = now - *since;
    if (o->step < 0) return true;
    *since = now;
    return !each || each(self, o, sec);
}

tr_status_t tr_trial_run(tr_trial_t *t, int64_t steps, double lr, tr_trial_step_fn each,
                         void *self) {
    tr_step_outcome_t o;
    bool goes_on = true;
    if (!t->train_step) TR_TRY(trial_begin(t));
    double since = tr_clock_sec();
    for (int64_t i = 0; i < steps && goes_on; i++) {
        TR_TRY(tr_train_step_begin(t->train_step, t->step++, lr * trial_factor(t, i, steps),
                                   TR_ASK_NOTHING, false, &o));
        goes_on = trial_pass(each, self, &o, &since);
        TR_TRY(tr_train_step_end(t->train_step, &o));
        goes_on = trial_pass(each, self, &o, &since) && goes_on;
    }
    TR_TRY(tr_train_step_drain(t->train_step, &o));
    (void)trial_pass(each, self, &o, &since);
    return TR_OK;
}

void tr_trial_close(tr_trial_t *t, tr_status_t status) {
    if (status != TR_OK && trial_ranks(t) > 1) return;
    /* first, because a GPU may be in a collective, and freeing memory would wait for it */
    if (t->collectives) tr_graph_drop_captures(t->s->g);
    if (t->collectives) tr_world_collectives_close(t->world, &t->collectives);
    tr_train_step_destroy(&t->train_step);
    tr_loader_destroy(&t->loader);
    tr_schedule_destroy(&t->schedule);
    tr_session_destroy(&t->s);
    tr_config_destroy(&t->config);
}
