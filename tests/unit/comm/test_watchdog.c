/* Who stops or hangs is named and ends the job with 75; who is only slow, or waits for a disk, is
 * left alone. */
//TEST timeout=300
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/names.h"
#include "comm/watchdog_int.h"
#include "comm/watchdog.h"

#define TIMEOUT_SEC 2.0 /* the machine may be busy: threads that live are late by less */

static char self[4096];
static _Atomic int asked; /* the watchdog reads it */

static void note(int number) {
    asked = number;
}
static int asked_to_stop(void) {
    return asked;
}

static void pause_for(double sec) {
    usleep((useconds_t)(1e6 * sec));
}

/* Longer than the time limit in all, never in one piece. */
static int child_slow(tr_world_t *world) {
    if (tr_world_info(world)->rank == 0)
        for (int i = 0; i < 7; i++) {
            pause_for(TIMEOUT_SEC / 5);
            tr_watchdog_mark(world);
        }
    return tr_world_barrier(world) != TR_OK;
}

/* The wait for a disk marks nothing; the others wait for it. */
static int child_disk(tr_world_t *world) {
    tr_watchdog_phase(world, TR_PHASE_CHECKPOINT, 4);
    if (tr_world_info(world)->rank == 0) pause_for(1.2 * TIMEOUT_SEC);
    return tr_world_barrier(world) != TR_OK;
}

/* Stopped, but not for as long as the limit. */
static int child_pause(tr_world_t *world, int rank) {
    if (tr_world_info(world)->rank == rank) {
        const pid_t me = getpid();
        if (fork() == 0) {
            pause_for(0.3 * TIMEOUT_SEC);
            kill(me, SIGCONT);
            _exit(0);
        }
        raise(SIGSTOP);
        wait(NULL);
    }
    return tr_world_barrier(world) != TR_OK;
}

/* After it has had as long as the limit to tell what it is at, and showed that it goes on. */
static int child_stop(tr_world_t *world, int rank) {
    for (int i = 0; i < 10; i++) {
        pause_for(TIMEOUT_SEC / 10);
        tr_watchdog_mark(world);
    }
    if (tr_world_info(world)->rank == rank) raise(SIGSTOP);
    tr_world_barrier(world);
    return 1;
}

/* Alive, but does not come. */
static int child_hang(tr_world_t *world) {
    if (tr_world_info(world)->rank == 1) sleep(60);
    tr_world_barrier(world);
    return 1;
}

/* Rank 2 stops, or is killed, while all of them reduce in shared memory. */
static int child_shared(tr_world_t *world, const char *way) {
    const tr_parallel_settings_t settings = {
        .engine = strstr(way, "thread") ? TR_ENGINE_THREAD : TR_ENGINE_POLL, .timeout = 60};
    tr_collective_t what = {TR_ALLREDUCE, TR_GROUP_ALL, NULL, 100000, TR_F32, 0};
    tr_device_t *device = NULL;
    tr_collectives_t *c = NULL;
    tr_ticket_t ticket;
    if (tr_device_open("cpu", &(tr_device_params_t){.threads = 1}, &device) != TR_OK ||
        tr_world_collectives(world, device, &settings, &c) != TR_OK || !c->ops->share ||
        device->ops->alloc(device, 400000, TR_ALLOC_SHARED_BY_RANKS, &what.data) != TR_OK ||
        c->ops->share(c, what.data, 400000) != TR_OK)
        return 1;
    for (int i = 0; i < 1000; i++) {
        if (i == 50) { /* as in child_stop */
            for (int k = 0; k < 10; k++) {
                pause_for(TIMEOUT_SEC / 10);
                tr_watchdog_mark(world);
            }
            if (tr_world_info(world)->rank == 2)
                raise(strstr(way, "kill") ? SIGKILL : SIGSTOP);
        }
        if (c->ops->start(c, &what, NULL, &ticket) != TR_OK ||
            c->ops->wait(c, ticket, NULL) != TR_OK)
            return 1;
    }
    return 1;
}

/* Asked to stop while it waits for one that hangs; the time limit is far away. */
static int child_term(tr_world_t *world) {
    signal(SIGTERM, note);
    if (tr_world_info(world)->rank == 1) sleep(60);
    raise(SIGTERM);
    tr_world_barrier(world);
    return 1;
}

static void send_beat(tr_peer_t *peer, int leaving) {
    tr_link_send(peer, &(tr_heartbeat_message_t){.leaving = leaving});
}

/* The last word of a rank is heard though its link ends right behind it with a beat of the other
 * side unread. Beats go both ways in turn before: only then does TCP take its time to confirm them.
 */
