/* The metrics of a run: sums over steps, metrics.jsonl, epoch lines, summary.json. */
#include "metrics.h"
#include "base/json_text.h"
#include "base/record_fields.h"
#include "base/clock.h"
#include "base/log_queue.h"
#include "trainer/log.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define LOG_SEC        60 /* between progress lines in log.txt */
#define LAST_LINES_SEC 10 /* for a disk that does not answer, at the end */

size_t tr_metrics_peak_bytes(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss * 1024;
}

/* Time that was not measured counts as compute. */
static double known_sec(double sec) {
    return isfinite(sec) ? sec : 0;
}

tr_status_t tr_metrics_open(tr_metrics_t *r, tr_session_t *s, tr_run_t *run, int64_t log_every,
                            const char *version) {
    *r = (tr_metrics_t){.s = s,
                        .run = run,
                        .log_every = log_every,
                        .version = version,
                        .gradient = tr_metrics_gradient_new(),
                        .last_loss = NAN,
                        .epoch_loss = NAN,
                        .epoch_accuracy = NAN,
                        .last_accuracy = NAN,
                        .valid_terms = NAN,
                        .valid_loss = NAN,
                        .valid_accuracy = NAN,
                        .valid_r2 = NAN,
                        .valid_iou = NAN,
                        .test_loss = NAN,
                        .test_accuracy = NAN,
                        .test_r2 = NAN,
                        .test_iou = NAN,
                        .best_test_loss = NAN,
                        .best_test_accuracy = NAN,
                        .best_test_r2 = NAN,
                        .best_test_iou = NAN,
                        .baseline_test_accuracy = NAN,
                        .baseline_test_loss = NAN};
    r->start_sec = r->window.since = r->epoch.since = tr_clock_sec();
    if (!run) return TR_OK;
    char now[32];
    tr_clock_iso8601(now);
    /* Of the longest usual line: a later, longer one allocates nothing. */
    TR_TRY(tr_vec_reserve_(&r->text.text, &r->text.capacity, 256, 1));
    TR_TRY(tr_strdup(now, &r->started));
    return tr_progress_create(STDERR_FILENO, &r->line);
}

void tr_metrics_close(tr_metrics_t *r) {
    tr_progress_destroy(&r->line);
    tr_free(&r->started);
    tr_str_free(&r->text);
    tr_metrics_ranks_close(&r->ranks);
}

/* -- over a restart ---------------------------------------------------------------------------- */

static json_t *sums_json(const tr_metrics_sums_t *sums) {
    return json_pack("{s:I, s:f, s:f, s:o, s:f, s:o, s:f, s:f}", "steps", (json_int_t)sums->steps,
                     "skipped", (double)sums->steps - sums->counted, "loss", sums->loss, "accuracy",
                     tr_json_finite(sums->accuracy), "stall", sums->stall, "exposed",
                     tr_json_finite(sums->exposed), "seconds", sums->seconds, "age",
                     tr_clock_sec() - sums->since);
}

json_t *tr_metrics_state(const tr_metrics_t *r) {
    json_t *state = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "window", sums_json(&r->window), "epoch",
        sums_json(&r->epoch), "unvalidated", sums_json(&r->unvalidated), "epoch_loss",
        tr_json_finite(r->epoch_loss), "epoch_accuracy", tr_json_finite(r->epoch_accuracy),
        "valid_loss", tr_json_finite(r->valid_loss), "valid_accuracy",
        tr_json_finite(r->valid_accuracy), "valid_r2", tr_json_finite(r->valid_r2));
    if (state && !isnan(r->valid_iou))
        json_object_set_new(state, "valid_iou", json_real(r->valid_iou));
    if (state) tr_metrics_gradient_save(&r->gradient, state);
    const double joules = tr_telemetry_joules(r->telemetry);
    if (isfinite(joules)) json_object_set_new(state, "gpu_energy_joules", json_real(joules));
    return state;
}

