/*
 * Metrics of a run, on rank 0: the progress line, metrics.jsonl, a log line per epoch, summary.json. On other
 * ranks (run is NULL) every call does nothing. Private to src/train.
 */
#ifndef TR_TRAIN_METRICS_H
#define TR_TRAIN_METRICS_H

#include "session/eval.h"
#include "session/step.h"
#include "monitor/recorder.h"
#include "monitor/telemetry.h"
#include "run/run.h"
#include "metrics_gradient.h"
#include "metrics_ranks.h"
#include "metrics_rate.h"

/* Sums over some steps. since: when they began. counted: the number of steps in loss and accuracy;
 * a skipped update counts 0, and a step with unlabelled samples counts the fraction of labelled
 * ones. */
typedef struct {
    int64_t steps;
    double counted, loss, accuracy, stall, exposed, busy, seconds, since;
    double saving; /* seconds for copies of checkpoints */
} tr_metrics_sums_t;

typedef struct {
    tr_session_t *s;
    tr_run_t *run; /* borrowed; NULL: silent */
    tr_progress_line_t *line;
    int64_t log_every;
    const char *version;              /* borrowed */
    double start_sec, first_step_sec; /* start of training; first step, since exec */
    double save_sec;  /* time that training waited for checkpoints; set by the loop */
    double saved_sec; /* save_sec at the last step */
    tr_metrics_ranks_t ranks;
    tr_metrics_gradient_t gradient;
    tr_metrics_rate_t rate; /* set by the loop */
    int64_t start;          /* number of this start of the program; set by the loop */
    /* since the last metrics line, the start of the epoch, the last validation, the start */
    tr_metrics_sums_t window, epoch, unvalidated, whole;
    double smooth_sec; /* of a step, for the progress line; 0: none yet */
    /* means of the last metrics line, for the progress line; before the first, so far */
    double last_loss, last_accuracy;
    bool has_line; /* a metrics line was written */
    /* training means of the last complete epoch; NaN if there is none */
    double epoch_loss, epoch_accuracy;
    /* NaN if there is none */
    double valid_terms, valid_loss, valid_accuracy, valid_r2, test_loss, test_accuracy, test_r2;
    double best_test_loss, best_test_accuracy, best_test_r2;
    double valid_iou, test_iou, best_test_iou;
    double baseline_test_accuracy, baseline_test_loss;
    bool test_selected;                /* the tested weights were selected on the test samples */
    bool valid_is_best, has_new_valid; /* since the last epoch line */
    /* memory of the process before the planned memory: code, libraries, data sets */
    size_t base_bytes;
    char *started;
    tr_telemetry_t *telemetry; /* borrowed; set by the loop; NULL: none */
    tr_recorder_t
        *recorder; /* borrowed; set by the loop; NULL: silent, and before the run begins */
    /* of an epoch, a validation or a test; reused, so that only the first one allocates */
    tr_str_t text;
} tr_metrics_t;

tr_status_t tr_metrics_open(tr_metrics_t *r, tr_session_t *s, tr_run_t *run, int64_t log_every,
                            const char *version);
/* The state to save in a checkpoint, so that sums continue after a resume. New reference. */
json_t *tr_metrics_state(const tr_metrics_t *r);
/* Continues after step `step` from the result of tr_metrics_state (NULL: none). valid_pending: the
 * validation of this step will be done (again). */
tr_status_t tr_metrics_resume(tr_metrics_t *r, int64_t step, bool valid_pending,
                              const json_t *state);
/* What a summary has of a run before its first step; "steps": all that are planned. New reference. */
json_t *tr_metrics_facts(const tr_metrics_t *r);
/* The summary in the folder if it is that of a completed run of `steps` steps, else NULL. New
 * reference. */
json_t *tr_metrics_of_done(const tr_run_t *run, int64_t steps);
void tr_metrics_close(tr_metrics_t *r);
/* Peak memory of the process. */
size_t tr_metrics_peak_bytes(void);
/* After step `step` (counted from 0). */
tr_status_t tr_metrics_step(tr_metrics_t *r, int64_t step, double lr, const tr_step_outcome_t *o);
/* Logs the line of a validation, unless ends_epoch: then it is in the line of the epoch.
 * begins_anew: the validations before it were on other samples, and do not compare. */
tr_status_t tr_metrics_valid(tr_metrics_t *r, int64_t steps_done, const tr_eval_outcome_t *v,
                             double seconds, bool is_best, bool begins_anew, bool ends_epoch);
/* Logs one line for the epoch that ends with `steps_done`. */
void tr_metrics_epoch(tr_metrics_t *r, int64_t steps_done);
/* The test of the weights of a step. */
typedef struct {
    int64_t step;
    tr_eval_outcome_t scores;
    double seconds;
    bool is_selected; /* on the samples of the test */
} tr_test_t;
/* Logs the scores, those of the best checkpoint first. best: NULL if there is none; `last` if it is
 * that of the last step. */
void tr_metrics_test(tr_metrics_t *r, const tr_test_t *last, const tr_test_t *best);
typedef struct {
    const char *status;
    const char *engine;                       /* of the collectives; NULL: one rank */
    int64_t steps;                            /* done */
    int64_t skipped;                          /* updates, by train.on_nan */
    int64_t best_step;                        /* -1: unknown */
    /* of the best validation; not finite: none */
    double best_loss, best_accuracy, best_r2, best_iou;
    size_t host_bytes;
} tr_metrics_end_t;
/* Writes summary.json. The summary of a completed run is unchanged if no step was added. */
tr_status_t tr_metrics_summary(tr_metrics_t *r, const tr_metrics_end_t *end);

#endif
