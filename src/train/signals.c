#include "signals.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t pending;
static struct sigaction before[3];
static const int watched[3] = {SIGTERM, SIGINT, SIGUSR1};

static void note(int number) {
    pending = number;
}

void tr_signals_install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = note;
    pending = 0;
    for (int i = 0; i < 3; i++) {
        /* USR1 may be sent to a rank more than once (by srun and by mpirun): it never ends the process. */
        action.sa_flags = SA_RESTART | (watched[i] == SIGUSR1 ? 0 : (int)SA_RESETHAND);
        sigaction(watched[i], &action, &before[i]);
    }
}

void tr_signals_restore(void) {
    for (int i = 0; i < 3; i++) sigaction(watched[i], &before[i], NULL);
}

int tr_signals_pending(void) {
    return pending;
}
