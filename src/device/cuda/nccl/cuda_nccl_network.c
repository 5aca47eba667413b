/* What an error of the network says about interfaces: NCCL itself only prints it. */
#include "cuda_nccl.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An id of NCCL begins with a number of 8 bytes and the address of rank 0. */
enum { ADDRESS_AT = 8 };
typedef char address_text_t[INET6_ADDRSTRLEN];

static bool network_address(const struct sockaddr *address, address_text_t out) {
    const void *bytes = address->sa_family == AF_INET
                            ? (const void *)&((const struct sockaddr_in *)address)->sin_addr
                            : (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr;
    return (address->sa_family == AF_INET || address->sa_family == AF_INET6) &&
           inet_ntop(address->sa_family, bytes, out, sizeof(address_text_t));
}

static void network_put(char *text, size_t bytes, const char *head, const char *name,
                        const char *address) {
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s%s%s", head, name, *name && *address ? " " : "",
             address);
}

void tr_cuda_nccl_network(const ncclUniqueId *id, char *text, size_t text_bytes) {
    const char *named = getenv("NCCL_SOCKET_IFNAME"), *head = "; interfaces of this node: ";
    struct sockaddr_in6 of_root;
    address_text_t root = "", address;
    struct ifaddrs *all = NULL;
    memcpy(&of_root, id->internal + ADDRESS_AT, sizeof of_root);
    snprintf(text, text_bytes,
             ". NCCL_SOCKET_IFNAME=NAME chooses the interface that connects the nodes (now: %.100s",
             named && *named ? named : "not set");
    if (network_address((const struct sockaddr *)&of_root, root))
        network_put(text, text_bytes, "; rank 0 waits at ", "", root);
    if (getifaddrs(&all) != 0) all = NULL;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!(i->ifa_flags & IFF_UP) || !i->ifa_addr || !network_address(i->ifa_addr, address))
            continue;
        const bool is_of_root = strcmp(address, root) == 0;
        if (!is_of_root && (i->ifa_flags & IFF_LOOPBACK)) continue;
        network_put(text, text_bytes, head, i->ifa_name, address);
        if (is_of_root) network_put(text, text_bytes, " (used)", "", "");
        head = ", ";
    }
    if (all) freeifaddrs(all);
    network_put(text, text_bytes, ")", "", "");
}
