/*
 * The verdict: a small file that says whether the job of a run is to be started again. Job scripts
 * read it, because the exit
 * code of a launcher cannot be trusted: srun reports 143 where it killed ranks that were still
 * ending.
 *
 *     done                  the run is complete
 *     again                 start it again (exit code 75)
 *     no CODE REASON        starting it again would not help
 *     job 17 restart 0      SLURM_JOB_ID and SLURM_RESTART_COUNT; "-" outside of SLURM
 *     node n2               only if the verdict is about one node: it hangs, or a rank on it was
 *     lost
 *     reason TEXT           only after `again`
 *
 * The first verdict of a run stays: every rank may write one, so that a verdict is left when rank 0
 * is lost. Not collective.
 */
#ifndef TRAINER_RUN_VERDICT_H
#define TRAINER_RUN_VERDICT_H

#include "trainer/status.h"

/* Sets the file for this process; a copy of `path` is kept. "" or NULL: verdicts are not
 * written. */
void tr_verdict_open(const char *path);
/* Removes the verdict of an earlier session. TR_ERR_IO, TR_ERR_PERMISSION if there is one that
 * cannot be removed. */
tr_status_t tr_verdict_clear(void);
/* Writes the verdict of exit code `code`, unless there is one. node may be NULL or "". A failure is
 * ignored: the exit code
 * still tells. Allocates nothing and takes no lock, so that the watchdog may call it. */
void tr_verdict_write(int code, const char *reason, const char *node);

#endif
