/*
 * The run folder and what the user sees: config.ini, log.txt, metrics.jsonl, summary.json,
 * checkpoints/, a lock; and the progress line. Only rank 0 opens these. Not collective.
 */
#ifndef TRAINER_RUN_H
#define TRAINER_RUN_H

#include "trainer/config.h"
#include "trainer/status.h"
#include <jansson.h>

typedef struct {
    /* run.dir; "": a new folder, runs/<run.name or config's name>-<date>-<time> */
    const char *dir;
    const char *name;      /* run.name */
    const char *verdict;   /* run.verdict; "": the file verdict in the run folder */
    const char *lock_wait; /* run.lock_wait: auto or a duration */
    const char *until;     /* run.until: auto or a time */
} tr_run_settings_t;
extern const tr_config_table_t tr_run_config;

typedef struct tr_run tr_run_t;
/*
 * Creates the folder (and parents) if missing, takes the lock (flock on `lock`, which contains host
 * and pid), opens log.txt and metrics.jsonl for appending. If another process holds the lock:
 * TR_ERR_CONFIG names it; after waiting lock_wait, or if asked_to_stop (may be NULL) is not 0,
 * TR_ERR_RETRY. Blocks meanwhile.
 */
tr_status_t tr_run_open(const tr_run_settings_t *settings, const char *config_path,
                        int (*asked_to_stop)(void), tr_run_t **out);
/* The run is set up and begins: writes config.ini. */
tr_status_t tr_run_begin(tr_run_t *run, const char *config_text);
/* Leaves log.txt open (tr_log_close_files), so that the caller can log the outcome. A folder that
 * tr_run_open created for a run that never began is removed again. */
void tr_run_close(tr_run_t **run);
/* Opens the log of a run in `dir`, which rank 0 holds, for a line of this rank. Does nothing if the
 * folder is not visible here. */
void tr_run_join_log(const char *dir);
const char *tr_run_dir(const tr_run_t *run);
const char *tr_run_checkpoint_dir(const tr_run_t *run);
/* Whether `path`, which exists, is the run folder or in it. */
bool tr_run_has(const tr_run_t *run, const char *path);
/* A time, rate or share that was measured: six significant digits; null where it is not
 * finite. */
json_t *tr_json_measured(double value);
/* One JSON object, one line, written at once. Steals `line`. */
tr_status_t tr_run_metrics(tr_run_t *run, json_t *line);
/* Removes lines of metrics.jsonl of steps after `step`, and unless with_valid the validation of
 * `step` (a resumed run repeats them). */
tr_status_t tr_run_metrics_rewind(tr_run_t *run, int64_t step, bool with_valid);
/* Writes summary.json (temporary file, fsync, rename). Steals `summary`. */
tr_status_t tr_run_summary(tr_run_t *run, json_t *summary);

/* -- progress ---------------------------------------------------------------------------------- */

typedef struct {
    int64_t step, steps;   /* done, in all */
    int64_t epoch, epochs; /* present (from 1), in total; epochs 0 if the run is limited by steps */
    double epoch_fraction; /* of the present epoch, 0 .. 1 */
    double loss, accuracy; /* accuracy NaN where there is none */
    double lr, samples_per_sec;
    double tokens_per_sec; /* of a language model, which has a perplexity too; 0: another model */
    double data_stall, comm_exposed; /* fractions */
    double eta_sec;
    const char *phase; /* "train", "valid", "test" */
} tr_progress_t;

typedef struct tr_progress_line tr_progress_line_t;
/* On a terminal one line that is redrawn (at most ten times a second), fitted to its width;
 * elsewhere a plain line. Installs a log sink that prints log lines above the bar. */
tr_status_t tr_progress_create(int fd, tr_progress_line_t **out);
/* terminal only; cheap when called every step */
void tr_progress_draw(tr_progress_line_t *line, const tr_progress_t *state);
/* Without a terminal: a plain line, at most one every five seconds; the last step always has one.
 */
void tr_progress_plain(tr_progress_line_t *line, const tr_progress_t *state);
void tr_progress_destroy(tr_progress_line_t **line);
/* Formats one line of at most `width` columns, with (bar) or without. Pure; for tests. */
void tr_progress_format(const tr_progress_t *state, int width, bool bar, char *text, size_t bytes);

#endif
