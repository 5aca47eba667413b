/* Draws charts as SVG. */
#include "svg_int.h"

#include "html.h"
#include <math.h>

/* Pixels. A chart is as high as its title and its legend need. */
enum { WIDTH = 480, PLOT = 200, RIGHT = 16, BOTTOM = 42, LINE = 17, MARGIN = 8 };
enum { SHORT = 20, BAR_MOST = 56, LETTER = 7, TICK_ROW = 13, TICK_ROWS = 3 };

typedef struct {
    const tr_svg_series_t *series;
    size_t count;
    tr_svg_axis_t x, y;
    tr_str_t *out;
} svg_t;

static const char *const role_class[] = {
#define SVG_ROLE(NAME, class, ...) #class,
#include "svg_roles.def"
#undef SVG_ROLE
};
static const int role_variant[] = {
#define SVG_ROLE(NAME, class, light, dark, variant) variant,
#include "svg_roles.def"
#undef SVG_ROLE
};

static int series_variant(const tr_svg_series_t *s) {
    return (role_variant[s->role] + s->variant) & 3;
}

/* From 0 or from the series below on. */
static bool series_is_filled(const tr_svg_series_t *s) {
    return s->kind >= TR_SVG_AREA;
}

/* -- points ------------------------------------------------------------------------------------ */

/* What a series shows at one x: y, or from low to high; NaN: nothing. */
typedef struct {
    double x, y, low, high;
} svg_point_t;

static double svg_or_zero(double value) {
    return value > 0 && isfinite(value) ? value : 0;
}

static svg_point_t svg_point(const svg_t *svg, size_t s, size_t i) {
    const tr_svg_series_t *series = &svg->series[s];
    svg_point_t p = {series->x[i], NAN, NAN, NAN};
    if (series_is_filled(series)) {
        p.low = 0;
        for (size_t below = 0; below < s; below++)
            if (svg->series[below].kind == series->kind && series->kind != TR_SVG_COLUMN)
                p.low += svg_or_zero(svg->series[below].y[i]);
        p.high = p.low + svg_or_zero(series->y[i]);
        if (!isfinite(series->y[i])) p.x = NAN;
        return p;
    }
    if (series->kind != TR_SVG_BAND) p.y = series->y[i];
    if (series->low && series->high) p.low = series->low[i], p.high = series->high[i];
    return p;
}

static bool svg_has_y(const svg_t *svg, const svg_point_t *p) {
    return tr_svg_axis_has(&svg->x, p->x) && tr_svg_axis_has(&svg->y, p->y);
}

static bool svg_has_range(const svg_t *svg, const svg_point_t *p) {
    return tr_svg_axis_has(&svg->x, p->x) && tr_svg_axis_has(&svg->y, p->low) &&
           tr_svg_axis_has(&svg->y, p->high);
}

/* Adds the points of a series to the axes. Returns their number. */
static size_t svg_add_points(svg_t *svg, size_t s) {
    size_t points = 0;
    for (size_t i = 0; i < svg->series[s].count; i++) {
        const svg_point_t p = svg_point(svg, s, i);
        const bool has_y = svg_has_y(svg, &p), has_range = svg_has_range(svg, &p);
        if (!has_y && !has_range) continue;
        tr_svg_axis_add(&svg->x, p.x);
        if (has_y) tr_svg_axis_add(&svg->y, p.y);
        if (has_range) tr_svg_axis_add(&svg->y, p.low), tr_svg_axis_add(&svg->y, p.high);
        points++;
    }
    return points;
}

static bool svg_has_points(const svg_t *svg, size_t s) {
    for (size_t i = 0; i < svg->series[s].count; i++) {
        const svg_point_t p = svg_point(svg, s, i);
        if (svg_has_y(svg, &p) || svg_has_range(svg, &p)) return true;
    }
    return false;
}

/* Few points are marked: a single one has no line. */
static bool svg_has_markers(const svg_t *svg, size_t s) {
    int points = 0;
    for (size_t i = 0; i < svg->series[s].count && points < SHORT; i++) {
        const svg_point_t p = svg_point(svg, s, i);
        points += svg_has_y(svg, &p);
    }
    return points < SHORT;
}

/* -- text -------------------------------------------------------------------------------------- */

/* Pixels that a text takes in most fonts. */
static int svg_text_width(const char *text) {
    int width = 0, bytes;
    uint32_t letter;
    for (; (bytes = tr_utf8_decode(text, &letter)) > 0; text += bytes)
        width += letter < 0x1100 ? LETTER : 2 * LETTER;
    return width;
}

