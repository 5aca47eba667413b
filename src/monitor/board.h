/*
 * What a run shows of itself while it trains: its newest values for Prometheus and, for the server,
 * its curves, thinned to a bounded number of points, in the form of the record that `trainer report`
 * reads from a folder. The recorder's thread writes, any thread reads; nobody waits for longer than
 * it takes to copy a thousand rows. Not collective.
 */
#ifndef TR_MONITOR_BOARD_H
#define TR_MONITOR_BOARD_H

#include "report/record/record.h"
#include "base/str.h"

typedef struct tr_board tr_board_t;

/* dir: the run folder. steps: of the whole run. keeps_curves: for tr_board_view. */
tr_status_t tr_board_open(const char *dir, int64_t steps, bool keeps_curves, tr_board_t **out);
void tr_board_close(tr_board_t **board);
/* Takes facts of the run as in summary.json. Steals `facts`. */
void tr_board_describe(tr_board_t *board, json_t *facts);
/* Takes the sessions and the lines of earlier starts from the folder. Before the first line. */
tr_status_t tr_board_read(tr_board_t *board);
/* Takes a line of metrics.jsonl. lost: lines that the file lacks. */
void tr_board_add(tr_board_t *board, const json_t *line, int64_t lost);

/* Appends the metrics in the text format of Prometheus. */
void tr_board_metrics(tr_board_t *board, tr_str_t *out);
/* The labels of the run. Valid until the board is closed. */
const char *tr_board_run(const tr_board_t *board);
const char *tr_board_job(const tr_board_t *board); /* "" outside SLURM */
int64_t tr_board_lost(tr_board_t *board);          /* lines that metrics.jsonl lacks */
/* The run so far; tr_record_free it. The folder is not read. TR_ERR_MEMORY. */
tr_status_t tr_board_view(tr_board_t *board, tr_record_t *out);

#endif
