/* trainer bench attention [--max T] [--json FILE] [key=value ...]: time and memory of standard and
 * flash attention by the number of tokens. */
#include "bench.h"
#include "cmd/cmd.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "trainer/ops.h"
#include "session/session.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_TOKENS = 256, MOST_ROWS = 16, REPEATS = 3 };
static const char *const method_names[] = {"standard", "flash"};

typedef struct {
    const char *json;
    int64_t max_tokens;
    int assignments;
    char **assignment;
} options_t;

typedef struct {
    double forward_sec, backward_sec; /* medians */
    size_t bytes;                     /* of the arena: output, kept activations, scratch */
} cost_t;

typedef struct {
    tr_device_t *device;
    int64_t heads, channels;
    tr_precision_t precision; /* of the products */
    int64_t tokens[MOST_ROWS];
    cost_t cost[MOST_ROWS][2]; /* by method_names */
    int rows;
} bench_t;

static tr_status_t parse(int argc, char **argv, options_t *o) {
    int kept = 0;
    *o = (options_t){.max_tokens = 4096, .assignment = argv};
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--json") == 0 && has_value)
            o->json = argv[++i];
        else if (strcmp(argv[i], "--max") == 0 && has_value) {
            if (!tr_parse_int(argv[++i], &o->max_tokens) || o->max_tokens < FIRST_TOKENS ||
                o->max_tokens > (int64_t)FIRST_TOKENS << (MOST_ROWS - 1))
                return TR_FAIL(TR_ERR_USAGE, "--max %s: expected a number of tokens from %d",
                               argv[i], FIRST_TOKENS);
        } else if (strchr(argv[i], '=') && argv[i][0] != '-')
            argv[kept++] = argv[i];
        else
            return cmd_fail_option("bench attention", argv[i]);
    }
    o->assignments = kept;
    return TR_OK;
}

/* -- measuring --------------------------------------------------------------------------------- */

/* Attention of one sample and its gradient; queries, keys and values are a parameter. */
static tr_status_t build(tr_graph_t *g, const bench_t *b, int64_t tokens, bool is_standard,
                         int *out_program) {
    const tr_param_spec_t spec = {{TR_INIT_NORMAL, 1}, true, false, 1};
    tr_tensor_t qkv, y, seed;
    TR_TRY(tr_program_begin(g, "attention", TR_TRAIN, out_program));
    TR_TRY(tr_param(g, "qkv", &TR_SHAPE(1, tokens, 3 * b->channels), &spec, &qkv));
    TR_TRY(tr_cast(g, qkv, tr_precision_dtype(b->precision), &qkv));
    TR_TRY(tr_attention(g, qkv, (int)b->heads, TR_NONE, 0, is_standard, &y));
    TR_TRY(tr_const(g, "seed", &TR_SHAPE(1, tokens, b->channels), 1, &seed));
    TR_TRY(tr_cast(g, seed, tr_precision_dtype(b->precision), &seed));
    TR_TRY(tr_backward(g, y, seed, false));
    return tr_program_end(g);
}

static tr_status_t time_program(tr_graph_t *g, int program, cost_t *out) {
    bench_op_t *op = NULL;
    TR_TRY(tr_graph_plan(g, 0));
    TR_TRY(tr_graph_allocate(g));
    TR_TRY(tr_graph_init_params(g, 1));
    TR_TRY(tr_program_run(g, program, NULL)); /* warm-up */
    TR_TRY(bench_time_ops(g, program, REPEATS, &op));
    for (int i = 0; i < tr_program_op_count(g, program); i++) {
        const char *name = tr_program_op(g, program, i)->row->name;
        if (strcmp(name, "attention") == 0) out->forward_sec = op[i].median_sec;
        if (strcmp(name, "attention_bwd") == 0) out->backward_sec = op[i].median_sec;
    }
    out->bytes = tr_graph_memory(g).arena;
    tr_free(&op);
    return TR_OK;
}

static tr_status_t measure_one(const bench_t *b, int64_t tokens, bool is_standard, cost_t *out) {
    tr_graph_t *g = NULL;
    int program;
    TR_TRY(tr_graph_create(b->device, &g));
    tr_status_t status = build(g, b, tokens, is_standard, &program);
    if (status == TR_OK) status = time_program(g, program, out);
    tr_graph_destroy(&g);
    return status;
}

