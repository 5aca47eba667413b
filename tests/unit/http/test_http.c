/* The HTTP server: the token, what it refuses, clients that are slow or many. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "base/clock.h"
#include "http/http.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char token[] = "0123456789abcdef";

/* A stream of three parts; counts its ends. */
static bool stream_read(void *self, tr_str_t *out) {
    int *parts = self;
    tr_str_printf(out, "part %d;", *parts);
    return ++*parts < 3;
}
static atomic_int closed;
static void stream_close(void *self) {
    (void)self;
    closed++;
}

enum { LARGE_BYTES = 16 << 20 };
static void answer(void *self, const tr_http_request_t *request, tr_http_reply_t *reply) {
    static int parts;
    (void)self;
    if (strcmp(request->path, "/stream") == 0) {
        parts = 0;
        reply->stream = (tr_http_stream_t){stream_read, stream_close, &parts};
    } else if (strcmp(request->path, "/large") == 0) {
        static char zeros[1 << 16];
        for (int i = 0; i < LARGE_BYTES / (1 << 16); i++)
            tr_str_append_bytes(&reply->body, zeros, sizeof zeros);
    } else if (strcmp(request->method, "POST") == 0) {
        tr_str_printf(&reply->body, "%s %zu %s", request->type, request->body_bytes, request->body);
    } else {
        tr_str_printf(&reply->body, "path %s", request->path);
    }
}

static void refuse(void *self, const tr_http_request_t *request, tr_http_reply_t *reply,
                   const char *why) {
    (void)self, (void)request;
    tr_str_printf(&reply->body, "refused: %s", why);
}

/* Returns NULL where there is no library: the test is then skipped. */
static tr_http_t *start(int port, int connections, double request_sec) {
    tr_http_t *http = NULL;
    const tr_status_t status = tr_http_start(&(tr_http_params_t){.address = "127.0.0.1",
                                                                 .port = port,
                                                                 .token = token,
                                                                 .open_path = "/healthz",
                                                                 .connections = connections,
                                                                 .request_sec = request_sec,
                                                                 .handler = answer},
                                             &http);
    if (status != TR_ERR_NOINPUT && status != TR_OK) fail_msg("%s", tr_error_last()->message);
    if (status != TR_OK) print_message("skipped: %s\n", tr_error_last()->message);
    return http;
}

/* As a server of a model: bodies of up to 10 bytes, and own hosts only. */
static tr_http_t *start_for_bodies(void) {
    tr_http_t *http = NULL;
    const tr_status_t status = tr_http_start(&(tr_http_params_t){.address = "127.0.0.1",
                                                                 .connections = 8,
                                                                 .body_bytes = 10,
                                                                 .own_hosts_only = true,
                                                                 .refuse = refuse,
                                                                 .handler = answer},
                                             &http);
    if (status != TR_ERR_NOINPUT && status != TR_OK) fail_msg("%s", tr_error_last()->message);
    return http;
}

static int dial(const tr_http_t *http) {
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)tr_http_port(http)),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* Reads until the end or `sec` have passed; returns the status of the answer, 0: none. */
static int reply_of(int fd, double sec, char *text, size_t bytes) {
    const double end = tr_clock_sec() + sec;
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    size_t length = 0;
    int status = 0;
    ssize_t got = 1;
    while (got > 0 && length < bytes - 1 && tr_clock_sec() < end)
        if (poll(&polled, 1, 50) > 0 && (got = read(fd, text + length, bytes - 1 - length)) > 0)
            length += (size_t)got;
    text[length] = '\0';
    sscanf(text, "HTTP/1.1 %d", &status);
    return status;
}

/* A request with `rest` behind its first lines: header fields, an empty line, a body. */
static int send_request(const tr_http_t *http, const char *line, const char *rest,
                        char text[1024]) {
    char request[1024];
    const int fd = dial(http);
    const int bytes =
        snprintf(request, sizeof request, "%s HTTP/1.1\r\nConnection: close\r\n%s", line, rest);
    assert_int_equal(write(fd, request, (size_t)bytes), bytes);
    const int status = reply_of(fd, 20, text, 1024);
    close(fd);
    return status;
}

static int ask(const tr_http_t *http, const char *line, const char *headers, char text[1024]) {
    char rest[1024];
    snprintf(rest, sizeof rest, "Host: x\r\n%s\r\n", headers);
    return send_request(http, line, rest, text);
}

