/* Setup before the first step, and teardown. */
#include "comm/watchdog.h"
#include "history.h"
#include "loop_int.h"
#include "run/verdict.h"
#include "run/while_running.h"
#include "signals.h"
#include "base/clock.h"
#include "base/file.h"
#include "trainer/log.h"
#include "weights/export.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

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

/* Checks that there are validation data for train.patience and checkpoint.best_by. */
static tr_status_t loop_check_validation(const loop_t *l) {
    const tr_session_t *s = l->s;
    const bool is_validated = s->dataset[TR_SPLIT_VALID] && l->valid.steps > 0;
    if (s->train.patience > 0 && !is_validated)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "train.patience = %lld counts validations, and this run has none: set data.valid or "
            "data.valid_fraction, and a train.valid_every above 0",
            (long long)s->train.patience);
    if (l->saving.settings.best_by == TR_BEST_BY_ACCURACY && is_validated && s->info.classes <= 0)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "checkpoint.best_by = valid_accuracy expects classes, data.y has numbers to predict: "
            "use valid_loss");
    if (l->saving.settings.best_by == TR_BEST_BY_IOU && is_validated && !tr_session_has_iou(s))
        return TR_FAIL(
            TR_ERR_CONFIG,
            "checkpoint.best_by = valid_iou expects a label of each position, or model.loss "
            "= binary_cross_entropy, data.y has %s: use valid_loss%s",
            s->info.classes > 0 ? "one of each sample" : "numbers to predict",
            s->info.classes > 0 ? " or valid_accuracy" : "");
    return TR_OK;
}

/* What is due when, by the steps of the run. */
static tr_status_t loop_read_times(loop_t *l) {
    const tr_session_t *s = l->s;
    TR_TRY(tr_interval_parse("checkpoint.every", l->saving.settings.every, true, s->total_steps,
                             s->steps_per_epoch, &l->saving.every));
    TR_TRY(tr_interval_parse("train.valid_every", s->train.valid_every, false, s->total_steps,
                             s->steps_per_epoch, &l->valid));
    TR_TRY(loop_check_validation(l));
    return tr_schedule_create(&s->schedule, s->optim.lr, s->total_steps, s->steps_per_epoch,
                              &l->schedule);
}

/* -- saving: rank 0 ---------------------------------------------------------------------------- */

/* The space for the checkpoints that this run may add before one is deleted: those to keep, plus
 * the one being written; for one, if all are kept, because their number is unknown. */
static tr_status_t loop_check_room(const loop_t *l) {
    const loop_saving_t *saving = &l->saving;
    const char *dir = tr_run_checkpoint_dir(l->run);
    const bool has_best =
        saving->settings.best && l->s->dataset[TR_SPLIT_VALID] && l->valid.steps > 0;
    tr_checkpoint_content_t content;
    tr_steps_t there = {0};
    if (l->state.step >= l->s->total_steps) return TR_OK; /* nothing is left to train */
    TR_TRY(tr_checkpoint_clean(dir, true));
    tr_status_t status = tr_checkpoint_list(dir, &there);
    const int64_t kept = saving->settings.keep > 0 ? saving->settings.keep + has_best : 0,
                  room = kept + 1 - (int64_t)there.count;
    tr_vec_free(&there);
    TR_TRY(status);
    double saves = 1; /* the last one */
    if (saving->every.seconds > 0) saves = INFINITY;
    if (saving->every.steps > 0)
        saves = floor((l->s->total_steps - 1) / saving->every.steps) + 1 -
                floor((double)l->state.step / saving->every.steps);
    int64_t count = 1;
    if (room >= 1 && saves >= 1) count = saves < (double)room ? (int64_t)saves : room;
    tr_snapshot_content(saving->snapshot, &content);
    content.state_json = saving->state_text;
    content.texts = saving->files.data;
    content.text_count = saving->files.count;
    return tr_checkpoint_room(dir, &content, count);
}

/* A run that resumes from a checkpoint finds the lines of all steps before it, unless the disk does
 * not take them. */
static tr_status_t loop_before_writing(void *self) {
    enum { MOST_SEC = 10 };
    const loop_t *l = self;
    if (l->recorder) (void)tr_recorder_wait(l->recorder, MOST_SEC);
    return tr_run_check_there(l->run);
}

