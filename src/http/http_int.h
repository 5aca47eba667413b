/* Private to src/http. */
#ifndef TR_HTTP_HTTP_INT_H
#define TR_HTTP_HTTP_INT_H

#include "http.h"
#include <pthread.h>

typedef enum {
    TR_HTTP_ASKS,  /* no whole request has come since the last reply */
    TR_HTTP_WAITS, /* for the handler */
    TR_HTTP_READS  /* the reply */
} tr_http_client_state_t;

/* One accepted connection. */
typedef struct {
    int fd;
    tr_http_client_state_t state;
    double since_sec;    /* of the state; while it reads, of its last progress */
    uint64_t read_bytes; /* that the client has acknowledged */
} tr_http_client_t;

/* The connections that are open. Guarded by `lock`. */
typedef struct {
    pthread_mutex_t lock;
    tr_http_client_t *clients; /* [limit] */
    int count, limit;
    double most_sec[3]; /* in a state */
} tr_http_clients_t;

/* most_sec: as in tr_http_clients_t. */
tr_status_t tr_http_clients_open(tr_http_clients_t *c, int limit, const double most_sec[3]);
void tr_http_clients_close(tr_http_clients_t *c);
/* False: there is no room, although the oldest one that asks nothing was shut down and had a moment
 * to leave. */
bool tr_http_clients_add(tr_http_clients_t *c, int fd);
void tr_http_clients_remove(tr_http_clients_t *c, int fd);
void tr_http_clients_mark(tr_http_clients_t *c, int fd, tr_http_client_state_t state);
/* Those that wait or read. */
int tr_http_clients_busy(tr_http_clients_t *c);
/* Shuts down connections that are late. */
void tr_http_clients_reap(tr_http_clients_t *c);

/* http_socket.c: a socket that listens; *out_port is its port. */
tr_status_t tr_http_listen(const char *address, int port, int *out_fd, int *out_port);

#endif
