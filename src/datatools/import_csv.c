/* CSV import. One column is the label, or none is; the other columns are the inputs. There are two
 * passes: the first counts rows and determines the kind of labels; the second writes, and computes
 * mean and standard deviation of the rows for training. */
#include "csv_int.h"
#include "trainer/log.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define MAX_COLUMNS 4000 /* limit of columns whose names fit in an attribute */
#define MANY        20   /* classes: more may be regression targets */
#define SAID        3    /* columns that are rounded */

typedef struct {
    const tr_import_params_t *params;
    csv_table_t table;
    bool header, hash; /* hash: the first row starts with # */
    int columns, inputs;
    csv_labels_t labels;
    char *label_name;
    tr_names_t input_names; /* none without a header */
    csv_groups_t groups;
    int64_t seen; /* rows so far */
    tr_moments_t moments;
    tr_writer_t *writer;
    double *value;     /* [columns], of this row */
    tr_stats_t *stats; /* [columns], of all rows, before rounding */
    float *row;        /* [columns], of inputs */
} import_t;

/* Opens the table at its first row. */
static tr_status_t csv_import_open(import_t *m) {
    char begin[8];
    tr_csv_close(&m->table.csv);
    m->seen = 0;
    TR_TRY(tr_import_check_regular(m->table.path, "a table is read twice"));
    int fd = open(m->table.path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return TR_FAIL(errno == ENOENT ? TR_ERR_NOINPUT : TR_ERR_IO, "cannot open '%s': %s.",
                       m->table.path, strerror(errno));
    if (pread(fd, begin, sizeof begin, 0) == sizeof begin &&
        tr_begins_as_hdf5(begin, sizeof begin)) {
        close(fd);
        return TR_FAIL(
            TR_ERR_DATA,
            "'%s' is an HDF5 file; expected CSV text. `trainer data` shows its contents, and "
            "data.train reads it directly.",
            m->table.path);
    }
    return tr_csv_open(fd, m->table.path, m->table.delimiter, &m->table.csv);
}

/* -- the first row ----------------------------------------------------------------------------- */

static int csv_find_name(char *const *field, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcasecmp(field[i], name)) return i;
    return -1;
}

static tr_status_t csv_choose_label(const import_t *m, char *const *field, int *out) {
    static const char *const usual[] = {"label",  "class",   "target", "y",
                                        "labels", "species", "outcome"};
    int64_t index;
    *out = -1;
    for (size_t i = 0; !m->params->label && m->header && i < TR_COUNT(usual) && *out < 0; i++)
        *out = csv_find_name(field, m->columns, usual[i]);
    if (!m->params->label) {
        if (*out < 0) *out = m->columns - 1;
        return TR_OK;
    }
    if (m->header) *out = csv_find_name(field, m->columns, m->params->label);
    if (*out >= 0 || !strcmp(m->params->label, "none")) return TR_OK;
    if (tr_parse_int(m->params->label, &index) && index != 0 && index >= -m->columns &&
        index <= m->columns) {
        *out = (int)(index < 0 ? index + m->columns : index - 1);
        return TR_OK;
    }
    tr_str_t text = {0};
    for (int i = 0; i < m->columns && i < 30; i++)
        tr_str_printf(&text, "%s%s", i ? ", " : "", field[i]);
    TR_FAIL(TR_ERR_CONFIG,
            "--label: '%s' has no column '%s' (columns count from 1, from the end -1); its first "
            "row is: %s. "
            "If there are no labels: --label none.",
            m->table.path, m->params->label, text.text ? text.text : "");
    tr_str_free(&text);
    return TR_ERR_CONFIG;
}