static double metrics_number_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void restore_sums(const json_t *from, tr_metrics_sums_t *out) {
    if (!json_is_object(from)) return;
    const json_int_t steps = json_integer_value(json_object_get(from, "steps"));
    *out = (tr_metrics_sums_t){.steps = steps,
                               .counted = (double)steps - metrics_number_of(from, "skipped"),
                               .loss = metrics_number_of(from, "loss"),
                               .accuracy = metrics_number_of(from, "accuracy"),
                               .stall = metrics_number_of(from, "stall"),
                               .exposed = metrics_number_of(from, "exposed"),
                               .seconds = metrics_number_of(from, "seconds"),
                               .since = tr_clock_sec() - metrics_number_of(from, "age")};
}

tr_status_t tr_metrics_resume(tr_metrics_t *r, int64_t step, bool valid_pending,
                              const json_t *state) {
    if (!r->run) return TR_OK;
    restore_sums(json_object_get(state, "window"), &r->window);
    restore_sums(json_object_get(state, "epoch"), &r->epoch);
    restore_sums(json_object_get(state, "unvalidated"), &r->unvalidated);
    r->window.since = tr_clock_sec();
    r->gradient = tr_metrics_gradient_restore(state);
    tr_telemetry_set_joules(r->telemetry, metrics_number_of(state, "gpu_energy_joules"));
    r->epoch_loss = metrics_number_of(state, "epoch_loss");
    r->epoch_accuracy = metrics_number_of(state, "epoch_accuracy");
    r->valid_loss = metrics_number_of(state, "valid_loss");
    r->valid_accuracy = metrics_number_of(state, "valid_accuracy");
    r->valid_r2 = metrics_number_of(state, "valid_r2");
    r->valid_iou = metrics_number_of(state, "valid_iou");
    return tr_run_metrics_rewind(r->run, step, !valid_pending);
}

/* -- language models --------------------------------------------------------------------------- */

/* Tokens per step, for rates; 0: not a language model. */
static double step_tokens(const tr_session_t *s) {
    return s->info.tokens > 0 ? (double)(s->order.batch_size * s->sample_terms) : 0;
}

/* -- steps ------------------------------------------------------------------------------------- */

static void add_step(tr_metrics_sums_t *sum, const tr_step_outcome_t *o, double share,
                     double seconds, double saving) {
    sum->steps++;
    sum->counted += share;
    if (share > 0) sum->loss += share * o->loss;
    if (share > 0) sum->accuracy += share * o->accuracy;
    sum->stall += o->stall_sec;
    sum->exposed += o->exposed_sec;
    sum->busy += o->busy_sec;
    sum->seconds += seconds;
    sum->saving += saving;
}

static tr_progress_t metrics_progress(const tr_metrics_t *r, int64_t step, double lr) {
    const tr_session_t *s = r->s;
    const double epoch = (double)(step + 1) / s->steps_per_epoch,
                 sec = r->window.seconds > 0 ? r->window.seconds : 1;
    tr_progress_t p = {.step = step + 1,
                       .steps = s->total_steps,
                       .epochs = s->train.steps > 0 ? 0 : s->train.epochs,
                       .lr = lr,
                       .loss = r->last_loss,
                       .accuracy = r->last_accuracy,
                       .samples_per_sec = (double)s->order.batch_size / r->smooth_sec,
                       .tokens_per_sec = step_tokens(s) / r->smooth_sec,
                       .tflops = tr_metrics_tflops(&r->rate, 1 / r->smooth_sec),
                       .mfu = tr_metrics_mfu(&r->rate, 1 / r->smooth_sec),
                       .data_stall = r->window.stall / sec,
                       .comm_exposed = r->window.exposed / sec,
                       .memory_bytes = tr_telemetry_memory(r->telemetry),
                       .eta_sec = (double)(s->total_steps - step - 1) * r->smooth_sec,
                       .phase = "train"};
    p.epoch = (int64_t)ceil(epoch - 1e-9);
    /* the last step extends past the end */
    if (p.epochs > 0 && p.epoch > p.epochs) p.epoch = p.epochs;
    p.epoch_fraction = fmin(1, epoch - (double)(p.epoch - 1));
    return p;
}

