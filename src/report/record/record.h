/*
 * Reads a run folder for the report: config.ini, summary.json, metrics.jsonl, sessions.jsonl, the
 * verdict, profile/profile.json, samples.json.
 * Files may be missing or incomplete, for example after a crash or from an older version; the
 * missing parts of the record are then unknown. The folder is not modified. Not collective.
 */
#ifndef TR_REPORT_RECORD_H
#define TR_REPORT_RECORD_H

#include "metrics_lines.h"
#include "base/mem.h"
#include "trainer/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* The origin of the times of a run. */
typedef enum { TR_KIND_MEASURED, TR_KIND_REPLAY, TR_KIND_PREDICTED } tr_kind_t;
const char *tr_kind_name(tr_kind_t kind);

/* Times in ms per step on rank 0; NaN if unknown. step and p95 are medians over the lines of
 * metrics.jsonl. The other times are means and sum to the mean step time; checkpoint is not part of
 * compute. The first line of a session, which includes the warm-up, is ignored if others follow. */
typedef struct {
    double step, p95, compute, comm_exposed, data_stall, checkpoint, samples_per_sec;
} tr_step_times_t;

/* Minimum and maximum over all ranks, in ms per step. NaN for a run of one rank. */
typedef struct {
    double compute_min, compute_max, data_stall_min, data_stall_max, wait_min, wait_max;
} tr_spread_t;

/* Cores of a rank, means over the ranks; NaN: unknown. */
typedef struct {
    double threads, share; /* threads that compute; cores that the rank can use */
    double used, waited;   /* that were busy; that threads waited for while others ran on them */
} tr_use_t;

/* The rank that was the slowest most often. */
typedef struct {
    int rank; /* -1: unknown */
    char host[128];
    int lines, of_lines; /* lines of metrics.jsonl that name this rank, and any rank */
} tr_slowest_t;

/* When the last line of training of a session was written. Lines that a later session repeated are
 * gone. */
typedef struct {
    double session, unix_sec; /* NaN: unknown */
} tr_session_end_t;

typedef struct {
    const char *path; /* as given; borrowed */
    char *name;       /* the last part of the path; valid UTF-8 */
    json_t *config;   /* {"data.batch_size": "32", ...} of config.ini; empty if there is none */
    json_t *summary;  /* an object, empty if there is none */
    tr_rows_t training, validation; /* the lines of metrics.jsonl that were asked for, in order */
    double last_step, last_epoch;   /* of the last line of training; NaN: unknown */
    TR_VEC(tr_session_end_t) session_ends;
    json_t *first; /* the first line of training and the first validation, as one object */
    json_t *last_line, *last_validation; /* of TR_LINES_SPREAD, as they are; NULL: none */
    json_t *profile;                     /* of profile/profile.json; NULL: there is none */
    json_t *pictures;                    /* of samples.json; NULL: there is none */
    json_t *sessions; /* array of {"session": n, "start": line or null, "end": line or null} */
    tr_kind_t kind;
    bool is_complete; /* the run is done */
    char verdict[24]; /* done, again, no, "running or killed"; "-": unknown */
    int code;         /* exit code; -1: unknown */
    char *reason;     /* valid UTF-8, "" if there is none */
    int64_t nodes, ranks, batch, micro_batch; /* 0: unknown */
    int64_t steps;                            /* to do in total; 0: unknown */
    tr_step_times_t times;
    tr_spread_t spread;
    tr_slowest_t slowest;
} tr_record_t;

/* Whether `path` is a folder with the files of a run, or of a report, whose summary.json has the
 * same name. */
bool tr_is_run(const char *path);
/* Which lines are kept, and which of their numbers: of training "step" and these keys, of validations
 * "step", "valid_loss", "valid_accuracy", "valid_r2", "valid_iou", "valid_perplexity" and the flags
 * "best" and "begins_anew"; of both `by`. Unless all lines are kept, also all that tr_record_digest
 * needs. Texts are borrowed for as long as the record lives. */
enum { TR_ASKED = 24, TR_SPREAD_LINES = 500, TR_NEWEST_LINES = 50 };
typedef struct {
    tr_lines_t lines;
    const char *key[TR_ASKED]; /* up to a NULL */
    const char *by;            /* NULL: none */
} tr_asked_t;
/* Adds a key of training. */
void tr_ask(tr_asked_t *asked, const char *key);
/* Reads the run folder `path`. TR_ERR_DATA if summary.json is not JSON. */
tr_status_t tr_record_read(const char *path, const tr_asked_t *asked, tr_record_t *out);
/* Reads samples.json of the run folder, if there is one. */
void tr_record_read_pictures(const char *path, tr_record_t *record);
/* Makes the rows of a record ask for it. */
void tr_record_ask(tr_record_t *record, const tr_asked_t *asked);
/* Fills times, spread, slowest, last_step, last_epoch and session_ends from the rows of training and
 * the summary, as tr_record_read does. Once for a record. TR_ERR_MEMORY. */
tr_status_t tr_record_digest(tr_record_t *record);
void tr_record_free(tr_record_t *record);

/* The value of a key in config.ini; NULL if there is none. Owned by the record. */
const char *tr_record_key(const tr_record_t *record, const char *key);
/* The number object[key]; NaN if there is none. */
double tr_json_number(const json_t *object, const char *key);
/* The median of the finite values; NaN if there are none. Reorders `values`. */
double tr_median(double *values, size_t count);
/* Over the lines of the last session that are kept; without lines that have it, by the summary. */
tr_use_t tr_record_use(const tr_record_t *record);
/* The share of a rank's time that its threads waited for cores, if it is enough to make a step much
 * longer than its work; 0: it is not, it is unknown, or another device computes. */
double tr_record_shared(const tr_record_t *record);
/* When the last line of training of a session was written, in Unix time; NaN: unknown. */
double tr_record_session_end(const tr_record_t *record, double session);
/* Seconds from exec to the end of the first step of session i; NaN if unknown. */
double tr_record_first_step_sec(const tr_record_t *record, size_t i);

#endif
