/* CSV import. Columns are inputs, the label or targets, an id, or left out. The first pass counts
 * rows and determines the kinds of labels and columns; the second, which only tables with texts or
 * missing cells need, learns from the rows for training; the last one writes, and computes mean and
 * standard deviation of the rows for training. */
#include "csv_int.h"
#include "trainer/log.h"
#include "base/str.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLUMNS 4000 /* limit of columns whose names fit in an attribute */
#define MANY        20   /* classes: more may be regression targets */
#define SAID        3    /* columns that are rounded */

typedef struct {
    const tr_import_params_t *params;
    tr_csv_table_t table;
    bool header, hash; /* hash: the first row starts with # */
    int count;         /* columns of the table */
    tr_names_t names;  /* of all columns; their numbers without a header */
    csv_columns_t columns;
    csv_labels_t labels;
    char *role;         /* [count] 'i' input, 'l' label, 't' target, 'n' id, 'd' left out */
    TR_VEC(int) target; /* columns of --target; none with a label */
    int id;             /* column; -1: none */
    csv_groups_t groups;
    TR_VEC(char *) ids[CSV_GROUPS];
    int64_t seen;       /* rows so far */
    int64_t again_line; /* with the label of the header; 0: none */
    int64_t width;      /* inputs of a sample */
    tr_moments_t moments;
    tr_writer_t *writer;
    tr_stats_t *stats;         /* [count], of the numbers of all rows, before rounding */
    tr_column_faults_t *fault; /* [inputs]: categories that the rows for training lack */
    float *row;                /* [width] */
    float *targets;            /* [target.count] */
} import_t;

/* -- the first row ----------------------------------------------------------------------------- */

/* Finds one column by its name or number. */
static tr_status_t csv_find_column(const import_t *m, char *const *field, const char *option,
                                   const char *name, int *out) {
    int64_t index;
    *out = m->header ? tr_csv_find_name(field, m->count, name) : -1;
    if (*out >= 0) return TR_OK;
    if (tr_parse_int(name, &index) && index != 0 && index >= -m->count && index <= m->count) {
        *out = (int)(index < 0 ? index + m->count : index - 1);
        return TR_OK;
    }
    tr_str_t text = {0};
    for (int i = 0; i < m->count && i < 30; i++)
        tr_str_printf(&text, "%s%s", i ? ", " : "", field[i]);
    TR_FAIL(TR_ERR_CONFIG,
            "%s: '%s' has no column '%s' (columns count from 1, from the end -1); its first row "
            "is: %s.%s%s",
            option, m->table.path, name, text.text ? text.text : "",
            strcmp(option, "--label") == 0 ? " If there are no labels: --label none." : "",
            m->header ? "" : " It was read as data: --header yes reads it as names.");
    tr_str_free(&text);
    return TR_ERR_CONFIG;
}

/* Calls `take` with each column of a list such as "age,7". */
static tr_status_t csv_each_column(import_t *m, char *const *field, const char *option,
                                   const char *list,
                                   tr_status_t (*take)(import_t *m, const char *option, int at)) {
    for (const char *begin = list; begin;) {
        const char *end = strchr(begin, ',');
        char name[256];
        int at;
        snprintf(name, sizeof name, "%.*s", end ? (int)(end - begin) : (int)strlen(begin), begin);
        TR_TRY(csv_find_column(m, field, option, name, &at));
        TR_TRY(take(m, option, at));
        begin = end ? end + 1 : NULL;
    }
    return TR_OK;
}

/* A column has one role: 'i' for inputs. */
static tr_status_t csv_take_role(import_t *m, const char *option, int at, char role) {
    if (m->role[at] == 'i') {
        m->role[at] = role;
        return TR_OK;
    }
    return TR_FAIL(TR_ERR_USAGE,
                   "%s: column %d ('%s') is named by two of --label, --target, --id and --drop: "
                   "name it in one.",
                   option, at + 1, m->names.name[at]);
}

static tr_status_t csv_take_dropped(import_t *m, const char *option, int at) {
    return csv_take_role(m, option, at, 'd');
}

static tr_status_t csv_take_id(import_t *m, const char *option, int at) {
    if (m->id >= 0)
        return TR_FAIL(TR_ERR_USAGE, "--id: expected one column, found '%s'.", m->params->id);
    m->id = at;
    return csv_take_role(m, option, at, 'n');
}

static tr_status_t csv_take_target(import_t *m, const char *option, int at) {
    TR_TRY(tr_vec_push(&m->target, at));
    return csv_take_role(m, option, at, 't');
}

