/* trainer bench precision CONFIG.ini: trains the same configuration in each precision and compares
 * the results. */
#include "bench.h"
#include "base/json_text.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const tr_precision_t types[] = {TR_PRECISION_FP32, TR_PRECISION_TF32, TR_PRECISION_BF16,
                                       TR_PRECISION_FP16};

typedef struct {
    const char *path, *json;
    cmd_words_t settings;
    int64_t steps;    /* 0: those of the configuration */
    cmd_list_t types; /* indexes of `types` */
} bench_precision_options_t;

typedef struct {
    tr_precision_t type;
    char device[256];
    int64_t steps, batch_size; /* steps that were done */
    int64_t overflows;
    bool not_finite;  /* the loss or gradient of the last step, without an overflow */
    double train_sec; /* all steps and reading the data */
    double step_sec;  /* median */
    double step_loss; /* training loss of the last finite step */
    tr_eval_outcome_t scores;
    const char *split; /* that scores are of; NULL: there is no data for them */
    size_t bytes;      /* planned memory per rank */
} precision_row_t;

/* -- one type ---------------------------------------------------------------------------------- */

typedef struct {
    tr_session_t *s;
    tr_schedule_t *schedule;
    tr_collectives_t *collectives;
    tr_loader_t *loader;
    tr_train_step_t *train_step;
    double *step_sec; /* [total_steps] */
    double last_sec;  /* when the outcome of the last step was known */
} precision_run_t;

static void bench_precision_note(precision_run_t *r, const tr_step_outcome_t *o,
                                 precision_row_t *row) {
    const double now = tr_clock_sec();
    if (o->step < 0) return;
    r->step_sec[o->step] = now - r->last_sec;
    r->last_sec = now;
    row->steps = o->step + 1;
    row->overflows = o->overflows;
    row->not_finite = !o->finite && !o->overflowed;
    if (o->finite) row->step_loss = o->loss;
}

/* Trains to the end, and evaluates. */
static tr_status_t bench_precision_measure(precision_run_t *r, tr_world_t *world,
                                           const tr_config_t *config, precision_row_t *row) {
    const tr_world_info_t *info = tr_world_info(world);
    const tr_session_params_t params = {.training = true,
                                        .evaluation = true,
                                        .split = TR_SPLIT_TRAIN,
                                        .rank = info->rank,
                                        .size = info->size};
    tr_step_outcome_t o;
    TR_TRY(tr_session_create(config, world, &params, &r->s));
    tr_session_t *s = r->s;
    TR_TRY(tr_schedule_create(&s->schedule, s->optim.lr, s->total_steps, s->steps_per_epoch,
                              &r->schedule));
    if (info->size > 1)
        TR_TRY(tr_world_collectives(world, s->device, &s->parallel, &r->collectives));
    TR_TRY(tr_session_start(s, r->collectives));
    TR_TRY(tr_session_loader(s, TR_SPLIT_TRAIN, false, 0, &r->loader));
    TR_TRY(tr_train_step_create(s, r->collectives, r->loader, &r->train_step));
    TR_TRY(tr_alloc((size_t)s->total_steps * sizeof *r->step_sec, "step times", &r->step_sec));
    const double began = r->last_sec = tr_clock_sec();
    for (int64_t i = 0; i < s->total_steps && !row->not_finite; i++) {
        TR_TRY(tr_train_step_begin(r->train_step, i, tr_schedule_lr(r->schedule, i), false, false,
                                   &o));
        bench_precision_note(r, &o, row);
        TR_TRY(tr_train_step_end(r->train_step, &o));
        bench_precision_note(r, &o, row);
    }
    TR_TRY(tr_train_step_drain(r->train_step, &o));
    bench_precision_note(r, &o, row);
    row->train_sec = tr_clock_sec() - began;
    tr_sort(r->step_sec, row->steps);
    row->step_sec = r->step_sec[row->steps / 2];
    const tr_split_t split = s->dataset[TR_SPLIT_TEST] ? TR_SPLIT_TEST : TR_SPLIT_VALID;
    tr_snprintf(row->device, sizeof row->device, "%s", s->device->description);
    row->batch_size = s->order.batch_size;
    row->bytes = tr_graph_memory(s->g).total;
    row->split = s->dataset[split] ? tr_split_name(split) : NULL;
    return row->split ? tr_session_evaluate(s, split, NULL, NULL, NULL, &row->scores) : TR_OK;
}

static tr_status_t bench_precision_type(const bench_precision_options_t *o, tr_world_t *world,
                                        precision_row_t *row) {
    char precision[32], steps[48], *last[] = {precision, steps};
    cmd_words_t settings;
    tr_config_t *config = NULL;
    precision_run_t r = {0};
    tr_status_t status = TR_OK;
    tr_snprintf(precision, sizeof precision, "precision=%s", tr_precision_name(row->type));
    tr_snprintf(steps, sizeof steps, "train.steps=%lld", (long long)o->steps);
    TR_TRY(cmd_words_join(o->settings, (cmd_words_t){o->steps > 0 ? 2 : 1, last}, &settings));
    TR_TRY_GOTO(cmd_config_load_all(world, o->path, settings, &config), done);
    TR_TRY_GOTO(bench_precision_measure(&r, world, config, row), done);
    /* After an error other ranks may wait in a collective: main ends them, and nothing is closed. */
    if (r.collectives) tr_graph_drop_captures(r.s->g);
    if (r.collectives) tr_world_collectives_close(world, &r.collectives);
    tr_train_step_destroy(&r.train_step);
    tr_loader_destroy(&r.loader);
    tr_schedule_destroy(&r.schedule);
    tr_session_destroy(&r.s);
    tr_free(&r.step_sec);
done:
    tr_config_destroy(&config);
    tr_free(&settings.word);
    return status;
}

