/* Draws line charts as SVG. */
#include "svg.h"

#include "html.h"
#include <float.h>
#include <math.h>

enum { WIDTH = 560, HEIGHT = 300, LEFT = 64, RIGHT = 16, TOP = 30, BOTTOM = 44 };
enum { MAX_TICKS = 8 };

/* An axis: values low .. high from pixel `from` to pixel `to`. */
typedef struct {
    double low, high, from, to;
    double base; /* of a logarithmic axis, which is marked at its powers; 0: linear */
} svg_axis_t;

static double svg_at(const svg_axis_t *axis, double value) {
    const double low = axis->base > 0 ? log10(axis->low) : axis->low,
                 high = axis->base > 0 ? log10(axis->high) : axis->high,
                 v = axis->base > 0 ? log10(value) : value;
    return axis->from + (v - low) / (high - low) * (axis->to - axis->from);
}

static bool svg_has(const tr_svg_chart_t *chart, double x, double y) {
    return isfinite(x) && isfinite(y) && (!chart->has_log_x || x > 0) &&
           (!chart->has_log_y || y > 0);
}

/* 1, 2 or 5 times a power of ten, so that there are at most MAX_TICKS ticks. */
static double svg_tick_step(double range) {
    const double least = range / MAX_TICKS, power = pow(10, floor(log10(least)));
    for (int i = 0; i < 3; i++)
        if ((double[]){1, 2, 5}[i] * power >= least) return (double[]){1, 2, 5}[i] * power;
    return 10 * power;
}

/* Widens an axis to whole ticks. */
static void svg_axis_round(svg_axis_t *axis, bool low_is_fixed, bool high_is_fixed) {
    if (axis->base > 0) {
        axis->low = pow(10, floor(log10(axis->low)));
        axis->high = pow(10, ceil(log10(axis->high)));
        if (axis->high <= axis->low) axis->high = 10 * axis->low;
        return;
    }
    const double least = 1e-9 * fmax(fabs(axis->low), fabs(axis->high));
    if (axis->high - axis->low <= least) {
        const double room = axis->low != 0 ? 0.1 * fabs(axis->low) : 1;
        if (!low_is_fixed) axis->low -= room;
        axis->high += room;
    }
    const double step = svg_tick_step(axis->high - axis->low);
    if (!low_is_fixed) axis->low = step * floor(axis->low / step + 1e-9);
    if (!high_is_fixed) axis->high = step * ceil(axis->high / step - 1e-9);
}

/* The next tick behind `value` (NaN: the first); NaN behind the last. */
static double svg_axis_next(const svg_axis_t *axis, double value) {
    const bool is_log = axis->base > 0;
    const double unit = is_log ? log(axis->base) : 1,
                 powers = (log(axis->high) - log(axis->low)) / unit,
                 step = is_log ? pow(axis->base, ceil(powers / MAX_TICKS - 1e-9))
                               : svg_tick_step(axis->high - axis->low);
    double next;
    if (is_log)
        next = isnan(value) ? pow(axis->base, ceil(log(axis->low) / unit - 1e-9)) : value * step;
    else
        next = isnan(value) ? step * ceil(axis->low / step - 1e-9) : value + step;
    if (!is_log && fabs(next) < 1e-9 * step) next = 0;
    if (next == value) return NAN; /* the step is below the precision of the values */
    return next <= axis->high * (1 + 1e-9) + (is_log ? 0 : 1e-9 * step) ? next : NAN;
}

/* "1.2M": there is little room beside an axis. */
static const char *svg_tick_text(double value, char text[32]) {
    const double size = fabs(value);
    if (size >= 1e6 && size < 1e12)
        tr_snprintf(text, 32, "%.4gM", value / 1e6);
    else
        tr_snprintf(text, 32, size >= 1e4 && size < 1e6 ? "%.4gk" : "%.6g",
                    size >= 1e4 && size < 1e6 ? value / 1e3 : value);
    return text;
}

static void svg_draw_axes(const tr_svg_chart_t *chart, const svg_axis_t *x, const svg_axis_t *y,
                          tr_str_t *out) {
    const double left = x->from, right = x->to, bottom = y->from, top = y->to;
    char text[32];
    for (double v = svg_axis_next(y, NAN); !isnan(v); v = svg_axis_next(y, v)) {
        tr_str_printf(out,
                      "<path d='M%.1f %.1fH%.1f' stroke='#ddd'/><text x='%.1f' y='%.1f' "
                      "text-anchor='end'>%s</text>\n",
                      left, svg_at(y, v), right, left - 6, svg_at(y, v) + 4,
                      svg_tick_text(v, text));
    }
    for (double v = svg_axis_next(x, NAN); !isnan(v); v = svg_axis_next(x, v))
        tr_str_printf(out,
                      "<path d='M%.1f %.1fV%.1f' stroke='#ddd'/><text x='%.1f' y='%.1f' "
                      "text-anchor='middle'>%s</text>\n",
                      svg_at(x, v), bottom, top, svg_at(x, v), bottom + 16, svg_tick_text(v, text));
    tr_str_printf(out, "<path d='M%.1f %.1fV%.1fH%.1f' stroke='#555' fill='none'/>\n", left, top,
                  bottom, right);
    tr_str_printf(out, "<text x='%.1f' y='%d' text-anchor='middle'>", (left + right) / 2,
                  HEIGHT - 8);
    tr_html_text(out, chart->x_label);
    tr_str_printf(out,
                  "</text>\n<text transform='translate(10 %.1f) rotate(-90)' "
                  "text-anchor='middle'>",
                  (top + bottom) / 2);
    tr_html_text(out, chart->y_label);
    tr_str_append(out, "</text>\n");
}