static tr_status_t csv_take_category(import_t *m, const char *option, int at) {
    csv_column_t *c = &m->columns.of[at];
    const tr_column_kind_t kind =
        strcmp(option, "--ordinal") == 0 ? TR_COLUMN_ORDINAL : TR_COLUMN_ONE_HOT;
    if (m->role[at] != 'i' || (c->is_chosen && c->kind != kind))
        return TR_FAIL(TR_ERR_USAGE, "%s: column %d ('%s') is %s.", option, at + 1,
                       m->names.name[at],
                       m->role[at] != 'i' ? "not an input" : "also in --ordinal");
    c->kind = kind;
    c->is_chosen = true;
    return TR_OK;
}

/* Gives every column its role. */
static tr_status_t csv_choose_roles(import_t *m, char *const *field) {
    const tr_import_params_t *p = m->params;
    const bool has_label = !(p->label && strcmp(p->label, "none") == 0) && !p->target;
    int label = -1;
    if (p->target && (p->label || p->regression))
        return TR_FAIL(TR_ERR_USAGE, "--target names regression targets: it replaces --label and "
                                     "--regression.");
    TR_TRY(tr_alloc((size_t)m->count, "columns", &m->role));
    memset(m->role, 'i', (size_t)m->count);
    TR_TRY(csv_each_column(m, field, "--drop", p->drop, csv_take_dropped));
    TR_TRY(csv_each_column(m, field, "--id", p->id, csv_take_id));
    TR_TRY(csv_each_column(m, field, "--target", p->target, csv_take_target));
    if (has_label && p->label)
        TR_TRY(csv_find_column(m, field, "--label", p->label, &label));
    else if (has_label && m->header) /* a column with a usual name */
        label = tr_csv_find_label(field, m->count, m->role);
    for (int i = m->count - 1; i >= 0 && has_label && label < 0; i--)
        if (m->role[i] == 'i' && *m->names.name[i]) label = i; /* the last input with a name */
    if (label >= 0) TR_TRY(csv_take_role(m, "--label", label, 'l'));
    if (m->target.count == 1) label = m->target.data[0];
    if (m->target.count == 1) m->target.count = 0;
    tr_csv_labels_begin(&m->labels, label, label >= 0 && (p->regression || p->target));
    m->labels.is_chosen = has_label && p->label;
    TR_TRY(csv_each_column(m, field, "--ordinal", p->ordinal, csv_take_category));
    TR_TRY(csv_each_column(m, field, "--one-hot", p->one_hot, csv_take_category));
    if (label >= 0)
        TR_INFO("the label is column %d of %d%s%s%s%s", label + 1, m->count, m->header ? ", '" : "",
                m->header ? m->names.name[label] : "", m->header ? "'" : "",
                p->label || p->target
                    ? ""
                    : "; --label chooses another one, --label none means no labels");
    return TR_OK;
}

/* What the roles mean for the inputs, as it is written. */
static tr_status_t csv_choose_inputs(import_t *m) {
    csv_columns_t *columns = &m->columns;
    tr_columns_t *spec = &columns->spec;
    const int label = m->labels.column;
    const size_t targets = m->target.count + (label >= 0);
    int inputs = 0;
    spec->delimiter = m->table.delimiter;
    spec->decimal = m->table.decimal;
    spec->refuses_unknown = m->params->refuses_unknown;
    if (m->id >= 0) TR_TRY(tr_strdup(m->names.name[m->id], &spec->id));
    TR_TRY(tr_alloc(targets * sizeof *spec->targets.name, "targets", &spec->targets.name));
    for (size_t i = 0; i < targets; i++) {
        const int at = m->target.count ? m->target.data[i] : label;
        TR_TRY(tr_strdup(m->names.name[at], &spec->targets.name[i]));
        spec->targets.count++;
    }
    TR_TRY(tr_alloc((size_t)m->count * sizeof *columns->index, "columns", &columns->index));
    for (int i = 0; i < m->count; i++) {
        if (m->role[i] != 'i') continue;
        columns->index[inputs] = i;
        TR_TRY(tr_vec_push(&spec->input, (tr_column_t){0}));
        TR_TRY(tr_strdup(m->names.name[i], &spec->input.data[inputs++].name));
    }
    if (inputs > 0) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "'%s': expected inputs, found %d column%s without one: all are the label, "
                   "targets, an id or left out.",
                   m->table.path, m->count, m->count == 1 ? "" : "s");
}

