/* The training loop: steps, validation, checkpoints, the end. */
#include "checkpoint_int.h"
#include "report.h"
#include "trainer/session.h"
#include "signals.h"
#include "trainer/state.h"
#include "trainer/clock.h"
#include "trainer/log.h"
#include "trainer/mem.h"
#include "trainer/train.h"
#include "trainer/watchdog.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* When something is due: every so many steps, or seconds; neither: never. */
typedef struct {
    double steps, seconds, last_sec;
} due_t;

typedef struct {
    const tr_train_params_t *params;
    const tr_config_t *config;
    tr_world_t *world;
    const tr_world_info_t *info;
    tr_session_t *s;
    tr_collectives_t *collectives;
    tr_loader_t *loader;
    tr_stepper_t *stepper;
    tr_schedule_t *schedule;
    tr_report_t report;
    due_t save, valid;
    int64_t step;       /* steps done */
    int64_t saved_step; /* of the newest checkpoint handed over, -1 none */
    int64_t skipped;    /* updates skipped by on_nan = skip */
    double best_loss;   /* lowest validation loss so far, INFINITY none */
    char *run_dir;
    tr_resumed_t resumed; /* of the checkpoint to go on from */
    /* rank 0 */
    tr_run_t *run;
    tr_checkpoint_t *resume;
    bool own_resume; /* of this run folder, not of a path */
    tr_checkpointer_t *checkpointer;
    tr_snapshot_t *snapshot;
    char *state_text; /* of the checkpoint being written */
    bool owed;        /* a checkpoint was due while the writer was busy */
    bool writing;     /* a checkpoint was handed over, and how it went is not known yet */
    tr_checkpoint_settings_t save_settings;
} loop_t;

static bool is_root(const loop_t *l) {
    return l->info->rank == 0;
}

/* -- what is due
 * ----------------------------------------------------------------------------------------------------------------
 */

static tr_status_t parse_due(const char *key, const char *text, bool allow_time, int64_t total_steps,
                             double steps_per_epoch, due_t *out) {
    const size_t length = strlen(text);
    const bool has_unit = length > 0 && isalpha((unsigned char)text[length - 1]);
    *out = (due_t){.last_sec = tr_clock_sec()};
    if (strcmp(text, "0") == 0 || length == 0) return TR_OK;
    if (tr_parse_steps(text, total_steps, steps_per_epoch, &out->steps) && out->steps > 0) return TR_OK;
    if (allow_time && has_unit && tr_parse_duration(text, &out->seconds) && out->seconds > 0) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "%s = %s: expected steps (500), epochs (1epoch), a share of the run (10%%)%s, or 0", key,
                   text, allow_time ? ", a time (10min)" : "");
}

/* Whether a multiple of the period lies in (step - 1, step]: fractional epochs are met at the step that
 * completes them. */
static bool is_due(due_t *due, int64_t step) {
    if (due->steps > 0)
        return floor((double)step / due->steps + 1e-9) > floor((double)(step - 1) / due->steps + 1e-9);
    if (due->seconds <= 0 || tr_clock_sec() - due->last_sec < due->seconds) return false;
    due->last_sec = tr_clock_sec();
    return true;
}

/* -- checkpoints
 * ------------------------------------------------------------------------------------------------------------------
 */

/* Once the writer is idle: how the last checkpoint went. */
static void note_failure(loop_t *l) {
    if (!l->writing || tr_checkpointer_busy(l->checkpointer)) return;
    l->writing = false;
    const tr_checkpointer_stats_t stats = tr_checkpointer_stats(l->checkpointer);
    if (stats.last_error.code == TR_OK) return;
    l->saved_step = -1; /* the last one is tried again */
    TR_WARN("checkpoint not saved; training goes on, and the next one will be tried: %s",
            stats.last_error.message);
}

