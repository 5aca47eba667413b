/*
 * How the columns of a table become the inputs of a model. `import csv` learns it from the training
 * rows and writes it as the attribute `columns`, JSON text; it then belongs to the preprocessing
 * (preprocess.h), and the data set of tables applies it to other tables.
 */
#ifndef TR_DATA_COLUMNS_H
#define TR_DATA_COLUMNS_H

#include "csv.h"
#include "data/data.h"

#define TR_CATEGORIES_MAX 1000 /* of a column, and of all one-hot columns together */

typedef enum { TR_COLUMN_NUMBER, TR_COLUMN_ONE_HOT, TR_COLUMN_ORDINAL } tr_column_kind_t;
typedef struct {
    char *name; /* in the header; the number of the column, from 1, in a table without one */
    tr_column_kind_t kind;
    tr_names_t categories; /* sorted by bytes; none of numbers */
    double fill;           /* replaces missing numbers */
    bool indicator;        /* one more input: 1 if the cell is missing, else 0 */
} tr_column_t;

typedef struct {
    bool has_header;
    char delimiter, decimal;
    bool fills; /* missing cells are allowed: see tr_columns_encode */
    bool refuses_unknown;
    TR_VEC(tr_column_t) input;
    tr_names_t targets; /* the label or the targets */
    char *id;           /* column that predictions carry along; NULL: all that are no inputs */
} tr_columns_t;

void tr_columns_free(tr_columns_t *columns);
/* The number of inputs of one column. */
int64_t tr_column_width(const tr_column_t *column);
/* The names of the inputs: "age", "colour=red", "age missing". Free *out also after an error. */
tr_status_t tr_columns_names(const tr_columns_t *columns, tr_names_t *out);
/* The index of a category; -1: unknown. */
int64_t tr_column_category(const tr_column_t *column, const char *text);
/* Cells of one kind: their number, and line and text of the first. */
typedef struct {
    int64_t count, line;
    char *text;
} tr_cells_t;
/* Counts a cell of the last row. */
tr_status_t tr_cells_add(tr_cells_t *cells, const tr_csv_table_t *table, const char *text);
/* Appends ", found 'old' in line 5 (3 more)". */
void tr_cells_say(const tr_cells_t *cells, tr_str_t *out);
void tr_cells_free(tr_cells_t *cells);

/* The cells of one input that do not fit: no numbers; missing without `fills`; of no category. */
typedef struct {
    tr_cells_t wrong, missing, unknown;
} tr_column_faults_t;

/*
 * Converts the cells field[index[i]] of input column i, from the last row of `table`. A missing
 * number becomes `fill`. A missing text and an unknown category have no category: all inputs are 0,
 * or -1 for ordinal columns. A text that is a category is never missing. Cells that do not fit are
 * counted in faults[i].
 */
tr_status_t tr_columns_encode(const tr_columns_t *columns, const tr_csv_table_t *table,
                              char *const *field, const int *index, tr_column_faults_t *faults,
                              float *out);
/* Appends which columns have cells that are refused, with the numbers of them; nothing if none
 * has. */
void tr_columns_say_faults(const tr_columns_t *columns, const int *index,
                           const tr_column_faults_t *faults, tr_str_t *out);
void tr_columns_free_faults(const tr_columns_t *columns, tr_column_faults_t **faults);
/* Records TR_ERR_DATA: `text` in column `column`, from 0, with this name (NULL: none) is no number in
 * the range of a float. */
tr_status_t tr_columns_fail_cell(const tr_csv_table_t *table, const char *text, int column,
                                 const char *name);

/* -- as JSON ----------------------------------------------------------------------------------- */

/* tr_free. */
tr_status_t tr_columns_to_json(const tr_columns_t *columns, char **out);
/* TR_ERR_DATA names `origin`. Free *out also after an error. */
tr_status_t tr_columns_from_json(const char *text, const char *origin, tr_columns_t *out);
/* Appends the first difference in how the same cells become inputs, "column 'age': missing values
 * become 3, not 4"; nothing if there is none. */
tr_status_t tr_columns_compare(const char *expected, const char *found, tr_str_t *out);

#endif