static int child_word(tr_world_t *world) {
    const int rank = tr_world_info(world)->rank;
    tr_peer_t peers[3] = {{.fd = -1}, {.fd = -1}, {.fd = -1}}, *other = &peers[rank == 0];
    if (tr_links_open(world, peers) != TR_OK) return 1;
    for (int turn = 0; turn < 20; turn++) {
        if (rank == 1) send_beat(other, 0);
        if (tr_world_barrier(world) != TR_OK) return 1;
        if (rank == 0) tr_link_receive(other, 1);
        if (rank == 0) send_beat(other, 0);
        if (tr_world_barrier(world) != TR_OK) return 1;
        if (rank == 1) tr_link_receive(other, 1);
    }
    if (rank == 1) send_beat(other, 0);
    if (tr_world_barrier(world) != TR_OK) return 1;
    if (rank == 0) {
        send_beat(other, 0);
        send_beat(other, TR_ENDING);
        close(other->fd);
    }
    if (tr_world_barrier(world) != TR_OK) return 1;
    if (rank == 1) tr_link_receive(other, 2);
    return rank == 1 && (other->fd >= 0 || other->last.leaving != TR_ENDING);
}

static int child_in(tr_world_t *world, const char *way) {
    if (strcmp(way, "quiet") == 0)
        return child_slow(world) || child_disk(world) || child_pause(world, 0) ||
               child_pause(world, 2);
    if (strcmp(way, "word") == 0) return child_word(world);
    if (strcmp(way, "hang") == 0) return child_hang(world);
    if (strcmp(way, "term") == 0) return child_term(world);
    if (strncmp(way, "shared", 6) == 0) return child_shared(world, way);
    if (strcmp(way, "tie") == 0) return sleep(60), 1; /* every rank, as if the network hung */
    return child_stop(world, strcmp(way, "stop0") ? 2 : 0);
}

static int child(const char *way) {
    tr_world_t *world = NULL;
    if (tr_world_open(NULL, &world) != TR_OK) return 1;
    if (tr_watchdog_start(world, strcmp(way, "term") ? TIMEOUT_SEC : 50, asked_to_stop) != TR_OK)
        return 1;
    if (tr_world_barrier(world) != TR_OK) return 1;
    tr_watchdog_phase(world, TR_PHASE_STEP, 3);
    const int code = child_in(world, way);
    tr_world_close(&world);
    return code;
}

/* Runs WAY on three ranks; its output is in `text`. */
static int run(const char *way, char text[8192]) {
    char command[8192];
    const char *launcher = getenv("MPIEXEC");
    snprintf(command, sizeof command, "OMP_WAIT_POLICY=passive %s -n 3 '%s' '%s' 2>&1",
             launcher ? launcher : "mpirun", self, way);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t length = fread(text, 1, 8191, pipe);
    text[length] = '\0';
    for (char rest[256]; fread(rest, 1, sizeof rest, pipe) > 0;)
        ;
    const int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect_quiet(const char *way) {
    char text[8192];
    const int code = run(way, text);
    if (code != 0 || strstr(text, "trainer: error")) print_message("%s\n", text);
    assert_int_equal(code, 0);
    assert_null(strstr(text, "trainer: error"));
}

static void test_quiet(void **state) {
    expect_quiet("quiet");
}
static void test_word(void **state) {
    expect_quiet("word");
}

/* Without the watchdog it would end with another code, or not at all. `who`: the rank that is
 * named. */
static void expect_end(const char *way, const char *who) {
    char text[8192];
    const int code = run(way, text);
    char names[64];
    snprintf(names, sizeof names, "trainer: error & %s & training & step 3 & collective", who);
    if (code != TR_ERR_RETRY || !names_in_line(text, names)) print_message("%s\n", text);
    assert_int_equal(code, TR_ERR_RETRY);
    assert_true(names_in_line(text, names));
}

static void test_stop(void **state) {
    expect_end("stop0", "rank 0");
    expect_end("stop2", "rank 2");
}
static void test_shared(void **state) {
    char text[8192];
    expect_end("shared poll", "rank 2");
    if (getenv("TEST_ALL")) expect_end("shared thread", "rank 2");
    assert_int_equal(run("shared kill", text), 128 + SIGKILL); /* the launcher's */
}
static void test_hang(void **state) {
    expect_end("hang", "rank 1");
}
/* No rank is behind the others: none may be named. */
static void test_tie(void **state) {
    char text[8192];
    assert_int_equal(run("tie", text), TR_ERR_RETRY);
    if (!names_in_line(text, "trainer: error & 3 of 3 & step 3")) print_message("%s\n", text);
    assert_true(names_in_line(text, "trainer: error & 3 of 3 & step 3"));
    assert_false(names_in_line(text, "trainer: error & rank 0 ("));
}
static void test_term(void **state) {
    expect_end("term", "rank");
}

int main(int argc, char **argv) {
    if (argc > 1) return child(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quiet),  cmocka_unit_test(test_word), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_hang),   cmocka_unit_test(test_term), cmocka_unit_test(test_tie),
        cmocka_unit_test(test_shared),
    };
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
