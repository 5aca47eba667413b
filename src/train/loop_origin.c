/* What a run starts from: its folder, the checkpoint to resume or the weights of model.init, and
 * the state that is loaded from them. */
#include "history.h"
#include "loop_int.h"
#include "run/verdict.h"
#include "session/settings.h"
#include "signals.h"
#include "trainer/log.h"
#include "until.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* -- opening: before there is a session -------------------------------------------------------- */

/* Removes the verdict of an earlier start as early as possible. In the run folder, it belongs to
 * the run that holds the lock. */
static tr_status_t loop_open_run(loop_t *l) {
    tr_run_settings_t run;
    tr_config_read(l->config, &tr_run_config, &run);
    TR_TRY(tr_until_parse(run.until, &l->until_sec));
    if (run.verdict[0]) TR_TRY(tr_verdict_clear());
    TR_TRY(tr_run_open(&run, l->params->config_path, tr_signals_pending, &l->run));
    TR_TRY(tr_history_open(l));
    return tr_strdup(tr_run_dir(l->run), &l->run_dir);
}

/* With parallel.zero all ranks read the files of a checkpoint, so each verifies a part of it. path: of
 * rank 0; "" when it needs no more. What another rank has found, rank 0 looks for itself: its error says
 * what is damaged, and that rank may see other files. Collective. */
static tr_status_t loop_open_together(loop_t *l, const char *path, tr_checkpoint_t **out,
                                      bool *out_goes_on) {
    char named[4096] = "";
    if (path) snprintf(named, sizeof named, "%s", path);
    *out_goes_on = false;
    TR_TRY(tr_world_broadcast(l->world, named, sizeof named, 0));
    if (!named[0]) return TR_OK;
    const tr_status_t status = tr_checkpoint_open_part(named, l->info->rank, l->info->size, out);
    int64_t is_sound = status == TR_OK;
    TR_TRY(tr_world_allreduce_int(l->world, &is_sound, 1, TR_REDUCE_MIN));
    *out_goes_on = true;
    if (status != TR_OK || is_sound || !path) return status;
    tr_checkpoint_close(out);
    return tr_checkpoint_open(path, out);
}

/* Rank 0's tr_checkpoint_opener_t. */
static tr_status_t loop_open_verified(void *self, const char *path, tr_checkpoint_t **out) {
    return loop_open_together(self, path, out, &(bool){false});
}

static tr_status_t loop_open_resume(loop_t *l, const tr_checkpoint_opener_t *opener) {
    loop_origin_t *origin = &l->origin;
    tr_main_settings_t main;
    tr_config_read(l->config, &tr_main_config, &main);
    if (strcmp(main.resume, "auto") == 0 || strcmp(main.resume, "no") == 0) {
        origin->is_own = true;
        TR_TRY(tr_state_open_newest(tr_run_checkpoint_dir(l->run), opener, &origin->checkpoint));
        if (origin->checkpoint && strcmp(main.resume, "no") == 0)
            return TR_FAIL(TR_ERR_CONFIG,
                           "resume = no, but %s holds checkpoints (newest: step %lld); choose "
                           "another run.dir, or resume = auto",
                           tr_run_dir(l->run), (long long)origin->checkpoint->step);
        return TR_OK;
    }
    /* Checkpoints of later steps would be kept longer than those of this run, and resume = auto
     * would use them. */
    tr_steps_t steps = {0};
    TR_TRY(tr_state_open_resume(main.resume, opener, &origin->checkpoint));
    tr_status_t status = tr_checkpoint_list(tr_run_checkpoint_dir(l->run), &steps);
    if (status == TR_OK && steps.count > 0 && steps.data[0] > origin->checkpoint->step)
        status = TR_FAIL(TR_ERR_CONFIG,
                         "resume = %s is of step %lld, but %s holds later checkpoints (newest: "
                         "step %lld): resume from the newest with resume = auto, or choose another "
                         "run.dir",
                         main.resume, (long long)origin->checkpoint->step, tr_run_dir(l->run),
                         (long long)steps.data[0]);
    tr_vec_free(&steps);
    return status;
}