/* Reads the first row, *out_field, and from it what the columns are. */
static tr_status_t csv_read_columns(import_t *m, char ***out_field) {
    const char *chosen = m->params->label;
    int count, label;
    TR_TRY(csv_import_open(m));
    TR_TRY(tr_csv_row(m->table.csv, out_field, &count));
    if (!count) return TR_FAIL(TR_ERR_DATA, "'%s' is empty.", m->table.path);
    char *const *field = *out_field;
    bool counts = count > 2; /* 0, 1, 2, ...: the names of unnamed columns in pandas */
    m->columns = count;
    m->hash = field[0][0] == '#';
    m->header = true;
    for (int i = 0; i < count; i++) {
        double value;
        const bool is_number = tr_csv_number(&m->table, field[i], &value);
        m->header = m->header && !is_number;
        counts = counts && is_number && value == i;
    }
    if (counts)
        TR_WARN("'%s', line %lld: the first row is 0, 1, 2 and so on, and is read as data. Remove "
                "it if these "
                "are column names",
                m->table.path, (long long)tr_csv_line(m->table.csv));
    if (count == 1 && !(chosen && !strcmp(chosen, "none")))
        return TR_FAIL(
            TR_ERR_DATA,
            "'%s', line %lld: expected inputs and a label, found one column%s; " CSV_FORMAT_HINT
            ", --label none imports a table without labels.",
            m->table.path, (long long)tr_csv_line(m->table.csv),
            m->hash ? " that begins with '#' (remove a comment)" : "");
    TR_TRY(csv_choose_label(m, field, &label));
    tr_csv_labels_begin(&m->labels, label, m->params->regression);
    m->inputs = count - (label >= 0);
    if (m->header) {
        tr_names_t *names = &m->input_names;
        TR_TRY(tr_alloc((size_t)m->inputs * sizeof *names->name, "column names", &names->name));
        /* A header written as a comment starts with # before its first name. */
        for (int i = 0; i < count; i++)
            if (i != label)
                TR_TRY(tr_strdup(field[i] + (i ? 0 : strspn(field[i], "# ")),
                                 &names->name[names->count++]));
        if (label >= 0) TR_TRY(tr_strdup(field[label], &m->label_name));
    }
    if (label >= 0)
        TR_INFO("the label is column %d of %d%s%s%s%s", label + 1, count, m->header ? ", '" : "",
                m->header ? m->label_name : "", m->header ? "'" : "",
                chosen ? "" : "; --label chooses another one, --label none means no labels");
    TR_TRY(tr_moments_begin(&m->moments, m->inputs));
    TR_TRY(tr_alloc((size_t)count * sizeof *m->value, "a row", &m->value));
    TR_TRY(tr_alloc((size_t)count * sizeof *m->stats, "columns", &m->stats));
    return tr_alloc((size_t)count * sizeof *m->row, "a row", &m->row);
}

/* -- rows -------------------------------------------------------------------------------------- */

static tr_status_t csv_fail_cell(const import_t *m, const char *text, int column) {
    char found[64] = "the cell is empty", remedy[128];
    if (*text) snprintf(found, sizeof found, "found '%.*s'", (int)tr_utf8_bytes(text, 40), text);
    tr_csv_remedy(&m->table, text, remedy, sizeof remedy);
    return TR_FAIL(TR_ERR_DATA,
                   "'%s', line %lld, column %d: %s; expected a number in the range of a 32-bit "
                   "float; %s, or remove the row or the column.",
                   m->table.path, (long long)tr_csv_line(m->table.csv), column, found, remedy);
}

/* Sets the row's inputs. */
static tr_status_t csv_parse_row(import_t *m, char *const *field, int count) {
    m->seen++;
    if (count != m->columns)
        return TR_FAIL(TR_ERR_DATA, "'%s', line %lld: %d column%s, but the first row has %d%s.",
                       m->table.path, (long long)tr_csv_line(m->table.csv), count,
                       count == 1 ? "" : "s", m->columns,
                       m->hash ? " and begins with '#': remove it, if it is a comment" : "");
    for (int i = 0, at = 0; i < count; i++) {
        double *value = &m->value[i];
        if (i == m->labels.column) continue;
        if (!tr_csv_number(&m->table, field[i], value) || !isfinite((float)*value))
            return csv_fail_cell(m, field[i], i + 1);
        m->row[at++] = (float)*value;
    }
    return TR_OK;
}

/* The first pass, from the first row on: counts rows, and learns what the labels are. */
static tr_status_t csv_count_rows(import_t *m, char **field) {
    int count = m->columns;
    const int label = m->labels.column;
    if (m->header) TR_TRY(tr_csv_row(m->table.csv, &field, &count));
    while (count) {
        TR_TRY(csv_parse_row(m, field, count));
        if (label >= 0)
            TR_TRY(tr_csv_labels_add(&m->labels, &m->table, field[label], &m->value[label]));
        tr_stats_add(m->stats, m->columns, m->value, 1);
        if (m->seen % IMPORT_ROWS == 0) TR_TRY(tr_import_progress(m->params, m->seen, 0));
        TR_TRY(tr_csv_row(m->table.csv, &field, &count));
    }
    if (!m->seen) return TR_FAIL(TR_ERR_DATA, "'%s' has a header, but no rows.", m->table.path);
    TR_TRY(tr_csv_labels_end(&m->labels, &m->table));
    return tr_csv_groups_begin(&m->groups, &m->table, m->params, &m->labels, m->seen);
}