static void write_metrics(tr_metrics_t *r, int64_t step, double lr, const tr_step_outcome_t *o) {
    const double n = (double)r->window.steps, sec = r->window.seconds, counted = r->window.counted;
    const double loss = r->window.loss / counted;
    json_t *line = json_object();
    tr_record_number(line, TR_TRAINING_step, (double)(step + 1));
    tr_record_number(line, TR_TRAINING_epoch, (double)(step + 1) / r->s->steps_per_epoch);
    tr_record_number(line, TR_TRAINING_loss, loss);
    tr_record_number(line, TR_TRAINING_accuracy, r->window.accuracy / counted);
    tr_record_number(line, TR_TRAINING_lr, lr);
    tr_record_number(line, TR_TRAINING_grad_norm, tr_round_digits(o->grad_norm, 9));
    tr_record_number(line, TR_TRAINING_samples_per_sec, n * (double)r->s->order.batch_size / sec);
    tr_record_number(line, TR_TRAINING_data_stall, r->window.stall / sec);
    tr_record_number(line, TR_TRAINING_comm_exposed, r->window.exposed / sec);
    tr_record_number(line, TR_TRAINING_time, tr_clock_sec() - r->start_sec);
    tr_record_number(line, TR_TRAINING_unix_time, round(1e3 * tr_clock_unix_sec()) / 1e3);
    tr_record_number(line, TR_TRAINING_session, (double)r->start);
    tr_record_number(line, TR_TRAINING_loss_scale, r->gradient.loss_scale);
    tr_record_number(line, TR_TRAINING_overflows, (double)r->gradient.overflows);
    tr_record_number(line, TR_TRAINING_tflops, tr_metrics_tflops(&r->rate, n / sec));
    tr_record_number(line, TR_TRAINING_mfu, tr_metrics_mfu(&r->rate, n / sec));
    const double compute = sec - r->window.stall - known_sec(r->window.exposed) - r->window.saving;
    tr_record_number(line, TR_TRAINING_compute, compute / sec);
    tr_record_number(line, TR_TRAINING_comm_busy, r->window.busy / sec);
    tr_record_number(line, TR_TRAINING_checkpoint, r->window.saving / sec);
    if (tr_metrics_ranks_line(&r->ranks, r->s->world, line) != TR_OK)
        TR_WARN("%s", tr_error_last()->message);
    tr_telemetry_line(r->telemetry, line);
    if (isfinite(o->topk)) tr_record_number(line, TR_TRAINING_topk, o->topk);
    const double tokens = step_tokens(r->s);
    if (tokens > 0) tr_record_number(line, TR_TRAINING_perplexity, exp(loss));
    if (tokens > 0) tr_record_number(line, TR_TRAINING_tokens_per_sec, n * tokens / sec);
    tr_recorder_line(r->recorder, line);
}

