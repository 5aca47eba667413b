/*
 * sessions.jsonl in the run folder: the starts of the program in a run. A line is written when it
 * starts and when it ends, normally or with an error; a start that was killed has only the first. The
 * rank whose hardware fails writes a line, too.
 * Not collective.
 */
#ifndef TR_RUN_STARTS_H
#define TR_RUN_STARTS_H

#include "trainer/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* The number of starts, and the longest time to write a checkpoint (0: unknown). */
typedef struct {
    int64_t count;
    double slowest_write_sec;
} tr_starts_t;
/* A missing file has no starts. Unreadable lines are ignored. */
tr_status_t tr_starts_read(const char *run_dir, tr_starts_t *out);
/* A fault of hardware that ended a start: the fault and the node of tr_error_t. */
typedef struct {
    char name[48], node[64];
    int64_t session, step; /* the start, from 1; the last complete step */
    bool at_any_step;      /* of the one that is looked for: it need not be at the same step */
} tr_starts_fault_t;
/* Whether an earlier start ended by the fault `mine` at the same step on another node, or where a
 * node is unknown, *out. One step more or less is the same: the host may be a step ahead of its
 * GPU. */
bool tr_starts_had_fault(const char *run_dir, const tr_starts_fault_t *mine,
                         tr_starts_fault_t *out);
/* Appends one JSON object as a line. Steals `line`. */
tr_status_t tr_starts_append(const char *run_dir, json_t *line);

#endif