/* Warns of a first row whose last fields, at least three, count: 0, 1, 2, ..., as
 * pandas names columns without names, or 2019, 2020, ..., years. */
static void csv_warn_counts(const import_t *m, char *const *field) {
    double first = 0, value;
    int texts = 0;
    while (texts < m->count && !tr_csv_number(&m->table, field[texts], &first)) texts++;
    if (m->count - texts < 3 || (first != 0 && first < 1000)) return;
    for (int i = texts; i < m->count; i++)
        if (!tr_csv_number(&m->table, field[i], &value) || value != first + (i - texts)) return;
    TR_WARN("'%s', line %lld: the first row counts (%s, %s, %s, ...) and is read as data: if these "
            "are the names of the columns, import with --header yes",
            m->table.path, (long long)tr_csv_line(m->table.csv), field[texts], field[texts + 1],
            field[texts + 2]);
}

/* Reads the first row, *out_field, and from it what the columns are. */
static tr_status_t csv_read_columns(import_t *m, char ***out_field) {
    const char *chosen = m->params->label;
    int count;
    TR_TRY(tr_csv_table_open(&m->table, out_field, &count));
    char *const *field = *out_field;
    m->count = count;
    m->hash = field[0][0] == '#';
    TR_TRY(tr_csv_header_find(&m->table, m->params, field, count, &m->header));
    if (!m->header && m->params->header == TR_HEADER_AUTO) csv_warn_counts(m, field);
    if (count == 1 && !(chosen && !strcmp(chosen, "none")))
        return TR_FAIL(
            TR_ERR_DATA,
            "'%s', line %lld: expected inputs and a label, found one column%s; " TR_CSV_FORMAT_HINT
            ", --label none imports a table without labels.",
            m->table.path, (long long)tr_csv_line(m->table.csv),
            m->hash ? " that begins with '#' (remove a comment)" : "");
    TR_TRY(tr_alloc((size_t)count * sizeof *m->names.name, "column names", &m->names.name));
    for (int i = 0; i < count; i++) {
        char number[16];
        /* A header written as a comment starts with # before its first name. */
        const char *name = field[i] + (i ? 0 : strspn(field[i], "# "));
        tr_snprintf(number, sizeof number, "%d", i + 1);
        TR_TRY(tr_strdup(m->header ? name : number, &m->names.name[i]));
        m->names.count++;
    }
    TR_TRY(tr_alloc((size_t)count * sizeof *m->stats, "columns", &m->stats));
    TR_TRY(tr_alloc((size_t)count * sizeof *m->columns.of, "columns", &m->columns.of));
    m->columns.spec.has_header = m->header;
    return csv_choose_roles(m, field);
}

/* After the first pass: leaves out columns that only number the rows, and those without anything. */
static void csv_leave_out(import_t *m) {
    tr_str_t index = {0}, empty = {0};
    int inputs = 0, found = 0;
    for (int i = 0; i < m->count; i++) inputs += m->role[i] == 'i';
    for (int i = 0; i < m->count; i++) {
        if (m->role[i] != 'i') continue;
        const csv_index_t kind = tr_csv_columns_index(&m->columns, i, m->seen);
        tr_str_t *said = kind == CSV_INDEX ? &index : &empty;
        const char *name = m->names.name[i];
        if (kind == CSV_COUNTS && m->header && inputs > 1 && m->seen >= 10)
            TR_WARN("'%s', column %d ('%s') counts the rows and is an input: if it only numbers "
                    "them, leave it out with --drop %s, or keep it beside the data with --id %s",
                    m->table.path, i + 1, name, name, name);
        if (kind != CSV_INDEX && kind != CSV_EMPTY) continue;
        m->role[i] = 'd';
        if (++found <= SAID)
            tr_str_printf(said, said->text ? ", %d" : "%d", i + 1);
        else if (found == SAID + 1)
            tr_str_append(said, ", ...");
        if (kind == CSV_INDEX && *name) tr_str_printf(said, " ('%s')", name);
    }
    if (index.text)
        TR_INFO("left out, because it only numbers the rows: column %s; with another name in the "
                "header it becomes an input",
                index.text);
    if (empty.text) TR_INFO("left out, without a name and values: column %s", empty.text);
    tr_str_free(&index);
    tr_str_free(&empty);
}

static int csv_order_names(const void *a, const void *b) {
    char *const *left = *(char *const *const *)a, *const *right = *(char *const *const *)b;
    const int order = strcmp(*left, *right);
    return order ? order : (left > right) - (left < right);
}

