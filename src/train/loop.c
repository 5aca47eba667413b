/* The training loop: steps, validation, the end of training. */
#include "comm/watchdog.h"
#include "history.h"
#include "loop_int.h"
#include "run/verdict.h"
#include "signals.h"
#include "base/clock.h"
#include "base/trace.h"
#include "trainer/log.h"

#include <math.h>

static bool loop_is_last(const loop_t *l) {
    return l->state.step == l->s->total_steps;
}

bool tr_loop_ends_epoch(const loop_t *l) {
    const double n = l->s->steps_per_epoch;
    return loop_is_last(l) ||
           floor((double)l->state.step / n + 1e-9) > floor((double)(l->state.step - 1) / n + 1e-9);
}

static bool loop_valid_due(loop_t *l, int64_t step) {
    return l->s->dataset[TR_SPLIT_VALID] && (tr_interval_is_due(&l->valid, step) ||
                                             (step == l->s->total_steps && l->valid.steps > 0));
}

/* Call once for each step, counted from 1. */
static bool loop_save_due(loop_t *l, int64_t step) {
    const bool is_asked = tr_loop_is_root(l) && tr_signals_take_save();
    l->saving.hurries = l->saving.hurries || is_asked;
    return tr_interval_is_due(&l->saving.every, step) || is_asked;
}

/* Whether a checkpoint of this step is due. Several ranks know it alike. */
static bool loop_saves(loop_t *l) {
    if (loop_is_last(l)) return true;
    if (l->info->size > 1) return l->is_save_asked;
    return (l->is_between ? l->saving.is_due : loop_save_due(l, l->state.step)) ||
           tr_loop_state_save_pending(&l->state);
}

static tr_status_t loop_summarize(loop_t *l, const char *status) {
    const tr_snapshot_t *snapshot = l->saving.snapshot;
    tr_watchdog_phase(l->world, TR_PHASE_CHECKPOINT, l->state.step); /* a slow disk */
    const tr_metrics_end_t end = {.status = status,
                                  .engine = l->collectives ? l->collectives->engine : NULL,
                                  .steps = l->state.step,
                                  .skipped = l->skipped,
                                  .best_step = l->state.best_step,
                                  .best_loss = l->state.best_loss,
                                  .best_accuracy = l->state.best_accuracy,
                                  .best_r2 = l->state.best_r2,
                                  .best_iou = l->state.best_iou,
                                  .host_bytes = tr_loader_bytes(l->loader) +
                                                (snapshot ? tr_snapshot_bytes(snapshot) : 0)};
    return tr_metrics_summary(&l->metrics, &end);
}

/* Ends a run that was asked to stop. The checkpoint contains the sums of an unfinished epoch. Its
 * line and the summary are written later. */
static tr_status_t loop_stopped(loop_t *l) {
    char resume_hint[TR_RESUME_HINT_BYTES];
    tr_signals_say(0); /* the output of that rank may be discarded */
    TR_TRY(tr_profiler_finish(l->profiler));
    if (!l->state.valid_pending && tr_loop_ends_epoch(l))
        tr_metrics_epoch(&l->metrics, l->state.step);
    TR_TRY(tr_loop_save_last(l));
    tr_metrics_epoch(&l->metrics, l->state.step);
    TR_TRY(loop_summarize(l, "stopped"));
    tr_loop_resume_hint(l, resume_hint, sizeof resume_hint);
    const tr_status_t status = tr_world_agree(
        l->world, TR_FAIL(TR_ERR_RETRY,
                          "stopped by a signal after step %lld of %lld%s; saved a checkpoint: "
                          "%s",
                          (long long)l->state.step, (long long)l->s->total_steps,
                          l->state.valid_pending ? ", before its validation"
                          : loop_is_last(l)      ? ", before the test"
                                                 : "",
                          resume_hint));
    tr_error_t end = *tr_error_last();
    if (l->info->size > 1 && end.origin == TR_ORIGIN_OPEN) return status; /* a peer was lost */
    TR_INFO("%s", end.message);
    tr_signals_tell(end.message);
    end.origin = TR_ORIGIN_LOGGED;
    return tr_error_set(&end);
}

static tr_status_t loop_save(loop_t *l, bool is_best) {
    const double start = tr_clock_sec();
    TR_TRY(tr_loop_compare(l));
    TR_TRY(is_best ? tr_loop_save_best(l) : tr_loop_save(l, loop_is_last(l)));
    if (!loop_is_last(l)) l->metrics.save_sec += tr_clock_sec() - start;
    return TR_OK;
}

