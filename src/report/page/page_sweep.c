/* The section of a sweep. */
#include "html.h"
#include "report/scaling/losses.h"
#include "page.h"

#include <math.h>

/* -- plots ------------------------------------------------------------------------------------- */

/* What the plots show of a point; times in ms. */
typedef struct {
    tr_point_t point;
    double slowest, fastest; /* efficiency of the runs */
    double ideal_efficiency, ideal_speedup, ideal_rate;
} sweep_row_t;

#define SWEEP(key, type, member, ...) TR_COLUMN(sweep_row_t, key, NULL, type, member, __VA_ARGS__)
#define SWEEP_PERCENT(key, member)    SWEEP(key, REAL, member, .key_scale = 100)
static const tr_table_column_t columns[] = {
    SWEEP("ranks", INT64, point.ranks),
    SWEEP_PERCENT("efficiency", point.efficiency),
    SWEEP_PERCENT("efficiency_low", slowest),
    SWEEP_PERCENT("efficiency_high", fastest),
    SWEEP_PERCENT("predicted", point.predicted_efficiency.expected),
    SWEEP_PERCENT("predicted_low", point.predicted_efficiency.low),
    SWEEP_PERCENT("predicted_high", point.predicted_efficiency.high),
    SWEEP_PERCENT("ideal_efficiency", ideal_efficiency),
    SWEEP("speedup", REAL, point.speedup),
    SWEEP("ideal_speedup", REAL, ideal_speedup),
    SWEEP("samples_per_sec", REAL, point.times.samples_per_sec),
    SWEEP("ideal_rate", REAL, ideal_rate),
    SWEEP("compute", REAL, point.times.compute),
    SWEEP("comm_exposed", REAL, point.times.comm_exposed),
    SWEEP("data_stall", REAL, point.times.data_stall),
    SWEEP("checkpoint", REAL, point.times.checkpoint),
};
static const tr_table_t table = TR_TABLE(columns, sweep_row_t);

static const tr_plot_t plots[] = {
    {.chart = {.title = "Parallel efficiency",
               .x_label = "ranks",
               .y_label = "efficiency (%)",
               .x_scale = TR_SVG_SIZES,
               .from_zero = true},
     .x = "ranks",
     .curves = {{"efficiency", NULL, TR_SHOWS_ROWS, TR_SVG_LINE, "efficiency_low",
                 "efficiency_high", true},
                {"predicted", "predicted", TR_SHOWS_PREDICTED, .is_joined = true},
                {"predicted", "predicted range", TR_SHOWS_PREDICTED, TR_SVG_BAND, "predicted_low",
                 "predicted_high"},
                {"ideal_efficiency", "ideal", TR_SHOWS_IDEAL, TR_SVG_RULE}}},
    {.chart = {.title = "Speedup",
               .x_label = "ranks",
               .y_label = NULL, /* over the reference */
               .x_scale = TR_SVG_SIZES,
               .y_scale = TR_SVG_LOG2},
     .x = "ranks",
     .curves = {{"speedup", .is_joined = true},
                {"ideal_speedup", "ideal", TR_SHOWS_IDEAL, TR_SVG_RULE}}},
    {.chart = {.title = "Throughput",
               .x_label = "ranks",
               .y_label = "samples/s",
               .x_scale = TR_SVG_SIZES,
               .y_scale = TR_SVG_LOG},
     .x = "ranks",
     .curves = {{"samples_per_sec", .is_joined = true},
                {"ideal_rate", "ideal", TR_SHOWS_IDEAL, TR_SVG_RULE}}},
    {.chart = {.title = "Step time by part, rank 0",
               .x_label = "ranks",
               .y_label = "time per step (ms)",
               .x_scale = TR_SVG_CATEGORIES},
     .x = "ranks",
     .curves = {{"compute", "compute", TR_SHOWS_COMPUTE, TR_SVG_BAR},
                {"comm_exposed", "exposed communication", TR_SHOWS_COMMUNICATION, TR_SVG_BAR},
                {"data_stall", "data stall", TR_SHOWS_DATA, TR_SVG_BAR},
                {"checkpoint", "checkpoint", TR_SHOWS_CHECKPOINT, TR_SVG_BAR}}},
};

