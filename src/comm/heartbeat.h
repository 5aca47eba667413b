/* The progress of this rank: written by the threads that work, read by the watchdog at any time.
 * Private to src/comm. */
#ifndef TR_COMM_HEARTBEAT_H
#define TR_COMM_HEARTBEAT_H

#include "comm/watchdog.h"
#include "device/collectives.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define TR_RECENT_STEPS 15

typedef struct {
    _Atomic int64_t marks;              /* progress of any kind */
    _Atomic int64_t entered, completed; /* collectives: same order on all ranks */
    _Atomic int64_t step;
    _Atomic int phase;   /* tr_phase_t */
    _Atomic int blocked; /* nonzero while this rank waits for other ranks */
    _Atomic float step_sec[TR_RECENT_STEPS];
    _Atomic int64_t steps_timed;
    _Atomic double compute_sec, data_sec, wait_sec; /* of all steps; written by the loop's thread */
    /* tr_watchdog_set_values: set number n is in values[n % 2], so that a reader finds a whole one */
    _Atomic double values[2][TR_RANK_VALUES];
    _Atomic int64_t value_sets;
    /* tr_watchdog_report: in the same way */
    struct {
        _Atomic int64_t number, status;
        _Atomic uint64_t value[2];
    } reports[2];
    _Atomic int64_t report_sets;
    double begin_sec;                 /* of the phase; used by the loop's thread */
    pthread_mutex_t words_lock;       /* guards `words` */
    const tr_progress_words_t *words; /* counters of an engine that the device updates; or NULL */
} tr_heartbeat_t;

/* Counts `words` (NULL: none) in addition to entered and completed. */
void tr_heartbeat_watch(tr_heartbeat_t *p, const tr_progress_words_t *words);
/* Collectives entered and completed. Never blocks. */
void tr_heartbeat_collectives(tr_heartbeat_t *p, int64_t *out_entered, int64_t *out_completed);

/* Relaxed: it does not matter if a watchdog sees a change one heartbeat later. */
#define TR_HEARTBEAT_ADD(field, n) atomic_fetch_add_explicit(&(field), (n), memory_order_relaxed)
#define TR_HEARTBEAT_GET(field)    atomic_load_explicit(&(field), memory_order_relaxed)
#define TR_HEARTBEAT_SET(field, v) atomic_store_explicit(&(field), (v), memory_order_relaxed)

#endif