static tr_status_t loop_open_origin(loop_t *l, const tr_checkpoint_opener_t *opener) {
    tr_train_settings_t train;
    tr_model_settings_t model;
    tr_interval_t unused;
    /* First, what needs neither data nor files. */
    tr_config_read(l->config, &tr_train_config, &train);
    TR_TRY(
        tr_interval_parse("checkpoint.every", l->saving.settings.every, true, 100, 100, &unused));
    TR_TRY(tr_interval_parse("train.valid_every", train.valid_every, false, 100, 100, &unused));
    TR_TRY(loop_open_run(l));
    TR_TRY(loop_open_resume(l, opener));
    if (l->origin.checkpoint) TR_TRY(tr_state_check_keys(l->config, l->origin.checkpoint));
    tr_config_read(l->config, &tr_model_config, &model);
    if (l->origin.checkpoint || !model.init[0]) return TR_OK;
    TR_TRY(tr_weights_open(model.init, &l->origin.init));
    return tr_state_preprocess(l->origin.init->state, l->origin.init->path,
                               &l->origin.init_preprocess);
}

tr_status_t tr_loop_open_origin(loop_t *l) {
    const tr_checkpoint_opener_t opener = {loop_open_verified, l};
    tr_parallel_settings_t parallel;
    tr_status_t status = TR_OK;
    tr_config_read(l->config, &tr_parallel_config, &parallel);
    const bool verifies = parallel.zero > 0 && l->info->size > 1;
    const bool is_root = tr_loop_is_root(l);
    if (is_root) status = loop_open_origin(l, verifies ? &opener : NULL);
    /* The other ranks follow, until rank 0 has opened it. What is damaged for one of them alone, in the
     * last checkpoint, ends the run: it would load the same bytes. */
    for (bool goes_on = verifies; goes_on;) {
        tr_checkpoint_t *part = NULL;
        const tr_status_t found = loop_open_together(l, is_root ? "" : NULL, &part, &goes_on);
        tr_checkpoint_close(&part);
        if (is_root || !goes_on) continue;
        if (found != TR_OK && found != TR_ERR_DATA) tr_error_clear();
        status = found == TR_ERR_DATA ? found : TR_OK;
    }
    return tr_world_agree(l->world, status);
}

/* -- what every rank knows --------------------------------------------------------------------- */

tr_status_t tr_loop_open_verdict(loop_t *l, bool is_begun) {
    tr_run_settings_t run;
    char path[4096];
    tr_config_read(l->config, &tr_run_config, &run);
    if (run.verdict[0] || snprintf(path, sizeof path, "%s/verdict", l->run_dir) >= (int)sizeof path)
        return TR_OK;
    bool is_done = tr_loop_is_root(l) && tr_verdict_is_done(path);
    TR_TRY(tr_world_broadcast(l->world, &is_done, sizeof is_done, 0));
    if (is_done != is_begun) return TR_OK;
    tr_verdict_open(path);
    return tr_world_agree(l->world, tr_loop_is_root(l) ? tr_verdict_clear() : TR_OK);
}

tr_status_t tr_loop_share_origin(loop_t *l) {
    loop_origin_t *origin = &l->origin;
    char *text = NULL, *path = NULL;
    json_t *state;
    tr_status_t status = TR_OK;
    TR_TRY(tr_world_broadcast_text(l->world, &l->run_dir, 0));
    TR_TRY(tr_world_broadcast(l->world, &l->start.number, sizeof l->start.number, 0));
    TR_TRY(tr_loop_open_verdict(l, false));
    /* Every rank opens the log, so that an error of a single rank is also logged. */
    if (!tr_loop_is_root(l)) tr_run_join_log(l->run_dir);
    if (tr_loop_is_root(l)) {
        const tr_checkpoint_t *checkpoint = origin->checkpoint;
        status = tr_strdup(checkpoint ? checkpoint->state_json : "", &text);
        if (status == TR_OK) status = tr_strdup(checkpoint ? checkpoint->path : "", &path);
    }
    TR_TRY(tr_world_agree(l->world, status));
    TR_TRY(tr_world_broadcast_text(l->world, &text, 0));
    TR_TRY(tr_world_broadcast_text(l->world, &path, 0));
    state = origin->checkpoint ? json_incref(origin->checkpoint->state) : json_loads(text, 0, NULL);
    tr_state_order(state, &origin->order);
    origin->precision = tr_state_precision(state);
    status = tr_state_preprocess(state, path, &origin->preprocess);
    json_decref(state);
    tr_free(&text);
    tr_free(&path);
    return tr_world_agree(l->world, status);
}

