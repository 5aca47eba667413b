/* Setup before the first step, and teardown. */
#include "weights/export.h"
#include "history.h"
#include "loop_int.h"
#include "signals.h"
#include "trainer/clock.h"
#include "trainer/log.h"
#include "comm/watchdog.h"
#include "run/verdict.h"
#include "until.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* -- the run folder and the checkpoint to resume from ------------------------------------------ */

/* Removes the verdict of an earlier session as early as possible. In the run folder, it belongs to
 * the run that holds the lock. */
static tr_status_t open_run(loop_t *l) {
    tr_run_settings_t run;
    tr_config_read(l->config, &tr_run_config, &run);
    TR_TRY(tr_until_parse(run.until, &l->until_sec));
    if (run.verdict[0]) TR_TRY(tr_verdict_clear());
    TR_TRY(tr_run_open(&run, l->params->config_path, tr_signals_pending, &l->run));
    TR_TRY(tr_history_open(l));
    return tr_strdup(tr_run_dir(l->run), &l->run_dir);
}

/* Every rank sets the file, because any of them may be lost. */
static tr_status_t open_verdict(const loop_t *l) {
    tr_run_settings_t run;
    char path[4096];
    tr_config_read(l->config, &tr_run_config, &run);
    if (run.verdict[0]) return TR_OK; /* since the start */
    if (snprintf(path, sizeof path, "%s/verdict", l->run_dir) < (int)sizeof path)
        tr_verdict_open(path);
    return tr_loop_is_root(l) ? tr_verdict_clear() : TR_OK;
}

void tr_loop_resume_hint(const loop_t *l, char *text, size_t bytes) {
    tr_run_settings_t run;
    tr_main_settings_t main;
    tr_config_read(l->config, &tr_run_config, &run);
    tr_config_read(l->config, &tr_main_config, &main);
    const bool same = run.dir[0] && strcmp(main.resume, "auto") == 0;
    snprintf(text, bytes,
             same ? "run the same command again to resume"
                  : "run the command with run.dir=%s resume=auto to resume",
             l->run_dir);
}

/* Begins the run when everything is checked and open. If nothing is left to train, the
 * configuration in the folder is not changed. */
static tr_status_t begin_run(const loop_t *l) {
    tr_str_t text = {0};
    if (l->own_resume && l->state.step >= l->s->total_steps) return TR_OK;
    TR_TRY(tr_checkpoint_set_aside(tr_run_checkpoint_dir(l->run), l->state.step));
    tr_status_t status = tr_config_serialize(l->config, &text);
    if (status == TR_OK) status = tr_run_begin(l->run, text.text);
    tr_str_free(&text);
    return status;
}

/* Every rank opens the log, so that an error of a single rank is also logged. */
static tr_status_t share_run(loop_t *l) {
    TR_TRY(tr_world_broadcast_text(l->world, &l->run_dir, 0));
    TR_TRY(tr_world_agree(l->world, open_verdict(l)));
    if (!tr_loop_is_root(l)) tr_run_join_log(l->run_dir);
    return TR_OK;
}

/* Checkpoints of later steps would be kept longer than those of this run, and resume = auto would
 * use them. */
static tr_status_t open_path(loop_t *l, const char *path) {
    tr_steps_t steps = {0};
    TR_TRY(tr_state_open_resume(path, &l->resume));
    tr_status_t status = tr_checkpoint_list(tr_run_checkpoint_dir(l->run), &steps);
    if (status == TR_OK && steps.count > 0 && steps.data[0] > l->resume->step)
        status =
            TR_FAIL(TR_ERR_CONFIG,
                    "resume = %s is of step %lld, but %s holds later checkpoints (newest: "
                    "step %lld): resume from the newest with resume = auto, or choose another "
                    "run.dir",
                    path, (long long)l->resume->step, tr_run_dir(l->run), (long long)steps.data[0]);
    tr_vec_free(&steps);
    return status;
}

static tr_status_t open_newest(loop_t *l) {
    tr_str_t skipped = {0};
    const tr_status_t status =
        tr_checkpoint_open_newest(tr_run_checkpoint_dir(l->run), &l->resume, &skipped);
    if (skipped.length > 0) TR_WARN("skipped damaged checkpoints:\n%s", skipped.text);
    tr_str_free(&skipped);
    return status;
}

