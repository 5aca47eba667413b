/*
 * Reads a run folder for the report: config.ini, summary.json, metrics.jsonl, sessions.jsonl, the
 * verdict, profile/profile.json.
 * Files may be missing or incomplete, for example after a crash or from an older version; the
 * missing parts of the record are then unknown. The folder is not modified. Not collective.
 */
#ifndef TR_REPORT_RECORD_H
#define TR_REPORT_RECORD_H

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

/* The rank that was the slowest most often. */
typedef struct {
    int rank; /* -1: unknown */
    char host[128];
    int lines, of_lines; /* lines of metrics.jsonl that name this rank, and any rank */
} tr_slowest_t;

typedef struct {
    const char *path; /* as given; borrowed */
    char *name;       /* the last part of the path; valid UTF-8 */
    json_t *config;   /* {"data.batch_size": "32", ...} of config.ini; empty if there is none */
    json_t *summary;  /* an object, empty if there is none */
    /* Arrays of the lines of metrics.jsonl, in order; of training one of `every` lines. */
    json_t *training, *validation;
    int64_t every;
    json_t *profile;  /* of profile/profile.json; NULL: there is none */
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
/* Which lines of training are read: all; some that are spread evenly over the run; the newest. Of
 * validation always all. */
typedef enum { TR_LINES_ALL, TR_LINES_SPREAD, TR_LINES_NEWEST } tr_lines_t;
enum { TR_SPREAD_LINES = 500, TR_NEWEST_LINES = 50 };
/* Reads the run folder `path`. TR_ERR_DATA if summary.json is not JSON. */
tr_status_t tr_record_read(const char *path, tr_lines_t lines, tr_record_t *out);
/* Fills times, spread and slowest from training and the summary, as tr_record_read does. */
tr_status_t tr_record_take_times(tr_record_t *record);
void tr_record_free(tr_record_t *record);

/* The value of a key in config.ini; NULL if there is none. Owned by the record. */
const char *tr_record_key(const tr_record_t *record, const char *key);
/* The number object[key]; NaN if there is none. */
double tr_json_number(const json_t *object, const char *key);
/* The median of the finite values; NaN if there are none. Reorders `values`. */
double tr_median(double *values, size_t count);
/* Seconds from exec to the end of the first step of session i; NaN if unknown. */
double tr_record_first_step_sec(const tr_record_t *record, size_t i);

#endif
