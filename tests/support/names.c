#include "names.h"

#include <ctype.h>
#include <string.h>

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static bool has(const char *text, size_t bytes, const char *name, size_t length) {
    for (size_t at = 0; at + length <= bytes; at++) {
        if (memcmp(text + at, name, length) != 0) continue;
        const bool begins = at == 0 || !is_word(name[0]) || !is_word(text[at - 1]);
        const bool ends =
            at + length == bytes || !is_word(name[length - 1]) || !is_word(text[at + length]);
        if (begins && ends) return true;
    }
    return false;
}

static bool has_all(const char *text, size_t bytes, const char *names) {
    while (*names) {
        const char *end = strstr(names, " & ");
        const size_t length = end ? (size_t)(end - names) : strlen(names);
        if (!has(text, bytes, names, length)) return false;
        names += length + (end ? 3 : 0);
    }
    return true;
}

bool names_all(const char *text, const char *names) {
    return has_all(text, strlen(text), names);
}

bool names_in_line(const char *text, const char *names) {
    for (;;) {
        const size_t bytes = strcspn(text, "\n");
        if (has_all(text, bytes, names)) return true;
        if (!text[bytes]) return false;
        text += bytes + 1;
    }
}
