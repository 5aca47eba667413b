/* Numbers in JSON: rounded, shortened in a text, or null. Files of JSON. */
#include "json_text.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define TEXT_BYTES 32

double tr_round_digits(double value, int digits) {
    char text[TEXT_BYTES];
    tr_snprintf(text, sizeof text, "%.*g", digits, value);
    return tr_strtod(text, NULL);
}

json_t *tr_json_finite(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *tr_json_measured(double value) {
    return tr_json_finite(isfinite(value) ? tr_round_digits(value, 6) : value);
}

/* Fewest digits for one real number of `length` characters; returns the new length. */
static size_t json_shorten_number(const char *number, size_t length, char out[TEXT_BYTES]) {
    char text[TEXT_BYTES];
    if (length >= sizeof text || !memchr(number, '.', length)) return 0;
    memcpy(text, number, length);
    text[length] = '\0';
    const double value = tr_strtod(text, NULL);
    for (int digits = 15; digits <= 17; digits++) {
        tr_snprintf(out, TEXT_BYTES, "%.*g", digits, value);
        if (tr_strtod(out, NULL) == value) break;
    }
    if (!strpbrk(out, ".e")) strcat(out, ".0"); /* a reader tells reals from integers by it */
    return strlen(out) <= length ? strlen(out) : 0;
}

void tr_json_shorten(char *text) {
    char number[TEXT_BYTES], *to = text;
    bool in_string = false;
    while (*text) {
        const size_t length = in_string ? 0 : strspn(text, "+-.0123456789eE");
        if (length > 0 && *text != 'e') { /* not the e of true and false */
            const size_t kept = json_shorten_number(text, length, number);
            memmove(to, kept ? number : text, kept ? kept : length);
            to += kept ? kept : length;
            text += length;
            continue;
        }
        if (in_string && *text == '\\')
            *to++ = *text++;
        else if (*text == '"')
            in_string = !in_string;
        *to++ = *text++;
    }
    *to = '\0';
}

json_t *tr_json_load_file(const char *path, json_error_t *error) {
    enum { MOST_BYTES = 256 << 20 };
    char *text = NULL;
    int64_t bytes = 0;
    if (tr_read_text(path, MOST_BYTES, &text, &bytes) != TR_OK) {
        *error = (json_error_t){.line = -1};
        tr_snprintf(error->text, sizeof error->text, "%s", tr_error_last()->message);
        return NULL;
    }
    json_t *value = json_loadb(text, (size_t)bytes, 0, error);
    tr_free(&text);
    return value;
}
