/* The section that compares runs: the table, and the curves of all of them. */
#include "report/compare/comparison_table.h"
#include "html.h"
#include "page.h"

#include <stdlib.h>

/* What a plot draws. Owned. */
typedef struct {
    TR_VEC(tr_svg_series_t) series;
    TR_VEC(tr_curve_t) curves;
} compare_plot_t;

/* The table is the legend. More groups than there are colours are grey. */
static tr_svg_series_t group_series(size_t g, const tr_curve_t *curve) {
    const bool has_colour = g < TR_RUN_ROLES;
    return (tr_svg_series_t){.role =
                                 has_colour ? (tr_svg_role_t)(TR_SHOWS_RUN_1 + g) : TR_SHOWS_OTHER,
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
    TR_TRY_GOTO(
        tr_vec_push(&plot->series, group_series(g, &plot->curves.data[plot->curves.count - 1])),
        done);
done:
    tr_vec_free(&counted);
    return status;
}

static tr_status_t compare_draw(const tr_comparison_t *c, const char *key, bool is_valid,
                                tr_str_t *out) {
    compare_plot_t plot = {0};
    const char *curve = is_valid ? "validation" : "training";
    const tr_plot_t *known = tr_page_plot_of(key, &curve);
    tr_svg_chart_t chart =
        known ? known->chart : (tr_svg_chart_t){.title = key, .x_label = "step", .y_label = key};
    char title[128];
    tr_status_t status = TR_OK;
    for (size_t g = 0; g < c->groups.count; g++)
        TR_TRY_GOTO(compare_add_group(c, g, key, is_valid, &plot), done);
    for (size_t i = 0; i < plot.curves.count; i++)
        for (size_t k = 0; known && known->scale != 0 && k < plot.curves.data[i].count; k++)
            plot.curves.data[i].y[k] *= known->scale;
    tr_snprintf(title, sizeof title, *curve ? "%s, %s" : "%s", chart.title, curve);
    chart.title = title;
    if (!known || chart.y_scale == TR_SVG_LOG)
        chart.y_scale = tr_page_scale(plot.series.data, plot.series.count);
    tr_svg_draw(&chart, plot.series.data, plot.series.count, out);
done:
    for (size_t i = 0; i < plot.curves.count; i++) tr_page_curve_free(&plot.curves.data[i]);
    tr_vec_free(&plot.series);
    tr_vec_free(&plot.curves);
    return status;
}

void tr_page_compare(const tr_study_t *study, tr_str_t *out) {
    const tr_comparison_t *c = study->comparison;
    const bool by_valid = c->is_ranked && tr_comparison_is_valid(c, c->figure[0]);
    tr_status_t status = TR_OK;
    tr_str_t drawn = {0};
    if (by_valid || c->has_losses)
        status = compare_draw(c, by_valid ? c->figure[0] : "valid_loss", true, &drawn);
    if (c->has_losses && status == TR_OK) status = compare_draw(c, "loss", false, &drawn);
    if (status == TR_OK) status = drawn.status;
    if (status != TR_OK) out->status = status;
    tr_html_element(out, "h2", "Comparison");
    tr_comparison_html(c, drawn.length > 0, out);
    if (drawn.length > 0) {
        if (c->groups.count > TR_RUN_ROLES)
            tr_str_printf(out, "<p class=\"note\">The best %d have colours.</p>\n", TR_RUN_ROLES);
        tr_str_printf(out, "<div class=\"plots wide\">\n%s</div>\n", drawn.text);
    }
    tr_str_free(&drawn);
    if (study->sweeps->count > 0)
        tr_str_append(out, "<p class=\"note\"><code>trainer compare RUNS... --out DIR</code> makes "
                           "this comparison alone, and prints it; <code>trainer report RUN --out "
                           "DIR</code> shows more of one run.</p>\n");
}
