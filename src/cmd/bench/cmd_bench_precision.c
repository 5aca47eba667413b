/* trainer bench precision CONFIG.ini: trains the same configuration in each precision and compares
 * the results. */
#include "bench.h"
#include "base/mem.h"
#include "base/stats.h"
#include "session/eval.h"
#include "session/trial.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

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
    const char *name;
    char device[256];
    int64_t batch_size, steps; /* steps that were done */
    int64_t overflows;
    bool is_finite;          /* so were loss and gradient of the last step, or they overflowed */
    double train_loss;       /* of the last finite step */
    const char *split;       /* that loss and accuracy are of; NULL: there is no data for them */
    double loss, accuracy;   /* NAN: unknown */
    double train_sec;        /* all steps and reading the data */
    double step_sec, rate;   /* median; samples/s */
    tr_memory_plan_t memory; /* planned, per rank */
    bool is_fast;            /* the device has products of the type */
} precision_row_t;

static const tr_table_column_t columns[] = {
    TR_COLUMN(precision_row_t, "precision", "precision", STRING, name, .is_left = true),
    TR_COLUMN(precision_row_t, "steps", NULL, INT64, steps),
    TR_COLUMN(precision_row_t, "finite", NULL, BOOL, is_finite),
    TR_COLUMN(precision_row_t, "train_loss", "train loss", REAL, train_loss, .format = "%.4g"),
    TR_COLUMN(precision_row_t, "loss", "loss", REAL, loss, .format = "%.4g", .width = 9),
    TR_COLUMN(precision_row_t, "accuracy", "accuracy", REAL, accuracy, .format = "%.2f %%",
              .scale = 100),
    TR_COLUMN(precision_row_t, "train_sec", NULL, REAL, train_sec),
    TR_COLUMN(precision_row_t, "step_ms", "ms/step", REAL, step_sec, .format = "%.3f", .scale = 1e3,
              .key_scale = 1e3, .width = 9),
    TR_COLUMN(precision_row_t, "samples_per_sec", "samples/s", REAL, rate, .format = "%.1f",
              .width = 10),
    TR_COLUMN(precision_row_t, "memory_bytes", "memory", SIZE, memory.total,
              .people = tr_format_bytes, .width = 9),
    TR_COLUMN(precision_row_t, "overflows", "overflows", INT64, overflows),
};
static const tr_table_t table = TR_TABLE(columns, precision_row_t);

/* A type in comparison with fp32. */
typedef struct {
    const precision_row_t *row, *fp32;
    const char *name, *difference_of; /* difference_of: NULL: the accuracy */
    /* SPEED: times as fast; MEMORY: share; ACCURACY: difference, of the loss of a model without an
     * accuracy: relative. NAN: not known. */
    double ratio[GOALS];
    bool is_met[GOALS];
} precision_ratios_t;

static const tr_table_column_t ratio_columns[] = {
    TR_COLUMN(precision_ratios_t, NULL, "precision", STRING, name, .is_left = true),
    TR_COLUMN(precision_ratios_t, "difference_of", NULL, STRING, difference_of,
              .is_optional = true),
    TR_COLUMN(precision_ratios_t, "speedup", "speed", REAL, ratio[SPEED], .format = "%.2f x",
              .width = 8),
    TR_COLUMN(precision_ratios_t, "met.speed", "met", BOOL, is_met[SPEED]),
    TR_COLUMN(precision_ratios_t, "memory_ratio", "memory", REAL, ratio[MEMORY],
              .format = "%.1f %%", .scale = 100, .width = 9),
    TR_COLUMN(precision_ratios_t, "met.memory", "met", BOOL, is_met[MEMORY]),
    TR_COLUMN(precision_ratios_t, "accuracy_difference", "difference", REAL, ratio[ACCURACY],
              .format = "%+.2f %%", .scale = 100),
    TR_COLUMN(precision_ratios_t, "met.accuracy", "met", BOOL, is_met[ACCURACY]),
};
static const tr_table_t ratio_table = TR_TABLE(ratio_columns, precision_ratios_t);

typedef struct {
    const bench_precision_options_t *o;
    int ranks;
    precision_row_t rows[TR_COUNT(types)];
    precision_ratios_t ratios[TR_COUNT(types)];
    size_t ratio_count; /* 0: fp32 is not among the types */
} bench_precision_t;

/* -- one type ---------------------------------------------------------------------------------- */

typedef struct {
    precision_row_t *row;
    double *step_sec; /* [total_steps] */
} precision_run_t;

static bool bench_precision_note(void *self, const tr_step_outcome_t *o, double sec) {
    precision_run_t *r = self;
    r->step_sec[o->step] = sec;
    r->row->train_sec += sec;
    r->row->steps = o->step + 1;
    r->row->overflows = o->overflows;
    r->row->is_finite = o->finite || o->overflowed;
    if (o->finite) r->row->train_loss = o->loss;
    return r->row->is_finite;
}

