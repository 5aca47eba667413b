/* Starts named threads. */
#include "base/thread.h"
#include <signal.h>

int tr_thread_start(const char *name, void *(*main)(void *self), void *self, pthread_t *out) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(out, NULL, main, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed == 0) pthread_setname_np(*out, name);
    return failed;
}
