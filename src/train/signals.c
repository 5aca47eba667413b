/* Stop requests: signals, and the time limit of run.until. */
#include "signals.h"

#include "comm/comm.h"
#include "run/verdict.h"
#include "base/clock.h"
#include "trainer/log.h"
#include "trainer/train.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOES_ON_SEC 5 /* after CONT; mpirun kills its ranks after two */

/* also read by the watchdog; lock-free, so that a handler may set it */
static _Atomic int pending;
static atomic_bool said;
static atomic_uint came;         /* a bit for each signal */
static _Atomic double until_sec; /* wall-clock time at which to stop; 0: no limit */
/* link to the last checkpoint; "": this rank saves none */
static char newest[4096];
static char remedy[4096 + 128]; /* how to resume from it */
enum { WATCHED = 5 };
static const int watched[WATCHED] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGCONT};
static struct sigaction before[WATCHED];
static bool installed, kept; /* installed by main(), until the process ends */
static bool is_mpirun;       /* the launcher, which sends CONT */
static bool is_first;        /* rank of the launcher: speaks until rank 0 of the run is known */
static atomic_bool save_asked;
static _Atomic double continued_sec; /* when CONT came; 0: never, or long ago */

/* -- in signal handlers: only async-signal-safe functions -------------------------------------- */

enum { TEXT_BYTES = sizeof newest + sizeof remedy + 512 };

/* Appends the newest checkpoint; returns false if there is none. */
static bool put_newest(char *text) {
    char step[64] = "";
    if (readlink(newest, step, sizeof step - 1) <= 0) return false;
    strcat(strcat(strcat(strcat(text, newest), " ("), step), ")");
    return true;
}

static void say_last_words(void) {
    char text[TEXT_BYTES] = "\nstopped immediately by a second signal: steps after ";
    if (put_newest(text)) {
        strcat(strcat(strcat(text, " is lost; "), remedy), "\n");
    } else {
        strcpy(text, "\nstopped immediately by a second signal: no checkpoint was saved; the same "
                     "command starts from the beginning\n");
    }
    tr_log_write_bytes(STDERR_FILENO, text, strlen(text));
}

/* The first signal is the one that is reported; launchers send others after it. Only a second INT
 * ends the process. A second TERM does not: SLURM sends it twice at the time limit, with KillWait
 * (30 s) left to save. */
static void note(int number) {
    const unsigned bit = 1u << number;
    int none = 0;
    atomic_compare_exchange_strong(&pending, &none, number);
    if (!(atomic_fetch_or(&came, bit) & bit) || number != SIGINT) return;
    signal(number, SIG_DFL);
    if (newest[0]) say_last_words();
    raise(number);
}

/* Writes a line. Neither a terminal that is stopped by Ctrl-S nor one that refuses background
 * processes delays the run. */
