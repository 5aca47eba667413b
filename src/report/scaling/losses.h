/*
 * Attribution of the time lost in a scaling sweep. The mean step of a point is split into causes:
 *
 *   compute      time of the rank that computes least
 *   slow rank    additional time of the slowest rank
 *   data         waiting for samples, on the rank that waits most
 *   network      waiting for reductions, on the rank that waits least: the others wait for it
 *   checkpoint   copying a checkpoint in memory
 *   cores        waiting for cores that other programs, or too many threads, use: that share of the
 *                time of a rank's threads (tr_record_shared), taken from each of the first four
 *
 * The loss of a cause is its time minus its time at the reference (strong scaling: multiplied by
 * ref / N). Without times of all ranks, those of rank 0 are used, and a slow rank counts as
 * network. Not collective.
 */
#ifndef TR_REPORT_LOSSES_H
#define TR_REPORT_LOSSES_H

#include "sweep.h"
#include "base/str.h"

typedef enum {
    TR_CAUSE_COMPUTE,
    TR_CAUSE_SLOW_RANK,
    TR_CAUSE_DATA,
    TR_CAUSE_NETWORK,
    TR_CAUSE_CHECKPOINT,
    TR_CAUSE_CORES,
    TR_CAUSES
} tr_cause_t;
const char *tr_cause_name(tr_cause_t cause);

/* ms per step by cause; `step` is the mean step, `whole` the loss of the mean step. */
typedef struct {
    double step, whole, cause[TR_CAUSES];
} tr_losses_t;
/* False if the point or the reference has no runs with times, or the point is the reference. */
bool tr_losses_of(const tr_sweep_t *sweep, const tr_point_t *point, tr_losses_t *out);

/* Appends a sentence if a point is faster than its number of ranks explains: its reference was
 * probably disturbed. */
void tr_losses_doubt(const tr_sweep_t *sweep, tr_str_t *out);
/* Appends plain text: what limits the largest point of a sweep and what to do. */
void tr_losses_explain(const tr_sweep_t *sweep, tr_str_t *out);
/* The same for one run: the largest fraction of its time not spent computing, and the start-up. */
void tr_losses_explain_run(const tr_record_t *record, tr_str_t *out);

#endif
