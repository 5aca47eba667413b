/* Ends a job whose ranks do not all reach MPI, and names the ranks that are missing. */
#include "watchdog_launch.h"
#include "trainer/clock.h"
#include "trainer/comm.h"
#include "trainer/config.h"
#include "trainer/log.h"
#include "trainer/mem.h"
#include "trainer/str.h"
#include "trainer/thread.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VARIABLE    "TRAINER_PARALLEL_TIMEOUT"
#define THREAD_NAME "trainer-launch" /* a rank with such a thread waits in MPI_Init */
#define DEFER_SEC   2 /* a host with all its ranks lets a host without one report first */
#define LINGER_SEC  1 /* so that the ranks of this host find the reporter alive */
#define QUIET_SEC   (DEFER_SEC + 2) /* ranks that do not report outlive the one that does */
#define MAX_RANKS   1024            /* of one host */
#define MAX_ENVIRON (1 << 20)       /* bytes */

struct tr_launch_limit {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool is_over;
    double limit_sec;
    void (*ended)(const char *why, const char *host);
};

/* The processes of this job on this host. */
typedef struct {
    char text[MAX_ENVIRON]; /* the environment of one */
    struct {
        int rank, pid;
        char state; /* as in /proc/PID/stat */
        bool waits; /* for MPI to connect the ranks */
    } found[MAX_RANKS];
    int count;
} survey_t;

/* -- the processes of this host ---------------------------------------------------------------- */

/* Reads at most bytes - 1 bytes of /proc/PID/NAME. Returns their number. */
static size_t proc_read(int pid, const char *name, char *out, size_t bytes) {
    char path[96];
    size_t length = 0;
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = read(fd, out + length, bytes - 1 - length)) > 0;)
        length += (size_t)n;
    if (fd >= 0) close(fd);
    out[length] = '\0';
    return length;
}

/* The value of a variable in the environment of a process, NULL if it is not set. */
static const char *environ_value(const char *text, size_t length, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = text; at < text + length; at += strlen(at) + 1)
        if (strncmp(at, name, n) == 0 && at[n] == '=') return at + n + 1;
    return NULL;
}

/* Whether a process with this environment is a rank of our job. */
static bool environ_is_of_job(const char *text, size_t length) {
    static const char *const names[] = {"PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID"};
    const size_t first = getenv(names[0]) ? 0 : 1, end = first ? TR_COUNT(names) : 1;
    for (size_t i = first; i < end; i++) {
        const char *ours = getenv(names[i]), *theirs = environ_value(text, length, names[i]);
        if (!ours || !theirs || strcmp(ours, theirs) != 0) return false;
    }
    return true;
}

static int environ_rank(const char *text, size_t length) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    int64_t rank;
    for (size_t i = 0; i < TR_COUNT(names); i++) {
        const char *value = environ_value(text, length, names[i]);
        if (value && tr_parse_int(value, &rank)) return (int)rank;
    }
    return -1;
}

/* Whether one of its threads is that of a start limit. */
static bool proc_is_waiting(int pid) {
    char path[64], name[32] = "";
    bool waits = false;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    for (const struct dirent *e; tasks && !waits && (e = readdir(tasks));) {
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        snprintf(path, sizeof path, "task/%.20s/comm", e->d_name);
        proc_read(pid, path, name, sizeof name);
        waits = strncmp(name, THREAD_NAME, strlen(THREAD_NAME)) == 0;
    }
    if (tasks) closedir(tasks);
    return waits;
}

static void survey_add(survey_t *s, int pid) {
    const size_t length = proc_read(pid, "environ", s->text, sizeof s->text);
    const int rank = environ_is_of_job(s->text, length) ? environ_rank(s->text, length) : -1;
    char stat[512];
    int i = 0;
    if (rank < 0) return;
    proc_read(pid, "stat", stat, sizeof stat);
    const char *name_end = strrchr(stat, ')');
    const char state = name_end && name_end[1] == ' ' ? name_end[2] : '?';
    const bool waits = proc_is_waiting(pid);
    /* A rank may be a script and the program that it started. */
    while (i < s->count && s->found[i].rank != rank) i++;
    if (i == MAX_RANKS || (i < s->count && s->found[i].waits)) return;
    if (i == s->count) s->count++;
    s->found[i].rank = rank;
    s->found[i].pid = pid;
    s->found[i].state = state;
    s->found[i].waits = waits;
}

static void survey_take(survey_t *s) {
    DIR *processes = opendir("/proc");
    for (const struct dirent *e; processes && (e = readdir(processes));)
        if (isdigit((unsigned char)e->d_name[0])) survey_add(s, atoi(e->d_name));
    if (processes) closedir(processes);
}

