/* Plots of tables: each is listed with the columns that it draws. Not collective. */
#ifndef TR_REPORT_PLOT_H
#define TR_REPORT_PLOT_H

#include "svg.h"
#include "base/table.h"

enum { TR_PLOT_CURVES = 5, TR_PLOT_SERIES = 40 };

/* A curve of a plot; what it draws are keys of columns. */
typedef struct {
    const char *y;      /* NULL: there are no more curves */
    const char *title;  /* in the legend; NULL: that of the rows; "": none */
    tr_svg_role_t role; /* ROWS: that of the rows */
    tr_svg_kind_t kind;
    const char *low, *high; /* of a band or of error bars; NULL: none */
    bool is_joined;         /* rows without the number do not part the line */
} tr_plot_curve_t;

typedef struct {
    tr_svg_chart_t chart;
    const char *x;
    double scale; /* of all numbers but x; 0: 1 */
    tr_plot_curve_t curves[TR_PLOT_CURVES];
} tr_plot_t;

/* Rows that are drawn as curves of their own. */
typedef struct {
    const char *title;
    tr_svg_role_t role;
    int variant;
    const void *data;
    size_t count, stride; /* every stride-th of them; 0: 1 */
} tr_plot_rows_t;

/* Appends the plot of each of `groups` rows of the table; nothing if no point can be drawn. At most
 * TR_PLOT_SERIES curves of all groups. TR_ERR_MEMORY. */
tr_status_t tr_plot_add(const tr_plot_t *plot, const tr_table_t *table, const tr_plot_rows_t *rows,
                        size_t groups, tr_svg_t *out);
/* Appends one plot as a part of a page. A failed allocation is in the status of `out`. */
void tr_plot_draw(const tr_plot_t *plot, const tr_table_t *table, const tr_plot_rows_t *rows,
                  size_t groups, tr_str_t *out);

#endif