static void sweep_append_plots(const tr_sweep_t *sweep, tr_str_t *out) {
    const tr_point_t *ref = tr_sweep_reference(sweep);
    const size_t count = sweep->points.count;
    sweep_row_t *rows = NULL;
    if (tr_alloc((count + 1) * sizeof *rows, "the rows of plots", &rows) != TR_OK) {
        out->status = TR_ERR_MEMORY;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const tr_point_t *p = &sweep->points.data[i];
        const double times = ref ? (double)p->ranks / (double)ref->ranks : NAN;
        rows[i] = (sweep_row_t){.point = *p,
                                .slowest = p->efficiency * p->times.step / p->step_max,
                                .fastest = p->efficiency * p->times.step / p->step_min,
                                .ideal_efficiency = 1,
                                .ideal_speedup = times,
                                .ideal_rate = ref ? times * ref->times.samples_per_sec : NAN};
    }
    const tr_plot_rows_t drawn = {.title = tr_kind_name(sweep->kind),
                                  .role = sweep->kind == TR_KIND_REPLAY ? TR_SHOWS_REPLAY
                                                                        : TR_SHOWS_MEASURED,
                                  .data = rows,
                                  .count = count};
    char over[64];
    tr_snprintf(over, sizeof over, "speedup over %lld rank%s", ref ? (long long)ref->ranks : 1,
                ref && ref->ranks > 1 ? "s" : "");
    tr_str_append(out, "<div class=\"plots wide\">\n");
    for (size_t i = 0; i < TR_COUNT(plots); i++) {
        tr_plot_t plot = plots[i];
        if (plot.chart.y_scale == TR_SVG_LOG2) plot.chart.y_label = over;
        tr_plot_draw(&plot, &table, &drawn, 1, out);
    }
    tr_str_append(out, "</div>\n");
    tr_free(&rows);
}

/* -- words and tables -------------------------------------------------------------------------- */

static void sweep_append_definition(const tr_sweep_t *sweep, tr_str_t *out) {
    const tr_point_t *ref = tr_sweep_reference(sweep);
    size_t least = SIZE_MAX, most = 0;
    for (size_t i = 0; i < sweep->points.count; i++) {
        const size_t runs = sweep->points.data[i].runs.count;
        if (runs == 0) continue;
        if (runs < least) least = runs;
        if (runs > most) most = runs;
    }
    tr_str_append(out, sweep->mode == TR_MODE_WEAK
                           ? "<p>Weak scaling: batch and micro-batch per rank stay the same. "
                             "Efficiency = t(ref) / t(N)"
                           : "<p>Strong scaling: the global batch stays the same, and micro_batch "
                             "= batch / ranks. Efficiency = t(ref) ref / (t(N) N)");
    tr_str_append(out, ", where t is the median step time. Speedup = efficiency N / ref.");
    if (!ref) {
        tr_str_append(out, "</p>\n");
        return;
    }
    tr_str_printf(out, " The reference is %lld rank%s, %.2f ms.", (long long)ref->ranks,
                  ref->ranks == 1 ? "" : "s", ref->times.step);
    if (most == 1)
        tr_str_append(out, " Each number of ranks ran once, so the spread is unknown.");
    else if (least == most)
        tr_str_printf(out, " Each number of ranks ran %zu times", most);
    else
        tr_str_printf(out, " Each number of ranks ran %zu to %zu times", least, most);
    if (most > 1) tr_str_append(out, ": values are medians, and spread is the least and the most.");
    tr_str_append(out, "</p>\n");
}

/* "expected (low to high)", each multiplied by `scale`. */
static void append_band(tr_str_t *out, const tr_predicted_t *band, double scale, int decimals,
                        const char *unit) {
    if (isfinite(band->expected))
        tr_str_printf(out, "<td>%.*f%s (%.*f to %.*f)</td>", decimals, scale * band->expected, unit,
                      decimals, scale * band->low, decimals, scale * band->high);
    else
        tr_str_append(out, "<td>-</td>");
}

static void point_append_kind(const tr_point_t *p, tr_str_t *out) {
    tr_str_append(out, "<tr><td>");
    tr_page_kind(p->kind, out);
    tr_str_append(out, "</td>");
    tr_html_count(out, p->nodes);
    tr_html_count(out, p->ranks);
}