/* -- loading the state ------------------------------------------------------------------------- */

/* The same numbers: the same file, also for another process of this node. */
typedef struct {
    int64_t device, inode, sec, nsec;
} file_identity_t;

static bool file_identify(const char *path, file_identity_t *out) {
    struct stat info;
    if (stat(path, &info) != 0) return false;
    *out = (file_identity_t){(int64_t)info.st_dev, (int64_t)info.st_ino, info.st_mtim.tv_sec,
                             info.st_mtim.tv_nsec};
    return true;
}

/* If all ranks are on one node, each reads the weights of model.init from its page cache, which is
 * faster than a broadcast; on a GPU, each would need host memory for it. Not if some parameters
 * keep the initial values, which only rank 0 has.
 * *out_all: all ranks have opened the weights. */
static tr_status_t loop_open_init_on_all(loop_t *l, bool *out_all) {
    tr_weights_t **init = &l->origin.init;
    char *path = NULL;
    file_identity_t theirs = {0}, mine = {0};
    const bool is_shared = *init && (*init)->is_complete && l->s->device->host_visible &&
                           !tr_graph_is_sharded(l->s->g);
    const char *root_path = is_shared ? (*init)->path : "";
    TR_TRY(tr_world_agree(l->world, tr_loop_is_root(l) ? tr_strdup(root_path, &path) : TR_OK));
    if (*init) (void)file_identify((*init)->path, &theirs);
    TR_TRY(tr_world_broadcast_text(l->world, &path, 0));
    TR_TRY(tr_world_broadcast(l->world, &theirs, sizeof theirs, 0));
    if (path[0] && l->info->nodes == 1 && !*init && file_identify(path, &mine) &&
        memcmp(&mine, &theirs, sizeof mine) == 0 && tr_weights_open_checked(path, init) != TR_OK)
        tr_error_clear(); /* then the weights are broadcast */
    int64_t has = path[0] && *init;
    tr_free(&path);
    TR_TRY(tr_world_allreduce_int(l->world, &has, 1, TR_REDUCE_MIN));
    *out_all = has == 1;
    return TR_OK;
}

/* Where ranks share, each reads what it has from the files that rank 0 has verified. Collective. */
static tr_status_t loop_open_on_all(loop_t *l) {
    loop_origin_t *origin = &l->origin;
    struct {
        bool resumes;
        uint64_t checksum;
    } what = {origin->checkpoint != NULL, origin->checkpoint ? origin->checkpoint->checksum : 0};
    char *path = NULL;
    tr_status_t status = TR_OK;
    if (!tr_graph_is_sharded(l->s->g)) return TR_OK;
    if (tr_loop_is_root(l))
        status = tr_strdup(what.resumes   ? origin->checkpoint->path
                           : origin->init ? origin->init->path
                                          : "",
                           &path);
    TR_TRY(tr_world_agree(l->world, status));
    TR_TRY(tr_world_broadcast_text(l->world, &path, 0));
    TR_TRY(tr_world_broadcast(l->world, &what, sizeof what, 0));
    if (!tr_loop_is_root(l) && what.resumes)
        status = tr_checkpoint_open_part(path, 1, 1, &origin->checkpoint);
    else if (!tr_loop_is_root(l) && path[0])
        status = tr_weights_open_checked(path, &origin->init);
    const bool is_other =
        status == TR_OK && origin->checkpoint && origin->checkpoint->checksum != what.checksum;
    if (is_other || status != TR_OK)
        status = TR_FAIL(TR_ERR_CONFIG,
                         "%s is not what rank 0 has opened there: with parallel.zero every rank "
                         "reads its part, from a file system that all nodes share%s%s",
                         path, is_other ? "" : ". ", is_other ? "" : tr_error_last()->message);
    tr_free(&path);
    return tr_world_agree(l->world, status);
}