/* Other tables are read by the names of the columns. */
static tr_status_t csv_check_names(const import_t *m) {
    char *const **sorted = NULL;
    tr_status_t status = TR_OK;
    if (!m->header) return TR_OK;
    TR_TRY(tr_alloc((size_t)m->count * sizeof *sorted, "column names", &sorted));
    for (int i = 0; i < m->count; i++) sorted[i] = &m->names.name[i];
    qsort(sorted, (size_t)m->count, sizeof *sorted, csv_order_names);
    for (int i = 1; i < m->count && status == TR_OK; i++) {
        const int a = (int)(sorted[i - 1] - m->names.name), b = (int)(sorted[i] - m->names.name);
        if (strcmp(*sorted[i - 1], *sorted[i]) == 0 && (m->role[a] != 'd' || m->role[b] != 'd'))
            status = TR_FAIL(
                TR_ERR_DATA,
                "'%s': columns %d and %d have the same name, '%s': rename or remove one of them, "
                "because columns are found by their names. If the first row has no names: --header "
                "no.",
                m->table.path, a + 1, b + 1, *sorted[i]);
    }
    tr_free(&sorted);
    return status;
}

/* -- rows -------------------------------------------------------------------------------------- */

/* Opens the table again, at the first row of values. */
static tr_status_t csv_rewind(import_t *m, char ***out_field, int *out_count) {
    m->seen = 0;
    TR_TRY(tr_csv_table_open(&m->table, out_field, out_count));
    return m->header ? tr_csv_row(m->table.csv, out_field, out_count) : TR_OK;
}

static tr_status_t csv_check_count(import_t *m, char *const *field, int count) {
    char remedy[160] = "";
    if (m->seen++, count == m->count) return TR_OK;
    if (m->hash)
        snprintf(remedy, sizeof remedy, " and begins with '#': remove it, if it is a comment");
    else if (count == m->count + 1 && !*field[m->count])
        snprintf(remedy, sizeof remedy, ": remove the '%c' at the ends of lines (sed 's/%c$//')",
                 m->table.delimiter, m->table.delimiter);
    else if (count == m->count + 1 && m->seen == 1)
        snprintf(remedy, sizeof remedy,
                 ": if column 1 has the names of the rows, name it, too (sed '1s/^/row%c/')",
                 m->table.delimiter);
    return TR_FAIL(TR_ERR_DATA, "'%s', line %lld: %d column%s, but the first row has %d%s.",
                   m->table.path, (long long)tr_csv_line(m->table.csv), count,
                   count == 1 ? "" : "s", m->count, remedy);
}

/* A first row without numbers, like all others, whose label recurs need not be a header. */
static tr_status_t csv_check_header(const import_t *m) {
    if (!m->again_line || m->params->header != TR_HEADER_AUTO) return TR_OK;
    for (int i = 0; i < m->count; i++)
        if (m->columns.of[i].numbers > 0) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "'%s': the first row has no numbers and was taken for the names of the columns, "
                   "but line %lld has its label, '%s', too, and the table no numbers. --header no "
                   "reads the first row as data, --header yes as names.",
                   m->table.path, (long long)m->again_line, m->names.name[m->labels.column]);
}

/* Adds a row to what is known of labels and columns. */
static tr_status_t csv_count_row(import_t *m, char *const *field) {
    const int label = m->labels.column;
    if (m->header && label >= 0 && !m->again_line && !strcmp(field[label], m->names.name[label]))
        m->again_line = tr_csv_line(m->table.csv);
    for (int i = 0; i < m->count; i++) {
        double value = 0;
        if (!strchr("ilt", m->role[i])) continue;
        TR_TRY(tr_csv_columns_add(&m->columns, i, field[i]));
        if (i == label) {
            if (tr_csv_is_missing(field[i], false)) continue;
            TR_TRY(tr_csv_labels_add(&m->labels, &m->table, field[i], &value));
        } else if (!tr_csv_number(&m->table, field[i], &value)) {
            continue;
        }
        tr_stats_add(&m->stats[i], 1, &value, 1);
    }
    return TR_OK;
}