tr_status_t tr_metrics_step(tr_metrics_t *r, int64_t step, double lr, const tr_step_outcome_t *o) {
    /* The weight of a step in the means of loss and accuracy is 1, or less with unlabelled samples
     * or a skipped update. */
    const int64_t terms = r->s->order.batch_size * r->s->sample_terms;
    const double now = tr_clock_sec(), seconds = now - r->window.since,
                 share = o->finite ? o->terms / (double)terms : 0;
    if (r->whole.steps == 0) r->first_step_sec = tr_clock_since_exec_sec();
    /* after the previous step */
    const double saving = r->save_sec - r->saved_sec;
    r->saved_sec = r->save_sec;
    r->window.since = now;
    add_step(&r->window, o, share, seconds, saving);
    add_step(&r->epoch, o, share, seconds, saving);
    add_step(&r->unvalidated, o, share, seconds, saving);
    add_step(&r->whole, o, share, seconds, saving);
    const double exposed = known_sec(o->exposed_sec);
    tr_watchdog_add_times(r->s->world, seconds - o->stall_sec - exposed - saving, o->stall_sec,
                          exposed);
    if (!r->run) return TR_OK;
    tr_metrics_gradient_step(&r->gradient, o);
    tr_metrics_ranks_step(&r->ranks, seconds);
    const double keep = r->whole.steps < 20 ? 0.8 : 0.98;
    r->smooth_sec = r->smooth_sec > 0 ? keep * r->smooth_sec + (1 - keep) * seconds : seconds;
    const bool ends_window = (step + 1) % r->log_every == 0 || step + 1 == r->s->total_steps;
    if ((ends_window || !r->has_line) && r->window.counted > 0) {
        r->last_loss = r->window.loss / r->window.counted;
        r->last_accuracy = r->window.accuracy / r->window.counted;
    }
    const tr_progress_t p = metrics_progress(r, step, lr);
    tr_progress_draw(r->line, &p);
    tr_progress_log(r->line, &p, LOG_SEC);
    if (!ends_window) return TR_OK;
    r->has_line = true;
    tr_progress_plain(r->line, &p);
    write_metrics(r, step, lr, o);
    memset(&r->window, 0, sizeof r->window);
    r->window.since = now;
    return TR_OK;
}

/* -- epochs and evaluations -------------------------------------------------------------------- */

/* Losses of a regression may have any magnitude. */
static void append_loss(tr_str_t *text, double loss) {
    const bool is_plain = loss == 0 || (fabs(loss) >= 1e-3 && fabs(loss) < 1e4);
    tr_str_printf(text, is_plain ? "loss %.4f" : "loss %.3e", loss);
}

static void append_accuracy(const tr_session_t *s, tr_str_t *text, const char *name, double terms,
                            double loss, double accuracy) {
    if (terms == 0)
        tr_str_printf(text, "  %s loss none: no sample has a label", name);
    else if (!isfinite(loss))
        tr_str_printf(text, "  %s loss not finite", name);
    else {
        tr_str_printf(text, "  %s ", name);
        append_loss(text, loss);
    }
    if (!isnan(accuracy)) tr_str_printf(text, " accuracy %.2f %%", 100 * accuracy);
    if (step_tokens(s) > 0 && isfinite(loss)) tr_str_printf(text, " perplexity %.4g", exp(loss));
}

static void append_scores(tr_str_t *text, double r2, double iou) {
    if (!isnan(r2)) tr_str_printf(text, " R2 %.4f", r2);
    if (!isnan(iou)) tr_str_printf(text, " IoU %.4f", iou);
}

static void append_train(const tr_session_t *s, tr_str_t *text, const tr_metrics_sums_t *sums) {
    const double n = sums->counted;
    if (n > 0)
        append_accuracy(s, text, "train", n, sums->loss / n, sums->accuracy / n);
    else
        tr_str_append(text, "  train loss none: every update was skipped, or no sample has a "
                            "label");
}

static void append_valid(const tr_metrics_t *r, tr_str_t *text) {
    append_accuracy(r->s, text, "valid", r->valid_terms, r->valid_loss, r->valid_accuracy);
    append_scores(text, r->valid_r2, r->valid_iou);
    if (r->valid_is_best) tr_str_append(text, "  best");
}

