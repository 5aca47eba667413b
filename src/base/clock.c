/* Time: monotonic, wall clock, and since the start of the process. */
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double clock_read(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double tr_clock_sec(void) {
    return clock_read(CLOCK_MONOTONIC);
}

double tr_clock_thread_sec(void) {
    return clock_read(CLOCK_THREAD_CPUTIME_ID);
}

struct timespec tr_clock_deadline(double sec) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const int64_t ns = t.tv_nsec + (int64_t)((sec - (double)(int64_t)sec) * 1e9);
    t.tv_sec += (time_t)sec + ns / 1000000000;
    t.tv_nsec = ns % 1000000000;
    return t;
}

double tr_clock_unix_sec(void) {
    return clock_read(CLOCK_REALTIME);
}

/* Field 22 of /proc/self/stat: clock ticks from boot to exec. Field 2 is the name of the program,
 * which may contain anything, so fields are counted from its closing parenthesis. */
double tr_clock_since_exec_sec(void) {
    char line[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    if (!file) return 0;
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = '\0';
    const char *at = strrchr(line, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    unsigned long long ticks;
    if (!at || sscanf(at, "%llu", &ticks) != 1) return 0;
    double since = clock_read(CLOCK_BOOTTIME) - (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return since > 0 ? since : 0;
}

void tr_clock_iso8601(char text[32]) {
    time_t now = time(NULL);
    struct tm utc;
    if (!gmtime_r(&now, &utc) || strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        text[0] = '\0';
}
