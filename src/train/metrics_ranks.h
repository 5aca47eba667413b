/* Step times and times of all ranks in metrics lines. Private to src/train. */
#ifndef TR_TRAIN_METRICS_RANKS_H
#define TR_TRAIN_METRICS_RANKS_H

#include "comm/watchdog.h"
#include <jansson.h>

enum { TR_RECENT_TIMES = 512 };

typedef struct {
    /* of the steps since the last line, at most the last TR_RECENT_TIMES */
    float step_sec[TR_RECENT_TIMES];
    int64_t count;
    /* [size], on rank 0 of several ranks: totals at the last line that used them, and now */
    tr_rank_times_t *base, *now;
} tr_metrics_ranks_t;

void tr_metrics_ranks_step(tr_metrics_ranks_t *r, double seconds);
/* Adds to `line` step_ms and step_ms_p95 of the steps since the last call. With several ranks, also
 * adds the minimum and maximum over ranks of the fraction of time spent computing, waiting for data
 * and waiting for other ranks, and the slowest rank. Ranks report to rank 0 a few times per second;
 * lines in between have no such keys. Not collective; rank 0. */
tr_status_t tr_metrics_ranks_line(tr_metrics_ranks_t *r, tr_world_t *world, json_t *line);
void tr_metrics_ranks_close(tr_metrics_ranks_t *r);

#endif
