/* TCP links of the watchdog from every rank to rank 0. Addresses are exchanged by MPI. */
#include "watchdog_int.h"
#include "base/clock.h"
#include "base/mem.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_ADDRESSES 8
#define CONNECT_SEC   3.0  /* for one address */
#define JOIN_SEC      15.0 /* for all ranks */
#define STUFFED_BYTES 4096
#define STRANGERS     64  /* connections of other programs at the same time */
#define GREETING_SEC  1.0 /* a rank greets at once */

/* Where rank 0 listens. */
typedef struct {
    uint64_t token; /* distinguishes our ranks from other programs that find the port */
    in_port_t port;
    int count;
    struct in_addr address[MAX_ADDRESSES];
} place_t;

typedef struct {
    uint64_t token;
    int32_t rank;
    char host[64];
} hello_t;

/* Data are sent at once: the last heartbeat of an ending rank must not wait for an acknowledgement,
 * because an ended process sends nothing. */
static void link_send_at_once(int fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* -- rank 0 ------------------------------------------------------------------------------------ */

static void link_list_addresses(place_t *place) {
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) return;
    for (const struct ifaddrs *i = all; i && place->count < MAX_ADDRESSES; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
        if (!(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)) continue;
        place->address[place->count++] = ((const struct sockaddr_in *)i->ifa_addr)->sin_addr;
    }
    freeifaddrs(all);
}

/* A listening socket, -1 if there can be none. If all ranks are on one node, it is not reachable
 * from outside. */
static int link_listen_here(const tr_world_info_t *info, place_t *place) {
    const bool one_node = info->nodes == 1;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(one_node ? INADDR_LOOPBACK : INADDR_ANY)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &length) != 0) {
        close(fd);
        return -1;
    }
    place->port = at.sin_port;
    if (!one_node) link_list_addresses(place);
    if (getrandom(&place->token, sizeof place->token, GRND_NONBLOCK) < 0)
        place->token = (uint64_t)getpid();
    return fd;
}

/* A connection that has not greeted yet: a rank, or another program that found the port. */
typedef struct {
    int fd;
    double since_sec;
    size_t got; /* bytes of `hello` */
    hello_t hello;
} guest_t;

/* Takes what there is of the greeting. False: the guest has gone, or has become a peer. */
static bool guest_stays(guest_t *guest, const place_t *place, int size, tr_peer_t *peers,
                        int *missing) {
    const hello_t *hello = &guest->hello;
    const ssize_t n = recv(guest->fd, (char *)&guest->hello + guest->got,
                           sizeof guest->hello - guest->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
    if (n > 0 && (guest->got += (size_t)n) < sizeof guest->hello) return true;
    if (n <= 0 || hello->token != place->token || hello->rank <= 0 || hello->rank >= size ||
        peers[hello->rank].fd >= 0) {
        close(guest->fd);
        return false;
    }
    link_send_at_once(guest->fd);
    peers[hello->rank].fd = guest->fd;
    memcpy(peers[hello->rank].host, hello->host, sizeof hello->host);
    --*missing;
    return false;
}

/* Listens to all guests at the same time, so that none keeps a rank waiting. If there are too many,
 * the one that has been silent longest is closed, or nobody is let in until it has had its time. */
static bool link_accept_all(int listener, const place_t *place, int size, tr_peer_t *peers) {
    const double deadline = tr_clock_sec() + JOIN_SEC;
    const int capacity = size - 1 + STRANGERS;
    guest_t *guests = NULL;
    struct pollfd *wait = NULL;
    int count = 0, missing = size - 1;
    bool works = tr_alloc((size_t)capacity * sizeof *guests, "connections", &guests) == TR_OK &&
                 tr_alloc((1 + (size_t)capacity) * sizeof *wait, "connections", &wait) == TR_OK;
    while (missing > 0 && works) {
        const double now = tr_clock_sec();
        if (count == capacity && now - guests[0].since_sec >= GREETING_SEC) {
            close(guests[0].fd);
            memmove(guests, guests + 1, (size_t)--count * sizeof *guests);
        }
        const bool is_full = count == capacity;
        const double most = is_full ? guests[0].since_sec + GREETING_SEC : deadline;
        wait[0] = (struct pollfd){.fd = is_full ? -1 : listener, .events = POLLIN};
        for (int i = 0; i < count; i++)
            wait[1 + i] = (struct pollfd){.fd = guests[i].fd, .events = POLLIN};
        works = now < deadline &&
                (poll(wait, (nfds_t)(1 + count), (int)(1000 * (most - now)) + 1) >= 0 ||
                 errno == EINTR);
        if (!works) break;
        int stay = 0;
        for (int i = 0; i < count; i++)
            if (wait[1 + i].revents == 0 || guest_stays(&guests[i], place, size, peers, &missing))
                guests[stay++] = guests[i];
        count = stay;
        if (wait[0].revents == 0) continue;
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) works = false;
        if (fd >= 0) guests[count++] = (guest_t){.fd = fd, .since_sec = now};
    }
    for (int i = 0; i < count; i++) close(guests[i].fd);
    tr_free(&guests);
    tr_free(&wait);
    return missing == 0;
}

