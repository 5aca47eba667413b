/*
 * Text: a growing buffer, parsing of numbers, sizes and durations, UTF-8, and the nearest name for
 * "did you mean". Numbers have a decimal point here, in parsing and in writing, whatever locale the
 * program has set.
 */
#ifndef TRAINER_STR_H
#define TRAINER_STR_H

#include "trainer/status.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A growing string; {0} is an empty one. `text` is NULL until the first append, then always
 * terminated. A failed allocation is remembered in `status` and later appends do nothing: check
 * once at the end.
 */
typedef struct {
    char *text;
    size_t length, capacity;
    tr_status_t status;
} tr_str_t;
void tr_str_append(tr_str_t *s, const char *text);
void tr_str_append_bytes(tr_str_t *s, const char *bytes, size_t count);
void tr_str_printf(tr_str_t *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Takes the text out as a tr_free()able string ("" for an empty buffer). */
tr_status_t tr_str_take(tr_str_t *s, char **out);
void tr_str_free(tr_str_t *s);
/*
 * As in C's library, but with a decimal point. Messages, the log and tr_str_printf write by them;
 * so does all that is read again.
 */
int tr_vsnprintf(char *text, size_t bytes, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
int tr_snprintf(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Likewise; for text that may go on behind the number. */
double tr_strtod(const char *text, char **out_end);

/*
 * Whole-string parsers: false where the text is not exactly one such value. No error is recorded.
 */
/* "12", "-3", "1_000_000", "1e6" when integral */
bool tr_parse_int(const char *text, int64_t *out);
bool tr_parse_float(const char *text, double *out); /* finite decimal, "inf" and "nan" refused */
/*
 * At least one and at most `most` numbers with commas between them, none too large for a float; of
 * more, *out_count says how many there are
 */
bool tr_parse_floats(const char *text, int most, float *out, int *out_count);
bool tr_parse_bool(const char *text, bool *out);           /* yes no true false on off 1 0 */
bool tr_parse_bytes(const char *text, int64_t *out);       /* "64k", "1MiB", "2G"; powers of 1024 */
bool tr_parse_duration(const char *text, double *out_sec); /* "90", "90s", "10min", "2h", "1d" */

/*
 * UTF-8. The bytes of the character at `text` (1 to 4), 0 where it ends or what stands there is
 * none; the character in *out.
 */
int tr_utf8_decode(const char *text, uint32_t *out);
/* The character's bytes into `out`; returns how many. `code` is at most 0x10FFFF. */
int tr_utf8_encode(uint32_t code, char out[4]);
/*
 * How many of the first `most` bytes of `text` are whole characters, up to the end or the first
 * that are none.
 */
size_t tr_utf8_bytes(const char *text, size_t most);

/*
 * The candidate nearest to `name` by edit distance, NULL where none is near enough to be a likely
 * typo.
 */
const char *tr_nearest(const char *name, const char *const *candidates, size_t count);
/* TR_ERR_CONFIG: "KEY: there is no KIND 'NAME'; did you mean 'NEAREST'? There are: ALL." */
tr_status_t tr_fail_unknown(const char *key, const char *kind, const char *name,
                            const char *const *all, size_t count);
/* Shell-style match of `text` against `pattern` with * and ?. */
bool tr_glob_match(const char *pattern, const char *text);
/* "1.5 MiB", "12.3 k", "1 h 02 min" for people; `text` of 32 bytes; return `text`. */
char *tr_format_bytes(double bytes, char text[32]);
char *tr_format_count(double count, char text[32]);
char *tr_format_duration(double sec, char text[32]);
/* What stands behind the last slash: points into `path`. */
const char *tr_file_name(const char *path);
/* 64-bit FNV-1a of a string, for keys derived from names. */
uint64_t tr_hash_name(const char *name);

#endif
