/* Helper threads. */
#ifndef TR_BASE_THREAD_H
#define TR_BASE_THREAD_H

#include <pthread.h>

/*
 * Starts `main(self)` in a new thread. Debuggers show it as `name` (at most 15 characters). It
 * blocks all signals, which the thread of the training loop handles. The caller joins or detaches
 * it. Returns 0 or an errno; no error is recorded.
 */
int tr_thread_start(const char *name, void *(*main)(void *self), void *self, pthread_t *out);

#endif
