/* Threads of our own have a name and take no signals; who starts them takes those that it took
 * before. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdbool.h>

#include "base/thread.h"

static bool takes(int number) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    return !sigismember(&blocked, number);
}

static void *look(void *self) {
    bool *took = self;
    *took = takes(SIGTERM) || takes(SIGINT) || takes(SIGUSR1);
    return self;
}

static void threads_take_no_signals(void **state) {
    pthread_t thread;
    void *result;
    bool took = true;
    assert_int_equal(tr_thread_start("trainer-test", look, &took, &thread), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &took);
    assert_false(took);
    assert_true(takes(SIGTERM));
}

static void *wait_for(void *self) {
    pthread_barrier_wait(self);
    return NULL;
}

static void threads_have_a_name(void **state) {
    pthread_t thread;
    pthread_barrier_t end;
    char name[16];
    pthread_barrier_init(&end, NULL, 2);
    assert_int_equal(tr_thread_start("trainer-test", wait_for, &end, &thread), 0);
    assert_int_equal(pthread_getname_np(thread, name, sizeof name), 0);
    assert_string_equal(name, "trainer-test");
    pthread_barrier_wait(&end);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&end);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_take_no_signals),
        cmocka_unit_test(threads_have_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
