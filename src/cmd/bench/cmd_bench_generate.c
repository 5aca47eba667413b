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

enum { WARM = 3, RUNS = 10, BATCHES = 5, BATCH_MAX = 64 };

typedef struct {
    const char *weights, *json;
    cmd_words_t settings;
    int64_t prompt, tokens, batch; /* tokens of a prompt, and new ones; batch 0: several */
    int type;                      /* of the weights, a tr_dtype_t */
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
    int count; /* of batches */
    cmd_trained_t t;
    tr_generator_t *generator;
    generate_result_t result[BATCHES];
    double load_sec, resident_bytes; /* until the first run; then, of this process */
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

/* -- results ----------------------------------------------------------------------------------- */

static void bench_generate_print(const bench_generate_t *b) {
    const tr_session_t *s = b->t.s;
    char text[32];
    double sum = 0;
    printf("%s, %.1f M parameters, weights in %s, %d thread%s on %s\n", s->model.type,
           (double)s->parameters / 1e6, cmd_weight_type(b->o->type), s->device->threads,
           s->device->threads > 1 ? "s" : "", s->device->description);
    printf("prompts of %lld tokens, %lld new tokens, %d runs", (long long)b->o->prompt,
           (long long)b->o->tokens, RUNS);
    if (b->limit_bytes > 0) printf("; memory is read at up to %.1f GB/s", b->limit_bytes / 1e9);
    printf("\nloaded in %.2f s, the process then takes %s\n\n", b->load_sec,
           tr_format_bytes(b->resident_bytes, text));
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

static tr_status_t bench_generate_write_json(const bench_generate_t *b) {
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
    return cmd_json_write(
        json_pack("{s:s, s:s, s:i, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:o}", "version", cmd_version,
                  "device", s->device->description, "threads", s->device->threads, "weights",
                  cmd_weight_type(b->o->type), "parameters", (json_int_t)s->parameters, "prompt",
                  (json_int_t)b->o->prompt, "tokens", (json_int_t)b->o->tokens, "load_sec",
                  b->load_sec, "resident_bytes", b->resident_bytes, "read_bytes_per_sec",
                  b->limit_bytes, "rows", rows),
        b->o->json);
}

static tr_status_t bench_generate_run(void *options) {
    const bench_generate_options_t *o = options;
    bench_generate_t b = {.o = o, .batches = {1, 4, 16, 32, 64}, .count = BATCHES};
    const cmd_trained_params_t params = {.weights = o->weights,
                                         .settings = o->settings,
                                         .build = bench_generate_build,
                                         .build_self = &b};
    tr_status_t status = TR_OK;
    if (o->batch > 0) b.batches[0] = o->batch, b.count = 1;
    const double begin = tr_clock_sec();
    TR_TRY_GOTO(cmd_trained_open(&params, &b.t), done);
    if (b.t.info->size > 1)
        TR_TRY_GOTO(
            TR_FAIL(TR_ERR_USAGE, "bench generate runs alone, not on %d ranks", b.t.info->size),
            done);
    TR_TRY_GOTO(tr_generator_start(b.generator), done);
    b.load_sec = tr_clock_sec() - begin;
    b.resident_bytes = (double)tr_host_resident_bytes();
    TR_TRY_GOTO(bench_generate_measure(&b), done);
    if (!cmd_json_is_stdout(o->json)) bench_generate_print(&b);
    if (o->json) status = bench_generate_write_json(&b);
done:
    tr_generator_destroy(&b.generator);
    tr_vec_free(&b.kinds);
    return cmd_trained_close(&b.t, status);
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
    CMD_OPTION_JSON(bench_generate_options_t, BENCH_JSON),
};

const cmd_command_t bench_generate = {
    .name = "bench generate",
    .summary =
        "Times the generation of texts.\n"
        "It runs alone. For batches of 1, 4, 16, 32 and 64 texts, or of --batch texts, it prints "
        "tokens/s (median, lowest and highest of 10 runs of N tokens, after 3 runs that do not "
        "count), the rate at which the fastest run reads the weights, with the read bandwidth of "
        "the device, measured in the same run, and percentiles of the time to the first token of "
        "the first text and of the time of the next tokens.",
    CMD_ARGUMENTS(bench_generate_options_t),
    CMD_OPTIONS,
    .run = bench_generate_run,
};