void tr_metrics_epoch(tr_metrics_t *r, int64_t steps_done) {
    const double n = (double)r->epoch.steps;
    tr_str_t *text = &r->text;
    char took[32];
    if (n > 0) {
        r->epoch_loss = r->epoch.loss / r->epoch.counted;
        r->epoch_accuracy = r->epoch.accuracy / r->epoch.counted;
    }
    if (r->run && n > 0) {
        /* An epoch that ends within a step counts as whole. Only a run that ends within an epoch
         * shows a fraction. */
        const double per_epoch = r->s->steps_per_epoch,
                     epochs = (double)steps_done / per_epoch + 1e-9;
        const bool is_whole = (epochs - floor(epochs)) * per_epoch < 1;
        text->length = 0;
        tr_str_printf(text, "epoch %.*f", is_whole ? 0 : 2, is_whole ? floor(epochs) : epochs);
        if (r->s->train.steps == 0) tr_str_printf(text, "/%lld", (long long)r->s->train.epochs);
        append_train(r->s, text, &r->epoch);
        if (r->has_new_valid) append_valid(r, text);
        r->has_new_valid = false;
        const double tokens = step_tokens(r->s);
        tr_str_printf(text, "  %s  %.0f %s/s", tr_format_duration(r->epoch.seconds, took),
                      n * (tokens > 0 ? tokens : (double)r->s->order.batch_size) / r->epoch.seconds,
                      tokens > 0 ? "tokens" : "samples");
        if (text->text) TR_INFO("%s", text->text);
    }
    memset(&r->epoch, 0, sizeof r->epoch);
}

tr_status_t tr_metrics_valid(tr_metrics_t *r, int64_t steps_done, const tr_eval_outcome_t *v,
                             double seconds, bool is_best, bool begins_anew, bool ends_epoch) {
    const tr_metrics_sums_t train = r->unvalidated;
    char took[32];
    r->valid_terms = v->terms;
    r->valid_loss = v->loss;
    r->valid_accuracy = v->accuracy;
    r->valid_r2 = v->r2;
    r->valid_iou = v->iou;
    r->valid_is_best = is_best;
    r->has_new_valid = ends_epoch;
    r->window.since += seconds; /* evaluations are not part of the step time */
    r->unvalidated = (tr_metrics_sums_t){0};
    if (!r->run) return TR_OK;
    json_t *line = json_object();
    tr_record_number(line, TR_VALIDATION_step, (double)steps_done);
    tr_record_number(line, TR_VALIDATION_epoch, (double)steps_done / r->s->steps_per_epoch);
    tr_record_number(line, TR_VALIDATION_valid_loss, v->loss);
    tr_record_number(line, TR_VALIDATION_valid_accuracy, v->accuracy);
    tr_record_number(line, TR_VALIDATION_valid_sec, seconds);
    tr_record_number(line, TR_VALIDATION_best, is_best);
    tr_record_number(line, TR_VALIDATION_train_loss, train.loss / train.counted);
    if (begins_anew) tr_record_number(line, TR_VALIDATION_begins_anew, true);
    if (!isnan(v->r2)) tr_record_number(line, TR_VALIDATION_valid_r2, v->r2);
    if (!isnan(v->iou)) tr_record_number(line, TR_VALIDATION_valid_iou, v->iou);
    if (step_tokens(r->s) > 0) tr_record_number(line, TR_VALIDATION_valid_perplexity, exp(v->loss));
    tr_recorder_line(r->recorder, line);
    if (ends_epoch) return TR_OK;
    r->text.length = 0;
    tr_str_printf(&r->text, "step %lld/%lld", (long long)steps_done, (long long)r->s->total_steps);
    append_train(r->s, &r->text, &train);
    append_valid(r, &r->text);
    tr_str_printf(&r->text, "  (%s)", tr_format_duration(seconds, took));
    if (r->text.text) TR_INFO("%s", r->text.text);
    return TR_OK;
}

