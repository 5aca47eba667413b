/*
 * Running count, range, mean and standard deviation. Each batch of values is accumulated as
 * differences from the current mean, which avoids cancellation (shifted sums: Chan, Golub, LeVeque,
 * Algorithms for computing the sample variance, The American Statistician 37, 1983). For one value
 * at a time this is Welford's method (Technometrics 4, 1962).
 */
#ifndef TR_BASE_STATS_H
#define TR_BASE_STATS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t count;
    double min, max, mean;
    double above_min, below_max; /* the values next to them; +-INFINITY: there are none */
    int64_t min_count, max_count;
    double squares;  /* sum of squared differences from the mean */
    double rounding; /* largest absolute error of a value rounded to a 32-bit float */
} tr_stats_t;        /* {0}: no values */

/*
 * Adds `rows` rows of `width` values each; column c is added to stats[c]. The split of rows into
 * calls affects only rounding.
 */
void tr_stats_add(tr_stats_t *stats, int64_t width, const double *values, int64_t rows);
/* The population standard deviation: divides by the count. 0 for equal values and for no values. */
double tr_stats_deviation(const tr_stats_t *stats);
/*
 * Whether rounding to 32-bit floats loses a large part of the differences between the values. False
 * if the values are equal or differ only by the rounding of doubles.
 */
bool tr_stats_is_rounded(const tr_stats_t *stats);
/* Whether the smallest or the largest value, *out, is one that programs write for missing values
 * (-999, 9999, 1e20 and so on), occurs *out_count times, at least twice, and lies farther from the
 * others than their range, which ends at *out_next. */
bool tr_stats_has_sentinel(const tr_stats_t *stats, double *out, int64_t *out_count,
                           double *out_next);
/* Writes "from 1 to 2, and 32-bit floats round them by up to 0.5". Returns `text`. */
const char *tr_stats_format_rounding(const tr_stats_t *stats, char text[128]);

void tr_sort(double *values, int64_t count); /* ascending; NaN is not allowed */
/* The class with the largest score, the first of equal ones; -1 if a score is NaN. */
int64_t tr_class_of(const float *scores, int64_t classes);

#endif
