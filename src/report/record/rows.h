/*
 * Numbers of lines of metrics.jsonl, without their JSON: a row for each line that is kept, with eight
 * bytes for each key that is asked for. Not collective.
 */
#ifndef TR_REPORT_ROWS_H
#define TR_REPORT_ROWS_H

#include "trainer/status.h"
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A key, and which of its values count: numbers; true (1) and false (0); texts, by a number that
 * tr_rows_text knows. Any other value is as good as none. */
typedef enum { TR_VALUE_NUMBER, TR_VALUE_FLAG, TR_VALUE_TEXT } tr_value_kind_t;
typedef struct {
    const char *name;
    tr_value_kind_t kind;
} tr_key_t;

enum { TR_ROW_KEYS = 48 };

/* {0} initially. */
typedef struct {
    tr_key_t key[TR_ROW_KEYS]; /* that lines are searched for; the names are borrowed */
    size_t keys, width;        /* their number; of these, rows keep the first `width` */
    double *values;            /* [count][width]; NaN: the line lacks it */
    size_t count, room;
    int64_t seen, every; /* lines that came by, of which one of `every` is kept; 0: each */
    json_t *texts;       /* {text: its number}; NULL: none yet */
} tr_rows_t;

/* Adds a key, unless it is there. Before the first row. */
void tr_rows_ask(tr_rows_t *rows, const char *key, tr_value_kind_t kind);
/* Fills `row` [keys] with the values of a JSON object. TR_ERR_MEMORY. */
tr_status_t tr_rows_take_json(tr_rows_t *rows, const json_t *line, double *row);
/* The number of a text. TR_ERR_MEMORY. */
tr_status_t tr_rows_number_text(tr_rows_t *rows, const char *text, double *out);
/* Adds a row: copies its first `width` values. TR_ERR_MEMORY. */
tr_status_t tr_rows_push(tr_rows_t *rows, const double *row);
/* Whether the next line is one of those that are kept. Counts it. */
bool tr_rows_wants(tr_rows_t *rows);
/* Halves the rows if there are 2 * most; the newest whose flag `best` is set stays. Returns whether it
 * did: then the last row is gone. */
bool tr_rows_thin(tr_rows_t *rows, size_t most);
void tr_rows_reverse(tr_rows_t *rows);
tr_status_t tr_rows_copy(const tr_rows_t *rows, tr_rows_t *out);
void tr_rows_free(tr_rows_t *rows);

/* Where the values [keys] of a line have that of a key; -1: it was not asked for. */
int tr_rows_key(const tr_rows_t *rows, const char *key);
/* The same of rows, for tr_rows_at; -1: they do not keep it. */
int tr_rows_column(const tr_rows_t *rows, const char *key);
static inline double tr_rows_at(const tr_rows_t *rows, size_t i, int column) {
    return column >= 0 ? rows->values[i * rows->width + (size_t)column] : (double)NAN;
}
/* The value of a key in row i; NaN: none, or there is no such row. */
double tr_rows_number(const tr_rows_t *rows, size_t i, const char *key);
/* The text of a number; NULL: none. Owned by the rows. */
const char *tr_rows_text(const tr_rows_t *rows, double number);

#endif
