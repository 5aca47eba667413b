/*
 * The ini reader: text in, callbacks out; knows nothing of keys and files.
 *
 *   # a comment, also with ;
 *   [section]                     keys before any section belong to section ""
 *   key = value                   # a comment may follow a value after white space, outside
 *                                 "quotes"
 *   layers = conv 32 5,           a line indented deeper than its key continues the value:
 *       relu                      the value's lines are joined by newlines, each without its
 *                                 surrounding blanks
 *   name = " a # b "              one pair of quotes around all of a one-line value is taken off;
 *                                 inside, \" \\ \n \r \t are what they are in C
 *
 * Accepts a UTF-8 byte order mark and CRLF. Text with control bytes is one problem, and nothing of
 * it is read.
 */
#ifndef TRAINER_INI_H
#define TRAINER_INI_H

#include "trainer/status.h"
#include "trainer/str.h"
#include <stdbool.h>
#include <stddef.h>

#define TR_INI_LINE_BYTES 262144 /* longest line */
/* Longest value that does not come from a file: it fits in a line even when quoted, and holds a
 * number for each of 4096 channels. */
#define TR_INI_VALUE_BYTES 120000

typedef struct {
    void *self;
    /* Strings are valid during the call only. A failure ends the parse and is returned. */
    tr_status_t (*on_key)(void *self, const char *section, const char *key, const char *value,
                          int line);
    tr_status_t (*on_problem)(void *self, int line, const char *message);
} tr_ini_events_t;

/* Fails only with the status of a callback, or if there is no memory. */
tr_status_t tr_ini_parse(const char *text, size_t bytes, const tr_ini_events_t *events);

/* Whether `text` has no control bytes except tab, newline and carriage return; else where the first
 * one is. */
bool tr_ini_is_text(const char *text, size_t bytes, int *out_line, int *out_byte);

/* Appends "key = value" in a form that tr_ini_parse reads back as the same value. */
void tr_ini_append(tr_str_t *out, const char *key, const char *value);

#endif
