/* The open connections of a server: who is late, and who makes room. */
#include "http_int.h"

#include "base/clock.h"
#include "base/mem.h"
#include <sys/socket.h>

enum { REPLY_SEC = 30, YOUNG_SEC = 1 };

tr_status_t tr_http_clients_open(tr_http_clients_t *c, int limit, double request_sec) {
    *c = (tr_http_clients_t){.limit = limit, .request_sec = request_sec};
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

bool tr_http_clients_add(tr_http_clients_t *c, int fd) {
    const double now = tr_clock_sec();
    tr_http_client_t *oldest = NULL;
    pthread_mutex_lock(&c->lock);
    const bool has_room = c->count < c->limit;
    if (has_room) c->clients[c->count++] = (tr_http_client_t){fd, now, false};
    for (int i = 0; i < c->count && !has_room; i++)
        if (!c->clients[i].is_busy && (!oldest || c->clients[i].since_sec < oldest->since_sec))
            oldest = &c->clients[i];
    /* It leaves when its thread sees the end, so the next one has room. */
    if (oldest && now - oldest->since_sec > YOUNG_SEC) shutdown(oldest->fd, SHUT_RDWR);
    pthread_mutex_unlock(&c->lock);
    return has_room;
}

void tr_http_clients_remove(tr_http_clients_t *c, int fd) {
    pthread_mutex_lock(&c->lock);
    tr_http_client_t *client = clients_find(c, fd);
    if (client) *client = c->clients[--c->count];
    pthread_mutex_unlock(&c->lock);
}

void tr_http_clients_mark(tr_http_clients_t *c, int fd, bool is_busy) {
    pthread_mutex_lock(&c->lock);
    tr_http_client_t *client = clients_find(c, fd);
    if (client) *client = (tr_http_client_t){fd, tr_clock_sec(), is_busy};
    pthread_mutex_unlock(&c->lock);
}

/* The library's own time limit counts idleness alone: a byte a second would hold a connection. */
void tr_http_clients_reap(tr_http_clients_t *c) {
    const double now = tr_clock_sec();
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->count; i++) {
        const tr_http_client_t *client = &c->clients[i];
        if (now - client->since_sec > (client->is_busy ? REPLY_SEC : c->request_sec))
            shutdown(client->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&c->lock);
}