/* For l->state_text. */
static tr_status_t describe_state(const loop_t *l, char **out) {
    json_t *state = tr_state_json(l->s, l->step);
    if (!state)
        return TR_FAIL(TR_ERR_CONFIG,
                       "the state of the run cannot be written down: a setting or the name of a "
                       "data file is no UTF-8 text; rename it");
    json_object_set_new(state, "best_valid_loss",
                        isfinite(l->best_loss) ? json_real(l->best_loss) : json_null());
    json_object_set_new(state, "skipped", json_integer(l->skipped));
    json_object_set_new(state, "version", json_string(l->params->version));
    free(*out);
    *out = json_dumps(state, JSON_INDENT(2));
    json_decref(state);
    return *out ? TR_OK : TR_FAIL(TR_ERR_MEMORY, "out of memory for the state of the run");
}

/* Hands a snapshot of the state to the writer. Where the writer is still busy with an older one a periodic
 * save comes at the first step that finds it idle; `must` and the best wait. */
static tr_status_t save(loop_t *l, bool must, bool is_best) {
    tr_checkpoint_content_t content;
    if (!is_root(l)) return TR_OK;
    l->owed = tr_checkpointer_busy(l->checkpointer) && !must && !is_best;
    if (l->owed) return TR_OK;
    tr_watchdog_phase(l->world, TR_PHASE_CHECKPOINT, l->step);
    (void)tr_checkpointer_wait(l->checkpointer); /* its failure is said, and the last one's counts */
    note_failure(l);
    if (l->saved_step == l->step && !is_best) return TR_OK;
    TR_TRY(describe_state(l, &l->state_text));
    TR_TRY(tr_snapshot_take(l->snapshot));
    tr_snapshot_content(l->snapshot, &content);
    content.step = l->step;
    content.state_json = l->state_text;
    l->saved_step = l->step;
    l->writing = true;
    return tr_checkpointer_submit(l->checkpointer, &content, is_best);
}

/* -- validation
 * ---------------------------------------------------------------------------------------------------------------------
 */

static tr_status_t validate(loop_t *l, bool *is_best) {
    tr_eval_outcome_t v;
    const double start = tr_clock_sec();
    tr_watchdog_phase(l->world, TR_PHASE_EVALUATION, l->step);
    TR_TRY(tr_session_evaluate(l->s, TR_SPLIT_VALID, NULL, NULL, &v));
    *is_best = v.loss < l->best_loss;
    if (*is_best) l->best_loss = v.loss;
    return tr_report_valid(&l->report, l->step, &v, tr_clock_sec() - start, *is_best);
}

/* -- a loss that is not finite --------------------------------------------------------------------------- */

#define NONFINITE "step %lld: the loss or gradient is not finite (loss %s, gradient norm %s)"
#define NONFINITE_REMEDY                                                                                     \
    "Nothing was updated. Lower optimizer.lr, set optimizer.clip_norm, check the data, or set "              \
    "train.on_nan = skip"

static const char *number_text(double value, char text[32]) {
    snprintf(text, 32, isnan(value) ? "NaN" : isinf(value) ? "infinite" : "%g", value);
    return text;
}

/* Every rank looks through its last micro-batch; the lowest rank that finds an op says which. */
static tr_status_t name_nonfinite(loop_t *l, const tr_step_outcome_t *o) {
    const long long step = l->step + 1;
    char loss[32], norm[32];
    int op = -1;
    number_text(o->loss, loss);
    number_text(o->grad_norm, norm);
    /* Zero first: what other slots and ranks have spoilt in the sums would be found here, too. */
    tr_status_t status = tr_graph_zero_reduced(l->s->g, true);
    if (status == TR_OK) status = tr_program_find_nonfinite(l->s->g, l->s->last, &op);
    if (status == TR_OK && op >= 0) {
        const tr_op_t *found = tr_program_op(l->s->g, l->s->last, op);
        status = TR_FAIL(TR_ERR_STOP,
                         NONFINITE
                         "; the first output that is not finite is of op '%s' in %s (%s). " NONFINITE_REMEDY,
                         step, loss, norm, found->row->name, found->label[0] ? found->label : "the model",
                         found->backward ? "backward" : "forward");
    }
    TR_TRY(tr_world_agree(l->world, status));
    status = TR_FAIL(TR_ERR_STOP,
                     NONFINITE
                     ", by an earlier micro-batch of this step or in the sum over all. " NONFINITE_REMEDY,
                     step, loss, norm);
    return tr_world_agree(l->world, status);
}