static tr_status_t open_resume(loop_t *l) {
    tr_main_settings_t main;
    tr_config_read(l->config, &tr_main_config, &main);
    if (strcmp(main.resume, "auto") != 0 && strcmp(main.resume, "no") != 0)
        return open_path(l, main.resume);
    l->own_resume = true;
    TR_TRY(open_newest(l));
    if (l->resume && strcmp(main.resume, "no") == 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "resume = no, but %s holds checkpoints (newest: step %lld); choose another "
                       "run.dir, or resume = auto",
                       tr_run_dir(l->run), (long long)l->resume->step);
    return TR_OK;
}

/* Checks the settings that do not depend on data. */
static tr_status_t check_settings(const loop_t *l) {
    tr_train_settings_t train;
    tr_interval_t due;
    tr_config_read(l->config, &tr_train_config, &train);
    TR_TRY(tr_interval_parse("checkpoint.every", l->save_settings.every, true, 100, 100, &due));
    return tr_interval_parse("train.valid_every", train.valid_every, false, 100, 100, &due);
}

static tr_status_t open_init(loop_t *l) {
    tr_model_settings_t model;
    tr_config_read(l->config, &tr_model_config, &model);
    if (l->resume || !model.init[0]) return TR_OK;
    TR_TRY(tr_weights_open(model.init, &l->init));
    return tr_state_preprocess(l->init->state_json, l->init->path, &l->first);
}

static tr_status_t open_root(loop_t *l) {
    TR_TRY(check_settings(l));
    TR_TRY(open_run(l));
    TR_TRY(open_resume(l));
    return open_init(l);
}

/* -- the state --------------------------------------------------------------------------------- */

static void say_going_on(const loop_t *l) {
    tr_str_t changes = {0};
    TR_INFO("resuming from %s", l->resume->path);
    tr_state_changes(l->resume->state_json, l->config, &changes);
    if (changes.length > 0) TR_INFO("changed since that checkpoint: %s", changes.text);
    tr_str_free(&changes);
}

/* Restores the progress of the run. Values missing in older checkpoints are empty. The reports,
 * validations and best loss of another run are not restored: they belong to its folder, as does its
 * best checkpoint. */
static void take_up(loop_t *l, const char *state_json) {
    tr_main_settings_t main;
    json_t *state = json_loads(state_json, 0, NULL);
    const json_t *best = json_object_get(state, "best_valid_loss"),
                 *best_accuracy = json_object_get(state, "best_valid_accuracy"),
                 *best_step = json_object_get(state, "best_step");
    tr_config_read(l->config, &tr_main_config, &main);
    l->skipped = json_integer_value(json_object_get(state, "skipped"));
    if (l->own_resume || tr_run_has(l->run, main.resume)) {
        if (json_is_number(best)) l->state.best_loss = json_number_value(best);
        if (json_is_number(best_accuracy))
            l->state.best_accuracy = json_number_value(best_accuracy);
        l->state.stale = json_integer_value(json_object_get(state, "stale_validations"));
        if (json_is_integer(best_step)) l->state.best_step = json_integer_value(best_step);
        l->told = json_incref(json_object_get(state, "report"));
        l->state.valid_pending =
            l->s->dataset[TR_SPLIT_VALID] &&
            json_is_true(json_object_get(state, "valid_pending")) &&
            !(l->state.step >= l->s->total_steps && tr_report_is_done(l->run, l->state.step));
    }
    json_decref(state);
}

/* The same numbers: the same file, also for another process of this node. */
typedef struct {
    int64_t device, inode, sec, nsec;
} identity_t;

static bool identify(const char *path, identity_t *out) {
    struct stat info;
    if (stat(path, &info) != 0) return false;
    *out = (identity_t){(int64_t)info.st_dev, (int64_t)info.st_ino, info.st_mtim.tv_sec,
                        info.st_mtim.tv_nsec};
    return true;
}

/* If all ranks are on one node, each reads the weights of model.init from its page cache, which is
 * faster than a broadcast; on a GPU, each would need host memory for it. Not if some parameters
 * keep the initial values, which only rank 0 has.
 * *out_all: all ranks have opened the weights. */
