/*
 * The verdict: a small file that tells job scripts whether to start the job of a run again. The
 * exit code of a launcher is unreliable: srun reports 143 if it killed ranks that were still
 * exiting.
 *
 *     done                  the run is complete
 *     again                 start it again (exit code 75)
 *     no CODE REASON        starting it again would not help
 *     provisional           only after `again`: the run may be killed at once, or may go on
 *     job 17 restart 0      SLURM_JOB_ID and SLURM_RESTART_COUNT; "-" outside SLURM
 *     node n2               only if one node is at fault: it hangs, or a rank on it was lost
 *     reason TEXT           only after `again`
 *
 * The first verdict is kept, unless it is provisional. Every rank may write one, so that there is a
 * verdict even if rank 0 is lost. Not collective.
 */
#ifndef TR_RUN_VERDICT_H
#define TR_RUN_VERDICT_H

#include "trainer/status.h"
#include <stdbool.h>

/* Sets the file for this process; `path` is copied. "" or NULL: no verdict is written. */
void tr_verdict_open(const char *path);
/* Whether the file is the verdict of a complete run. */
bool tr_verdict_is_done(const char *path);
/* Removes the verdict of an earlier session. TR_ERR_IO, TR_ERR_PERMISSION if it cannot be
 * removed. */
tr_status_t tr_verdict_clear(void);
/* Puts a file of 2 KiB beside the verdict, so that one can be written where the disk is full by then:
 * it becomes the verdict. Writing a verdict removes it. */
void tr_verdict_reserve(void);
/* Writes the verdict for exit code `code`, unless the file exists. node may be NULL or "". Failures
 * are ignored, because the exit code has the same information. Does not allocate or lock, so the
 * watchdog may call it. */
void tr_verdict_write(int code, const char *reason, const char *node);
/* A provisional verdict for TR_ERR_RETRY, which replaces only another provisional one. Safe in a
 * signal handler. */
void tr_verdict_provisional(const char *reason);
/* The process goes on: removes a provisional verdict. */
void tr_verdict_withdraw(void);
/* The verdict for TR_ERR_RETRY: what the watchdog calls before it ends the job. */
void tr_verdict_again(const char *reason, const char *node);

#endif
