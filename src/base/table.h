/*
 * A result as a table: its columns are listed once, and rows are structs. Text for a terminal, JSON,
 * CSV and the numbers of a plot follow from the columns.
 *
 *   typedef struct { int batch; double step_sec; size_t bytes; } size_row_t;
 *   static const tr_table_column_t columns[] = {
 *       TR_COLUMN(size_row_t, "batch_size", "batch", INT, batch),
 *       TR_COLUMN(size_row_t, "step_sec", "ms/step", REAL, step_sec, .format = "%.3f", .scale = 1e3),
 *       TR_COLUMN(size_row_t, "memory_bytes", "memory", SIZE, bytes, .people = tr_format_bytes),
 *   };
 *   const tr_table_t table = TR_TABLE(columns, size_row_t);
 *   tr_table_text(&table, rows, count, 0, &out);
 */
#ifndef TR_BASE_TABLE_H
#define TR_BASE_TABLE_H

#include "str.h"

#include <jansson.h>

/* The type of the member at `offset`. */
typedef enum {
    TR_CELL_INT,    /* int */
    TR_CELL_INT64,  /* int64_t */
    TR_CELL_SIZE,   /* size_t */
    TR_CELL_REAL,   /* double */
    TR_CELL_BOOL,   /* bool */
    TR_CELL_STRING, /* const char *, borrowed */
    TR_CELL_CHARS   /* char [] */
} tr_cell_t;

/*
 * A cell is missing if it is a number that is not finite, a number 0 where `zero_is_missing`, or a
 * string that is NULL or empty. JSON has null for it, or lacks the key where `is_optional`; CSV has
 * nothing.
 */
typedef struct {
    const char *key;     /* in JSON and CSV; "step_ms.low": in an object. NULL: text alone */
    const char *heading; /* in text. NULL: JSON and CSV alone */
    tr_cell_t kind;
    size_t offset;                                /* of the member in the row */
    const char *format;                           /* of a number as a double in text; NULL: %.0f */
    double scale;                                 /* of a number in text; 0: 1 */
    double key_scale;                             /* of a number in JSON, CSV and plots; 0: 1 */
    char *(*people)(double value, char text[32]); /* tr_format_bytes: in place of `format` */
    const char *yes, *no;                         /* of a bool in text; NULL: yes, no */
    const char *missing;                          /* in text; NULL: "-" */
    bool zero_is_missing, is_optional;
    bool is_left;      /* aligned to the left */
    int width;         /* the least, in columns of the terminal */
    int drop;          /* on a narrow terminal columns go by this, the highest first; 0: stays */
    const char *above; /* a heading over neighbours that have equal ones */
} tr_table_column_t;
/* Of the member of a row of type S. What follows are designated members: .format = "%.1f". */
#define TR_COLUMN(S, k, h, type, member, ...)                                                      \
    { .key = k, .heading = h, .kind = TR_CELL_##type, .offset = offsetof(S, member), __VA_ARGS__ }

typedef struct {
    const tr_table_column_t *columns;
    size_t count, row_bytes;
    int indent;        /* blanks before each line of the text */
    bool has_no_heads; /* the text has no line of headings */
} tr_table_t;
/* Of rows of type S; with designated members: .indent = 2. */
#define TR_TABLE(list, S, ...)                                                                     \
    ((tr_table_t){.columns = list,                                                                 \
                  .count = sizeof(list) / sizeof(list)[0],                                         \
                  .row_bytes = sizeof(S),                                                          \
                  __VA_ARGS__})

/* Columns of a terminal that a text takes: its code points; wide and combining ones count as one. */
int tr_text_columns(const char *text);
/* Appends `text` as lines of at most `columns` (0: of any length), broken at blanks. */
void tr_text_wrap(const char *text, int columns, tr_str_t *out);

/* Appends the headings and a line a row, each column as wide as its widest cell; at most `columns`
 * wide (0: any) while there are columns to drop. */
void tr_table_text(const tr_table_t *t, const void *rows, size_t count, int columns, tr_str_t *out);
/* The same for rows that come slowly: columns are as wide as their headings and `width`. */
void tr_table_head(const tr_table_t *t, tr_str_t *out);
void tr_table_line(const tr_table_t *t, const void *row, tr_str_t *out);

/* New references: an array of objects, and one object. */
json_t *tr_table_json(const tr_table_t *t, const void *rows, size_t count);
json_t *tr_table_object(const tr_table_t *t, const void *row);
/* Appends the keys, if has_head, and a line a row; real numbers have at most six digits, or those of
 * a whole number. */
void tr_table_csv(const tr_table_t *t, const void *rows, size_t count, bool has_head,
                  tr_str_t *out);
/* A number of a row for a plot; NAN if it is missing, or no column has the key. */
double tr_table_number(const tr_table_t *t, const void *row, const char *key);

#endif
