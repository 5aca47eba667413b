/* Plots by gnuplot, as SVG text for a page. gnuplot is started without a shell and reads its script
 * from an unnamed file. Not collective. */
#ifndef TR_REPORT_PLOT_H
#define TR_REPORT_PLOT_H

#include "base/str.h"

/* {0} initially. Switched off when gnuplot fails for the first time. */
typedef struct {
    int width, height; /* of a plot; 0: 560 x 300 */
    int drawn;
    bool is_off;
    char why[256]; /* why there are no plots, one line */
} tr_plotter_t;

/* Appends the <svg> element that gnuplot draws from `script`, which does not include `set
 * terminal`. If gnuplot is missing or fails, appends nothing and switches the plotter off. */
void tr_plot_draw(tr_plotter_t *plotter, const char *script, tr_str_t *out);

#endif