static void say_test(tr_metrics_t *r, const tr_test_t *test, const char *name) {
    const tr_eval_outcome_t *v = &test->scores;
    tr_str_t *text = &r->text;
    text->length = 0;
    append_accuracy(r->s, text, name, v->terms, v->loss, v->accuracy);
    append_scores(text, v->r2, v->iou);
    if (!isnan(v->baseline_accuracy))
        tr_str_printf(text, " (most frequent class: %.2f %%)", 100 * v->baseline_accuracy);
    if (!isnan(v->baseline_loss)) {
        tr_str_append(text, " (predicting the mean: ");
        append_loss(text, v->baseline_loss);
        tr_str_append(text, ")");
    }
    if (text->text)
        TR_INFO("%s  (%.0f %s, %.1f s)%s", text->text + 2, v->terms,
                step_tokens(r->s) > 0    ? "tokens"
                : r->s->sample_terms > 1 ? "values"
                                         : "samples",
                test->seconds, test->is_selected ? " (selected on these samples)" : "");
}

void tr_metrics_test(tr_metrics_t *r, const tr_test_t *last, const tr_test_t *best) {
    char name[64];
    if (!r->run) return;
    r->test_loss = last->scores.loss;
    r->test_accuracy = last->scores.accuracy;
    r->test_r2 = last->scores.r2;
    r->best_test_r2 = best ? best->scores.r2 : NAN;
    r->test_iou = last->scores.iou;
    r->best_test_iou = best ? best->scores.iou : NAN;
    r->baseline_test_loss = last->scores.baseline_loss;
    r->baseline_test_accuracy = last->scores.baseline_accuracy;
    r->best_test_loss = best ? best->scores.loss : NAN;
    r->best_test_accuracy = best ? best->scores.accuracy : NAN;
    r->test_selected = last->is_selected || (best && best->is_selected);
    if (!best || best == last) return say_test(r, last, "test ");
    snprintf(name, sizeof name, "test of the best (step %lld) ", (long long)best->step);
    say_test(r, best, name);
    snprintf(name, sizeof name, "test of the last (step %lld) ", (long long)last->step);
    say_test(r, last, name);
}

/* -- summary ----------------------------------------------------------------------------------- */

static void describe_run(const tr_metrics_t *r, int64_t steps_done, json_t *o) {
    const tr_session_t *s = r->s;
    const tr_world_info_t *w = tr_world_info(s->world);
    char now[32];
    tr_clock_iso8601(now);
    const char *name = tr_config_get(s->config, "run.name");
    const tr_dataset_t *valid = s->dataset[TR_SPLIT_VALID];
    const tr_shape_t *input = &s->info.field[0].shape;
    json_t *sizes = json_array();
    for (int i = 0; i < input->ndim; i++) json_array_append_new(sizes, json_integer(input->dim[i]));
    tr_record_text(o, TR_SUMMARY_model, s->model.type);
    tr_record_text(o, TR_SUMMARY_dataset, s->info.description);
    tr_record_number(o, TR_SUMMARY_classes, (double)s->info.classes);
    tr_record_number(o, TR_SUMMARY_batch_size, (double)s->order.batch_size);
    tr_record_number(o, TR_SUMMARY_micro_batch, (double)s->order.micro_batch);
    tr_record_number(o, TR_SUMMARY_learning_rate, s->optim.lr);
    tr_record_number(o, TR_SUMMARY_epochs, (double)steps_done / s->steps_per_epoch);
    tr_record_text(o, TR_SUMMARY_optimizer, s->optim.type);
    tr_record_text(o, TR_SUMMARY_precision, tr_precision_name((tr_precision_t)s->main.precision));
    tr_record_text(o, TR_SUMMARY_device, s->device->ops->name);
    tr_record_text(o, TR_SUMMARY_device_description, s->device->description);
    tr_record_number(o, TR_SUMMARY_hosts, w->nodes);
    tr_record_number(o, TR_SUMMARY_threads, s->device->threads);
    tr_record_number(o, TR_SUMMARY_cores, (double)w->cores / w->cores_shared_by);
    tr_record_text(o, TR_SUMMARY_mpi, w->mpi_version);
    tr_record_text(o, TR_SUMMARY_started, r->started);
    tr_record_text(o, TR_SUMMARY_finished, now);
    tr_record_text(o, TR_SUMMARY_name, *name ? name : tr_file_name(tr_run_dir(r->run)));
    tr_record_text(o, TR_SUMMARY_valid_dataset, valid ? valid->info.description : NULL);
    tr_record_json(o, TR_SUMMARY_input_shape, sizes);
    tr_record_number(o, TR_SUMMARY_seed, (double)s->train.seed);
    tr_record_number(o, TR_SUMMARY_checkpoint_stall_sec, r->save_sec);
    tr_record_text(o, TR_SUMMARY_commit, r->version);
}