static void sweep_append_points(const tr_sweep_t *sweep, tr_str_t *out) {
    bool predicted = false;
    for (size_t i = 0; i < sweep->points.count; i++)
        predicted = predicted || isfinite(sweep->points.data[i].predicted_step.expected);
    tr_html_table(out, predicted ? "kind|nodes|ranks|batch|micro-batch|runs|step, median "
                                   "(ms)|spread|95th percentile (ms)|samples/s|efficiency|speedup|"
                                   "predicted step (ms)|predicted efficiency"
                                 : "kind|nodes|ranks|batch|micro-batch|runs|step, median "
                                   "(ms)|spread|95th percentile (ms)|samples/s|efficiency|speedup");
    for (size_t i = 0; i < sweep->points.count; i++) {
        const tr_point_t *p = &sweep->points.data[i];
        point_append_kind(p, out);
        tr_html_count(out, p->batch);
        tr_html_count(out, p->micro_batch);
        tr_html_count(out, (int64_t)p->runs.count);
        tr_html_number(out, p->times.step, 2);
        if (p->runs.count > 1)
            tr_str_printf(out, "<td>%.2f to %.2f</td>", p->step_min, p->step_max);
        else
            tr_str_append(out, "<td>-</td>");
        tr_html_number(out, p->times.p95, 2);
        tr_html_number(out, p->times.samples_per_sec, 0);
        tr_html_percent(out, p->efficiency);
        tr_html_number(out, p->speedup, 2);
        if (predicted) {
            append_band(out, &p->predicted_step, 1, 2, "");
            append_band(out, &p->predicted_efficiency, 100, 0, "&nbsp;%");
        }
        tr_str_append(out, "</tr>\n");
    }
    tr_str_append(out, "</table>\n");
}

static void sweep_append_split(const tr_sweep_t *sweep, tr_str_t *out) {
    if (!tr_sweep_reference(sweep)) return;
    tr_html_element(out, "h3", "Mean time of a step on rank 0 (ms)");
    tr_html_table(out, "kind|nodes|ranks|compute|exposed communication|data stall|checkpoint");
    for (size_t i = 0; i < sweep->points.count; i++) {
        const tr_step_times_t *t = &sweep->points.data[i].times;
        if (sweep->points.data[i].runs.count == 0) continue;
        point_append_kind(&sweep->points.data[i], out);
        tr_html_number(out, t->compute, 2);
        tr_html_number(out, t->comm_exposed, 2);
        tr_html_number(out, t->data_stall, 2);
        tr_html_number(out, t->checkpoint, 2);
        tr_str_append(out, "</tr>\n");
    }
    tr_str_append(out, "</table>\n");
}

static void sweep_append_losses(const tr_sweep_t *sweep, tr_str_t *out) {
    bool any = false;
    for (size_t i = 0; i < sweep->points.count; i++) {
        const tr_point_t *p = &sweep->points.data[i];
        tr_losses_t losses;
        if (!tr_losses_of(sweep, p, &losses)) continue;
        if (!any) {
            tr_html_element(out, "h3", "Lost time by cause (ms per step, against the reference)");
            tr_html_table(out,
                          "ranks|mean step|lost|compute|slow rank|data|network|checkpoint|cores");
        }
        any = true;
        tr_str_printf(out, "<tr><td>%lld</td>", (long long)p->ranks);
        tr_html_number(out, losses.step, 2);
        tr_html_number(out, losses.whole, 2);
        for (int c = 0; c < TR_CAUSES; c++) tr_html_number(out, losses.cause[c], 2);
        tr_str_append(out, "</tr>\n");
    }
    if (!any) return;
    tr_str_append(out, "</table>\n");
    tr_html_element(out, "p class=\"note\"",
                    "Compute: of the rank that computes least. Slow rank: what the slowest rank "
                    "needs beyond that. Data: of the rank that waits most. Network: of the rank "
                    "that waits least, because the others also wait for it. Cores: threads were "
                    "ready, but other threads ran on the cores of the rank; the other causes are "
                    "without it. In short runs that recorded no times of all ranks, those of rank "
                    "0 count, and a slow rank shows as network.");
}

void tr_page_sweep(const tr_sweep_t *sweep, tr_str_t *out) {
    tr_str_t words = {0};
    tr_str_printf(out, "<h2>%s scaling ", sweep->mode == TR_MODE_WEAK ? "Weak" : "Strong");
    tr_page_kind(sweep->kind, out);
    tr_str_append(out, "</h2>\n");
    sweep_append_definition(sweep, out);
    tr_losses_explain(sweep, &words);
    if (words.text) tr_html_element(out, "p class=\"words\"", words.text);
    tr_str_free(&words);
    sweep_append_plots(sweep, out);
    sweep_append_points(sweep, out);
    sweep_append_split(sweep, out);
    sweep_append_losses(sweep, out);
}
