/* The growing buffer, UTF-8, name matching, and the hash of names. */
#include "base/str.h"
#include "base/mem.h"

#include <ctype.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool str_reserve(tr_str_t *s, size_t extra) {
    if (s->status == TR_OK)
        s->status = tr_vec_reserve_(&s->text, &s->capacity, s->length + extra + 1, 1);
    return s->status == TR_OK;
}

void tr_str_append_bytes(tr_str_t *s, const char *bytes, size_t count) {
    if (!str_reserve(s, count)) return;
    memcpy(s->text + s->length, bytes, count);
    s->length += count;
    s->text[s->length] = '\0';
}

void tr_str_append(tr_str_t *s, const char *text) {
    tr_str_append_bytes(s, text, strlen(text));
}

/* Uses the C locale by name, because an embedding program may have set another. */
int tr_vsnprintf(char *text, size_t bytes, const char *format, va_list args) {
    const locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0),
                   before = uselocale(c_locale);
    const int wanted = vsnprintf(text, bytes, format, args);
    uselocale(before);
    if (c_locale) freelocale(c_locale);
    return wanted;
}

int tr_snprintf(char *text, size_t bytes, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int wanted = tr_vsnprintf(text, bytes, format, args);
    va_end(args);
    return wanted;
}

double tr_strtod(const char *text, char **out_end) {
    const locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const double value = c_locale ? strtod_l(text, out_end, c_locale) : strtod(text, out_end);
    if (c_locale) freelocale(c_locale);
    return value;
}

void tr_str_printf(tr_str_t *s, const char *format, ...) {
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int wanted = tr_vsnprintf(NULL, 0, format, args);
    if (wanted >= 0 && str_reserve(s, (size_t)wanted)) {
        tr_vsnprintf(s->text + s->length, (size_t)wanted + 1, format, again);
        s->length += (size_t)wanted;
    }
    va_end(again);
    va_end(args);
}

tr_status_t tr_str_take(tr_str_t *s, char **out) {
    tr_str_append_bytes(s, "", 0);
    tr_status_t status = s->status;
    if (status == TR_OK) {
        *out = s->text;
        s->text = NULL;
    }
    tr_str_free(s);
    return status;
}

void tr_str_free(tr_str_t *s) {
    tr_free(&s->text);
    *s = (tr_str_t){0};
}

int tr_utf8_decode(const char *text, uint32_t *out) {
    /* each character has one valid form: the shortest */
    static const uint32_t least[] = {0, 1, 0x80, 0x800, 0x10000};
    const unsigned char *at = (const unsigned char *)text;
    const int bytes = *at == 0           ? 0
                      : *at < 0x80       ? 1
                      : *at >> 5 == 0x06 ? 2
                      : *at >> 4 == 0x0E ? 3
                      : *at >> 3 == 0x1E ? 4
                                         : 0;
    uint32_t code = bytes > 1 ? *at & (0x7Fu >> bytes) : *at;
    for (int i = 1; i < bytes; i++) {
        if (at[i] >> 6 != 2) return 0;
        code = code << 6 | (at[i] & 0x3Fu);
    }
    if (code < least[bytes] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return 0;
    *out = code;
    return bytes;
}

int tr_utf8_encode(uint32_t code, char out[4]) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    const int bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = bytes - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(0xF00 >> bytes | code); /* as many leading ones as bytes */
    return bytes;
}

size_t tr_utf8_bytes(const char *text, size_t most) {
    size_t count = 0;
    uint32_t code;
    for (int bytes; count < most && (bytes = tr_utf8_decode(text + count, &code)) > 0;
         count += (size_t)bytes)
        if ((size_t)bytes > most - count) break;
    return count;
}

void tr_str_append_utf8(tr_str_t *s, const char *bytes, size_t count) {
    for (size_t at = 0; at < count;) {
        const size_t good = tr_utf8_bytes(bytes + at, count - at);
        tr_str_append_bytes(s, bytes + at, good);
        at += good;
        if (at < count) tr_str_append(s, "\xEF\xBF\xBD"), at++;
    }
}

#define MAX_NAME 63 /* longer texts are not typing errors */

static int str_min_int(int a, int b) {
    return a < b ? a : b;
}

/* Edits (insert, delete, replace, swap of neighbours) between two names; case is ignored. */
static int str_edit_distance(const char *a, int a_length, const char *b, int b_length) {
    int row[3][MAX_NAME + 1];
    int *two_up = row[0], *up = row[1], *here = row[2];
    for (int j = 0; j <= b_length; j++) up[j] = j;
    for (int i = 1; i <= a_length; i++) {
        here[0] = i;
        for (int j = 1; j <= b_length; j++) {
            int ca = tolower((unsigned char)a[i - 1]), cb = tolower((unsigned char)b[j - 1]);
            here[j] = str_min_int(str_min_int(up[j], here[j - 1]) + 1, up[j - 1] + (ca != cb));
            if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
                tolower((unsigned char)a[i - 2]) == cb)
                here[j] = str_min_int(here[j], two_up[j - 2] + 1);
        }
        int *oldest = two_up;
        two_up = up;
        up = here;
        here = oldest;
    }
    return up[b_length];
}

const char *tr_file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool tr_text_ends_in(const char *text, const char *end) {
    const size_t length = strlen(text), least = strlen(end);
    return length >= least && strcmp(text + length - least, end) == 0;
}

bool tr_has_word(const char *words, const char *name) {
    const size_t length = strlen(name);
    for (size_t word; *words; words += word + strspn(words + word, " ")) {
        word = strcspn(words, " ");
        if (word == length && strncasecmp(name, words, word) == 0) return true;
    }
    return false;
}

/* A typing error is at most one edit per three letters and three in total, or a name without its
 * end. */
const char *tr_nearest(const char *name, const char *const *candidates, size_t count) {
    size_t length = strlen(name);
    if (length == 0 || length > MAX_NAME) return NULL;
    int limit = str_min_int(3, ((int)length + 2) / 3), best = limit + 1;
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t other = strlen(candidates[i]);
        if (other > MAX_NAME) continue;
        int distance = str_edit_distance(name, (int)length, candidates[i], (int)other);
        if (length >= 3 && strncasecmp(name, candidates[i], length) == 0)
            distance = str_min_int(distance, limit);
        if (distance >= best || distance >= (int)(length > other ? length : other)) continue;
        best = distance;
        nearest = candidates[i];
    }
    return nearest;
}

tr_status_t tr_fail_unknown(const char *key, const char *kind, const char *name,
                            const char *const *all, size_t count) {
    const char *near = tr_nearest(name, all, count);
    tr_str_t list = {0};
    for (size_t i = 0; i < count; i++) tr_str_printf(&list, "%s%s", i ? ", " : "", all[i]);
    TR_FAIL(TR_ERR_CONFIG, "%s: unknown %s '%s'%s%s%s Available: %s.", key, kind, name,
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : ".",
            list.text ? list.text : "none");
    tr_str_free(&list);
    return TR_ERR_CONFIG;
}

/* After a mismatch only the last * is retried, one character further: at most pattern times text
 * steps. */
bool tr_glob_match(const char *pattern, const char *text) {
    const char *star = NULL, *retry = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            retry = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == '\0';
}

uint64_t tr_hash_name(const char *name) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001B3u;
    return hash;
}
