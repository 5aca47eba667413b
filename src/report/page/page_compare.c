/* The section that compares runs: the table, and the curves of all of them. */
#include "report/compare/comparison_table.h"
#include "html.h"
#include "page.h"

#include <stdlib.h>

/* More groups than these are grey: nobody tells more colours apart. */
enum { COLOURS = 10 };

/* What a plot draws. Owned. */
typedef struct {
    TR_VEC(tr_svg_series_t) series;
    TR_VEC(tr_curve_t) curves;
    TR_VEC(tr_str_t) titles;
} compare_plot_t;

/* Another colour for each group, and other dashes than those of the group with the same colour. */
static tr_svg_series_t group_series(size_t g, const tr_curve_t *curve) {
    const bool has_colour = g < COLOURS;
    return (tr_svg_series_t){.role = has_colour ? (tr_svg_role_t)(TR_SHOWS_RUN_1 + g % TR_RUN_ROLES)
                                                : TR_SHOWS_OTHER,
                             .variant = has_colour ? (int)(g / TR_RUN_ROLES) : 0,
                             .kind = has_colour ? TR_SVG_LINE : TR_SVG_THIN,
                             .x = curve->x,
                             .y = curve->y,
                             .count = curve->count};
}

typedef struct {
    double x, y;
} compare_point_t;

static int point_compare(const void *a, const void *b) {
    const double p = ((const compare_point_t *)a)->x, q = ((const compare_point_t *)b)->x;
    return (p > q) - (p < q);
}

/* The mean, at each step, of curves. Free it with tr_page_curve_free. */
static tr_status_t compare_mean(const tr_curve_t *curves, size_t count, tr_curve_t *out) {
    compare_point_t *all = NULL;
    size_t points = 0, at = 0;
    tr_status_t status;
    *out = (tr_curve_t){0};
    for (size_t i = 0; i < count; i++) points += curves[i].count;
    TR_TRY_GOTO(tr_alloc((points + 1) * sizeof *all, "points of curves", &all), done);
    TR_TRY_GOTO(tr_alloc((points + 1) * sizeof *out->x, "points of a mean", &out->x), done);
    TR_TRY_GOTO(tr_alloc((points + 1) * sizeof *out->y, "points of a mean", &out->y), done);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < curves[i].count; k++)
            all[at++] = (compare_point_t){curves[i].x[k], curves[i].y[k]};
    qsort(all, points, sizeof *all, point_compare);
    for (size_t i = 0; i < points;) {
        const size_t first = i;
        double sum = 0;
        for (; i < points && all[i].x == all[first].x; i++) sum += all[i].y;
        out->x[out->count] = all[first].x;
        out->y[out->count++] = sum / (double)(i - first);
    }
done:
    tr_free(&all);
    return status;
}

/* Adds the mean of the runs of a group that count, and thin lines of several runs. */
static tr_status_t compare_add_group(const tr_comparison_t *c, size_t g, const char *key,
                                     bool is_valid, compare_plot_t *plot) {
    const tr_group_t *group = &c->groups.data[g];
    TR_VEC(tr_curve_t) counted = {0}; /* borrowed */
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < group->runs.count; i++) {
        const tr_entry_t *e = &c->entries.data[group->runs.data[i]];
        TR_TRY_GOTO(tr_vec_push(&plot->curves, (tr_curve_t){0}), done);
        TR_TRY_GOTO(tr_page_curve(is_valid ? &e->record->validation : &e->record->training, key,
                                  &plot->curves.data[plot->curves.count - 1]),
                    done);
        const tr_curve_t curve = plot->curves.data[plot->curves.count - 1];
        if (tr_group_counts(c, group, e)) TR_TRY_GOTO(tr_vec_push(&counted, curve), done);
        if (group->runs.count == 1) continue;
        tr_svg_series_t line = group_series(g, &curve);
        line.kind = TR_SVG_THIN;
        TR_TRY_GOTO(tr_vec_push(&plot->series, line), done);
    }
    TR_TRY_GOTO(tr_vec_push(&plot->curves, (tr_curve_t){0}), done);
    TR_TRY_GOTO(
        compare_mean(counted.data, counted.count, &plot->curves.data[plot->curves.count - 1]),
        done);
    TR_TRY_GOTO(tr_vec_push(&plot->titles, (tr_str_t){0}), done);
    tr_str_t *title = &plot->titles.data[plot->titles.count - 1];
    tr_comparison_label(c, g, title);
    TR_TRY_GOTO(title->status, done);
    tr_svg_series_t line = group_series(g, &plot->curves.data[plot->curves.count - 1]);
    if (g < COLOURS) line.title = title->text;
    TR_TRY_GOTO(tr_vec_push(&plot->series, line), done);
done:
    tr_vec_free(&counted);
    return status;
}

static tr_status_t compare_draw(const tr_comparison_t *c, const char *key, bool is_valid,
                                tr_str_t *out) {
    compare_plot_t plot = {0};
    tr_svg_chart_t chart = {
        .title = is_valid ? "Validation" : "Training", .x_label = "step", .y_label = key};
    tr_status_t status = TR_OK;
    for (size_t g = 0; g < c->groups.count; g++)
        TR_TRY_GOTO(compare_add_group(c, g, key, is_valid, &plot), done);
    chart.y_scale = tr_page_scale(plot.series.data, plot.series.count, 10);
    tr_svg_draw(&chart, plot.series.data, plot.series.count, out);
done:
    for (size_t i = 0; i < plot.curves.count; i++) tr_page_curve_free(&plot.curves.data[i]);
    for (size_t i = 0; i < plot.titles.count; i++) tr_str_free(&plot.titles.data[i]);
    tr_vec_free(&plot.series);
    tr_vec_free(&plot.curves);
    tr_vec_free(&plot.titles);
    return status;
}

void tr_page_compare(const tr_study_t *study, tr_str_t *out) {
    const tr_comparison_t *c = study->comparison;
    const bool by_valid = c->is_ranked && tr_comparison_is_valid(c, c->figure[0]);
    tr_status_t status = TR_OK;
    tr_html_element(out, "h2", "Comparison");
    tr_comparison_html(c, out);
    tr_str_append(out, "<div class=\"plots\">\n");
    if (by_valid || c->has_losses)
        status = compare_draw(c, by_valid ? c->figure[0] : "valid_loss", true, out);
    if (c->has_losses && status == TR_OK) status = compare_draw(c, "loss", false, out);
    if (status != TR_OK) out->status = status;
    tr_str_append(out, "</div>\n");
    if (c->groups.count > COLOURS)
        tr_str_printf(out, "<p class=\"note\">The best %d have colours.</p>\n", COLOURS);
    if (study->sweeps->count > 0)
        tr_str_append(out, "<p class=\"note\"><code>trainer compare RUNS... --out DIR</code> makes "
                           "this comparison alone, and prints it; <code>trainer report RUN --out "
                           "DIR</code> shows more of one run.</p>\n");
}