static tr_status_t handle_nonfinite(loop_t *l, const tr_step_outcome_t *o) {
    if (l->s->train.on_nan == TR_ON_NAN_STOP) return name_nonfinite(l, o);
    char loss[32], norm[32];
    l->skipped++;
    TR_WARN("step %lld: loss %s, gradient norm %s: update skipped (%lld so far)", (long long)l->step + 1,
            number_text(o->loss, loss), number_text(o->grad_norm, norm), (long long)l->skipped);
    return TR_OK;
}

/* -- the loop
 * --------------------------------------------------------------------------------------------------------------------------
 */

static bool ends_epoch(const loop_t *l) {
    const double n = l->s->steps_per_epoch;
    return l->step == l->s->total_steps ||
           floor((double)l->step / n + 1e-9) > floor((double)(l->step - 1) / n + 1e-9);
}

static tr_status_t after_step(loop_t *l) {
    const bool is_last = l->step == l->s->total_steps;
    bool is_best = false;
    if (l->s->dataset[TR_SPLIT_VALID] && (is_due(&l->valid, l->step) || (is_last && l->valid.steps > 0)))
        TR_TRY(validate(l, &is_best));
    if (ends_epoch(l)) tr_report_epoch(&l->report, l->step);
    is_best = is_best && l->save_settings.best;
    if (is_root(l)) note_failure(l);
    if (!is_due(&l->save, l->step) && !l->owed && !is_best && !is_last) return TR_OK;
    const double start = tr_clock_sec();
    TR_TRY(save(l, is_last, is_best));
    if (!is_last) l->report.save_sec += tr_clock_sec() - start;
    return TR_OK;
}

/* The last checkpoint is safe, or all ranks know why not. */
static tr_status_t save_last(loop_t *l) {
    TR_TRY(save(l, true, false));
    tr_watchdog_phase(l->world, TR_PHASE_CHECKPOINT, l->step);
    return tr_world_agree(l->world, is_root(l) ? tr_checkpointer_wait(l->checkpointer) : TR_OK);
}

static tr_status_t summarize(loop_t *l, const char *status) {
    const size_t host = tr_loader_bytes(l->loader) + (l->snapshot ? tr_snapshot_bytes(l->snapshot) : 0);
    return tr_report_summary(&l->report, status, l->step, l->skipped, host);
}

static tr_status_t stopped(loop_t *l) {
    tr_signals_say(0); /* that rank may be one whose words go nowhere */
    tr_report_epoch(&l->report, l->step);
    TR_TRY(save_last(l));
    TR_TRY(summarize(l, "stopped"));
    if (!is_root(l)) return TR_FAIL(TR_ERR_RETRY, "rank 0 (%s) says so: stopped by a signal", l->info->host);
    return TR_FAIL(TR_ERR_RETRY,
                   "stopped by a signal after step %lld of %lld; a checkpoint is saved: start the same "
                   "command again to go on",
                   (long long)l->step, (long long)l->s->total_steps);
}

static tr_status_t run_steps(loop_t *l) {
    while (l->step < l->s->total_steps) {
        tr_step_outcome_t o;
        const double lr = tr_schedule_lr(l->schedule, l->step);
        tr_watchdog_phase(l->world, TR_PHASE_STEP, l->step + 1);
        TR_TRY(tr_stepper_run(l->stepper, l->step, lr, tr_signals_pending() != 0, &o));
        if (!o.finite) TR_TRY(handle_nonfinite(l, &o));
        TR_TRY(tr_report_step(&l->report, l->step, lr, &o));
        l->step++;
        if (o.stop && l->step < l->s->total_steps) return stopped(l);
        TR_TRY(after_step(l));
    }
    return TR_OK;
}

