/* The section of a sweep. */
#include "html.h"
#include "losses.h"
#include "page.h"

#include <math.h>

/* -- plots ------------------------------------------------------------------------------------- */

static const char axis_of_ranks[] =
    "set xlabel 'ranks'\nset logscale x 2\nset offsets graph 0.05, graph 0.05, 0, 0\n";

static const char *plot_number(double value, char text[32]) {
    tr_snprintf(text, 32, isfinite(value) ? "%.9g" : "NaN", value);
    return text;
}

/* A data block of gnuplot with up to four columns, for the points that have `needs`. */
static int sweep_append_block(const tr_sweep_t *sweep, const char *name,
                              void (*columns)(const tr_point_t *, double out[4]), tr_str_t *out) {
    int points = 0;
    tr_str_printf(out, "$%s << EOD\n", name);
    for (size_t i = 0; i < sweep->points.count; i++) {
        double column[4] = {NAN, NAN, NAN, NAN};
        char text[4][32];
        columns(&sweep->points.data[i], column);
        if (!isfinite(column[0])) continue;
        tr_str_printf(out, "%lld %s %s %s %s\n", (long long)sweep->points.data[i].ranks,
                      plot_number(column[0], text[0]), plot_number(column[1], text[1]),
                      plot_number(column[2], text[2]), plot_number(column[3], text[3]));
        points++;
    }
    tr_str_append(out, "EOD\n");
    return points;
}

static void point_efficiency_columns(const tr_point_t *p, double out[4]) {
    out[0] = 100 * p->efficiency;
    out[1] = out[0] * p->times.step / p->step_max;
    out[2] = out[0] * p->times.step / p->step_min;
}

static void point_predicted_columns(const tr_point_t *p, double out[4]) {
    out[0] = 100 * p->predicted_efficiency.expected;
    out[1] = 100 * p->predicted_efficiency.low;
    out[2] = 100 * p->predicted_efficiency.high;
}

static void point_rate_columns(const tr_point_t *p, double out[4]) {
    out[0] = p->times.samples_per_sec;
}

static void sweep_draw_efficiency(const tr_sweep_t *sweep, tr_plotter_t *plotter, tr_str_t *out) {
    tr_str_t s = {0};
    tr_str_printf(&s, "%sset ylabel 'efficiency (%%)'\nset yrange [0:*]\n", axis_of_ranks);
    const int run = sweep_append_block(sweep, "run", point_efficiency_columns, &s),
              predicted = sweep_append_block(sweep, "predicted", point_predicted_columns, &s);
    tr_str_append(&s, "plot 100 with lines dt 2 lc rgb '#888888' title 'ideal'");
    if (predicted)
        tr_str_append(&s,
                      ", $predicted using 1:3:4 with filledcurves fs solid 0.4 lc rgb '#b7aee6' "
                      "title 'predicted, band', $predicted using 1:2 with linespoints pt 7 ps 0.4 "
                      "dt 3 lc rgb '#5b4bb5' title 'expected'");
    if (run)
        tr_str_printf(&s,
                      ", $run using 1:2:3:4 with yerrorbars lw 1.5 pt 7 ps 0.7 lc rgb '#4878a8' "
                      "title '%s', $run using 1:2 with lines lw 2 lc rgb '#4878a8' notitle",
                      tr_kind_name(sweep->kind));
    if (run || predicted) tr_plot_draw(plotter, s.text, out);
    tr_str_free(&s);
}

static void sweep_draw_rate(const tr_sweep_t *sweep, tr_plotter_t *plotter, tr_str_t *out) {
    const tr_point_t *ref = tr_sweep_reference(sweep);
    tr_str_t s = {0};
    if (!ref) return;
    tr_str_printf(&s, "%sset logscale y 2\nset ylabel 'samples/s'\n", axis_of_ranks);
    if (sweep_append_block(sweep, "run", point_rate_columns, &s)) {
        tr_str_printf(&s,
                      "plot x * %.9g with lines dt 2 lc rgb '#888888' title 'ideal', $run using "
                      "1:2 with linespoints lw 2 pt 7 ps 0.7 lc rgb '#4878a8' title '%s'\n",
                      ref->times.samples_per_sec / (double)ref->ranks, tr_kind_name(sweep->kind));
        tr_plot_draw(plotter, s.text, out);
    }
    tr_str_free(&s);
}

static void point_speedup_columns(const tr_point_t *p, double out[4]) {
    out[0] = p->speedup;
}