/* The first pass, from the first row on: counts rows, and learns what labels and columns are. */
static tr_status_t csv_count_rows(import_t *m, char **field) {
    const int label = m->labels.column;
    const bool are_numbers = m->target.count > 0 || m->labels.regression;
    int count = m->count;
    if (m->header) TR_TRY(tr_csv_row(m->table.csv, &field, &count));
    while (count) {
        TR_TRY(csv_check_count(m, field, count));
        TR_TRY(csv_count_row(m, field));
        if (m->seen % IMPORT_ROWS == 0) TR_TRY(tr_import_progress(m->params, m->seen, 0));
        TR_TRY(tr_csv_row(m->table.csv, &field, &count));
    }
    if (!m->seen) return TR_FAIL(TR_ERR_DATA, "'%s' has a header, but no rows.", m->table.path);
    TR_TRY(csv_check_header(m));
    csv_leave_out(m);
    TR_TRY(csv_check_names(m));
    TR_TRY(csv_choose_inputs(m));
    TR_TRY(tr_csv_columns_check_labels(&m->columns, m->target.count > 0 ? m->target.data : &label,
                                       m->target.count > 0 ? m->target.count : (size_t)(label >= 0),
                                       are_numbers, m->seen));
    TR_TRY(tr_csv_columns_decide(&m->columns, m->seen));
    return tr_csv_labels_end(&m->labels, &m->table);
}

/* The number of the row's label, a class or a target. */
static tr_status_t csv_read_label(const import_t *m, const char *text, double *out) {
    const csv_labels_t *l = &m->labels;
    if (l->numbers)
        tr_csv_number(&m->table, text, out);
    else
        *out = (double)tr_csv_labels_class(l, &m->table, text);
    if (l->numbers && !isfinite((float)*out))
        return tr_columns_fail_cell(&m->table, text, l->column,
                                    m->header ? m->names.name[l->column] : NULL);
    if (l->class_rows && !(*out >= 0 && *out < (double)l->classes))
        return TR_FAIL(TR_ERR_DATA, "'%s' changed during the import.", m->table.path);
    return TR_OK;
}

/* Reads the label of a row, and draws its group. */
static tr_status_t csv_place_row(import_t *m, char *const *field, int count, double *out_label,
                                 int *out_group) {
    *out_label = 0;
    TR_TRY(csv_check_count(m, field, count));
    if (m->labels.column >= 0) TR_TRY(csv_read_label(m, field[m->labels.column], out_label));
    *out_group =
        tr_csv_groups_draw(&m->groups, m->seen, m->labels.class_rows ? (int64_t)*out_label : 0);
    return TR_OK;
}

/* Divides the rows into groups; the second pass, if there is something to learn. */
static tr_status_t csv_learn(import_t *m) {
    const int64_t rows = m->seen;
    char **field;
    int count = 0, group;
    TR_TRY(tr_csv_groups_begin(&m->groups, &m->table, m->params, &m->labels, rows));
    if (tr_csv_columns_must_learn(&m->columns)) {
        TR_TRY(csv_rewind(m, &field, &count));
        while (count) {
            double label;
            TR_TRY(csv_place_row(m, field, count, &label, &group));
            if (group == CSV_TRAIN) TR_TRY(tr_csv_columns_learn(&m->columns, field));
            if (m->seen % IMPORT_ROWS == 0) TR_TRY(tr_import_progress(m->params, m->seen, rows));
            TR_TRY(tr_csv_row(m->table.csv, &field, &count));
        }
        TR_TRY(tr_csv_columns_end(&m->columns));
        tr_csv_groups_free(&m->groups);
        TR_TRY(tr_csv_groups_begin(&m->groups, &m->table, m->params, &m->labels, rows));
    }
    m->seen = rows;
    for (size_t i = 0; i < m->columns.spec.input.count; i++)
        m->width += tr_column_width(&m->columns.spec.input.data[i]);
    TR_TRY(tr_moments_begin(&m->moments, m->width));
    TR_TRY(tr_alloc(m->target.count * sizeof *m->targets, "targets", &m->targets));
    TR_TRY(tr_alloc(m->columns.spec.input.count * sizeof *m->fault, "columns", &m->fault));
    return tr_alloc((size_t)m->width * sizeof *m->row, "a row", &m->row);
}

