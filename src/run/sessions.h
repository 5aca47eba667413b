/*
 * sessions.jsonl in the run folder: the sessions of a run. A session is one start of the program. A
 * line is written when it starts and when it ends, normally or with an error; a killed session has
 * only the first. Not collective.
 */
#ifndef TR_RUN_SESSIONS_H
#define TR_RUN_SESSIONS_H

#include "trainer/status.h"
#include <jansson.h>
#include <stdint.h>

/* The number of sessions started, and the longest time to write a checkpoint (0: unknown). */
typedef struct {
    int64_t count;
    double slowest_write_sec;
} tr_sessions_t;
/* A missing file has no sessions. Unreadable lines are ignored. */
tr_status_t tr_sessions_read(const char *run_dir, tr_sessions_t *out);
/* Appends one JSON object as a line. Steals `line`. */
tr_status_t tr_sessions_append(const char *run_dir, json_t *line);

#endif
