/* Time. */
#ifndef TR_BASE_CLOCK_H
#define TR_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Monotonic seconds since an arbitrary start. */
double tr_clock_sec(void);
/* The monotonic time in `sec` seconds, for pthread_cond_timedwait with that clock. */
struct timespec tr_clock_deadline(double sec);
/* Seconds that the calling thread has computed. */
double tr_clock_thread_sec(void);
/* Seconds since 1970-01-01 UTC, from the system clock, which can be changed during a run. */
double tr_clock_unix_sec(void);
/* Seconds since this process started (exec), from /proc, to 10 ms; 0 if that cannot be read. */
double tr_clock_since_exec_sec(void);
/* Writes the current time as "2026-01-31T12:00:00Z". */
void tr_clock_iso8601(char text[32]);

#endif