static void svg_text(tr_str_t *out, double x, double y, const char *attributes, const char *text) {
    tr_str_printf(out, "<text x='%.1f' y='%.1f'%s>", x, y, attributes);
    tr_html_text(out, text);
    tr_str_append(out, "</text>\n");
}

/* As much of a text as there is room for. */
static void svg_text_short(tr_str_t *out, double x, double y, const char *text, int room) {
    tr_str_t cut = {0};
    int width = 2 * LETTER, bytes;
    uint32_t letter;
    if (svg_text_width(text) <= room) {
        svg_text(out, x, y, "", text);
        return;
    }
    for (const char *at = text; (bytes = tr_utf8_decode(at, &letter)) > 0; at += bytes) {
        width += letter < 0x1100 ? LETTER : 2 * LETTER;
        if (width > room) break;
        tr_str_append_bytes(&cut, at, (size_t)bytes);
    }
    tr_str_printf(out, "<text x='%.1f' y='%.1f'><title>", x, y);
    tr_html_text(out, text);
    tr_str_append(out, "</title>");
    tr_html_text(out, cut.text ? cut.text : "");
    tr_str_append(out, "\xe2\x80\xa6</text>\n");
    if (cut.status != TR_OK) out->status = cut.status;
    tr_str_free(&cut);
}

/* -- axes -------------------------------------------------------------------------------------- */

static int svg_axis_width(const tr_svg_axis_t *y) {
    char text[32];
    int most = 0;
    for (double v = tr_svg_axis_next(y, NAN); !isnan(v); v = tr_svg_axis_next(y, v)) {
        const int width = svg_text_width(tr_svg_axis_text(y, v, text));
        if (width > most) most = width;
    }
    return most;
}

/* The middle of the text of a tick of x, and its row, where it does not overlap the texts before it, whose
 * ends are `end`. Sizes have several rows. Returns whether there is room. */
static bool svg_place_tick(const svg_t *svg, double value, double end[TICK_ROWS], double *center,
                           int *row) {
    char text[32];
    const double half = svg_text_width(tr_svg_axis_text(&svg->x, value, text)) / 2.0;
    const int rows = svg->x.scale == TR_SVG_SIZES ? TICK_ROWS : 1;
    *center = fmin(tr_svg_axis_at(&svg->x, value), WIDTH - 2 - half);
    for (*row = 0; *row < rows; ++*row)
        if (*center - half >= end[*row]) {
            end[*row] = *center + half + LETTER;
            return true;
        }
    return false;
}

/* Pixels that the rows of ticks below the first one take. */
static int svg_more_rows(const svg_t *svg) {
    double end[TICK_ROWS] = {0}, center;
    int most = 0, row;
    for (double v = tr_svg_axis_next(&svg->x, NAN); !isnan(v); v = tr_svg_axis_next(&svg->x, v))
        if (svg_place_tick(svg, v, end, &center, &row) && row > most) most = row;
    return most * TICK_ROW;
}

static void svg_draw_axes(const svg_t *svg, const tr_svg_chart_t *chart) {
    const double left = svg->x.from, right = svg->x.to, bottom = svg->y.from, top = svg->y.to;
    double end[TICK_ROWS] = {0}, center;
    int row;
    char text[32];
    for (double v = tr_svg_axis_next(&svg->y, NAN); !isnan(v); v = tr_svg_axis_next(&svg->y, v)) {
        const double at = tr_svg_axis_at(&svg->y, v);
        tr_str_printf(svg->out, "<path class='grid' d='M%.1f %.1fH%.1f'/>", left, at, right);
        svg_text(svg->out, left - 6, at + 4, " text-anchor='end'",
                 tr_svg_axis_text(&svg->y, v, text));
    }
    for (double v = tr_svg_axis_next(&svg->x, NAN); !isnan(v); v = tr_svg_axis_next(&svg->x, v)) {
        if (!svg_place_tick(svg, v, end, &center, &row)) continue;
        tr_str_printf(svg->out, "<path class='grid' d='M%.1f %.1fV%.1f'/>",
                      tr_svg_axis_at(&svg->x, v), bottom, top);
        svg_text(svg->out, center, bottom + 16 + row * TICK_ROW, " text-anchor='middle'",
                 tr_svg_axis_text(&svg->x, v, text));
    }
    tr_str_printf(svg->out, "<path class='frame' d='M%.1f %.1fV%.1fH%.1f'/>\n", left, top, bottom,
                  right);
    svg_text(svg->out, (left + right) / 2, bottom + 34 + svg_more_rows(svg),
             " text-anchor='middle'", chart->x_label);
    tr_str_printf(svg->out, "<g transform='translate(14 %.1f) rotate(-90)'>", (top + bottom) / 2);
    svg_text(svg->out, 0, 0, " text-anchor='middle'", chart->y_label);
    tr_str_append(svg->out, "</g>\n");
}

