/* The plots of one run, for its section of the report and for the page of a run that trains. */
#include "page.h"
#include "plot.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

/* Points of a curve; longer runs show means of several lines. */
enum { MAX_POINTS = 400 };

tr_status_t tr_page_curve(const tr_rows_t *lines, const char *key, tr_curve_t *out) {
    const size_t count = lines->count, group = 1 + count / MAX_POINTS;
    const int column = tr_rows_column(lines, key), steps = tr_rows_column(lines, "step");
    *out = (tr_curve_t){.lines = group};
    TR_TRY(tr_alloc((MAX_POINTS + 1) * sizeof *out->x, "points of a curve", &out->x));
    TR_TRY(tr_alloc((MAX_POINTS + 1) * sizeof *out->y, "points of a curve", &out->y));
    TR_TRY(tr_alloc((MAX_POINTS + 1) * sizeof *out->low, "points of a curve", &out->low));
    TR_TRY(tr_alloc((MAX_POINTS + 1) * sizeof *out->high, "points of a curve", &out->high));
    for (size_t begin = 0; begin < count; begin += group) {
        double sum = 0, step = 0, low = INFINITY, high = -INFINITY;
        size_t known = 0;
        for (size_t i = begin; i < count && i < begin + group; i++) {
            const double value = tr_rows_at(lines, i, column);
            step = tr_rows_at(lines, i, steps);
            if (!isfinite(value)) continue;
            sum += value;
            low = fmin(low, value);
            high = fmax(high, value);
            known++;
        }
        if (known == 0 || !isfinite(step)) continue;
        out->x[out->count] = step;
        out->low[out->count] = low;
        out->high[out->count] = high;
        out->y[out->count++] = sum / (double)known;
    }
    return TR_OK;
}

void tr_page_curve_free(tr_curve_t *curve) {
    tr_free(&curve->x);
    tr_free(&curve->y);
    tr_free(&curve->low);
    tr_free(&curve->high);
}

tr_svg_scale_t tr_page_scale(const tr_svg_series_t *series, size_t count) {
    double least = INFINITY, most = 0;
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < series[s].count; i++) {
            least = fmin(least, series[s].y[i]);
            most = fmax(most, series[s].y[i]);
        }
    return least > 0 && most > 10 * least ? TR_SVG_LOG : TR_SVG_LINEAR;
}

/* -- the plots of numbers over the step -------------------------------------------------------- */

/* A logarithmic axis becomes linear unless the curves span more than a decade. Of plots with one title
 * the first that has points is drawn. */
