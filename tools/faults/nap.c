/*
 * Preloaded by the tests. A rank that waits in MPI gives up its core in a loop, and the kernel gives
 * it back as often as to one that computes. Here it also sleeps: tests, and the ranks of one, share
 * few cores.
 */
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define YIELDS 16 /* calls to one sleep */

int sched_yield(void) {
    static __thread unsigned calls;
    const struct timespec nap = {.tv_nsec = 50000};
    if (++calls % YIELDS == 0) (void)nanosleep(&nap, NULL);
    return (int)syscall(SYS_sched_yield);
}
