#include "signals.h"

#include "trainer/log.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic int pending; /* the watchdog reads it, too; without a lock, so that a handler may set it */
static atomic_bool said;
static atomic_uint came;  /* a bit for each signal */
static char newest[4096]; /* the link to the last checkpoint; "": this rank has nothing to tell of them */
static char remedy[4096 + 128]; /* how to go on from there */
enum { WATCHED = 4 };
static const int watched[WATCHED] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};
static struct sigaction before[WATCHED];

/* In a signal handler: nothing but calls that POSIX allows there. */
static void say_last_words(void) {
    char text[sizeof newest + sizeof remedy + 256] = "\nended at once by a second signal: ";
    char step[64] = "";
    const ssize_t bytes = readlink(newest, step, sizeof step - 1);
    if (bytes > 0) {
        strcat(strcat(text, "what came after "), newest);
        strcat(strcat(strcat(text, " ("), step), ") is lost; ");
        strcat(strcat(text, remedy), "\n");
    } else {
        strcat(text, "no checkpoint is saved; the same command begins again\n");
    }
    tr_log_write_bytes(STDERR_FILENO, text, strlen(text));
}

/* The first one is the one that is told: launchers send others behind it. The same one again ends the process; USR1, which srun and mpirun may send
 * to a rank more than once, never does, nor HUP, which a closed terminal's shell and kernel both send. */
static void note(int number) {
    const unsigned bit = 1u << number;
    int none = 0;
    atomic_compare_exchange_strong(&pending, &none, number);
    if (!(atomic_fetch_or(&came, bit) & bit) || number == SIGUSR1 || number == SIGHUP) return;
    signal(number, SIG_DFL);
    if (newest[0]) say_last_words();
    raise(number);
}

/* Kernels of oneDNN use the stack pointer as one of their registers, into memory of theirs: a handler must bring a stack of its own. */
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
    atomic_store(&pending, 0);
    atomic_store(&said, false);
    atomic_store(&came, 0);
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    action.sa_flags |= SA_NODEFER; /* a third one does not wait for words that go nowhere */
    for (int i = 0; i < WATCHED; i++) {
        sigaction(watched[i], &action, &before[i]);
        if (watched[i] == SIGHUP && before[i].sa_handler == SIG_IGN)
            sigaction(SIGHUP, &before[i], NULL); /* nohup */
    }
}

void tr_signals_checkpoints(const char *dir, const char *way_on) {
    snprintf(remedy, sizeof remedy, "%s", way_on);
    if (snprintf(newest, sizeof newest, "%s/latest", dir) >= (int)sizeof newest) newest[0] = '\0';
}

void tr_signals_restore(void) {
    for (int i = 0; i < WATCHED; i++) sigaction(watched[i], &before[i], NULL);
    newest[0] = '\0';
}

void tr_signals_say(int number) {
    if (atomic_exchange(&said, true)) return;
    const char *term = getenv("OMPI_COMM_WORLD_SIZE") ? "TERM, which mpirun sends on Ctrl-C, too" : "TERM",
               *name = number == SIGTERM  ? term
                       : number == SIGINT ? "INT"
                       : number == SIGHUP ? "HUP, the terminal was closed"
                                          : "USR1";
    if (number != 0)
        TR_INFO("asked to stop (%s): a checkpoint will be saved behind this step", name);
    else
        TR_INFO("another rank was asked to stop: a checkpoint will be saved behind this step");
}

int tr_signals_pending(void) {
    const int number = atomic_load(&pending);
    if (number != 0) tr_signals_say(number);
    return number;
}