#define STEP .x_label = "step"
static const tr_plot_t plots[] = {
    {.chart = {.title = "Loss", STEP, .y_label = "loss", .y_scale = TR_SVG_LOG},
     .curves = {{"loss", "training", TR_SHOWS_TRAIN},
                {"valid_loss", "validation", TR_SHOWS_VALID}}},
    {.chart = {.title = "Perplexity", STEP, .y_label = "perplexity", .y_scale = TR_SVG_LOG},
     .curves = {{"perplexity", "training", TR_SHOWS_TRAIN},
                {"valid_perplexity", "validation", TR_SHOWS_VALID}}},
    {.chart = {.title = "Accuracy", STEP, .y_label = "accuracy (%)"},
     .scale = 100,
     .curves = {{"accuracy", "training", TR_SHOWS_TRAIN},
                {"valid_accuracy", "validation", TR_SHOWS_VALID}}},
    {.chart = {.title = "Mean IoU", STEP, .y_label = "IoU (%)"},
     .scale = 100,
     .curves = {{"valid_iou", "validation", TR_SHOWS_VALID}}},
    {.chart = {.title = "R\xc2\xb2", STEP, .y_label = "R\xc2\xb2"},
     .curves = {{"valid_r2", "validation", TR_SHOWS_VALID}}},
    {.chart = {.title = "Throughput", STEP, .y_label = "tokens/s", .from_zero = true},
     .curves = {{"tokens_per_sec", "", TR_SHOWS_MEASURED}}},
    {.chart = {.title = "Throughput", STEP, .y_label = "samples/s", .from_zero = true},
     .curves = {{"samples_per_sec", "", TR_SHOWS_MEASURED}}},
    {.chart = {.title = "Learning rate", STEP, .y_label = "learning rate", .from_zero = true},
     .curves = {{"lr", "", TR_SHOWS_SCHEDULE}}},
    {.chart = {.title = "Gradient norm", STEP, .y_label = "norm", .y_scale = TR_SVG_LOG},
     .curves = {{"grad_norm", "", TR_SHOWS_TRAIN}}},
    {.chart = {.title = "GPU utilisation",
               STEP,
               .y_label = "utilisation (%)",
               .from_zero = true,
               .y_max = 100},
     .scale = 100,
     .curves = {{"gpu_util", "mean of the GPUs", TR_SHOWS_GPU}}},
    {.chart = {.title = "GPU temperature", STEP, .y_label = "temperature (\xc2\xb0\x43)"},
     .curves = {{"gpu_temp", "mean of the GPUs", TR_SHOWS_GPU}}},
    {.chart = {.title = "GPU power", STEP, .y_label = "power (W)", .from_zero = true},
     .curves = {{"gpu_power_watts", "mean of the GPUs", TR_SHOWS_GPU}}},
    {.chart = {.title = "CPU cores per rank", STEP, .y_label = "cores", .from_zero = true},
     .curves = {{"cpu_util", "in use", TR_SHOWS_HOST}, {"cpu_wait", "waited for", TR_SHOWS_OTHER}}},
    {.chart = {.title = "Memory per rank", STEP, .y_label = "memory (GiB)", .from_zero = true},
     .scale = 0x1p-30,
     .curves = {{"gpu_mem_bytes", "GPU", TR_SHOWS_GPU},
                {"rss_bytes", "host (resident set)", TR_SHOWS_HOST}}},
};

static bool curve_is_validation(const tr_plot_curve_t *curve) {
    return strncmp(curve->y, "valid_", 6) == 0;
}

/* Draws the curves that have points. A curve of means lies on the band of what they are means of. */
static void plots_append(const tr_record_t *r, const tr_plot_t *plot, tr_str_t *out) {
    const double scale = plot->scale != 0 ? plot->scale : 1;
    tr_curve_t data[TR_PLOT_CURVES] = {{0}};
    tr_svg_series_t series[2 * TR_PLOT_CURVES];
    tr_svg_chart_t chart = plot->chart;
    size_t drawn = 0;
    for (size_t i = 0; i < TR_PLOT_CURVES && plot->curves[i].y; i++) {
        const tr_plot_curve_t *c = &plot->curves[i];
        tr_curve_t *d = &data[i];
        if (tr_page_curve(curve_is_validation(c) ? &r->validation : &r->training, c->y, d) != TR_OK)
            continue;
        for (size_t k = 0; k < d->count; k++)
            d->y[k] *= scale, d->low[k] *= scale, d->high[k] *= scale;
        series[drawn++] = (tr_svg_series_t){.title = *c->title ? c->title : NULL,
                                            .role = c->role,
                                            .x = d->x,
                                            .y = d->y,
                                            .count = d->count};
        series[drawn] = series[drawn - 1];
        series[drawn].title = NULL;
        series[drawn].kind = TR_SVG_BAND;
        series[drawn].low = d->low, series[drawn].high = d->high;
        if (d->lines > 1) drawn++;
    }
    if (chart.y_scale == TR_SVG_LOG) chart.y_scale = tr_page_scale(series, drawn);
    tr_svg_draw(&chart, series, drawn, out);
    for (size_t i = 0; i < TR_PLOT_CURVES; i++) tr_page_curve_free(&data[i]);
}

