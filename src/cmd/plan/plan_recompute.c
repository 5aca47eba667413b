/* trainer plan CONFIG --recompute-sweep: memory and predicted time for each number of layers that
 * are computed again together. */
#include "plan.h"
#include "plan_step.h"
#include "base/mem.h"
#include "report/page/plot.h"

#include <math.h>
#include <string.h>

static const int intervals[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48};
enum { INTERVALS = TR_COUNT(intervals), LONGEST_SEQUENTIAL = 16 };

typedef struct {
    int every;     /* 0: nothing is recomputed */
    char name[16]; /* "none", "2" */
    size_t bytes, arena;
    double step_sec;
    const char *note;
} recompute_row_t;

static const tr_table_column_t columns[] = {
    TR_COLUMN(recompute_row_t, "every", NULL, INT, every),
    TR_COLUMN(recompute_row_t, NULL, "model.recompute", CHARS, name, .is_left = true, .width = 16),
    TR_COLUMN(recompute_row_t, "arena_bytes", "activations", SIZE, arena, .people = tr_format_bytes,
              .width = 11),
    TR_COLUMN(recompute_row_t, "bytes", "total", SIZE, bytes, .people = tr_format_bytes,
              .width = 11),
    TR_COLUMN(recompute_row_t, "predicted_step_ms", "step ms", REAL, step_sec, .format = "%.2f",
              .scale = 1e3, .key_scale = 1e3, .width = 11),
    TR_COLUMN(recompute_row_t, NULL, "", STRING, note, .is_left = true, .missing = ""),
};
static const tr_table_t table = TR_TABLE(columns, recompute_row_t);

typedef struct {
    const tr_gpu_kind_t *gpu; /* that the time is predicted for */
    size_t limit;             /* 0: none */
    recompute_row_t *rows;
    int count, best;
} recompute_sweep_t;

static tr_status_t plan_recompute_measure(tr_config_t *config, int ranks, const tr_gpu_kind_t *gpu,
                                          recompute_row_t *out) {
    tr_session_t *s = NULL;
    plan_step_t step;
    TR_TRY(plan_try(config, "plan --recompute-sweep", ranks, &s, "model.recompute=%s", out->name));
    const tr_status_t status = plan_step_predict(s, gpu, &step);
    out->bytes = tr_graph_memory(s->g).total;
    out->arena = tr_graph_memory(s->g).arena;
    out->step_sec = step.step_sec;
    tr_session_destroy(&s);
    return status;
}

/* With a limit: the fastest that fits. Else, and where none fits: the smallest. Of equal ones the
 * first. */
static int plan_recompute_best(const recompute_sweep_t *sweep) {
    int best = 0, fits = -1;
    for (int i = 0; i < sweep->count; i++) {
        const recompute_row_t *row = &sweep->rows[i];
        if (row->bytes < sweep->rows[best].bytes) best = i;
        if (row->bytes <= sweep->limit && (fits < 0 || row->step_sec < sweep->rows[fits].step_sec))
            fits = i;
    }
    return fits >= 0 ? fits : best;
}

static void plan_recompute_say_best(const recompute_sweep_t *sweep, tr_str_t *out) {
    char text[32];
    const recompute_row_t *best = &sweep->rows[sweep->best];
    if (sweep->limit == 0)
        tr_str_printf(out, "best: model.recompute=%s takes the least memory\n", best->name);
    else if (best->bytes <= sweep->limit)
        tr_str_printf(out, "best: model.recompute=%s is the fastest that fits in %s\n", best->name,
                      tr_format_bytes((double)sweep->limit, text));
    else
        tr_str_printf(out, "none fits in %s; model.recompute=%s takes the least memory\n",
                      tr_format_bytes((double)sweep->limit, text), best->name);
}

static const tr_plot_t plot = {.chart = {.title = "Memory with recomputation",
                                         .x_label = "model.recompute (0: none)",
                                         .y_label = "memory (GiB)",
                                         .x_scale = TR_SVG_CATEGORIES,
                                         .from_zero = true},
                               .x = "every",
                               .scale = 0x1p-30,
                               .curves = {{"bytes", "memory per rank", TR_SHOWS_MEMORY}}};

static tr_status_t plan_recompute_find(tr_config_t *config, const plan_options_t *o,
                                       plan_result_t *out) {
    const bool is_gpt = strcmp(tr_config_get(config, "model.type"), "gpt") == 0;
    const int ranks = o->ranks.value[0];
    recompute_sweep_t sweep = {.limit = (size_t)o->memory};
    int64_t most = 12; /* blocks, where model.n_layer = auto */
    TR_TRY(tr_gpu_kind_find(o->gpu ? o->gpu : "h100", &sweep.gpu));
    TR_TRY(tr_alloc(INTERVALS * sizeof *sweep.rows, "memory by model.recompute", &sweep.rows));
    out->rows = sweep.rows;
    if (is_gpt) (void)tr_parse_int(tr_config_get(config, "model.n_layer"), &most);
    if (!is_gpt) most = LONGEST_SEQUENTIAL;
    for (int i = 0; i < INTERVALS && intervals[i] <= most; i++) {
        recompute_row_t *row = &sweep.rows[sweep.count++];
        *row = (recompute_row_t){.every = intervals[i]};
        tr_snprintf(row->name, sizeof row->name, row->every ? "%d" : "none", row->every);
        TR_TRY(plan_recompute_measure(config, ranks, sweep.gpu, row));
    }
    out->count = (size_t)sweep.count;
    sweep.best = plan_recompute_best(&sweep);
    sweep.rows[sweep.best].note = "best";
    tr_str_printf(&out->before, "%s on %d rank%s: memory per rank, and the step predicted for %s\n",
                  o->path, ranks, ranks > 1 ? "s" : "", sweep.gpu->name);
    plan_recompute_say_best(&sweep, &out->after);
    out->json =
        json_pack("{s:i, s:s, s:o, s:i}", "ranks", ranks, "gpu", sweep.gpu->name, "memory_bytes",
                  sweep.limit ? json_integer((json_int_t)sweep.limit) : json_null(), "best",
                  sweep.rows[sweep.best].every);
    const tr_plot_rows_t drawn = {.data = sweep.rows, .count = out->count};
    return o->svg ? tr_plot_add(&plot, &table, &drawn, 1, &out->charts) : TR_OK;
}

const plan_mode_t plan_mode_recompute = {
    .kind = "recompute_sweep", .table = &table, .find = plan_recompute_find};