/* Trains to the end, and evaluates. */
static tr_status_t bench_precision_measure(tr_trial_t *t, tr_world_t *world, tr_config_t *config,
                                           precision_run_t *r) {
    const tr_trial_params_t params = {.evaluation = true, .scheduled = true};
    precision_row_t *row = r->row;
    tr_eval_outcome_t scores;
    TR_TRY(tr_trial_open(config, world, &params, t));
    TR_TRY(tr_trial_start(t));
    tr_session_t *s = t->s;
    TR_TRY(tr_alloc((size_t)s->total_steps * sizeof *r->step_sec, "step times", &r->step_sec));
    TR_TRY(tr_trial_run(t, s->total_steps, s->optim.lr, bench_precision_note, r));
    tr_sort(r->step_sec, row->steps);
    row->step_sec = r->step_sec[row->steps / 2];
    row->batch_size = s->order.batch_size;
    row->rate = (double)row->batch_size / row->step_sec;
    tr_snprintf(row->device, sizeof row->device, "%s", s->device->description);
    row->memory = tr_graph_memory(s->g);
    row->is_fast =
        row->type == TR_PRECISION_FP32 || (row->type == TR_PRECISION_TF32   ? s->device->tf32
                                           : row->type == TR_PRECISION_BF16 ? s->device->fast_bf16
                                                                            : s->device->fast_f16);
    const tr_split_t split = s->dataset[TR_SPLIT_TEST] ? TR_SPLIT_TEST : TR_SPLIT_VALID;
    if (!s->dataset[split]) return TR_OK;
    TR_TRY(tr_session_evaluate(s, split, NULL, NULL, &scores));
    row->split = tr_split_name(split);
    row->loss = scores.loss;
    row->accuracy = scores.accuracy;
    return TR_OK;
}

static tr_status_t bench_precision_type(const bench_precision_options_t *o, tr_world_t *world,
                                        precision_row_t *row) {
    char precision[32], steps[48], *last[] = {precision, steps};
    cmd_words_t settings;
    tr_config_t *config = NULL;
    tr_trial_t trial = {0};
    precision_run_t r = {.row = row};
    tr_snprintf(precision, sizeof precision, "precision=%s", row->name);
    tr_snprintf(steps, sizeof steps, "train.steps=%lld", (long long)o->steps);
    TR_TRY(cmd_words_join(o->settings, (cmd_words_t){o->steps > 0 ? 2 : 1, last}, &settings));
    tr_status_t status = cmd_config_load_all(world, o->path, settings, &config);
    if (status == TR_OK) status = bench_precision_measure(&trial, world, config, &r);
    tr_trial_close(&trial, status);
    tr_free(&r.step_sec);
    tr_free(&settings.word);
    return status;
}

/* -- in comparison with fp32 ------------------------------------------------------------------- */

static void bench_precision_compare(bench_precision_t *b) {
    const precision_row_t *fp32 = NULL;
    for (int i = b->o->types.count - 1; i >= 0; i--)
        if (b->rows[i].type == TR_PRECISION_FP32) fp32 = &b->rows[i];
    for (int i = 0; i < b->o->types.count && fp32; i++) {
        const precision_row_t *row = &b->rows[i];
        const bool is_known = row->split && row->is_finite && fp32->is_finite,
                   has_accuracy = !fp32->split || isfinite(fp32->accuracy);
        precision_ratios_t *r = &b->ratios[b->ratio_count];
        if (row == fp32) continue;
        *r = (precision_ratios_t){.row = row, .fp32 = fp32, .name = row->name};
        if (!has_accuracy) r->difference_of = "loss";
        r->ratio[SPEED] = fp32->step_sec / row->step_sec;
        r->ratio[MEMORY] = (double)row->memory.total / (double)fp32->memory.total;
        r->ratio[ACCURACY] = !is_known      ? NAN
                             : has_accuracy ? row->accuracy - fp32->accuracy
                                            : row->loss / fp32->loss - 1;
        r->is_met[SPEED] = r->ratio[SPEED] >= LEAST_SPEED;
        r->is_met[MEMORY] = r->ratio[MEMORY] <= MOST_MEMORY;
        r->is_met[ACCURACY] = fabs(r->ratio[ACCURACY]) < MOST_DIFFERENCE;
        b->ratio_count++;
    }
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
                  tr_format_bytes((double)kept, text[0]), r->name,
                  tr_format_bytes((double)m->copies, text[1]),
                  tr_format_bytes((double)m->arena, text[2]),
                  tr_format_bytes((double)fp32->memory.arena, text[3]));
}

