/* trainer bench batch CONFIG.ini: the training step by the batch size. */
#include "bench.h"
#include "bench_step.h"
#include "base/mem.h"
#include "trainer/log.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

/* The knee: the smallest batch with this share of the highest rate. */
#define KNEE 0.9

typedef struct {
    const char *path, *json, *svg;
    cmd_words_t settings;
    cmd_list_t sizes;
    int64_t steps;
    bool tokens;
} bench_batch_options_t;

typedef struct {
    int size;
    bool fits;
    double step_sec, rate, efficiency; /* median; samples/s or tokens/s; of the highest rate */
    size_t bytes;                      /* planned, per rank; 0: it does not fit */
} batch_row_t;

static const tr_table_column_t columns[] = {
    TR_COLUMN(batch_row_t, "batch_size", "batch", INT, size, .width = 8),
    TR_COLUMN(batch_row_t, "fits", NULL, BOOL, fits),
    TR_COLUMN(batch_row_t, "step_sec", "ms/step", REAL, step_sec, .format = "%.3f", .scale = 1e3,
              .width = 11),
    TR_COLUMN(batch_row_t, "per_sec", "per second", REAL, rate, .format = "%.1f", .width = 13),
    TR_COLUMN(batch_row_t, "memory_bytes", "memory", SIZE, bytes, .people = tr_format_bytes,
              .zero_is_missing = true, .missing = "too large", .width = 11),
    TR_COLUMN(batch_row_t, "efficiency", "% of best", REAL, efficiency, .format = "%.1f",
              .scale = 100),
};
static const tr_table_t table = TR_TABLE(columns, batch_row_t);

typedef struct {
    const bench_batch_options_t *o;
    const char *unit; /* "samples" or "tokens" */
    int ranks;
    char device[256];
    batch_row_t row[CMD_LIST_MAX];
} bench_batch_t;

/* Sets the shares of the highest rate. Returns the index of the knee; -1: no size fits. */
static int bench_batch_compare(bench_batch_t *b) {
    double best = 0;
    int knee = -1;
    for (int i = 0; i < b->o->sizes.count; i++) best = fmax(best, b->row[i].rate);
    for (int i = b->o->sizes.count - 1; i >= 0; i--) {
        b->row[i].efficiency = b->row[i].rate / best;
        if (b->row[i].efficiency >= KNEE) knee = i;
    }
    return knee;
}

/* -- measuring --------------------------------------------------------------------------------- */

static tr_status_t bench_batch_take(bench_batch_t *b, const bench_step_t *step, batch_row_t *row) {
    const tr_session_t *s = step->trial.s;
    if (b->o->tokens && s->sample_terms == 1)
        return TR_FAIL(TR_ERR_USAGE, "--tokens: the samples of %s are not texts of tokens",
                       b->o->path);
    tr_snprintf(b->device, sizeof b->device, "%s", s->device->description);
    row->fits = true;
    row->step_sec = step->median_sec;
    row->bytes = step->planned_bytes;
    row->rate =
        (double)(s->order.batch_size * (b->o->tokens ? s->sample_terms : 1)) / step->median_sec;
    return TR_OK;
}

/* One micro-batch per rank: what the device computes at once grows with the size. */
static tr_status_t bench_batch_measure(bench_batch_t *b, tr_world_t *world, int i) {
    const int size = b->o->sizes.value[i];
    bench_step_t step = {.steps = b->o->steps};
    char batch[48], micro[48], *last[] = {batch, micro};
    cmd_words_t settings;
    tr_snprintf(batch, sizeof batch, "data.batch_size=%d", size);
    tr_snprintf(micro, sizeof micro, "data.micro_batch=%d", size / b->ranks);
    TR_TRY(cmd_words_join(b->o->settings, (cmd_words_t){2, last}, &settings));
    tr_status_t status = bench_step_measure(&step, world, b->o->path, settings);
    b->row[i] = (batch_row_t){.size = size, .step_sec = NAN, .rate = NAN};
    if (status == TR_OK) status = bench_batch_take(b, &step, &b->row[i]);
    bench_step_close(&step, status);
    tr_free(&settings.word);
    if (status != TR_ERR_MEMORY || b->ranks > 1) return status;
    TR_WARN("batch size %d does not fit in the memory; it is left out", size);
    tr_error_clear();
    return TR_OK;
}

static tr_status_t bench_batch_check(const bench_batch_t *b) {
    const cmd_list_t *sizes = &b->o->sizes;
    for (int i = 0; i < sizes->count; i++) {
        if (i > 0 && sizes->value[i] <= sizes->value[i - 1])
            return TR_FAIL(TR_ERR_USAGE, "--sizes: expected ascending numbers, found %d after %d",
                           sizes->value[i], sizes->value[i - 1]);
        if (sizes->value[i] % b->ranks != 0)
            return TR_FAIL(TR_ERR_USAGE, "--sizes: expected multiples of the %d ranks, found %d",
                           b->ranks, sizes->value[i]);
    }
    return TR_OK;
}

