/* The HTTP server: libmicrohttpd behind our own accept. */
#include "http_int.h"

#ifdef TR_HAVE_MICROHTTPD
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUEST_SEC = 10 };

#define LIBRARY "libmicrohttpd.so.12"
/* The functions of the library that are used. */
#define FUNCTIONS(F)                                                                               \
    F(start_daemon)                                                                                \
    F(stop_daemon)                                                                                 \
    F(add_connection)                                                                              \
    F(create_response_from_buffer)                                                                 \
    F(add_response_header)                                                                         \
    F(queue_response)                                                                              \
    F(destroy_response)                                                                            \
    F(lookup_connection_value)                                                                     \
    F(get_connection_info)

typedef struct {
#define MEMBER(name) __typeof__(MHD_##name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} library_t;

struct tr_http {
    library_t mhd;
    struct MHD_Daemon *daemon;
    tr_http_params_t params;
    char *token;
    tr_http_clients_t clients;
    int listen_fd, stop_fd, port;
    pthread_t thread;
    bool has_thread;
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

/* -- requests ---------------------------------------------------------------------------------- */

static int http_fd_of(const tr_http_t *h, struct MHD_Connection *connection) {
    return h->mhd.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

static enum MHD_Result http_reply(const tr_http_t *h, struct MHD_Connection *connection,
                                  const tr_http_reply_t *reply) {
    struct MHD_Response *response = h->mhd.create_response_from_buffer(
        reply->body.length, reply->body.text ? reply->body.text : "", MHD_RESPMEM_MUST_COPY);
    if (!response) return MHD_NO;
    h->mhd.add_response_header(response, "Content-Type", reply->type);
    h->mhd.add_response_header(response, "Cache-Control", "no-store");
    h->mhd.add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (reply->status == 401)
        h->mhd.add_response_header(response, "WWW-Authenticate",
                                   "Basic realm=\"trainer\", charset=\"UTF-8\"");
    if (reply->status == 405) h->mhd.add_response_header(response, "Allow", "GET, HEAD");
    const enum MHD_Result result =
        h->mhd.queue_response(connection, (unsigned)reply->status, response);
    h->mhd.destroy_response(response);
    return result;
}

/* Called when the header is complete, and again for each part of a body and at its end. A request
 * with a body is refused at once. */
static enum MHD_Result http_on_request(void *self, struct MHD_Connection *connection,
                                       const char *url, const char *method, const char *version,
                                       const char *upload, size_t *upload_bytes, void **state) {
    static char seen;
    tr_http_t *h = self;
    tr_http_reply_t reply = {.status = 200, .type = "text/plain; charset=utf-8"};
    const char *length =
        h->mhd.lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    const bool has_body =
        (length && strcmp(length, "0") != 0) ||
        h->mhd.lookup_connection_value(connection, MHD_HEADER_KIND, "Transfer-Encoding");
    (void)version, (void)upload, (void)upload_bytes;
    if (!*state && !has_body) {
        *state = &seen;
        return MHD_YES;
    }
    tr_http_clients_mark(&h->clients, http_fd_of(h, connection), true);
    const char *given =
        h->mhd.lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    const bool is_open = h->params.open_path && strcmp(url, h->params.open_path) == 0;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        reply.status = 405;
    else if (has_body)
        reply.status = 413;
    else if (h->token && !is_open && !tr_http_has_token(given, h->token))
        reply.status = 401;
    else
        h->params.handler(h->params.self, &(tr_http_request_t){.path = url}, &reply);
    if (reply.body.length == 0 && reply.status != 200)
        tr_str_printf(&reply.body, "%d\n", reply.status);
    if (reply.body.status != TR_OK) reply.status = 500;
    const enum MHD_Result result = http_reply(h, connection, &reply);
    tr_str_free(&reply.body);
    return result;
}

static void http_on_answered(void *self, struct MHD_Connection *connection, void **state,
                             enum MHD_RequestTerminationCode code) {
    tr_http_t *h = self;
    (void)state, (void)code;
    tr_http_clients_mark(&h->clients, http_fd_of(h, connection), false);
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
    if (fd < 0) return;
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

tr_status_t tr_http_start(const tr_http_params_t *params, tr_http_t **out) {
    tr_http_t *h = NULL;
    sigset_t all, before;
    tr_status_t status;
    int error;
    TR_TRY(tr_alloc(sizeof *h, "the HTTP server", &h));
    h->params = *params;
    h->listen_fd = h->stop_fd = -1;
    TR_TRY_GOTO(tr_http_clients_open(&h->clients, params->connections,
                                     params->request_sec > 0 ? params->request_sec : REQUEST_SEC), failed);
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
        http_on_message, NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned)params->connections + 16,
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
void tr_http_stop(tr_http_t **http) {
    *http = NULL;
}
#endif
