/* The section that compares runs: the table, and the curves of all of them. */
#include "comparison_table.h"
#include "html.h"
#include "page.h"

#include <math.h>
#include <string.h>

/* More groups than these are grey: nobody tells more colours apart. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00",
                                      "#56b4e9", "#7b3294", "#8c510a", "#000000", "#b2b200"};
enum { COLOURS = sizeof colours / sizeof colours[0] };

static const tr_rows_t *entry_lines(const tr_entry_t *e, bool is_valid) {
    return is_valid ? &e->record->validation : &e->record->training;
}

/* A logarithmic axis if the largest value is over ten times the smallest, and all are positive. */
static void plot_append_axis(const tr_comparison_t *c, const char *key, bool is_valid,
                             tr_str_t *out) {
    double least = INFINITY, most = -INFINITY;
    for (size_t i = 0; i < c->entries.count; i++) {
        const tr_rows_t *lines = entry_lines(&c->entries.data[i], is_valid);
        const int column = tr_rows_column(lines, key);
        for (size_t k = 0; k < lines->count; k++) {
            least = fmin(least, tr_rows_at(lines, k, column));
            most = fmax(most, tr_rows_at(lines, k, column));
        }
    }
    if (least > 0 && most > 10 * least)
        tr_str_printf(out, "set logscale y\nset yrange [%.9g:%.9g]\n", least / 1.1, most * 1.1);
}

/* A title between single quotes, where nothing is expanded. */
static void plot_append_title(const tr_comparison_t *c, size_t group, tr_str_t *out) {
    tr_str_t label = {0};
    tr_comparison_label(c, group, &label);
    tr_str_append(out, " title '");
    for (const char *t = label.text; t && *t; t++)
        tr_str_append_bytes(out, (unsigned char)*t < ' ' || strchr("'`\x7f", *t) ? " " : t, 1);
    tr_str_append(out, "'");
    tr_str_free(&label);
}

/* Appends the data block $gG of the runs of a group that count, and $rI of each run, and to `plot`
 * what draws them: the mean ("smooth unique": of equal steps), and thin lines of several runs.
 * Returns the number of points. */
static int group_draw(const tr_comparison_t *c, size_t g, const char *key, bool is_valid,
                      tr_str_t *out, tr_str_t *plot) {
    const tr_group_t *group = &c->groups.data[g];
    const bool has_colour = g < COLOURS;
    const char *colour = has_colour ? colours[g] : "#bbbbbb";
    tr_str_t all = {0};
    int points = 0, of_run = 0;
    bool is_short = false; /* a line of one point is not visible */
    for (size_t i = 0; i < group->runs.count; i++) {
        const size_t run = group->runs.data[i];
        const tr_entry_t *e = &c->entries.data[run];
        tr_curve_t points_of_run;
        tr_str_t curve = {0};
        if (tr_page_curve(entry_lines(e, is_valid), key, &points_of_run) != TR_OK)
            points_of_run.count = 0;
        of_run = (int)points_of_run.count;
        for (int k = 0; k < of_run; k++)
            tr_str_printf(&curve, "%.0f %.9g\n", points_of_run.x[k], points_of_run.y[k]);
        tr_page_curve_free(&points_of_run);
        points += of_run;
        is_short = is_short || (of_run > 0 && of_run < 10);
        if (of_run > 0 && tr_group_counts(c, group, e)) tr_str_append(&all, curve.text);
        if (of_run > 0 && group->runs.count > 1) {
            tr_str_printf(out, "$r%zu << EOD\n%sEOD\n", run, curve.text);
            tr_str_printf(plot, "%s$r%zu using 1:2 with lines lw 0.6 lc rgb '%s' notitle",
                          plot->length ? ", " : "", run, colour);
        }
        tr_str_free(&curve);
    }
    if (points > 0 && all.text) {
        tr_str_printf(out, "$g%zu << EOD\n%sEOD\n", g, all.text);
        tr_str_printf(plot, "%s$g%zu using 1:2 smooth unique with %s lw %g lc rgb '%s'",
                      plot->length ? ", " : "", g, is_short ? "linespoints pt 7 ps 0.5" : "lines",
                      has_colour ? 2.2 : 1, colour);
        if (has_colour)
            plot_append_title(c, g, plot);
        else
            tr_str_append(plot, " notitle");
    }
    tr_str_free(&all);
    return points;
}

static void compare_draw(const tr_comparison_t *c, const char *key, bool is_valid,
                         tr_plotter_t *plotter, tr_str_t *out) {
    tr_str_t s = {0}, plot = {0};
    int points = 0;
    tr_str_printf(&s, "set xlabel 'step'\nset ylabel '%s' noenhanced\n", key);
    tr_str_append(&s, "set key outside right top vertical Left reverse invert samplen 1.5\n");
    plot_append_axis(c, key, is_valid, &s);
    for (size_t g = c->groups.count; g-- > 0;) /* the best on top */
        points += group_draw(c, g, key, is_valid, &s, &plot);
    if (points > 0 && plot.text) {
        tr_str_printf(&s, "plot %s\n", plot.text);
        tr_plot_draw(plotter, s.text, out);
    }
    tr_str_free(&s);
    tr_str_free(&plot);
}

void tr_page_compare(const tr_study_t *study, tr_plotter_t *plotter, tr_str_t *out) {
    const tr_comparison_t *c = study->comparison;
    const bool by_valid = c->is_ranked && tr_comparison_is_valid(c, c->figure[0]);
    tr_plotter_t wide = *plotter;
    tr_html_element(out, "h2", "Comparison");
    tr_comparison_html(c, out);
    wide.width = 1060;
    wide.height = 380;
    tr_str_append(out, "<div class=\"plots\">\n");
    if (by_valid || c->has_losses)
        compare_draw(c, by_valid ? c->figure[0] : "valid_loss", true, &wide, out);
    if (c->has_losses) compare_draw(c, "loss", false, &wide, out);
    tr_str_append(out, "</div>\n");
    if (c->groups.count > COLOURS)
        tr_str_printf(out, "<p class=\"note\">The best %d have colours.</p>\n", COLOURS);
    if (study->sweeps->count > 0)
        tr_str_append(out, "<p class=\"note\"><code>trainer compare RUNS... --out DIR</code> makes "
                           "this comparison alone, and prints it; <code>trainer report RUN --out "
                           "DIR</code> shows more of one run.</p>\n");
    wide.width = plotter->width;
    wide.height = plotter->height;
    *plotter = wide;
}
