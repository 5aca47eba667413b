/* The page of a run that trains: HTML without scripts, which loads itself again. A pure function. */
#ifndef TR_MONITOR_LIVE_PAGE_H
#define TR_MONITOR_LIVE_PAGE_H

#include "comm/watchdog.h"
#include "report/record/newest.h"
#include "base/str.h"

typedef struct {
    const tr_record_t *record;
    const char *job, *version;
    double silent_sec;            /* since the last progress; NaN: unknown */
    bool is_healthy;              /* it is not silent for too long */
    const tr_rank_times_t *ranks; /* NULL: unknown */
    int rank_count;
    int64_t lost; /* lines that metrics.jsonl lacks */
} tr_live_t;

/* Appends the page. */
void tr_live_page(const tr_live_t *live, tr_str_t *out);

#endif