/* -- results ----------------------------------------------------------------------------------- */

static void bench_precision_print(const bench_precision_options_t *o, const precision_row_t *rows,
                                  int ranks) {
    char memory[32];
    printf("%s: %d rank%s on %s, %lld steps of %lld samples\n", o->path, ranks,
           ranks > 1 ? "s" : "", rows[0].device, (long long)rows[0].steps,
           (long long)rows[0].batch_size);
    printf("%-9s %10s %10s %9s %10s %11s %10s %9s\n", "precision", "train loss",
           rows[0].split ? rows[0].split : "-", "accuracy", "ms/step", "samples/s", "memory",
           "overflows");
    for (int i = 0; i < o->types.count; i++) {
        const precision_row_t *r = &rows[i];
        printf("%-9s %10.4f %10.4f", tr_precision_name(r->type), r->step_loss,
               r->split ? r->scores.loss : NAN);
        if (r->split && isfinite(r->scores.accuracy))
            printf(" %7.2f %%", 100 * r->scores.accuracy);
        else
            printf(" %9s", "-");
        printf(" %10.3f %11.1f %10s %9lld\n", r->step_sec * 1e3,
               (double)r->batch_size / r->step_sec, tr_format_bytes((double)r->bytes, memory),
               (long long)r->overflows);
        if (r->not_finite)
            printf("          stopped at step %lld: loss or gradient not finite\n",
                   (long long)r->steps);
    }
}

static tr_status_t bench_precision_write_json(const bench_precision_options_t *o,
                                              const precision_row_t *rows, int ranks) {
    json_t *list = json_array();
    for (int i = 0; i < o->types.count; i++) {
        const precision_row_t *r = &rows[i];
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:b, s:o, s:o, s:o, s:f, s:f, s:f, s:I, s:I}", "precision",
                            tr_precision_name(r->type), "steps", (json_int_t)r->steps, "finite",
                            !r->not_finite, "train_loss", tr_json_finite(r->step_loss), "loss",
                            tr_json_finite(r->split ? r->scores.loss : NAN), "accuracy",
                            tr_json_finite(r->split ? r->scores.accuracy : NAN), "train_sec",
                            r->train_sec, "step_ms", r->step_sec * 1e3, "samples_per_sec",
                            (double)r->batch_size / r->step_sec, "memory_bytes",
                            (json_int_t)r->bytes, "overflows", (json_int_t)r->overflows));
    }
    return cmd_json_write(json_pack("{s:s, s:s, s:s, s:i, s:I, s:o, s:o}", "kind", "precision",
                                    "config", o->path, "device", rows[0].device, "ranks", ranks,
                                    "batch_size", (json_int_t)rows[0].batch_size, "split",
                                    rows[0].split ? json_string(rows[0].split) : json_null(),
                                    "rows", list),
                          o->json);
}

static tr_status_t bench_precision_run(void *options) {
    const bench_precision_options_t *o = options;
    precision_row_t rows[TR_COUNT(types)] = {0};
    tr_world_t *world = NULL;
    TR_TRY(cmd_world_open(&world));
    for (int i = 0; i < o->types.count; i++) {
        rows[i].type = types[o->types.value[i]];
        rows[i].step_loss = NAN;
        TR_TRY(bench_precision_type(o, world, &rows[i]));
    }
    const tr_world_info_t *info = tr_world_info(world);
    if (info->rank == 0 && !cmd_json_is_stdout(o->json)) bench_precision_print(o, rows, info->size);
    if (info->rank == 0 && o->json) TR_TRY(bench_precision_write_json(o, rows, info->size));
    cmd_world_close(&world); /* after an error main ends the other ranks */
    return TR_OK;
}

static const cmd_argument_t arguments[] = {
    {"CONFIG.ini", offsetof(bench_precision_options_t, path), CMD_REQUIRED, NULL},
    {"[key=value ...]", offsetof(bench_precision_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_INT(bench_precision_options_t, steps, "--steps", "N", NULL, 1, CMD_NO_LIMIT,
                   "The steps of each type, by default those of the configuration."),
    CMD_OPTION_CHOICES(bench_precision_options_t, types, "--types", "T,T", "fp32,bf16,fp16",
                       "fp32|tf32|bf16|fp16", "The types to train in."),
    CMD_OPTION_JSON(bench_precision_options_t, BENCH_JSON),
};

const cmd_command_t bench_precision = {
    .name = "bench precision",
    .summary =
        "Trains in each precision and compares the results.\n"
        "It trains the configuration from the start in each type, for N steps or as long as the "
        "configuration says, without a run folder. It prints the training loss of the last step, "
        "the loss and accuracy on the test or validation data, the median step time, the planned "
        "memory, and the steps that were skipped because of an overflow.",
    CMD_ARGUMENTS(bench_precision_options_t),
    CMD_OPTIONS,
    .run = bench_precision_run,
};
