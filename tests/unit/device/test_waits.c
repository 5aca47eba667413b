/* Who decides how OpenMP's threads wait, when that changes, and that it does. */
//TEST
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "device/waits.h"
#include "base/clock.h"

#include <dirent.h>
#include <omp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define RIVALS     4
#define REGIONS    30
#define MOST_SEC   60
#define SLEEP_USEC 2000

/* -- what is chosen ---------------------------------------------------------------------------- */

static void variables_of_the_user_are_found_by_their_whole_name(void **state) {
    static char *const none[] = {"OMP_NUM_THREADS=2",        "XGOMP_SPINCOUNT=1",
                                 "GOMP_SPINCOUNTS=1",        "OMP_WAIT_POLICY",
                                 "A=OMP_WAIT_POLICY=active", NULL};
    static char *const policy[] = {"HOME=/", "OMP_WAIT_POLICY=active", NULL};
    static char *const count[] = {"GOMP_SPINCOUNT=", NULL};
    static char *const time[] = {"KMP_BLOCKTIME=0", NULL};
    assert_null(tr_waits_variable(NULL));
    assert_null(tr_waits_variable(none));
    assert_string_equal(tr_waits_variable(policy), "OMP_WAIT_POLICY");
    assert_string_equal(tr_waits_variable(count), "GOMP_SPINCOUNT");
    assert_string_equal(tr_waits_variable(time), "KMP_BLOCKTIME");
}

static void waits_sleep_beside_rivals_and_spin_again_after_them(void **state) {
    static const struct {
        double crowd;
        bool sleep;
    } samples[] = {{0.0, false},  {2.0, false}, /* one sample says nothing: threads that began */
                   {0.1, false},  {0.4, false}, {0.4, true},  {0.3, true}, {0.1, true},
                   {0.1, true},   {0.1, true},  {0.1, true},  {0.2, true}, /* rivals again */
                   {0.0, true},   {-0.1, true}, {0.0, true},  {0.0, true}, {0.19, false},
                   {0.39, false}, {0.5, false}, {0.39, false}};
    tr_waits_choice_t choice = {0};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        tr_waits_choose(&choice, samples[i].crowd);
        if (choice.sleep != samples[i].sleep) fail_msg("sample %zu: sleep is %d", i, choice.sleep);
    }
}

/* -- beside rivals ----------------------------------------------------------------------------- */

static int threads_named(const char *beginning) {
    char path[300], name[32];
    const struct dirent *entry;
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks && (entry = readdir(tasks))) {
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!file) continue;
        if (fgets(name, sizeof name, file))
            count += strncmp(name, beginning, strlen(beginning)) == 0;
        fclose(file);
    }
    if (tasks) closedir(tasks);
    return count;
}

static void compute_once(void) {
#pragma omp parallel num_threads(2)
    for (volatile int i = 0; i < 100000; i++) continue;
}

static bool kernel_tells(void) {
    unsigned long long ran = 0;
    FILE *file = fopen("/proc/self/schedstat", "r");
    const bool tells = file && fscanf(file, "%llu", &ran) == 1 && ran > 0;
    if (file) fclose(file);
    return tells;
}

/* On two cores: the test takes no more of a large machine. */
static void rivals_are_noticed(void **state) {
    cpu_set_t all, two;
    pid_t rival[RIVALS];
    tr_waits_t *waits = NULL;
    tr_waits_start(1, &waits);
    assert_null(waits);
    tr_waits_start(2, &waits);
    if (tr_waits_variable(environ)) assert_null(waits);
#ifdef __clang__
    tr_waits_stop(&waits);
#endif
    if (!waits || !kernel_tells() || omp_get_thread_limit() < 2) {
        tr_waits_stop(&waits);
        skip();
    }
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&two);
    for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&two) < 2; c++)
        if (CPU_ISSET(c, &all)) CPU_SET(c, &two);
    assert_int_equal(sched_setaffinity(0, sizeof two, &two), 0);
    for (int i = 0; i < RIVALS; i++) {
        rival[i] = fork();
        if (rival[i] == 0) {
            alarm(2 * MOST_SEC);
            for (;;) continue;
        }
    }
    const double begin_sec = tr_clock_sec();
    while (threads_named("trainer-spare") == 0 && tr_clock_sec() < begin_sec + MOST_SEC)
        compute_once();
    const int spare = threads_named("trainer-spare");
    for (int i = 0; i < RIVALS; i++) {
        kill(rival[i], SIGKILL);
        waitpid(rival[i], NULL, 0);
    }
    assert_int_not_equal(spare, 0);
    tr_waits_stop(&waits);
    assert_null(waits);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    while (threads_named("trainer-") > 0 && tr_clock_sec() < begin_sec + 2 * MOST_SEC) usleep(1000);
    assert_int_equal(threads_named("trainer-"), 0);
}

/* -- what a spare team does -------------------------------------------------------------------- */

/* Of both threads, while one waits for the other, which sleeps. */
static double cpu_sec_of_waiting(void) {
    struct rusage before, after;
    compute_once();
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < REGIONS; i++) {
#pragma omp parallel num_threads(2)
        if (omp_get_thread_num() == 0) usleep(SLEEP_USEC);
    }
    getrusage(RUSAGE_SELF, &after);
    return (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
           1e-6 * (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec);
}

static void threads_sleep_while_there_is_a_spare_team(void **state) {
    tr_spare_team_t team;
    if (omp_get_num_procs() < 2 || omp_get_thread_limit() < 3 || tr_waits_variable(environ)) skip();
    const double before_sec = cpu_sec_of_waiting();
    if (!tr_spare_team_start(&team, 2)) skip();
    const double sec = cpu_sec_of_waiting();
    tr_spare_team_end(&team);
    const double after_sec = cpu_sec_of_waiting();
    if (sec > before_sec / 4 || sec > after_sec / 4)
        fail_msg("%g s of waiting without, %g s with, %g s after a spare team", before_sec, sec,
                 after_sec);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_of_the_user_are_found_by_their_whole_name),
        cmocka_unit_test(waits_sleep_beside_rivals_and_spin_again_after_them),
        cmocka_unit_test(rivals_are_noticed),
        cmocka_unit_test(threads_sleep_while_there_is_a_spare_team),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
