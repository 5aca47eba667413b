/*
 * The time limit of the launch. A rank that was stopped, or that waits for a file system, keeps all
 * others in MPI_Init, and the watchdog needs MPI for its addresses. So each rank limits the time
 * until MPI has connected the ranks, and finds out from /proc which rank of its host is missing.
 */
#ifndef TR_COMM_WATCHDOG_LAUNCH_H
#define TR_COMM_WATCHDOG_LAUNCH_H

#include "trainer/status.h"

typedef struct tr_launch_limit tr_launch_limit_t;

/*
 * Starts the limit: TRAINER_PARALLEL_TIMEOUT of the environment, else the default of
 * parallel.timeout, because the configuration is read after MPI has started. When it is over, one
 * rank of the host writes a line to stderr and all that wait end with _exit(75), which is not
 * later than 12 s after the limit. Without a launcher, *out is NULL.
 * ended: called before that by the rank that writes. why: the line; host: this host if one of its
 * ranks is missing, else "". Not collective.
 */
tr_status_t tr_launch_limit_begin(void (*ended)(const char *why, const char *host),
                                  tr_launch_limit_t **out);
/* MPI has connected the ranks. */
void tr_launch_limit_end(tr_launch_limit_t **limit);

#endif
