/* The plots of one run, for its section of the report and for the page of a run that trains. */
#include "page.h"
#include "svg.h"
#include "base/mem.h"

#include <math.h>

static const char blue[] = "#4878a8", orange[] = "#d1803a", green[] = "#6aa56a", grey[] = "#888888";

/* Points of a curve; longer runs show means of several lines. */
enum { MAX_POINTS = 400, MAX_SERIES = 4 };

tr_status_t tr_page_curve(const tr_rows_t *lines, const char *key, tr_curve_t *out) {
    const size_t count = lines->count, group = 1 + count / MAX_POINTS;
    const int column = tr_rows_column(lines, key), steps = tr_rows_column(lines, "step");
    *out = (tr_curve_t){0};
    TR_TRY(tr_alloc((MAX_POINTS + 1) * sizeof *out->x, "points of a curve", &out->x));
    TR_TRY(tr_alloc((MAX_POINTS + 1) * sizeof *out->y, "points of a curve", &out->y));
    for (size_t begin = 0; begin < count; begin += group) {
        double sum = 0, step = 0;
        size_t known = 0;
        for (size_t i = begin; i < count && i < begin + group; i++) {
            const double value = tr_rows_at(lines, i, column);
            step = tr_rows_at(lines, i, steps);
            if (isfinite(value)) sum += value, known++;
        }
        if (known == 0 || !isfinite(step)) continue;
        out->x[out->count] = step;
        out->y[out->count++] = sum / (double)known;
    }
    return TR_OK;
}

void tr_page_curve_free(tr_curve_t *curve) {
    tr_free(&curve->x);
    tr_free(&curve->y);
}

/* A curve of a chart. */
typedef struct {
    const char *key, *title, *color;
    bool is_validation;
} plot_curve_t;

/* Whether a curve that falls by orders of magnitude needs a logarithmic axis to be seen. */
static bool plots_need_log(const tr_svg_series_t *series, size_t count) {
    double least = INFINITY, most = 0;
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < series[s].count; i++) {
            least = fmin(least, series[s].y[i]);
            most = fmax(most, series[s].y[i]);
        }
    return least > 0 && most > 100 * least;
}

/* Draws the curves that have points, their values multiplied by `scale`. */
static void plots_draw(const tr_record_t *r, tr_svg_chart_t *chart,
                       const plot_curve_t *curves, size_t count, double scale, tr_str_t *out) {
    tr_curve_t data[MAX_SERIES] = {{0}};
    tr_svg_series_t series[MAX_SERIES];
    size_t drawn = 0;
    for (size_t i = 0; i < count; i++) {
        const plot_curve_t *c = &curves[i];
        tr_curve_t *d = &data[i];
        if (tr_page_curve(c->is_validation ? &r->validation : &r->training, c->key, d) != TR_OK ||
            d->count == 0)
            continue;
        for (size_t k = 0; k < d->count; k++) d->y[k] *= scale;
        series[drawn++] = (tr_svg_series_t){
            .title = c->title, .color = c->color, .x = d->x, .y = d->y, .count = d->count};
    }
    chart->has_log_y = isnan(chart->y_min) && plots_need_log(series, drawn);
    if (drawn > 0) tr_svg_draw(chart, series, drawn, out);
    for (size_t i = 0; i < count; i++) tr_page_curve_free(&data[i]);
}

static const char *const split_keys[MAX_SERIES] = {"comm_exposed", "data_stall", "checkpoint",
                                                   NULL};