/* The number of the row's label, a class or a target. */
static tr_status_t csv_read_label(const import_t *m, const char *text, double *out) {
    const csv_labels_t *l = &m->labels;
    if (l->numbers)
        tr_csv_number(&m->table, text, out);
    else
        *out = (double)tr_csv_labels_class(l, text);
    if (l->numbers && !isfinite((float)*out)) return csv_fail_cell(m, text, l->column + 1);
    if (l->class_rows && !(*out >= 0 && *out < (double)l->classes))
        return TR_FAIL(TR_ERR_DATA, "'%s' changed during the import.", m->table.path);
    return TR_OK;
}

/* The second pass. */
static tr_status_t csv_write_rows(import_t *m) {
    const csv_labels_t *l = &m->labels;
    const bool is_float = l->numbers && !l->whole;
    const tr_shape_t inputs = TR_SHAPE(m->inputs), scalar = {0};
    int x[CSV_GROUPS] = {0}, y[CSV_GROUPS] = {0}, count;
    const int64_t *rows = m->groups.rows, all = m->seen;
    char **field, name[16];
    for (int g = 0; g < CSV_GROUPS; g++) {
        if (rows[g] == 0) continue;
        snprintf(name, sizeof name, "%s/x", tr_split_name((tr_split_t)g));
        TR_TRY(tr_writer_array(m->writer, name, TR_F32, rows[g], &inputs, &x[g]));
        snprintf(name, sizeof name, "%s/y", tr_split_name((tr_split_t)g));
        if (l->column >= 0)
            TR_TRY(tr_writer_array(m->writer, name, is_float ? TR_F32 : TR_I32, rows[g], &scalar,
                                   &y[g]));
    }
    TR_TRY(csv_import_open(m));
    TR_TRY(tr_csv_row(m->table.csv, &field, &count));
    if (m->header) TR_TRY(tr_csv_row(m->table.csv, &field, &count));
    while (count) {
        double value = 0;
        TR_TRY(csv_parse_row(m, field, count));
        if (l->column >= 0) TR_TRY(csv_read_label(m, field[l->column], &value));
        const int group =
            tr_csv_groups_draw(&m->groups, m->seen, l->class_rows ? (int64_t)value : 0);
        if (group == CSV_TRAIN) tr_moments_add(&m->moments, TR_F32, m->row, m->moments.channels);
        TR_TRY(tr_writer_append(m->writer, x[group], 1, m->row));
        if (m->seen % IMPORT_ROWS == 0) TR_TRY(tr_import_progress(m->params, m->seen, all));
        if (l->column >= 0)
            TR_TRY(is_float ? tr_writer_append(m->writer, y[group], 1, &(float){(float)value})
                            : tr_writer_append(m->writer, y[group], 1, &(int32_t){(int32_t)value}));
        TR_TRY(tr_csv_row(m->table.csv, &field, &count));
    }
    return TR_OK;
}

static tr_status_t csv_write_attributes(import_t *m) {
    const csv_labels_t *l = &m->labels;
    const tr_names_t *inputs = &m->input_names;
    TR_TRY(tr_moments_write(&m->moments, m->writer));
    if (l->numbers && l->odd == 0) /* 0: integers that are not classes */
        TR_TRY(tr_writer_numbers(m->writer, "/", "classes", 1,
                                 &(double){l->whole ? l->largest + 1 : 0}));
    if (l->names.count && !l->numbers)
        TR_TRY(tr_writer_texts(m->writer, "/", "class_names", (int64_t)l->names.count,
                               (const char *const *)l->names.data));
    if (inputs->count > MAX_COLUMNS)
        TR_INFO("column names are not stored: there are more than %d", MAX_COLUMNS);
    else if (inputs->count)
        TR_TRY(tr_writer_texts(m->writer, "/", tr_names_key(TR_NAMES_INPUTS), inputs->count,
                               (const char *const *)inputs->name));
    if (m->label_name)
        TR_TRY(tr_writer_texts(m->writer, "/", "label", 1, (const char *const *)&m->label_name));
    return tr_import_progress(m->params, m->seen, m->seen);
}

/* -- what became of it ------------------------------------------------------------------------- */

/* How many rows are in which group. */
static void csv_report_groups(const import_t *m) {
    const int64_t *rows = m->groups.rows;
    tr_str_t text = {0};
    if (rows[CSV_VALID] + rows[CSV_TEST] == 0) return;
    for (int g = 0; g < CSV_GROUPS; g++)
        if (rows[g] > 0)
            tr_str_printf(&text, g == 0 ? "%lld rows are in the group %s" : ", %lld in %s",
                          (long long)rows[g], tr_split_name((tr_split_t)g));
    if (text.text)
        TR_INFO("%s%s", text.text,
                m->groups.strata > 1 ? "; each has the classes in proportion" : "");
    tr_str_free(&text);
}

/* Warns of columns that are rounded, and says what was taken for classes, what for numbers, and how
 * to have the other. */
