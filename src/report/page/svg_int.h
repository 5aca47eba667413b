/* The axes of a chart. Private to src/report. */
#ifndef TR_REPORT_SVG_INT_H
#define TR_REPORT_SVG_INT_H

#include "svg.h"

enum { TR_SVG_VALUES = 64 };

/* Values low .. high from pixel `from` to pixel `to`. Begin with tr_svg_axis_begin, add all values,
 * then fit. */
typedef struct {
    tr_svg_scale_t scale;
    double low, high, from, to;
    const char *const *names;
    double value[TR_SVG_VALUES]; /* ascending; of sizes and categories */
    int values;
} tr_svg_axis_t;

tr_svg_axis_t tr_svg_axis_begin(tr_svg_scale_t scale);
/* Whether the axis has a place for the value. */
bool tr_svg_axis_has(const tr_svg_axis_t *axis, double value);
void tr_svg_axis_add(tr_svg_axis_t *axis, double value);
/* Gives the axis an extent: to whole ticks if is_rounded. */
void tr_svg_axis_fit(tr_svg_axis_t *axis, bool is_rounded, bool from_zero, double high);
/* The pixel of a value, which is moved into the extent of the axis. */
double tr_svg_axis_at(const tr_svg_axis_t *axis, double value);
/* The distance in pixels between two categories. */
double tr_svg_axis_step(const tr_svg_axis_t *axis);
/* The next tick behind `value` (NaN: the first); NaN behind the last. */
double tr_svg_axis_next(const tr_svg_axis_t *axis, double value);
/* The text of a tick, in `text` or borrowed. */
const char *tr_svg_axis_text(const tr_svg_axis_t *axis, double value, char text[32]);

#endif
