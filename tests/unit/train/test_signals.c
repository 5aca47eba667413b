//TEST np=1 OMP_NUM_THREADS=2
/* Handlers never run on a stack of whatever the program is doing: kernels keep other things in the
 * stack pointer, and a frame below it would destroy them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"
#include "train/signals.h"
#include "device/device.h"
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

static void handlers_bring_their_own_stack(void **state) {
    static const int watched[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};
    tr_signals_install();
    for (int i = 0; i < 4; i++) {
        struct sigaction action;
        assert_int_equal(sigaction(watched[i], NULL, &action), 0);
        assert_true(action.sa_flags & SA_ONSTACK);
    }
    stack_t stack;
    assert_int_equal(sigaltstack(NULL, &stack), 0);
    assert_false(stack.ss_flags & SS_DISABLE);
    assert_in_range(stack.ss_size, 16 << 10, SIZE_MAX);
    tr_signals_restore();
}

static void *disposition(int number) {
    struct sigaction action;
    assert_int_equal(sigaction(number, NULL, &action), 0);
    return (void *)action.sa_handler;
}

/* Behind nohup a closed terminal is nothing; without it each of several HUPs asks to stop, and none
 * ends the process. */
static void hup_stays_ignored(void **state) {
    signal(SIGHUP, SIG_IGN);
    tr_signals_install();
    raise(SIGHUP);
    assert_int_equal(tr_signals_pending(), 0);
    tr_signals_restore();
    assert_ptr_equal(disposition(SIGHUP), (void *)SIG_IGN);
    signal(SIGHUP, SIG_DFL);
    tr_signals_install();
    raise(SIGHUP);
    raise(SIGHUP);
    assert_int_equal(tr_signals_pending(), SIGHUP);
    tr_signals_restore();
    assert_ptr_equal(disposition(SIGHUP), (void *)SIG_DFL);
}

enum { STACK = 64 << 10, PAINT = 0xa5 };
static ucontext_t outside, inside;

static void get_a_signal(void) {
    kill(getpid(), SIGUSR1);
    swapcontext(&inside, &outside);
}

/* A signal that comes while the stack pointer is in a block of memory changes nothing far below it.
 */
static void memory_below_the_stack_pointer_stays(void **state) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* their own way of calling handlers takes more of the stack */
#endif
    unsigned char *block = malloc(STACK);
    memset(block, PAINT, STACK);
    kill(getpid(), 0); /* the dynamic linker finds it here, and not on the small stack */
    tr_signals_install();
    getcontext(&inside);
    inside.uc_stack.ss_sp = block;
    inside.uc_stack.ss_size = STACK;
    makecontext(&inside, get_a_signal, 0);
    swapcontext(&outside, &inside);
    assert_int_equal(tr_signals_pending(), SIGUSR1);
    size_t clean = 0;
    while (clean < STACK && block[clean] == PAINT) clean++;
    assert_in_range(STACK - clean, 1,
                    800); /* a frame for a handler saves all registers: 900 bytes and more */
    tr_signals_restore();
    free(block);
}

/* Those of OpenMP's team have no such stack. */
static void computing_threads_take_no_signals(void **state) {
    tr_device_t *device;
    int open_to = 0;
    OK(tr_device_open("cpu", NULL, &device));
#pragma omp parallel num_threads(2) reduction(+ : open_to)
    if (omp_get_thread_num() > 0) {
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, NULL, &blocked);
        open_to += !sigismember(&blocked, SIGTERM) + !sigismember(&blocked, SIGINT) +
                   !sigismember(&blocked, SIGUSR1) + !sigismember(&blocked, SIGHUP);
    }
    assert_int_equal(open_to, 0);
    sigset_t mine;
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    assert_false(sigismember(&mine, SIGTERM));
    tr_device_close(&device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handlers_bring_their_own_stack),
        cmocka_unit_test(hup_stays_ignored),
        cmocka_unit_test(memory_below_the_stack_pointer_stays),
        cmocka_unit_test(computing_threads_take_no_signals),
    };
    return cmocka_run_group_tests_name("signals", tests, NULL, NULL);
}
