/* trainer bench generate RUN|CHECKPOINT|FOLDER [--batch N] [--tokens N] [--weights fp32|bf16]
 * [--json FILE] [key=value ...]: tokens/s by the number of texts that are continued at once. */
#include "bench.h"
#include "cmd/open_trained.h"
#include "infer/generate.h"
#include "base/stats.h"
#include "base/clock.h"
#include "base/mem.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 3, RUNS = 10, PROMPT = 16, BATCHES = 5, BATCH_MAX = 64 };
static const int64_t all_batches[BATCHES] = {1, 4, 16, 32, 64};

typedef struct {
    cmd_trained_params_t trained;
    const char *json;
    int64_t tokens;
    int64_t batches[BATCHES];
    int count; /* of batches */
    bool is_bf16;
} options_t;

typedef struct {
    double first_sec, rate[RUNS]; /* ascending, tokens/s of `decode` */
    double read_bytes;            /* of weights per second, at the highest rate */
} result_t;

/* The ops of one kernel in a run of `decode`. */
typedef struct {
    const char *name;
    int count;
    double sec, bytes;
} kind_t;
typedef TR_VEC(kind_t) kinds_t;

typedef struct {
    const options_t *o;
    cmd_trained_t t;
    tr_generator_t *generator[BATCHES];
    result_t result[BATCHES];
    double weight_bytes; /* read for each run of `decode` */
    double limit_bytes;  /* that the device reads per second; 0: not known */
    kinds_t kinds;       /* of the first batch */
} bench_t;

static tr_status_t parse(int argc, char **argv, options_t *o) {
    cmd_trained_params_t *p = &o->trained;
    *o = (options_t){.trained = {.assignments = argv}, .tokens = 16, .count = BATCHES};
    memcpy(o->batches, all_batches, sizeof all_batches);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0 && *value)
            o->json = value, i++;
        else if (strcmp(argv[i], "--weights") == 0 && strcmp(value, "bf16") == 0)
            o->is_bf16 = true, i++;
        else if (strcmp(argv[i], "--weights") == 0 && strcmp(value, "fp32") == 0)
            i++;
        else if (strcmp(argv[i], "--tokens") == 0 && tr_parse_int(value, &o->tokens) &&
                 o->tokens > 1)
            i++;
        else if (strcmp(argv[i], "--batch") == 0 && tr_parse_int(value, &o->batches[0]) &&
                 o->batches[0] >= 1 && o->batches[0] <= BATCH_MAX)
            o->count = 1, i++;
        else if (argv[i][0] == '-')
            return cmd_fail_option("bench generate", argv[i]);
        else if (!p->weights)
            p->weights = argv[i];
        else
            argv[p->count++] = argv[i];
    }
    return p->weights ? TR_OK
                      : TR_FAIL(TR_ERR_USAGE, "bench generate requires a run folder, a checkpoint "
                                              "or a folder of Hugging Face");
}

static tr_status_t build(tr_session_t *s, void *self) {
    bench_t *b = self;
    for (int i = 0; i < b->o->count; i++) {
        const tr_generator_params_t params = {
            .rows = b->o->batches[i],
            .cache_rows = b->o->batches[b->o->count - 1],
            .weights = b->o->is_bf16 ? TR_BF16 : TR_F32,
            .vocab_size = s->params.trained_preprocess ? s->params.trained_preprocess->classes : 0};
        TR_TRY(tr_generator_create(&params, &b->generator[i]));
        TR_TRY(tr_generator_build(s, b->generator[i]));
    }
    return TR_OK;
}

/* -- measuring --------------------------------------------------------------------------------- */

