/* trainer bench precision CONFIG.ini [--steps N] [--types T,T] [--json FILE] [key=value ...]:
 * trains the same configuration in each precision and compares the results. */
#include "bench.h"
#include "cmd/cmd.h"
#include "session/session.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TYPES = 4 };

typedef struct {
    const char *path, *json;
    int64_t steps; /* 0: those of the configuration */
    tr_precision_t type[MOST_TYPES];
    int types;
    int assignments;
    char **assignment;
} options_t;

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
} row_t;

static tr_status_t parse_types(const char *list, options_t *o) {
    o->types = 0;
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        char name[16];
        tr_snprintf(name, sizeof name, "%.*s", (int)strcspn(p, ","), p);
        const tr_precision_t type = tr_precision_find(name);
        if (type == TR_PRECISION_AUTO || o->types == MOST_TYPES)
            return TR_FAIL(TR_ERR_USAGE, "--types %s: expected up to %d of fp32,tf32,bf16,fp16",
                           list, MOST_TYPES);
        o->type[o->types++] = type;
    }
    return TR_OK;
}

static tr_status_t parse(int argc, char **argv, options_t *o) {
    int kept = 0;
    *o = (options_t){.assignment = argv,
                     .types = 3,
                     .type = {TR_PRECISION_FP32, TR_PRECISION_BF16, TR_PRECISION_FP16}};
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--json") == 0 && has_value)
            o->json = argv[++i];
        else if (strcmp(argv[i], "--types") == 0 && has_value)
            TR_TRY(parse_types(argv[++i], o));
        else if (strcmp(argv[i], "--steps") == 0 && has_value) {
            if (!tr_parse_int(argv[++i], &o->steps) || o->steps < 1)
                return TR_FAIL(TR_ERR_USAGE, "--steps %s: expected a positive integer", argv[i]);
        } else if (argv[i][0] == '-')
            return cmd_fail_option("bench precision", argv[i]);
        else if (!o->path)
            o->path = argv[i];
        else
            argv[kept++] = argv[i];
    }
    o->assignments = kept;
    return o->path ? TR_OK : TR_FAIL(TR_ERR_USAGE, "bench precision requires a configuration file");
}

/* -- one type ---------------------------------------------------------------------------------- */

typedef struct {
    tr_session_t *s;
    tr_schedule_t *schedule;
    tr_collectives_t *collectives;
    tr_loader_t *loader;
    tr_train_step_t *train_step;
    double *step_sec; /* [total_steps] */
    double last_sec;  /* when the outcome of the last step was known */
} run_t;

static void note(run_t *r, const tr_step_outcome_t *o, row_t *row) {
    const double now = tr_clock_sec();
    if (o->step < 0) return;
    r->step_sec[o->step] = now - r->last_sec;
    r->last_sec = now;
    row->steps = o->step + 1;
    row->overflows = o->overflows;
    row->not_finite = !o->finite && !o->overflowed;
    if (o->finite) row->step_loss = o->loss;
}

static tr_status_t train(run_t *r, row_t *row) {
    tr_step_outcome_t o;
    const double began = r->last_sec = tr_clock_sec();
    for (int64_t i = 0; i < r->s->total_steps && !row->not_finite; i++) {
        TR_TRY(tr_train_step_begin(r->train_step, i, tr_schedule_lr(r->schedule, i), false, false,
                                   &o));
        note(r, &o, row);
        TR_TRY(tr_train_step_end(r->train_step, &o));
        note(r, &o, row);
    }
    TR_TRY(tr_train_step_drain(r->train_step, &o));
    note(r, &o, row);
    row->train_sec = tr_clock_sec() - began;
    tr_sort(r->step_sec, row->steps);
    row->step_sec = r->step_sec[row->steps / 2];
    return TR_OK;
}

static tr_status_t measure(run_t *r, tr_world_t *world, const tr_config_t *config, row_t *row) {
    const tr_world_info_t *info = tr_world_info(world);
    const tr_session_params_t params = {.training = true,
                                        .evaluation = true,
                                        .split = TR_SPLIT_TRAIN,
                                        .rank = info->rank,
                                        .size = info->size};
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
    TR_TRY(train(r, row));
    const tr_split_t split = s->dataset[TR_SPLIT_TEST] ? TR_SPLIT_TEST : TR_SPLIT_VALID;
    tr_snprintf(row->device, sizeof row->device, "%s", s->device->description);
    row->batch_size = s->order.batch_size;
    row->bytes = tr_graph_memory(s->g).total;
    row->split = s->dataset[split] ? tr_split_name(split) : NULL;
    return row->split ? tr_session_evaluate(s, split, NULL, NULL, NULL, &row->scores) : TR_OK;
}