/* A checkpoint that was complete when it was opened may be damaged when its tensors are read. Then
 * the newest one is opened and verified again. If none is left, the error is the first one. Where ranks
 * share, the others read the first one: it is not opened again. */
static tr_status_t loop_restore(loop_t *l) {
    enum { TRIES = 3 };
    tr_checkpoint_t **checkpoint = &l->origin.checkpoint;
    tr_error_t first = {0};
    for (int i = 1;; i++) {
        TR_TRY(tr_state_check(l->s, *checkpoint));
        const tr_status_t status = tr_snapshot_restore(l->saving.snapshot, *checkpoint);
        const bool is_unreadable = status == TR_ERR_DATA || status == TR_ERR_IO;
        if (!is_unreadable || !l->origin.is_own || i == TRIES || tr_graph_is_sharded(l->s->g))
            return status;
        TR_WARN("%s could not be read: %s", (*checkpoint)->path, tr_error_last()->message);
        if (i == 1) first = *tr_error_last();
        tr_error_clear();
        tr_checkpoint_close(checkpoint);
        const tr_status_t opened =
            tr_state_open_newest(tr_run_checkpoint_dir(l->run), NULL, checkpoint);
        if (opened != TR_OK && opened != TR_ERR_DATA) return opened;
        if (!*checkpoint)
            return TR_FAIL(first.code,
                           "%s holds no checkpoint that can be read. Restore one, or start a new "
                           "run in another run.dir. The first error: %.1000s",
                           tr_run_dir(l->run), first.message);
    }
}

/* A summary has nine digits: an equal score is not a better one. */
static double loop_unrounded(double told, double best) {
    return isfinite(best) && fabs(told - best) <= 1e-8 * fabs(best) ? best : told;
}

/* The validation after a checkpoint that was saved before it, from the summary of the run. */
static void loop_take_validation(loop_t *l, const json_t *summary) {
    static const char *const keys[] = {"valid_loss", "valid_accuracy", "valid_r2", "valid_iou"};
    enum { LOSS, ACCURACY, R2, IOU, KEYS };
    const int best_by = l->saving.settings.best_by;
    double value[KEYS];
    for (int i = 0; i < KEYS; i++) {
        json_t *found = json_object_get(summary, keys[i]);
        value[i] = json_is_number(found) ? json_number_value(found) : NAN;
        if (found) json_object_set(l->origin.metrics, keys[i], found);
    }
    /* what the validation and the end of an epoch begin anew */
    json_object_del(l->origin.metrics, "unvalidated");
    if (tr_loop_ends_epoch(l)) json_object_del(l->origin.metrics, "epoch");
    const double score = value[best_by == TR_BEST_BY_IOU ? IOU : ACCURACY];
    if (!tr_loop_state_validated(&l->state, loop_unrounded(value[LOSS], l->state.best_loss),
                                 loop_unrounded(score, l->state.best_score),
                                 best_by != TR_BEST_BY_LOSS))
        return;
    l->state.best_accuracy = value[ACCURACY];
    l->state.best_r2 = value[R2];
    l->state.best_iou = value[IOU];
}

/* Continues the counts of the run from the state in its checkpoint. Values missing in older
 * checkpoints are empty. The metrics, validations and best loss of another run are not continued:
 * they belong to its folder, as does its best checkpoint. */