static tr_status_t run_once(const bench_t *b, int which, tr_generate_stats_t *out) {
    static const tr_sampling_t greedy = {.temperature = 0, .top_p = 1};
    tr_text_t texts[BATCH_MAX] = {0};
    const int64_t batch = b->o->batches[which];
    tr_status_t status = TR_OK;
    for (int64_t i = 0; i < batch; i++)
        for (int k = 0; k < PROMPT; k++)
            TR_TRY_GOTO(tr_vec_push(&texts[i].ids, (int32_t)(i + k)), done);
    TR_TRY_GOTO(tr_generator_run(b->generator[which], texts, batch, b->o->tokens, -1, &greedy, out),
                done);
done:
    for (int64_t i = 0; i < batch; i++) {
        tr_vec_free(&texts[i].ids);
        tr_vec_free(&texts[i].tokens);
    }
    return status;
}

static tr_status_t measure_batch(bench_t *b, int which) {
    result_t *r = &b->result[which];
    double first[RUNS];
    TR_TRY(tr_generator_start(b->generator[which]));
    for (int i = -WARM; i < RUNS; i++) {
        tr_generate_stats_t stats;
        TR_TRY(run_once(b, which, &stats));
        if (i < 0) continue;
        first[i] = stats.first_sec;
        r->rate[i] = (double)stats.decoded / stats.decode_sec;
    }
    tr_sort(first, RUNS);
    tr_sort(r->rate, RUNS);
    r->first_sec = first[RUNS / 2];
    r->read_bytes = b->weight_bytes * r->rate[RUNS - 1] / (double)b->o->batches[which];
    return TR_OK;
}

/* All parameters but the table of positions are read whole. */
static double weight_bytes(const bench_t *b) {
    const tr_graph_t *g = b->t.s->g;
    double bytes = 0;
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_info_t *info = tr_tensor_info(g, (tr_tensor_t){id});
        if (tr_is_param(g, (tr_tensor_t){id}) && !strstr(info->name, "wpe"))
            bytes += (double)info->bytes / (b->o->is_bf16 && info->shape.ndim == 2 ? 2 : 1);
    }
    return bytes;
}

static int by_time(const void *a, const void *b) {
    const kind_t *x = a, *y = b;
    return (x->sec < y->sec) - (x->sec > y->sec);
}

/* Products with the tied embedding are apart from the others: they are the largest. */
static tr_status_t add_op(bench_t *b, const tr_op_t *op, double sec) {
    const tr_graph_t *g = b->t.s->g;
    const bool is_head = op->row->kernel == TR_K_MATMUL_ROWS && !strstr(op->label, ".h.");
    const char *name = is_head ? "head" : op->row->name;
    size_t i = 0;
    while (i < b->kinds.count && strcmp(b->kinds.data[i].name, name) != 0) i++;
    if (i == b->kinds.count) TR_TRY(tr_vec_push(&b->kinds, (kind_t){.name = name}));
    b->kinds.data[i].count++;
    b->kinds.data[i].sec += sec;
    b->kinds.data[i].bytes += tr_op_bytes(g, op);
    return TR_OK;
}

static tr_status_t time_kinds(bench_t *b) {
    const tr_graph_t *g = b->t.s->g;
    const int program = tr_generator_decode(b->generator[0]);
    bench_op_t *times = NULL;
    tr_status_t status = bench_time_ops(b->t.s->g, program, RUNS, &times);
    for (int i = 0; status == TR_OK && i < tr_program_op_count(g, program); i++)
        if (tr_program_op(g, program, i)->kind == TR_OP_KERNEL)
            status = add_op(b, tr_program_op(g, program, i), times[i].median_sec);
    tr_free(&times);
    if (status == TR_OK) qsort(b->kinds.data, b->kinds.count, sizeof *b->kinds.data, by_time);
    return status;
}

static tr_status_t measure(bench_t *b) {
    tr_device_t *device = b->t.s->device;
    b->weight_bytes = weight_bytes(b);
    if (device->ops->measure_read) TR_TRY(device->ops->measure_read(device, &b->limit_bytes));
    for (int i = 0; i < b->o->count; i++) {
        TR_TRY(measure_batch(b, i));
        if (i == 0) TR_TRY(time_kinds(b));
    }
    return TR_OK;
}

/* -- showing ----------------------------------------------------------------------------------- */