/* After an error other ranks may wait in a collective: main ends them, and nothing is closed. */
static void finish(run_t *r, tr_world_t *world) {
    if (r->collectives) tr_graph_drop_captures(r->s->g);
    if (r->collectives) tr_world_collectives_close(world, &r->collectives);
    tr_train_step_destroy(&r->train_step);
    tr_loader_destroy(&r->loader);
    tr_schedule_destroy(&r->schedule);
    tr_session_destroy(&r->s);
    tr_free(&r->step_sec);
}

static tr_status_t bench_type(const options_t *o, tr_world_t *world, row_t *row) {
    char precision[32], steps[48], **all = NULL;
    tr_config_t *config = NULL;
    run_t run = {0};
    size_t count = (size_t)o->assignments;
    TR_TRY(tr_alloc((count + 2) * sizeof *all, "the settings", &all));
    memcpy(all, o->assignment, count * sizeof *all);
    tr_snprintf(precision, sizeof precision, "precision=%s", tr_precision_name(row->type));
    all[count++] = precision;
    tr_snprintf(steps, sizeof steps, "train.steps=%lld", (long long)o->steps);
    if (o->steps > 0) all[count++] = steps;
    tr_status_t status = cmd_config_load_all(world, o->path, (int)count, all, &config);
    if (status == TR_OK) status = measure(&run, world, config, row);
    if (status == TR_OK) finish(&run, world);
    tr_config_destroy(&config);
    tr_free(&all);
    return status;
}

/* -- showing ----------------------------------------------------------------------------------- */

static void print_rows(const options_t *o, const row_t *rows, int ranks) {
    char memory[32];
    printf("%s: %d rank%s on %s, %lld steps of %lld samples\n", o->path, ranks,
           ranks > 1 ? "s" : "", rows[0].device, (long long)rows[0].steps,
           (long long)rows[0].batch_size);
    printf("%-9s %10s %10s %9s %10s %11s %10s %9s\n", "precision", "train loss",
           rows[0].split ? rows[0].split : "-", "accuracy", "ms/step", "samples/s", "memory",
           "overflows");
    for (int i = 0; i < o->types; i++) {
        const row_t *r = &rows[i];
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

static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *row_json(const row_t *r) {
    return json_pack(
        "{s:s, s:I, s:b, s:o, s:o, s:o, s:f, s:f, s:f, s:I, s:I}", "precision",
        tr_precision_name(r->type), "steps", (json_int_t)r->steps, "finite", !r->not_finite,
        "train_loss", number(r->step_loss), "loss", number(r->split ? r->scores.loss : NAN),
        "accuracy", number(r->split ? r->scores.accuracy : NAN), "train_sec", r->train_sec,
        "step_ms", r->step_sec * 1e3, "samples_per_sec", (double)r->batch_size / r->step_sec,
        "memory_bytes", (json_int_t)r->bytes, "overflows", (json_int_t)r->overflows);
}

static tr_status_t write_json(const options_t *o, const row_t *rows, int ranks) {
    json_t *list = json_array();
    for (int i = 0; i < o->types; i++) json_array_append_new(list, row_json(&rows[i]));
    return cmd_json_write(json_pack("{s:s, s:s, s:s, s:i, s:I, s:o, s:o}", "kind", "precision",
                                    "config", o->path, "device", rows[0].device, "ranks", ranks,
                                    "batch_size", (json_int_t)rows[0].batch_size, "split",
                                    rows[0].split ? json_string(rows[0].split) : json_null(),
                                    "rows", list),
                          o->json);
}

tr_status_t cmd_bench_precision(int argc, char **argv) {
    options_t o;
    tr_world_t *world = NULL;
    row_t rows[MOST_TYPES] = {0};
    tr_status_t status = TR_OK;
    TR_TRY(parse(argc, argv, &o));
    TR_TRY(cmd_world_open(&world));
    for (int i = 0; i < o.types && status == TR_OK; i++) {
        rows[i].type = o.type[i];
        rows[i].step_loss = NAN;
        status = bench_type(&o, world, &rows[i]);
    }
    const tr_world_info_t *info = tr_world_info(world);
    if (status == TR_OK && info->rank == 0 && !cmd_json_is_stdout(o.json))
        print_rows(&o, rows, info->size);
    if (status == TR_OK && info->rank == 0 && o.json) status = write_json(&o, rows, info->size);
    if (status == TR_OK) cmd_world_close(&world); /* else main ends the other ranks */
    return status;
}
