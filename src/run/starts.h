/*
 * sessions.jsonl in the run folder: the starts of the program in a run. A line is written when it
 * starts and when it ends, normally or with an error; a start that was killed has only the first.
 * Not collective.
 */
#ifndef TR_RUN_STARTS_H
#define TR_RUN_STARTS_H

#include "trainer/status.h"
#include <jansson.h>
#include <stdint.h>

/* The number of starts, and the longest time to write a checkpoint (0: unknown). */
typedef struct {
    int64_t count;
    double slowest_write_sec;
} tr_starts_t;
/* A missing file has no starts. Unreadable lines are ignored. */
tr_status_t tr_starts_read(const char *run_dir, tr_starts_t *out);
/* Appends one JSON object as a line. Steals `line`. */
tr_status_t tr_starts_append(const char *run_dir, json_t *line);

#endif