/* An aborted validation stays pending. */
static tr_status_t loop_validate(loop_t *l, bool *out_is_best) {
    tr_eval_outcome_t v;
    char *pictures = NULL;
    /* Before data are read for the first time, because an error in them may end all ranks. */
    if (isinf(l->state.best_loss)) TR_TRY(tr_loop_save_first(l));
    const double start = tr_clock_sec(), traced = tr_trace_begin();
    tr_watchdog_phase(l->world, TR_PHASE_EVALUATION, l->state.step);
    const tr_eval_each_t each =
        l->strip ? tr_strip_begin(l->strip) : (tr_eval_each_t){.batches = 0};
    TR_TRY(tr_session_evaluate(l->s, TR_SPLIT_VALID, &each, tr_signals_pending, &v));
    tr_trace_end(traced, &(tr_span_t){.kind = TR_SPAN_VALIDATION});
    if (v.stopped) return TR_OK;
    if (l->strip) TR_TRY(tr_strip_text(l->strip, l->state.step, &pictures));
    if (pictures) tr_recorder_file(l->recorder, TR_STRIP_FILE, pictures);
    tr_loop_check_valid(l, &v);
    const int best_by = l->saving.settings.best_by;
    *out_is_best =
        tr_loop_state_validated(&l->state, v.loss, best_by == TR_BEST_BY_IOU ? v.iou : v.accuracy,
                                best_by != TR_BEST_BY_LOSS);
    if (*out_is_best) {
        l->state.best_accuracy = v.accuracy;
        l->state.best_r2 = v.r2;
        l->state.best_iou = v.iou;
    }
    const bool begins_anew = l->state.begins_anew;
    l->state.begins_anew = false;
    return tr_metrics_valid(&l->metrics, l->state.step, &v, tr_clock_sec() - start, *out_is_best,
                            begins_anew, tr_loop_ends_epoch(l));
}

/* What follows a step: its checkpoint, its validation, the line of its epoch. The checkpoint is
 * saved before the validation, which may take long and only adds a link. */
static tr_status_t loop_after_step(loop_t *l) {
    const int64_t check = l->s->parallel.check;
    bool is_best = false;
    if (tr_loop_is_root(l)) TR_TRY(tr_loop_note_written(l));
    const bool saves = loop_saves(l), is_validated = l->state.valid_pending;
    if (check > 0 && l->state.step % check == 0) TR_TRY(tr_loop_compare(l));
    if (is_validated) {
        if (saves) TR_TRY(loop_save(l, false));
        TR_TRY(loop_validate(l, &is_best));
        if (l->state.valid_pending) return loop_stopped(l);
    }
    if (tr_loop_ends_epoch(l)) tr_metrics_epoch(&l->metrics, l->state.step);
    /* only rank 0 knows what is pending; where ranks share the state, all of them take part */
    if (saves &&
        (!is_validated || tr_graph_is_sharded(l->s->g) || tr_loop_state_save_pending(&l->state)))
        TR_TRY(loop_save(l, false));
    return is_best && l->saving.settings.best ? loop_save(l, true) : TR_OK;
}

/* Calls the profiler, whose time is not part of a step. */
static tr_status_t loop_profile(loop_t *l, tr_status_t (*call)(tr_profiler_t *, int64_t),
                                int64_t step) {
    if (!l->profiler) return TR_OK;
    const double start = tr_clock_sec();
    const tr_status_t status = call(l->profiler, step);
    l->metrics.window.since += tr_clock_sec() - start;
    return status;
}

/* Counts a step whose outcome is known. */
static tr_status_t loop_step_done(loop_t *l, const tr_step_outcome_t *o) {
    const int64_t step = l->state.step;
    TR_TRY(tr_loop_check_finite(l, o));
    TR_TRY(tr_metrics_step(&l->metrics, step, tr_schedule_lr(l->schedule, step), o));
    tr_loop_state_step_done(&l->state, loop_valid_due(l, step + 1));
    TR_TRY(loop_profile(l, tr_profiler_after, step + 1));
    l->stop = l->stop || o->stop;
    l->is_save_asked = o->save;
    return TR_OK;
}

/* The previous step is completed between the halves of this one, and this one only if necessary: on
 * an asynchronous device, the host is one step ahead. */
