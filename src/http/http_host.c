/* What headers say: whether a request is meant for this machine, and of what type its body is. */
#include "http.h"
#include "base/host.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

bool tr_http_is_own_host(const char *header) {
    char name[256];
    struct in6_addr address;
    if (!header || strlen(header) >= sizeof name) return false;
    const bool has_brackets = header[0] == '[';
    strcpy(name, header + has_brackets);
    char *end = name + strcspn(name, has_brackets ? "]" : ":");
    if (has_brackets != (*end == ']')) return false;
    *end = '\0';
    if (inet_pton(has_brackets ? AF_INET6 : AF_INET, name, &address) == 1) return true;
    if (has_brackets) return false;
    if (strcasecmp(name, "localhost") == 0) return true;
    const char *mine = tr_host_name();
    const size_t length = strcspn(mine, "."); /* of its short form */
    return strcasecmp(name, mine) == 0 ||
           (length > 0 && strlen(name) == length && strncasecmp(name, mine, length) == 0);
}

bool tr_http_type_is(const tr_http_request_t *request, const char *type) {
    const size_t length = strlen(type);
    return strncasecmp(request->type, type, length) == 0 &&
           strchr("; \t", request->type[length]) != NULL;
}
