/* trainer bench attention: time and memory of standard and flash attention by the number of tokens.
 */
#include "bench.h"
#include "base/half.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "session/open_device.h"
#include "session/settings.h"
#include "trainer/ops.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_TOKENS = 256, MOST_TOKENS = 16, METHODS = 2, REPEATS = 3 };
static const char *const method_names[METHODS] = {"standard", "flash"};

typedef struct {
    const char *json, *svg;
    cmd_words_t settings;
    int64_t max_tokens;
} bench_attention_options_t;

typedef struct {
    int64_t tokens;
    const char *method;
    double forward_sec, backward_sec; /* medians */
    double both_sec;                  /* their sum */
    size_t bytes;                     /* of the arena: output, kept activations, scratch */
    double faster, smaller;           /* than standard attention */
    double output, gradient;          /* the largest differences from it; of itself NAN */
} attention_row_t;

static const tr_table_column_t columns[] = {
    TR_COLUMN(attention_row_t, "tokens", "tokens", INT64, tokens, .width = 8),
    TR_COLUMN(attention_row_t, "attention", "method", STRING, method, .is_left = true, .width = 9),
    TR_COLUMN(attention_row_t, "forward_ms", "forward ms", REAL, forward_sec, .format = "%.3f",
              .scale = 1e3, .key_scale = 1e3, .width = 11),
    TR_COLUMN(attention_row_t, "backward_ms", "backward ms", REAL, backward_sec, .format = "%.3f",
              .scale = 1e3, .key_scale = 1e3),
    TR_COLUMN(attention_row_t, "memory_bytes", "memory", SIZE, bytes, .people = tr_format_bytes,
              .width = 11),
    TR_COLUMN(attention_row_t, NULL, "times faster", REAL, faster, .format = "%.2f"),
    TR_COLUMN(attention_row_t, NULL, "times smaller", REAL, smaller, .format = "%.2f"),
    TR_COLUMN(attention_row_t, "output_difference", "output", REAL, output, .format = "%.2e",
              .is_optional = true, .width = 8),
    TR_COLUMN(attention_row_t, "gradient_difference", "gradient", REAL, gradient, .format = "%.2e",
              .is_optional = true),
};
static const tr_table_t table = TR_TABLE(columns, attention_row_t);

typedef struct {
    float *output, *gradient; /* [tokens x channels]; [tokens x 3 channels]; tr_free */
} attention_values_t;

typedef struct {
    tr_device_t *device;
    int64_t heads, channels;
    tr_precision_t precision;                    /* of the products */
    attention_row_t rows[METHODS * MOST_TOKENS]; /* by tokens, then by method_names */
    size_t count;
} bench_attention_t;

/* The values of a tensor as f32; *out: tr_free. */
static tr_status_t bench_attention_read(tr_graph_t *g, tr_tensor_t t, float **out) {
    const tr_tensor_info_t *info = tr_tensor_info(g, t);
    const int64_t count = tr_shape_elems(&info->shape);
    const tr_dtype_t dtype = info->dtype;
    void *raw = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc((size_t)count * sizeof **out, "values of attention", out));
    TR_TRY(tr_alloc((size_t)count * tr_dtype_bytes(dtype), "values of attention", &raw));
    TR_TRY_GOTO(tr_tensor_read(g, t, raw), done);
    for (int64_t i = 0; i < count; i++)
        (*out)[i] = dtype == TR_F32    ? ((const float *)raw)[i]
                    : dtype == TR_BF16 ? tr_float_of_bf16(((const uint16_t *)raw)[i])
                                       : tr_float_of_f16(((const uint16_t *)raw)[i]);
done:
    tr_free(&raw);
    return status;
}

static double bench_attention_difference(const float *a, const float *b, int64_t count) {
    float most = 0;
    for (int64_t i = 0; i < count; i++) most = fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}

/* Of the rows and values of standard and of flash attention. */
static void bench_attention_compare(const bench_attention_t *b, attention_row_t row[METHODS],
                                    const attention_values_t value[METHODS]) {
    const int64_t count = row->tokens * b->channels;
    for (int m = 0; m < METHODS; m++) {
        row[m].both_sec = row[m].forward_sec + row[m].backward_sec;
        row[m].faster = row[0].both_sec / row[m].both_sec;
        row[m].smaller = (double)row[0].bytes / (double)row[m].bytes;
        row[m].output = row[m].gradient = NAN;
    }
    row[1].output = bench_attention_difference(value[0].output, value[1].output, count);
    row[1].gradient = bench_attention_difference(value[0].gradient, value[1].gradient, 3 * count);
}

