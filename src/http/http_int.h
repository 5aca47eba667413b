/* Private to src/http. */
#ifndef TR_HTTP_HTTP_INT_H
#define TR_HTTP_HTTP_INT_H

#include "http.h"
#include <pthread.h>

/* One accepted connection. */
typedef struct {
    int fd;
    double since_sec; /* accepted, or its last request was answered */
    bool is_busy;     /* a whole request has come, and is not answered yet */
} tr_http_client_t;

/* The connections that are open. Guarded by `lock`. */
typedef struct {
    pthread_mutex_t lock;
    tr_http_client_t *clients; /* [limit] */
    int count, limit;
    double request_sec;
} tr_http_clients_t;

tr_status_t tr_http_clients_open(tr_http_clients_t *c, int limit, double request_sec);
void tr_http_clients_close(tr_http_clients_t *c);
/* False: there is no room. The caller may have shut one down by then, which leaves soon. */
bool tr_http_clients_add(tr_http_clients_t *c, int fd);
void tr_http_clients_remove(tr_http_clients_t *c, int fd);
void tr_http_clients_mark(tr_http_clients_t *c, int fd, bool is_busy);
/* Shuts down connections that are late. */
void tr_http_clients_reap(tr_http_clients_t *c);

/* http_socket.c: a socket that listens; *out_port is its port. */
tr_status_t tr_http_listen(const char *address, int port, int *out_fd, int *out_port);

#endif
