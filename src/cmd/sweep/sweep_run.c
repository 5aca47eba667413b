/* Trains the members of a sweep: one process each, several at a time. */
#include "sweep.h"

#include "base/clock.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* A member that trains; pid 0: the slot is free. */
typedef struct {
    sweep_member_t *member;
    pid_t pid;
    double start_sec;
} slot_t;

typedef struct {
    sweep_t *sweep;
    slot_t *slots;
    int jobs, running;
    cpu_set_t cores;               /* of this process */
    TR_VEC(sweep_member_t *) queue; /* a member that another process trains is put back once */
    size_t next, first_pass;       /* in the queue; members that have not been put back */
    int done, elsewhere, failed;   /* diverged members are done */
    int stopped;                   /* with a checkpoint, by themselves: run.until, a signal */
    tr_status_t code;              /* of the first that failed */
    int stops;                     /* signals that asked to stop */
    double busy_sec;               /* of the members that are done in this command */
    int timed;
    bool is_terminal, own_gpus;
} runner_t;

/* -- one member -------------------------------------------------------------------------------- */

/* In the new process; does not return. A Ctrl-C in the terminal reaches the sweep alone, which
 * stops its members; if the sweep is killed, they save and stop. */
static void slot_exec(const runner_t *r, int slot, const sigset_t *mask, const char *log_path,
                      char **argv, pid_t parent) {
    const int null = open("/dev/null", O_RDONLY),
              log = open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (null < 0 || log < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0)
        _exit(TR_ERR_IO);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(TR_ERR_RETRY);
    tr_launch_leave(); /* a member is none's rank, also where the sweep itself is a step of srun */
    /* an equal share of the cores, in order */
    const int count = CPU_COUNT(&r->cores), first = slot * count / r->jobs,
              last = (slot + 1) * count / r->jobs;
    cpu_set_t mine;
    CPU_ZERO(&mine);
    for (int core = 0, k = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &r->cores) && ++k > first && k <= last) CPU_SET(core, &mine);
    (void)sched_setaffinity(0, sizeof mine, &mine);
    if (r->own_gpus) { /* GPU `slot` of those that this process sees */
        char text[256];
        const char *at = getenv("CUDA_VISIBLE_DEVICES");
        for (int i = 0; at && i < slot; i++) at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
        if (at)
            tr_snprintf(text, sizeof text, "%.*s", (int)strcspn(at, ","), at);
        else
            tr_snprintf(text, sizeof text, "%d", slot);
        setenv("CUDA_VISIBLE_DEVICES", text, 1);
    }
    sigprocmask(SIG_SETMASK, mask, NULL);
    execv("/proc/self/exe", argv);
    _exit(TR_ERR_INTERNAL);
}

static tr_status_t slot_start(runner_t *r, int slot, sweep_member_t *member, const sigset_t *mask) {
    static char *const fixed[] = {"run.verdict=", "run.lock_wait=1s"};
    sweep_words_t words = {0};
    char log_path[4096], **argv = NULL;
    tr_status_t status;
    TR_TRY_GOTO(sweep_path(r->sweep, member, ".log", log_path), done);
    TR_TRY_GOTO(sweep_words(r->sweep, member, &words), done);
    TR_TRY_GOTO(tr_alloc((words.count + TR_COUNT(fixed) + 3) * sizeof *argv, "arguments", &argv),
                done);
    size_t n = 0;
    argv[n++] = "trainer";
    argv[n++] = "train";
    for (size_t i = 0; i < words.count; i++) argv[n++] = words.data[i];
    for (size_t i = 0; i < TR_COUNT(fixed); i++) argv[n++] = fixed[i];
    fflush(NULL);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) slot_exec(r, slot, mask, log_path, argv, parent);
    if (pid < 0)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_IO, "sweep: cannot start a process: %s", strerror(errno)), done);
    r->slots[slot] = (slot_t){member, pid, tr_clock_sec()};
    r->running++;
done:
    sweep_words_free(&words);
    tr_free(&argv);
    return status;
}

/* -- what people see --------------------------------------------------------------------------- */

/* The end of a file, as far as it fits. */
static void read_tail(const char *path, char *text, size_t bytes) {
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t count = 0;
    if (fd >= 0 && fstat(fd, &info) == 0)
        count = pread(fd, text, bytes - 1,
                      info.st_size > (off_t)bytes - 1 ? info.st_size - (off_t)bytes + 1 : 0);
    if (fd >= 0) close(fd);
    text[count > 0 ? count : 0] = '\0';
}

/* The last step in the metrics of a member; 0: none yet. */
static int64_t member_step(const sweep_t *sweep, const sweep_member_t *member) {
    char path[4096], text[4096], *at, *last = NULL;
    if (sweep_path(sweep, member, "/metrics.jsonl", path) != TR_OK) return 0;
    read_tail(path, text, sizeof text);
    for (at = text; (at = strstr(at, "\"step\":")); at++) last = at;
    return last ? strtoll(last + strlen("\"step\":"), NULL, 10) : 0;
}