static void sweep_draw_speedup(const tr_sweep_t *sweep, tr_plotter_t *plotter, tr_str_t *out) {
    const tr_point_t *ref = tr_sweep_reference(sweep);
    tr_str_t s = {0};
    if (!ref) return;
    tr_str_printf(&s, "%sset logscale y 2\nset ylabel 'speedup over %lld rank%s'\n", axis_of_ranks,
                  (long long)ref->ranks, ref->ranks > 1 ? "s" : "");
    if (sweep_append_block(sweep, "run", point_speedup_columns, &s)) {
        tr_str_printf(&s,
                      "plot x / %lld. with lines dt 2 lc rgb '#888888' title 'ideal', $run using "
                      "1:2 with linespoints lw 2 pt 7 ps 0.7 lc rgb '#4878a8' title '%s'\n",
                      (long long)ref->ranks, tr_kind_name(sweep->kind));
        tr_plot_draw(plotter, s.text, out);
    }
    tr_str_free(&s);
}

static void point_split_columns(const tr_point_t *p, double out[4]) {
    out[0] = p->times.compute;
    out[1] = p->times.comm_exposed;
    out[2] = p->times.data_stall;
    out[3] = p->times.checkpoint;
}

static void sweep_draw_split(const tr_sweep_t *sweep, tr_plotter_t *plotter, tr_str_t *out) {
    tr_str_t s = {0};
    tr_str_append(&s, "set xlabel 'ranks'\nset ylabel 'time per step, rank 0 (ms)'\n"
                      "set yrange [0:*]\nset style data histograms\n"
                      "set style histogram rowstacked\nset boxwidth 0.6\n");
    if (sweep_append_block(sweep, "run", point_split_columns, &s)) {
        tr_str_append(&s,
                      "plot $run using 2:xtic(1) lc rgb '#b9cde0' title 'compute', $run using 3 "
                      "lc rgb '#d1803a' title 'exposed communication', $run using 4 lc rgb "
                      "'#6aa56a' title 'data stall', $run using 5 lc rgb '#888888' title "
                      "'checkpoint'\n");
        tr_plot_draw(plotter, s.text, out);
    }
    tr_str_free(&s);
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
    tr_str_printf(out, "<tr><td><span class=\"%s\">%s</span></td>", tr_kind_name(p->kind),
                  tr_kind_name(p->kind));
    tr_html_count(out, p->nodes);
    tr_html_count(out, p->ranks);
}

static void sweep_append_points(const tr_sweep_t *sweep, tr_str_t *out) {
    bool predicted = false;
    for (size_t i = 0; i < sweep->points.count; i++)
        predicted = predicted || isfinite(sweep->points.data[i].predicted_step.expected);
    tr_html_table(out, predicted ? "kind|nodes|ranks|batch|micro-batch|runs|step, median "
                                   "(ms)|spread|samples/s|efficiency|speedup|predicted "
                                   "step (ms)|predicted efficiency"
                                 : "kind|nodes|ranks|batch|micro-batch|runs|step, median "
                                   "(ms)|spread|samples/s|efficiency|speedup");
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
    tr_html_element(out, "h3", "Time of a step on rank 0: means, and the 95th percentile (ms)");
    tr_html_table(
        out,
        "kind|nodes|ranks|compute|exposed communication|data stall|checkpoint|95th percentile");
    for (size_t i = 0; i < sweep->points.count; i++) {
        const tr_step_times_t *t = &sweep->points.data[i].times;
        if (sweep->points.data[i].runs.count == 0) continue;
        point_append_kind(&sweep->points.data[i], out);
        tr_html_number(out, t->compute, 2);
        tr_html_number(out, t->comm_exposed, 2);
        tr_html_number(out, t->data_stall, 2);
        tr_html_number(out, t->checkpoint, 2);
        tr_html_number(out, t->p95, 2);
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
            tr_html_table(out, "ranks|mean step|lost|compute|slow rank|data|network|checkpoint");
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
                    "that waits least, because the others also wait for it. In short runs that "
                    "recorded no times of all ranks, those of rank 0 count, and a slow rank shows "
                    "as network.");
}

void tr_page_sweep(const tr_sweep_t *sweep, tr_plotter_t *plotter, tr_str_t *out) {
    tr_str_t words = {0};
    tr_str_printf(out, "<h2>%s scaling <span class=\"%s\">%s</span></h2>\n",
                  sweep->mode == TR_MODE_WEAK ? "Weak" : "Strong", tr_kind_name(sweep->kind),
                  tr_kind_name(sweep->kind));
    sweep_append_definition(sweep, out);
    tr_losses_explain(sweep, &words);
    if (words.text) tr_html_element(out, "p class=\"words\"", words.text);
    tr_str_free(&words);
    tr_str_append(out, "<div class=\"plots\">\n");
    sweep_draw_efficiency(sweep, plotter, out);
    sweep_draw_speedup(sweep, plotter, out);
    sweep_draw_rate(sweep, plotter, out);
    sweep_draw_split(sweep, plotter, out);
    tr_str_append(out, "</div>\n");
    sweep_append_points(sweep, out);
    sweep_append_split(sweep, out);
    sweep_append_losses(sweep, out);
}