/* -- series ------------------------------------------------------------------------------------ */

/* A line that is drawn column of pixels by column: of each, its first and last point and the
 * extremes between them. */
typedef struct {
    double x, y;
} pixel_t;

typedef struct {
    pixel_t first, low, high, last;
    int count;
    bool is_down; /* a line leads to this column */
} svg_pen_t;

static void pen_lift(svg_pen_t *pen, tr_str_t *out) {
    const pixel_t points[] = {pen->first, pen->low, pen->high, pen->last};
    for (int i = 0; i < 4; i++) {
        const int least = (int[]){1, 3, 3, 2}[i]; /* points of which this is not another one */
        if (pen->count < least) continue;
        tr_str_printf(out, "%c%.1f %.1f", pen->is_down ? 'L' : 'M', points[i].x, points[i].y);
        pen->is_down = true;
    }
    pen->count = 0;
}

static const char *const dashes[] = {"", " stroke-dasharray='7 4'", " stroke-dasharray='2 3'",
                                     " stroke-dasharray='9 3 2 3'"};

static void svg_draw_line(const svg_t *svg, size_t s) {
    const tr_svg_series_t *series = &svg->series[s];
    svg_pen_t pen = {0};
    tr_str_printf(svg->out, "<path class='%s'%s d='", series->kind == TR_SVG_THIN ? "thin" : "line",
                  dashes[series_variant(series)]);
    for (size_t i = 0; i < series->count; i++) {
        const svg_point_t p = svg_point(svg, s, i);
        if (svg_has_y(svg, &p)) {
            const pixel_t to = {tr_svg_axis_at(&svg->x, p.x), tr_svg_axis_at(&svg->y, p.y)};
            if (pen.count > 0 && floor(to.x) != floor(pen.last.x)) pen_lift(&pen, svg->out);
            if (pen.count == 0) pen.first = pen.low = pen.high = to;
            if (to.y < pen.low.y) pen.low = to;
            if (to.y > pen.high.y) pen.high = to;
            pen.last = to;
            pen.count++;
        } else if (!series->is_joined) {
            pen_lift(&pen, svg->out);
            pen.is_down = false;
        }
    }
    pen_lift(&pen, svg->out);
    tr_str_append(svg->out, "'/>\n");
}

static void svg_draw_marker(tr_str_t *out, int variant, double x, double y) {
    static const char *const paths[] = {NULL, "m-3 -3h6v6h-6z", "m0 -4l4 7h-8z",
                                        "m0 -4l4 4l-4 4l-4 -4z"};
    if (variant == 0)
        tr_str_printf(out, "<circle cx='%.1f' cy='%.1f' r='3'/>\n", x, y);
    else
        tr_str_printf(out, "<path class='mark' d='M%.1f %.1f%s'/>\n", x, y, paths[variant]);
}

static void svg_draw_points(const svg_t *svg, size_t s) {
    const tr_svg_series_t *series = &svg->series[s];
    const bool has_markers = svg_has_markers(svg, s);
    for (size_t i = 0; i < series->count; i++) {
        const svg_point_t p = svg_point(svg, s, i);
        if (!svg_has_y(svg, &p)) continue;
        const double x = tr_svg_axis_at(&svg->x, p.x);
        if (svg_has_range(svg, &p) && p.low < p.high)
            tr_str_printf(svg->out, "<path class='error' d='M%.1f %.1fh8m-4 0V%.1fm-4 0h8'/>\n",
                          x - 4, tr_svg_axis_at(&svg->y, p.low), tr_svg_axis_at(&svg->y, p.high));
        if (has_markers)
            svg_draw_marker(svg->out, series_variant(series), x, tr_svg_axis_at(&svg->y, p.y));
    }
}

