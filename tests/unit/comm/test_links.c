/* Other programs that find the port of the watchdog do not keep the ranks from it. */
//TEST np=2
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/watchdog_int.h"
#include "base/clock.h"

static bool is_armed; /* the next connection to an address is that of the links */

/* In place of the C library's: silent (more than may wait at a time), talkative and hasty guests
 * come before the rank, and it greets only a while after it was connected. */
int connect(int fd, const struct sockaddr *to, socklen_t bytes) {
    enum { SILENT = 100, TALKS = 130, LEAVES = 160, GREETING_USEC = 50000 };
    char junk[300];
    memset(junk, 'x', sizeof junk);
    if (is_armed && to->sa_family == AF_INET) {
        is_armed = false;
        for (int i = 0; i < LEAVES; i++) {
            const int guest = socket(AF_INET, SOCK_STREAM, 0);
            if (syscall(SYS_connect, guest, to, bytes) != 0) continue;
            if (i >= SILENT) (void)!send(guest, junk, sizeof junk, MSG_NOSIGNAL);
            if (i >= TALKS) close(guest);
        }
        const int connected = (int)syscall(SYS_connect, fd, to, bytes);
        usleep(GREETING_USEC);
        return connected;
    }
    return (int)syscall(SYS_connect, fd, to, bytes);
}

static void guests_do_not_keep_a_rank_out(void **state) {
    tr_world_t *world = NULL;
    tr_peer_t peers[2] = {{.fd = -1}, {.fd = -1}};
    OK(tr_world_open(NULL, &world));
    const int rank = tr_world_info(world)->rank;
    is_armed = rank == 1;
    const double began = tr_clock_sec();
    OK(tr_links_open(world, peers));
    assert_true(tr_clock_sec() - began < 10);
    assert_false(is_armed);
    assert_true(peers[rank == 0 ? 1 : 0].fd >= 0);
    tr_link_send(&peers[1 - rank], &(tr_heartbeat_message_t){.rank = rank, .step = 7});
    while (!tr_link_receive(&peers[1 - rank], tr_clock_sec()) && tr_clock_sec() - began < 60) {
    }
    assert_int_equal(peers[1 - rank].last.step, 7);
    OK(tr_world_barrier(world));
    tr_world_close(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(guests_do_not_keep_a_rank_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