/* Attention of one sample and its gradient; queries, keys and values are a parameter. */
static tr_status_t bench_attention_measure(const bench_attention_t *b, attention_row_t *row,
                                           bool is_standard, attention_values_t *out) {
    const tr_param_spec_t spec = {{TR_INIT_NORMAL, 1}, true, false, 1};
    const tr_shape_t in = TR_SHAPE(1, row->tokens, 3 * b->channels),
                     of_y = TR_SHAPE(1, row->tokens, b->channels);
    const tr_dtype_t dtype = tr_precision_dtype(b->precision);
    tr_graph_t *g = NULL;
    bench_op_t *op = NULL;
    tr_tensor_t param, qkv, y, seed;
    int program;
    tr_status_t status = TR_OK;
    TR_TRY(tr_graph_create(b->device, &g));
    TR_TRY_GOTO(tr_program_begin(g, "attention", TR_TRAIN, &program), done);
    TR_TRY_GOTO(tr_param(g, "qkv", &in, &spec, &param), done);
    TR_TRY_GOTO(tr_cast(g, param, dtype, &qkv), done);
    TR_TRY_GOTO(tr_attention(g, qkv, (int)b->heads, TR_NONE, 0, is_standard, &y), done);
    TR_TRY_GOTO(tr_keep(g, y), done);
    TR_TRY_GOTO(tr_const(g, "seed", &of_y, 1, &seed), done);
    TR_TRY_GOTO(tr_cast(g, seed, dtype, &seed), done);
    TR_TRY_GOTO(tr_backward(g, y, seed, false), done);
    TR_TRY_GOTO(tr_program_end(g), done);
    TR_TRY_GOTO(tr_graph_plan(g, 0), done);
    TR_TRY_GOTO(tr_graph_allocate(g), done);
    TR_TRY_GOTO(tr_graph_init_params(g, 1), done);
    TR_TRY_GOTO(tr_program_run(g, program, NULL), done); /* warm-up */
    TR_TRY_GOTO(bench_attention_read(g, y, &out->output), done);
    TR_TRY_GOTO(bench_attention_read(g, tr_gradient(g, param), &out->gradient), done);
    TR_TRY_GOTO(bench_time_ops(g, program, REPEATS, &op), done);
    for (int i = 0; i < tr_program_op_count(g, program); i++) {
        const char *name = tr_program_op(g, program, i)->row->name;
        if (strcmp(name, "attention") == 0) row->forward_sec = op[i].median_sec;
        if (strcmp(name, "attention_bwd") == 0) row->backward_sec = op[i].median_sec;
    }
    row->bytes = tr_graph_memory(g).arena;
done:
    tr_free(&op);
    tr_graph_destroy(&g);
    return status;
}

/* The next rows, one for each method. */
static tr_status_t bench_attention_add(bench_attention_t *b, int64_t tokens) {
    attention_row_t *row = &b->rows[b->count];
    attention_values_t value[METHODS] = {{0}};
    tr_status_t status = TR_OK;
    for (int m = 0; m < METHODS && status == TR_OK; m++) {
        row[m] = (attention_row_t){.tokens = tokens, .method = method_names[m]};
        status = bench_attention_measure(b, &row[m], m == 0, &value[m]);
    }
    if (status == TR_OK) bench_attention_compare(b, row, value);
    b->count += METHODS;
    for (int m = 0; m < METHODS; m++) {
        tr_free(&value[m].output);
        tr_free(&value[m].gradient);
    }
    return status;
}

static const tr_table_column_t plot_columns[] = {
    TR_COLUMN(attention_row_t, "tokens", NULL, INT64, tokens),
    TR_COLUMN(attention_row_t, "both_ms", NULL, REAL, both_sec, .key_scale = 1e3),
    TR_COLUMN(attention_row_t, "memory_mib", NULL, SIZE, bytes, .key_scale = 0x1p-20),
};
static const tr_table_t plot_table = TR_TABLE(plot_columns, attention_row_t);
static const tr_plot_t plots[] = {{.chart = {.title = "Time of attention",
                                             .x_label = "tokens",
                                             .y_label = "forward and backward (ms)",
                                             .x_scale = TR_SVG_SIZES,
                                             .y_scale = TR_SVG_LOG},
                                   .x = "tokens",
                                   .curves = {{"both_ms"}}},
                                  {.chart = {.title = "Memory of attention",
                                             .x_label = "tokens",
                                             .y_label = "memory (MiB)",
                                             .x_scale = TR_SVG_SIZES,
                                             .y_scale = TR_SVG_LOG},
                                   .x = "tokens",
                                   .curves = {{"memory_mib"}}}};

