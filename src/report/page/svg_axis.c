/* The axes of a chart: extents, ticks and their texts. */
#include "svg_int.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MOST_TICKS = 8 };
/* Values beyond these cannot be drawn: differences and powers of ten of them would overflow. */
#define LEAST 1e-300
#define MOST  1e300

static bool axis_is_log(const tr_svg_axis_t *axis) {
    return axis->scale == TR_SVG_LOG || axis->scale == TR_SVG_LOG2 || axis->scale == TR_SVG_SIZES;
}

tr_svg_axis_t tr_svg_axis_begin(tr_svg_scale_t scale) {
    return (tr_svg_axis_t){.scale = scale, .low = DBL_MAX, .high = -DBL_MAX};
}

bool tr_svg_axis_has(const tr_svg_axis_t *axis, double value) {
    return isfinite(value) && fabs(value) <= MOST && (!axis_is_log(axis) || value >= LEAST);
}

void tr_svg_axis_add(tr_svg_axis_t *axis, double value) {
    int at = axis->values;
    axis->low = fmin(axis->low, value);
    axis->high = fmax(axis->high, value);
    if (axis->scale != TR_SVG_SIZES && axis->scale != TR_SVG_CATEGORIES) return;
    while (at > 0 && axis->value[at - 1] > value) at--;
    if (at > 0 && axis->value[at - 1] == value) return;
    if (axis->values == TR_SVG_VALUES) { /* too many to mark each */
        axis->scale = axis->scale == TR_SVG_SIZES ? TR_SVG_LOG2 : TR_SVG_LINEAR;
        return;
    }
    memmove(axis->value + at + 1, axis->value + at,
            (size_t)(axis->values - at) * sizeof axis->value[0]);
    axis->value[at] = value;
    axis->values++;
}

/* -- ticks ------------------------------------------------------------------------------------- */

/* 1, 2 or 5 times a power of ten, so that there are at most MOST_TICKS ticks. */
static double axis_linear_step(double range) {
    const double least = range / MOST_TICKS, power = pow(10, floor(log10(least)));
    for (int i = 0; i < 3; i++)
        if ((double[]){1, 2, 5}[i] * power >= least) return (double[]){1, 2, 5}[i] * power;
    return 10 * power;
}

/* The factor between ticks of a logarithmic axis; 0: they are 1, 2 and 5 times powers of ten. */
static double axis_log_factor(const tr_svg_axis_t *axis) {
    const double base = axis->scale == TR_SVG_LOG2 ? 2 : 10,
                 powers = (log(axis->high) - log(axis->low)) / log(base);
    if (base == 10 && powers < 2.5) return 0;
    return pow(base, ceil(powers / MOST_TICKS - 1e-9));
}

/* The largest tick up to `value`, and the next one: 1, 2 or 5 times a power of ten. */
static double axis_125_below(double value) {
    const double power = pow(10, floor(log10(value) + 1e-9)), part = value / power * (1 + 1e-9);
    return power * (part >= 5 ? 5 : part >= 2 ? 2 : 1);
}

static double axis_125_next(double value) {
    const double power = pow(10, floor(log10(value) + 1e-9)), part = value / power;
    return power * (part < 1.5 ? 2 : part < 3.5 ? 5 : 10);
}

double tr_svg_axis_next(const tr_svg_axis_t *axis, double value) {
    const double low = axis->low, above = axis->high * (1 + 1e-9);
    double next;
    if (axis->scale == TR_SVG_SIZES || axis->scale == TR_SVG_CATEGORIES) {
        for (int i = 0; i < axis->values; i++)
            if (isnan(value) || axis->value[i] > value) return axis->value[i];
        return NAN;
    }
    if (!axis_is_log(axis)) {
        const double step = axis_linear_step(axis->high - low);
        next = isnan(value) ? step * ceil(low / step - 1e-9) : value + step;
        if (fabs(next) < 1e-9 * step) next = 0;
        if (next == value) return NAN; /* the step is below the precision of the values */
        return next <= axis->high + 1e-9 * step ? next : NAN;
    }
    const double factor = axis_log_factor(axis), base = axis->scale == TR_SVG_LOG2 ? 2 : 10;
    if (factor == 0) {
        next = isnan(value) ? axis_125_below(low) : axis_125_next(value);
        if (next < low * (1 - 1e-9)) next = axis_125_next(next);
    } else {
        next = isnan(value) ? pow(base, ceil(log(low) / log(base) - 1e-9)) : value * factor;
    }
    return next <= above ? next : NAN;
}