/* One edge of a range, of each column of pixels the highest point; or back, the lowest. */
static void svg_draw_edge(const svg_t *svg, size_t s, bool is_back) {
    const size_t count = svg->series[s].count;
    pixel_t edge = {NAN, NAN};
    char command = is_back ? 'L' : 'M';
    for (size_t k = 0; k < count; k++) {
        const svg_point_t p = svg_point(svg, s, is_back ? count - 1 - k : k);
        if (!svg_has_range(svg, &p)) continue;
        const pixel_t to = {tr_svg_axis_at(&svg->x, p.x),
                            tr_svg_axis_at(&svg->y, is_back ? p.low : p.high)};
        if (floor(to.x) == floor(edge.x)) { /* pixels are counted downwards */
            edge.y = is_back ? fmax(edge.y, to.y) : fmin(edge.y, to.y);
            continue;
        }
        if (!isnan(edge.x)) {
            tr_str_printf(svg->out, "%c%.1f %.1f", command, edge.x, edge.y);
            command = 'L';
        }
        edge = to;
    }
    tr_str_printf(svg->out, "%c%.1f %.1f", command, edge.x, edge.y);
}

/* Without gaps. */
static void svg_draw_range(const svg_t *svg, size_t s) {
    tr_str_printf(svg->out, "<path class='%s' d='",
                  svg->series[s].kind == TR_SVG_BAND ? "band" : "area");
    svg_draw_edge(svg, s, false);
    svg_draw_edge(svg, s, true);
    tr_str_append(svg->out, "Z'/>\n");
}

static void svg_draw_bars(const svg_t *svg, size_t s) {
    const bool has_neighbours = svg->series[s].kind == TR_SVG_COLUMN;
    const double all = fmin(0.6 * tr_svg_axis_step(&svg->x), BAR_MOST),
                 width = has_neighbours ? all / (double)svg->count : all,
                 from = has_neighbours ? width * (double)s - all / 2 : -all / 2;
    for (size_t i = 0; i < svg->series[s].count; i++) {
        const svg_point_t p = svg_point(svg, s, i);
        if (!svg_has_range(svg, &p)) continue;
        const double low = tr_svg_axis_at(&svg->y, p.low), high = tr_svg_axis_at(&svg->y, p.high);
        tr_str_printf(svg->out,
                      "<rect class='area' x='%.1f' y='%.1f' width='%.1f' height='%.1f'/>\n",
                      tr_svg_axis_at(&svg->x, p.x) + from, high, width, low - high);
    }
}

/* -- the chart --------------------------------------------------------------------------------- */

static int legend_swatch(const tr_svg_series_t *s) {
    return s->kind < TR_SVG_BAND ? 22 : 14;
}

static void svg_draw_swatch(const svg_t *svg, size_t i, int x, int y) {
    const tr_svg_series_t *s = &svg->series[i];
    const int width = legend_swatch(s);
    tr_str_printf(svg->out, "<g class='p-%s'>", role_class[s->role]);
    if (s->kind >= TR_SVG_BAND)
        tr_str_printf(svg->out, "<rect class='%s' x='%d' y='%d' width='%d' height='10'/>",
                      s->kind == TR_SVG_BAND ? "band" : "area", x, y - 5, width);
    else
        tr_str_printf(svg->out, "<path class='line'%s d='M%d %dh%d'/>", dashes[series_variant(s)],
                      x, y, width);
    if (s->kind == TR_SVG_LINE && svg_has_markers(svg, i))
        svg_draw_marker(svg->out, series_variant(s), x + width / 2.0, y);
    tr_str_append(svg->out, "</g>");
}

void tr_svg_swatch(tr_svg_role_t role, tr_str_t *out) {
    tr_str_printf(out,
                  "<svg class='plot swatch p-%s' width='22' height='10' aria-hidden='true'>"
                  "<path class='line'%s d='M0 5h22'/></svg>",
                  role_class[role], dashes[role_variant[role]]);
}

/* Draws the legend, in as many lines as it needs. Returns the pixel below it. */
static int svg_draw_legend(const svg_t *svg, int top) {
    int at = MARGIN;
    bool is_empty = true;
    for (size_t i = 0; i < svg->count; i++) {
        const tr_svg_series_t *s = &svg->series[i];
        if (!s->title || !svg_has_points(svg, i)) continue;
        const int indent = legend_swatch(s) + 5, room = WIDTH - 2 * MARGIN - indent,
                  width = svg_text_width(s->title), taken = width < room ? width : room;
        if (at > MARGIN && at + indent + taken > WIDTH - MARGIN) at = MARGIN, top += LINE;
        svg_draw_swatch(svg, i, at, top + 8);
        svg_text_short(svg->out, at + indent, top + 12, s->title, room);
        at += indent + taken + 2 * LETTER;
        is_empty = false;
    }
    return is_empty ? top : top + LINE;
}