/* Where ranks share: all of them must see the folder of checkpoints. Collective. */
static tr_status_t loop_check_shared_folder(loop_t *l, const char *dir) {
    char name[64], path[4096], *text = NULL;
    uint64_t token = 0;
    const bool is_root = tr_loop_is_root(l);
    tr_status_t status = TR_OK;
    if (is_root && getrandom(&token, sizeof token, GRND_NONBLOCK) < 0) token = (uint64_t)getpid();
    TR_TRY(tr_world_broadcast(l->world, &token, sizeof token, 0));
    snprintf(name, sizeof name, ".tmp-shared-%016llx-0", (unsigned long long)token);
    TR_TRY(tr_path_join(dir, name, path));
    if (is_root)
        status = tr_replace_file(path, name, strlen(name), TR_REPLACE_DURABLE | TR_REPLACE_OFTEN);
    TR_TRY(tr_world_agree(l->world, status));
    if (!is_root &&
        (tr_read_text(path, sizeof name, &text, &(int64_t){0}) != TR_OK || strcmp(text, name) != 0))
        status = TR_FAIL(TR_ERR_CONFIG,
                         "this rank does not see the folder of checkpoints of rank 0, %s: with "
                         "parallel.zero every rank writes its part of them. Set run.dir to a "
                         "folder on a file system that all nodes share, or parallel.zero = none",
                         dir);
    tr_free(&text);
    status = tr_world_agree(l->world, status);
    if (is_root) (void)unlink(path);
    return status;
}

/* The writer of a rank's pieces, where ranks share. */
static tr_status_t loop_open_part_writer(loop_t *l, const char *dir) {
    const tr_checkpointer_params_t params = {.dir = dir, .writes_part = true};
    return tr_checkpointer_create(&params, &l->saving.checkpointer);
}

static tr_status_t loop_open_root_writer(loop_t *l) {
    const tr_checkpointer_params_t params = {.dir = tr_run_checkpoint_dir(l->run),
                                             .keep = l->saving.settings.keep,
                                             .before = loop_before_writing,
                                             .self = l};
    char resume_hint[TR_RESUME_HINT_BYTES];
    TR_TRY(tr_loop_describe_state(l)); /* its errors now, not at the first checkpoint */
    TR_TRY(tr_export_files(l->s, &l->saving.files));
    TR_TRY(loop_check_room(l));
    TR_TRY(tr_checkpointer_create(&params, &l->saving.checkpointer));
    tr_loop_resume_hint(l, resume_hint, sizeof resume_hint);
    tr_signals_checkpoints(params.dir, resume_hint);
    /* Repairs the link after a run that was killed between the commit of a checkpoint and its
     * link. */
    if (l->origin.is_own && l->state.saved_step >= 0 &&
        tr_checkpoint_link(params.dir, "latest", l->state.saved_step) != TR_OK)
        TR_WARN("%s", tr_error_last()->message);
    return TR_OK;
}

/* Collective. */
static tr_status_t loop_open_checkpointer(loop_t *l) {
    char *dir = NULL;
    tr_status_t status = TR_OK;
    if (tr_loop_is_root(l)) {
        status = loop_open_root_writer(l);
        if (status == TR_OK) status = tr_strdup(tr_run_checkpoint_dir(l->run), &dir);
    }
    status = tr_world_agree(l->world, status);
    if (status != TR_OK || !tr_graph_is_sharded(l->s->g)) goto done;
    if (!tr_watchdog_is_linked(l->world)) {
        status = TR_FAIL(TR_ERR_CONFIG,
                         "parallel.zero expects that ranks can connect to rank 0 by TCP: they "
                         "report their parts of a checkpoint. Set parallel.zero = none");
        goto done;
    }
    TR_TRY_GOTO(tr_world_broadcast_text(l->world, &dir, 0), done);
    TR_TRY_GOTO(loop_check_shared_folder(l, dir), done);
    if (!tr_loop_is_root(l)) status = loop_open_part_writer(l, dir);
    status = tr_world_agree(l->world, status);
done:
    tr_free(&dir);
    return status;
}

/* Begins the run when everything is checked and open. If nothing is left to train, the
 * configuration in the folder is not changed. */
