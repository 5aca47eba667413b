/*
 * `trainer compare`: run folders side by side, best first. Reads only; it never calls MPI, never
 * takes the lock of a run, and changes no run folder, so it may look at runs that are starting or
 * running. Not collective.
 */
#ifndef TR_REPORT_COMPARE_H
#define TR_REPORT_COMPARE_H

#include "base/str.h"
#include <jansson.h>

typedef struct {
    char *const *runs; /* run folders, and folders that hold some */
    size_t count;
    const char *by; /* a number of metrics.jsonl or summary.json; NULL: the validation loss, or what
                        can be compared instead */
    const char *out;     /* folder that gets index.html; NULL: none */
    int columns;         /* width of the table; 0: as wide as it needs */
    const char *version; /* of this program */
} tr_compare_settings_t;

/* The comparison for a terminal, as CSV and as JSON. {0} initially. */
typedef struct {
    tr_str_t table, csv;
    json_t *json;
} tr_compare_texts_t;

/* TR_ERR_NOINPUT: a path is missing, or there is no run. TR_ERR_USAGE: `by` is no number of these
 * runs, or `out` is a run folder. TR_ERR_DATA: a file cannot be read, or `by` is a loss of runs whose
 * losses cannot be compared. Call tr_compare_texts_free in any case. */
tr_status_t tr_compare(const tr_compare_settings_t *settings, tr_compare_texts_t *out);
void tr_compare_texts_free(tr_compare_texts_t *texts);

#endif