static void svg_draw_series(const svg_t *svg, size_t s) {
    const tr_svg_series_t *series = &svg->series[s];
    if (!svg_has_points(svg, s)) return;
    tr_str_printf(svg->out, "<g class='p-%s'>", role_class[series->role]);
    if (series->kind >= TR_SVG_BAR)
        svg_draw_bars(svg, s);
    else if (series->kind == TR_SVG_AREA || series->kind == TR_SVG_BAND)
        svg_draw_range(svg, s);
    else
        svg_draw_line(svg, s);
    if (series->kind == TR_SVG_LINE) svg_draw_points(svg, s);
    tr_str_append(svg->out, "</g>\n");
}

/* Draws the series of these kinds, the first on top. */
static void svg_draw_kinds(const svg_t *svg, tr_svg_kind_t first, tr_svg_kind_t last) {
    for (size_t s = svg->count; s-- > 0;)
        if (svg->series[s].kind >= first && svg->series[s].kind <= last) svg_draw_series(svg, s);
}

void tr_svg_add(tr_svg_t *file, const tr_svg_chart_t *chart, const tr_svg_series_t *series,
                size_t count) {
    tr_str_t *out = &file->body;
    svg_t svg = {series, count, tr_svg_axis_begin(chart->x_scale),
                 tr_svg_axis_begin(chart->y_scale), out};
    bool from_zero = chart->from_zero;
    size_t points = 0;
    svg.x.names = chart->x_names;
    for (size_t s = 0; s < count; s++) {
        points += svg_add_points(&svg, s);
        from_zero |= series_is_filled(&series[s]);
    }
    if (points == 0) return;
    tr_svg_axis_fit(&svg.x, false, false, 0);
    tr_svg_axis_fit(&svg.y, true, from_zero, chart->y_max);
    tr_str_printf(out, "<g role='img' aria-label='");
    tr_html_text(out, chart->title ? chart->title : chart->y_label);
    tr_str_printf(out, "' transform='translate(0 %d)'>\n", file->height);
    int top = MARGIN / 2;
    if (chart->title) {
        svg_text(out, MARGIN, top + 13, " class='title'", chart->title);
        top += LINE + 3;
    }
    top = svg_draw_legend(&svg, top) + MARGIN;
    svg.x.from = 24 + svg_axis_width(&svg.y) + 6, svg.x.to = WIDTH - RIGHT;
    svg.y.from = top + PLOT, svg.y.to = top;
    svg_draw_kinds(&svg, TR_SVG_BAND, TR_SVG_AREA);
    svg_draw_axes(&svg, chart);
    svg_draw_kinds(&svg, TR_SVG_BAR, TR_SVG_COLUMN);
    svg_draw_kinds(&svg, TR_SVG_THIN, TR_SVG_THIN);
    svg_draw_kinds(&svg, TR_SVG_LINE, TR_SVG_RULE);
    tr_str_append(out, "</g>\n");
    file->height += top + PLOT + BOTTOM + svg_more_rows(&svg);
}

void tr_svg_write(const tr_svg_t *svg, bool is_file, tr_str_t *out) {
    if (svg->body.status != TR_OK) out->status = svg->body.status;
    if (svg->height == 0) return;
    tr_str_printf(out,
                  "<svg xmlns='http://www.w3.org/2000/svg' class='plot' viewBox='0 0 %d %d' "
                  "width='%d' height='%d'>\n",
                  WIDTH, svg->height, WIDTH, svg->height);
    if (is_file) {
        tr_str_append(out, "<style>\n");
        tr_svg_style(out);
        tr_str_append(out, "</style>\n<rect class='ground' width='100%' height='100%'/>\n");
    }
    if (svg->body.text) tr_str_append_bytes(out, svg->body.text, svg->body.length);
    tr_str_append(out, "</svg>\n");
}

void tr_svg_draw(const tr_svg_chart_t *chart, const tr_svg_series_t *series, size_t count,
                 tr_str_t *out) {
    tr_svg_t svg = {0};
    tr_svg_add(&svg, chart, series, count);
    tr_svg_write(&svg, false, out);
    tr_str_free(&svg.body);
}