/* -- the others -------------------------------------------------------------------------------- */

static bool link_connect_to(struct in_addr address, in_port_t port, int *out_fd) {
    const struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port, .sin_addr = address};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    socklen_t length = sizeof error;
    if (fd < 0) return false;
    bool connected = connect(fd, (const struct sockaddr *)&to, sizeof to) == 0;
    if (!connected && errno == EINPROGRESS && poll(&wait, 1, (int)(1000 * CONNECT_SEC)) == 1)
        connected = getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
    if (connected)
        *out_fd = fd;
    else
        close(fd);
    return connected;
}

static bool watchdog_link_join(const place_t *place, const tr_world_info_t *info, tr_peer_t *root) {
    hello_t hello = {.token = place->token, .rank = info->rank};
    memcpy(hello.host, info->host, sizeof hello.host);
    bool connected = info->node == 0 && link_connect_to((struct in_addr){htonl(INADDR_LOOPBACK)},
                                                        place->port, &root->fd);
    for (int i = 0; i < place->count && !connected; i++)
        connected = link_connect_to(place->address[i], place->port, &root->fd);
    if (connected) link_send_at_once(root->fd);
    return connected && send(root->fd, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello;
}

/* -- all --------------------------------------------------------------------------------------- */

tr_status_t tr_links_open(tr_world_t *world, tr_peer_t *peers) {
    const tr_world_info_t *info = &world->info;
    place_t place = {0};
    char host[64];
    int listener = info->rank == 0 ? link_listen_here(info, &place) : -1;
    if (listener < 0) place.port = 0;
    TR_TRY(tr_world_broadcast(world, &place, sizeof place, 0));
    memcpy(host, info->host, sizeof host);
    TR_TRY(tr_world_broadcast(world, host, sizeof host, 0));
    memcpy(peers[0].host, host, sizeof host);
    int64_t ok = place.port != 0;
    if (ok)
        ok = info->rank == 0 ? link_accept_all(listener, &place, info->size, peers)
                             : watchdog_link_join(&place, info, &peers[0]);
    if (listener >= 0) close(listener);
    TR_TRY(tr_world_allreduce_int(world, &ok, 1, TR_REDUCE_MIN));
    return ok ? TR_OK
              : TR_FAIL(TR_ERR_RETRY, "Some ranks could not connect to rank 0 (%s) by TCP.", host);
}

void tr_link_send(tr_peer_t *peer, const tr_heartbeat_message_t *message) {
    int waiting = 0;
    if (peer->fd < 0) return;
    /* So that a heartbeat is never sent partially. */
    if (ioctl(peer->fd, SIOCOUTQ, &waiting) == 0 && waiting > STUFFED_BYTES) return;
    (void)!send(peer->fd, message, sizeof *message,
                MSG_DONTWAIT | MSG_NOSIGNAL); /* errors show when receiving */
}

bool tr_link_receive(tr_peer_t *peer, double now_sec) {
    bool heard = false;
    while (peer->fd >= 0) {
        ssize_t n = recv(peer->fd, (char *)&peer->coming + peer->got,
                         sizeof peer->coming - peer->got, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (n <= 0) {
            close(peer->fd);
            peer->fd = -1;
            if (!peer->last.leaving) peer->gone_sec = now_sec;
            break;
        }
        peer->got += (size_t)n;
        if (peer->got < sizeof peer->coming) continue;
        peer->last = peer->coming;
        peer->got = 0;
        peer->heard_sec = now_sec;
        heard = true;
    }
    return heard;
}
