/* Ends a job whose ranks do not all reach MPI, and names the ranks that are missing. */
#include "watchdog_launch.h"
#include "base/clock.h"
#include "base/host.h"
#include "comm/comm.h"
#include "config/config.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VARIABLE      "TRAINER_PARALLEL_TIMEOUT"
#define THREAD_NAME   "trainer-launch" /* a rank with such a thread waits for MPI */
#define NOTICE_SEC    10.0             /* a launch that takes longer is mentioned */
#define TICK_NSEC     200000000
#define SUSPENDED_SEC 1.0       /* a longer tick: the job was suspended */
#define DEFER_SEC     10.0      /* a host with all its ranks lets a host without one report first */
#define YIELD_SEC     12.0      /* and a rank lets the lowest waiting rank of its host */
#define LINGER_SEC    1         /* so that the surveys of other ranks find the one that reports */
#define MAX_RANKS     1024      /* of one host */
#define MAX_ENVIRON   (1 << 20) /* bytes */

enum { RANK_ABSENT, RANK_STOPPED, RANK_BLOCKED, RANK_WAITS };

/* The ranks of this job on this host. */
typedef struct {
    char environ[MAX_ENVIRON]; /* of the process that is looked at */
    struct {
        int rank, pid, state;
    } found[MAX_RANKS];
    int count;
} survey_t;

/* The environment is read before MPI changes it. */
struct tr_launch_limit {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool is_over;
    double limit_sec;
    int rank, local_size; /* local_size: 0 if not known */
    long long tasks;
    bool is_srun;
    const char *rank_variable; /* the one that holds our rank */
    char job[3][256];          /* NAME=VALUE of the variables that all ranks of the job share */
    char host[64];
    void (*ended)(const char *why, const char *host);
    survey_t survey;
};

/* -- the processes of this host ---------------------------------------------------------------- */

