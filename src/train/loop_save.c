/* Checkpoints of the training loop. */
#include "loop_int.h"
#include "signals.h"
#include "until.h"
#include "base/json_text.h"
#include "base/clock.h"
#include "base/trace.h"
#include "trainer/log.h"
#include "comm/watchdog.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#define RETRY_SEC     2 /* between attempts to save the last checkpoint */
#define SLOW_DISK_SEC 5 /* of waiting, before the log says so */

tr_status_t tr_loop_note_written(loop_t *l) {
    if (!tr_loop_state_is_writing(&l->state) || tr_checkpointer_busy(l->saving.checkpointer))
        return TR_OK;
    const tr_checkpointer_stats_t stats = tr_checkpointer_stats(l->saving.checkpointer);
    if (stats.last_error.code == TR_OK) {
        (void)tr_loop_state_save(&l->state, TR_SAVE_WRITTEN);
        l->saving.slowest_write_sec = fmax(l->saving.slowest_write_sec, stats.last_write_sec);
        tr_loop_watch_time(l);
        return TR_OK;
    }
    (void)tr_loop_state_save(&l->state, TR_SAVE_FAILED);
    TR_TRY(tr_run_check_there(l->run));
    TR_WARN(
        "cannot save the checkpoint; training continues, and the next one will be attempted: %s",
        stats.last_error.message);
    return TR_OK;
}

void tr_loop_watch_time(const loop_t *l) {
    const double bytes = (double)tr_snapshot_bytes(l->saving.snapshot);
    if (l->until_sec == 0) return;
    tr_signals_until(l->until_sec - tr_until_margin_sec(l->saving.slowest_write_sec, bytes,
                                                        l->metrics.smooth_sec));
}

tr_status_t tr_loop_compare(loop_t *l) {
    if (!l->replicas || l->compared_step == l->state.step) return TR_OK;
    l->compared_step = l->state.step;
    const tr_status_t status = tr_replicas_compare(l->replicas, l->state.step);
    if (status == TR_OK) return TR_OK;
    const tr_error_t error = *tr_error_last();
    if (l->is_between && tr_train_step_abandon(l->train_step) != TR_OK) tr_error_clear();
    return tr_error_set(&error);
}

tr_status_t tr_loop_describe_state(loop_t *l) {
    tr_error_clear();
    json_t *state = tr_state_json(l->s, l->state.step);
    if (!state && tr_error_last()->code == TR_ERR_MEMORY) return TR_ERR_MEMORY;
    if (!state)
        return TR_FAIL(TR_ERR_CONFIG,
                       "cannot save the state of the run: a setting or the name of a data file is "
                       "not valid UTF-8; rename it");
    json_object_set_new(state, "best_valid_loss", tr_json_finite(l->state.best_loss));
    json_object_set_new(state, "best_valid_accuracy", tr_json_finite(l->state.best_accuracy));
    json_object_set_new(state, "best_valid_r2", tr_json_finite(l->state.best_r2));
    if (!isnan(l->state.best_iou))
        json_object_set_new(state, "best_valid_iou", json_real(l->state.best_iou));
    json_object_set_new(state, "stale_validations", json_integer(l->state.stale));
    if (l->state.begins_anew) json_object_set_new(state, "valid_begins_anew", json_true());
    json_object_set_new(state, "best_step",
                        l->state.best_step >= 0 ? json_integer(l->state.best_step) : json_null());
    json_object_set_new(state, "valid_pending", json_boolean(l->state.valid_pending));
    json_object_set_new(state, "report", tr_metrics_state(&l->metrics));
    json_object_set_new(state, "skipped", json_integer(l->skipped));
    json_object_set_new(state, "version", json_string(l->params->version));
    free(l->saving.state_text);
    free(l->saving.metadata);
    l->saving.state_text = json_dumps(state, JSON_INDENT(2));
    if (l->saving.state_text) tr_json_shorten(l->saving.state_text);
    l->saving.metadata = tr_state_metadata(state);
    json_decref(state);
    return l->saving.state_text && l->saving.metadata
               ? TR_OK
               : TR_FAIL(TR_ERR_MEMORY, "not enough memory for the state of the run");
}

/* What rank 0 writes with the tensors of the snapshot. */
static void loop_fill_content(loop_t *l) {
    loop_saving_t *saving = &l->saving;
    tr_snapshot_content(saving->snapshot, &saving->content);
    saving->content.step = l->state.step;
    saving->content.state_json = saving->state_text;
    saving->content.metadata = saving->metadata;
    saving->content.texts = saving->files.data;
    saving->content.text_count = saving->files.count;
}

