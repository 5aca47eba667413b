/* A part of tr_record_read. Private to src/report. */
#ifndef TR_REPORT_RECORD_INT_H
#define TR_REPORT_RECORD_INT_H

#include "record.h"

/* Fills training, validation and sessions from metrics.jsonl and sessions.jsonl. */
tr_status_t tr_record_read_lines(tr_record_t *record, tr_lines_t lines);

#endif
