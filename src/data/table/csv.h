/* CSV files: rows of fields (csv.c), files as tables (csv_open.c), and what is in a cell (csv_cell.c).
 * Used by `import csv` and by the data set of tables. */
#ifndef TR_DATA_CSV_H
#define TR_DATA_CSV_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- csv.c: rows of fields --------------------------------------------------------------------- */

typedef struct tr_csv tr_csv_t;
/* Takes ownership of `fd`; gzip or not. `delimiter` separates fields. */
tr_status_t tr_csv_open(int fd, const char *name, char delimiter, tr_csv_t **out);
/* The next row that is not empty: its fields, unquoted and trimmed, valid until the next call;
 * *out_count 0 at the end. */
tr_status_t tr_csv_row(tr_csv_t *csv, char ***out_field, int *out_count);
int64_t tr_csv_line(const tr_csv_t *csv);    /* of the last row, from 1 */
bool tr_csv_has_quotes(const tr_csv_t *csv); /* in the rows so far */
void tr_csv_close(tr_csv_t **csv);

/* -- csv_open.c -------------------------------------------------------------------------------- */

/* The format of a table. */
typedef struct {
    const char *path;
    tr_csv_t *csv;
    char delimiter, decimal; /* between columns; '.' or ',' in numbers */
    bool is_fixed;           /* no options can change them */
} tr_csv_table_t;

/* Opens the table and reads its first row, as tr_csv_row; closes it first if it is open.
 * TR_ERR_NOINPUT or TR_ERR_DATA if there is no such file, or it is empty or of another format. */
tr_status_t tr_csv_table_open(tr_csv_table_t *table, char ***out_field, int *out_count);

/* -- csv_cell.c -------------------------------------------------------------------------------- */

/* Parses a number. With a decimal comma, points are not accepted: they would separate thousands. */
bool tr_csv_number(const tr_csv_table_t *table, const char *text, double *out);
/* Whether `text` is a usual notation for a missing value; "none", "-" and "." are one only where a
 * number is expected. */
bool tr_csv_is_missing(const char *text, bool is_number);
/* Whether `text` is not a valid number but probably meant as one: missing, too large, or with the
 * other decimal sign. */
bool tr_csv_is_meant_as_number(const tr_csv_table_t *table, const char *text);
/* How to read another format; for messages. */
#define TR_CSV_FORMAT_HINT "--delimiter and --decimal name other characters than ',' and '.'"
/* Whether `text` is a date or a time. *out: names for its numbers, such as "year,month,day". */
bool tr_csv_is_date(const char *text, const char **out);
/* Whether `text` has only characters of numbers and dates, such as "1.234,5" or "12 %". */
bool tr_csv_is_like_number(const char *text);
enum { TR_CSV_REMEDY_BYTES = 256 };
/* Writes the remedy for `text`, which is not a number in the range of a 32-bit float. */
void tr_csv_remedy(const tr_csv_table_t *table, const char *text, char *out, size_t room);

#endif
