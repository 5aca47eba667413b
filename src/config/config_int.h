/* What the files of the configuration share. */
#ifndef TRAINER_CONFIG_INT_H
#define TRAINER_CONFIG_INT_H

#include "trainer/config.h"
#include "trainer/mem.h"

#define KEY_BYTES   128 /* longest full key, with its terminator */
#define WHERE_BYTES 512 /* the name of a place, cut where it is longer */

/* A parsed value: bool, ENUM and the integers in `whole`, the others in `number`; STRING is its
 * text. */
typedef struct {
    int64_t whole;
    double number;
} value_t;

/* One key: the row, and what it is set to now. */
typedef struct {
    char *key; /* "data.batch_size" */
    const char *section;
    const tr_config_field_t *field;
    char *text;
    value_t value;
    char *origin;   /* "mnist.ini:12"; NULL for the default */
    int load, line; /* which load set it, in which line: to find a key given twice in one file */
} entry_t;

struct tr_config {
    TR_VEC(entry_t) entries;
    TR_VEC(char *) problems; /* the first few; all are counted */
    int64_t problem_count;
    int loads;
    tr_status_t status; /* a problem that could not be kept */
};

/* Parses and checks the range. */
bool tr_config_parse_value(const tr_config_field_t *field, const char *text, value_t *out);
/* "an integer from 1 to 64"; for a bad `found` (may be NULL) also the choice that it is near to. */
void tr_config_describe(const tr_config_field_t *field, const char *found, tr_str_t *out);
/* Sets a key from text of the user's, or keeps a problem. `line` 0: not from a file. */
tr_status_t tr_config_assign(tr_config_t *config, const char *key, const char *text,
                             const char *origin, int line);
/* "mnist.ini:12", or the origin alone for line 0. */
void tr_config_where(const char *origin, int line, char where[WHERE_BYTES]);
/* Keeps the problem "origin: message". */
void tr_config_note(tr_config_t *config, const char *origin, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The known key that `key` was probably meant to be; NULL where there is none. */
const char *tr_config_suggest(const tr_config_t *config, const char *key);
/* Text of a user's for a message: short, on one line, in quotes. */
void tr_config_quote(const char *text, tr_str_t *out);

#endif
