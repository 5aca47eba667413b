/*
 * The run folder (config.ini, log.txt, metrics.jsonl, summary.json, checkpoints/, a lock) and the
 * progress line. Only rank 0 uses them. Not collective.
 */
#ifndef TR_RUN_RUN_H
#define TR_RUN_RUN_H

#include "config/config.h"
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
 * Creates the folder and its parents if missing, takes the lock (flock on `lock`, which contains
 * host and pid), and opens log.txt and metrics.jsonl for appending. If another process holds the
 * lock: TR_ERR_CONFIG names it; if it was waited for (lock_wait), TR_ERR_RETRY after that time or
 * when asked_to_stop (may be NULL) returns nonzero. Blocks while waiting.
 */
tr_status_t tr_run_open(const tr_run_settings_t *settings, const char *config_path,
                        int (*asked_to_stop)(void), tr_run_t **out);
/* Call when the run is set up: writes config.ini. */
tr_status_t tr_run_begin(tr_run_t *run, const char *config_text);
/* Leaves log.txt open (tr_log_close_files), so that the caller can log the outcome. Removes a
 * folder that tr_run_open created if the run never began. */
void tr_run_close(tr_run_t **run);
/* On ranks other than 0: adds the log in the run folder `dir` to this rank's log files. Does
 * nothing if the folder is not visible on this node. */
void tr_run_join_log(const char *dir);
/* TR_ERR_IO if the path of the run folder no longer leads to the folder that tr_run_open opened. */
tr_status_t tr_run_check_there(const tr_run_t *run);
const char *tr_run_dir(const tr_run_t *run);
const char *tr_run_checkpoint_dir(const tr_run_t *run);
/* Whether the existing path `path` is the run folder or in it. */
bool tr_run_has(const tr_run_t *run, const char *path);
/* Appends one JSON object as a line, with one write. Steals `line`. */
tr_status_t tr_run_metrics(tr_run_t *run, json_t *line);
/* Removes the lines of metrics.jsonl after `step`, and unless with_valid the validation of `step`:
 * a resumed run repeats them. */
tr_status_t tr_run_metrics_rewind(tr_run_t *run, int64_t step, bool with_valid);
/* Writes summary.json (temporary file, fsync, rename). Steals `summary`. */
tr_status_t tr_run_summary(tr_run_t *run, json_t *summary);

/* -- progress ---------------------------------------------------------------------------------- */

typedef struct {
    int64_t step, steps;   /* done, in total */
    int64_t epoch, epochs; /* current (from 1), in total; epochs 0 if the run is limited by steps */
    double epoch_fraction; /* of the current epoch, 0 .. 1 */
    double loss, accuracy; /* accuracy NaN if there is none */
    double lr, samples_per_sec;
    double tokens_per_sec; /* of a language model, which also has a perplexity; 0: other models */
    double tflops;         /* achieved, 10^12 FLOP/s; 0: not shown */
    double mfu;            /* share of the peak FLOP/s; NaN or 0: unknown */
    double data_stall, comm_exposed; /* fractions */
    double memory_bytes;             /* in use, of the GPU or the process; 0: unknown */
    double eta_sec;
    const char *phase; /* "train", "valid", "test" */
} tr_progress_t;

typedef struct tr_progress_line tr_progress_line_t;
/* On a terminal: one line fitted to the width and redrawn at most ten times per second. Otherwise:
 * plain lines. Installs a log sink that prints log lines above the bar. */
tr_status_t tr_progress_create(int fd, tr_progress_line_t **out);
/* Redraws the line. Terminal only; cheap enough for every step. */
void tr_progress_draw(tr_progress_line_t *line, const tr_progress_t *state);
/* Without a terminal: writes a line, at most one every five seconds and always for the last step.
 * */
void tr_progress_plain(tr_progress_line_t *line, const tr_progress_t *state);
/* Writes a line to the log files, at most one every `every_sec` seconds. Cheap enough for every
 * step. */
void tr_progress_log(tr_progress_line_t *line, const tr_progress_t *state, double every_sec);
void tr_progress_destroy(tr_progress_line_t **line);
/* Formats one line of at most `width` columns, with or without a bar. A pure function, for tests.
 * */
void tr_progress_format(const tr_progress_t *state, int width, bool bar, char *text, size_t bytes);

#endif