static void csv_report(const import_t *m) {
    const csv_labels_t *l = &m->labels;
    const int label = l->column;
    int rounded = 0;
    for (int i = 0; i < m->columns; i++) {
        const char *name = "";
        char range[128];
        if (i == label && (!l->numbers || l->whole)) continue;
        if (!tr_stats_is_rounded(&m->stats[i]) || ++rounded > SAID) continue;
        if (m->header)
            name = i == label ? m->label_name : m->input_names.name[i - (label >= 0 && i > label)];
        TR_WARN("'%s', column %d%s%s%s: its values are %s: subtract a number close to them, the "
                "same in all tables, or remove the column if it only identifies rows",
                m->table.path, i + 1, m->header ? ", '" : "", name, m->header ? "'" : "",
                tr_stats_format_rounding(&m->stats[i], range));
    }
    if (rounded > SAID)
        TR_WARN("'%s': the same applies to %d more columns", m->table.path, rounded - SAID);

    if (l->numbers && tr_nearly_labels(m->seen - l->odd, l->odd, (int64_t)l->largest + 1))
        TR_WARN("'%s': %lld of its %lld labels (column %d) are integers from 0, but the label in "
                "line %lld is %.9g: all are read as regression targets. If they are classes, "
                "correct this label and import the table again",
                m->table.path, (long long)(m->seen - l->odd), (long long)m->seen, l->column + 1,
                (long long)l->odd_line, l->odd_value);
    if (l->column < 0) return;
    if (!l->numbers)
        tr_import_say_classes(m->params, (int64_t)l->names.count,
                              (const char *const *)l->names.data);
    else if (!l->whole)
        tr_import_say_numbers(m->params, 1, &l->stats);
    else
        tr_import_say_classes(m->params, (int64_t)l->largest + 1, NULL);
    if (!m->params->y || !l->numbers || m->params->regression) return;
    if (l->whole && l->largest >= MANY)
        tr_str_append(m->params->y, "; if they are numbers to predict, import with --regression");
    else if (!l->whole && l->odd == 0)
        tr_str_printf(m->params->y, "; if they are classes, train with data.classes=%.0f",
                      l->largest + 1);
}

static tr_status_t csv_import(const char *in, const char *out, const tr_import_params_t *params) {
    import_t m = {.params = params,
                  .table = {.path = in,
                            .delimiter = params->delimiter ? params->delimiter : ',',
                            .decimal = params->decimal ? params->decimal : '.'}};
    char **field;
    tr_status_t status;
    TR_TRY(tr_import_check_place(in, out));
    TR_TRY_GOTO(csv_read_columns(&m, &field), done);
    TR_TRY_GOTO(csv_count_rows(&m, field), done);
    TR_TRY_GOTO(tr_writer_create(out, &params->writer, &m.writer), done);
    TR_TRY_GOTO(csv_write_rows(&m), done);
    TR_TRY_GOTO(csv_write_attributes(&m), done);
    TR_TRY_GOTO(tr_writer_commit(m.writer), done);
    csv_report_groups(&m);
    csv_report(&m);
done:
    tr_writer_destroy(&m.writer);
    tr_csv_close(&m.table.csv);
    tr_csv_labels_free(&m.labels);
    tr_csv_groups_free(&m.groups);
    tr_names_free(&m.input_names);
    tr_moments_free(&m.moments);
    tr_free(&m.label_name);
    tr_free(&m.row);
    tr_free(&m.value);
    tr_free(&m.stats);
    return status;
}

const tr_importer_t tr_importer_csv = {
    "csv",
    "IN.csv OUT.h5 [--label NAME|COLUMN|none] [--regression] [--delimiter CHARACTER|tab] "
    "[--decimal .|,] "
    "[--test-fraction PART] [--valid-fraction PART] [--seed N]",
    "Converts a table of numbers, with or without a header. --label gives the name or the number "
    "(from 1) of "
    "the label's column; --label none is for rows to predict. Labels are texts or whole numbers "
    "(classes), or "
    "other numbers (regression). Whole numbers are also regression targets if more than 20 "
    "different "
    "ones occur, and more than a tenth of the number of rows; --regression makes all numbers "
    "regression targets. Use --delimiter ';' --decimal ',' "
    "for columns "
    "separated by semicolons (tab: tabs) and numbers written as 1,5. --test-fraction 0.1 puts a "
    "tenth of the rows into the group test. With it, --valid-fraction (0.1; 0: none) of the rows "
    "are in the group valid, which selects the best checkpoint. Training finds both groups. The "
    "rows are drawn with --seed (0), of each class the same part. By default all rows are in the "
    "group train.",
    .run = csv_import};
