/* Where a run is: what its newest lines say. A pure function. */
#ifndef TR_REPORT_NEWEST_H
#define TR_REPORT_NEWEST_H

#include "record.h"

/* NaN, and -1 of whole numbers: unknown. Text is borrowed from the record. */
typedef struct {
    int64_t step, steps; /* done, in total */
    double epoch, loss;
    double best_loss; /* validation loss of the best validation */
    int64_t best_step;
    /* at the pace of the last lines, with their validations and checkpoints */
    double samples_per_sec, eta_sec;
    double data_stall, comm_exposed; /* fractions of the time of the last lines */
    double gpu_util;                 /* of the newest line that has it; a fraction */
    double unix_sec;                 /* of the newest line of training */
    double line_sec;                 /* mean time between the last lines */
    /* the rank for which others wait at least a tenth of the time of the last lines, and the share */
    int slow_rank;
    double slow_share;
    const char *slow_host;
} tr_newest_t;

/* Asks for what it needs beside what tr_record_digest does. */
void tr_newest_ask(tr_asked_t *asked);
tr_newest_t tr_newest_of(const tr_record_t *record);

#endif