/* -- results ----------------------------------------------------------------------------------- */

static void bench_batch_print(const bench_batch_t *b, int knee) {
    printf("%s: %d rank%s on %s, median of %lld steps, one micro-batch per rank, %s/s\n",
           b->o->path, b->ranks, b->ranks > 1 ? "s" : "", b->device, (long long)b->o->steps,
           b->unit);
    cmd_table_print(&table, b->row, (size_t)b->o->sizes.count);
    if (knee < 0) return;
    printf("knee      batch %d: the smallest with %.0f %% of the highest rate; %s\n",
           b->row[knee].size, 100 * KNEE,
           knee < b->o->sizes.count - 1 && b->row[knee + 1].fits
               ? "larger ones take memory and gain little"
               : "it is the largest one measured: larger ones may be faster");
}

static tr_status_t bench_batch_write_json(const bench_batch_t *b, int knee) {
    return cmd_json_write(
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:s, s:o, s:o}", "kind", "batch", "version",
                  cmd_version, "config", b->o->path, "device", b->device, "ranks", b->ranks,
                  "steps", (json_int_t)b->o->steps, "unit", b->unit, "knee",
                  knee >= 0 ? json_integer(b->row[knee].size) : json_null(), "rows",
                  tr_table_json(&table, b->row, (size_t)b->o->sizes.count)),
        b->o->json);
}

static tr_status_t bench_batch_write_svg(const bench_batch_t *b) {
    char rate[32];
    tr_snprintf(rate, sizeof rate, "%s/s", b->unit);
    const tr_plot_t plots[] = {
        {.chart = {.title = "Throughput",
                   .x_label = "batch size",
                   .y_label = rate,
                   .x_scale = TR_SVG_SIZES,
                   .from_zero = true},
         .x = "batch_size",
         .curves = {{"per_sec", "measured", TR_SHOWS_MEASURED}}},
        {.chart = {.title = "Memory",
                   .x_label = "batch size",
                   .y_label = "memory (MiB)",
                   .x_scale = TR_SVG_SIZES,
                   .from_zero = true},
         .x = "batch_size",
         .scale = 0x1p-20,
         .curves = {{"memory_bytes", "planned, per rank", TR_SHOWS_MEMORY}}}};
    const tr_plot_rows_t rows = {.data = b->row, .count = (size_t)b->o->sizes.count};
    return cmd_plots_write(b->o->svg, plots, TR_COUNT(plots), &table, &rows, 1);
}

static tr_status_t bench_batch_run(void *options) {
    const bench_batch_options_t *o = options;
    bench_batch_t b = {.o = o, .unit = o->tokens ? "tokens" : "samples"};
    tr_world_t *world = NULL;
    TR_TRY(cmd_world_open(&world));
    const tr_world_info_t *info = tr_world_info(world);
    b.ranks = info->size;
    TR_TRY(bench_batch_check(&b));
    for (int i = 0; i < o->sizes.count; i++) TR_TRY(bench_batch_measure(&b, world, i));
    if (info->rank == 0) {
        const int knee = bench_batch_compare(&b);
        if (!cmd_json_is_stdout(o->json)) bench_batch_print(&b, knee);
        if (o->json) TR_TRY(bench_batch_write_json(&b, knee));
        if (o->svg) TR_TRY(bench_batch_write_svg(&b));
    }
    cmd_world_close(&world); /* after an error main ends the other ranks */
    return TR_OK;
}

static const cmd_argument_t arguments[] = {
    {"CONFIG.ini", offsetof(bench_batch_options_t, path), CMD_REQUIRED, NULL},
    {"[key=value ...]", offsetof(bench_batch_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_NUMBERS(bench_batch_options_t, sizes, "--sizes", "N,N,...", "64,128,256,512", 1,
                       1 << 24,
                       "The batch sizes of all ranks together, ascending; 8..512 doubles."),
    CMD_OPTION_INT(bench_batch_options_t, steps, "--steps", "N", "30", 1, CMD_NO_LIMIT,
                   "The steps that are timed for each size."),
    CMD_OPTION_FLAG(bench_batch_options_t, tokens, "--tokens",
                    "Prints tokens/s instead of samples/s."),
    CMD_OPTION_JSON(bench_batch_options_t, BENCH_JSON),
    BENCH_SVG(bench_batch_options_t, "the rate and the memory over the batch size"),
};

const cmd_command_t bench_batch = {
    .name = "bench batch",
    .summary =
        "Times the training step by the batch size.\n"
        "It runs alone or under mpirun, on data that is already in memory, with one micro-batch "
        "per rank. For each size it prints the step time, samples/s, the planned memory, and the "
        "rate as a share of the highest one. The knee is the smallest size with 90 % of the "
        "highest rate. On one rank, sizes that do not fit in the memory are marked.",
    CMD_ARGUMENTS(bench_batch_options_t),
    CMD_OPTIONS,
    .run = bench_batch_run,
};
