/* Achieved FLOP/s of a run, and their share of the peak (MFU), both as in PaLM (Chowdhery et al.
 * 2022, appendix B): without recomputation. Private to metrics.c. */
#ifndef TR_TRAIN_METRICS_RATE_H
#define TR_TRAIN_METRICS_RATE_H

#include "session/session.h"
#include <jansson.h>

typedef struct {
    double step_flops; /* of all ranks, in forward and backward passes, recomputed ops left out */
    double peak_flops; /* per second, of all ranks together; 0: unknown, or a CPU */
} tr_metrics_rate_t;

/* Counts the FLOPs of a step and, on a GPU, measures the peak of the type of the matrix products,
 * which takes about 0.1 s if it has not been measured before. The peak of a GPU that ranks share
 * (cuda.share) is unknown. Collective. */
tr_status_t tr_metrics_rate_open(tr_session_t *s, tr_metrics_rate_t *out);
/* Achieved rate in 10^12 FLOP/s. */
double tr_metrics_tflops(const tr_metrics_rate_t *rate, double steps_per_sec);
/* Share of the peak, at most 1; NaN if it is unknown. */
double tr_metrics_mfu(const tr_metrics_rate_t *rate, double steps_per_sec);

#endif
