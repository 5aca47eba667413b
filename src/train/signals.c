/* Stop requests: signals, and the time limit of run.until. */
#include "signals.h"

#include "base/clock.h"
#include "trainer/log.h"
#include "trainer/train.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* also read by the watchdog; lock-free, so that a handler may set it */
static _Atomic int pending;
static atomic_bool said;
static atomic_uint came;         /* a bit for each signal */
static _Atomic double until_sec; /* wall-clock time at which to stop; 0: no limit */
/* link to the last checkpoint; "": this rank saves none */
static char newest[4096];
static char remedy[4096 + 128]; /* how to resume from it */
enum { WATCHED = 4 };
static const int watched[WATCHED] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};
static struct sigaction before[WATCHED];
static bool installed, kept; /* installed by main(), until the process ends */

/* Called in a signal handler: only async-signal-safe functions. */
static void say_last_words(void) {
    char text[sizeof newest + sizeof remedy + 256] = "\nstopped immediately by a second signal: ";
    char step[64] = "";
    const ssize_t bytes = readlink(newest, step, sizeof step - 1);
    if (bytes > 0) {
        strcat(strcat(text, "steps after "), newest);
        strcat(strcat(strcat(text, " ("), step), ") is lost; ");
        strcat(strcat(text, remedy), "\n");
    } else {
        strcat(text, "no checkpoint was saved; the same command starts from the beginning\n");
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

/* oneDNN's kernels use the stack pointer as a general register, so a handler needs an alternate
 * stack. */
static void use_own_stack(void) {
    static char stack[64 << 10];
    const stack_t mine = {.ss_sp = stack, .ss_size = sizeof stack};
    stack_t found;
    if (sigaltstack(NULL, &found) == 0 && (found.ss_flags & SS_DISABLE)) sigaltstack(&mine, NULL);
}

void tr_signals_install(void) {
    struct sigaction action;
    use_own_stack();
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = note;
    if (!installed) {
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
        return getenv("OMPI_COMM_WORLD_SIZE") ? "TERM, which mpirun also sends on Ctrl-C" : "TERM";
    case SIGINT: return "INT";
    case SIGHUP: return "HUP, the terminal was closed";
    case SIGALRM: return "run.until, the time limit is near";
    default: return "USR1";
    }
}

void tr_signals_say(int number) {
    if (atomic_exchange(&said, true)) return;
    if (number != 0)
        TR_INFO("received a request to stop (%s): will save a checkpoint after this step",
                signals_name_of(number));
    else
        TR_INFO("another rank received a request to stop: will save a checkpoint after this step");
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
