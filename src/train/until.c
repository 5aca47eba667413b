/* Parses run.until, and the margin that a stop needs. */
#include "until.h"
#include "base/clock.h"
#include "trainer/log.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define REST_SEC          10.0   /* summary, verdict, MPI_Finalize */
#define STEPS             3      /* until all ranks have noticed it and the step is done */
#define WRITES            2      /* the next checkpoint may take longer than the previous ones */
#define BYTES_PER_SEC     50.0e6 /* of a slow disk */
#define EARLIEST_UNIX_SEC 1e9    /* smaller numbers are probably durations */

tr_status_t tr_until_parse(const char *text, double *out_unix_sec) {
    /* what squeue prints for a job without a time limit */
    static const char *const none[] = {"", "none", "N/A", "Unknown"};
    struct tm local = {.tm_isdst = -1};
    const char *end_time = getenv("SLURM_JOB_END_TIME");
    int64_t number;
    *out_unix_sec = 0;
    if (strcmp(text, "auto") == 0) text = end_time ? end_time : "";
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (strcasecmp(text, none[i]) == 0) return TR_OK;
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &local);
    if (rest && !*rest)
        *out_unix_sec = (double)mktime(&local);
    else if (tr_parse_int(text, &number))
        *out_unix_sec = (double)number;
    if (*out_unix_sec < EARLIEST_UNIX_SEC)
        return TR_FAIL(TR_ERR_CONFIG,
                       "run.until = %s: expected seconds since 1970, a local time such as "
                       "2026-01-31T18:00:00, none, or auto",
                       text);
    if (*out_unix_sec > tr_clock_unix_sec()) return TR_OK;
    TR_WARN("run.until = %s is in the past: it is ignored", text);
    *out_unix_sec = 0;
    return TR_OK;
}

double tr_until_margin_sec(double slowest_write_sec, double bytes, double step_sec) {
    const double write_sec = slowest_write_sec > 0 ? slowest_write_sec : bytes / BYTES_PER_SEC;
    return REST_SEC + WRITES * write_sec + STEPS * step_sec;
}
