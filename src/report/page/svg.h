/* Charts as SVG, drawn without another program. Their colours follow the light or dark scheme of the
 * reader. Pure functions. */
#ifndef TR_REPORT_SVG_H
#define TR_REPORT_SVG_H

#include "base/str.h"
#include <stdbool.h>

/* What a series shows (svg_roles.def), which decides its colour. */
typedef enum {
#define SVG_ROLE(NAME, ...) TR_SHOWS_##NAME,
#include "svg_roles.def"
#undef SVG_ROLE
    TR_SHOWS_COUNT
} tr_svg_role_t;
enum { TR_RUN_ROLES = TR_SHOWS_RUN_8 - TR_SHOWS_RUN_1 + 1 };

typedef enum {
    TR_SVG_LINE,  /* with `low` and `high`, also error bars; a short one has markers */
    TR_SVG_RULE,  /* a line without markers */
    TR_SVG_THIN,  /* the same, behind the others */
    TR_SVG_BAND,  /* from `low` to `high` */
    TR_SVG_AREA,  /* stacked on the areas that come before it and have the same x */
    TR_SVG_BAR,   /* the same, as bars */
    TR_SVG_COLUMN /* bars from 0, beside those of the other series */
} tr_svg_kind_t;

typedef struct {
    const char *title; /* in the legend; NULL: not there */
    tr_svg_role_t role;
    int variant; /* other dashes and markers than those of the role: 0 to 3 */
    tr_svg_kind_t kind;
    const double *x, *y; /* [count]; points that are not finite are left out, and part a line */
    const double *low, *high; /* [count]; NULL: none */
    size_t count;
    bool is_joined; /* points that are left out do not part the line */
} tr_svg_series_t;

/* Logarithmic axes have only values above 0; other points are left out. */
typedef enum {
    TR_SVG_LINEAR,
    TR_SVG_LOG,       /* marked at 1, 2 and 5 times powers of 10, or at these powers */
    TR_SVG_LOG2,      /* marked at powers of 2 */
    TR_SVG_SIZES,     /* logarithmic, marked at the values themselves */
    TR_SVG_CATEGORIES /* the values themselves, at equal distances */
} tr_svg_scale_t;

typedef struct {
    const char *title; /* NULL: none */
    const char *x_label, *y_label;
    tr_svg_scale_t x_scale, y_scale;
    bool from_zero;             /* y; with areas and bars always */
    double y_max;               /* 0: by the data */
    const char *const *x_names; /* of the values 0, 1, ... of categories; NULL: numbers */
} tr_svg_chart_t;

/* Charts, one below the other. {0} initially; free the body. A failed allocation is in its status. */
typedef struct {
    tr_str_t body;
    int height;
} tr_svg_t;

/* Appends a chart whose first series lies on top. Nothing if no point can be drawn. */
void tr_svg_add(tr_svg_t *svg, const tr_svg_chart_t *chart, const tr_svg_series_t *series,
                size_t count);
/* Appends the charts as one <svg> element: a file of its own, or a part of a page that has the text
 * of tr_svg_style. Nothing if there is no chart. */
void tr_svg_write(const tr_svg_t *svg, bool is_file, tr_str_t *out);
/* Appends one chart as a part of a page. */
void tr_svg_draw(const tr_svg_chart_t *chart, const tr_svg_series_t *series, size_t count,
                 tr_str_t *out);
/* Appends a piece of a line of this role, for a legend outside of charts. */
void tr_svg_swatch(tr_svg_role_t role, tr_str_t *out);
/* Appends the style sheet of all charts. */
void tr_svg_style(tr_str_t *out);

#endif
