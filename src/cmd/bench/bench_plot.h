/* The file of --svg of a bench: charts, one below the other. Private to src/cmd. Not collective. */
#ifndef TR_CMD_BENCH_BENCH_PLOT_H
#define TR_CMD_BENCH_BENCH_PLOT_H

#include "base/str.h"
#include "base/table.h"
#include "report/svg.h"
#include "trainer/status.h"

#define BENCH_SVG(S, what) CMD_OPTION_TEXT(S, svg, "--svg", "FILE", NULL, "Draws " what ".")

enum { BENCH_PLOT_SERIES = 8, BENCH_PLOT_POINTS = 32, BENCH_PLOT_CHARTS = 3 };

typedef struct {
    char title[32];
    double y[BENCH_PLOT_POINTS]; /* NAN: no point */
} bench_curve_t;

typedef struct {
    tr_svg_chart_t chart;
    double x[BENCH_PLOT_POINTS]; /* of all curves */
    size_t points;
    bench_curve_t curve[BENCH_PLOT_SERIES];
    size_t count;
} bench_chart_t;

/* Adds a curve with this title; the caller fills its y. At most BENCH_PLOT_SERIES of a chart. */
bench_curve_t *bench_chart_add(bench_chart_t *chart, const char *title);
/* Adds a curve of the numbers of `y` over those of `x`, keys of the table, of every `stride`-th row. */
void bench_chart_take(bench_chart_t *chart, const char *title, const tr_table_t *t,
                      const void *rows, size_t count, size_t stride, const char *x, const char *y);
/* Writes the charts that have points. TR_ERR_DATA: none has. */
tr_status_t bench_plot_write(const char *path, const bench_chart_t *charts, size_t count);

#endif
