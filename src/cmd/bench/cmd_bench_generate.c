/* trainer bench generate RUN|CHECKPOINT|FOLDER: tokens/s by the number of texts that are continued at
 * once. */
#include "bench.h"
#include "cmd/open_trained.h"
#include "infer/generate.h"
#include "base/stats.h"
#include "base/host.h"
#include "base/clock.h"
#include "base/mem.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 3, RUNS = 10, BATCHES = 5, BATCH_MAX = 64, DEVICES = 2 };
static const char *const device_names[DEVICES] = {"cpu", "cuda"};

typedef struct {
    const char *weights, *json, *svg;
    cmd_words_t settings;
    int64_t prompt, tokens, batch; /* tokens of a prompt, and new ones; batch 0: several */
    int type;                      /* of the weights, a tr_dtype_t */
    cmd_list_t devices;            /* indexes of device_names; none: that of the configuration */
} bench_generate_options_t;

typedef struct {
    double p50, p90, p99;
} generate_percentiles_t;

typedef struct {
    int64_t batch;
    double median, lowest, highest;              /* tokens/s of `decode` */
    double read_bytes;                           /* of weights per second, at the highest rate */
    generate_percentiles_t first_sec, token_sec; /* to the first token; of the others */
} generate_row_t;

#define GENERATE_RATE(key, heading, member, ...)                                                   \
    TR_COLUMN(generate_row_t, key, heading, REAL, member, .format = "%.1f", .width = 9, __VA_ARGS__)
#define GENERATE_MS(key, heading, member, over)                                                    \
    TR_COLUMN(generate_row_t, key, heading, REAL, member, .format = "%.2f", .scale = 1e3,          \
              .width = 7, .above = over)
static const tr_table_column_t columns[] = {
    TR_COLUMN(generate_row_t, "batch", "batch", INT64, batch, .width = 6),
    GENERATE_RATE("tokens_per_sec", "median", median, .above = "tokens/s"),
    GENERATE_RATE("tokens_per_sec_lowest", "lowest", lowest, .above = "tokens/s"),
    GENERATE_RATE("tokens_per_sec_highest", "highest", highest, .above = "tokens/s"),
    TR_COLUMN(generate_row_t, "weights_bytes_per_sec", "weights GB/s", REAL, read_bytes,
              .format = "%.2f", .scale = 1e-9),
    GENERATE_MS("first_token_sec", "p50", first_sec.p50, "first token ms"),
    GENERATE_MS("first_token_sec_p90", "p90", first_sec.p90, "first token ms"),
    GENERATE_MS("first_token_sec_p99", "p99", first_sec.p99, "first token ms"),
    GENERATE_MS("token_sec", "p50", token_sec.p50, "next token ms"),
    GENERATE_MS("token_sec_p90", "p90", token_sec.p90, "next token ms"),
    GENERATE_MS("token_sec_p99", "p99", token_sec.p99, "next token ms"),
};
static const tr_table_t table = TR_TABLE(columns, generate_row_t);

/* The ops of one kernel in a run of `decode`. */
typedef struct {
    const char *name;
    int count;
    double sec, bytes, share, rate; /* share: of all ops; rate: bytes per second */
} generate_kind_t;

static const tr_table_column_t kind_columns[] = {
    TR_COLUMN(generate_kind_t, NULL, "ms", REAL, sec, .format = "%.3f", .scale = 1e3, .width = 9),
    TR_COLUMN(generate_kind_t, NULL, "%", REAL, share, .format = "%.1f", .scale = 100, .width = 5),
    TR_COLUMN(generate_kind_t, NULL, "GB/s", REAL, rate, .format = "%.1f", .scale = 1e-9,
              .missing = "", .width = 8),
    TR_COLUMN(generate_kind_t, NULL, "ops", INT, count, .zero_is_missing = true, .missing = "",
              .width = 5),
    TR_COLUMN(generate_kind_t, NULL, "op", STRING, name, .is_left = true, .missing = ""),
};
static const tr_table_t kind_table = TR_TABLE(kind_columns, generate_kind_t);

/* How many times as many tokens/s as on the first device. */
typedef struct {
    int64_t batch;
    double speedup;
    const char *device, *over;
    char devices[48];
} generate_speedup_t;

static const tr_table_column_t speedup_columns[] = {
    TR_COLUMN(generate_speedup_t, "batch", "batch", INT64, batch, .width = 6),
    TR_COLUMN(generate_speedup_t, "speedup", "speedup", REAL, speedup, .format = "%.2f",
              .width = 8),
    TR_COLUMN(generate_speedup_t, NULL, "by the median", CHARS, devices, .is_left = true),
    TR_COLUMN(generate_speedup_t, "device_name", NULL, STRING, device),
    TR_COLUMN(generate_speedup_t, "over", NULL, STRING, over),
};
static const tr_table_t speedup_table = TR_TABLE(speedup_columns, generate_speedup_t);

