/* Means and deviations of channels. */
#include "base/stats.h"
#include "base/mem.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>

#define STEPS 256   /* rounding by more than this fraction of the range loses much */
#define NOISE 1e-13 /* error of the computation in doubles, relative to the largest number */

static void stats_add_low(tr_stats_t *s, double value) {
    if (value > s->min) {
        s->above_min = value;
    } else if (value == s->min) {
        s->min_count++;
    } else {
        s->above_min = s->min;
        s->min = value;
        s->min_count = 1;
    }
}

static void stats_add_high(tr_stats_t *s, double value) {
    if (value < s->max) {
        s->below_max = value;
    } else if (value == s->max) {
        s->max_count++;
    } else {
        s->below_max = s->max;
        s->max = value;
        s->max_count = 1;
    }
}

static void stats_add_column(tr_stats_t *s, int64_t width, const double *values, int64_t rows) {
    double sum = 0, squares = 0;
    if (s->count == 0) {
        s->min = s->max = s->mean = values[0];
        s->above_min = INFINITY;
        s->below_max = -INFINITY;
    }
    for (int64_t i = 0; i < rows; i++) {
        const double value = values[i * width], distance = value - s->mean,
                     rounding = fabs(value - (double)(float)value);
        if (value < s->above_min) stats_add_low(s, value);
        if (value > s->below_max) stats_add_high(s, value);
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
    for (int64_t c = 0; c < width && rows > 0; c++)
        stats_add_column(&stats[c], width, values + c, rows);
}

double tr_stats_deviation(const tr_stats_t *s) {
    return s->count > 0 ? sqrt(s->squares / (double)s->count) : 0;
}

bool tr_stats_is_rounded(const tr_stats_t *s) {
    const double range = s->max - s->min, largest = fmax(fabs(s->min), fabs(s->max));
    return range > NOISE * largest && s->rounding > range / STEPS;
}

bool tr_stats_has_sentinel(const tr_stats_t *s, double *out, int64_t *out_count, double *out_next) {
    static const double usual[] = {99,    999,   9999, 99999,          999999,
                                   32767, 32768, 1e20, 9.9692099684e36}; /* the last: netCDF */
    const bool is_low = s->above_min - s->min > s->max - s->above_min;
    if (!is_low && !(s->max - s->below_max > s->below_max - s->min)) return false;
    *out = is_low ? s->min : s->max;
    *out_count = is_low ? s->min_count : s->max_count;
    *out_next = is_low ? s->above_min : s->below_max;
    for (size_t i = 0; i < TR_COUNT(usual) && *out_count > 1 && isfinite(*out_next); i++)
        if (fabs(fabs(*out) - usual[i]) <= 1e-6 * usual[i]) return true;
    return false;
}

const char *tr_stats_format_rounding(const tr_stats_t *s, char text[128]) {
    tr_snprintf(text, 128, "from %.15g to %.15g, and 32-bit floats round them by up to %.3g",
                s->min, s->max, s->rounding);
    return text;
}

static int stats_ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void tr_sort(double *values, int64_t count) {
    qsort(values, (size_t)count, sizeof *values, stats_ascending);
}

int64_t tr_class_of(const float *scores, int64_t classes) {
    int64_t best = 0;
    for (int64_t c = 0; c < classes; c++) {
        if (isnan(scores[c])) return -1;
        if (scores[c] > scores[best]) best = c;
    }
    return best;
}