static void loop_continue_counts(loop_t *l) {
    tr_main_settings_t main;
    tr_loop_state_t *to = &l->state;
    const json_t *state = l->origin.checkpoint->state;
    const json_t *best = json_object_get(state, "best_valid_loss"),
                 *best_accuracy = json_object_get(state, "best_valid_accuracy"),
                 *best_r2 = json_object_get(state, "best_valid_r2"),
                 *best_iou = json_object_get(state, "best_valid_iou"),
                 *best_step = json_object_get(state, "best_step"),
                 *stale = json_object_get(state, "stale_validations");
    tr_config_read(l->config, &tr_main_config, &main);
    to->step = to->saved_step = l->origin.checkpoint->step;
    l->skipped = json_integer_value(json_object_get(state, "skipped"));
    if (l->origin.is_own || tr_run_has(l->run, main.resume)) {
        to->begins_anew = json_is_true(json_object_get(state, "valid_begins_anew"));
        /* Scores on other samples do not compare. The link `best` stays until the next validation. */
        if (to->step < l->s->total_steps && tr_state_has_other_data(l->s, state, TR_SPLIT_VALID)) {
            TR_WARN("the validation samples are not those of the checkpoint: the best checkpoint "
                    "and train.patience begin anew. The next validation replaces the best "
                    "checkpoint so far; copy it, or use another run.dir, to keep it");
            best = best_accuracy = best_r2 = best_iou = best_step = stale = NULL;
            to->begins_anew = true;
        }
        if (json_is_number(best)) to->best_loss = json_number_value(best);
        if (json_is_number(best_accuracy)) to->best_accuracy = json_number_value(best_accuracy);
        if (json_is_number(best_r2)) to->best_r2 = json_number_value(best_r2);
        if (json_is_number(best_iou)) to->best_iou = json_number_value(best_iou);
        to->best_score =
            l->saving.settings.best_by == TR_BEST_BY_IOU ? to->best_iou : to->best_accuracy;
        to->stale = json_integer_value(stale);
        if (json_is_integer(best_step)) to->best_step = json_integer_value(best_step);
        l->origin.metrics = json_incref(json_object_get(state, "report"));
        to->valid_pending =
            l->s->dataset[TR_SPLIT_VALID] && json_is_true(json_object_get(state, "valid_pending"));
        json_t *summary = to->valid_pending ? tr_metrics_of_done(l->run, to->step) : NULL;
        if (summary && to->step >= l->s->total_steps)
            to->valid_pending = false;
        else if (summary && !to->begins_anew)
            loop_take_validation(l, summary);
        json_decref(summary);
    }
}

/* A schedule is stretched over the run. In a run that has become longer or shorter, the rate of the
 * next step may differ from what it would have been. */
static void loop_say_rate(const loop_t *l) {
    const tr_session_t *s = l->s;
    const int64_t step = l->state.step;
    tr_config_t *config = tr_state_config(l->origin.checkpoint->state);
    tr_schedule_settings_t settings;
    tr_train_settings_t train;
    tr_optim_settings_t optim;
    tr_schedule_t *was = NULL, *unchanged = NULL;
    if (!config) return;
    tr_config_read(config, &tr_schedule_config, &settings);
    tr_config_read(config, &tr_train_config, &train);
    tr_config_read(config, &tr_optim_config, &optim);
    const int64_t total = tr_session_steps(&train, s->steps_per_epoch);
    if (total != s->total_steps && step > 0 && step < s->total_steps &&
        tr_schedule_create(&settings, optim.lr, total, s->steps_per_epoch, &was) == TR_OK &&
        tr_schedule_create(&s->schedule, s->optim.lr, total, s->steps_per_epoch, &unchanged) ==
            TR_OK) {
        const double next = tr_schedule_lr(l->schedule, step),
                     planned = tr_schedule_lr(unchanged, step);
        if (fabs(next - planned) > 0.01 * fmax(next, planned))
            TR_INFO("the learning rate goes from %.3g in step %lld to %.3g in step %lld: "
                    "schedule.type = %s extends over the run, which had %lld steps and has %lld "
                    "now",
                    tr_schedule_lr(was, step - 1), (long long)step, next, (long long)step + 1,
                    s->schedule.type, (long long)total, (long long)s->total_steps);
    }
    tr_error_clear(); /* a schedule that does not fit into the shorter run */
    tr_schedule_destroy(&was);
    tr_schedule_destroy(&unchanged);
    tr_config_destroy(&config);
}

