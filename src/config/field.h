/*
 * Values of one row of a field table: the parser and the messages that configuration keys and layer
 * attributes share. Not collective.
 */
#ifndef TR_CONFIG_FIELD_H
#define TR_CONFIG_FIELD_H

#include "config/config.h"

/*
 * Parses `text`, checks its range, and writes the value to the member of `settings` (NULL: only
 * check). A STRING member points to `text`. Returns false and writes nothing if `text` is not a
 * value of `field`.
 */
bool tr_config_parse_value(const tr_config_field_t *field, const char *text, void *settings);
/* Whether two texts denote the same value ("64k" and "65536", "yes" and "true"). */
bool tr_config_same_value(const tr_config_field_t *field, const char *a, const char *b);
/* Appends a value in its normal form: one text for "3", "3x3" and "03". */
void tr_config_append_value(const tr_config_field_t *field, const char *text, tr_str_t *out);
/* Appends "an integer from 1 to 64"; for a bad `found` (may be NULL) also the nearest choice. */
void tr_config_describe(const tr_config_field_t *field, const char *found, tr_str_t *out);
/* Appends the user's text for a message: short, on one line, in quotes; "nothing" if empty. */
void tr_config_quote(const char *text, tr_str_t *out);

#endif