static tr_status_t loop_step(loop_t *l, int64_t step, bool *out_stopped) {
    loop_saving_t *saving = &l->saving;
    tr_step_outcome_t o;
    /* Whether a checkpoint of the pending step may be taken between the halves of this one. It is
     * decided before this one begins, because its update then has to wait. */
    bool may_save = l->info->size > 1;
    int asks = tr_signals_pending() != 0 ? TR_ASK_STOP : TR_ASK_NOTHING;
    if (tr_loop_is_root(l)) TR_TRY(tr_loop_save_in_haste(l));
    /* Several ranks compare their replicas before a checkpoint, so that rank 0 says before a step,
     * which carries this to all, that it will save one after it. */
    if (tr_loop_is_root(l) && l->info->size > 1) {
        const bool is_answered = saving->asked_step <= l->state.step,
                   is_late = is_answered && tr_loop_state_save_pending(&l->state) &&
                             !tr_checkpointer_busy(saving->checkpointer);
        if (loop_save_due(l, step + 1) || is_late) {
            saving->asked_step = step + 1;
            asks |= TR_ASK_SAVE;
        }
    }
    if (step > l->state.step && l->info->size == 1) {
        saving->is_due = loop_save_due(l, l->state.step + 1);
        may_save = saving->is_due || tr_loop_state_save_pending(&l->state);
    }
    TR_TRY(loop_profile(l, tr_profiler_before, step + 1));
    tr_watchdog_phase(l->world, TR_PHASE_STEP, step + 1);
    TR_TRY(tr_train_step_begin(l->train_step, step, tr_schedule_lr(l->schedule, step), asks,
                               may_save, &o));
    if (o.step >= 0) {
        TR_TRY(loop_step_done(l, &o));
        l->is_between = true;
        if (!l->stop)
            TR_TRY(loop_after_step(l));
        else if (tr_loop_ends_epoch(l))
            tr_metrics_epoch(&l->metrics, l->state.step);
        l->is_between = false;
        tr_watchdog_phase(l->world, TR_PHASE_STEP, step + 1);
    }
    TR_TRY(tr_train_step_end(l->train_step, &o));
    const double start = tr_clock_sec();
    TR_TRY(tr_loop_submit(l));
    l->metrics.save_sec += tr_clock_sec() - start;
    /* All ranks wait for this step if something follows it that needs its result. */
    if (o.step < 0 && (l->stop || step + 1 == l->s->total_steps || loop_valid_due(l, step + 1) ||
                       tr_profiler_drains(l->profiler, step + 1)))
        TR_TRY(tr_train_step_drain(l->train_step, &o));
    if (o.step < 0) return TR_OK;
    TR_TRY(loop_step_done(l, &o));
    *out_stopped = l->stop && !loop_is_last(l);
    return *out_stopped ? TR_OK : loop_after_step(l);
}

static tr_status_t loop_run(loop_t *l) {
    const int64_t patience = l->s->train.patience; /* validations; 0: no early stop */
    int64_t step = l->state.step;
    bool has_stopped = false;
    if (l->state.valid_pending) {
        TR_INFO("starting with the validation of step %lld: the checkpoint was saved before it",
                (long long)step);
        TR_TRY(loop_after_step(l));
    }
    while (l->state.step < l->s->total_steps && (patience == 0 || l->state.stale < patience)) {
        TR_TRY(loop_step(l, step++, &has_stopped));
        if (has_stopped) return loop_stopped(l);
    }
    if (l->state.step < l->s->total_steps)
        TR_INFO(
            "early stop after step %lld: %lld validations in a row brought no better %s than step "
            "%lld (train.patience = %lld)",
            (long long)l->state.step, (long long)l->state.stale,
            tr_config_get(l->config, "checkpoint.best_by"), (long long)l->state.best_step,
            (long long)patience);
    return TR_OK;
}

/* The last checkpoint, the test and the summary. */
static tr_status_t loop_finish(loop_t *l) {
    tr_eval_outcome_t test;
    TR_TRY(tr_profiler_finish(l->profiler)); /* an early stop */
    /* Before the test data are read, because an error in them may end all ranks. */
    TR_TRY(tr_loop_save_last(l));
    if (l->state.step < l->s->total_steps) /* an early stop */
        tr_metrics_epoch(&l->metrics, l->state.step);
    if (l->s->dataset[TR_SPLIT_TEST]) {
        TR_TRY(tr_loop_test(l, &test));
        if (test.stopped) return loop_stopped(l);
    }
    tr_loop_warn_of_skipped(l);
    TR_TRY(tr_loop_check_result(l, l->s->dataset[TR_SPLIT_TEST] ? &test : NULL));
    return loop_summarize(l, "done");
}