json_t *tr_metrics_facts(const tr_metrics_t *r) {
    json_t *o = json_object();
    tr_record_number(o, TR_SUMMARY_ranks, r->s->params.size);
    tr_record_number(o, TR_SUMMARY_parameters, (double)r->s->parameters);
    tr_record_number(o, TR_SUMMARY_steps, (double)r->s->total_steps);
    describe_run(r, 0, o);
    return o;
}

json_t *tr_metrics_of_done(const tr_run_t *run, int64_t steps) {
    char path[4096];
    json_error_t error;
    if (snprintf(path, sizeof path, "%s/summary.json", tr_run_dir(run)) >= (int)sizeof path)
        return NULL;
    json_t *summary = tr_json_load_file(path, &error);
    const char *status = json_string_value(json_object_get(summary, "status"));
    if (status && strcmp(status, "done") == 0 &&
        json_integer_value(json_object_get(summary, "steps")) == steps)
        return summary;
    json_decref(summary);
    return NULL;
}

tr_status_t tr_metrics_summary(tr_metrics_t *r, const tr_metrics_end_t *end) {
    /* The summary of a run that was already complete must not lose its measurements. */
    json_t *done = r->run && r->whole.steps == 0 ? tr_metrics_of_done(r->run, end->steps) : NULL;
    json_decref(done);
    if (!r->run || done) return TR_OK;
    const double sec = r->whole.seconds > 0 ? r->whole.seconds : 1;
    if (r->recorder) (void)tr_recorder_wait(r->recorder, LAST_LINES_SEC);
    const double per_sec = (double)r->whole.steps / sec, samples = (double)r->s->order.batch_size,
                 tokens = step_tokens(r->s);
    size_t arena_bytes;
    (void)tr_graph_region(r->s->g, TR_ROLE_ACTIVATION, &arena_bytes);
    json_t *o = json_object();
    tr_record_text(o, TR_SUMMARY_status, end->status);
    tr_record_number(o, TR_SUMMARY_steps, (double)end->steps);
    tr_record_number(o, TR_SUMMARY_samples, (double)end->steps * samples);
    tr_record_number(o, TR_SUMMARY_wall_sec, tr_clock_sec() - r->start_sec);
    tr_record_number(o, TR_SUMMARY_ranks, r->s->params.size);
    tr_record_number(o, TR_SUMMARY_parameters, (double)r->s->parameters);
    tr_record_number(o, TR_SUMMARY_loss, r->epoch_loss);
    tr_record_number(o, TR_SUMMARY_valid_loss, r->valid_loss);
    tr_record_number(o, TR_SUMMARY_valid_accuracy, r->valid_accuracy);
    tr_record_number(o, TR_SUMMARY_test_loss, r->test_loss);
    tr_record_number(o, TR_SUMMARY_test_accuracy, r->test_accuracy);
    tr_record_number(o, TR_SUMMARY_samples_per_sec, per_sec * samples);
    tr_record_number(o, TR_SUMMARY_data_stall, r->whole.stall / sec);
    tr_record_number(o, TR_SUMMARY_comm_exposed, r->whole.exposed / sec);
    tr_record_number(o, TR_SUMMARY_memory_planned_bytes,
                     (double)(tr_graph_memory(r->s->g).total + end->host_bytes));
    tr_record_number(o, TR_SUMMARY_memory_peak_bytes, (double)tr_metrics_peak_bytes());
    tr_record_number(o, TR_SUMMARY_first_step_sec, r->first_step_sec);
    tr_record_number(o, TR_SUMMARY_accuracy, r->epoch_accuracy);
    tr_record_number(o, TR_SUMMARY_memory_arena_bytes, (double)arena_bytes);
    tr_record_number(o, TR_SUMMARY_memory_base_bytes, (double)r->base_bytes);
    tr_record_number(o, TR_SUMMARY_best_valid_loss, end->best_loss);
    tr_record_number(o, TR_SUMMARY_best_valid_accuracy, end->best_accuracy);
    if (r->s->targets > 0) {
        tr_record_number(o, TR_SUMMARY_valid_r2, r->valid_r2);
        tr_record_number(o, TR_SUMMARY_best_valid_r2, end->best_r2);
        tr_record_number(o, TR_SUMMARY_test_r2, r->test_r2);
        tr_record_number(o, TR_SUMMARY_best_test_r2, r->best_test_r2);
    }
    if (tr_session_has_iou(r->s)) {
        tr_record_number(o, TR_SUMMARY_valid_iou, r->valid_iou);
        tr_record_number(o, TR_SUMMARY_best_valid_iou, end->best_iou);
        tr_record_number(o, TR_SUMMARY_test_iou, r->test_iou);
        tr_record_number(o, TR_SUMMARY_best_test_iou, r->best_test_iou);
    }
    tr_record_number(o, TR_SUMMARY_best_step, end->best_step >= 0 ? (double)end->best_step : NAN);
    tr_record_number(o, TR_SUMMARY_best_test_loss, r->best_test_loss);
    tr_record_number(o, TR_SUMMARY_best_test_accuracy, r->best_test_accuracy);
    tr_record_number(o, TR_SUMMARY_baseline_test_loss, r->baseline_test_loss);
    tr_record_number(o, TR_SUMMARY_baseline_test_accuracy, r->baseline_test_accuracy);
    tr_record_number(o, TR_SUMMARY_test_selected, r->test_selected);
    tr_record_number(o, TR_SUMMARY_skipped, (double)end->skipped);
    tr_record_number(o, TR_SUMMARY_loss_scale, r->gradient.loss_scale);
    tr_record_number(o, TR_SUMMARY_overflows, (double)r->gradient.overflows);
    tr_record_number(o, TR_SUMMARY_grad_norm_min, r->gradient.smallest);
    tr_record_number(o, TR_SUMMARY_grad_norm_max, r->gradient.largest);
    tr_record_number(o, TR_SUMMARY_tflops, tr_metrics_tflops(&r->rate, per_sec));
    tr_record_number(o, TR_SUMMARY_mfu, tr_metrics_mfu(&r->rate, per_sec));
    if (tokens > 0) tr_record_number(o, TR_SUMMARY_valid_perplexity, exp(r->valid_loss));
    if (tokens > 0) tr_record_number(o, TR_SUMMARY_tokens_per_sec, per_sec * tokens);
    const double lost = r->recorder ? (double)tr_recorder_lost(r->recorder) : 0;
    if (lost > 0) tr_record_number(o, TR_SUMMARY_metrics_lines_lost, lost);
    if (tr_log_dropped() > 0)
        tr_record_number(o, TR_SUMMARY_log_lines_lost, (double)tr_log_dropped());
    if (strcmp(end->status, "failed") == 0)
        tr_record_text(o, TR_SUMMARY_error, tr_error_last()->message);
    if (end->engine) tr_record_text(o, TR_SUMMARY_engine, end->engine);
    tr_telemetry_summary(r->telemetry, o);
    describe_run(r, end->steps, o);
    return tr_run_summary(r->run, o);
}
