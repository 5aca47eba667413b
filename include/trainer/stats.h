/*
 * Count, range, mean and deviation of numbers that come in pieces, as they come: a piece is summed
 * up as distances from the mean so far, so that nothing large is subtracted from something large.
 * (Chan, Golub, LeVeque: Algorithms for computing the sample variance, The American Statistician
 * 37, 1983, shifted sums; of one number at a time it is Welford's method, Technometrics 4, 1962.)
 */
#ifndef TRAINER_STATS_H
#define TRAINER_STATS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t count;
    double min, max, mean;
    double squares;  /* of the distances from the mean, their sum */
    double rounding; /* the most that 32-bit floats change a number by */
} tr_stats_t;        /* {0}: of no numbers */

/*
 * Adds `rows` rows of `width` numbers each; column c goes to stats[c]. How rows are put into calls
 * matters to rounding alone.
 */
void tr_stats_add(tr_stats_t *stats, int64_t width, const double *values, int64_t rows);
/*
 * Of these numbers, not of a population they are drawn from: divided by their count. Exactly 0
 * where all are equal, or none is there.
 */
double tr_stats_deviation(const tr_stats_t *stats);
/*
 * Whether 32-bit floats take much from how the numbers differ. Not where they are equal, or differ
 * as rounded doubles of one number do.
 */
bool tr_stats_is_rounded(const tr_stats_t *stats);
/*
 * "from 1 to 2, and 32-bit floats round them by up to 0.5", of such; `text` of 128 bytes; returns
 * `text`.
 */
const char *tr_stats_format_rounding(const tr_stats_t *stats, char text[128]);

void tr_sort(double *values, int64_t count); /* ascending; no value is NaN */

#endif
