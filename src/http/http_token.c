/* The token of a server: Bearer TOKEN, or Basic with the token as password. */
#include "http.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

/* Takes the same time wherever they differ. */
static bool token_equals(const char *given, size_t bytes, const char *token) {
    const size_t length = strlen(token);
    unsigned char differs = bytes != length;
    for (size_t i = 0; i < bytes; i++)
        differs |= (unsigned char)(given[i] ^ token[length > 0 ? i % length : 0]);
    return !differs;
}

/* Returns the number of bytes. */
static size_t token_base64_decode(const char *text, char *out, size_t most) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    int have = 0;
    size_t count = 0;
    for (const char *at; *text && (at = strchr(digits, *text)) && count < most; text++) {
        bits = bits << 6 | (uint32_t)(at - digits);
        have += 6;
        if (have < 8) continue;
        have -= 8;
        out[count++] = (char)(bits >> have);
    }
    return count;
}

bool tr_http_has_token(const char *header, const char *token) {
    char decoded[1024];
    if (!header) return false;
    if (strncasecmp(header, "Bearer ", 7) == 0)
        return token_equals(header + 7, strlen(header + 7), token);
    if (strncasecmp(header, "Basic ", 6) != 0) return false;
    const size_t bytes = token_base64_decode(header + 6, decoded, sizeof decoded);
    const char *colon = memchr(decoded, ':', bytes); /* user:password */
    return colon && token_equals(colon + 1, bytes - (size_t)(colon + 1 - decoded), token);
}
