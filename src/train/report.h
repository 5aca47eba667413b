/*
 * What rank 0 tells: progress, metrics.jsonl, a line per epoch, summary.json. On other ranks every
 * call does nothing (run is NULL). Private to src/train.
 */
#ifndef TRAINER_REPORT_H
#define TRAINER_REPORT_H

#include "session.h"
#include "run/run.h"
#include "report_ranks.h"

/* Of some steps; since: when they began, of the last metrics line when the last step ended.
 * counted: steps that loss and accuracy are of; an update that was skipped is none, a step with
 * samples without a label counts by the share of the others. */
typedef struct {
    int64_t steps;
    double counted, loss, accuracy, stall, exposed, busy, seconds, since;
    double saving; /* seconds that copies for checkpoints took */
} tr_report_sums_t;

typedef struct {
    tr_session_t *s;
    tr_run_t *run; /* borrowed; NULL: silent */
    tr_progress_line_t *line;
    int64_t log_every;
    const char *version;              /* borrowed */
    double start_sec, first_step_sec; /* of training; since exec */
    /* that training stood still for checkpoints; set by the loop */
    double save_sec;
    double saved_sec; /* save_sec at the last step */
    tr_report_ranks_t ranks;
    int64_t session; /* of the run; set by the loop */
    /* since the last metrics line, the epoch's begin, the start */
    tr_report_sums_t window, epoch, whole;
    /* of a step of late, for the progress line; 0: none yet */
    double smooth_sec;
    double last_loss, last_accuracy; /* smoothed, for the progress line */
    /* training means of the last epoch that ended, NaN where none has */
    double epoch_loss, epoch_accuracy;
    /* NaN where there is none */
    double valid_terms, valid_loss, valid_accuracy, test_loss, test_accuracy;
    bool has_new_valid; /* since the last line of an epoch */
    /* what the process took before the planned memory: code, libraries, data sets */
    size_t base_bytes;
    char *started;
    int64_t lines_lost; /* of metrics.jsonl, for want of space */
    tr_str_t text;      /* of an epoch's line; kept, so that only the first allocates */
} tr_report_t;

tr_status_t tr_report_open(tr_report_t *r, tr_session_t *s, tr_run_t *run, int64_t log_every,
                           const char *version);
/* What a checkpoint keeps, so that lines of a resumed run are of all their steps. New reference. */
json_t *tr_report_state(const tr_report_t *r);
/* Goes on behind step `step`, whose validation will come (again) where valid_pending; from what
 * tr_report_state gave, NULL: from nothing. */
tr_status_t tr_report_resume(tr_report_t *r, int64_t step, bool valid_pending, const json_t *state);
/* The summary in the folder says that a run of so many steps is done. */
bool tr_report_is_done(const tr_run_t *run, int64_t steps);
void tr_report_close(tr_report_t *r);
/* Most memory that the process has had so far. */
size_t tr_report_peak_bytes(void);
/* After step `step` (counted from 0). */
tr_status_t tr_report_step(tr_report_t *r, int64_t step, double lr, const tr_step_outcome_t *o);
tr_status_t tr_report_valid(tr_report_t *r, int64_t steps_done, const tr_eval_outcome_t *v,
                            double seconds, bool is_best);
/* One line for the epoch that ends with `steps_done`. */
void tr_report_epoch(tr_report_t *r, int64_t steps_done);
tr_status_t tr_report_test(tr_report_t *r, const tr_eval_outcome_t *v, double seconds);
typedef struct {
    const char *status;
    const char *engine;              /* of the collectives; NULL: one rank */
    int64_t steps;                   /* done */
    int64_t skipped;                 /* updates, by train.on_nan */
    int64_t best_step;               /* -1 not known */
    double best_loss, best_accuracy; /* of the best validation; not finite: none */
    size_t host_bytes;
} tr_report_end_t;
/* Leaves the summary of a run that was done as it is where no step was added to it. */
tr_status_t tr_report_summary(tr_report_t *r, const tr_report_end_t *end);

#endif