static void print_result(const bench_t *b) {
    const tr_session_t *s = b->t.s;
    printf("%s, %.1f M parameters, weights in %s, %d thread%s on %s\n", s->model.type,
           (double)s->parameters / 1e6, b->o->is_bf16 ? "bf16" : "fp32", s->device->threads,
           s->device->threads > 1 ? "s" : "", s->device->description);
    printf("prompts of %d tokens, %lld new tokens, %d runs", PROMPT, (long long)b->o->tokens, RUNS);
    if (b->limit_bytes > 0) printf("; memory is read at up to %.1f GB/s", b->limit_bytes / 1e9);
    printf("\n\n");
    printf("%6s %14s %12s %10s %10s %14s\n", "batch", "first token ms", "tokens/s", "lowest",
           "highest", "weights GB/s");
    for (int i = 0; i < b->o->count; i++) {
        const result_t *r = &b->result[i];
        printf("%6lld %14.1f %12.1f %10.1f %10.1f %14.2f\n", (long long)b->o->batches[i],
               r->first_sec * 1e3, r->rate[RUNS / 2], r->rate[0], r->rate[RUNS - 1],
               r->read_bytes / 1e9);
    }
}

/* Op by op: with the wait after each op, the sum is more than the time of a run. */
static void print_kinds(const bench_t *b) {
    double sum = 0;
    for (size_t i = 0; i < b->kinds.count; i++) sum += b->kinds.data[i].sec;
    printf("\nbatch %lld, one token, op by op\n\n", (long long)b->o->batches[0]);
    printf("%9s %6s %9s %6s  %s\n", "ms", "%", "GB/s", "ops", "op");
    for (size_t i = 0; i < b->kinds.count; i++) {
        const kind_t *k = &b->kinds.data[i];
        printf("%9.3f %6.1f %9.1f %6d  %s\n", k->sec * 1e3, 100 * k->sec / sum,
               k->bytes / k->sec / 1e9, k->count, k->name);
    }
    printf("%9.3f %6.1f\n", sum * 1e3, 100.0);
}

static tr_status_t write_json(const bench_t *b) {
    const tr_session_t *s = b->t.s;
    json_t *rows = json_array();
    for (int i = 0; i < b->o->count; i++) {
        const result_t *r = &b->result[i];
        json_array_append_new(
            rows, json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "batch", (json_int_t)b->o->batches[i],
                            "first_token_sec", r->first_sec, "tokens_per_sec", r->rate[RUNS / 2],
                            "tokens_per_sec_lowest", r->rate[0], "tokens_per_sec_highest",
                            r->rate[RUNS - 1], "weights_bytes_per_sec", r->read_bytes));
    }
    return cmd_json_write(json_pack("{s:s, s:s, s:i, s:s, s:I, s:I, s:f, s:o}", "version",
                                    cmd_version, "device", s->device->description, "threads",
                                    s->device->threads, "weights", b->o->is_bf16 ? "bf16" : "fp32",
                                    "parameters", (json_int_t)s->parameters, "tokens",
                                    (json_int_t)b->o->tokens, "read_bytes_per_sec", b->limit_bytes,
                                    "rows", rows),
                          b->o->json);
}

static tr_status_t run(bench_t *b) {
    cmd_trained_params_t params = b->o->trained;
    params.build = build, params.build_self = b;
    TR_TRY(cmd_trained_open(&params, &b->t));
    if (b->t.info->size > 1)
        return TR_FAIL(TR_ERR_USAGE, "bench generate runs alone, not on %d ranks", b->t.info->size);
    TR_TRY(measure(b));
    if (!cmd_json_is_stdout(b->o->json)) print_result(b), print_kinds(b);
    return b->o->json ? write_json(b) : TR_OK;
}

tr_status_t cmd_bench_generate(int argc, char **argv) {
    options_t o;
    bench_t b = {.o = &o};
    tr_status_t status = parse(argc, argv, &o);
    if (status == TR_OK) status = run(&b);
    for (int i = 0; i < BATCHES; i++) tr_generator_destroy(&b.generator[i]);
    tr_vec_free(&b.kinds);
    return cmd_trained_close(&b.t, status);
}
