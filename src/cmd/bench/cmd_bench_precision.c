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

/* What mixed precision is expected to bring, in comparison with fp32: about 2x the speed, about
 * 50 % of the memory, the accuracy within 1 %. */
enum { SPEED, MEMORY, ACCURACY, GOALS };
static const char *const goal_names[GOALS] = {"speed", "memory", "accuracy"};
#define LEAST_SPEED     1.8
#define MOST_MEMORY     0.55
#define MOST_DIFFERENCE 0.01

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
    const char *split;       /* that scores are of; NULL: there is no data for them */
    tr_memory_plan_t memory; /* planned, per rank */
    bool is_fast;            /* the device has products of the type */
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
    row->memory = tr_graph_memory(s->g);
    row->is_fast =
        row->type == TR_PRECISION_FP32 || (row->type == TR_PRECISION_TF32   ? s->device->tf32
                                           : row->type == TR_PRECISION_BF16 ? s->device->fast_bf16
                                                                            : s->device->fast_f16);
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

/* -- in comparison with fp32 ------------------------------------------------------------------- */

static const precision_row_t *bench_precision_fp32(const precision_row_t *rows, int count) {
    for (int i = 0; i < count; i++)
        if (rows[i].type == TR_PRECISION_FP32) return &rows[i];
    return NULL;
}

/* SPEED: times as fast; MEMORY: share; ACCURACY: difference, of the loss of a model without an
 * accuracy: relative. NAN: not known. */
static double bench_precision_ratio(const precision_row_t *r, const precision_row_t *fp32,
                                    int goal) {
    if (goal == SPEED) return fp32->step_sec / r->step_sec;
    if (goal == MEMORY) return (double)r->memory.total / (double)fp32->memory.total;
    if (!r->split || r->not_finite || fp32->not_finite) return NAN;
    return isfinite(fp32->scores.accuracy) ? r->scores.accuracy - fp32->scores.accuracy
                                           : r->scores.loss / fp32->scores.loss - 1;
}

static bool bench_precision_meets(double ratio, int goal) {
    return goal == SPEED    ? ratio >= LEAST_SPEED
           : goal == MEMORY ? ratio <= MOST_MEMORY
                            : fabs(ratio) < MOST_DIFFERENCE;
}

static void bench_precision_why_memory(const precision_row_t *r, const precision_row_t *fp32,
                                       tr_str_t *out) {
    const tr_memory_plan_t *m = &r->memory;
    const size_t kept = m->params + m->reduced + m->optim_state + m->model_state;
    char text[4][32];
    if (tr_precision_dtype(r->type) == TR_F32) {
        tr_str_append(out, "it stores everything in fp32");
        return;
    }
    tr_str_printf(out,
                  "weights, gradients and optimizer state stay in fp32 (%s), and copies of the "
                  "weights in %s add %s; activations and scratch take %s instead of %s",
                  tr_format_bytes((double)kept, text[0]), tr_precision_name(r->type),
                  tr_format_bytes((double)m->copies, text[1]),
                  tr_format_bytes((double)m->arena, text[2]),
                  tr_format_bytes((double)fp32->memory.arena, text[3]));
}

/* Why a goal is not met. */
static void bench_precision_why(const precision_row_t *r, const precision_row_t *fp32, int goal,
                                tr_str_t *out) {
    if (goal == MEMORY)
        bench_precision_why_memory(r, fp32, out);
    else if (goal == SPEED && !r->is_fast)
        tr_str_printf(out,
                      r->type == TR_PRECISION_TF32
                          ? "this device has no products of %s: fp32 is used"
                          : "this device has no products of %s: they are emulated",
                      tr_precision_name(r->type));
    else if (goal == SPEED)
        tr_str_append(out, "only matrix products become faster; bench step shows what else a step "
                           "takes");
    else if (r->overflows > 0)
        tr_str_printf(out, "%lld of %lld steps were skipped because of an overflow",
                      (long long)r->overflows, (long long)r->steps);
    else if (!r->split)
        tr_str_append(out, "there are no test or validation data");
    else
        tr_str_printf(out, "after %lld steps; runs with another seed may differ as much",
                      (long long)r->steps);
}