static void token_is_required(void **state) {
    (void)state;
    assert_true(tr_http_has_token("Bearer 0123456789abcdef", token));
    assert_true(tr_http_has_token("basic eDowMTIzNDU2Nzg5YWJjZGVm", token)); /* x:TOKEN */
    assert_true(tr_http_has_token("Basic OjAxMjM0NTY3ODlhYmNkZWY=", token)); /* :TOKEN */
    static const char *const wrong[] = {NULL,
                                        "",
                                        "Bearer",
                                        "Bearer ",
                                        "Bearer 0123456789abcde",
                                        "Bearer 0123456789abcdef0",
                                        "Bearer 0123456789abcdeg",
                                        "Basic MDEyMzQ1Njc4OWFiY2RlZg==", /* no colon */
                                        "Basic eDo=",
                                        "0123456789abcdef"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(tr_http_has_token(wrong[i], token));
}

static void requests_are_answered_or_refused(void **state) {
    static const char good[] = "Authorization: Bearer 0123456789abcdef\r\n";
    char text[1024], headers[256];
    tr_http_t *http = start(0, 8, 0);
    (void)state;
    if (!http) return;
    assert_int_equal(ask(http, "GET /metrics?x=1", good, text), 200);
    assert_non_null(strstr(text, "path /metrics"));
    assert_int_equal(ask(http, "GET /metrics", "", text), 401);
    assert_non_null(strstr(text, "WWW-Authenticate: Basic"));
    assert_null(strstr(text, token));
    assert_int_equal(ask(http, "GET /healthz", "", text), 200);
    assert_int_equal(ask(http, "GET /healthz/..", "", text), 401);
    assert_int_equal(ask(http, "DELETE /metrics", good, text), 405);
    snprintf(headers, sizeof headers, "%sContent-Length: 5\r\n\r\nhello", good);
    assert_int_equal(ask(http, "GET /metrics", headers, text), 413);
    assert_int_equal(ask(http, "HEAD /metrics", good, text), 200);
    assert_null(strstr(text, "path"));
    tr_http_stop(&http);
    assert_null(http);
}

static void port_in_use_is_an_error(void **state) {
    tr_http_t *http = start(0, 8, 0), *other = NULL;
    tr_http_params_t params = {.address = "127.0.0.1", .connections = 8, .handler = answer};
    (void)state;
    if (!http) return;
    params.port = tr_http_port(http);
    assert_int_equal(tr_http_start(&params, &other), TR_ERR_CONFIG);
    assert_null(other);
    params.address = "192.0.2.1";
    assert_int_equal(tr_http_start(&params, &other), TR_ERR_CONFIG);
    params.address = "localhost.";
    assert_int_equal(tr_http_start(&params, &other), TR_ERR_CONFIG);
    tr_http_stop(&http);
}

/* Sends a byte at a time: it is never idle. */
static void slow_sender_is_closed(void **state) {
    tr_http_t *http = start(0, 8, 0.3);
    (void)state;
    if (!http) return;
    const int fd = dial(http);
    const double begin = tr_clock_sec();
    bool is_open = true;
    while (is_open && tr_clock_sec() - begin < 20) {
        char byte;
        is_open = send(fd, "x", 1, MSG_NOSIGNAL) == 1;
        usleep(50000);
        if (is_open) is_open = recv(fd, &byte, 1, MSG_DONTWAIT) != 0;
    }
    assert_false(is_open);
    close(fd);
    tr_http_stop(&http);
}

/* Idle connections make room: whoever asks is answered, if not at once. */
static void idle_connections_make_room(void **state) {
    enum { IDLE = 40, LIMIT = 4 };
    tr_http_t *http = start(0, LIMIT, 0.5);
    char text[1024];
    int idle[IDLE], status = 0;
    (void)state;
    if (!http) return;
    for (int i = 0; i < IDLE; i++) idle[i] = dial(http);
    for (int i = 0; i < 100 && status != 200; i++) {
        status = ask(http, "GET /healthz", "", text);
        if (status != 200) usleep(100000);
    }
    assert_int_equal(status, 200);
    for (int i = 0; i < IDLE; i++) close(idle[i]);
    tr_http_stop(&http);
}

/* Asks for a reply that does not fit into the buffers of a connection. */
static int ask_for_much(const tr_http_t *http) {
    static const char request[] = "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const int small = 64 << 10, fd = dial(http);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(send(fd, request, sizeof request - 1, MSG_NOSIGNAL), sizeof request - 1);
    return fd;
}

/* Returns the bytes of the reply; `usec` between two parts. */
static size_t read_slowly(int fd, useconds_t usec) {
    static char part[256 << 10];
    size_t bytes = 0;
    ssize_t count;
    while (bytes < LARGE_BYTES && (count = recv(fd, part, sizeof part, MSG_WAITALL)) > 0) {
        bytes += (size_t)count;
        usleep(usec);
    }
    return bytes;
}

static void readers_are_served_as_long_as_they_read(void **state) {
    tr_http_t *http = NULL;
    (void)state;
    const tr_http_params_t params = {.address = "127.0.0.1",
                                     .connections = 4,
                                     .request_sec = 60,
                                     .read_sec = 1.5,
                                     .handler = answer};
    if (tr_http_start(&params, &http) != TR_OK) return;
    const int slow = ask_for_much(http), idle = ask_for_much(http);
    const double begin = tr_clock_sec();
    assert_true(read_slowly(slow, 60000) >= LARGE_BYTES);
    assert_true(tr_clock_sec() - begin > 2 * params.read_sec);
    assert_true(read_slowly(idle, 0) < LARGE_BYTES);
    close(slow);
    close(idle);
    tr_http_stop(&http);
}

#define HEAD "Host: localhost\r\nContent-Type: text/x\r\n"

static void bodies_are_read_up_to_their_limit(void **state) {
    char text[1024];
    tr_http_t *http = start_for_bodies();
    (void)state;
    if (!http) return;
    static const struct {
        int status;
        const char *names, *rest;
    } cases[] = {
        {200, "text/x 4 body", HEAD "Content-Length: 4\r\n\r\nbody"},
        {200, "text/x 0 ", HEAD "Content-Length: 0\r\n\r\n"},
        {200, "text/x 6 abcdef",
         HEAD "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"},
        {413, "refused: ", HEAD "Content-Length: 11\r\n\r\n12345678901"},
        {413, "refused: ", HEAD "Content-Length: 11\r\nExpect: 100-continue\r\n\r\n"},
        {501, "refused: ", HEAD "Transfer-Encoding: gzip\r\n\r\n"},
        {413, "refused: ", HEAD "Transfer-Encoding: chunked\r\n\r\nb\r\n12345678901\r\n0\r\n\r\n"},
        {400, "refused: ", HEAD "Content-Length: 4\r\nContent-Length: 4\r\n\r\nbody"},
        {400, "refused: ", HEAD "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
        {421, "refused: Host", "Host: x.example\r\nContent-Length: 4\r\n\r\nbody"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int status = send_request(http, "POST /", cases[i].rest, text);
        if (status != cases[i].status || !strstr(text, cases[i].names))
            fail_msg("case %zu: %d %s", i, status, text);
    }
    assert_int_equal(send_request(http, "GET /", HEAD "Content-Length: 4\r\n\r\nbody", text), 413);
    tr_http_limit_bodies(http, 3);
    assert_int_equal(send_request(http, "POST /", HEAD "Content-Length: 4\r\n\r\nbody", text), 413);
    assert_non_null(strstr(text, "at most 3 bytes"));
    assert_int_equal(send_request(http, "PUT /", HEAD "\r\n", text), 405);
    tr_http_stop(&http);
}

static void streams_are_sent_and_closed(void **state) {
    char text[1024];
    tr_http_t *http = start_for_bodies();
    (void)state;
    if (!http) return;
    closed = 0;
    assert_int_equal(send_request(http, "GET /stream", HEAD "\r\n", text), 200);
    assert_non_null(strstr(text, "chunked"));
    assert_non_null(strstr(text, "part 0;"));
    assert_non_null(strstr(text, "part 2;"));
    assert_null(strstr(text, "part 3;"));
    tr_http_drain(http, 10);
    assert_int_equal(closed, 1);
    tr_http_stop(&http);
}

static void hosts_are_own_or_not(void **state) {
    static const char *const own[] = {"localhost",     "LocalHost:80", "127.0.0.1",
                                      "10.1.2.3:8080", "[::1]",        "[fe80::1]:1"};
    static const char *const other[] = {NULL,         "",    "example.org", "localhost.example.org",
                                        "127.0.0.1.", "::1", "[::1",        "[localhost]",
                                        "1.2.3.4.5",  ":80", "127.1"};
    char host[64] = "", text[96];
    (void)state;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        assert_true(tr_http_is_own_host(own[i]));
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        assert_false(tr_http_is_own_host(other[i]));
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "%s:8080", host);
    assert_true(tr_http_is_own_host(text));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(token_is_required),
        cmocka_unit_test(requests_are_answered_or_refused),
        cmocka_unit_test(port_in_use_is_an_error),
        cmocka_unit_test(slow_sender_is_closed),
        cmocka_unit_test(readers_are_served_as_long_as_they_read),
        cmocka_unit_test(idle_connections_make_room),
        cmocka_unit_test(bodies_are_read_up_to_their_limit),
        cmocka_unit_test(streams_are_sent_and_closed),
        cmocka_unit_test(hosts_are_own_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