typedef struct {
    const bench_generate_options_t *o;
    int64_t batches[BATCHES];
    int count;          /* of batches */
    const char *device; /* "cpu"; from the measurement on */
    cmd_trained_t t;    /* open during the measurement */
    tr_generator_t *generator;
    generate_row_t row[BATCHES];
    double load_sec, resident_bytes; /* until the first run; then, of this process */
    double device_bytes;             /* planned; of a device that is not the host, else 0 */
    double weight_bytes;             /* read for each run of `decode` */
    double limit_bytes;              /* that the device reads per second; 0: not known */
    TR_VEC(generate_kind_t) kinds;   /* of the first batch */
} bench_generate_t;

static tr_status_t bench_generate_build(tr_session_t *s, void *self) {
    bench_generate_t *b = self;
    const tr_preprocess_t *kept = s->params.trained_preprocess;
    const tr_generator_params_t params = {.rows = b->batches[b->count - 1],
                                          .weights = (tr_dtype_t)b->o->type,
                                          .vocab_size = kept ? kept->classes : 0};
    TR_TRY(tr_generator_create(&params, &b->generator));
    return tr_generator_build(s, b->generator);
}

/* -- measuring --------------------------------------------------------------------------------- */

/* Sorts the values. */
static generate_percentiles_t bench_generate_percentiles(double *sec, int64_t count) {
    const double n = (double)count;
    tr_sort(sec, count);
    return (generate_percentiles_t){sec[(int64_t)ceil(0.50 * n) - 1],
                                    sec[(int64_t)ceil(0.90 * n) - 1],
                                    sec[(int64_t)ceil(0.99 * n) - 1]};
}

static tr_status_t bench_generate_time_batch(bench_generate_t *b, int which) {
    static const tr_sampling_t greedy = {.temperature = 0, .top_p = 1};
    generate_row_t *r = &b->row[which];
    const int64_t batch = b->batches[which];
    TR_VEC(double) token = {0};
    double first[RUNS], rate[RUNS];
    tr_status_t status = TR_OK;
    for (int i = -WARM; i < RUNS && status == TR_OK; i++) {
        tr_text_t texts[BATCH_MAX];
        tr_generate_stats_t stats;
        for (int64_t k = 0; k < batch; k++)
            texts[k] =
                (tr_text_t){.sampling = greedy, .most = b->o->tokens, .end = -1, .logprobs = -1};
        for (int64_t k = 0; k < batch * b->o->prompt && status == TR_OK; k++) {
            const int64_t text = k / b->o->prompt, at = k % b->o->prompt;
            status = tr_vec_push(&texts[text].ids, (int32_t)((text + at) % 8));
        }
        if (status == TR_OK) status = tr_generator_run(b->generator, texts, batch, &stats);
        for (int64_t k = 0; k < batch; k++) {
            tr_vec_free(&texts[k].ids);
            tr_vec_free(&texts[k].tokens);
        }
        if (i < 0 || status != TR_OK) continue;
        first[i] = stats.first_sec;
        rate[i] = (double)stats.decoded / stats.decode_sec;
        for (int64_t k = 0; k < stats.steps && status == TR_OK; k++)
            status = tr_vec_push(&token, stats.step_sec[k]);
    }
    if (status == TR_OK && token.count == 0)
        status = TR_FAIL(TR_ERR_CONFIG,
                         "--prompt %lld: expected room for two tokens behind the prompts in the "
                         "context of the model, found less: set it lower",
                         (long long)b->o->prompt);
    if (status == TR_OK) {
        tr_sort(rate, RUNS);
        *r = (generate_row_t){.batch = batch,
                              .median = rate[RUNS / 2],
                              .lowest = rate[0],
                              .highest = rate[RUNS - 1],
                              .read_bytes = b->weight_bytes * rate[RUNS - 1] / (double)batch,
                              .first_sec = bench_generate_percentiles(first, RUNS),
                              .token_sec =
                                  bench_generate_percentiles(token.data, (int64_t)token.count)};
    }
    tr_vec_free(&token);
    return status;
}

static int bench_generate_by_time(const void *a, const void *b) {
    const generate_kind_t *x = a, *y = b;
    return (x->sec < y->sec) - (x->sec > y->sec);
}

