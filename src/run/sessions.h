/*
 * sessions.jsonl in the run folder: what a run remembers of its sessions. A session is one start of
 * the program; it has a line when it starts and one when it ends, in good order or by an error. One
 * that was killed has no second line. Not collective.
 */
#ifndef TRAINER_RUN_SESSIONS_H
#define TRAINER_RUN_SESSIONS_H

#include "trainer/status.h"
#include <jansson.h>
#include <stdint.h>

/* Of the sessions in the file: how many started, and the longest time that a checkpoint took to
 * write; 0: not known. */
typedef struct {
    int64_t count;
    double slowest_write_sec;
} tr_sessions_t;
/* A missing file has no sessions. Unreadable lines are ignored. */
tr_status_t tr_sessions_read(const char *run_dir, tr_sessions_t *out);
/* One JSON object, one line, at the end of the file. Steals `line`. */
tr_status_t tr_sessions_append(const char *run_dir, json_t *line);

#endif