static tr_status_t finish(loop_t *l) {
    tr_eval_outcome_t test;
    TR_TRY(save_last(l)); /* before an error in the test data may end all ranks */
    const double start = tr_clock_sec();
    tr_watchdog_phase(l->world, TR_PHASE_EVALUATION, l->step);
    if (l->s->dataset[TR_SPLIT_TEST]) {
        TR_TRY(tr_session_evaluate(l->s, TR_SPLIT_TEST, NULL, NULL, &test));
        TR_TRY(tr_report_test(&l->report, &test, tr_clock_sec() - start));
    }
    return summarize(l, "done");
}

/* -- setting up
 * ------------------------------------------------------------------------------------------------------------------------
 */

static tr_status_t open_run(loop_t *l) {
    tr_run_settings_t run;
    tr_config_read(l->config, &tr_run_config, &run);
    if (run.dir[0])
        TR_TRY(tr_strdup(run.dir, &l->run_dir));
    else
        TR_TRY(tr_run_default_dir(&run, l->params->config_path, &l->run_dir));
    return tr_run_open(l->run_dir, &l->run);
}

/* Everything is checked and open: from here on there is a run. */
static tr_status_t begin_run(const loop_t *l) {
    tr_str_t text = {0};
    tr_status_t status = tr_config_serialize(l->config, &text);
    if (status == TR_OK) status = tr_run_begin(l->run, text.text);
    tr_str_free(&text);
    return status;
}

/* Every rank knows the folder: an error of one of them alone goes into the log, too. */
static tr_status_t share_run(loop_t *l) {
    TR_TRY(tr_world_broadcast_text(l->world, &l->run_dir, 0));
    if (!is_root(l)) tr_run_join_log(l->run_dir);
    return TR_OK;
}

/* Checkpoints of later steps would outlive those of this run, and resume = auto would take them for its own.
 */
static tr_status_t open_path(loop_t *l, const char *path) {
    tr_steps_t steps = {0};
    TR_TRY(tr_checkpoint_open(path, &l->resume));
    tr_status_t status = tr_checkpoint_list(tr_run_checkpoint_dir(l->run), &steps);
    if (status == TR_OK && steps.count > 0 && steps.data[0] > l->resume->step)
        status = TR_FAIL(TR_ERR_CONFIG,
                         "resume = %s is of step %lld, but %s holds checkpoints of later steps (newest: "
                         "step %lld): go on from those with resume = auto, or choose another run.dir",
                         path, (long long)l->resume->step, tr_run_dir(l->run), (long long)steps.data[0]);
    tr_vec_free(&steps);
    return status;
}

static tr_status_t open_resume(loop_t *l) {
    tr_main_settings_t main;
    tr_str_t skipped = {0};
    tr_status_t status = TR_OK;
    tr_config_read(l->config, &tr_main_config, &main);
    if (strcmp(main.resume, "auto") != 0 && strcmp(main.resume, "no") != 0) return open_path(l, main.resume);
    l->own_resume = true;
    status = tr_checkpoint_open_newest(tr_run_checkpoint_dir(l->run), &l->resume, &skipped);
    if (skipped.length > 0) TR_WARN("checkpoints that do not verify were passed over:\n%s", skipped.text);
    tr_str_free(&skipped);
    TR_TRY(status);
    if (l->resume && strcmp(main.resume, "no") == 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "resume = no, but %s holds checkpoints (newest: step %lld); choose another run.dir, "
                       "or resume = auto",
                       tr_run_dir(l->run), (long long)l->resume->step);
    return TR_OK;
}

/* What can be found wrong in the settings before data are opened. */
static tr_status_t check_settings(const loop_t *l) {
    tr_train_settings_t train;
    due_t due;
    tr_config_read(l->config, &tr_train_config, &train);
    TR_TRY(parse_due("checkpoint.every", l->save_settings.every, true, 100, 100, &due));
    return parse_due("train.valid_every", train.valid_every, false, 100, 100, &due);
}

static tr_status_t open_root(loop_t *l) {
    TR_TRY(check_settings(l));
    TR_TRY(open_run(l));
    return open_resume(l);
}

