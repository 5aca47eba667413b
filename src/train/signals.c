#include "signals.h"

#include "trainer/log.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int pending; /* the watchdog reads it, too; without a lock, so that a handler may set it */
static atomic_bool said;
static struct sigaction before[3];
static const int watched[3] = {SIGTERM, SIGINT, SIGUSR1};

/* The first one is the one that is told: launchers send others behind it. */
static void note(int number) {
    int none = 0;
    atomic_compare_exchange_strong(&pending, &none, number);
}

void tr_signals_install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = note;
    atomic_store(&pending, 0);
    atomic_store(&said, false);
    for (int i = 0; i < 3; i++) {
        /* USR1 may be sent to a rank more than once (by srun and by mpirun): it never ends the process. */
        action.sa_flags = SA_RESTART | (watched[i] == SIGUSR1 ? 0 : (int)SA_RESETHAND);
        sigaction(watched[i], &action, &before[i]);
    }
}

void tr_signals_restore(void) {
    for (int i = 0; i < 3; i++) sigaction(watched[i], &before[i], NULL);
}

void tr_signals_say(int number) {
    if (atomic_exchange(&said, true)) return;
    const char *term = getenv("OMPI_COMM_WORLD_SIZE") ? "TERM, which mpirun sends on Ctrl-C, too" : "TERM",
               *name = number == SIGTERM  ? term
                       : number == SIGINT ? "INT"
                                          : "USR1";
    if (number != 0)
        TR_INFO("asked to stop (%s): this step is ended and a checkpoint saved", name);
    else
        TR_INFO("another rank was asked to stop: a checkpoint is saved");
}

int tr_signals_pending(void) {
    const int number = atomic_load(&pending);
    if (number != 0) tr_signals_say(number);
    return number;
}