static tr_status_t csv_write_row(import_t *m, char *const *field, int count, const int *x,
                                 const int *y) {
    const csv_labels_t *l = &m->labels;
    double label;
    int group;
    TR_TRY(csv_place_row(m, field, count, &label, &group));
    TR_TRY(
        tr_columns_encode(&m->columns.spec, &m->table, field, m->columns.index, m->fault, m->row));
    if (group == CSV_TRAIN) tr_moments_add(&m->moments, TR_F32, m->row, m->moments.channels);
    TR_TRY(tr_csv_groups_note(&m->groups, group, m->row, m->width));
    TR_TRY(tr_writer_append(m->writer, x[group], 1, m->row));
    for (size_t i = 0; i < m->target.count; i++) {
        const char *text = field[m->target.data[i]];
        double value;
        if (!tr_csv_number(&m->table, text, &value) || !isfinite((float)value))
            return tr_columns_fail_cell(&m->table, text, m->target.data[i],
                                        m->header ? m->names.name[m->target.data[i]] : NULL);
        m->targets[i] = (float)value;
    }
    if (m->target.count > 0) TR_TRY(tr_writer_append(m->writer, y[group], 1, m->targets));
    if (l->column >= 0)
        TR_TRY(l->numbers && !l->whole
                   ? tr_writer_append(m->writer, y[group], 1, &(float){(float)label})
                   : tr_writer_append(m->writer, y[group], 1, &(int32_t){(int32_t)label}));
    if (m->id < 0) return TR_OK;
    char *id = NULL;
    TR_TRY(tr_strdup(field[m->id], &id));
    return tr_vec_push(&m->ids[group], id);
}

/* With --unknown error, other rows have no categories that the rows for training lack. */
static tr_status_t csv_check_cells(const import_t *m) {
    tr_str_t text = {0};
    tr_columns_say_faults(&m->columns.spec, m->columns.index, m->fault, &text);
    const tr_status_t status =
        text.text ? TR_FAIL(TR_ERR_DATA, "'%s':%s", m->table.path, text.text) : TR_OK;
    tr_str_free(&text);
    return status;
}

/* The last pass. */
static tr_status_t csv_write_rows(import_t *m) {
    const csv_labels_t *l = &m->labels;
    const bool is_float = m->target.count > 0 || (l->numbers && !l->whole);
    const tr_shape_t inputs = TR_SHAPE(m->width), y_shape = m->target.count > 0
                                                                ? TR_SHAPE((int64_t)m->target.count)
                                                                : (tr_shape_t){0};
    int x[CSV_GROUPS] = {0}, y[CSV_GROUPS] = {0}, count;
    const int64_t *rows = m->groups.rows, all = m->seen;
    char **field, name[16];
    for (int g = 0; g < CSV_GROUPS; g++) {
        if (rows[g] == 0) continue;
        snprintf(name, sizeof name, "%s/x", tr_split_name((tr_split_t)g));
        TR_TRY(tr_writer_array(m->writer, name, TR_F32, rows[g], &inputs, &x[g]));
        snprintf(name, sizeof name, "%s/y", tr_split_name((tr_split_t)g));
        if (l->column >= 0 || m->target.count > 0)
            TR_TRY(tr_writer_array(m->writer, name, is_float ? TR_F32 : TR_I32, rows[g], &y_shape,
                                   &y[g]));
    }
    TR_TRY(csv_rewind(m, &field, &count));
    while (count) {
        TR_TRY(csv_write_row(m, field, count, x, y));
        if (m->seen % IMPORT_ROWS == 0) TR_TRY(tr_import_progress(m->params, m->seen, all));
        TR_TRY(tr_csv_row(m->table.csv, &field, &count));
    }
    TR_TRY(csv_check_cells(m));
    for (int g = 0; g < CSV_GROUPS; g++) {
        snprintf(name, sizeof name, "%s/id", tr_split_name((tr_split_t)g));
        if (m->ids[g].count > 0)
            TR_TRY(tr_writer_strings(m->writer, name, (int64_t)m->ids[g].count,
                                     (const char *const *)m->ids[g].data));
    }
    return TR_OK;
}

/* One-hot columns and indicators are not normalised: a rare category would become huge. */
static tr_status_t csv_write_moments(import_t *m) {
    int64_t at = 0;
    for (size_t i = 0; i < m->columns.spec.input.count && m->moments.channels > 0; i++) {
        const tr_column_t *c = &m->columns.spec.input.data[i];
        const int64_t width = tr_column_width(c);
        for (int64_t k = 0; k < width; k++)
            if (c->kind == TR_COLUMN_ONE_HOT || (c->indicator && k == width - 1))
                m->moments.of[at + k] = (tr_stats_t){0};
        at += width;
    }
    return tr_moments_write(&m->moments, m->writer);
}