/* The state to begin with: a checkpoint's, or initial values, perhaps with another model's weights. */
static tr_status_t load_state(loop_t *l) {
    tr_session_t *s = l->s;
    if (!is_root(l)) return TR_OK;
    TR_TRY(tr_snapshot_create(s, &l->snapshot));
    if (l->resume) {
        TR_TRY(tr_state_check(s, l->resume));
        TR_TRY(tr_snapshot_restore(l->snapshot, l->resume));
        l->step = l->saved_step = l->resume->step;
        json_t *state = json_loads(l->resume->state_json, 0, NULL);
        const json_t *best = json_object_get(state, "best_valid_loss");
        if (json_is_number(best)) l->best_loss = json_number_value(best);
        l->skipped = json_integer_value(json_object_get(state, "skipped"));
        json_decref(state);
        TR_INFO("going on from %s", l->resume->path);
        tr_checkpoint_close(&l->resume);
        return TR_OK;
    }
    if (!s->model.init[0]) return TR_OK;
    TR_TRY(tr_state_init_from_path(l->snapshot, s->model.init));
    return tr_optimizer_start(s->g); /* the average begins at the weights, too */
}

static tr_status_t begin_state(loop_t *l) {
    TR_TRY(tr_session_start(l->s));
    TR_TRY(tr_world_agree(l->world, load_state(l)));
    TR_TRY(tr_world_broadcast(l->world, &l->step, sizeof l->step, 0));
    TR_TRY(tr_world_broadcast(l->world, &l->best_loss, sizeof l->best_loss, 0));
    return tr_state_broadcast(l->s);
}

static tr_status_t open_checkpointer(loop_t *l) {
    const tr_checkpointer_params_t params = {tr_run_checkpoint_dir(l->run), l->save_settings.keep};
    TR_TRY(describe_state(l, &l->state_text)); /* better now than at the first checkpoint */
    TR_TRY(tr_checkpointer_create(&params, &l->checkpointer));
    /* A run that was killed between a checkpoint's commit and its link. */
    if (l->own_resume && l->saved_step >= 0 &&
        tr_checkpoint_link(params.dir, "latest", l->saved_step) != TR_OK)
        TR_WARN("%s", tr_error_last()->message);
    return TR_OK;
}

static tr_status_t set_up(loop_t *l) {
    tr_log_settings_t log;
    tr_config_read(l->config, &tr_log_config, &log);
    tr_config_read(l->config, &tr_checkpoint_config, &l->save_settings);
    TR_TRY(tr_world_agree(l->world, is_root(l) ? open_root(l) : TR_OK));
    TR_TRY(share_run(l));
    if (l->resume) tr_state_resumed(l->resume, &l->resumed);
    TR_TRY(tr_world_broadcast(l->world, &l->resumed, sizeof l->resumed, 0));
    const tr_session_params_t session = {.training = true,
                                         .evaluation = true,
                                         .split = TR_SPLIT_TRAIN,
                                         .rank = l->info->rank,
                                         .size = l->info->size,
                                         .resumed = &l->resumed};
    TR_TRY(tr_session_create(l->config, l->world, &session, &l->s));
    const tr_session_t *s = l->s;
    TR_TRY(parse_due("checkpoint.every", l->save_settings.every, true, s->total_steps, s->steps_per_epoch,
                     &l->save));
    TR_TRY(parse_due("train.valid_every", s->train.valid_every, false, s->total_steps, s->steps_per_epoch,
                     &l->valid));
    TR_TRY(tr_schedule_create(&l->s->schedule, l->s->optim.lr, l->s->total_steps, l->s->steps_per_epoch,
                              &l->schedule));
    const size_t base_bytes = tr_report_peak_bytes();
    TR_TRY(begin_state(l));
    TR_TRY(tr_world_agree(l->world, is_root(l) ? open_checkpointer(l) : TR_OK));
    TR_TRY(tr_session_loader(l->s, TR_SPLIT_TRAIN, false, l->step, &l->loader));
    if (l->info->size > 1)
        TR_TRY(tr_world_collectives(l->world, l->s->device, &l->s->parallel, &l->collectives));
    TR_TRY(tr_stepper_create(l->s, l->collectives, l->loader, &l->stepper));
    TR_TRY(tr_world_agree(l->world, is_root(l) ? begin_run(l) : TR_OK));
    TR_TRY(tr_report_open(&l->report, l->s, l->run, log.every, l->step, l->params->version));
    l->report.base_bytes = base_bytes;
    return TR_OK;
}

