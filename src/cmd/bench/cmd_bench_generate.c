/* trainer bench generate RUN|CHECKPOINT|FOLDER: tokens/s by the number of texts that are continued at
 * once. */
#include "bench.h"
#include "bench_plot.h"
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

enum { P50, P90, P99, PERCENTILES };
static const double percentiles[PERCENTILES] = {0.50, 0.90, 0.99};

typedef struct {
    double first_sec[PERCENTILES], token_sec[PERCENTILES]; /* to the first token; of the others */
    double rate[RUNS];                                     /* ascending, tokens/s of `decode` */
    double read_bytes; /* of weights per second, at the highest rate */
} generate_result_t;

/* The ops of one kernel in a run of `decode`. */
typedef struct {
    const char *name;
    int count;
    double sec, bytes;
} generate_kind_t;

typedef struct {
    const bench_generate_options_t *o;
    int64_t batches[BATCHES];
    int count;          /* of batches */
    const char *device; /* "cpu"; from the measurement on */
    cmd_trained_t t;    /* open during the measurement */
    tr_generator_t *generator;
    generate_result_t result[BATCHES];
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
static void bench_generate_percentiles(double *sec, int64_t count, double out[PERCENTILES]) {
    tr_sort(sec, count);
    for (int p = 0; p < PERCENTILES; p++)
        out[p] = sec[(int64_t)ceil(percentiles[p] * (double)count) - 1];
}

static tr_status_t bench_generate_time_batch(bench_generate_t *b, int which) {
    static const tr_sampling_t greedy = {.temperature = 0, .top_p = 1};
    generate_result_t *r = &b->result[which];
    const int64_t batch = b->batches[which];
    TR_VEC(double) token = {0};
    double first[RUNS];
    tr_status_t status = TR_OK;
    for (int i = -WARM; i < RUNS && status == TR_OK; i++) {
        tr_text_t texts[BATCH_MAX];
        tr_generate_stats_t stats;
        for (int64_t k = 0; k < batch; k++)
            texts[k] =
                (tr_text_t){.sampling = greedy, .most = b->o->tokens, .end = -1, .logprobs = -1};
        for (int64_t k = 0; k < batch * b->o->prompt && status == TR_OK; k++) {
            const int64_t text = k / b->o->prompt, at = k % b->o->prompt;
            status = tr_vec_push(&texts[text].ids, (int32_t)(text + at % 64));
        }
        if (status == TR_OK) status = tr_generator_run(b->generator, texts, batch, &stats);
        for (int64_t k = 0; k < batch; k++) {
            tr_vec_free(&texts[k].ids);
            tr_vec_free(&texts[k].tokens);
        }
        if (i < 0 || status != TR_OK) continue;
        first[i] = stats.first_sec;
        r->rate[i] = (double)stats.decoded / stats.decode_sec;
        for (int64_t k = 0; k < stats.steps && status == TR_OK; k++)
            status = tr_vec_push(&token, stats.step_sec[k]);
    }
    if (status == TR_OK && token.count == 0)
        status = TR_FAIL(TR_ERR_CONFIG,
                         "--prompt %lld: expected room for two tokens behind the prompts in the "
                         "context of the model, found less: set it lower",
                         (long long)b->o->prompt);
    if (status == TR_OK) {
        bench_generate_percentiles(first, RUNS, r->first_sec);
        bench_generate_percentiles(token.data, (int64_t)token.count, r->token_sec);
        tr_sort(r->rate, RUNS);
        r->read_bytes = b->weight_bytes * r->rate[RUNS - 1] / (double)batch;
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
done:
    tr_free(&times);
    return status;
}

static tr_status_t bench_generate_measure(bench_generate_t *b) {
    tr_device_t *device = b->t.s->device;
    const tr_graph_t *g = b->t.s->g;
    /* All parameters but the table of positions are read whole. */
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_info_t *info = tr_tensor_info(g, (tr_tensor_t){id});
        if (tr_is_param(g, (tr_tensor_t){id}) && !strstr(info->name, "wpe"))
            b->weight_bytes += (double)info->bytes;
    }
    if (device->ops->measure_read) TR_TRY(device->ops->measure_read(device, &b->limit_bytes));
    for (int i = 0; i < b->count; i++) {
        TR_TRY(bench_generate_time_batch(b, i));
        if (i == 0) TR_TRY(bench_generate_time_kinds(b));
    }
    return TR_OK;
}

static int bench_generate_best(const bench_generate_t *b) {
    int best = 0;
    for (int i = 1; i < b->count; i++)
        if (b->result[i].rate[RUNS / 2] > b->result[best].rate[RUNS / 2]) best = i;
    return best;
}

/* -- results ----------------------------------------------------------------------------------- */

static void bench_generate_print(const bench_generate_t *b) {
    const tr_session_t *s = b->t.s;
    char text[32];
    double sum = 0;
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
    printf("%6s %10s %10s %10s %14s  %25s  %25s\n", "", "tokens/s", "", "", "", "first token ms",
           "next token ms");
    printf("%6s %10s %10s %10s %14s ", "batch", "median", "lowest", "highest", "weights GB/s");
    printf(" %7s %8s %8s  %8s %8s %8s\n", "p50", "p90", "p99", "p50", "p90", "p99");
    for (int i = 0; i < b->count; i++) {
        const generate_result_t *r = &b->result[i];
        printf("%6lld %10.1f %10.1f %10.1f %14.2f ", (long long)b->batches[i], r->rate[RUNS / 2],
               r->rate[0], r->rate[RUNS - 1], r->read_bytes / 1e9);
        for (int p = 0; p < PERCENTILES; p++) printf(" %8.2f", 1e3 * r->first_sec[p]);
        printf(" ");
        for (int p = 0; p < PERCENTILES; p++) printf(" %8.2f", 1e3 * r->token_sec[p]);
        printf("\n");
    }
    if (b->count > 1)
        printf("best      batch %lld, by the median\n",
               (long long)b->batches[bench_generate_best(b)]);
    /* Op by op: with the wait after each op, the sum is more than the time of a run. */
    for (size_t i = 0; i < b->kinds.count; i++) sum += b->kinds.data[i].sec;
    printf("\nbatch %lld, one token, op by op\n\n", (long long)b->batches[0]);
    printf("%9s %6s %9s %6s  %s\n", "ms", "%", "GB/s", "ops", "op");
    for (size_t i = 0; i < b->kinds.count; i++) {
        const generate_kind_t *k = &b->kinds.data[i];
        printf("%9.3f %6.1f %9.1f %6d  %s\n", k->sec * 1e3, 100 * k->sec / sum,
               k->bytes / k->sec / 1e9, k->count, k->name);
    }
    printf("%9.3f %6.1f\n", sum * 1e3, 100.0);
}

static json_t *bench_generate_json(const bench_generate_t *b) {
    const tr_session_t *s = b->t.s;
    json_t *rows = json_array();
    for (int i = 0; i < b->count; i++) {
        const generate_result_t *r = &b->result[i];
        json_array_append_new(
            rows,
            json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "batch",
                      (json_int_t)b->batches[i], "tokens_per_sec", r->rate[RUNS / 2],
                      "tokens_per_sec_lowest", r->rate[0], "tokens_per_sec_highest",
                      r->rate[RUNS - 1], "weights_bytes_per_sec", r->read_bytes, "first_token_sec",
                      r->first_sec[P50], "first_token_sec_p90", r->first_sec[P90],
                      "first_token_sec_p99", r->first_sec[P99], "token_sec", r->token_sec[P50],
                      "token_sec_p90", r->token_sec[P90], "token_sec_p99", r->token_sec[P99]));
    }
    return json_pack("{s:s, s:s, s:s, s:i, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:I, s:o}",
                     "version", cmd_version, "device", s->device->description, "device_name",
                     b->device, "threads", s->device->threads, "weights",
                     cmd_weight_type(b->o->type), "parameters", (json_int_t)s->parameters, "prompt",
                     (json_int_t)b->o->prompt, "tokens", (json_int_t)b->o->tokens, "load_sec",
                     b->load_sec, "resident_bytes", b->resident_bytes, "device_bytes",
                     b->device_bytes, "read_bytes_per_sec", b->limit_bytes, "best_batch",
                     (json_int_t)b->batches[bench_generate_best(b)], "rows", rows);
}