static tr_status_t loop_begin_run(loop_t *l) {
    const char *restarts = getenv("SLURM_RESTART_COUNT");
    tr_monitor_settings_t monitor;
    tr_str_t text = {0};
    tr_config_read(l->config, &tr_monitor_config, &monitor);
    TR_TRY(tr_board_open(l->run_dir, l->s->total_steps, monitor.port >= 0, &l->board));
    if (l->origin.is_own && l->state.step >= l->s->total_steps) return TR_OK;
    const tr_server_params_t server = {.dir = l->run_dir,
                                       .is_resumed =
                                           l->start.number > 1 || (restarts && atoi(restarts) > 0),
                                       .board = l->board,
                                       .world = l->world,
                                       .version = l->params->version};
    TR_TRY(tr_server_start(&monitor, &server, &l->server));
    TR_TRY(tr_checkpoint_set_aside(tr_run_checkpoint_dir(l->run), l->state.step));
    tr_status_t status = tr_config_serialize(l->config, &text);
    if (status == TR_OK) status = tr_run_begin(l->run, text.text);
    tr_str_free(&text);
    return status;
}

static tr_status_t loop_create_profiler(loop_t *l) {
    const tr_session_t *s = l->s;
    tr_cuda_settings_t cuda;
    tr_config_read(l->config, &tr_cuda_config, &cuda);
    const tr_profiler_params_t params = {
        .config = l->config,
        .run_dir = l->run_dir,
        .world = l->world,
        .device = s->device,
        .g = s->g,
        .collectives = l->collectives,
        .last = s->last,
        .update = s->update,
        .slot_count = s->slot_count,
        .steps_done = l->state.step,
        .total_steps = s->total_steps,
        .dtype = tr_precision_dtype((tr_precision_t)s->main.precision),
        .measures_peak = s->device->immediate || (cuda.measure_peak && !cuda.share),
        .workers = tr_loader_workers(&s->data, s->cores),
        .prefetch = s->data.prefetch,
        .micro_batch = s->order.micro_batch,
        .batch_size = s->order.batch_size};
    return tr_profiler_create(&params, &l->profiler);
}

/* -- the whole --------------------------------------------------------------------------------- */

/* Logs what will be trained, on what, and what looks like a mistake. */
static void loop_log_plan(const loop_t *l) {
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
    const tr_dataset_t *valid = s->dataset[TR_SPLIT_VALID];
    if (tr_loop_test_selects(l))
        TR_INFO("validation and test use the same data, %s, and the best checkpoint is selected on "
                "it; %s",
                valid->info.description,
                s->data.valid_fraction > 0 ? "set data.test to other data"
                                           : "data.valid_fraction = 0.1 holds out a part of the "
                                             "training data instead");
    if (!valid && l->valid.steps > 0)
        TR_INFO("no validation data: set data.valid, or data.valid_fraction = 0.1 to hold out a "
                "tenth of the "
                "training data");
    if (s->slots % l->info->size != 0)
        TR_WARN("%lld micro-batches are not a multiple of %d ranks: some ranks compute one more, "
                "and the others wait",
                (long long)s->slots, l->info->size);
}

/* The watchdog ends this rank. */
static void loop_has_ended(const char *why, const char *host) {
    tr_verdict_again(why, host);
    tr_while_running_end();
}

