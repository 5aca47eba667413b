/* CSV import: csv_header.c decides what the first row is, csv_labels.c determines the kind of labels, csv_columns.c the kind of columns and what
 * is learned of them, csv_groups.c the groups of the rows; import_csv.c is the importer. */
#ifndef TR_DATATOOLS_CSV_INT_H
#define TR_DATATOOLS_CSV_INT_H

#include "data/table/columns.h"
#include "import_int.h"

/* -- csv_header.c ------------------------------------------------------------------------------ */

/* The index of a column by its name; -1: none. */
int tr_csv_find_name(char *const *field, int count, const char *name);
/* The index of the next usual name of a label that `role` (NULL: all) has as an input; -1: none. */
int tr_csv_find_label(char *const *field, int count, const char *role);
/*
 * Whether the first row, `field`, has the names of the columns: it has no number, or its label is a
 * text that no other row has, and is the label's name, or other rows share labels, or have only
 * numbers. --header decides otherwise.
 */
tr_status_t tr_csv_header_find(const tr_csv_table_t *table, const tr_import_params_t *params,
                               char *const *field, int count, bool *out);

/* -- csv_labels.c ------------------------------------------------------------------------------ */

typedef struct {
    int column;            /* -1: no labels */
    bool regression;       /* the labels must be regression targets */
    bool is_chosen;        /* by --label: dates and times such as 2:1 are classes */
    bool numbers, whole;   /* so far: all are numbers; all are integers >= 0 */
    bool is_signed;        /* so far: integers; after tr_csv_labels_end: classes, some below 0 */
    double largest;        /* largest integer >= 0 */
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
/* Adds the label of the last row, which is not missing; *out_value is 0 for a text. */
tr_status_t tr_csv_labels_add(csv_labels_t *labels, const tr_csv_table_t *table, const char *text,
                              double *out_value);
/* Call after the last row. Integers with too many distinct values become regression targets; few,
 * some below 0, become classes with names.
 * TR_ERR_DATA if only some labels are numbers, or there are too many distinct texts. */
tr_status_t tr_csv_labels_end(csv_labels_t *labels, const tr_csv_table_t *table);
/* After an import: says that a word such as "none" or "-" is a class; the first one. */
void tr_csv_labels_note(const csv_labels_t *labels, const tr_csv_table_t *table);
/* The class of a text; -1 if it is unknown. */
int64_t tr_csv_labels_class(const csv_labels_t *labels, const tr_csv_table_t *table,
                            const char *text);
void tr_csv_labels_free(csv_labels_t *labels);

/* -- csv_columns.c: the columns that become inputs ---------------------------------------------- */

typedef TR_VEC(double) csv_values_t;

/* What the first pass finds in a column. */
typedef struct {
    tr_column_kind_t kind;            /* after tr_tr_csv_columns_decide */
    bool is_chosen;                   /* the kind is given: --one-hot or --ordinal */
    int64_t numbers, texts, blank;    /* cells; blank: missing in any column */
    int64_t dashes;                   /* "none", "-", ".": missing where numbers are expected */
    int64_t missing, missing_line[5]; /* after tr_csv_columns_decide; lines of the first ones */
    char *text;                       /* the first that is no number; NULL: none */
    int64_t text_line;
    bool is_odd;    /* `text` is meant as a number, or is a date */
    bool is_broken; /* the numbers are not first, first + 1, first + 2, ... */
    double first;
    csv_values_t values; /* numbers of a column without a name */
} csv_column_t;

/* Whether a column only numbers the rows. */
typedef enum {
    CSV_NO_INDEX,
    CSV_COUNTS, /* it counts them, but has a name */
    CSV_INDEX,  /* without a name: different whole numbers, in any order */
    CSV_EMPTY   /* neither a name nor values */
} csv_index_t;

typedef struct {
    const tr_csv_table_t *table;
    const tr_import_params_t *params;
    const tr_names_t *names; /* of all columns of the table; borrowed */
    csv_column_t *of;        /* [names->count] */
    int *index;              /* [spec.input.count]: column of an input */
    tr_columns_t spec;       /* what is written */
    tr_stats_t *stats;       /* [spec.input.count] of numbers in training rows */
    csv_values_t *values;    /* the same numbers, for the median */
    int64_t *rows;           /* [spec.input.count] of texts in training rows */
} csv_columns_t;

/* After the first pass. `rows`: of the table. */
csv_index_t tr_csv_columns_index(const csv_columns_t *columns, int at, int64_t rows);
/* Refuses missing cells in the columns at[count] of labels. With `are_numbers`, dashes are missing. */
tr_status_t tr_csv_columns_check_labels(csv_columns_t *columns, const int *at, size_t count,
                                        bool are_numbers, int64_t rows);
/* Adds a cell of the last row to what is known of column `at`. */
tr_status_t tr_csv_columns_add(csv_columns_t *columns, int at, const char *text);
/* After the first pass: decides what the columns spec.input are. TR_ERR_DATA if a column has
 * numbers and texts, or cells are missing and may not be. `rows`: of the table. */
tr_status_t tr_csv_columns_decide(csv_columns_t *columns, int64_t rows);
/* Whether rows for training must be passed to tr_csv_columns_learn, and then tr_csv_columns_end called. */
bool tr_csv_columns_must_learn(const csv_columns_t *columns);
tr_status_t tr_csv_columns_learn(csv_columns_t *columns, char *const *field);
/* TR_ERR_DATA if a column, or all together, have too many categories. */
tr_status_t tr_csv_columns_end(csv_columns_t *columns);
void tr_csv_columns_free(csv_columns_t *columns);

/* -- csv_groups.c ------------------------------------------------------------------------------ */

/* As TR_SPLIT_TRAIN, ... */
enum { CSV_TRAIN, CSV_VALID, CSV_TEST, CSV_GROUPS };
typedef struct csv_stratum csv_stratum_t;
typedef struct {
    uint64_t seed;
    int64_t strata;           /* classes; 1: all rows are one */
    int64_t rows[CSV_GROUPS]; /* of the table */
    csv_stratum_t *left;      /* [strata] */
    TR_VEC(uint64_t)
    seen; /* of each row: a hash of its inputs, whose last bit is 1 if it is held out */
} csv_groups_t;

/* Divides `rows` rows by test_fraction and valid_fraction, each class in proportion. Free `groups`
 * also after an error. TR_ERR_CONFIG if a group that is wanted gets no row. */
tr_status_t tr_csv_groups_begin(csv_groups_t *groups, const tr_csv_table_t *table,
                                const tr_import_params_t *params, const csv_labels_t *labels,
                                int64_t rows);
/* The group of the next row, which depends on the seed. `class` of it; 0 if rows have none. */
int tr_csv_groups_draw(csv_groups_t *groups, int64_t row, int64_t class);
/* Notes the inputs of a row and its group, for tr_csv_groups_warn_same: a warning if a twentieth of the
 * rows for validation and test have the inputs of one for training. */
tr_status_t tr_csv_groups_note(csv_groups_t *groups, int group, const float *input, int64_t count);
void tr_csv_groups_warn_same(csv_groups_t *groups, const tr_csv_table_t *table);
void tr_csv_groups_free(csv_groups_t *groups);

#endif