static tr_status_t open_init_on_all(loop_t *l, bool *out_all) {
    char *path = NULL;
    identity_t theirs = {0}, mine = {0};
    const bool is_shared = l->init && l->init->is_complete && l->s->device->host_visible;
    const char *root_path = is_shared ? l->init->path : "";
    TR_TRY(tr_world_agree(l->world, tr_loop_is_root(l) ? tr_strdup(root_path, &path) : TR_OK));
    if (l->init) (void)identify(l->init->path, &theirs);
    TR_TRY(tr_world_broadcast_text(l->world, &path, 0));
    TR_TRY(tr_world_broadcast(l->world, &theirs, sizeof theirs, 0));
    if (path[0] && l->info->nodes == 1 && !l->init && identify(path, &mine) &&
        memcmp(&mine, &theirs, sizeof mine) == 0 && tr_weights_open(path, &l->init) != TR_OK)
        tr_error_clear(); /* then the weights are broadcast */
    int64_t has = path[0] && l->init;
    tr_free(&path);
    TR_TRY(tr_world_allreduce_int(l->world, &has, 1, TR_REDUCE_MIN));
    *out_all = has == 1;
    return TR_OK;
}

static tr_status_t load_init(loop_t *l) {
    tr_snapshot_t *own = NULL;
    if (!l->snapshot) TR_TRY(tr_snapshot_create(l->s, &own));
    const tr_status_t status = tr_snapshot_init(own ? own : l->snapshot, l->init);
    tr_snapshot_destroy(&own);
    tr_weights_close(&l->init);
    return status;
}

/* A checkpoint that was complete when it was opened may be damaged when its tensors are read. Then
 * the newest one is opened and verified again. If none is left, the error is the first one. */
static tr_status_t restore(loop_t *l) {
    enum { TRIES = 3 };
    tr_error_t first = {0};
    for (int i = 1;; i++) {
        TR_TRY(tr_state_check(l->s, l->resume));
        const tr_status_t status = tr_snapshot_restore(l->snapshot, l->resume);
        const bool is_unreadable = status == TR_ERR_DATA || status == TR_ERR_IO;
        if (!is_unreadable || !l->own_resume || i == TRIES) return status;
        TR_WARN("%s could not be read: %s", l->resume->path, tr_error_last()->message);
        if (i == 1) first = *tr_error_last();
        tr_error_clear();
        tr_checkpoint_close(&l->resume);
        const tr_status_t opened = open_newest(l);
        if (opened != TR_OK && opened != TR_ERR_DATA) return opened;
        if (!l->resume)
            return TR_FAIL(first.code,
                           "%s holds no checkpoint that can be read. Restore one, or start a new "
                           "run in another run.dir. The first error: %.1000s",
                           tr_run_dir(l->run), first.message);
    }
}

/* Sets the initial state: from a checkpoint, or initial values, possibly with weights of another
 * model. */
static tr_status_t load_state(loop_t *l, bool all_have_init) {
    tr_session_t *s = l->s;
    if (!tr_loop_is_root(l)) return all_have_init ? load_init(l) : TR_OK;
    TR_TRY(tr_snapshot_create(s, &l->snapshot));
    if (l->resume) {
        TR_TRY(restore(l));
        l->state.step = l->state.saved_step = l->resume->step;
        take_up(l, l->resume->state_json);
        say_going_on(l);
        tr_checkpoint_close(&l->resume);
        return TR_OK;
    }
    return l->init ? load_init(l) : TR_OK;
}

