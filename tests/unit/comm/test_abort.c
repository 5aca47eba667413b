/* One rank's end ends all with its code, whatever the others wait in; a peer that does not come is
 * noticed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/collectives.h"
#include "comm/comm.h"

static char self[4096];

static void *abort_elsewhere(void *world) {
    tr_world_abort(world, TR_ERR_DATA);
    return NULL;
}

/* Rank 1 ends the job (in WAY from another thread, while its own waits too); the others wait for
 * it. */
static int child_abort(tr_world_t *world, const char *way) {
    tr_device_t *device = NULL;
    tr_collectives_t *coll = NULL;
    const tr_parallel_settings_t settings = {
        .engine = strcmp(way, "poll") ? TR_ENGINE_THREAD : TR_ENGINE_POLL, .timeout = 60};
    if (tr_device_open("cpu", &(tr_device_params_t){.threads = 1}, &device) ||
        tr_world_collectives(world, device, &settings, &coll))
        return 1;
    pthread_t thread;
    if (tr_world_info(world)->rank == 1) {
        if (strcmp(way, "inside"))
            tr_world_abort(world, TR_ERR_DATA);
        else
            pthread_create(&thread, NULL, abort_elsewhere, world);
        sleep(60); /* else the barrier would end the test with code 1, not 65 */
    }
    tr_world_barrier(world);
    return 1;
}

/* Rank 1 comes too late; the others' wait must end after the time limit. */
static int child_late(tr_world_t *world, int engine) {
    tr_device_t *device = NULL;
    tr_collectives_t *coll = NULL;
    tr_ticket_t ticket = 0;
    float data[8] = {0};
    const tr_parallel_settings_t settings = {.engine = engine, .timeout = 2};
    if (tr_device_open("cpu", &(tr_device_params_t){.threads = 1}, &device) ||
        tr_world_collectives(world, device, &settings, &coll))
        return 1;
    if (tr_world_info(world)->rank == 1) sleep(60);
    if (coll->ops->start(coll, &(tr_collective_t){.data = data, .count = 8}, NULL, &ticket))
        return 1;
    tr_status_t status = coll->ops->wait(coll, ticket, NULL);
    bool said = strstr(tr_error_last()->message, "parallel.timeout") != NULL;
    /* Nothing waits any more, the ends included. */
    bool quick =
        tr_world_barrier(world) == TR_ERR_RETRY && tr_world_agree(world, TR_OK) == TR_ERR_RETRY;
    tr_world_collectives_close(world, &coll);
    tr_world_close(&world);
    return status == TR_ERR_RETRY && said && quick ? TR_ERR_RETRY : 1;
}

static int child(const char *way) {
    tr_world_t *world = NULL;
    if (tr_world_open(NULL, &world) != TR_OK) return 1;
    if (strncmp(way, "late", 4) == 0)
        return child_late(world, strcmp(way, "late-poll") ? TR_ENGINE_THREAD : TR_ENGINE_POLL);
    return child_abort(world, way);
}

static void run(const char *way, int code) {
    char command[8192];
    const char *launcher = getenv("MPIEXEC");
    snprintf(command, sizeof command,
             "OMP_WAIT_POLICY=passive %s -n 3 '%s' %s >out 2>&1 || (c=$?; [ $c = %d ] || cat out; "
             "exit $c)",
             launcher ? launcher : "mpirun", self, way, code);
    int status = system(command);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

static void test_thread(void **state) {
    run("thread", TR_ERR_DATA);
}
static void test_poll(void **state) {
    run("poll", TR_ERR_DATA);
}
static void test_other_thread(void **state) {
    run("inside", TR_ERR_DATA);
}
static void test_late_thread(void **state) {
    run("late-thread", TR_ERR_RETRY);
}
static void test_late_poll(void **state) {
    run("late-poll", TR_ERR_RETRY);
}

int main(int argc, char **argv) {
    if (argc > 1) return child(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thread),       cmocka_unit_test(test_poll),
        cmocka_unit_test(test_other_thread), cmocka_unit_test(test_late_thread),
        cmocka_unit_test(test_late_poll),
    };
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