/* Sums the ops of `decode` by kernel. Products with the tied embedding are apart from the others:
 * they are the largest. */
static tr_status_t bench_generate_time_kinds(bench_generate_t *b) {
    const tr_graph_t *g = b->t.s->g;
    const int program = tr_generator_decode(b->generator, b->batches[0]);
    bench_op_t *times = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(bench_time_ops(b->t.s->g, program, RUNS, &times));
    for (int i = 0; i < tr_program_op_count(g, program); i++) {
        const tr_op_t *op = tr_program_op(g, program, i);
        size_t k = 0;
        if (op->kind != TR_OP_KERNEL) continue;
        const bool is_head = op->row->kernel == TR_K_MATMUL_ROWS && !strstr(op->label, ".h.");
        const char *name = is_head ? "head" : op->row->name;
        while (k < b->kinds.count && strcmp(b->kinds.data[k].name, name) != 0) k++;
        if (k == b->kinds.count)
            TR_TRY_GOTO(tr_vec_push(&b->kinds, (generate_kind_t){.name = name}), done);
        b->kinds.data[k].count++;
        b->kinds.data[k].sec += times[i].median_sec;
        b->kinds.data[k].bytes += tr_op_bytes(g, op);
    }
    qsort(b->kinds.data, b->kinds.count, sizeof *b->kinds.data, bench_generate_by_time);
    /* With the wait after each op, the sum is more than the time of a run. */
    generate_kind_t sum = {.share = 1, .rate = NAN};
    for (size_t k = 0; k < b->kinds.count; k++) sum.sec += b->kinds.data[k].sec;
    for (size_t k = 0; k < b->kinds.count; k++) {
        generate_kind_t *kind = &b->kinds.data[k];
        kind->share = kind->sec / sum.sec;
        kind->rate = kind->bytes / kind->sec;
    }
    status = tr_vec_push(&b->kinds, sum);
done:
    tr_free(&times);
    return status;
}

static int bench_generate_best(const bench_generate_t *b) {
    int best = 0;
    for (int i = 1; i < b->count; i++)
        if (b->row[i].median > b->row[best].median) best = i;
    return best;
}

/* -- results ----------------------------------------------------------------------------------- */

static void bench_generate_print(const bench_generate_t *b) {
    const tr_session_t *s = b->t.s;
    char text[32];
    printf("%s, %.1f M parameters, weights in %s, on %s\n", s->model.type,
           (double)s->parameters / 1e6, cmd_weight_type(b->o->type), s->device->description);
    printf("prompts of %lld tokens, %lld new tokens, %d runs", (long long)b->o->prompt,
           (long long)b->o->tokens, RUNS);
    if (b->limit_bytes > 0) printf("; memory is read at up to %.1f GB/s", b->limit_bytes / 1e9);
    printf("\nloaded in %.2f s, the process then takes %s", b->load_sec,
           tr_format_bytes(b->resident_bytes, text));
    if (b->device_bytes > 0)
        printf(", and %s of the device", tr_format_bytes(b->device_bytes, text));
    printf("\n\n");
    cmd_table_print(&table, b->row, (size_t)b->count);
    if (b->count > 1)
        printf("best      batch %lld, by the median\n",
               (long long)b->batches[bench_generate_best(b)]);
    printf("\nbatch %lld, one token, op by op\n\n", (long long)b->batches[0]);
    cmd_table_print(&kind_table, b->kinds.data, b->kinds.count);
}

static json_t *bench_generate_json(const bench_generate_t *b) {
    const tr_session_t *s = b->t.s;
    return json_pack("{s:s, s:s, s:s, s:i, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:I, s:o}",
                     "version", cmd_version, "device", s->device->description, "device_name",
                     b->device, "threads", s->device->threads, "weights",
                     cmd_weight_type(b->o->type), "parameters", (json_int_t)s->parameters, "prompt",
                     (json_int_t)b->o->prompt, "tokens", (json_int_t)b->o->tokens, "load_sec",
                     b->load_sec, "resident_bytes", b->resident_bytes, "device_bytes",
                     b->device_bytes, "read_bytes_per_sec", b->limit_bytes, "best_batch",
                     (json_int_t)b->batches[bench_generate_best(b)], "rows",
                     tr_table_json(&table, b->row, (size_t)b->count));
}

/* Of device `d` over the first one. */
static void bench_generate_compare(const bench_generate_t *all, int d,
                                   generate_speedup_t out[BATCHES]) {
    for (int i = 0; i < all[d].count; i++) {
        out[i] = (generate_speedup_t){.batch = all[d].batches[i],
                                      .speedup = all[d].row[i].median / all[0].row[i].median,
                                      .device = all[d].device,
                                      .over = all[0].device};
        tr_snprintf(out[i].devices, sizeof out[i].devices, "%s over %s", all[d].device,
                    all[0].device);
    }
}

