/*
 * A small HTTP server on a thread of its own, by libmicrohttpd, which is loaded when a server
 * starts. One thread per connection. The server accepts connections itself: those that send no
 * whole request in time are closed, and where there are too many, the oldest of them makes
 * room. What a request may be is checked before it is read: its size, its length, its token. Its
 * path may be preceded by a host, as proxies ask. Not collective.
 */
#ifndef TR_HTTP_HTTP_H
#define TR_HTTP_HTTP_H

#include "base/str.h"
#include "trainer/status.h"
#include <stdbool.h>

/* The other end of a request. */
typedef struct {
    int fd;             /* of its connection, until the reply is complete; -1: none */
    bool takes_interim; /* HTTP/1.1, and nothing of the reply has been sent: for tr_http_probe */
    bool is_streamed;   /* the reply is sent while it is made: a write shows whether it is read */
} tr_http_peer_t;

typedef struct {
    const char *path;   /* "/metrics", without the query */
    const char *method; /* "GET", also for HEAD; "POST" where bodies are accepted */
    const char *type;   /* Content-Type of the body; "": none is given */
    const char *body;   /* "" for none; a zero byte follows it */
    size_t body_bytes;
    tr_http_peer_t client;
} tr_http_request_t;

/* A reply that is sent while it is made. */
typedef struct {
    /* Appends what there is to send; may wait for it. False: that was all. Not called again. */
    bool (*read)(void *self, tr_str_t *out);
    /* Called once: the reply is complete, or the client has left. */
    void (*close)(void *self);
    void *self;
} tr_http_stream_t;

typedef struct {
    int status;        /* 200 when the handler is called */
    const char *type;  /* "text/plain" when the handler is called; static */
    const char *allow; /* with status 405: the methods of the path; static */
    int retry_sec;     /* with status 429 and 503: ask again after it; 0: not said */
    tr_str_t body;
    tr_http_stream_t stream; /* sent in place of `body` if stream.read is not NULL */
} tr_http_reply_t;

/* Answers a request. Called by several threads at a time; may wait. */
typedef void (*tr_http_handler_fn)(void *self, const tr_http_request_t *request,
                                   tr_http_reply_t *reply);
/* Composes a reply without handler: what the server itself refuses with reply->status. The request
 * may have no body yet. */
typedef void (*tr_http_refuse_fn)(void *self, const tr_http_request_t *request,
                                  tr_http_reply_t *reply, const char *why);

typedef struct {
    const char *address; /* "127.0.0.1", "0.0.0.0", "::1" */
    int port;            /* 0: a free one */
    /* required of every request, as Bearer or as the password of Basic; NULL: none. Copied */
    const char *token;
    const char *open_path; /* answered without the token and for any Host; NULL: none. Static */
    int connections;       /* at most at a time; fewer where the limit of open files is low */
    double request_sec;    /* connections without a whole request for so long are closed; 0: 10 */
    double answer_sec;     /* limit of a handler or of tr_http_stream_t.read; 0: 30 */
    double read_sec;     /* clients that have read nothing of a reply for so long are left; 0: 30 */
    size_t body_bytes;   /* the largest body of a POST; 0: GET and HEAD only */
    bool own_hosts_only; /* refuses a Host that tr_http_is_own_host does not accept */
    tr_http_refuse_fn refuse; /* NULL: the body of a refusal is its number */
    tr_http_handler_fn handler;
    void *self;
} tr_http_params_t;

typedef struct tr_http tr_http_t;

/* TR_ERR_CONFIG: the address is not of this machine, or the port is in use; TR_ERR_PERMISSION: a
 * port that this user may not use; TR_ERR_NOINPUT: there is no libmicrohttpd. */
tr_status_t tr_http_start(const tr_http_params_t *params, tr_http_t **out);
int tr_http_port(const tr_http_t *http);
/* Lowers body_bytes for requests that begin later. From any thread. */
void tr_http_limit_bodies(tr_http_t *http, size_t bytes);
/* Waits until no request is without its whole reply, at most `sec`. */
void tr_http_drain(tr_http_t *http, double sec);
/* tr_http_drain, also one that begins later, waits for a second at most. From any thread. */
void tr_http_hurry(tr_http_t *http);
/* Waits for handlers that run. Replies that are not sent yet are cut off. */
void tr_http_stop(tr_http_t **http);

/* SILENT: the client has ended its side of the connection. It may have closed all of it, or wait
 * for the reply; what is sent to one that has closed it makes it LEFT. */
typedef enum { TR_HTTP_IS_THERE, TR_HTTP_IS_SILENT, TR_HTTP_HAS_LEFT } tr_http_presence_t;
tr_http_presence_t tr_http_presence(const tr_http_peer_t *peer);
/* Sends an interim reply, "100 Continue", which clients ignore; nothing if it does not take one. Only
 * while the handler has the request. */
void tr_http_probe(const tr_http_peer_t *peer);

/* Whether the body of a request has this Content-Type, with any parameters. */
bool tr_http_type_is(const tr_http_request_t *request, const char *type);
/* Whether a Host header names this machine: localhost, an address in numbers, or its host name,
 * with any port. A page in a browser that reaches the server by a name of its own does not. NULL: no
 * header. For tests. */
bool tr_http_is_own_host(const char *header);
/* Whether the Authorization header `header` (NULL: none) has the token. For tests. */
bool tr_http_has_token(const char *header, const char *token);

#endif