/* By the writer threads. */
static tr_status_t loop_exchange_parts(void *self, tr_checkpoint_part_t *parts) {
    const loop_t *l = self;
    const int rank = l->info->rank;
    if (rank > 0) {
        const tr_checkpoint_part_t *own = &parts[rank];
        const tr_rank_report_t report = {
            own->number, own->status, {own->checksum[0], own->checksum[1]}};
        if (own->status != TR_OK)
            TR_WARN_ALL("cannot write a part of the checkpoint: %s", tr_error_last()->message);
        tr_watchdog_report(l->world, &report);
        return TR_OK;
    }
    for (int i = 1; i < l->info->size; i++) {
        tr_rank_report_t report;
        TR_TRY(tr_watchdog_wait_report(l->world, parts[0].number, i, &report));
        parts[i] = (tr_checkpoint_part_t){
            report.number, report.status, {report.value[0], report.value[1]}};
    }
    return TR_OK;
}

/* Where ranks share: rank 0 tells all where they write, and numbers the attempts. *takes: whether a
 * checkpoint is taken, which rank 0 knows. Collective. */
static tr_status_t loop_share_attempt(loop_t *l, bool *takes) {
    static _Atomic int64_t attempts; /* of the process: heartbeats outlive a run */
    loop_saving_t *saving = &l->saving;
    tr_checkpoint_attempt_t attempt = {0};
    if (tr_loop_is_root(l) && *takes) {
        TR_TRY(tr_loop_describe_state(l));
        loop_fill_content(l);
        TR_TRY(tr_checkpoint_attempt(&saving->content, ++attempts, &attempt));
    }
    TR_TRY(tr_world_broadcast(l->world, &attempt, sizeof attempt, 0));
    *takes = attempt.number > 0;
    if (!*takes) return TR_OK;
    if (!tr_loop_is_root(l)) {
        /* of the last one: rank 0 has its report, but it may not have returned yet */
        (void)tr_checkpointer_wait(saving->checkpointer);
        tr_snapshot_content(saving->snapshot, &saving->content);
        saving->content.step = attempt.step;
    }
    saving->sharing = *saving->content.sharing;
    saving->sharing.attempt = attempt;
    saving->sharing.exchange = loop_exchange_parts;
    saving->sharing.self = l;
    saving->content.sharing = &saving->sharing;
    return TR_OK;
}

/* Takes a snapshot of the current step for the writer. Between the halves of a step, the outcome of
 * the previous step is known, and the state does not change until the update, which waits for the
 * copies; tr_loop_submit then follows the second half. */
static tr_status_t loop_take_snapshot(loop_t *l) {
    loop_saving_t *saving = &l->saving;
    const double traced = tr_trace_begin();
    tr_watchdog_phase(l->world, TR_PHASE_CHECKPOINT, l->state.step);
    if (!tr_graph_is_sharded(l->s->g)) {
        TR_TRY(tr_loop_describe_state(l));
        loop_fill_content(l);
    }
    if (l->is_between) {
        tr_event_t *taken = NULL;
        TR_TRY(tr_snapshot_begin(saving->snapshot, &taken));
        tr_train_step_update_after(l->train_step, taken);
    } else {
        TR_TRY(tr_snapshot_take(saving->snapshot));
    }
    saving->has_content = true;
    tr_trace_end(traced, &(tr_span_t){.kind = TR_SPAN_SNAPSHOT, .number = l->state.step});
    return l->is_between ? TR_OK : tr_loop_submit(l);
}

tr_status_t tr_loop_submit(loop_t *l) {
    if (!l->saving.has_content) return TR_OK;
    l->saving.has_content = false;
    TR_TRY(tr_snapshot_end(l->saving.snapshot)); /* a snapshot is being taken: do nothing */
    return tr_checkpointer_submit(l->saving.checkpointer, &l->saving.content);
}

/* Failures are reported; only that of the last checkpoint fails the run. */
static void loop_wait_for_writer(loop_t *l) {
    tr_watchdog_phase(l->world, TR_PHASE_CHECKPOINT, l->state.step);
    (void)tr_checkpointer_wait(l->saving.checkpointer);
}

tr_status_t tr_loop_save_in_haste(loop_t *l) {
    tr_signals_settle();
    if (!l->saving.hurries || l->saving.has_content || l->saving.asked_step > l->state.step)
        return TR_OK;
    if (tr_loop_state_is_writing(&l->state)) loop_wait_for_writer(l);
    TR_TRY(tr_loop_note_written(l));
    if (tr_loop_state_save_pending(&l->state)) return TR_OK; /* it is saved after the next step */
    l->saving.hurries = false;
    if (l->state.saved_step >= 0) tr_signals_saved();
    return TR_OK;
}

