/* Whether a run is done, running or killed, from the files of its folder. Not collective. */
#ifndef TR_REPORT_RUN_STATE_H
#define TR_REPORT_RUN_STATE_H

#include "record.h"

typedef enum {
    TR_RUN_DONE,
    TR_RUN_STOPPED, /* it may be started again (exit code 75) */
    TR_RUN_FAILED,
    TR_RUN_RUNNING,
    TR_RUN_KILLED,  /* its process is gone */
    TR_RUN_UNKNOWN, /* its process is on another host: see silent_sec */
    TR_RUN_PENDING  /* it has not begun */
} tr_run_kind_t;

typedef struct {
    tr_run_kind_t kind;
    double silent_sec; /* since metrics.jsonl or log.txt grew; NaN: neither is there */
    char text[48];     /* "done", "failed (78)", "silent 12 min" */
} tr_run_state_t;

/* Reads RUN/lock and /proc. It never takes the lock, not even a shared one: a run that started at
 * that moment would find its folder in use. */
tr_run_state_t tr_run_state(const tr_record_t *record);

#endif
