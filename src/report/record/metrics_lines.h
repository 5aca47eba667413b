/* Reads the lines of a metrics.jsonl into rows of numbers. Not collective. */
#ifndef TR_REPORT_METRICS_LINES_H
#define TR_REPORT_METRICS_LINES_H

#include "rows.h"

/* What a line is of; an alert, and what is no JSON object, is of nothing. */
typedef enum { TR_LINE_OTHER, TR_LINE_TRAINING, TR_LINE_VALIDATION } tr_line_kind_t;

/* Which lines are kept: all; of training some that are spread evenly over the run, and all
 * validations; the newest of training, and the validations since the last with the flag `best`. */
typedef enum { TR_LINES_ALL, TR_LINES_SPREAD, TR_LINES_NEWEST } tr_lines_t;

typedef struct {
    tr_lines_t lines;
    size_t most; /* rows of training: of the newest; of those that are spread, half of the most */
    /* Sees each line that is kept, and its values [keys]. NULL: nobody. */
    tr_status_t (*see)(void *self, tr_line_kind_t kind, const char *text, size_t bytes,
                       const double *row);
    void *self;
} tr_metrics_lines_t;

/* Fills the rows, whose keys the caller has asked for, in the order of the file. A file that is not
 * there has no lines; lines that cannot be read are left out. TR_ERR_DATA: see tr_each_line.
 * TR_ERR_MEMORY. An error of `see` ends it. */
tr_status_t tr_metrics_lines_read(const char *path, const tr_metrics_lines_t *how,
                                  tr_rows_t *training, tr_rows_t *validation);

#endif