/* How many times as many tokens/s as on the first device. */
static double bench_generate_speedup(const bench_generate_t *all, int device, int batch) {
    return all[device].result[batch].rate[RUNS / 2] / all[0].result[batch].rate[RUNS / 2];
}

static void bench_generate_print_speedups(const bench_generate_t *all, int count) {
    for (int d = 1; d < count; d++) {
        printf("\n%6s %22s\n", "batch", "speedup, by the median");
        for (int i = 0; i < all[d].count; i++)
            printf("%6lld %8.2f  %s over %s\n", (long long)all[d].batches[i],
                   bench_generate_speedup(all, d, i), all[d].device, all[0].device);
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
    for (int d = 1; d < count; d++)
        for (int i = 0; i < all[d].count; i++)
            json_array_append_new(speedups, json_pack("{s:s, s:s, s:I, s:f}", "device_name",
                                                      all[d].device, "over", all[0].device, "batch",
                                                      (json_int_t)all[d].batches[i], "speedup",
                                                      bench_generate_speedup(all, d, i)));
    return cmd_json_write(
        json_pack("{s:s, s:o, s:o}", "kind", "devices", "results", results, "speedups", speedups),
        o->json);
}

static tr_status_t bench_generate_write_svg(const bench_generate_t *all, int count) {
    bench_chart_t charts[] = {
        {.chart = {"texts at once", "tokens/s", 0, NAN, false, true}},
        {.chart = {"texts at once", "next token, p50 (ms)", 0, NAN, false, true}}};
    for (size_t k = 0; k < TR_COUNT(charts); k++)
        for (int i = 0; i < all[0].count; i++)
            charts[k].x[charts[k].points++] = (double)all[0].batches[i];
    for (int d = 0; d < count; d++) {
        bench_curve_t *rate = bench_chart_add(&charts[0], all[d].device),
                      *token = bench_chart_add(&charts[1], all[d].device);
        for (int i = 0; i < all[d].count; i++) {
            rate->y[i] = all[d].result[i].rate[RUNS / 2];
            token->y[i] = 1e3 * all[d].result[i].token_sec[P50];
        }
    }
    return bench_plot_write(all[0].o->svg, charts, TR_COUNT(charts));
}

/* -- running ----------------------------------------------------------------------------------- */

/* Opens the model on one device (NULL: that of the configuration), and prints its results and adds
 * them to `results`. */
static tr_status_t bench_generate_on(bench_generate_t *b, tr_world_t *world, const char *device,
                                     json_t *results) {
    const bench_generate_options_t *o = b->o;
    const tr_trained_params_t trained = {
        .weights = o->weights, .build = bench_generate_build, .build_self = b};
    char assignment[32], *last[] = {assignment};
    cmd_words_t settings;
    tr_config_t *config = NULL;
    tr_status_t status = TR_OK;
    tr_snprintf(assignment, sizeof assignment, "device=%s", device ? device : "");
    TR_TRY(cmd_words_join(o->settings, (cmd_words_t){device ? 1 : 0, last}, &settings));
    const cmd_trained_params_t params = {.weights = o->weights, .settings = settings};
    const double begin = tr_clock_sec();
    b->t = (cmd_trained_t){.step = -1, .world = world};
    TR_TRY_GOTO(cmd_trained_config(world, &params, &config), done);
    b->t.config = config;
    TR_TRY_GOTO(tr_trained_open(&trained, &b->t), done);
    TR_TRY_GOTO(tr_generator_start(b->generator, NULL), done);
    b->load_sec = tr_clock_sec() - begin;
    b->device = b->t.s->device->ops->name;
    b->resident_bytes = (double)tr_host_resident_bytes();
    if (!b->t.s->device->host_visible) b->device_bytes = (double)tr_graph_memory(b->t.s->g).total;
    TR_TRY_GOTO(bench_generate_measure(b), done);
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
    if (!cmd_json_is_stdout(o->json)) bench_generate_print_speedups(all, count);
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
                    "The type in which the weights are read."),
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