static void svg_draw_series(const tr_svg_chart_t *chart, const tr_svg_series_t *s,
                            const svg_axis_t *x, const svg_axis_t *y, tr_str_t *out) {
    bool is_down = false;
    double first = NAN, last = NAN;
    tr_str_append(out, "<path d='");
    for (size_t i = 0; i < s->count; i++) {
        if (!svg_has(chart, s->x[i], s->y[i])) {
            is_down = is_down && s->is_area; /* an area has no gaps */
            continue;
        }
        last = svg_at(x, s->x[i]);
        if (isnan(first)) first = last;
        tr_str_printf(out, "%c%.1f %.1f", is_down ? 'L' : 'M', last,
                      svg_at(y, fmin(fmax(s->y[i], y->low), y->high)));
        is_down = true;
    }
    if (s->is_area && !isnan(first))
        tr_str_printf(out, "L%.1f %.1fL%.1f %.1fZ' fill='%s'/>\n", last, y->from, first, y->from,
                      s->color);
    else
        tr_str_printf(out, "' stroke='%s' stroke-width='2' fill='none' stroke-linejoin='round'/>\n",
                      s->color);
    /* A single point has no line. */
    for (size_t i = 0; i < s->count && s->count < 20 && !s->is_area; i++)
        if (svg_has(chart, s->x[i], s->y[i]))
            tr_str_printf(out, "<circle cx='%.1f' cy='%.1f' r='2.5' fill='%s'/>\n",
                          svg_at(x, s->x[i]), svg_at(y, fmin(fmax(s->y[i], y->low), y->high)),
                          s->color);
}

/* In a second line where the first is full. */
static void svg_draw_legend(const tr_svg_series_t *series, size_t count, tr_str_t *out) {
    enum { LINE = 12 };
    double at = LEFT;
    int top = 6;
    for (size_t i = 0; i < count; i++) {
        size_t letters = 0;
        while (series[i].title[letters]) letters++;
        const double width = 34 + 6.5 * (double)letters;
        if (at > LEFT && at + width > WIDTH) at = LEFT, top += LINE;
        tr_str_printf(out,
                      "<rect x='%.1f' y='%d' width='14' height='8' fill='%s'/><text x='%.1f' "
                      "y='%d'>",
                      at, top, series[i].color, at + 18, top + 8);
        tr_html_text(out, series[i].title);
        tr_str_append(out, "</text>\n");
        at += width;
    }
}

void tr_svg_draw(const tr_svg_chart_t *chart, const tr_svg_series_t *series, size_t count,
                 tr_str_t *out) {
    svg_axis_t x = {DBL_MAX, -DBL_MAX, LEFT, WIDTH - RIGHT, chart->has_log_x ? 2 : 0},
               y = {DBL_MAX, -DBL_MAX, HEIGHT - BOTTOM, TOP, chart->has_log_y ? 10 : 0};
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < series[s].count; i++) {
            const double px = series[s].x[i], py = series[s].y[i];
            if (!svg_has(chart, px, py)) continue;
            x.low = fmin(x.low, px);
            x.high = fmax(x.high, px);
            y.low = fmin(y.low, py);
            y.high = fmax(y.high, py);
        }
    if (x.low > x.high) return;
    if (isfinite(chart->y_min)) y.low = chart->y_min;
    if (isfinite(chart->y_max)) y.high = chart->y_max;
    if (x.low == x.high && x.base > 0) x.low /= 2, x.high *= 2;
    if (x.low == x.high) x.low -= 1, x.high += 1;
    svg_axis_round(&y, isfinite(chart->y_min), isfinite(chart->y_max));
    tr_str_printf(out,
                  "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' "
                  "height='%d' font-family='sans-serif' font-size='12' fill='#333' "
                  "role='img'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
                  WIDTH, HEIGHT, WIDTH, HEIGHT);
    for (size_t s = 0; s < count; s++)
        if (series[s].is_area) svg_draw_series(chart, &series[s], &x, &y, out);
    svg_draw_axes(chart, &x, &y, out);
    for (size_t s = 0; s < count; s++)
        if (!series[s].is_area) svg_draw_series(chart, &series[s], &x, &y, out);
    svg_draw_legend(series, count, out);
    tr_str_append(out, "</svg>\n");
}

void tr_svg_stack(const tr_str_t *charts, size_t count, tr_str_t *out) {
    const tr_str_t *last = NULL;
    size_t drawn = 0, at = 0;
    for (size_t i = 0; i < count; i++)
        if (charts[i].text) drawn++, last = &charts[i];
    if (drawn == 1) tr_str_append(out, last->text);
    if (drawn <= 1) return;
    tr_str_printf(out,
                  "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %zu' width='%d' "
                  "height='%zu'>\n",
                  WIDTH, HEIGHT * drawn, WIDTH, HEIGHT * drawn);
    for (size_t i = 0; i < count; i++) {
        if (!charts[i].text) continue;
        tr_str_printf(out, "<g transform='translate(0 %zu)'>\n", HEIGHT * at++);
        tr_str_append(out, charts[i].text);
        tr_str_append(out, "</g>\n");
    }
    tr_str_append(out, "</svg>\n");
}