void tr_loop_finish_writing(loop_t *l) {
    /* a writer of pieces uses this loop, and waits for nobody */
    if (!tr_loop_is_root(l) && l->saving.checkpointer) loop_wait_for_writer(l);
    if (!tr_loop_state_is_writing(&l->state)) return;
    /* the other ranks may not come to write their pieces */
    if (l->s && tr_graph_is_sharded(l->s->g)) l->saving.has_content = false;
    if (tr_loop_submit(l) != TR_OK) TR_WARN("%s", tr_error_last()->message);
    loop_wait_for_writer(l);
    const tr_checkpointer_stats_t stats = tr_checkpointer_stats(l->saving.checkpointer);
    if (stats.last_error.code != TR_OK)
        TR_WARN("cannot save the checkpoint: %s", stats.last_error.message);
}

tr_status_t tr_loop_save(loop_t *l, bool must) {
    bool takes = false;
    if (tr_loop_is_root(l)) {
        if (must) loop_wait_for_writer(l);
        TR_TRY(tr_loop_note_written(l));
        takes = tr_loop_state_save(&l->state, TR_SAVE_DUE) == TR_SAVE_TAKE;
    }
    if (tr_graph_is_sharded(l->s->g)) TR_TRY(loop_share_attempt(l, &takes));
    return takes ? loop_take_snapshot(l) : TR_OK;
}

/* A new best is saved at its step, so that training waits for the checkpoint that is being written
 * before it. */
static void loop_say_slow_disk(loop_t *l, double waited_sec) {
    loop_saving_t *saving = &l->saving;
    const double before = saving->best_wait_sec;
    saving->best_wait_sec += waited_sec;
    if (before < SLOW_DISK_SEC && saving->best_wait_sec >= SLOW_DISK_SEC)
        TR_WARN("training has waited %.0f s to save new bests, because the disk is slow: validate "
                "less often (train.valid_every), or set checkpoint.best = no",
                saving->best_wait_sec);
}

tr_status_t tr_loop_save_best(loop_t *l) {
    const double start = tr_clock_sec();
    if (tr_loop_is_root(l)) TR_TRY(tr_loop_note_written(l));
    TR_TRY(tr_loop_save(l, l->state.saved_step != l->state.step));
    if (!tr_loop_is_root(l)) return TR_OK;
    loop_say_slow_disk(l, tr_clock_sec() - start);
    tr_checkpointer_best(l->saving.checkpointer, l->state.step);
    (void)tr_loop_state_save(&l->state, TR_SAVE_LINK);
    return TR_OK;
}

tr_status_t tr_loop_save_first(loop_t *l) {
    TR_TRY(tr_loop_compare(l));
    TR_TRY(tr_loop_save(l, true));
    tr_watchdog_phase(l->world, TR_PHASE_CHECKPOINT, l->state.step);
    if (tr_loop_is_root(l)) loop_wait_for_writer(l);
    return tr_world_agree(l->world, TR_OK);
}

/* Retries until the last checkpoint is saved, checkpoint.patience has passed, or a signal requests a
 * stop. Training is complete, and without this checkpoint its result would be lost. */
static tr_status_t loop_save_patiently(loop_t *l) {
    const bool shares = tr_graph_is_sharded(l->s->g), is_root = tr_loop_is_root(l);
    const double end = tr_clock_sec() + l->saving.settings.patience;
    const int asked = tr_signals_pending();
    for (bool is_first = true;; is_first = false) {
        tr_status_t status = is_root ? tr_checkpointer_wait(l->saving.checkpointer) : TR_OK;
        const bool is_there = status == TR_OK || tr_run_check_there(l->run) == TR_OK;
        if (!is_there) status = tr_error_last()->code;
        bool again = is_there && status == TR_ERR_IO && tr_clock_sec() < end &&
                     (is_first || tr_signals_pending() == asked);
        if (again && is_first)
            TR_WARN("retrying the final checkpoint for up to %.0f s (checkpoint.patience): %s",
                    l->saving.settings.patience, tr_error_last()->message);
        const double next = fmin(end, tr_clock_sec() + RETRY_SEC);
        while (again && tr_clock_sec() < next && tr_signals_pending() == asked)
            nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
        if (again) {
            (void)tr_loop_state_save(&l->state, TR_SAVE_FAILED);
            (void)tr_loop_state_save(&l->state, TR_SAVE_DUE);
        }
        if (shares) TR_TRY(loop_share_attempt(l, &again));
        if (!again) return status;
        l->saving.has_content = true; /* the snapshot is still that of this step */
        TR_TRY(tr_loop_submit(l));
    }
}

tr_status_t tr_loop_save_last(loop_t *l) {
    TR_TRY(tr_loop_compare(l));
    TR_TRY(tr_loop_save(l, true));
    tr_watchdog_phase(l->world, TR_PHASE_CHECKPOINT, l->state.step);
    const bool writes = tr_loop_is_root(l) || tr_graph_is_sharded(l->s->g);
    return tr_world_agree(l->world, writes ? loop_save_patiently(l) : TR_OK);
}
