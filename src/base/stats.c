/* Means and deviations of channels. */
#include "base/stats.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>

#define STEPS 256   /* rounding by more than this fraction of the range loses much */
#define NOISE 1e-13 /* error of the computation in doubles, relative to the largest number */

static void add_column(tr_stats_t *s, int64_t width, const double *values, int64_t rows) {
    double sum = 0, squares = 0;
    if (s->count == 0) s->min = s->max = s->mean = values[0];
    for (int64_t i = 0; i < rows; i++) {
        const double value = values[i * width], distance = value - s->mean,
                     rounding = fabs(value - (double)(float)value);
        if (value < s->min) s->min = value;
        if (value > s->max) s->max = value;
        if (rounding > s->rounding) s->rounding = rounding;
        sum += distance;
        squares += distance * distance;
    }
    s->count += rows;
    const double step = sum / (double)s->count;
    s->mean += step;
    s->squares += squares - sum * step; /* about the new mean */
    if (s->squares < 0) s->squares = 0;
}

void tr_stats_add(tr_stats_t *stats, int64_t width, const double *values, int64_t rows) {
    for (int64_t c = 0; c < width && rows > 0; c++) add_column(&stats[c], width, values + c, rows);
}

double tr_stats_deviation(const tr_stats_t *s) {
    return s->count > 0 ? sqrt(s->squares / (double)s->count) : 0;
}

bool tr_stats_is_rounded(const tr_stats_t *s) {
    const double range = s->max - s->min, largest = fmax(fabs(s->min), fabs(s->max));
    return range > NOISE * largest && s->rounding > range / STEPS;
}

const char *tr_stats_format_rounding(const tr_stats_t *s, char text[128]) {
    tr_snprintf(text, 128, "from %.15g to %.15g, and 32-bit floats round them by up to %.3g",
                s->min, s->max, s->rounding);
    return text;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void tr_sort(double *values, int64_t count) {
    qsort(values, (size_t)count, sizeof *values, ascending);
}