/* It stays until the caller closes the world: the ranks' leaving is watched over, too. */
static tr_status_t start_watchdog(const loop_t *l) {
    tr_parallel_settings_t parallel;
    tr_config_read(l->config, &tr_parallel_config, &parallel);
    tr_watchdog_phase(l->world, TR_PHASE_START, 0);
    return tr_watchdog_start(l->world, parallel.timeout, tr_signals_pending);
}

static void tear_down(loop_t *l) {
    tr_stepper_destroy(&l->stepper);
    tr_loader_destroy(&l->loader);
    if (l->collectives) tr_world_collectives_close(l->world, &l->collectives);
    tr_checkpointer_destroy(&l->checkpointer);
    tr_snapshot_destroy(&l->snapshot);
    tr_checkpoint_close(&l->resume);
    tr_schedule_destroy(&l->schedule);
    tr_session_destroy(&l->s);
    tr_run_close(&l->run);
    tr_free(&l->run_dir);
    free(l->state_text);
}

/* What the summary says of a run that ends with an error; the error itself stays the last one. */
static void failed(loop_t *l) {
    const tr_error_t error = *tr_error_last();
    if (l->report.run && summarize(l, "failed") != TR_OK) TR_WARN("%s", tr_error_last()->message);
    tr_error_set(&error);
}

static void introduce(const loop_t *l) {
    const tr_session_t *s = l->s;
    char parameters[32], memory[32];
    TR_INFO("run folder %s", l->run_dir);
    if (l->step >= s->total_steps)
        TR_WARN(
            "nothing is left to train: step %lld of %lld is done; set train.steps or train.epochs higher to "
            "go on",
            (long long)l->step, (long long)s->total_steps);
    TR_INFO("%s, %s parameters, %s; %s", s->model.type, tr_format_count((double)s->parameters, parameters),
            s->info.description, s->device->description);
    TR_INFO(
        "%d rank%s x %d thread%s; batch %lld = %lld micro-batch%s of %lld; %lld steps, %.4g epoch%s; %s a "
        "rank on the device",
        l->info->size, l->info->size > 1 ? "s" : "", s->device->threads, s->device->threads > 1 ? "s" : "",
        (long long)s->order.batch_size, (long long)s->slots, s->slots > 1 ? "es" : "",
        (long long)s->order.micro_batch, (long long)s->total_steps,
        (double)s->total_steps / s->steps_per_epoch, (double)s->total_steps == s->steps_per_epoch ? "" : "s",
        tr_format_bytes((double)tr_graph_memory(s->g).total, memory));
    if (s->slots % l->info->size != 0)
        TR_WARN("%lld micro-batches do not divide among %d ranks: some ranks do one more and the others wait",
                (long long)s->slots, l->info->size);
}

tr_status_t tr_train(const tr_config_t *config, tr_world_t *world, const tr_train_params_t *params) {
    loop_t l = {.params = params,
                .config = config,
                .world = world,
                .info = tr_world_info(world),
                .saved_step = -1,
                .best_loss = INFINITY,
                .resumed.order = {.micro_batch = -1, .block = -1, .shuffle = -1}};
    tr_signals_install();
    tr_status_t status = start_watchdog(&l);
    if (status == TR_OK) status = set_up(&l);
    const bool has_begun = status == TR_OK;
    if (has_begun) {
        introduce(&l);
        status = run_steps(&l);
    }
    if (status == TR_OK) status = finish(&l);
    tr_watchdog_phase(world, TR_PHASE_END, l.step);
    tr_signals_restore();
    if (status != TR_OK && status != TR_ERR_RETRY) failed(&l);
    tr_report_close(&l.report); /* the terminal is free for the error */
    /* One that failed alone leaves at once: its peers wait in a collective, and only the caller can end them.
     */
    if (status == TR_OK || status == TR_ERR_RETRY || l.info->size == 1)
        tear_down(&l);
    else if (!has_begun)
        tr_run_close(&l.run);
    return status;
}