static void runner_erase(const runner_t *r) {
    if (r->is_terminal) fputs("\r\033[K", stderr);
}

/* One line on a terminal: what is done, what runs, how long it will take. */
static void runner_draw(const runner_t *r) {
    tr_str_t line = {0};
    struct winsize size;
    char left[32];
    if (!r->is_terminal) return;
    const int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1
                            ? size.ws_col - 1
                            : 79; /* a longer line would wrap, and stay */
    tr_str_printf(&line, "%d of %zu done, running", r->done, r->sweep->members.count);
    for (int i = 0; i < r->jobs && line.length < 60; i++)
        if (r->slots[i].pid)
            tr_str_printf(&line, " %03d (step %lld)", r->slots[i].member->number,
                          (long long)member_step(r->sweep, r->slots[i].member));
    if (r->timed > 0) {
        double sec = (double)(r->queue.count - r->next) * r->busy_sec / r->timed / r->jobs;
        double longest = 0;
        for (int i = 0; i < r->jobs; i++)
            if (r->slots[i].pid)
                longest = fmax(longest, r->busy_sec / r->timed -
                                            (tr_clock_sec() - r->slots[i].start_sec));
        tr_str_printf(&line, ", about %s left", tr_format_duration(sec + longest, left));
    }
    if (line.status == TR_OK) fprintf(stderr, "\r\033[K%.*s", columns, line.text);
    tr_str_free(&line);
}

static void runner_say_end(runner_t *r, const slot_t *slot, int code) {
    static const char mark[] = "trainer: error: ";
    const sweep_member_t *member = slot->member;
    tr_str_t line = {0};
    char path[4096], text[8192], took[32], *at = text, *last = NULL;
    tr_str_printf(&line, "%03d  ", member->number);
    sweep_describe(r->sweep, member, &line);
    tr_format_duration(tr_clock_sec() - slot->start_sec, took);
    if (code == TR_OK)
        tr_str_printf(&line, "  done in %s, best loss %.4g", took, member->best);
    else if (code == TR_ERR_STOP)
        tr_str_printf(&line, "  diverged after %s (code 93)", took);
    else if (code == TR_ERR_RETRY && r->stops > 0)
        tr_str_printf(&line, "  stopped after step %lld",
                      (long long)member_step(r->sweep, member));
    else {
        tr_str_printf(&line, "  %s, code %d: %s",
                      code != TR_ERR_RETRY   ? "failed"
                      : member->is_elsewhere ? "trained elsewhere"
                                             : "stopped",
                      code, member->reason);
        /* without a reason in its verdict, the error that it printed last */
        if (!*member->reason && sweep_path(r->sweep, member, ".log", path) == TR_OK) {
            read_tail(path, text, sizeof text);
            while ((at = strstr(at, mark))) last = at += strlen(mark);
            if (last) tr_str_printf(&line, "%.*s", (int)strcspn(last, "\n"), last);
            if (!last) tr_str_printf(&line, "see %s", path);
        }
    }
    runner_erase(r);
    if (line.status == TR_OK) fprintf(stderr, "%s\n", line.text);
    tr_str_free(&line);
}

/* -- all members ------------------------------------------------------------------------------- */

static tr_status_t runner_ended(runner_t *r, int slot, int state) {
    slot_t *s = &r->slots[slot];
    const int code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    const bool was_put_back = r->next > r->first_pass;
    const tr_status_t looked = sweep_look(r->sweep, s->member);
    if (looked != TR_OK) {
        runner_erase(r);
        fprintf(stderr, "%03d  %s\n", s->member->number, tr_error_last()->message);
        if (r->failed++ == 0) r->code = looked;
        tr_error_clear();
    } else {
        runner_say_end(r, s, code);
    }
    if (looked == TR_OK && (code == TR_OK || code == TR_ERR_STOP)) {
        r->done++;
        r->timed++;
        r->busy_sec += tr_clock_sec() - s->start_sec;
    } else if (looked == TR_OK && code != TR_ERR_RETRY) {
        if (r->failed++ == 0)
            r->code = WIFEXITED(state) ? (tr_status_t)code : TR_ERR_RETRY; /* killed */
    } else if (looked == TR_OK && r->stops == 0) {
        if (!s->member->is_elsewhere)
            r->stopped++;
        else if (was_put_back)
            r->elsewhere++;
        else
            TR_TRY(tr_vec_push(&r->queue, s->member));
    }
    *s = (slot_t){.member = NULL};
    r->running--;
    return TR_OK;
}

