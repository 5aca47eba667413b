/*
 * The watchdog: one thread per rank that detects a rank that stopped, hangs or is gone. It reports
 * the rank and ends the job with exit code 75.
 *
 * Every rank sends heartbeats to rank 0 by TCP, a few times per second, with its state and the last
 * collectives it entered and completed. Rank 0 answers with the progress of all ranks. The job ends
 * if for `timeout` seconds a rank was silent (stopped, or its node or the network is down; ranks
 * watch rank 0 in the same way), or if no rank made progress (a collective entered or completed, a
 * new phase, a mark). Work without steps counts as progress while its process is alive, for a
 * limited time: the start (10 minutes), waiting for the checkpoint writer and writing the summary
 * and the verdict (one hour). After
 * TERM, INT or HUP, the job also ends if there is no progress for 2 s or three median steps,
 * whichever is longer.
 *
 * To end the job, the watchdog writes one line to stderr, calls MPI_Abort(75), and calls _exit(75)
 * two seconds later. This path does not allocate, use stdio or wait for a lock.
 */
#ifndef TR_COMM_WATCHDOG_H
#define TR_COMM_WATCHDOG_H

#include "comm/comm.h"

typedef enum {
    TR_PHASE_START,
    TR_PHASE_STEP,
    TR_PHASE_EVALUATION,
    TR_PHASE_CHECKPOINT,
    TR_PHASE_END
} tr_phase_t;

/* Watches the world until it is closed. Meanwhile, waits in its collectives have no time limit of
 * their own. asked_to_stop (may be NULL) returns the received signal or 0; the watchdog thread
 * calls it. A single rank is watched only after a signal. If ranks cannot connect to rank 0 by TCP,
 * a warning is logged and there is no watchdog: waits for gradients then have the time limit. A
 * second call only changes the time limit and the function. Collective. */
tr_status_t tr_watchdog_start(tr_world_t *world, double timeout_sec, int (*asked_to_stop)(void));
/* Sets a function that the watchdog thread calls before this rank ends the job. why: the error
 * line; host: the node of the rank that hangs or is gone, "" if there is none. The function must
 * not allocate or wait for a lock. Not collective. */
void tr_watchdog_on_end(tr_world_t *world, void (*ended)(const char *why, const char *host));
/* Reports that this rank begins `phase`, in or after `step`. One thread per rank calls it. Not
 * collective; wait-free; also allowed without a watchdog. */
void tr_watchdog_phase(tr_world_t *world, tr_phase_t phase, int64_t step);
/* Reports progress within a phase: a micro-batch is done. As above; world may be NULL. */
void tr_watchdog_mark(tr_world_t *world);

/* Times of one rank since its watchdog started, in seconds. */
typedef struct {
    char host[64];
    double compute_sec, data_sec, wait_sec; /* wait: for other ranks */
} tr_rank_times_t;
/* Adds the times of one step of this rank. The next heartbeat sends them to rank 0. Not collective;
 * wait-free; also allowed without a watchdog. */
void tr_watchdog_add_times(tr_world_t *world, double compute_sec, double data_sec, double wait_sec);
/* On rank 0: the times received from every rank so far, out[size]. Returns false if no watchdog
 * connects the ranks. Not collective. */
bool tr_watchdog_times(tr_world_t *world, tr_rank_times_t *out);
/* For how long no rank that this one hears of has made progress, and the time limit of it. Work that
 * counts as progress for a limited time does here too. Also with a single rank, which nothing ends.
 * False: there is no watchdog. Any thread; not collective. */
bool tr_watchdog_silent(tr_world_t *world, double *out_sec, double *out_limit_sec);

/* Numbers that each rank gives to rank 0; who gives them knows what they mean. All 0: none yet. */
enum { TR_RANK_VALUES = 31 };
typedef struct {
    char host[64];
    double value[TR_RANK_VALUES];
} tr_rank_values_t;
/* Sets the numbers of this rank, which the next heartbeat sends. One thread per rank calls it, not
 * more often than every 10 ms. Not collective; wait-free; also allowed without a watchdog. */
void tr_watchdog_set_values(tr_world_t *world, const double value[TR_RANK_VALUES]);
/* On rank 0: what it has from every rank, out[size]; its own also without a watchdog. Not
 * collective. */
void tr_watchdog_values(tr_world_t *world, tr_rank_values_t *out);

/* What a rank tells rank 0 of a piece of work, outside of collectives. Works are numbered from 1 on,
 * the same on all ranks; who reports knows what the numbers mean. All 0: no report yet. */
typedef struct {
    int64_t number, status;
    uint64_t value[2];
} tr_rank_report_t;
/* Whether there are watchdogs that connect the ranks: waits for other ranks then need no time limit of
 * their own. Not collective. */
bool tr_watchdog_is_linked(const tr_world_t *world);
/* Reports to rank 0 at once. One thread per rank, a rank above 0; not collective. */
void tr_watchdog_report(tr_world_t *world, const tr_rank_report_t *report);
/* On rank 0: waits for the report of a rank above 0 about work `number`. TR_ERR_RETRY names any rank
 * that left or was lost before it had one. Any thread that is not waited for by another rank; not
 * collective. */
tr_status_t tr_watchdog_wait_report(tr_world_t *world, int64_t number, int rank,
                                    tr_rank_report_t *out);

#endif