static tr_status_t csv_write_attributes(import_t *m) {
    const csv_labels_t *l = &m->labels;
    tr_names_t names = {0};
    char *columns = NULL;
    tr_status_t status;
    TR_TRY_GOTO(csv_write_moments(m), done);
    if (m->target.count > 0 || (l->numbers && l->odd == 0)) /* 0: integers that are not classes */
        TR_TRY_GOTO(tr_writer_numbers(m->writer, "/", "classes", 1,
                                      &(double){l->whole ? l->largest + 1 : 0}),
                    done);
    if (l->names.count && !l->numbers && l->column >= 0)
        TR_TRY_GOTO(tr_writer_texts(m->writer, "/", "class_names", (int64_t)l->names.count,
                                    (const char *const *)l->names.data),
                    done);
    if (m->header && m->width > MAX_COLUMNS) {
        TR_INFO("column names are not stored: there are more than %d", MAX_COLUMNS);
    } else if (m->header) {
        TR_TRY_GOTO(tr_columns_names(&m->columns.spec, &names), done);
        TR_TRY_GOTO(tr_writer_texts(m->writer, "/", tr_names_key(TR_NAMES_INPUTS), names.count,
                                    (const char *const *)names.name),
                    done);
    }
    TR_TRY_GOTO(tr_columns_to_json(&m->columns.spec, &columns), done);
    TR_TRY_GOTO(tr_writer_texts(m->writer, "/", "columns", 1, (const char *const *)&columns), done);
    if (m->header && l->column >= 0)
        TR_TRY_GOTO(tr_writer_texts(m->writer, "/", "label", 1,
                                    (const char *const *)&m->names.name[l->column]),
                    done);
    status = tr_import_progress(m->params, m->seen, m->seen);
done:
    tr_names_free(&names);
    tr_free(&columns);
    return status;
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

static void csv_warn_sentinel(const import_t *m, int at) {
    const bool is_input = m->role[at] == 'i' && m->columns.of[at].kind == TR_COLUMN_NUMBER,
               is_target = m->role[at] == 't' || (at == m->labels.column && m->labels.numbers);
    const char *name = m->header ? m->names.name[at] : "";
    double value, next;
    int64_t count;
    if (!(is_input || is_target) || !tr_stats_has_sentinel(&m->stats[at], &value, &count, &next))
        return;
    TR_WARN("'%s', column %d%s%s%s: %lld of its %lld values are %.9g, and the next one is %.9g: if "
            "%.9g stands for missing values, %s",
            m->table.path, at + 1, *name ? ", '" : "", name, *name ? "'" : "", (long long)count,
            (long long)m->stats[at].count, value, next, value,
            is_input ? "write NA instead, and import with --missing mean" : "remove these rows");
}

/* Warns of columns that are rounded, and says what was taken for classes, what for numbers, and how
 * to have the other. */
static void csv_report(const import_t *m) {
    const csv_labels_t *l = &m->labels;
    const int label = l->column;
    int rounded = 0;
    for (int i = 0; i < m->count; i++) {
        const char *name = m->header ? m->names.name[i] : "";
        char range[128];
        if (m->role[i] == 'i' && m->columns.of[i].kind != TR_COLUMN_NUMBER) continue;
        if (i == label && (!l->numbers || l->whole)) continue;
        if (!tr_stats_is_rounded(&m->stats[i]) || ++rounded > SAID) continue;
        TR_WARN("'%s', column %d%s%s%s: its values are %s: subtract a number close to them, the "
                "same in all tables, or remove the column if it only identifies rows",
                m->table.path, i + 1, m->header ? ", '" : "", name, m->header ? "'" : "",
                tr_stats_format_rounding(&m->stats[i], range));
    }
    for (int i = 0; i < m->count; i++) csv_warn_sentinel(m, i);
    if (rounded > SAID)
        TR_WARN("'%s': the same applies to %d more columns", m->table.path, rounded - SAID);

    if (l->numbers && tr_nearly_labels(m->seen - l->odd, l->odd, (int64_t)l->largest + 1))
        TR_WARN("'%s': %lld of its %lld labels (column %d) are integers from 0, but the label in "
                "line %lld is %.9g: all are read as regression targets. If they are classes, "
                "correct this label and import the table again",
                m->table.path, (long long)(m->seen - l->odd), (long long)m->seen, l->column + 1,
                (long long)l->odd_line, l->odd_value);
    if (m->target.count > 0) tr_import_say_numbers(m->params, (int64_t)m->target.count, &l->stats);
    if (l->column < 0) return;
    tr_csv_labels_note(l, &m->table);
    if (!l->numbers)
        tr_import_say_classes(m->params, (int64_t)l->names.count,
                              (const char *const *)l->names.data);
    else if (!l->whole)
        tr_import_say_numbers(m->params, 1, &l->stats);
    else
        tr_import_say_classes(m->params, (int64_t)l->largest + 1, NULL);
    if (!m->params->y || !(l->numbers || l->is_signed) || l->regression) return;
    if (l->is_signed || (l->whole && l->largest >= MANY))
        tr_str_append(m->params->y, "; if they are numbers to predict, import with --regression");
    else if (!l->whole && l->odd == 0)
        tr_str_printf(m->params->y, "; if they are classes, train with data.classes=%.0f",
                      l->largest + 1);
}

static tr_status_t csv_import(const char *in, const char *out, const tr_import_params_t *params) {
    import_t m = {.params = params,
                  .id = -1,
                  .table = {.path = in,
                            .delimiter = params->delimiter ? params->delimiter : ',',
                            .decimal = params->decimal ? params->decimal : '.'}};
    char **field;
    tr_status_t status;
    TR_TRY(tr_import_check_place(in, out));
    m.columns = (csv_columns_t){.table = &m.table, .params = params, .names = &m.names};
    TR_TRY_GOTO(csv_read_columns(&m, &field), done);
    TR_TRY_GOTO(csv_count_rows(&m, field), done);
    TR_TRY_GOTO(csv_learn(&m), done);
    TR_TRY_GOTO(tr_writer_create(out, &params->writer, &m.writer), done);
    TR_TRY_GOTO(csv_write_rows(&m), done);
    TR_TRY_GOTO(csv_write_attributes(&m), done);
    TR_TRY_GOTO(tr_writer_commit(m.writer), done);
    csv_report_groups(&m);
    tr_csv_groups_warn_same(&m.groups, &m.table);
    csv_report(&m);
done:
    tr_writer_destroy(&m.writer);
    tr_csv_close(&m.table.csv);
    tr_csv_labels_free(&m.labels);
    tr_csv_groups_free(&m.groups);
    tr_columns_free_faults(&m.columns.spec, &m.fault);
    tr_csv_columns_free(&m.columns);
    for (int g = 0; g < CSV_GROUPS; g++) {
        for (size_t i = 0; i < m.ids[g].count; i++) tr_free(&m.ids[g].data[i]);
        tr_vec_free(&m.ids[g]);
    }
    tr_names_free(&m.names);
    tr_moments_free(&m.moments);
    tr_vec_free(&m.target);
    tr_free(&m.role);
    tr_free(&m.row);
    tr_free(&m.targets);
    tr_free(&m.stats);
    return status;
}

const tr_importer_t tr_importer_csv = {
    "csv",
    "IN.csv OUT.h5 [--header yes|no] [--label NAME|COLUMN|none] [--regression] [--target NAMES] "
    "[--drop NAMES] "
    "[--id NAME] [--one-hot NAMES] [--ordinal NAMES] [--unknown code|error] "
    "[--missing refuse|mean|median|zero] [--missing-indicator] [--delimiter CHARACTER|tab] "
    "[--decimal .|,] [--test-fraction PART] [--valid-fraction PART] [--seed N]",
    "Converts a table, with or without a header. The first row is a header if it has no numbers, "
    "or "
    "if its label is a text that no other row has; --header says otherwise, and is needed for "
    "names "
    "that are all numbers. A column without a name that only numbers the rows is left out. NAMES "
    "are names or numbers of columns (from 1, "
    "from the end -1), separated by commas. --label gives the label's column; --label none is for "
    "rows to predict. Labels are texts or whole numbers (classes), or other numbers (regression). "
    "Whole numbers are also regression targets if more than 20 different ones occur, and more than "
    "a tenth of the number of rows; --regression makes all numbers regression targets. --target "
    "A,B gives several regression targets instead. --drop leaves columns out. --id keeps a column "
    "as texts beside the data, and predict copies it to its output. A column of texts becomes one "
    "input of 0 and 1 per category (--one-hot does so for numbers too), or one input with the "
    "number of the category with --ordinal. A category that the training rows lack has its own "
    "code, only zeros or -1; with --unknown error it is refused. Missing cells are refused, or "
    "replaced by the mean or median of the column's training rows, or by zero, with --missing; "
    "missing texts have no category. --missing-indicator adds an input of 0 and 1 for each column "
    "with missing cells. Use --delimiter ';' --decimal ',' for columns separated by semicolons "
    "(tab: tabs) and numbers written as 1,5. --test-fraction 0.1 puts a tenth of the rows into the "
    "group test. With it, --valid-fraction (0.1; 0: none) of the rows are in the group valid, "
    "which selects the best checkpoint. Training finds both groups. The rows are drawn with --seed "
    "(0), of each class the same part. By default all rows are in the group train.",
    .run = csv_import};