/* The run folder is gone, and its path may lead to the folder of another run by now: nothing more is
 * written there. */
static void loop_forget_folder(loop_t *l) {
    tr_run_settings_t run;
    tr_config_read(l->config, &tr_run_config, &run);
    if (!run.verdict[0]) tr_verdict_open(NULL);
    l->start.has_begun = false;
    l->metrics.run = NULL;
}

/* What is done at each kind of end. */
typedef struct {
    bool is_agreed;  /* all ranks are here: rank 0 writes the verdict, and nothing is in doubt */
    bool has_failed; /* the summary says so */
    enum { FREES_ALL, FREES_RUN, FREES_NOTHING } frees;
} loop_end_t;
static const loop_end_t
    end_complete = {true, false, FREES_ALL},        /* or stopped, with a checkpoint */
    end_stopped_by_fault = {true, true, FREES_ALL}, /* which all ranks noticed */
    end_failed_alone = {false, true, FREES_ALL},    /* a run of one rank */
    end_failed_at_start = {false, true, FREES_RUN},
    /* A rank that fails in the loop returns at once: its peers wait in a collective, and only the
     * caller can end them. */
    end_failed_among_others = {false, true, FREES_NOTHING};

static const loop_end_t *loop_end(const loop_t *l, tr_status_t status, bool has_begun) {
    const tr_error_t *error = tr_error_last();
    if (status == TR_OK) return &end_complete;
    const bool has_fault = error->fault[0] != '\0',
               is_of_one = l->info->size > 1 && has_fault && error->origin == TR_ORIGIN_OPEN;
    if (status == TR_ERR_RETRY && !is_of_one)
        return has_fault ? &end_stopped_by_fault : &end_complete;
    if (l->info->size == 1) return &end_failed_alone;
    return has_begun ? &end_failed_among_others : &end_failed_at_start;
}

tr_status_t tr_train(const tr_config_t *config, tr_world_t *world,
                     const tr_train_params_t *params) {
    loop_t l = {.params = params,
                .config = config,
                .world = world,
                .info = tr_world_info(world),
                .state = tr_loop_state_new(),
                .compared_step = -1,
                .origin.order = {.micro_batch = -1, .block = -1, .shuffle = -1},
                .start.entered_sec = tr_clock_since_exec_sec()};
    tr_signals_install();
    tr_status_t status = tr_loop_set_up(&l);
    const bool has_begun = status == TR_OK;
    if (has_begun) status = loop_run(&l);
    if (status == TR_OK) status = loop_finish(&l);
    status = tr_history_fault(&l, status, has_begun);
    const tr_error_t error = *tr_error_last(); /* of the run: it remains the last one recorded */
    const loop_end_t *end = loop_end(&l, status, has_begun);
    if (status != TR_OK && l.run && tr_run_check_there(l.run) != TR_OK) loop_forget_folder(&l);
    /* While rank 0 writes its last files to a slow disk, the others wait. */
    tr_watchdog_phase(world, tr_loop_is_root(&l) ? TR_PHASE_CHECKPOINT : TR_PHASE_END,
                      l.state.step);
    if (tr_loop_is_root(&l) && end->is_agreed)
        tr_verdict_write((int)status, error.message, error.node);
    if (tr_loop_is_root(&l)) tr_history_end(&l, status);
    tr_signals_restore();
    if (end->has_failed) {
        tr_loop_finish_writing(&l);
        if (l.metrics.run && loop_summarize(&l, "failed") != TR_OK)
            TR_WARN("%s", tr_error_last()->message);
    }
    tr_profiler_destroy(&l.profiler, !end->is_agreed);
    tr_telemetry_stop(&l.telemetry);
    tr_metrics_close(&l.metrics); /* frees the terminal for the error */
    tr_server_stop(&l.server);
    if (!tr_recorder_stop(&l.recorder, !end->is_agreed))
        l.run = NULL, l.board = NULL; /* the thread uses them */
    tr_board_close(&l.board);
    tr_watchdog_phase(world, TR_PHASE_END, l.state.step);
    if (end->frees == FREES_ALL) tr_loop_tear_down(&l);
    if (end->frees == FREES_RUN) tr_run_close(&l.run);
    if (status != TR_OK) tr_error_set(&error);
    return status;
}
