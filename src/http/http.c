/* The HTTP server: libmicrohttpd behind our own accept. */
#include "http_int.h"

#ifdef TR_HAVE_MICROHTTPD
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "trainer/log.h"
#include <math.h>
#include <stdatomic.h>
#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    REQUEST_SEC = 10,
    ANSWER_SEC = 30,
    READ_SEC = 30,
    MOST_HEADERS = 100,
    HOST_BYTES = 256,
    STREAM_BYTES = 4096
};
/* Of a request that is refused, so much is read before the reply, which many clients read only after
 * they have sent all of it. */
enum { DROPPED_BYTES = 256 << 20 };
/* Descriptors that are kept for other files than connections, and connections that there are at
 * least. */
enum { OTHER_FILES = 32, LEAST_CONNECTIONS = 4 };

#define LIBRARY "libmicrohttpd.so.12"
/* The functions of the library that are used. */
#define FUNCTIONS(F)                                                                               \
    F(start_daemon)                                                                                \
    F(stop_daemon)                                                                                 \
    F(add_connection)                                                                              \
    F(create_response_from_buffer)                                                                 \
    F(create_response_from_callback)                                                               \
    F(add_response_header)                                                                         \
    F(queue_response)                                                                              \
    F(destroy_response)                                                                            \
    F(lookup_connection_value)                                                                     \
    F(get_connection_values)                                                                       \
    F(get_connection_info)

