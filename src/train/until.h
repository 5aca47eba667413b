/* run.until: stopping a run early enough to save a checkpoint before its time limit. Private to
 * src/train. */
#ifndef TR_TRAIN_UNTIL_H
#define TR_TRAIN_UNTIL_H

#include "trainer/status.h"

/* Parses a time to seconds since 1970; 0: none. auto takes SLURM_JOB_END_TIME. A time without a
 * date is an error. A time in the past is ignored with a warning: it comes from the configuration
 * of an earlier job. Not collective. */
tr_status_t tr_until_parse(const char *text, double *out_unix_sec);

/* The number of seconds before the time limit at which a run must stop. slowest_write_sec: of its
 * checkpoints so far; 0 if none was written, in which case it is estimated from the `bytes` of one.
 * */
double tr_until_margin_sec(double slowest_write_sec, double bytes, double step_sec);

#endif