/* Each area is drawn from 0 and covers the lower part of the previous one. */
static void plots_draw_split(const tr_record_t *r, tr_str_t *out) {
    static const char *const titles[MAX_SERIES] = {"exposed communication", "data stall",
                                                   "checkpoint", "compute"};
    static const char *const colors[MAX_SERIES] = {orange, green, grey, "#b9cde0"};
    const tr_rows_t *rows = &r->training;
    const size_t count = rows->count, group = 1 + count / MAX_POINTS;
    const tr_svg_chart_t chart = {
        .x_label = "step", .y_label = "share of the time (%)", .y_min = 0, .y_max = 100};
    tr_svg_series_t series[MAX_SERIES];
    double *values = NULL, *x;
    size_t points = 0;
    if (count < 2 || tr_alloc((1 + MAX_SERIES) * (MAX_POINTS + 1) * sizeof *values,
                              "points of a curve", &values) != TR_OK)
        return;
    x = values + MAX_SERIES * (MAX_POINTS + 1);
    for (size_t i = 0; i < MAX_SERIES; i++) /* the largest area first */
        series[MAX_SERIES - 1 - i] = (tr_svg_series_t){.title = titles[i],
                                                       .color = colors[i],
                                                       .x = x,
                                                       .y = values + i * (MAX_POINTS + 1),
                                                       .is_area = true};
    for (size_t i = 0; i < count; i += group) {
        double sum = 0;
        if (!isfinite(tr_rows_number(rows, i, "data_stall"))) continue;
        for (size_t k = 0; k < MAX_SERIES; k++) {
            const double value = split_keys[k] ? tr_rows_number(rows, i, split_keys[k]) : 1 - sum;
            if (isfinite(value)) sum += fmax(value, 0);
            values[k * (MAX_POINTS + 1) + points] = 100 * fmin(sum, 1);
        }
        x[points++] = tr_rows_number(rows, i, "step");
    }
    for (size_t i = 0; i < MAX_SERIES; i++) series[i].count = points;
    if (points > 1) tr_svg_draw(&chart, series, MAX_SERIES, out);
    tr_free(&values);
}

static const struct {
    const char *y_label;
    double scale, y_min, y_max;
    plot_curve_t curves[MAX_SERIES];
} charts[] = {
    {"loss",
     1,
     NAN,
     NAN,
     {{"loss", "train", blue, false}, {"valid_loss", "validation", orange, true}}},
    {"accuracy (%)",
     100,
     NAN,
     NAN,
     {{"accuracy", "train", blue, false}, {"valid_accuracy", "validation", orange, true}}},
    {"samples/s", 1, 0, NAN, {{"samples_per_sec", "throughput", blue, false}}},
    {"GPU utilisation (%)", 100, 0, 100, {{"gpu_util", "mean of the GPUs", blue, false}}},
    {"temperature (\xc2\xb0"
     "C)",
     1,
     NAN,
     NAN,
     {{"gpu_temp", "GPU", orange, false}}},
    {"power (W)", 1, 0, NAN, {{"gpu_power_watts", "GPU", green, false}}},
    {"cores", 1, 0, NAN, {{"cpu_util", "busy, of a rank", orange, false}}},
    {"memory (GiB)",
     0x1p-30,
     0,
     NAN,
     {{"gpu_mem_bytes", "GPU", blue, false}, {"rss_bytes", "host, of a rank", orange, false}}},
};

void tr_page_ask(tr_asked_t *asked) {
    for (size_t i = 0; i < TR_COUNT(charts); i++)
        for (size_t k = 0; k < MAX_SERIES && charts[i].curves[k].key; k++)
            if (!charts[i].curves[k].is_validation) tr_ask(asked, charts[i].curves[k].key);
    for (size_t k = 0; k < MAX_SERIES && split_keys[k]; k++) tr_ask(asked, split_keys[k]);
}

void tr_page_plots(const tr_record_t *r, tr_str_t *out) {
    tr_str_append(out, "<div class=\"plots\">\n");
    for (size_t i = 0; i < TR_COUNT(charts); i++) {
        tr_svg_chart_t chart = {.x_label = "step",
                                      .y_label = charts[i].y_label,
                                      .y_min = charts[i].y_min,
                                      .y_max = charts[i].y_max};
        size_t count = 0;
        while (count < MAX_SERIES && charts[i].curves[count].key) count++;
        plots_draw(r, &chart, charts[i].curves, count, charts[i].scale, out);
        if (i == 2) plots_draw_split(r, out); /* beside the throughput */
    }
    tr_str_append(out, "</div>\n");
}
