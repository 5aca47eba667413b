/* Threads of our own. */
#ifndef TRAINER_THREAD_H
#define TRAINER_THREAD_H

#include <pthread.h>

/*
 * Starts `main(self)` in a thread that debuggers show as `name` (at most 15 characters) and that
 * takes no signals: those are for the thread that runs the loop. For pthread_join or
 * pthread_detach. Returns 0 or an errno; no error is recorded.
 */
int tr_thread_start(const char *name, void *(*main)(void *self), void *self, pthread_t *out);

#endif
