/*
 * The ini reader: it parses a text and calls a function for each key. It does not know the keys.
 *
 *   # a comment, also with ;
 *   [section]                     keys before any section belong to section ""
 *   key = value                   # a comment may follow a value after white space, outside
 *                                 "quotes"
 *   layers = conv 32 5,           a line indented deeper than its key continues the value;
 *       relu                      lines are trimmed and joined by newlines
 *   name = " a # b "              quotes around a whole one-line value are removed;
 *                                 \" \\ \n \r \t inside them are escapes as in C
 *
 * Accepts a UTF-8 byte order mark and CRLF. A text with control bytes is reported as one problem
 * and not parsed.
 */
#ifndef TR_CONFIG_INI_H
#define TR_CONFIG_INI_H

#include "trainer/status.h"
#include "base/str.h"
#include <stdbool.h>
#include <stddef.h>

#define TR_INI_LINE_BYTES 262144 /* longest line */
/* Longest value from the environment or command line: fits in a line when quoted, and holds one
 * number for each of 4096 channels. */
#define TR_INI_VALUE_BYTES 120000

typedef struct {
    void *self;
    /* Strings are valid only during the call. A failure ends the parse and is returned. */
    tr_status_t (*on_key)(void *self, const char *section, const char *key, const char *value,
                          int line);
    tr_status_t (*on_problem)(void *self, int line, const char *message);
} tr_ini_events_t;

/* Fails only with the status of a callback or TR_ERR_MEMORY. */
tr_status_t tr_ini_parse(const char *text, size_t bytes, const tr_ini_events_t *events);

/* Whether `text` has no control bytes except tab, newline and carriage return. If it has, the
 * position of the first one. */
bool tr_ini_is_text(const char *text, size_t bytes, int *out_line, int *out_byte);

/* Appends "key = value" in a form that tr_ini_parse reads back as the same value. */
void tr_ini_append(tr_str_t *out, const char *key, const char *value);

#endif