/* Steals `results`: the result of one device, or with --devices of each, and the speedups. */
static tr_status_t bench_generate_write_json(const bench_generate_t *all, int count,
                                             json_t *results) {
    const bench_generate_options_t *o = all[0].o;
    json_t *speedups = json_array(), *one = json_incref(json_array_get(results, 0));
    if (o->devices.count == 0) {
        json_decref(results);
        json_decref(speedups);
        return cmd_json_write(one, o->json);
    }
    json_decref(one);
    for (int d = 1; d < count; d++) {
        generate_speedup_t rows[BATCHES];
        bench_generate_compare(all, d, rows);
        json_t *more = tr_table_json(&speedup_table, rows, (size_t)all[d].count);
        json_array_extend(speedups, more);
        json_decref(more);
    }
    return cmd_json_write(
        json_pack("{s:s, s:o, s:o}", "kind", "devices", "results", results, "speedups", speedups),
        o->json);
}

static const tr_plot_t plots[] = {{.chart = {.title = "Throughput",
                                             .x_label = "texts at once",
                                             .y_label = "tokens/s",
                                             .x_scale = TR_SVG_SIZES,
                                             .from_zero = true},
                                   .x = "batch",
                                   .curves = {{"tokens_per_sec", .low = "tokens_per_sec_lowest",
                                               .high = "tokens_per_sec_highest"}}},
                                  {.chart = {.title = "Time of the next tokens",
                                             .x_label = "texts at once",
                                             .y_label = "next token, p50 (ms)",
                                             .x_scale = TR_SVG_SIZES,
                                             .from_zero = true},
                                   .x = "batch",
                                   .scale = 1e3,
                                   .curves = {{"token_sec"}}}};

static tr_status_t bench_generate_write_svg(const bench_generate_t *all, int count) {
    tr_plot_rows_t rows[DEVICES];
    for (int d = 0; d < count; d++)
        rows[d] = (tr_plot_rows_t){.title = all[d].device,
                                   .role = strcmp(all[d].device, "cuda") == 0 ? TR_SHOWS_GPU
                                                                              : TR_SHOWS_HOST,
                                   .data = all[d].row,
                                   .count = (size_t)all[d].count};
    return cmd_plots_write(all[0].o->svg, plots, TR_COUNT(plots), &table, rows, (size_t)count);
}

/* -- running ----------------------------------------------------------------------------------- */

/* Opens the model on one device (NULL: that of the configuration), and prints its results and adds
 * them to `results`. */
static tr_status_t bench_generate_on(bench_generate_t *b, tr_world_t *world, const char *device,
                                     json_t *results) {
    const bench_generate_options_t *o = b->o;
    const tr_trained_params_t trained = {.weights = o->weights,
                                         .purpose = TR_SESSION_BUILD,
                                         .build = bench_generate_build,
                                         .build_self = b};
    char assignment[32], *last[] = {assignment};
    cmd_words_t settings;
    tr_config_t *config = NULL;
    tr_status_t status = TR_OK;
    tr_snprintf(assignment, sizeof assignment, "device=%s", device ? device : "");
    TR_TRY(cmd_words_join(o->settings, (cmd_words_t){device ? 1 : 0, last}, &settings));
    const cmd_trained_params_t params = {.settings = settings, .model.weights = o->weights};
    const double begin = tr_clock_sec();
    b->t = (cmd_trained_t){.step = -1, .world = world};
    TR_TRY_GOTO(cmd_trained_config(world, &params, &config), done);
    b->t.config = config;
    TR_TRY_GOTO(tr_trained_open(&trained, &b->t), done);
    TR_TRY_GOTO(tr_generator_start(b->generator, NULL), done);
    b->load_sec = tr_clock_sec() - begin;
    tr_device_t *on = b->t.s->device;
    const tr_graph_t *g = b->t.s->g;
    b->device = on->ops->name;
    b->resident_bytes = (double)tr_host_resident_bytes();
    if (!on->host_visible) b->device_bytes = (double)tr_graph_memory(g).total;
    /* All parameters but the table of positions are read whole. */
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_info_t *info = tr_tensor_info(g, (tr_tensor_t){id});
        if (tr_is_param(g, (tr_tensor_t){id}) && !strstr(info->name, "wpe"))
            b->weight_bytes += (double)info->bytes;
    }
    if (on->ops->measure_read) TR_TRY_GOTO(on->ops->measure_read(on, &b->limit_bytes), done);
    for (int i = 0; i < b->count; i++) {
        TR_TRY_GOTO(bench_generate_time_batch(b, i), done);
        if (i == 0) TR_TRY_GOTO(bench_generate_time_kinds(b), done);
    }
    if (!cmd_json_is_stdout(o->json)) bench_generate_print(b);
    json_array_append_new(results, bench_generate_json(b));
