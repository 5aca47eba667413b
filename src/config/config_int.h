/* Private to src/config. */
#ifndef TR_CONFIG_CONFIG_INT_H
#define TR_CONFIG_CONFIG_INT_H

#include "field.h"
#include "base/mem.h"

#define KEY_BYTES   128 /* longest full key, with its terminator */
#define WHERE_BYTES 512 /* "FILE:LINE" in messages; truncated if longer */

/* One key: its row and its current value. */
typedef struct {
    char *key; /* "data.batch_size" */
    const char *section;
    const tr_config_field_t *field;
    char *text;     /* a valid value of the field */
    char *origin;   /* "mnist.ini:12"; NULL for the default */
    int load, line; /* the load and line that set it, to detect a key set twice in one file */
} entry_t;

struct tr_config {
    TR_VEC(entry_t) entries;
    TR_VEC(char *) problems; /* the first few of problem_count */
    int64_t problem_count;
    int loads;
    tr_status_t status; /* a problem could not be recorded */
};

/* Sets a key from the user's text, or records a problem. `line` 0: not from a file. */
tr_status_t tr_config_assign(tr_config_t *config, const char *key, const char *text,
                             const char *origin, int line);
/* "mnist.ini:12", or the origin alone for line 0. */
void tr_config_where(const char *origin, int line, char where[WHERE_BYTES]);
/* Records the problem "origin: message". */
void tr_config_note(tr_config_t *config, const char *origin, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#endif