static void runner_stop(runner_t *r, int number) {
    const bool is_second = r->stops++ > 0 && number == SIGINT;
    runner_erase(r);
    fprintf(stderr, "%s\n",
            is_second ? "second interrupt: the members are ended at once"
                      : "stopping: the members save a checkpoint; a second interrupt ends them");
    for (int i = 0; i < r->jobs; i++)
        if (r->slots[i].pid) kill(r->slots[i].pid, is_second ? SIGKILL : SIGTERM);
}

static tr_status_t runner_result(runner_t *r) {
    const int count = (int)r->sweep->members.count;
    /* Other processes may have trained some. */
    r->done = 0;
    for (int i = 0; i < count; i++) {
        sweep_member_t *member = &r->sweep->members.data[i];
        if (!member->is_done && sweep_look(r->sweep, member) != TR_OK) tr_error_clear();
        r->done += member->is_done;
    }
    if (r->stops > 0)
        return TR_FAIL(TR_ERR_RETRY,
                       "sweep: stopped by a signal, %d of %d members are done; the same command "
                       "continues",
                       r->done, count);
    if (r->failed > 0)
        return TR_FAIL(r->code,
                       "sweep: %d of %d members failed, %d are done; the same command tries them "
                       "again",
                       r->failed, count, r->done);
    if (r->stopped > 0)
        return TR_FAIL(TR_ERR_RETRY,
                       "sweep: %d of %d members are done, %d stopped before their end; the same "
                       "command continues",
                       r->done, count, r->stopped);
    if (r->elsewhere > 0)
        return TR_FAIL(TR_ERR_RETRY,
                       "sweep: %d of %d members are done, and other processes train %d; run the "
                       "same command again later",
                       r->done, count, r->elsewhere);
    return TR_OK;
}

tr_status_t sweep_run(sweep_t *sweep, int jobs, bool own_gpus) {
    static const int stops[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
    runner_t r = {.sweep = sweep,
                  .jobs = jobs,
                  .own_gpus = own_gpus,
                  .is_terminal = isatty(STDERR_FILENO)};
    sigset_t wait_for, mask;
    tr_status_t status;
    TR_TRY_GOTO(tr_alloc((size_t)jobs * sizeof *r.slots, "slots", &r.slots), done);
    if (sched_getaffinity(0, sizeof r.cores, &r.cores) != 0) CPU_ZERO(&r.cores);
    for (size_t i = 0; i < sweep->members.count; i++) {
        if (sweep->members.data[i].is_done)
            r.done++;
        else
            TR_TRY_GOTO(tr_vec_push(&r.queue, &sweep->members.data[i]), done);
    }
    r.first_pass = r.queue.count;
    if ((size_t)jobs > r.queue.count && r.queue.count > 0) r.jobs = (int)r.queue.count;
    fprintf(stderr, "%s: %zu member%s, %d done, %d at a time\n", sweep->out, sweep->members.count,
            sweep->members.count == 1 ? "" : "s", r.done, r.jobs);
    sigemptyset(&wait_for);
    sigaddset(&wait_for, SIGCHLD);
    for (size_t i = 0; i < TR_COUNT(stops); i++) {
        struct sigaction found;
        /* nohup */
        if (sigaction(stops[i], NULL, &found) == 0 && found.sa_handler == SIG_IGN) continue;
        sigaddset(&wait_for, stops[i]);
    }
    sigprocmask(SIG_BLOCK, &wait_for, &mask);
    while (status == TR_OK && (r.running > 0 || (r.stops == 0 && r.next < r.queue.count))) {
        for (int i = 0; i < r.jobs && r.stops == 0 && status == TR_OK; i++) {
            sweep_member_t *member = r.next < r.queue.count ? r.queue.data[r.next] : NULL;
            /* what was put back waits until the others are done */
            if (!member || r.slots[i].pid || (r.next >= r.first_pass && r.running > 0)) continue;
            r.next++;
            status = slot_start(&r, i, member, &mask);
        }
        if (status != TR_OK) break;
        /* waits until a member ends, a signal comes, or a second has passed */
        runner_draw(&r);
        const int number = sigtimedwait(&wait_for, NULL, &(struct timespec){.tv_sec = 1});
        if (number > 0 && number != SIGCHLD) runner_stop(&r, number);
        for (int i = 0, state; i < r.jobs && status == TR_OK; i++)
            if (r.slots[i].pid && waitpid(r.slots[i].pid, &state, WNOHANG) == r.slots[i].pid)
                status = runner_ended(&r, i, state);
    }
    if (status != TR_OK) runner_stop(&r, SIGTERM);
    for (int i = 0; i < r.jobs && status != TR_OK; i++)
        while (r.slots[i].pid && waitpid(r.slots[i].pid, NULL, 0) < 0 && errno == EINTR) {
        }
    runner_erase(&r);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (status == TR_OK) status = runner_result(&r);
done:
    tr_vec_free(&r.queue);
    tr_free(&r.slots);
    return status;
}