/* -- the parts of a step ----------------------------------------------------------------------- */

static const struct {
    const char *key, *title;
    tr_svg_role_t role;
} parts[] = {{"data_stall", "compute", TR_SHOWS_COMPUTE}, /* what the others leave of these steps */
             {"comm_exposed", "exposed communication", TR_SHOWS_COMMUNICATION},
             {"data_stall", "data stall", TR_SHOWS_DATA},
             {"checkpoint", "checkpoint", TR_SHOWS_CHECKPOINT}};
enum { PARTS = TR_COUNT(parts) };

/* The share of a part at a step; 0: unknown. */
static double parts_at(const tr_curve_t *curve, double step) {
    for (size_t i = 0; i < curve->count; i++)
        if (curve->x[i] == step) return fmax(curve->y[i], 0);
    return 0;
}

static void parts_append(const tr_record_t *r, tr_str_t *out) {
    const tr_svg_chart_t chart = {
        .title = "Step time by part, rank 0", STEP, .y_label = "share (%)", .y_max = 100};
    tr_svg_series_t series[PARTS];
    tr_curve_t data[PARTS] = {{0}};
    double *shares = NULL;
    tr_status_t status = TR_OK;
    for (int k = 0; k < PARTS; k++)
        TR_TRY_GOTO(tr_page_curve(&r->training, parts[k].key, &data[k]), done);
    const size_t count = data[0].count;
    TR_TRY_GOTO(tr_alloc((PARTS * count + 1) * sizeof *shares, "parts of a step", &shares), done);
    for (size_t i = 0; i < count; i++) {
        double rest = 1;
        for (size_t k = PARTS - 1; k > 0; k--) {
            const double share = fmin(parts_at(&data[k], data[0].x[i]), rest);
            shares[k * count + i] = 100 * share;
            rest -= share;
        }
        shares[i] = 100 * rest;
    }
    for (size_t k = 0; k < PARTS; k++)
        series[k] = (tr_svg_series_t){.title = parts[k].title,
                                      .role = parts[k].role,
                                      .kind = TR_SVG_AREA,
                                      .x = data[0].x,
                                      .y = shares + k * count,
                                      .count = count};
    if (count > 1) tr_svg_draw(&chart, series, PARTS, out);
done:
    if (status != TR_OK) out->status = status;
    tr_free(&shares);
    for (int k = 0; k < PARTS; k++) tr_page_curve_free(&data[k]);
}

const tr_plot_t *tr_page_plot_of(const char *key, const char **out_title) {
    for (size_t i = 0; i < TR_COUNT(plots); i++)
        for (size_t k = 0; k < TR_PLOT_CURVES && plots[i].curves[k].y; k++)
            if (strcmp(plots[i].curves[k].y, key) == 0) {
                *out_title = plots[i].curves[k].title;
                return &plots[i];
            }
    return NULL;
}

void tr_page_ask(tr_asked_t *asked) {
    for (size_t i = 0; i < TR_COUNT(plots); i++)
        for (size_t k = 0; k < TR_PLOT_CURVES && plots[i].curves[k].y; k++)
            if (!curve_is_validation(&plots[i].curves[k])) tr_ask(asked, plots[i].curves[k].y);
    for (size_t k = 0; k < PARTS; k++) tr_ask(asked, parts[k].key);
    tr_ask(asked, "session");
}

void tr_page_plots(const tr_record_t *r, tr_str_t *out) {
    const char *last = ""; /* the title of the last plot that was drawn */
    for (size_t i = 0; i < TR_COUNT(plots); i++) {
        const size_t before = out->length;
        if (strcmp(plots[i].chart.title, last) != 0) plots_append(r, &plots[i], out);
        if (out->length > before) last = plots[i].chart.title;
        if (strcmp(plots[i].curves[0].y, "samples_per_sec") == 0) parts_append(r, out);
    }
}
