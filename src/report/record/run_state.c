/* Tells running runs from killed ones. */
#include "run_state.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/host.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_LOCK_BYTES 4096
#define FRESH_SEC      60 /* a run on another host that wrote within this time is probably running */
#define START_SLACK    2  /* seconds; clock ticks are rounded */

static double state_silent_sec(const tr_record_t *r) {
    static const char *const files[] = {"metrics.jsonl", "log.txt"};
    double last = NAN;
    for (size_t i = 0; i < TR_COUNT(files); i++) {
        char path[4096];
        struct stat found;
        if (tr_exists_in(r->path, files[i], path) && stat(path, &found) == 0)
            last = fmax(last, (double)found.st_mtim.tv_sec + 1e-9 * (double)found.st_mtim.tv_nsec);
    }
    return isnan(last) ? NAN : fmax(0, tr_clock_unix_sec() - last);
}

/* Whether process `pid` of this host lives and had started by `since`. A later process has only the
 * same number. */
static bool process_lives(long pid, double since) {
    char path[64], line[1024];
    unsigned long long ticks = 0;
    char state = '?';
    int found = 0;
    struct timespec boot;
    if (pid <= 0 || (kill((pid_t)pid, 0) != 0 && errno != EPERM)) return false;
    tr_snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (file && fgets(line, sizeof line, file) && strrchr(line, ')'))
        found = sscanf(strrchr(line, ')') + 1,
                       " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                       "%*s %llu",
                       &state, &ticks);
    if (file) fclose(file);
    if (state == 'Z' || state == 'X') return false;
    if (found != 2 || !isfinite(since) || clock_gettime(CLOCK_BOOTTIME, &boot) != 0) return true;
    const double up = (double)boot.tv_sec - (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return tr_clock_unix_sec() - up < since + START_SLACK;
}

/* By the text in RUN/lock: "process 17 on n1 since 2026-01-31T12:00:00Z". */
static tr_run_kind_t state_of_lock(const tr_record_t *r) {
    char path[4096], *text = NULL, host[128] = "", date[32] = "";
    int64_t bytes;
    long pid = 0;
    struct tm utc = {0};
    if (!tr_exists_in(r->path, "lock", path) ||
        tr_read_text(path, MAX_LOCK_BYTES, &text, &bytes) != TR_OK)
        return TR_RUN_UNKNOWN;
    const int found = sscanf(text, "process %ld on %127s since %31s", &pid, host, date);
    tr_free(&text);
    if (found < 2 || strcmp(host, tr_host_name()) != 0) return TR_RUN_UNKNOWN;
    const char *end = strptime(date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return process_lives(pid, end ? (double)timegm(&utc) : NAN) ? TR_RUN_RUNNING : TR_RUN_KILLED;
}

static void state_set(tr_run_state_t *s, tr_run_kind_t kind, const char *text) {
    s->kind = kind;
    tr_snprintf(s->text, sizeof s->text, "%s", text);
}

tr_run_state_t tr_run_state(const tr_record_t *r) {
    tr_run_state_t s = {.silent_sec = state_silent_sec(r)};
    const bool has_begun = r->training.count + r->validation.count + json_array_size(r->sessions);
    char time[32], path[4096];
    if (strcmp(r->verdict, "done") == 0) {
        state_set(&s, TR_RUN_DONE, "done");
    } else if (strcmp(r->verdict, "again") == 0) {
        state_set(&s, TR_RUN_STOPPED, "stopped");
    } else if (strcmp(r->verdict, "no") == 0) {
        state_set(&s, TR_RUN_FAILED, "");
        tr_snprintf(s.text, sizeof s.text, "failed (%d)", r->code);
    } else if (!has_begun && !tr_exists_in(r->path, "lock", path)) {
        state_set(&s, TR_RUN_PENDING, "pending");
    } else {
        switch (state_of_lock(r)) {
        case TR_RUN_RUNNING: state_set(&s, TR_RUN_RUNNING, "running"); break;
        case TR_RUN_KILLED: state_set(&s, TR_RUN_KILLED, "killed"); break;
        default:
            state_set(&s, TR_RUN_UNKNOWN, s.silent_sec < FRESH_SEC ? "running?" : "unknown");
            if (s.silent_sec >= FRESH_SEC)
                tr_snprintf(s.text, sizeof s.text, "silent %s",
                            tr_format_duration(s.silent_sec, time));
        }
    }
    return s;
}
