/* Writes the file of --svg of a bench. */
#include "bench_plot.h"
#include "base/mem.h"
#include "cmd/cmd.h"

static const char *const colors[BENCH_PLOT_SERIES] = {"#4878a8", "#d1803a", "#6aa56a", "#5b4bb5",
                                                      "#b7524f", "#888888", "#3f9fa6", "#c9a227"};

bench_curve_t *bench_chart_add(bench_chart_t *chart, const char *title) {
    bench_curve_t *curve = &chart->curve[chart->count++];
    tr_snprintf(curve->title, sizeof curve->title, "%s", title);
    return curve;
}

void bench_chart_take(bench_chart_t *chart, const char *title, const tr_table_t *t,
                      const void *rows, size_t count, size_t stride, const char *x, const char *y) {
    bench_curve_t *curve = bench_chart_add(chart, title);
    chart->points = count;
    for (size_t i = 0; i < count; i++) {
        const void *row = (const char *)rows + i * stride * t->row_bytes;
        chart->x[i] = tr_table_number(t, row, x);
        curve->y[i] = tr_table_number(t, row, y);
    }
}

static void bench_chart_draw(const bench_chart_t *chart, tr_str_t *out) {
    tr_svg_series_t series[BENCH_PLOT_SERIES];
    for (size_t i = 0; i < chart->count; i++) {
        const bench_curve_t *curve = &chart->curve[i];
        series[i] =
            (tr_svg_series_t){curve->title, colors[i], chart->x, curve->y, chart->points, false};
    }
    tr_svg_draw(&chart->chart, series, chart->count, out);
}

tr_status_t bench_plot_write(const char *path, const bench_chart_t *charts, size_t count) {
    tr_str_t drawn[BENCH_PLOT_CHARTS] = {{0}};
    for (size_t i = 0; i < count; i++) bench_chart_draw(&charts[i], &drawn[i]);
    return cmd_svg_write(path, drawn, count);
}