typedef struct {
#define MEMBER(name) __typeof__(MHD_##name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} library_t;

/* After tr_http_hurry a client has this time to read. */
#define HURRY_SEC 1.0

struct tr_http {
    library_t mhd;
    struct MHD_Daemon *daemon;
    tr_http_params_t params;
    char *token;
    _Atomic size_t body_bytes; /* the largest body */
    tr_http_clients_t clients;
    int listen_fd, stop_fd, port;
    pthread_t thread;
    bool has_thread;
    atomic_bool hurries;
};

static tr_status_t http_load(library_t *out) {
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return TR_FAIL(TR_ERR_NOINPUT,
                       "the HTTP server requires libmicrohttpd (Debian, Ubuntu: apt install "
                       "libmicrohttpd12): %s",
                       dlerror());
#define LOAD(name)                                                                                 \
    if (!(*(void **)&out->name = dlsym(handle, "MHD_" #name)))                                     \
        return TR_FAIL(TR_ERR_NOINPUT, "%s has no function MHD_" #name, LIBRARY);
    FUNCTIONS(LOAD)
#undef LOAD
    return TR_OK;
}

/* -- replies ----------------------------------------------------------------------------------- */

static int http_fd_of(const tr_http_t *h, struct MHD_Connection *connection) {
    return h->mhd.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

/* A reply that is sent while it is made. */
typedef struct {
    tr_http_t *http;
    tr_http_stream_t stream;
    int fd;
    tr_str_t part; /* [sent, part.length) is to be sent */
    size_t sent;
    bool has_ended;
} stream_t;

static ssize_t stream_read(void *self, uint64_t at, char *out, size_t most) {
    stream_t *s = self;
    (void)at;
    tr_http_clients_mark(&s->http->clients, s->fd, TR_HTTP_WAITS);
    while (s->sent == s->part.length && !s->has_ended) {
        s->part.length = s->sent = 0;
        s->has_ended = !s->stream.read(s->stream.self, &s->part);
    }
    tr_http_clients_mark(&s->http->clients, s->fd, TR_HTTP_READS);
    if (s->part.status != TR_OK) return MHD_CONTENT_READER_END_WITH_ERROR;
    const size_t left = s->part.length - s->sent, bytes = left < most ? left : most;
    if (bytes == 0) return MHD_CONTENT_READER_END_OF_STREAM;
    memcpy(out, s->part.text + s->sent, bytes);
    s->sent += bytes;
    return (ssize_t)bytes;
}

static void stream_close(void *self) {
    stream_t *s = self;
    s->stream.close(s->stream.self);
    tr_str_free(&s->part);
    tr_free(&s);
}

static struct MHD_Response *stream_open(tr_http_t *h, int fd, const tr_http_stream_t *stream) {
    stream_t *s = NULL;
    struct MHD_Response *response = NULL;
    if (tr_alloc(sizeof *s, "a reply", &s) == TR_OK) {
        *s = (stream_t){.http = h, .stream = *stream, .fd = fd};
        response = h->mhd.create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BYTES, stream_read,
                                                        s, stream_close);
    }
    if (response) return response;
    stream->close(stream->self);
    tr_free(&s);
    return NULL;
}

static enum MHD_Result http_reply(tr_http_t *h, struct MHD_Connection *connection,
                                  const tr_http_reply_t *reply) {
    const int fd = http_fd_of(h, connection);
    char number[16];
    struct MHD_Response *response =
        reply->stream.read
            ? stream_open(h, fd, &reply->stream)
            : h->mhd.create_response_from_buffer(reply->body.length,
                                                 reply->body.text ? reply->body.text : "",
                                                 MHD_RESPMEM_MUST_COPY);
    if (!response) return MHD_NO;
    h->mhd.add_response_header(response, "Content-Type", reply->type);
    h->mhd.add_response_header(response, "Cache-Control", "no-store");
    h->mhd.add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (reply->status == 401)
        h->mhd.add_response_header(response, "WWW-Authenticate",
                                   "Basic realm=\"trainer\", charset=\"UTF-8\"");
    if (reply->status == 405) h->mhd.add_response_header(response, "Allow", reply->allow);
    snprintf(number, sizeof number, "%d", reply->retry_sec);
    if (reply->retry_sec > 0) h->mhd.add_response_header(response, "Retry-After", number);
    tr_http_clients_mark(&h->clients, fd, TR_HTTP_READS);
    const enum MHD_Result result =
        h->mhd.queue_response(connection, (unsigned)reply->status, response);
    h->mhd.destroy_response(response);
    return result;
}

/* -- requests ---------------------------------------------------------------------------------- */

/* What has come of a request. */
typedef struct {
    bool is_post, has_body;
    bool is_bounded; /* of its body so much may come that a refusal may wait for it */
    int refused;     /* the status; 0: not refused. Its body is then read and dropped */
    char why[128];
    size_t most_bytes, dropped_bytes; /* of its body */
    tr_str_t body;
} request_t;

typedef struct {
    int headers, lengths;
    bool is_wrong; /* a name that other programs may read in another way: "Content-Length : 5" */
} header_count_t;

static enum MHD_Result request_count(void *self, enum MHD_ValueKind kind, const char *name,
                                     const char *value) {
    header_count_t *count = self;
    (void)kind, (void)value;
    count->headers++;
    count->lengths += strcasecmp(name, "Content-Length") == 0;
    count->is_wrong |= strpbrk(name, " \t\"(),/:;<=>?@[\\]{}") != NULL;
    return MHD_YES;
}

static void request_refuse(request_t *r, int status, const char *why) {
    if (r->refused) return;
    r->refused = status;
    tr_snprintf(r->why, sizeof r->why, "%s", why);
}

static void request_refuse_large(request_t *r) {
    char why[64];
    tr_snprintf(why, sizeof why, "expected a body of at most %zu bytes", r->most_bytes);
    request_refuse(r, 413, why);
}

/* The path of "/health" or "http://HOST/health"; the latter's host, which overrides the header Host,
 * is copied, unless `host` is NULL. */
static const char *request_path(const char *url, char *host) {
    const size_t scheme = strncasecmp(url, "http://", 7) == 0    ? 7
                          : strncasecmp(url, "https://", 8) == 0 ? 8
                                                                 : 0;
    if (scheme == 0) return url;
    const size_t bytes = strcspn(url + scheme, "/");
    if (host) tr_snprintf(host, HOST_BYTES, "%.*s", (int)bytes, url + scheme);
    return url[scheme + bytes] ? url + scheme + bytes : "/";
}

/* Called when the header is complete. The checks are in order of who may know of them: a request
 * without the token learns nothing else. */
static void request_check(const tr_http_t *h, struct MHD_Connection *connection, const char *url,
                          const char *method, request_t *r) {
#define HEADER(name) h->mhd.lookup_connection_value(connection, MHD_HEADER_KIND, name)
    const char *length = HEADER("Content-Length"), *chunks = HEADER("Transfer-Encoding"),
               *header_host = HEADER("Host");
    char host[HOST_BYTES] = "";
    const char *path = request_path(url, host);
    const bool is_open = h->params.open_path && strcmp(path, h->params.open_path) == 0;
    header_count_t count = {0};
    int64_t bytes = 0;
    h->mhd.get_connection_values(connection, MHD_HEADER_KIND, request_count, &count);
    r->is_post = h->params.body_bytes > 0 && strcmp(method, "POST") == 0;
    r->has_body = (length && strcmp(length, "0") != 0) || chunks;
    if (count.lengths > 1 || (length && chunks))
        request_refuse(r, 400, "expected one Content-Length, or Transfer-Encoding: chunked");
    if (chunks && strcasecmp(chunks, "chunked") != 0)
        request_refuse(r, 501, "Transfer-Encoding: expected chunked");
    if (count.is_wrong) request_refuse(r, 400, "expected names of header fields without blanks");
    if (length && (!tr_parse_int(length, &bytes) || bytes < 0))
        request_refuse(r, 400, "Content-Length: expected a number of bytes");
    if (count.headers > MOST_HEADERS) request_refuse(r, 431, "expected at most 100 header fields");
    if (h->params.own_hosts_only && !is_open && !tr_http_is_own_host(host[0] ? host : header_host))
        request_refuse(r, 421,
                       "Host: expected localhost, a numeric IP address, or the name of this "
                       "machine; behind a proxy, let it send Host: localhost");
    if (h->token && !is_open && !tr_http_has_token(HEADER("Authorization"), h->token))
        request_refuse(r, 401,
                       HEADER("Authorization") ? "Authorization: the token is wrong"
                                               : "expected the header Authorization: Bearer TOKEN");
    if (!r->is_post && strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        request_refuse(r, 405, "this method is not supported");
    if (!r->is_post && r->has_body) request_refuse(r, 413, "expected no body with this method");
    r->most_bytes = atomic_load(&h->body_bytes);
    if (r->is_post && bytes > (int64_t)r->most_bytes) request_refuse_large(r);
    /* A client that expects a reply before its body waits for it. */
    r->is_bounded = r->refused != 400 && r->refused != 501 && bytes <= DROPPED_BYTES &&
                    !(r->has_body && HEADER("Expect"));
#undef HEADER
}

static void request_answer(tr_http_t *h, const request_t *r, const char *path, const char *type,
                           tr_http_peer_t client, tr_http_reply_t *reply) {
    const tr_http_request_t request = {.path = path,
                                       .method = r->is_post ? "POST" : "GET",
                                       .type = type ? type : "",
                                       .body = r->body.text ? r->body.text : "",
                                       .body_bytes = r->body.length,
                                       .client = client};
    reply->status = r->refused ? r->refused : r->body.status != TR_OK ? 503 : 200;
    if (reply->status == 200)
        h->params.handler(h->params.self, &request, reply);
    else if (h->params.refuse)
        h->params.refuse(h->params.self, &request, reply,
                         r->refused ? r->why : "not enough memory");
    if (reply->body.length == 0 && reply->status != 200)
        tr_str_printf(&reply->body, "%d\n", reply->status);
    if (reply->body.status != TR_OK) reply->status = 500;
}

/* Called when the header is complete, for each part of the body, and at the end. */
static enum MHD_Result http_on_request(void *self, struct MHD_Connection *connection,
                                       const char *url, const char *method, const char *version,
                                       const char *upload, size_t *upload_bytes, void **state) {
    tr_http_t *h = self;
    request_t *r = *state;
    tr_http_reply_t reply = {.type = "text/plain; charset=utf-8",
                             .allow = h->params.body_bytes > 0 ? "GET, HEAD, POST" : "GET, HEAD"};
    if (!r) {
        if (tr_alloc(sizeof *r, "a request", &r) != TR_OK) return MHD_NO;
        *state = r;
        request_check(h, connection, url, method, r);
        /* Answered before its body comes, which ends the connection: nothing behind it is read. */
        if (!r->refused || r->is_bounded) return MHD_YES;
    } else if (*upload_bytes > 0) {
        if (r->body.length + *upload_bytes > r->most_bytes) request_refuse_large(r);
        if (!r->refused)
            tr_str_append_bytes(&r->body, upload, *upload_bytes);
        else
            r->dropped_bytes += *upload_bytes;
        *upload_bytes = 0;
        return r->dropped_bytes <= DROPPED_BYTES ? MHD_YES : MHD_NO;
    }
    const int fd = http_fd_of(h, connection);
    tr_http_clients_mark(&h->clients, fd, TR_HTTP_WAITS);
    request_answer(h, r, request_path(url, NULL),
                   h->mhd.lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Type"),
                   (tr_http_peer_t){.fd = fd, .takes_interim = strcmp(version, "HTTP/1.1") == 0},
                   &reply);
    tr_str_free(&r->body);
    const enum MHD_Result result = http_reply(h, connection, &reply);
    tr_str_free(&reply.body);
    return result;
}

static void http_on_answered(void *self, struct MHD_Connection *connection, void **state,
                             enum MHD_RequestTerminationCode code) {
    tr_http_t *h = self;
    request_t *r = *state;
    (void)code;
    if (r) tr_str_free(&r->body);
    tr_free(state);
    tr_http_clients_mark(&h->clients, http_fd_of(h, connection), TR_HTTP_ASKS);
}

static void http_on_connection(void *self, struct MHD_Connection *connection, void **state,
                               enum MHD_ConnectionNotificationCode code) {
    tr_http_t *h = self;
    (void)state;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED)
        tr_http_clients_remove(&h->clients, http_fd_of(h, connection));
}

/* What the library would print about a bad request. */
static void http_on_message(void *self, const char *format, va_list args) {
    (void)self, (void)format, (void)args;
}

/* -- connections ------------------------------------------------------------------------------- */

static void http_accept(tr_http_t *h) {
    static const char full[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
                               "Content-Length: 0\r\nConnection: close\r\n\r\n";
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof peer;
    const int fd =
        accept4(h->listen_fd, (struct sockaddr *)&peer, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) { /* too many files are open: the connection waits, and would be seen at once */
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) usleep(100000);
        return;
    }
    if (!tr_http_clients_add(&h->clients, fd)) {
        (void)!send(fd, full, sizeof full - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
    } else if (h->mhd.add_connection(h->daemon, fd, (struct sockaddr *)&peer, bytes) != MHD_YES) {
        tr_http_clients_remove(&h->clients, fd); /* the library has closed it */
    }
}

static void *http_thread(void *self) {
    tr_http_t *h = self;
    struct pollfd polled[] = {{.fd = h->stop_fd, .events = POLLIN},
                              {.fd = h->listen_fd, .events = POLLIN}};
    for (;;) {
        const int ready = poll(polled, 2, 500);
        if (ready > 0 && polled[0].revents) return NULL;
        tr_http_clients_reap(&h->clients);
        if (ready > 0 && polled[1].revents) http_accept(h);
    }
}

/* As many connections as the limit of open files allows, at most `wanted`. */
static int http_connections(int wanted) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= (rlim_t)wanted + OTHER_FILES)
        return wanted;
    const int room = (int)files.rlim_cur - OTHER_FILES,
              most = room > LEAST_CONNECTIONS ? room : LEAST_CONNECTIONS;
    if (most >= wanted) return wanted;
    TR_WARN("the limit of open files (ulimit -n) is %lld: the server has at most %d connections at "
            "a time instead of %d; for those expected ulimit -n %d",
            (long long)files.rlim_cur, most, wanted, wanted + OTHER_FILES);
    return most;
}

tr_status_t tr_http_start(const tr_http_params_t *params, tr_http_t **out) {
    const int connections = http_connections(params->connections);
    tr_http_t *h = NULL;
    sigset_t all, before;
    tr_status_t status;
    const double most_sec[] = {params->request_sec > 0 ? params->request_sec : REQUEST_SEC,
                               params->answer_sec > 0 ? params->answer_sec : ANSWER_SEC,
                               params->read_sec > 0 ? params->read_sec : READ_SEC};
    int error;
    TR_TRY(tr_alloc(sizeof *h, "the HTTP server", &h));
    h->params = *params;
    h->listen_fd = h->stop_fd = -1;
    atomic_store(&h->body_bytes, params->body_bytes);
    TR_TRY_GOTO(tr_http_clients_open(&h->clients, connections, most_sec), failed);
    TR_TRY_GOTO(http_load(&h->mhd), failed);
    if (params->token) TR_TRY_GOTO(tr_strdup(params->token, &h->token), failed);
    TR_TRY_GOTO(tr_http_listen(params->address, params->port, &h->listen_fd, &h->port), failed);
    h->stop_fd = eventfd(0, EFD_CLOEXEC);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* the thread of the loop handles signals */
    h->daemon = h->mhd.start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL |
            MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC,
        0, NULL, NULL, http_on_request, h, MHD_OPTION_NOTIFY_COMPLETED, http_on_answered, h,
        MHD_OPTION_NOTIFY_CONNECTION, http_on_connection, h, MHD_OPTION_EXTERNAL_LOGGER,
        http_on_message, NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned)connections + 16,
        MHD_OPTION_THREAD_STACK_SIZE, (size_t)(256 << 10), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)(32 << 10), MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (h->stop_fd < 0 || !h->daemon)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_IO, "the HTTP server cannot start: %s", strerror(errno)),
                    failed);
    error = tr_thread_start("http", http_thread, h, &h->thread);
    if (error)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_IO, "cannot start a thread: %s", strerror(error)), failed);
    h->has_thread = true;
    *out = h;
    return TR_OK;