const char *tr_svg_axis_text(const tr_svg_axis_t *axis, double value, char text[32]) {
    static const struct {
        double size;
        const char *letter;
    } units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    const bool is_linear = axis->scale == TR_SVG_LINEAR,
               is_exact = axis->scale == TR_SVG_SIZES || axis->scale == TR_SVG_CATEGORIES;
    const double largest = is_linear ? fmax(fabs(axis->low), fabs(axis->high)) : fabs(value),
                 shortest = is_exact ? 1e6 : 1e4; /* sizes are known by their digits */
    double size = 1;
    const char *letter = "";
    int digits = is_exact ? 6 : 4;
    if (axis->names) return axis->names[(int)value];
    for (size_t i = 0; i < sizeof units / sizeof units[0] && size == 1; i++)
        if (largest >= fmax(units[i].size, shortest) && largest < 1e15)
            size = units[i].size, letter = units[i].letter;
    if (is_linear) { /* neighbours differ in the last digit */
        const double step = axis_linear_step(axis->high - axis->low);
        digits = (int)fmin(fmax(digits, floor(log10(largest / step) + 1e-9) + 2), 15);
    }
    tr_snprintf(text, 32, "%.*g%s", digits, value / size, value == 0 ? "" : letter);
    return text;
}

/* -- extent ------------------------------------------------------------------------------------ */

static void axis_fit_log(tr_svg_axis_t *axis, bool is_rounded) {
    if (axis->scale == TR_SVG_SIZES) {
        const double room = exp(fmin(fmax(0.05 * (log(axis->high) - log(axis->low)), 0.1), 10));
        axis->low /= room;
        axis->high *= room;
        return;
    }
    if (axis->high <= axis->low * (1 + 1e-9)) axis->low /= 1.5, axis->high *= 1.5;
    if (!is_rounded) return;
    if (axis->scale == TR_SVG_LOG2) {
        axis->low = exp2(floor(log2(axis->low) + 1e-9));
        axis->high = exp2(ceil(log2(axis->high) - 1e-9));
        return;
    }
    const double below = axis_125_below(axis->high);
    axis->low = axis_125_below(axis->low);
    if (below < axis->high * (1 - 1e-9)) axis->high = axis_125_next(below);
    if (axis_log_factor(axis) == 0) return;
    axis->low = pow(10, floor(log10(axis->low) + 1e-9));
    axis->high = pow(10, ceil(log10(axis->high) - 1e-9));
}

void tr_svg_axis_fit(tr_svg_axis_t *axis, bool is_rounded, bool from_zero, double high) {
    if (axis_is_log(axis)) {
        axis_fit_log(axis, is_rounded);
        return;
    }
    if (axis->scale == TR_SVG_CATEGORIES) return;
    if (from_zero) axis->low = fmin(axis->low, 0);
    if (high > axis->low) axis->high = high;
    const double size = fmax(fabs(axis->low), fabs(axis->high));
    if (axis->high - axis->low <= fmax(1e-9 * size, LEAST / 1e5)) {
        const double room = size >= LEAST ? 0.1 * size : 1;
        if (!from_zero) axis->low -= room;
        axis->high += room;
    }
    if (!is_rounded) return;
    const double step = axis_linear_step(axis->high - axis->low);
    axis->low = step * floor(axis->low / step + 1e-9);
    if (!(high > axis->low)) axis->high = step * ceil(axis->high / step - 1e-9);
}

double tr_svg_axis_step(const tr_svg_axis_t *axis) {
    return fabs(axis->to - axis->from) / fmax(axis->values, 1);
}

double tr_svg_axis_at(const tr_svg_axis_t *axis, double value) {
    double low = axis->low, high = axis->high, v = fmin(fmax(value, low), high);
    if (axis->scale == TR_SVG_CATEGORIES) {
        int i = 0;
        while (i < axis->values - 1 && axis->value[i] < v) i++;
        return axis->from + (i + 0.5) / axis->values * (axis->to - axis->from);
    }
    if (axis_is_log(axis)) low = log(low), high = log(high), v = log(v);
    return axis->from + (v - low) / (high - low) * (axis->to - axis->from);
}
