/* CSV import: csv.c splits the text into fields, csv_cell.c parses numbers, csv_labels.c determines
 * the kind of labels, csv_groups.c the groups of the rows, import_csv.c is the importer. */
#ifndef TR_DATATOOLS_CSV_INT_H
#define TR_DATATOOLS_CSV_INT_H

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

/* Parses a number. With a decimal comma, points are not accepted: they would separate thousands. */
bool tr_csv_number(const csv_table_t *table, const char *text, double *out);
/* Whether `text` is a usual notation for a missing value. */
bool tr_csv_is_missing(const char *text);
/* Whether `text` is not a valid number but probably meant as one: missing, too large, or with the
 * other decimal sign. */
bool tr_csv_is_meant_as_number(const csv_table_t *table, const char *text);
/* How to read another format; for messages. */
#define CSV_FORMAT_HINT "--delimiter and --decimal name other characters than ',' and '.'"
/* Writes the remedy for `text`, which is not a number in the range of a 32-bit float. */
void tr_csv_remedy(const csv_table_t *table, const char *text, char *out, size_t room);

/* -- csv_labels.c ------------------------------------------------------------------------------ */

typedef struct {
    int column;            /* -1: no labels */
    bool regression;       /* the labels must be regression targets */
    bool numbers, whole;   /* so far: all are numbers; all are integers >= 0 */
    double largest;        /* largest such integer */
    int64_t odd, odd_line; /* number of labels that are other numbers; line of the first */
    double odd_value;
    /* distinct labels, at most one more than the limit of classes; sorted by tr_csv_labels_end */
    TR_VEC(char *) names;
    TR_VEC(int64_t) name_rows; /* of each of `names` before they are sorted */
    /* After tr_csv_labels_end: rows of each class; NULL, 0 if there are no classes, or if more
     * different texts than the limit were counted. */
    int64_t *class_rows, classes;
    uint16_t *slot;                 /* hash table: index in `names` + 1; 0: free */
    char *text;                     /* first label that is not a number; NULL: none */
    int64_t text_line, texts, rows; /* its line; number of such labels; number of rows */
    bool text_first;                /* the label of the first row is not a number */
    tr_stats_t stats;               /* of the numbers */
} csv_labels_t;

void tr_csv_labels_begin(csv_labels_t *labels, int column, bool regression);
/* Adds the label of the last row; *out_value is 0 for a text. TR_ERR_DATA if it is missing. */
tr_status_t tr_csv_labels_add(csv_labels_t *labels, const csv_table_t *table, const char *text,
                              double *out_value);
/* Call after the last row. Integers with too many distinct values become regression targets.
 * TR_ERR_DATA if only some labels are numbers, or there are too many distinct texts. */
tr_status_t tr_csv_labels_end(csv_labels_t *labels, const csv_table_t *table);
/* The class of a text; -1 if it is unknown. */
int64_t tr_csv_labels_class(const csv_labels_t *labels, const char *text);
void tr_csv_labels_free(csv_labels_t *labels);

/* -- csv_groups.c ------------------------------------------------------------------------------ */

/* As TR_SPLIT_TRAIN, ... */
enum { CSV_TRAIN, CSV_VALID, CSV_TEST, CSV_GROUPS };
typedef struct csv_stratum csv_stratum_t;
typedef struct {
    uint64_t seed;
    int64_t strata;           /* classes; 1: all rows are one */
    int64_t rows[CSV_GROUPS]; /* of the table */
    csv_stratum_t *left;      /* [strata] */
} csv_groups_t;

/* Divides `rows` rows by test_fraction and valid_fraction, each class in proportion. Free `groups`
 * also after an error. TR_ERR_CONFIG if a group that is wanted gets no row. */
tr_status_t tr_csv_groups_begin(csv_groups_t *groups, const csv_table_t *table,
                                const tr_import_params_t *params, const csv_labels_t *labels,
                                int64_t rows);
/* The group of the next row, which depends on the seed. `class` of it; 0 if rows have none. */
int tr_csv_groups_draw(csv_groups_t *groups, int64_t row, int64_t class);
void tr_csv_groups_free(csv_groups_t *groups);

#endif