static void bench_precision_print_ratios(const precision_row_t *rows, int count) {
    const precision_row_t *fp32 = bench_precision_fp32(rows, count);
    if (!fp32 || count < 2) return;
    printf("\nin comparison with fp32; expected: about 2x the speed (%.1f or more), about 50 %% of "
           "the memory (%.0f %% or less), %s within %.0f %%\n",
           LEAST_SPEED, 100 * MOST_MEMORY, isfinite(fp32->scores.accuracy) ? "accuracy" : "loss",
           100 * MOST_DIFFERENCE);
    printf("%-9s %8s %6s %10s %6s %10s %6s\n", "precision", "speed", "met", "memory", "met",
           isfinite(fp32->scores.accuracy) ? "accuracy" : "loss", "met");
    for (int i = 0; i < count; i++) {
        static const char *const formats[GOALS] = {" %6.2f x", " %8.1f %%", " %+8.2f %%"};
        if (&rows[i] == fp32) continue;
        printf("%-9s", tr_precision_name(rows[i].type));
        for (int goal = 0; goal < GOALS; goal++) {
            const double ratio = bench_precision_ratio(&rows[i], fp32, goal);
            if (isfinite(ratio))
                printf(formats[goal], (goal == SPEED ? 1 : 100) * ratio);
            else
                printf(" %*s", goal == SPEED ? 8 : 10, "-");
            printf(" %6s", bench_precision_meets(ratio, goal) ? "yes" : "no");
        }
        printf("\n");
    }
    for (int i = 0; i < count; i++)
        for (int goal = 0; goal < GOALS && &rows[i] != fp32; goal++) {
            tr_str_t why = {0};
            if (bench_precision_meets(bench_precision_ratio(&rows[i], fp32, goal), goal)) continue;
            bench_precision_why(&rows[i], fp32, goal, &why);
            printf("%s, %s: %s\n", tr_precision_name(rows[i].type), goal_names[goal], why.text);
            tr_str_free(&why);
        }
}

/* Adds to the JSON of a row what was expected of it. */
static void bench_precision_add_ratios(json_t *to, const precision_row_t *r,
                                       const precision_row_t *fp32) {
    static const char *const keys[GOALS] = {"speedup", "memory_ratio", "accuracy_difference"};
    json_t *met = json_object(), *reasons = json_object();
    if (r != fp32 && !isfinite(fp32->scores.accuracy))
        json_object_set_new(to, "difference_of", json_string("loss"));
    for (int goal = 0; goal < GOALS && r != fp32; goal++) {
        const double ratio = bench_precision_ratio(r, fp32, goal);
        tr_str_t why = {0};
        json_object_set_new(to, keys[goal], tr_json_finite(ratio));
        json_object_set_new(met, goal_names[goal],
                            json_boolean(bench_precision_meets(ratio, goal)));
        if (bench_precision_meets(ratio, goal)) continue;
        bench_precision_why(r, fp32, goal, &why);
        json_object_set_new(reasons, goal_names[goal], json_string(why.text));
        tr_str_free(&why);
    }
    if (r != fp32) json_object_set(to, "met", met);
    if (r != fp32) json_object_set(to, "reasons", reasons);
    json_decref(met);
    json_decref(reasons);
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
        printf("%-9s %10.4g %10.4g", tr_precision_name(r->type), r->step_loss,
               r->split ? r->scores.loss : NAN);
        if (r->split && isfinite(r->scores.accuracy))
            printf(" %7.2f %%", 100 * r->scores.accuracy);
        else
            printf(" %9s", "-");
        printf(" %10.3f %11.1f %10s %9lld\n", r->step_sec * 1e3,
               (double)r->batch_size / r->step_sec,
               tr_format_bytes((double)r->memory.total, memory), (long long)r->overflows);
        if (r->not_finite)
            printf("          stopped at step %lld: loss or gradient not finite\n",
                   (long long)r->steps);
    }
    bench_precision_print_ratios(rows, o->types.count);
}

static tr_status_t bench_precision_write_json(const bench_precision_options_t *o,
                                              const precision_row_t *rows, int ranks) {
    const precision_row_t *fp32 = bench_precision_fp32(rows, o->types.count);
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
                            (json_int_t)r->memory.total, "overflows", (json_int_t)r->overflows));
        if (fp32) bench_precision_add_ratios(json_array_get(list, (size_t)i), r, fp32);
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
        "memory, and the steps that were skipped because of an overflow. In comparison with fp32 "
        "it "
        "prints how many times as fast a type is, the share of the memory, the difference of the "
        "accuracy (of a model without an accuracy: of the loss), whether each is what mixed "
        "precision is expected to bring (about 2x, about 50 %, within 1 %), and why it is not.",
    CMD_ARGUMENTS(bench_precision_options_t),
    CMD_OPTIONS,
    .run = bench_precision_run,
};