failed:
    tr_http_stop(&h);
    return status;
}

void tr_http_limit_bodies(tr_http_t *h, size_t bytes) {
    atomic_store(&h->body_bytes, bytes);
}

void tr_http_drain(tr_http_t *h, double sec) {
    double end = tr_clock_sec() + sec;
    bool hurries = false;
    while (tr_http_clients_busy(&h->clients) > 0 && tr_clock_sec() < end) {
        if (!hurries && atomic_load(&h->hurries))
            hurries = true, end = fmin(end, tr_clock_sec() + HURRY_SEC);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

void tr_http_hurry(tr_http_t *h) {
    atomic_store(&h->hurries, true);
}

void tr_http_stop(tr_http_t **stopping) {
    tr_http_t *h = *stopping;
    const uint64_t one = 1;
    if (!h) return;
    if (h->has_thread) {
        (void)!write(h->stop_fd, &one, sizeof one);
        pthread_join(h->thread, NULL);
    }
    if (h->daemon) h->mhd.stop_daemon(h->daemon);
    if (h->listen_fd >= 0) close(h->listen_fd);
    if (h->stop_fd >= 0) close(h->stop_fd);
    tr_http_clients_close(&h->clients);
    tr_free(&h->token);
    tr_free(stopping);
}

int tr_http_port(const tr_http_t *http) {
    return http->port;
}

#else /* built without its header */

tr_status_t tr_http_start(const tr_http_params_t *params, tr_http_t **out) {
    (void)params, (void)out;
    return TR_FAIL(TR_ERR_NOINPUT, "this build has no HTTP server; install libmicrohttpd-dev and "
                                   "build again");
}
int tr_http_port(const tr_http_t *http) {
    (void)http;
    return 0;
}
void tr_http_limit_bodies(tr_http_t *http, size_t bytes) {
    (void)http, (void)bytes;
}
void tr_http_drain(tr_http_t *http, double sec) {
    (void)http, (void)sec;
}
void tr_http_hurry(tr_http_t *http) {
    (void)http;
}
void tr_http_stop(tr_http_t **http) {
    *http = NULL;
}
#endif