static tr_status_t begin_state(loop_t *l) {
    bool is_resumed = l->resume != NULL, all_have_init = false;
    TR_TRY(open_init_on_all(l, &all_have_init));
    TR_TRY(tr_session_start(l->s, l->collectives));
    TR_TRY(tr_world_agree(l->world, load_state(l, all_have_init)));
    TR_TRY(tr_world_broadcast(l->world, &l->state.step, sizeof l->state.step, 0));
    TR_TRY(tr_world_broadcast(l->world, &l->state.best_loss, sizeof l->state.best_loss, 0));
    TR_TRY(tr_world_broadcast(l->world, &l->state.best_accuracy, sizeof l->state.best_accuracy, 0));
    TR_TRY(tr_world_broadcast(l->world, &l->state.stale, sizeof l->state.stale, 0));
    TR_TRY(tr_world_broadcast(l->world, &l->state.valid_pending, sizeof l->state.valid_pending, 0));
    TR_TRY(tr_world_broadcast(l->world, &is_resumed, sizeof is_resumed, 0));
    if (!all_have_init) TR_TRY(tr_state_broadcast(l->s, is_resumed));
    if (l->snapshot) tr_snapshot_touch(l->snapshot);
    return is_resumed ? TR_OK : tr_optimizer_start(l->s->g); /* an average starts at the weights */
}

/* The number of checkpoints that this run may add before one is deleted: those to keep, plus the
 * one being written. 1 if all are kept, because their number is unknown. */
static int64_t coming_at_once(const loop_t *l, int64_t there) {
    const tr_checkpoint_settings_t *save = &l->save_settings;
    const bool has_best = save->best && l->s->dataset[TR_SPLIT_VALID] && l->valid.steps > 0;
    const int64_t kept = save->keep > 0 ? save->keep + has_best : 0, room = kept + 1 - there;
    double saves = 1; /* the last one */
    if (l->save.seconds > 0) saves = INFINITY;
    if (l->save.steps > 0)
        saves = floor((l->s->total_steps - 1) / l->save.steps) + 1 -
                floor((double)l->state.step / l->save.steps);
    if (room < 1 || saves < 1) return 1;
    return saves < (double)room ? (int64_t)saves : room;
}

static tr_status_t check_room(const loop_t *l) {
    const char *dir = tr_run_checkpoint_dir(l->run);
    tr_checkpoint_content_t content;
    tr_steps_t steps = {0};
    if (l->state.step >= l->s->total_steps) return TR_OK; /* nothing is left to train */
    TR_TRY(tr_checkpoint_clean(dir, true));
    tr_status_t status = tr_checkpoint_list(dir, &steps);
    const int64_t there = (int64_t)steps.count;
    tr_vec_free(&steps);
    TR_TRY(status);
    tr_snapshot_content(l->snapshot, &content);
    content.state_json = l->state_text;
    content.texts = l->files.data;
    content.text_count = l->files.count;
    return tr_checkpoint_room(dir, &content, coming_at_once(l, there));
}

static tr_status_t open_checkpointer(loop_t *l) {
    const tr_checkpointer_params_t params = {tr_run_checkpoint_dir(l->run), l->save_settings.keep};
    char resume_hint[TR_WAY_ON_BYTES];
    TR_TRY(tr_loop_describe_state(l)); /* report this now, not at the first checkpoint */
    TR_TRY(tr_export_files(l->s, &l->files));
    TR_TRY(check_room(l));
    TR_TRY(tr_checkpointer_create(&params, &l->checkpointer));
    tr_loop_resume_hint(l, resume_hint, sizeof resume_hint);
    tr_signals_checkpoints(params.dir, resume_hint);
    /* Repairs the link after a run that was killed between the commit of a checkpoint and its
     * link. */
    if (l->own_resume && l->state.saved_step >= 0 &&
        tr_checkpoint_link(params.dir, "latest", l->state.saved_step) != TR_OK)
        TR_WARN("%s", tr_error_last()->message);
    return TR_OK;
}

/* -- the whole --------------------------------------------------------------------------------- */

/* The watchdog runs until the caller closes the world, so that it also covers the exit of the
 * ranks. */
static tr_status_t start_watchdog(const loop_t *l) {
    tr_parallel_settings_t parallel;
    tr_config_read(l->config, &tr_parallel_config, &parallel);
    tr_watchdog_phase(l->world, TR_PHASE_START, 0);
    TR_TRY(tr_watchdog_start(l->world, parallel.timeout, tr_signals_pending));
    tr_watchdog_on_end(l->world, tr_verdict_again);
    return TR_OK;
}