static tr_status_t loop_load_state(loop_t *l, bool all_have_init) {
    loop_origin_t *origin = &l->origin;
    const bool reads = tr_loop_is_root(l) || all_have_init || tr_graph_is_sharded(l->s->g);
    if (origin->checkpoint && !tr_loop_is_root(l)) {
        const tr_status_t status = tr_snapshot_restore(l->saving.snapshot, origin->checkpoint);
        tr_checkpoint_close(&origin->checkpoint);
        return status;
    }
    if (origin->checkpoint) {
        tr_str_t changes = {0};
        TR_TRY(loop_restore(l));
        loop_continue_counts(l);
        TR_INFO("resuming from %s", origin->checkpoint->path);
        tr_state_changes(origin->checkpoint->state, l->config, &changes);
        if (changes.length > 0) TR_INFO("changed since that checkpoint: %s", changes.text);
        tr_str_free(&changes);
        loop_say_rate(l);
        tr_checkpoint_close(&origin->checkpoint);
        return TR_OK;
    }
    if (!origin->init || !reads) return TR_OK;
    tr_snapshot_t *own = NULL;
    if (!l->saving.snapshot) TR_TRY(tr_snapshot_create(l->s, &own));
    const tr_status_t status = tr_snapshot_init(own ? own : l->saving.snapshot, origin->init);
    tr_snapshot_destroy(&own);
    tr_weights_close(&origin->init);
    return status;
}

tr_status_t tr_loop_begin_state(loop_t *l) {
    tr_loop_state_t *state = &l->state;
    bool is_resumed = l->origin.checkpoint != NULL, all_have_init = false;
    TR_TRY(loop_open_init_on_all(l, &all_have_init));
    TR_TRY(loop_open_on_all(l));
    TR_TRY(tr_session_start(l->s, l->collectives));
    TR_TRY(tr_world_agree(l->world, tr_loop_is_root(l) || tr_graph_is_sharded(l->s->g)
                                        ? tr_snapshot_create(l->s, &l->saving.snapshot)
                                        : TR_OK));
    /* model.init may leave some of the drawn parameters as they are */
    bool has_init = l->origin.init != NULL;
    TR_TRY(tr_world_broadcast(l->world, &has_init, sizeof has_init, 0));
    TR_TRY(tr_world_agree(l->world, loop_load_state(l, all_have_init)));
    TR_TRY(tr_world_broadcast(l->world, &state->step, sizeof state->step, 0));
    TR_TRY(tr_world_broadcast(l->world, &state->best_loss, sizeof state->best_loss, 0));
    TR_TRY(tr_world_broadcast(l->world, &state->best_score, sizeof state->best_score, 0));
    TR_TRY(tr_world_broadcast(l->world, &state->stale, sizeof state->stale, 0));
    TR_TRY(tr_world_broadcast(l->world, &state->valid_pending, sizeof state->valid_pending, 0));
    TR_TRY(tr_world_broadcast(l->world, &is_resumed, sizeof is_resumed, 0));
    /* without a file, each rank has drawn the parts that it has of the parameters */
    if (!all_have_init && (has_init || is_resumed || !tr_region_is_sharded(l->s->g, TR_ROLE_PARAM)))
        TR_TRY(tr_state_broadcast(l->s, l->collectives, is_resumed));
    if (l->saving.snapshot) tr_snapshot_prefault(l->saving.snapshot);
    /* an average starts at the weights */
    return is_resumed ? tr_optimizer_resume(l->s->g, &l->s->optim) : tr_optimizer_start(l->s->g);
}

void tr_loop_close_origin(loop_t *l) {
    tr_checkpoint_close(&l->origin.checkpoint);
    tr_weights_close(&l->origin.init);
    tr_preprocess_destroy(&l->origin.preprocess);
    tr_preprocess_destroy(&l->origin.init_preprocess);
    json_decref(l->origin.metrics);
}
