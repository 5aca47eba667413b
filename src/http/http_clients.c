/* The open connections of a server: who is late, and who makes room. */
#include "http_int.h"

#include "base/clock.h"
#include "base/mem.h"
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { YOUNG_SEC = 1, LEAVE_MSEC = 100 };

tr_status_t tr_http_clients_open(tr_http_clients_t *c, int limit, const double most_sec[3]) {
    *c = (tr_http_clients_t){.limit = limit};
    memcpy(c->most_sec, most_sec, sizeof c->most_sec);
    pthread_mutex_init(&c->lock, NULL);
    return tr_alloc((size_t)limit * sizeof *c->clients, "connections", &c->clients);
}

void tr_http_clients_close(tr_http_clients_t *c) {
    tr_free(&c->clients);
    pthread_mutex_destroy(&c->lock);
}

static tr_http_client_t *clients_find(const tr_http_clients_t *c, int fd) {
    for (int i = 0; i < c->count; i++)
        if (c->clients[i].fd == fd) return &c->clients[i];
    return NULL;
}

/* Shuts down the oldest connection that asks nothing. It leaves when its thread sees the end. */
static bool clients_make_room(tr_http_clients_t *c) {
    tr_http_client_t *oldest = NULL;
    for (int i = 0; i < c->count; i++)
        if (c->clients[i].state == TR_HTTP_ASKS &&
            (!oldest || c->clients[i].since_sec < oldest->since_sec))
            oldest = &c->clients[i];
    return oldest && tr_clock_sec() - oldest->since_sec > YOUNG_SEC &&
           shutdown(oldest->fd, SHUT_RDWR) == 0;
}

bool tr_http_clients_add(tr_http_clients_t *c, int fd) {
    pthread_mutex_lock(&c->lock);
    bool has_room = c->count < c->limit, may_wait = !has_room && clients_make_room(c);
    for (int i = 0; i < LEAVE_MSEC && may_wait && c->count == c->limit; i++) {
        pthread_mutex_unlock(&c->lock);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        pthread_mutex_lock(&c->lock);
    }
    has_room = c->count < c->limit;
    if (has_room)
        c->clients[c->count++] =
            (tr_http_client_t){.fd = fd, .state = TR_HTTP_ASKS, .since_sec = tr_clock_sec()};
    pthread_mutex_unlock(&c->lock);
    return has_room;
}

void tr_http_clients_remove(tr_http_clients_t *c, int fd) {
    pthread_mutex_lock(&c->lock);
    tr_http_client_t *client = clients_find(c, fd);
    if (client) *client = c->clients[--c->count];
    pthread_mutex_unlock(&c->lock);
}

void tr_http_clients_mark(tr_http_clients_t *c, int fd, tr_http_client_state_t state) {
    pthread_mutex_lock(&c->lock);
    tr_http_client_t *client = clients_find(c, fd);
    if (client) {
        client->state = state;
        client->since_sec = tr_clock_sec();
    }
    pthread_mutex_unlock(&c->lock);
}

int tr_http_clients_busy(tr_http_clients_t *c) {
    int busy = 0;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->count; i++) busy += c->clients[i].state != TR_HTTP_ASKS;
    pthread_mutex_unlock(&c->lock);
    return busy;
}

/* Bytes of a reply leave the buffers of the socket as the client reads. */
static void client_note_progress(tr_http_client_t *client, double now) {
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (getsockopt(client->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        info.tcpi_bytes_acked == client->read_bytes)
        return;
    client->read_bytes = info.tcpi_bytes_acked;
    client->since_sec = now;
}

/* The library's own time limit counts idleness alone: a byte a second would hold a connection. */
void tr_http_clients_reap(tr_http_clients_t *c) {
    const double now = tr_clock_sec();
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->count; i++) {
        tr_http_client_t *client = &c->clients[i];
        if (client->state == TR_HTTP_READS) client_note_progress(client, now);
        if (now - client->since_sec > c->most_sec[client->state]) shutdown(client->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&c->lock);
}

tr_http_presence_t tr_http_presence(const tr_http_peer_t *peer) {
    struct pollfd polled = {.fd = peer->fd, .events = POLLRDHUP};
    if (peer->fd < 0 || poll(&polled, 1, 0) <= 0) return TR_HTTP_IS_THERE;
    /* Nothing can ask a client of HTTP/1.0, as proxies are, whether it still reads. */
    const bool may_read = peer->takes_interim || peer->is_streamed;
    return !may_read || polled.revents & (POLLHUP | POLLERR | POLLNVAL) ? TR_HTTP_HAS_LEFT
                                                                        : TR_HTTP_IS_SILENT;
}

void tr_http_probe(const tr_http_peer_t *peer) {
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (peer->takes_interim)
        (void)!send(peer->fd, interim, sizeof interim - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}