/* Why a goal is not met. */
static void bench_precision_why(const precision_ratios_t *ratios, int goal, tr_str_t *out) {
    const precision_row_t *r = ratios->row;
    if (goal == MEMORY)
        bench_precision_why_memory(r, ratios->fp32, out);
    else if (goal == SPEED && !r->is_fast)
        tr_str_printf(out,
                      r->type == TR_PRECISION_TF32
                          ? "this device has no products of %s: fp32 is used"
                          : "this device has no products of %s: they are emulated",
                      r->name);
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

/* -- results ----------------------------------------------------------------------------------- */

static void bench_precision_print_ratios(const bench_precision_t *b) {
    if (b->ratio_count == 0) return;
    printf("\nin comparison with fp32; expected: about 2x the speed (%.1f or more), about 50 %% of "
           "the memory (%.0f %% or less), %s within %.0f %%\n",
           LEAST_SPEED, 100 * MOST_MEMORY, b->ratios->difference_of ? "loss" : "accuracy",
           100 * MOST_DIFFERENCE);
    cmd_table_print(&ratio_table, b->ratios, b->ratio_count);
    for (const precision_ratios_t *r = b->ratios; r < b->ratios + b->ratio_count; r++)
        for (int goal = 0; goal < GOALS; goal++) {
            tr_str_t why = {0};
            if (r->is_met[goal]) continue;
            bench_precision_why(r, goal, &why);
            printf("%s, %s: %s\n", r->name, goal_names[goal], why.text);
            tr_str_free(&why);
        }
}

static void bench_precision_print(const bench_precision_t *b) {
    const precision_row_t *first = b->rows;
    printf("%s: %d rank%s on %s, %lld steps of %lld samples", b->o->path, b->ranks,
           b->ranks > 1 ? "s" : "", first->device, (long long)first->steps,
           (long long)first->batch_size);
    if (first->split) printf("; loss and accuracy of the %s data", first->split);
    printf("\n");
    cmd_table_print(&table, b->rows, (size_t)b->o->types.count);
    for (const precision_row_t *r = b->rows; r < b->rows + b->o->types.count; r++)
        if (!r->is_finite)
            printf("%s stopped at step %lld: loss or gradient not finite\n", r->name,
                   (long long)r->steps);
    bench_precision_print_ratios(b);
}

static tr_status_t bench_precision_write_json(const bench_precision_t *b) {
    const precision_row_t *first = b->rows;
    json_t *list = tr_table_json(&table, b->rows, (size_t)b->o->types.count);
    for (const precision_ratios_t *r = b->ratios; r < b->ratios + b->ratio_count; r++) {
        json_t *ratios = tr_table_object(&ratio_table, r), *reasons = json_object();
        for (int goal = 0; goal < GOALS; goal++) {
            tr_str_t why = {0};
            if (r->is_met[goal]) continue;
            bench_precision_why(r, goal, &why);
            json_object_set_new(reasons, goal_names[goal], json_string(why.text));
            tr_str_free(&why);
        }
        json_object_set_new(ratios, "reasons", reasons);
        json_object_update(json_array_get(list, (size_t)(r->row - b->rows)), ratios);
        json_decref(ratios);
    }
    return cmd_json_write(json_pack("{s:s, s:s, s:s, s:i, s:I, s:s?, s:o}", "kind", "precision",
                                    "config", b->o->path, "device", first->device, "ranks",
                                    b->ranks, "batch_size", (json_int_t)first->batch_size, "split",
                                    first->split, "rows", list),
                          b->o->json);
}

static tr_status_t bench_precision_run(void *options) {
    const bench_precision_options_t *o = options;
    bench_precision_t b = {.o = o};
    tr_world_t *world = NULL;
    TR_TRY(cmd_world_open(&world));
    const tr_world_info_t *info = tr_world_info(world);
    b.ranks = info->size;
    for (int i = 0; i < o->types.count; i++) {
        const tr_precision_t type = types[o->types.value[i]];
        b.rows[i] = (precision_row_t){.type = type,
                                      .name = tr_precision_name(type),
                                      .is_finite = true,
                                      .train_loss = NAN,
                                      .loss = NAN,
                                      .accuracy = NAN};
        TR_TRY(bench_precision_type(o, world, &b.rows[i]));
    }
    if (info->rank == 0) {
        bench_precision_compare(&b);
        if (!cmd_json_is_stdout(o->json)) bench_precision_print(&b);
        if (o->json) TR_TRY(bench_precision_write_json(&b));
    }
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
        "it prints how many times as fast a type is, the share of the memory, the difference of "
        "the accuracy (of a model without an accuracy: of the loss), whether each is what mixed "
        "precision is expected to bring (about 2x, about 50 %, within 1 %), and why it is not.",
    CMD_ARGUMENTS(bench_precision_options_t),
    CMD_OPTIONS,
    .run = bench_precision_run,
};