static void write_to_terminal(const char *text) {
    sigset_t output, old;
    const int fd = open("/dev/tty", O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return;
    sigemptyset(&output);
    sigaddset(&output, SIGTTOU);
    pthread_sigmask(SIG_BLOCK, &output, &old);
    tr_log_write_bytes(fd, text, strlen(text));
    tr_log_write_bytes(fd, "\n", 1);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    close(fd);
}

/* Appends from where the run resumes; returns whether that is a checkpoint. */
static bool put_state(char *text) {
    if (newest[0] && put_newest(strcat(text, "the newest checkpoint is "))) return true;
    strcat(text, newest[0] ? "not there yet" : "the run has not begun");
    return false;
}

/* text: TEXT_BYTES, overwritten. */
static void write_provisional_verdict(char *text) {
    put_state(strcpy(text, "CONT, which mpirun sends before it ends its ranks; "));
    tr_verdict_provisional(text);
}

static void note_continue(int number) {
    (void)number;
    const int kept_errno = errno;
    atomic_store(&continued_sec, tr_clock_sec());
    atomic_store(&save_asked, true);
    if (newest[0] || is_first) {
        char text[TEXT_BYTES];
        write_provisional_verdict(text);
        strcpy(text, "\nmpirun is about to end the run (CONT, as on Ctrl-C): a checkpoint is saved "
                     "after this step if there is time; ");
        if (put_state(text)) strcat(strcat(text, "; "), remedy);
        write_to_terminal(strcat(text, ". After Ctrl-Z and fg, training goes on."));
    }
    errno = kept_errno;
}

/* -- outside of them --------------------------------------------------------------------------- */

void tr_signals_install(void) {
    static char stack[64 << 10];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    stack_t used;
    struct sigaction action;
    /* oneDNN's kernels use the stack pointer as a general register, so a handler needs an alternate
     * stack. */
    if (sigaltstack(NULL, &used) == 0 && (used.ss_flags & SS_DISABLE)) sigaltstack(&own, NULL);
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    if (!installed) {
        is_mpirun = tr_launch_is_mpirun(); /* now: MPI_Init may change the environment */
        is_first = tr_launch_rank() == 0;
        atomic_store(&save_asked, false);
        atomic_store(&continued_sec, 0);
        atomic_store(&pending, 0);
        atomic_store(&said, false);
        atomic_store(&came, 0);
        atomic_store(&until_sec, 0);
    }
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    action.sa_flags |= SA_NODEFER; /* a third signal ends the process even if output blocks */
    for (int i = 0; i < WATCHED; i++) {
        struct sigaction found;
        sigaction(watched[i], NULL, &found);
        if (!installed) before[i] = found;
        if (watched[i] == SIGCONT && !is_mpirun) continue;
        action.sa_handler = watched[i] == SIGCONT ? note_continue : note;
        const bool is_nohup = watched[i] == SIGHUP && before[i].sa_handler == SIG_IGN;
        sigaction(watched[i], is_nohup ? &before[i] : &action, NULL);
    }
    installed = true;
}

void tr_train_catch_signals(void) {
    tr_signals_install();
    kept = true;
}

void tr_signals_checkpoints(const char *dir, const char *resume_hint) {
    snprintf(remedy, sizeof remedy, "%s", resume_hint);
    if (snprintf(newest, sizeof newest, "%s/latest", dir) >= (int)sizeof newest) newest[0] = '\0';
}

void tr_signals_restore(void) {
    if (kept) return;
    installed = false;
    for (int i = 0; i < WATCHED; i++) sigaction(watched[i], &before[i], NULL);
    newest[0] = '\0';
}

static const char *signals_name_of(int number) {
    switch (number) {
    case SIGTERM:
        return is_mpirun ? "TERM, which mpirun also sends on Ctrl-C and when a rank is lost"
                         : "TERM";
    case SIGINT: return "INT";
    case SIGHUP: return "HUP, the terminal was closed";
    case SIGALRM: return "run.until, the time limit is near";
    default: return "USR1";
    }
}

void tr_signals_say(int number) {
    if (atomic_exchange(&said, true)) return;
    if (number != 0)
        TR_INFO("received a request to stop (%s): will save a checkpoint after this step, if every "
                "rank completes it",
                signals_name_of(number));
    else
        TR_INFO("another rank received a request to stop: will save a checkpoint after this step");
}

bool tr_signals_take_save(void) {
    return atomic_exchange(&save_asked, false);
}

void tr_signals_tell(const char *text) {
    if (newest[0] && atomic_load(&continued_sec) != 0) write_to_terminal(text);
}

void tr_signals_saved(void) {
    char text[TEXT_BYTES];
    if (atomic_load(&continued_sec) == 0) return;
    write_provisional_verdict(text);
    strcpy(text, "saved ");
    if (put_newest(text)) write_to_terminal(strcat(strcat(text, "; "), remedy));
}

void tr_signals_settle(void) {
    const double sec = atomic_load(&continued_sec);
    if (sec == 0 || atomic_load(&pending) != 0 || tr_clock_sec() - sec < GOES_ON_SEC) return;
    atomic_store(&continued_sec, 0);
    tr_verdict_withdraw();
}

void tr_signals_until(double unix_sec) {
    atomic_store(&until_sec, unix_sec);
}

int tr_signals_pending(void) {
    const double until = atomic_load(&until_sec);
    int number = atomic_load(&pending);
    if (number == 0 && until > 0 && tr_clock_unix_sec() >= until) number = SIGALRM;
    if (number != 0) tr_signals_say(number);
    return number;
}