static bool survey_is_missing(const survey_t *s, int i) {
    return !s->found[i].waits || s->found[i].state == 'T' || s->found[i].state == 't';
}

/* -- the report -------------------------------------------------------------------------------- */

/* Returns the number of ranks that are missing on this host. */
static int survey_describe(const survey_t *s, const char *host, tr_str_t *out) {
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    int64_t size = 0;
    int missing = 0;
    for (int i = 0; i < s->count; i++) {
        const char state = s->found[i].state;
        if (!survey_is_missing(s, i)) continue;
        tr_str_printf(out, "%srank %d (%s, process %d) %s", missing++ ? ", " : "", s->found[i].rank,
                      host, s->found[i].pid,
                      state == 'T' || state == 't' ? "is stopped"
                      : state == 'D'               ? "waits for a file system or a device"
                                                   : "has not reached MPI_Init");
    }
    if (local && tr_parse_int(local, &size) && size > s->count)
        tr_str_printf(out, "%sof the %d processes of %s only %d are there", missing++ ? ", " : "",
                      (int)size, host, s->count);
    if (missing == 0)
        tr_str_printf(
            out, "all ranks of %s wait, so the cause is on another host or in the network", host);
    return missing;
}

static void launch_limit_report(const tr_launch_limit_t *l, const survey_t *s) {
    char host[64] = "", limit[32];
    tr_str_t why = {0}, line = {0};
    gethostname(host, sizeof host - 1);
    const int missing = survey_describe(s, host, &why);
    if (missing == 0) sleep(DEFER_SEC);
    tr_str_printf(&why, ". Start the job again; " VARIABLE
                        "=DURATION in the environment changes the limit.");
    tr_str_printf(
        &line, "[rank %d %s] trainer: error: MPI has not connected the ranks within %s: %s\n",
        tr_launch_rank(), host, tr_format_duration(l->limit_sec, limit), why.text ? why.text : "");
    if (!line.text) return;
    (void)!write(STDERR_FILENO, line.text, strlen(line.text));
    l->ended(strstr(line.text, "MPI has"), missing ? host : "");
}

static void *launch_limit_run(void *self) {
    tr_launch_limit_t *l = self;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const double end_sec = (double)until.tv_sec + (double)until.tv_nsec * 1e-9 + l->limit_sec;
    until.tv_sec = (time_t)end_sec;
    until.tv_nsec = (long)((end_sec - (double)until.tv_sec) * 1e9);
    pthread_mutex_lock(&l->lock);
    while (!l->is_over && pthread_cond_timedwait(&l->over, &l->lock, &until) != ETIMEDOUT) {
    }
    const bool is_late = !l->is_over;
    pthread_mutex_unlock(&l->lock);
    if (!is_late) return NULL;
    survey_t *s = calloc(1, sizeof *s);
    bool reports = s != NULL;
    if (s) survey_take(s);
    for (int i = 0; s && i < s->count; i++)
        reports &= survey_is_missing(s, i) || s->found[i].rank >= tr_launch_rank();
    if (reports) launch_limit_report(l, s);
    sleep(reports ? LINGER_SEC : QUIET_SEC);
    _exit(TR_ERR_RETRY);
}

/* -- life -------------------------------------------------------------------------------------- */

tr_status_t tr_launch_limit_begin(void (*ended)(const char *why, const char *host),
                                  tr_launch_limit_t **out) {
    tr_launch_limit_t *l = NULL;
    const char *text = getenv(VARIABLE);
    double limit_sec = 0;
    *out = NULL;
    if (!tr_parse_duration(text ? text : TR_PARALLEL_TIMEOUT, &limit_sec)) limit_sec = 0;
    /* a bad value is refused later, with the configuration */
    if (tr_launch_tasks() <= 1 || limit_sec <= 0) return TR_OK;
    TR_TRY(tr_alloc(sizeof *l, "the limit of the launch", &l));
    l->limit_sec = limit_sec;
    l->ended = ended;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->over, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&l->lock, NULL);
    if (tr_thread_start(THREAD_NAME, launch_limit_run, l, &l->thread) == 0) {
        *out = l;
    } else {
        TR_WARN("no thread for the time limit of the launch: a rank that hangs is not named");
        tr_free(&l);
    }
    return TR_OK;
}

void tr_launch_limit_end(tr_launch_limit_t **limit) {
    tr_launch_limit_t *l = *limit;
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->is_over = true;
    pthread_cond_signal(&l->over);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    tr_free(limit);
}