/* Reads at most bytes - 1 bytes of /proc/PID/NAME. Returns their number. */
static size_t watchdog_proc_read(int pid, const char *name, char *out, size_t bytes) {
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

/* Whether one of its threads limits a launch. */
static bool watchdog_proc_waits(int pid) {
    char path[64], name[32] = "";
    bool waits = false;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    for (const struct dirent *e; tasks && !waits && (e = readdir(tasks));) {
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        snprintf(path, sizeof path, "task/%.20s/comm", e->d_name);
        watchdog_proc_read(pid, path, name, sizeof name);
        waits = strncmp(name, THREAD_NAME, strlen(THREAD_NAME)) == 0;
    }
    if (tasks) closedir(tasks);
    return waits;
}

static int watchdog_proc_state(int pid) {
    char stat[512];
    watchdog_proc_read(pid, "stat", stat, sizeof stat);
    const char *name_end = strrchr(stat, ')');
    const char state = name_end && name_end[1] == ' ' ? name_end[2] : '?';
    if (state == 'T' || state == 't') return RANK_STOPPED;
    if (state == 'D') return RANK_BLOCKED;
    return watchdog_proc_waits(pid) ? RANK_WAITS : RANK_ABSENT;
}

/* The rank of a process, -1 if it is not of our job. */
static int survey_rank(const survey_t *s, size_t length, const tr_launch_limit_t *l) {
    const size_t name = strlen(l->rank_variable);
    int missing = 0;
    int64_t rank = -1;
    if (!l->job[0][0] && !l->job[1][0]) return -1; /* another job would look like ours */
    for (size_t i = 0; i < TR_COUNT(l->job); i++) missing += l->job[i][0] != '\0';
    for (const char *at = s->environ; at < s->environ + length; at += strlen(at) + 1) {
        for (size_t i = 0; i < TR_COUNT(l->job); i++)
            missing -= l->job[i][0] && strcmp(at, l->job[i]) == 0;
        if (strncmp(at, l->rank_variable, name) == 0 && at[name] == '=' &&
            !tr_parse_int(at + name + 1, &rank))
            rank = -1;
    }
    return missing == 0 ? (int)rank : -1;
}

static void survey_take(survey_t *s, const tr_launch_limit_t *l) {
    DIR *processes = opendir("/proc");
    s->count = 0;
    for (const struct dirent *e; processes && (e = readdir(processes));) {
        const int pid = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : 0;
        const size_t length =
            pid > 0 ? watchdog_proc_read(pid, "environ", s->environ, sizeof s->environ) : 0;
        const int rank = length > 0 ? survey_rank(s, length, l) : -1;
        int i = 0;
        if (rank < 0) continue;
        while (i < s->count && s->found[i].rank != rank) i++;
        if (i == MAX_RANKS) continue;
        const int state = watchdog_proc_state(pid);
        /* A rank may be a script and the program that it started: the latter tells more. */
        if (i < s->count && s->found[i].state >= state) continue;
        if (i == s->count) s->count++;
        s->found[i].rank = rank;
        s->found[i].pid = pid;
        s->found[i].state = state;
    }
    if (processes) closedir(processes);
}

/* The lowest rank that waits, -1 if there is none. */
static int survey_lowest(const survey_t *s) {
    int lowest = -1;
    for (int i = 0; i < s->count; i++)
        if (s->found[i].state == RANK_WAITS && (lowest < 0 || s->found[i].rank < lowest))
            lowest = s->found[i].rank;
    return lowest;
}

static int survey_missing(const survey_t *s, const tr_launch_limit_t *l) {
    int missing = l->local_size > s->count;
    for (int i = 0; i < s->count; i++) missing += s->found[i].state != RANK_WAITS;
    return missing;
}

static void survey_describe(const survey_t *s, const tr_launch_limit_t *l, tr_str_t *out) {
    static const char *const states[] = {"has not reached MPI_Init", "is stopped",
                                         "waits for a file system or a device"};
    const char *comma = "";
    for (int i = 0; i < s->count; i++) {
        if (s->found[i].state == RANK_WAITS) continue;
        tr_str_printf(out, "%srank %d (%s, process %d) %s", comma, s->found[i].rank, l->host,
                      s->found[i].pid, states[s->found[i].state]);
        comma = ", ";
    }
    if (s->count == 0)
        tr_str_printf(out, "the processes of %s could not be examined", l->host);
    else if (l->local_size > s->count)
        tr_str_printf(out, "%sof the %d processes of %s only %d are there", comma, l->local_size,
                      l->host, s->count);
    else if (!comma[0])
        tr_str_printf(out,
                      "all ranks of %s wait, so the cause is on another host or in the network",
                      l->host);
}

/* -- the thread -------------------------------------------------------------------------------- */

/* Waits until `sec` have passed, without the time that the job was suspended for. Returns false if
 * the launch is over before. */
static bool launch_limit_wait(tr_launch_limit_t *l, double sec) {
    for (double waited = 0, now = tr_clock_sec(); !l->is_over && waited < sec;) {
        const double before = now;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += TICK_NSEC;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&l->over, &l->lock, &until);
        now = tr_clock_sec();
        waited += now - before < SUSPENDED_SEC ? now - before : SUSPENDED_SEC;
    }
    return !l->is_over;
}

static void launch_limit_report(const tr_launch_limit_t *l, const survey_t *s) {
    char limit[32];
    tr_str_t why = {0}, line = {0};
    survey_describe(s, l, &why);
    tr_str_printf(
        &line,
        "[rank %d %s] trainer: error: MPI has not connected the ranks within %s: %s. "
        "Start the job again; " VARIABLE "=DURATION in the environment changes the limit.\n",
        l->rank, l->host, tr_format_duration(l->limit_sec, limit), why.text ? why.text : "");
    if (!line.text) return;
    (void)!write(STDERR_FILENO, line.text, line.length);
    line.text[line.length - 1] = '\0';
    l->ended(strstr(line.text, "MPI has"), survey_missing(s, l) ? l->host : "");
}