static tr_status_t measure(bench_t *b, int64_t max_tokens) {
    for (int64_t tokens = FIRST_TOKENS; tokens <= max_tokens; tokens *= 2, b->rows++) {
        b->tokens[b->rows] = tokens;
        for (int method = 0; method < 2; method++)
            TR_TRY(measure_one(b, tokens, method == 0, &b->cost[b->rows][method]));
    }
    return TR_OK;
}

/* -- showing ----------------------------------------------------------------------------------- */

static void print_rows(const bench_t *b) {
    printf("attention of 1 sample, %lld heads of %lld, %s, on %s\n\n", (long long)b->heads,
           (long long)(b->channels / b->heads), tr_precision_name(b->precision),
           b->device->description);
    printf("%8s %-10s %12s %12s %12s %14s %14s\n", "tokens", "method", "forward ms", "backward ms",
           "memory", "times faster", "times smaller");
    for (int i = 0; i < b->rows; i++) {
        const cost_t *standard = &b->cost[i][0];
        for (int method = 0; method < 2; method++) {
            const cost_t *c = &b->cost[i][method];
            char bytes[32];
            printf("%8lld %-10s %12.3f %12.3f %12s %14.2f %14.2f\n", (long long)b->tokens[i],
                   method_names[method], c->forward_sec * 1e3, c->backward_sec * 1e3,
                   tr_format_bytes((double)c->bytes, bytes),
                   (standard->forward_sec + standard->backward_sec) /
                       (c->forward_sec + c->backward_sec),
                   (double)standard->bytes / (double)c->bytes);
        }
    }
}

static tr_status_t write_json(const bench_t *b, const char *path) {
    json_t *rows = json_array();
    for (int i = 0; i < b->rows; i++)
        for (int method = 0; method < 2; method++) {
            const cost_t *c = &b->cost[i][method];
            json_array_append_new(
                rows, json_pack("{s:I, s:s, s:f, s:f, s:I}", "tokens", (json_int_t)b->tokens[i],
                                "attention", method_names[method], "forward_ms",
                                c->forward_sec * 1e3, "backward_ms", c->backward_sec * 1e3,
                                "memory_bytes", (json_int_t)c->bytes));
        }
    return cmd_json_write(
        json_pack("{s:s, s:I, s:I, s:s, s:s, s:i, s:s, s:o}", "kind", "attention", "heads",
                  (json_int_t)b->heads, "channels", (json_int_t)b->channels, "precision",
                  tr_precision_name(b->precision), "device", b->device->description, "threads",
                  b->device->threads, "version", cmd_version, "rows", rows),
        path);
}

/* The heads of GPT-2 small, unless model.n_head and model.n_embd say otherwise. */
static tr_status_t read_shape(const tr_config_t *config, const tr_main_settings_t *main_settings,
                              bench_t *b) {
    b->heads = 12;
    b->channels = 768;
    (void)tr_parse_int(tr_config_get(config, "model.n_head"), &b->heads);
    (void)tr_parse_int(tr_config_get(config, "model.n_embd"), &b->channels);
    b->precision = (tr_precision_t)main_settings->precision;
    if (b->heads > 0 && b->channels % b->heads == 0) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG, "model.n_embd = %lld is not a multiple of model.n_head = %lld",
                   (long long)b->channels, (long long)b->heads);
}

static tr_status_t bench(tr_world_t *world, const tr_config_t *config, const void *options) {
    const options_t *o = options;
    const tr_world_info_t *info = tr_world_info(world);
    tr_main_settings_t main_settings;
    bench_t b = {0};
    tr_config_read(config, &tr_main_config, &main_settings);
    TR_TRY(read_shape(config, &main_settings, &b));
    TR_TRY(tr_open_device(config, 0, b.precision == TR_PRECISION_TF32, info, &b.device));
    tr_status_t status = tr_precision_resolve(world, b.device, &b.precision);
    if (status == TR_OK) status = measure(&b, o->max_tokens);
    if (status == TR_OK && info->rank == 0) {
        if (!cmd_json_is_stdout(o->json)) print_rows(&b);
        if (o->json) status = write_json(&b, o->json);
    }
    tr_device_close(&b.device);
    return status;
}

tr_status_t cmd_bench_attention(int argc, char **argv) {
    options_t o;
    TR_TRY(parse(argc, argv, &o));
    return bench_on_ranks(NULL, o.assignments, o.assignment, bench, &o);
}