/* Compares type, size and time of files, or the fingerprints of a program's data sets. */
static bool are_same(const tr_dataset_t *a, const tr_dataset_t *b) {
    return a && b && a->info.fingerprint == b->info.fingerprint &&
           a->info.samples == b->info.samples &&
           strcmp(a->info.description, b->info.description) == 0;
}

static void introduce(const loop_t *l) {
    const tr_session_t *s = l->s;
    char parameters[32], memory[32], threads[32] = "";
    TR_INFO("run folder %s", l->run_dir);
    if (l->state.step >= s->total_steps)
        TR_WARN("nothing to train: the run is at step %lld, %s step %lld; increase train.steps or "
                "train.epochs to continue",
                (long long)l->state.step,
                l->state.step > s->total_steps ? "already past its last," : "its last,",
                (long long)s->total_steps);
    TR_INFO("%s, %s parameters, %s; %s", s->model.type,
            tr_format_count((double)s->parameters, parameters), s->info.description,
            s->device->description);
    if (s->device->threads > 0)
        snprintf(threads, sizeof threads, " x %d thread%s", s->device->threads,
                 s->device->threads > 1 ? "s" : "");
    TR_INFO("%d rank%s%s; batch %lld = %lld micro-batch%s of %lld; %lld steps, %.4g "
            "epoch%s; %s per rank on the device",
            l->info->size, l->info->size > 1 ? "s" : "", threads, (long long)s->order.batch_size,
            (long long)s->slots, s->slots > 1 ? "es" : "", (long long)s->order.micro_batch,
            (long long)s->total_steps, (double)s->total_steps / s->steps_per_epoch,
            (double)s->total_steps == s->steps_per_epoch ? "" : "s",
            tr_format_bytes((double)tr_graph_memory(s->g).total, memory));
    if (l->valid.steps > 0 && are_same(s->dataset[TR_SPLIT_VALID], s->dataset[TR_SPLIT_TEST]))
        TR_INFO("validation and test use the same data, %s, and the best checkpoint is selected on "
                "it; data.valid_fraction = 0.1 holds out a part of the training data instead",
                s->dataset[TR_SPLIT_VALID]->info.description);
    if (!s->dataset[TR_SPLIT_VALID] && l->valid.steps > 0)
        TR_INFO("no validation data: set data.valid, or data.valid_fraction = 0.1 to hold out a "
                "tenth of the "
                "training data");
    if (s->slots % l->info->size != 0)
        TR_WARN("%lld micro-batches are not a multiple of %d ranks: some ranks compute one more, "
                "and the others wait",
                (long long)s->slots, l->info->size);
}

/* Checks that there are validation data for train.patience and checkpoint.best_by. */
static tr_status_t check_validation(const loop_t *l) {
    const tr_session_t *s = l->s;
    const bool is_validated = s->dataset[TR_SPLIT_VALID] && l->valid.steps > 0;
    if (s->train.patience > 0 && !is_validated)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "train.patience = %lld counts validations, and this run has none: set data.valid or "
            "data.valid_fraction, and a train.valid_every above 0",
            (long long)s->train.patience);
    if (l->save_settings.best_by == TR_BEST_BY_ACCURACY && is_validated && s->info.classes <= 0)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "checkpoint.best_by = valid_accuracy expects classes, data.y has numbers to predict: "
            "use valid_loss");
    return TR_OK;
}

/* Shares the facts about the resumed checkpoint that every rank needs. */
static tr_status_t share_state(loop_t *l) {
    char *state = NULL, *path = NULL;
    tr_status_t status = TR_OK;
    if (tr_loop_is_root(l)) status = tr_strdup(l->resume ? l->resume->state_json : "", &state);
    if (tr_loop_is_root(l) && status == TR_OK)
        status = tr_strdup(l->resume ? l->resume->path : "", &path);
    TR_TRY(tr_world_agree(l->world, status));
    TR_TRY(tr_world_broadcast_text(l->world, &state, 0));
    TR_TRY(tr_world_broadcast_text(l->world, &path, 0));
    tr_state_order(state, &l->order);
    l->precision = tr_state_precision(state);
    status = tr_state_preprocess(state, path, &l->kept);
    tr_free(&state);
    tr_free(&path);
    return tr_world_agree(l->world, status);
}

