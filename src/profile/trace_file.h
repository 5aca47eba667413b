/* The spans of a rank as a file that Perfetto and chrome://tracing open. Not collective. */
#ifndef TR_PROFILE_TRACE_FILE_H
#define TR_PROFILE_TRACE_FILE_H

#include "comm/comm.h"
#include "step_profile.h"

/* How the clock of a rank is turned to that of rank 0. */
typedef struct {
    tr_clock_offset_t before, after; /* the trace */
    double origin_sec;               /* of the times in the file, on the clock of rank 0 */
} tr_trace_clock_t;
/* The largest error of a time, in seconds. */
double tr_trace_clock_error_sec(const tr_trace_clock_t *clock);

typedef struct {
    int rank;
    const char *host;
    bool is_captured, is_immediate; /* tr_step_profile_t */
    tr_trace_clock_t clock;
    tr_step_programs_t programs;
    /* NULL, or set by another thread: names and ops of the spans will be freed */
    const atomic_bool *is_abandoned;
} tr_trace_file_t;
/* Writes `path`, in the JSON of Chrome's trace events: times in microseconds. TR_ERR_IO also if it
 * was abandoned. */
tr_status_t tr_trace_file_write(const tr_trace_file_t *file, const tr_spans_t *spans,
                                const char *path);

#endif
