/* Line charts as SVG, drawn without another program. Pure functions. */
#ifndef TR_REPORT_SVG_H
#define TR_REPORT_SVG_H

#include "base/str.h"
#include <stdbool.h>

typedef struct {
    const char *title;   /* in the legend */
    const char *color;   /* "#4878a8" */
    const double *x, *y; /* [count]; points that are not finite are left out, and part the line */
    size_t count;
    bool is_area; /* filled down to 0 */
} tr_svg_series_t;

typedef struct {
    const char *x_label, *y_label;
    double y_min, y_max; /* NaN: by the data */
    bool has_log_y;      /* only values above 0 are drawn */
    bool has_log_x;      /* the same; marked at powers of 2 */
} tr_svg_chart_t;

/* Appends "<svg ...</svg>". Nothing if no point can be drawn. */
void tr_svg_draw(const tr_svg_chart_t *chart, const tr_svg_series_t *series, size_t count,
                 tr_str_t *out);
/* Appends one image of the charts that tr_svg_draw made, one below the other. Empty ones are left
 * out: a single one is the image, and none is nothing. */
void tr_svg_stack(const tr_str_t *charts, size_t count, tr_str_t *out);

#endif