tr_status_t tr_loop_set_up(loop_t *l) {
    tr_log_settings_t log;
    tr_run_settings_t run;
    tr_config_read(l->config, &tr_run_config, &run);
    tr_verdict_open(run.verdict);
    TR_TRY(start_watchdog(l));
    tr_config_read(l->config, &tr_log_config, &log);
    tr_config_read(l->config, &tr_checkpoint_config, &l->save_settings);
    TR_TRY(tr_world_agree(l->world, tr_loop_is_root(l) ? open_root(l) : TR_OK));
    TR_TRY(share_run(l));
    TR_TRY(share_state(l));
    const tr_session_params_t session = {.training = true,
                                         .evaluation = true,
                                         .loaded = !tr_loop_is_root(l) || l->resume ||
                                                   (l->init && l->init->is_complete),
                                         .split = TR_SPLIT_TRAIN,
                                         .rank = l->info->rank,
                                         .size = l->info->size,
                                         .order = &l->order,
                                         .precision = l->precision,
                                         .kept = l->kept,
                                         .init = l->first};
    TR_TRY(tr_session_create(l->config, l->world, &session, &l->s));
    const tr_session_t *s = l->s;
    TR_TRY(tr_interval_parse("checkpoint.every", l->save_settings.every, true, s->total_steps,
                             s->steps_per_epoch, &l->save));
    TR_TRY(tr_interval_parse("train.valid_every", s->train.valid_every, false, s->total_steps,
                             s->steps_per_epoch, &l->valid));
    TR_TRY(check_validation(l));
    TR_TRY(tr_schedule_create(&l->s->schedule, l->s->optim.lr, l->s->total_steps,
                              l->s->steps_per_epoch, &l->schedule));
    const size_t base_bytes = tr_report_peak_bytes();
    const double resume_begin_sec = tr_clock_sec();
    if (l->info->size > 1)
        TR_TRY(tr_world_collectives(l->world, l->s->device, &l->s->parallel, &l->collectives));
    TR_TRY(begin_state(l));
    l->history.resume_sec = tr_clock_sec() - resume_begin_sec;
    TR_TRY(tr_world_agree(l->world, tr_loop_is_root(l) ? open_checkpointer(l) : TR_OK));
    TR_TRY(tr_session_loader(l->s, TR_SPLIT_TRAIN, false, l->state.step, &l->loader));
    TR_TRY(tr_train_step_create(l->s, l->collectives, l->loader, &l->train_step));
    TR_TRY(tr_world_agree(l->world, tr_loop_is_root(l) ? begin_run(l) : TR_OK));
    TR_TRY(tr_report_open(&l->report, l->s, l->run, log.every, l->params->version));
    TR_TRY(tr_report_resume(&l->report, l->state.step, l->state.valid_pending, l->told));
    TR_TRY(tr_report_rate_open(l->s, &l->report.rate));
    l->report.base_bytes = base_bytes;
    l->report.session = l->history.session;
    TR_TRY(tr_history_hosts(l));
    if (tr_loop_is_root(l)) tr_history_begin(l);
    if (tr_loop_is_root(l)) tr_loop_watch_time(l);
    introduce(l);
    return TR_OK;
}

void tr_loop_tear_down(loop_t *l) {
    /* first: after a peer is lost, a GPU is still in a collective, and freeing memory would wait
     * for it */
    if (l->collectives) tr_graph_drop_captures(l->s->g);
    if (l->collectives) tr_world_collectives_close(l->world, &l->collectives);
    tr_train_step_destroy(&l->train_step);
    tr_loader_destroy(&l->loader);
    tr_checkpointer_destroy(&l->checkpointer);
    tr_snapshot_destroy(&l->snapshot);
    tr_checkpoint_close(&l->resume);
    tr_weights_close(&l->init);
    tr_schedule_destroy(&l->schedule);
    tr_session_destroy(&l->s);
    tr_preprocess_destroy(&l->kept);
    tr_preprocess_destroy(&l->first);
    tr_run_close(&l->run);
    tr_free(&l->run_dir);
    json_decref(l->told);
    json_decref(l->history.hosts);
    tr_checkpoint_texts_free(&l->files);
    free(l->state_text);
    free(l->metadata);
}