done:
    tr_generator_destroy(&b->generator);
    tr_vec_free(&b->kinds);
    tr_trained_close(&b->t);
    tr_config_destroy(&config);
    tr_free(&settings.word);
    return status;
}

static tr_status_t bench_generate_run(void *options) {
    const bench_generate_options_t *o = options;
    const int count = o->devices.count > 0 ? o->devices.count : 1;
    bench_generate_t all[DEVICES];
    tr_world_t *world = NULL;
    json_t *results = json_array();
    tr_status_t status = TR_OK;
    if (count > DEVICES)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_USAGE,
                            "bench generate: --devices: expected at most %d, found %d", DEVICES,
                            count),
                    done);
    TR_TRY_GOTO(cmd_world_open(&world), done);
    if (tr_world_info(world)->size > 1)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_USAGE, "bench generate runs alone, not on %d ranks",
                            tr_world_info(world)->size),
                    done);
    for (int d = 0; d < count; d++) {
        const char *device = o->devices.count > 0 ? device_names[o->devices.value[d]] : NULL;
        all[d] = (bench_generate_t){.o = o, .batches = {1, 4, 16, 32, 64}, .count = BATCHES};
        if (o->batch > 0) all[d].batches[0] = o->batch, all[d].count = 1;
        if (d > 0 && !cmd_json_is_stdout(o->json)) printf("\n");
        TR_TRY_GOTO(bench_generate_on(&all[d], world, device, results), done);
    }
    for (int d = 1; d < count && !cmd_json_is_stdout(o->json); d++) {
        generate_speedup_t rows[BATCHES];
        bench_generate_compare(all, d, rows);
        printf("\n");
        cmd_table_print(&speedup_table, rows, (size_t)all[d].count);
    }
    if (o->json) TR_TRY_GOTO(bench_generate_write_json(all, count, json_incref(results)), done);
    if (o->svg) TR_TRY_GOTO(bench_generate_write_svg(all, count), done);
    cmd_world_close(&world);
done:
    json_decref(results);
    return status;
}

static const cmd_argument_t arguments[] = {
    {"RUN|CHECKPOINT|FOLDER", offsetof(bench_generate_options_t, weights), CMD_REQUIRED, NULL},
    {"[key=value ...]", offsetof(bench_generate_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_INT(bench_generate_options_t, batch, "--batch", "N", NULL, 1, BATCH_MAX,
                   "The texts at once, instead of 1, 4, 16, 32 and 64."),
    CMD_OPTION_INT(bench_generate_options_t, prompt, "--prompt", "N", "16", 1, CMD_NO_LIMIT,
                   "The tokens of each prompt."),
    CMD_OPTION_INT(bench_generate_options_t, tokens, "--tokens", "N", "16", 2, CMD_NO_LIMIT,
                   "The tokens of each run."),
    CMD_OPTION_ENUM(bench_generate_options_t, type, "--weights", "fp32", CMD_WEIGHT_TYPES,
                    "The type in which the weights, and the keys and values of earlier tokens, are "
                    "read."),
    CMD_OPTION_CHOICES(bench_generate_options_t, devices, "--devices", "D,D", NULL, "cpu|cuda",
                       "Times each of these devices, and prints the speedup over the first one."),
    CMD_OPTION_JSON(bench_generate_options_t, BENCH_JSON),
    BENCH_SVG(bench_generate_options_t,
              "tokens/s and the time of the next tokens over the texts at once"),
};

const cmd_command_t bench_generate = {
    .name = "bench generate",
    .summary =
        "Times the generation of texts.\n"
        "It runs alone. For batches of 1, 4, 16, 32 and 64 texts, or of --batch texts, it prints "
        "tokens/s (median, lowest and highest of 10 runs of N tokens, after 3 runs that do not "
        "count), the rate at which the fastest run reads the weights, with the read bandwidth of "
        "the device, measured in the same run, and percentiles of the time to the first token of "
        "the first text and of the time of the next tokens. It also prints the time to load the "
        "model, the memory that the process and the device then take, and the batch with the most "
        "tokens/s.",
    CMD_ARGUMENTS(bench_generate_options_t),
    CMD_OPTIONS,
    .run = bench_generate_run,
};
