/* The socket of a server. */
#include "http_int.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

tr_status_t tr_http_listen(const char *address, int port, int *out_fd, int *out_port) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found = NULL;
    char service[16], host[64];
    struct sockaddr_storage mine;
    socklen_t bytes = sizeof mine;
    snprintf(service, sizeof service, "%d", port);
    const int failed = getaddrinfo(address, service, &hints, &found);
    if (failed)
        return TR_FAIL(TR_ERR_CONFIG,
                       "expected a numeric IP address, such as 127.0.0.1, found "
                       "'%s'",
                       address);
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int reuse = 1;
    int error = fd < 0 ? errno : 0;
    /* A port whose connections wait for their end is free. */
    if (!error && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) != 0)
        error = errno;
    if (!error && bind(fd, found->ai_addr, found->ai_addrlen) != 0) error = errno;
    if (!error && listen(fd, SOMAXCONN) != 0) error = errno;
    if (!error && getsockname(fd, (struct sockaddr *)&mine, &bytes) != 0) error = errno;
    freeaddrinfo(found);
    if (!error) {
        getnameinfo((struct sockaddr *)&mine, bytes, host, sizeof host, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV);
        sscanf(service, "%d", out_port);
        *out_fd = fd;
        return TR_OK;
    }
    if (fd >= 0) close(fd);
    if (error == EADDRNOTAVAIL)
        return TR_FAIL(TR_ERR_CONFIG, "%s is not an address of this machine", address);
    if (error == EADDRINUSE)
        return TR_FAIL(TR_ERR_CONFIG, "port %d of %s is in use; choose another one, or 0 for any",
                       port, address);
    return TR_FAIL(tr_status_of_errno(error), "cannot listen at port %d of %s: %s", port, address,
                   strerror(error));
}
