/*
 * The number of computing threads, and their treatment of denormals.
 *
 * Denormals: on every thread, from the opening of the device on, results below 1.2e-38 become zero
 * and such inputs count as zero. The moments of a dead unit shrink by a constant factor per step
 * and would stay denormal forever. Arithmetic on denormals is many times slower on most processors,
 * and no training depends on it. The mode belongs to a thread: it is set in the caller of open and
 * in its OpenMP team, and threads created later inherit it.
 */
#include "cpu_int.h"
#include "base/host.h"
#include <ctype.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static void flush_denormals(void) {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, denormals are zero */
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" ::"r"(fpcr | (UINT64_C(1) << 24)));
#endif
}

int tr_cpu_threads_default(void) {
    const char *text = getenv("OMP_NUM_THREADS"); /* "4" or, per nesting level, "4,2" */
    int wanted = text && isdigit((unsigned char)*text) ? atoi(text) : 0;
    if (wanted > 0) return wanted;
    int cpus = omp_get_num_procs(),
        limit = tr_host_cpu_limit(); /* a container may see all processors but may use only a few */
    return limit > 0 && limit < cpus ? limit : cpus;
}

int tr_cpu_threads_enter(int threads) {
    int team = 1;
    sigset_t all, before;
    /* Threads of the team block signals: they have no alternate stack, and kernels use the stack
     * pointer as a general register. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    omp_set_dynamic(0);
    flush_denormals();
#pragma omp parallel num_threads(threads)
    {
        flush_denormals();
#pragma omp single
        team = omp_get_num_threads();
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    omp_set_num_threads(team); /* what oneDNN goes by */
    return team;
}
