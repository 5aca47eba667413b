/*
 * Scaling: runs of one configuration on several numbers of ranks. Not collective.
 *
 *   weak     batch and micro-batch per rank stay the same.   efficiency = t(ref) / t(N)
 *   strong   the global batch stays the same, and micro_batch = batch / ranks.
 *                                                efficiency = t(ref) ref / (t(N) N)
 *
 * t is the median step time; of repeated runs, the median of theirs. ref is the smallest number of
 * ranks of the sweep. speedup = efficiency N / ref: times as many samples/s as the reference.
 */
#ifndef TR_REPORT_SWEEP_H
#define TR_REPORT_SWEEP_H

#include "report/record/record.h"
#include "base/mem.h"

typedef enum { TR_MODE_NONE, TR_MODE_WEAK, TR_MODE_STRONG } tr_scaling_mode_t;
const char *tr_mode_name(tr_scaling_mode_t mode); /* "" for none */

/* A predicted range; NaN: unknown. */
typedef struct {
    double low, expected, high;
} tr_predicted_t;

/* All runs of a sweep on one number of ranks, or a prediction for it. */
typedef struct {
    tr_kind_t kind; /* PREDICTED: there is no run */
    int64_t nodes, ranks, batch, micro_batch;
    TR_VEC(const tr_record_t *) runs; /* the repeats; borrowed */
    tr_step_times_t times;            /* medians over the repeats */
    tr_spread_t spread;
    double step_min, step_max; /* ms, over the repeats */
    double efficiency, speedup;
    tr_predicted_t predicted_step, predicted_efficiency; /* ms; 0 .. 1 */
    double predicted_comm;                               /* exposed communication, ms */
} tr_point_t;

typedef struct {
    tr_scaling_mode_t mode;    /* NONE: single runs, one per point */
    tr_kind_t kind;            /* PREDICTED: predictions only */
    TR_VEC(tr_point_t) points; /* by ranks */
} tr_sweep_t;

typedef TR_VEC(tr_sweep_t) tr_sweeps_t;

/*
 * Groups the complete runs (or the only run) into sweeps. Folders named weak-n* or strong-n*, as by
 * the sweep scripts, belong to a sweep of that mode. If the other runs have different numbers of
 * ranks, they form one sweep, whose mode is derived from their batches. TR_ERR_DATA if the runs of
 * a sweep differ in threads, precision, device, commit or parameters, or if their batches do not
 * fit the mode. `records` must outlive `out`.
 */
tr_status_t tr_sweeps_make(const tr_record_t *records, size_t count, tr_sweeps_t *out);
/* Adds the predictions of a JSON file of `trainer plan --nodes ... --json`, to points of the same
 * mode and number of ranks, or as new points. Efficiencies keep their reference. TR_ERR_NOINPUT,
 * TR_ERR_DATA. */
tr_status_t tr_sweeps_predict(tr_sweeps_t *sweeps, const char *path);
/* The reference of efficiencies: the first point with runs; NULL if there is none. */
const tr_point_t *tr_sweep_reference(const tr_sweep_t *sweep);
void tr_sweeps_free(tr_sweeps_t *sweeps);

#endif
