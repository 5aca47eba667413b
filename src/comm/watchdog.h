/*
 * The watchdog: one thread a rank that notices when a rank stopped, hangs or is gone, says which,
 * and ends the job with code 75.
 *
 * Every rank tells rank 0 by TCP, a few times a second, that it is alive, what it does and which
 * collective it entered and completed last; rank 0 answers with the progress of all. The job ends
 * where for `timeout` seconds a rank was silent (stopped, its node or the network down; ranks watch
 * rank 0 likewise), or where no rank made progress (a collective entered or completed, a new phase,
 * a mark). Work that has no steps counts as progress by itself for as long as its process is alive:
 * the start (10 minutes) and the wait for a checkpoint's writer (an hour). After TERM, INT or HUP
 * a job without progress for the longer of 2 s and three median steps ends too.
 *
 * The end is one line on stderr, MPI_Abort(75), and _exit(75) two seconds later; nothing on that
 * way allocates, uses stdio or waits for a lock of ours.
 */
#ifndef TRAINER_WATCHDOG_H
#define TRAINER_WATCHDOG_H

#include "trainer/comm.h"

typedef enum {
    TR_PHASE_START,
    TR_PHASE_STEP,
    TR_PHASE_EVALUATION,
    TR_PHASE_CHECKPOINT,
    TR_PHASE_END
} tr_phase_t;

/* Watches over this world until it is closed; while it does, waits of its collectives have no time
 * limit of their own. asked_to_stop (may be NULL): the signal that came, 0 for none; called from
 * the thread. A single rank is watched after a signal only. Where ranks cannot reach rank 0 by TCP
 * a warning says so and nothing is watched: a wait for gradients has the time limit itself. A
 * second call changes time limit and function only. Collective. */
tr_status_t tr_watchdog_start(tr_world_t *world, double timeout_sec, int (*asked_to_stop)(void));
/* Calls ended(why, host) before this rank ends the job: `why` is the line of the error, `host` the
 * node of the rank that hangs or is gone, "" where it is no one's. From the watchdog's thread; it
 * must not allocate or wait for a lock. Not collective. */
void tr_watchdog_on_end(tr_world_t *world, void (*ended)(const char *why, const char *host));
/* This rank begins `phase`, in or after `step`. Not collective; wait-free; with or without a
 * watchdog. One thread of a rank calls it. */
void tr_watchdog_phase(tr_world_t *world, tr_phase_t phase, int64_t step);
/* Progress inside a phase: a micro-batch is done. Likewise; world may be NULL. */
void tr_watchdog_mark(tr_world_t *world);

/* Times of one rank since its watchdog started, in seconds. */
typedef struct {
    char host[64];
    double compute_sec, data_sec, wait_sec; /* wait: for other ranks */
} tr_rank_times_t;
/* Adds the times of a step of this rank, which goes to rank 0 with the next beat. Not collective;
 * wait-free; with or without a watchdog. */
void tr_watchdog_add_times(tr_world_t *world, double compute_sec, double data_sec, double wait_sec);
/* On rank 0: what every rank has told so far, out[size]. False where no watchdog connects the
 * ranks. Not collective. */
bool tr_watchdog_times(tr_world_t *world, tr_rank_times_t *out);

#endif
