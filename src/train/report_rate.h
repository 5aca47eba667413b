/* Achieved FLOP/s of a run, and their share of the peak (MFU). Private to report.c. */
#ifndef TRAINER_REPORT_RATE_H
#define TRAINER_REPORT_RATE_H

#include "session.h"
#include <jansson.h>

typedef struct {
    double step_flops; /* of all ranks, in forward and backward passes */
    double peak_flops; /* per second, of all ranks together; 0: unknown */
} tr_report_rate_t;

/* Counts the FLOPs of a step and measures the peak of the type of the matrix products, which takes
 * less than 50 ms on a CPU and about 0.1 s on a GPU that has not been measured before. The peak of
 * types that a CPU emulates is unknown, and that of a GPU that ranks share (cuda.share).
 * Collective: the ranks measure at the same time, because they may share cores. */
tr_status_t tr_report_rate_open(tr_session_t *s, tr_report_rate_t *out);
/* Achieved rate in 10^12 FLOP/s. */
double tr_report_tflops(const tr_report_rate_t *rate, double steps_per_sec);
/* Share of the peak; NaN if it is unknown. */
double tr_report_mfu(const tr_report_rate_t *rate, double steps_per_sec);
/* Adds "tflops" and "mfu". */
void tr_report_rate_add(const tr_report_rate_t *rate, double steps_per_sec, json_t *to);

#endif
