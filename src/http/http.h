/*
 * A small HTTP server on a thread of its own, by libmicrohttpd, which is loaded when a server
 * starts. One thread per connection. The server accepts connections itself: those that send no
 * whole request in time are closed, and where there are too many, the oldest of them makes
 * room. Not collective.
 */
#ifndef TR_HTTP_HTTP_H
#define TR_HTTP_HTTP_H

#include "base/str.h"
#include "trainer/status.h"
#include <stdbool.h>

typedef struct {
    const char *path; /* "/metrics", without the query */
} tr_http_request_t;

typedef struct {
    int status;       /* 200 when the handler is called */
    const char *type; /* "text/plain" when the handler is called; static */
    tr_str_t body;
} tr_http_reply_t;

/* Answers a GET or HEAD request. Called by several threads at a time. */
typedef void (*tr_http_handler_fn)(void *self, const tr_http_request_t *request,
                                   tr_http_reply_t *reply);

typedef struct {
    const char *address; /* "127.0.0.1", "0.0.0.0", "::1" */
    int port;            /* 0: a free one */
    /* required of every request, as Bearer or as the password of Basic; NULL: none. Copied */
    const char *token;
    const char *open_path; /* answered without the token; NULL: none. Static */
    int connections;       /* at most at a time */
    double request_sec;    /* connections without a whole request for so long are closed; 0: 10 */
    tr_http_handler_fn handler;
    void *self;
} tr_http_params_t;

typedef struct tr_http tr_http_t;

/* TR_ERR_CONFIG: the address is not of this machine, or the port is in use; TR_ERR_PERMISSION: a
 * port that this user may not use; TR_ERR_NOINPUT: there is no libmicrohttpd. */
tr_status_t tr_http_start(const tr_http_params_t *params, tr_http_t **out);
int tr_http_port(const tr_http_t *http);
/* Waits for handlers that run. */
void tr_http_stop(tr_http_t **http);

/* Whether the Authorization header `header` (NULL: none) has the token. For tests. */
bool tr_http_has_token(const char *header, const char *token);

#endif
