/*
 * Text: a growing buffer, parsers for numbers, sizes and durations, UTF-8, and the nearest name for
 * "did you mean". Numbers are read and written with a decimal point in every locale.
 */
#ifndef TR_BASE_STR_H
#define TR_BASE_STR_H

#include "trainer/status.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A growing string; {0} is empty. `text` is NULL until the first append, then always terminated. A
 * failed allocation is kept in `status`, and later appends do nothing: check it once at the end.
 */
typedef struct tr_str {
    char *text;
    size_t length, capacity;
    tr_status_t status;
} tr_str_t;
void tr_str_append(tr_str_t *s, const char *text);
void tr_str_append_bytes(tr_str_t *s, const char *bytes, size_t count);
/* Appends text that need not be UTF-8: each byte that is not part of a character becomes U+FFFD. A
 * zero byte follows the `count` bytes. */
void tr_str_append_utf8(tr_str_t *s, const char *bytes, size_t count);
void tr_str_printf(tr_str_t *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Moves the text to *out ("" for an empty buffer). Free it with tr_free. */
tr_status_t tr_str_take(tr_str_t *s, char **out);
void tr_str_free(tr_str_t *s);
/* As in the C library, but with a decimal point in every locale. Messages, the log, tr_str_printf
 * and all files use these; outside src/cmd, `make lint` allows no others for numbers with one. */
int tr_vsnprintf(char *text, size_t bytes, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
int tr_snprintf(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
double tr_strtod(const char *text, char **out_end);

/*
 * Parsers of a whole string. They return false if the text is not exactly one such value, and
 * record no error.
 */
bool tr_parse_int(const char *text, int64_t *out);  /* "12", "-3", "1_000_000", integral "1e6" */
bool tr_parse_float(const char *text, double *out); /* finite decimal; not "inf" or "nan" */
/*
 * Parses 1 to `most` comma-separated numbers that fit a float. If there are more, returns false
 * with their number in *out_count.
 */
bool tr_parse_floats(const char *text, int most, float *out, int *out_count);
bool tr_parse_bool(const char *text, bool *out);           /* yes no true false on off 1 0 */
bool tr_parse_bytes(const char *text, int64_t *out);       /* "64k", "1MiB", "2G"; powers of 1024 */
bool tr_parse_duration(const char *text, double *out_sec); /* "90", "90s", "10min", "2h", "1d" */

/* Decodes the UTF-8 character at `text` to *out. Returns its length, 1 to 4 bytes, or 0 at the end
 * of the text and for invalid UTF-8. */
int tr_utf8_decode(const char *text, uint32_t *out);
/* Writes the UTF-8 bytes of `code` (at most 0x10FFFF). Returns their number. */
int tr_utf8_encode(uint32_t code, char out[4]);
/* The length in bytes, at most `most`, of the longest prefix of `text` made of whole characters. */
size_t tr_utf8_bytes(const char *text, size_t most);

/* Whether `name` is one of `words`, which blanks separate; upper and lower case are the same. */
bool tr_has_word(const char *words, const char *name);
bool tr_text_ends_in(const char *text, const char *end);
/* The candidate nearest to `name` by edit distance; NULL if none is near enough for a typo. */
const char *tr_nearest(const char *name, const char *const *candidates, size_t count);
/* TR_ERR_CONFIG: "KEY: there is no KIND 'NAME'; did you mean 'NEAREST'? There are: ALL." */
tr_status_t tr_fail_unknown(const char *key, const char *kind, const char *name,
                            const char *const *all, size_t count);
/* Shell-style match of `text` against `pattern` with * and ?. */
bool tr_glob_match(const char *pattern, const char *text);
/* Format for people: "1.5 MiB", "12.3 k", "1 h 02 min". Return `text`. */
char *tr_format_bytes(double bytes, char text[32]);
char *tr_format_count(double count, char text[32]);
char *tr_format_duration(double sec, char text[32]);
/* The part of `path` after the last slash; points into `path`. */
const char *tr_file_name(const char *path);
/* 64-bit FNV-1a of a string, for keys derived from names. */
uint64_t tr_hash_name(const char *name);

#endif