tr_status_t tr_loop_set_up(loop_t *l) {
    tr_log_settings_t log;
    tr_run_settings_t run;
    tr_parallel_settings_t parallel;
    tr_monitor_settings_t monitor;
    const bool is_root = tr_loop_is_root(l);
    tr_status_t status = TR_OK;
    tr_config_read(l->config, &tr_run_config, &run);
    tr_config_read(l->config, &tr_parallel_config, &parallel);
    tr_config_read(l->config, &tr_log_config, &log);
    tr_config_read(l->config, &tr_checkpoint_config, &l->saving.settings);
    tr_verdict_open(run.verdict);
    /* The watchdog runs until the caller closes the world, so that it also covers the exit of the
     * ranks. */
    tr_watchdog_phase(l->world, TR_PHASE_START, 0);
    TR_TRY(tr_watchdog_start(l->world, parallel.timeout, tr_signals_pending));
    tr_watchdog_on_end(l->world, loop_has_ended);
    TR_TRY(tr_loop_open_origin(l));
    TR_TRY(tr_loop_share_origin(l));

    const loop_origin_t *origin = &l->origin;
    const tr_session_params_t session = {.purpose = TR_SESSION_TRAIN,
                                         .loaded = !is_root || origin->checkpoint ||
                                                   (origin->init && origin->init->is_complete),
                                         .rank = l->info->rank,
                                         .size = l->info->size,
                                         .order = &origin->order,
                                         .precision = origin->precision,
                                         .trained_preprocess = origin->preprocess,
                                         .init_preprocess = origin->init_preprocess};
    TR_TRY(tr_session_create(l->config, l->world, &session, &l->s));
    tr_session_t *s = l->s;
    TR_TRY(tr_world_agree(l->world, is_root ? tr_session_checksum(s, TR_SPLIT_VALID) : TR_OK));
    /* once a run; synthetic samples are drawn for each split */
    if (is_root && !origin->preprocess && strncmp(s->data.format, "synthetic", 9) != 0)
        tr_dataset_warn_overlap(s->dataset);
    TR_TRY(tr_world_agree(l->world, loop_read_times(l)));

    const size_t base_bytes = tr_metrics_peak_bytes();
    const double resume_begin_sec = tr_clock_sec();
    if (l->info->size > 1)
        TR_TRY(tr_world_collectives(l->world, s->device, &s->parallel, &l->collectives));
    if (l->collectives && l->collectives->advice[0]) TR_WARN("%s", l->collectives->advice);
    TR_TRY(tr_session_fit(s));
    TR_TRY(tr_loop_begin_state(l));
    l->start.resume_sec = tr_clock_sec() - resume_begin_sec;
    TR_TRY(tr_world_agree(l->world, loop_create_profiler(l)));
    TR_TRY(loop_open_checkpointer(l));
    TR_TRY(tr_session_loader(s, TR_SPLIT_TRAIN, false, l->state.step, &l->loader));
    TR_TRY(tr_train_step_create(s, l->collectives, l->loader, &l->train_step));
    if (l->info->size > 1 && s->parallel.check > 0)
        TR_TRY(tr_world_agree(l->world, tr_replicas_create(s, &l->replicas)));
    TR_TRY(tr_world_agree(l->world, is_root ? loop_begin_run(l) : TR_OK));
    TR_TRY(tr_loop_open_verdict(l, true));
    if (is_root && l->state.step < s->total_steps) tr_verdict_reserve();

    TR_TRY(tr_metrics_open(&l->metrics, s, l->run, log.every, l->params->version));
    tr_config_read(l->config, &tr_monitor_config, &monitor);
    TR_TRY(tr_telemetry_start(l->world, s->device, monitor.interval, &l->telemetry));
    if (is_root) l->metrics.telemetry = l->telemetry;
    TR_TRY(tr_metrics_resume(&l->metrics, l->state.step, l->state.valid_pending, origin->metrics));
    TR_TRY(tr_metrics_rate_open(s, &l->metrics.rate));
    l->metrics.base_bytes = base_bytes;
    l->metrics.start = l->start.number;
    TR_TRY(tr_history_hosts(l));
    if (is_root) tr_history_begin(l); /* before the recorder, whose board reads it */
    if (is_root) tr_board_describe(l->board, tr_metrics_facts(&l->metrics));
    if (is_root) status = tr_recorder_start(l->run, l->config, l->board, &l->recorder);
    TR_TRY(tr_world_agree(l->world, status));
    l->metrics.recorder = l->recorder;
    if (is_root && s->dataset[TR_SPLIT_VALID]) status = tr_strip_create(s, &l->strip);
    TR_TRY(tr_world_agree(l->world, status));
    if (is_root) tr_loop_watch_time(l);
    loop_log_plan(l);
    return TR_OK;
}

void tr_loop_tear_down(loop_t *l) {
    /* first: after a peer is lost, a GPU is still in a collective, and freeing memory would wait
     * for it */
    if (l->collectives) tr_graph_drop_captures(l->s->g);
    if (l->collectives) tr_world_collectives_close(l->world, &l->collectives);
    tr_strip_destroy(&l->strip);
    tr_replicas_destroy(&l->replicas);
    tr_train_step_destroy(&l->train_step);
    tr_loader_destroy(&l->loader);
    tr_checkpointer_destroy(&l->saving.checkpointer);
    tr_snapshot_destroy(&l->saving.snapshot);
    tr_schedule_destroy(&l->schedule);
    tr_session_destroy(&l->s);
    tr_loop_close_origin(l);
    tr_run_close(&l->run);
    tr_free(&l->run_dir);
    json_decref(l->start.hosts);
    tr_checkpoint_texts_free(&l->saving.files);
    free(l->saving.state_text);
    free(l->saving.metadata);
}
