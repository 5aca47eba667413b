/* Tables of numbers: csv.c splits the text into fields, csv_cell.c reads the number in one,
 * csv_labels.c determines what the labels are, import_csv.c does the rest. */
#ifndef CSV_INT_H
#define CSV_INT_H

#include "import_int.h"

/* -- csv.c: rows of fields --------------------------------------------------------------------- */

typedef struct tr_csv tr_csv_t;
/* Takes ownership of `fd`; gzip or not. `delimiter` separates fields. */
tr_status_t tr_csv_open(int fd, const char *name, char delimiter, tr_csv_t **out);
/* The next row that is not empty: its fields, unquoted and trimmed, valid until the next call;
 * *out_count 0 at the end. */
tr_status_t tr_csv_row(tr_csv_t *csv, char ***out_field, int *out_count);
int64_t tr_csv_line(const tr_csv_t *csv); /* of the last row, from 1 */
void tr_csv_close(tr_csv_t **csv);

/* -- csv_cell.c -------------------------------------------------------------------------------- */

/* The format of a table. */
typedef struct {
    const char *path;
    tr_csv_t *csv;
    char delimiter, decimal; /* between columns; '.' or ',' in numbers */
} csv_table_t;

/* With a decimal comma a point is none: it would separate thousands. */
bool tr_csv_number(const csv_table_t *table, const char *text, double *out);
/* Whether it is a usual notation for a missing value. */
bool tr_csv_is_missing(const char *text);
/* Not a number, but meant as one: missing, too large, or with the other decimal sign. */
bool tr_csv_is_meant_as_number(const csv_table_t *table, const char *text);
/* How to read another format; for messages. */
#define CSV_FORMAT_HINT "--delimiter and --decimal name other characters than ',' and '.'"
/* What to do about `text`, which is not a number in the range of a 32-bit float. */
void tr_csv_remedy(const csv_table_t *table, const char *text, char *out, size_t room);

/* -- csv_labels.c ------------------------------------------------------------------------------ */

typedef struct {
    int column;            /* -1: there are none */
    bool regression;       /* they must be regression targets */
    bool numbers, whole;   /* so far: all are numbers; all are whole numbers from 0 on */
    double largest;        /* of those */
    int64_t odd, odd_line; /* labels that are other numbers; the first one's line */
    double odd_value;
    /* distinct ones, up to one more than may be classes; sorted by tr_csv_labels_end */
    TR_VEC(char *) names;
    uint16_t *slot;                 /* of a hash table: a name's place in `names` + 1, 0: free */
    char *text;                     /* the first that is no number, and where; NULL: none */
    int64_t text_line, texts, rows; /* texts: how many are no number, of `rows` */
    bool text_first;                /* the first row's is none */
    tr_stats_t stats;               /* of numbers */
} csv_labels_t;

void tr_csv_labels_begin(csv_labels_t *labels, int column, bool regression);
/* The label of the row that was read last; *out_value is 0 for a text. TR_ERR_DATA if it is
 * missing. */
tr_status_t tr_csv_labels_add(csv_labels_t *labels, const csv_table_t *table, const char *text,
                              double *out_value);
/* All rows are read; integers of many classes are regression targets from here on. TR_ERR_DATA if
 * only some are numbers, or there are too many texts. */
tr_status_t tr_csv_labels_end(csv_labels_t *labels, const csv_table_t *table);
/* The class of a text, -1: it was not among them. */
int64_t tr_csv_labels_class(const csv_labels_t *labels, const char *text);
void tr_csv_labels_free(csv_labels_t *labels);

#endif
