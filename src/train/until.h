/* run.until: a run that stops early enough to save before its time is over. Private to src/train.
 */
#ifndef TRAINER_UNTIL_H
#define TRAINER_UNTIL_H

#include "trainer/status.h"

/* Seconds since 1970; 0: none. auto takes SLURM_JOB_END_TIME. Times without a date of their own are
 * an error. A time that is past is none, with a warning: it comes from the configuration of an
 * earlier job. Not collective. */
tr_status_t tr_until_parse(const char *text, double *out_unix_sec);

/* How many seconds before the end a run is to stop. slowest_write_sec: of its checkpoints so far, 0
 * where none was written: then `bytes`, of one, counts. */
double tr_until_margin_sec(double slowest_write_sec, double bytes, double step_sec);

#endif