static tr_status_t bench_attention_write_svg(const bench_attention_t *b, const char *path) {
    tr_plot_rows_t rows[METHODS];
    for (int m = 0; m < METHODS; m++)
        rows[m] = (tr_plot_rows_t){.title = method_names[m],
                                   .role = (tr_svg_role_t)(TR_SHOWS_RUN_1 + m),
                                   .data = b->rows + m,
                                   .count = b->count / METHODS,
                                   .stride = METHODS};
    return cmd_plots_write(path, plots, TR_COUNT(plots), &plot_table, rows, METHODS);
}

static tr_status_t bench_attention_write_json(const bench_attention_t *b, const char *path) {
    return cmd_json_write(
        json_pack("{s:s, s:I, s:I, s:s, s:s, s:i, s:s, s:o}", "kind", "attention", "heads",
                  (json_int_t)b->heads, "channels", (json_int_t)b->channels, "precision",
                  tr_precision_name(b->precision), "device", b->device->description, "threads",
                  b->device->threads, "version", cmd_version, "rows",
                  tr_table_json(&table, b->rows, b->count)),
        path);
}

static tr_status_t bench_attention_run(void *options) {
    const bench_attention_options_t *o = options;
    bench_attention_t b = {.heads = 12, .channels = 768}; /* those of GPT-2 small */
    tr_world_t *world = NULL;
    tr_config_t *config = NULL;
    tr_main_settings_t main_settings;
    tr_status_t status = TR_OK;
    TR_TRY(cmd_world_open(&world));
    const tr_world_info_t *info = tr_world_info(world);
    TR_TRY_GOTO(cmd_config_load_all(world, NULL, o->settings, &config), done);
    tr_config_read(config, &tr_main_config, &main_settings);
    b.precision = (tr_precision_t)main_settings.precision;
    (void)tr_parse_int(tr_config_get(config, "model.n_head"), &b.heads);
    (void)tr_parse_int(tr_config_get(config, "model.n_embd"), &b.channels);
    if (b.heads <= 0 || b.channels % b.heads != 0)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_CONFIG,
                            "model.n_embd = %lld is not a multiple of model.n_head = %lld",
                            (long long)b.channels, (long long)b.heads),
                    done);
    TR_TRY_GOTO(tr_open_device(config, NULL, 0, b.precision == TR_PRECISION_TF32, world, &b.device),
                done);
    TR_TRY_GOTO(tr_precision_resolve(world, b.device, &b.precision), done);
    for (int64_t tokens = FIRST_TOKENS; tokens <= o->max_tokens; tokens *= 2)
        TR_TRY_GOTO(bench_attention_add(&b, tokens), done);
    if (info->rank == 0 && !cmd_json_is_stdout(o->json)) {
        printf("attention of 1 sample, %lld heads of %lld, %s, on %s\n\n", (long long)b.heads,
               (long long)(b.channels / b.heads), tr_precision_name(b.precision),
               b.device->description);
        cmd_table_print(&table, b.rows, b.count);
        printf("\noutput, gradient: the largest difference from standard attention. Inputs and the "
               "gradient of the output are of size 1.\n");
    }
    if (info->rank == 0) {
        if (o->json) TR_TRY_GOTO(bench_attention_write_json(&b, o->json), done);
        if (o->svg) TR_TRY_GOTO(bench_attention_write_svg(&b, o->svg), done);
    }
done:
    tr_device_close(&b.device);
    tr_config_destroy(&config);
    if (status == TR_OK) cmd_world_close(&world); /* else main ends the other ranks */
    return status;
}

static const cmd_argument_t arguments[] = {
    {"[key=value ...]", offsetof(bench_attention_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_INT(bench_attention_options_t, max_tokens, "--max", "T", "4096", FIRST_TOKENS,
                   FIRST_TOKENS << (MOST_TOKENS - 1), "The largest number of tokens."),
    CMD_OPTION_JSON(bench_attention_options_t, BENCH_JSON),
    BENCH_SVG(bench_attention_options_t, "the time and the memory over the tokens"),
};

const cmd_command_t bench_attention = {
    .name = "bench attention",
    .summary =
        "Times standard and flash attention.\n"
        "It takes one sample with 256 to T tokens, forward and backward, and prints the time and "
        "the memory that each needs, and the largest difference between the outputs and between "
        "the gradients of the two. The heads are those of model.n_head and model.n_embd.",
    CMD_ARGUMENTS(bench_attention_options_t),
    CMD_OPTIONS,
    .run = bench_attention_run,
};