/* Nothing ends: a large job may start slowly. */
static void launch_limit_notice(const tr_launch_limit_t *l) {
    char limit[32];
    tr_format_duration(l->limit_sec, limit);
    if (l->is_srun)
        TR_WARN(
            "MPI has waited %.0f s for the %lld tasks of srun, which must all run this command; "
            "the limit is %s. In a shell of 'srun --ntasks=%lld --pty' only one of them is left: "
            "there, run 'srun --overlap --ntasks=%lld COMMAND', or 'srun --overlap --ntasks=1 "
            "COMMAND' for one process.",
            NOTICE_SEC, l->tasks, limit, l->tasks, l->tasks);
    else
        TR_WARN("MPI has waited %.0f s for the %lld ranks to start; the limit is %s.", NOTICE_SEC,
                l->tasks, limit);
}

/* Of the ranks that wait on a host, the lowest reports. The others do where it does not. */
static void *launch_limit_run(void *self) {
    tr_launch_limit_t *l = self;
    survey_t *s = &l->survey;
    pthread_mutex_lock(&l->lock);
    const double notice_sec = l->rank == 0 && l->limit_sec > NOTICE_SEC ? NOTICE_SEC : 0;
    bool is_late = launch_limit_wait(l, notice_sec);
    if (is_late && notice_sec > 0) launch_limit_notice(l);
    is_late = is_late && launch_limit_wait(l, l->limit_sec - notice_sec);
    if (is_late) survey_take(s, l);
    const int lowest = survey_lowest(s);
    if (is_late && lowest >= 0 && lowest != l->rank)
        is_late = launch_limit_wait(l, YIELD_SEC);
    else if (is_late && survey_missing(s, l) == 0)
        is_late = launch_limit_wait(l, DEFER_SEC);
    if (!is_late) {
        pthread_mutex_unlock(&l->lock);
        return NULL;
    }
    survey_take(s, l);
    if (survey_lowest(s) <= lowest || lowest < 0) { /* else that rank has reported and ended */
        launch_limit_report(l, s);
        sleep(LINGER_SEC);
    }
    _exit(TR_ERR_RETRY);
}

/* -- life -------------------------------------------------------------------------------------- */

/* Stores NAME=VALUE if the variable is set. */
static bool launch_limit_keep(const char *name, char out[256]) {
    const char *value = getenv(name);
    const int length = value ? snprintf(out, 256, "%s=%s", name, value) : 0;
    if (length > 0 && length < 256) return true;
    out[0] = '\0';
    return false;
}

tr_status_t tr_launch_limit_begin(void (*ended)(const char *why, const char *host),
                                  tr_launch_limit_t **out) {
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    const char *text = getenv(VARIABLE), *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"),
               *nodes = getenv("SLURM_STEP_NUM_NODES");
    double limit_sec = 0;
    int64_t local_size = 0;
    *out = NULL;
    /* A bad value is refused later, with the configuration. */
    if (tr_launch_tasks() <= 1 ||
        !tr_parse_duration(text ? text : TR_PARALLEL_TIMEOUT, &limit_sec) ||
        limit_sec < TR_PARALLEL_TIMEOUT_MIN || limit_sec > TR_PARALLEL_TIMEOUT_MAX)
        return TR_OK;
    tr_launch_limit_t *l = NULL;
    TR_TRY(tr_alloc(sizeof *l, "the limit of the launch", &l));
    l->limit_sec = limit_sec;
    l->rank = tr_launch_rank();
    l->tasks = (long long)tr_launch_tasks();
    l->is_srun = tr_launch_is_srun();
    if (l->is_srun && nodes && strcmp(nodes, "1") == 0) local_size = l->tasks;
    if (local && !tr_parse_int(local, &local_size)) local_size = 0;
    l->local_size = (int)local_size;
    l->rank_variable = ranks[0];
    for (size_t i = TR_COUNT(ranks); i-- > 0;)
        if (getenv(ranks[i])) l->rank_variable = ranks[i];
    if (!launch_limit_keep("PMIX_NAMESPACE", l->job[0])) {
        launch_limit_keep("SLURM_JOB_ID", l->job[1]);
        launch_limit_keep("SLURM_STEP_ID", l->job[2]);
    }
    snprintf(l->host, sizeof l->host, "%s", tr_host_name());
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
    pthread_cond_destroy(&l->over);
    pthread_mutex_destroy(&l->lock);
    tr_free(limit);
}
