/* Time. */
#ifndef TRAINER_CLOCK_H
#define TRAINER_CLOCK_H

#include <stddef.h>

/* Seconds since an arbitrary start, monotonic. */
double tr_clock_sec(void);
/* Seconds since 1970-01-01 UTC, by the system's clock, which may be set while a program runs. */
double tr_clock_unix_sec(void);
/*
 * Seconds since this process was started by the kernel (exec), from /proc, to 10 ms; 0 where that
 * cannot be read.
 */
double tr_clock_since_exec_sec(void);
/* The present time as "2026-01-31T12:00:00Z" into text of 32 bytes. */
void tr_clock_iso8601(char text[32]);

#endif
