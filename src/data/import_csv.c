/*
 * Tables of numbers: one column is the label, or none is, the others are the inputs. Two passes: the first counts rows, finds out what the labels are
 * and takes the moments; the second writes.
 */
#include "import_int.h"
#include "trainer/log.h"
#include "trainer/rng.h"
#include "trainer/str.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define MAX_NAMES   4096
#define SLOTS       (4 * MAX_NAMES)
#define MAX_COLUMNS 4000 /* whose names an attribute has room for */
#define MANY        20   /* classes: more may be numbers to predict */
#define STEPS       256 /* a column whose range 32-bit floats round by more than a part of so many has lost much */
#define SAID        3 /* columns that are rounded */

typedef struct {
    double value;              /* in this row */
    double min, max, rounding; /* the most that 32-bit floats change a value by */
} column_t;

typedef struct {
    const tr_import_params_t *params;
    const char *path;
    tr_csv_t *csv;
    char delimiter, decimal;
    bool header, hash;          /* hash: the first row begins with # */
    int columns, inputs, label; /* label: its column, -1: none */
    char *label_name;
    tr_names_t input_names; /* none without a header */
    int64_t rows[2], seen;  /* of train and test; rows so far */
    bool numbers, whole;    /* labels so far: all numbers; all whole numbers from 0 on */
    double largest;         /* of those */
    int64_t odd, odd_line;  /* labels that are other numbers; the first one's line */
    double odd_value;
    TR_VEC(char *) names; /* distinct labels, up to one more than MAX_NAMES; sorted after the first pass */
    uint16_t *slot;       /* [SLOTS] of a hash table: a name's place in `names` + 1, 0: free */
    char *text;           /* the first label that is no number, and where; NULL: none */
    int64_t text_line;
    tr_moments_t moments;
    tr_stats_t targets;
    tr_writer_t *writer;
    int x[2], y[2];
    column_t *column; /* [columns] */
    float *row;       /* [columns], of inputs */
} import_t;

static tr_status_t refuse_hdf5(const import_t *m, int fd) {
    char begin[8];
    if (pread(fd, begin, sizeof begin, 0) != sizeof begin || !tr_begins_as_hdf5(begin, sizeof begin))
        return TR_OK;
    return TR_FAIL(
        TR_ERR_DATA,
        "'%s' is an HDF5 file, where CSV text is expected: `trainer data` shows what is in it, and "
        "data.train takes it as it is.",
        m->path);
}

static tr_status_t open_csv(import_t *m) {
    tr_csv_close(&m->csv);
    m->seen = 0;
    int fd = open(m->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return TR_FAIL(errno == ENOENT ? TR_ERR_NOINPUT : TR_ERR_IO, "cannot open '%s': %s.", m->path,
                       strerror(errno));
    tr_status_t status = refuse_hdf5(m, fd);
    if (status == TR_OK) return tr_csv_open(fd, m->path, m->delimiter, &m->csv);
    close(fd);
    return status;
}

/* -- numbers --------------------------------------------------------------------------------------------- */

/* With a decimal comma a point is none: it would separate thousands. */
static bool parse_number(const import_t *m, const char *text, double *out) {
    char with_point[160];
    if (m->decimal == '.') return tr_parse_float(text, out);
    if (strchr(text, '.') || strlen(text) >= sizeof with_point) return false;
    strcpy(with_point, text);
    with_point[strcspn(text, ",")] = text[strcspn(text, ",")] ? '.' : '\0';
    return tr_parse_float(with_point, out);
}

static bool is_missing(const char *text) {
    static const char *const usual[] = {"",  "NA", "N/A", "#N/A", "NaN",  "null", "none",
                                        "?", "-",  ".",   "inf",  "-inf", "+inf"};
    for (size_t i = 0; i < TR_COUNT(usual); i++)
        if (!strcasecmp(text, usual[i])) return true;
    return false;
}

/* A number that is too large for 32-bit floats, or even for doubles. */
static bool is_beyond(const import_t *m, const char *text) {
    double value;
    char *end;
    if (parse_number(m, text, &value)) return !isfinite((float)value);
    value = strtod(text, &end);
    return *end == '\0' && isinf(value);
}

/* What may stand between columns of `text` beside the delimiter; 0: nothing of the kind. */
static char other_delimiter(const import_t *m, const char *text) {
    for (const char *c = ";\t|,"; *c; c++)
        if (*c != m->delimiter && strchr(text, *c)) return *c;
    return '\0';
}

/* As --delimiter takes it. */
static const char *delimiter_text(char c, char text[4]) {
    snprintf(text, 4, c == '\t' ? "tab" : "'%c'", c);
    return text;
}

static void say_remedy(const import_t *m, const char *text, char *out, size_t room) {
    const char other = other_delimiter(m, text);
    char option[4];
    double value;
    if (is_missing(text))
        snprintf(out, room, "fill it in (usual: the column's mean)");
    else if (other && other != ',')
        snprintf(out, room, "add --delimiter %s, if that stands between columns",
                 delimiter_text(other, option));
    else if (m->decimal == '.' && strchr(text, ','))
        snprintf(
            out, room,
            "add --decimal ',', if the comma is the decimal point, and leave out separators of thousands");
    else if (m->decimal == ',' && tr_parse_float(text, &value))
        snprintf(
            out, room,
            "leave --decimal ',' out, if the point is the decimal point; if not, separators of thousands");
    else if (m->decimal == ',' && strchr(text, '.'))
        snprintf(out, room,
                 "with --decimal ',' the comma is the decimal point: leave out separators of thousands");
    else if (is_beyond(m, text))
        snprintf(out, room, "scale the column (another unit, the logarithm)");
    else
        snprintf(out, room, "write texts as numbers");
}

static tr_status_t fail_cell(const import_t *m, const char *text, int column) {
    char found[64] = "the cell is empty", remedy[128];
    if (*text) snprintf(found, sizeof found, "found '%.*s'", (int)tr_utf8_bytes(text, 40), text);
    say_remedy(m, text, remedy, sizeof remedy);
    return TR_FAIL(TR_ERR_DATA,
                   "'%s', line %lld, column %d: %s, where a number that a 32-bit float can hold is expected; "
                   "%s, or leave the row or the column out.",
                   m->path, (long long)tr_csv_line(m->csv), column, found, remedy);
}

/* -- the label's column ---------------------------------------------------------------------------------- */

static bool is_header(const import_t *m, char *const *field, int count) {
    double value;
    for (int i = 0; i < count; i++)
        if (parse_number(m, field[i], &value)) return false;
    return true;
}

static int find_name(char *const *field, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcasecmp(field[i], name)) return i;
    return -1;
}

static tr_status_t choose_label(import_t *m, char *const *field) {
    static const char *const usual[] = {"label", "class", "target", "y", "labels", "species", "outcome"};
    int64_t index;
    m->label = -1;
    for (size_t i = 0; !m->params->label && m->header && i < TR_COUNT(usual) && m->label < 0; i++)
        m->label = find_name(field, m->columns, usual[i]);
    if (!m->params->label) {
        if (m->label < 0) m->label = m->columns - 1;
        return TR_OK;
    }
    if (m->header) m->label = find_name(field, m->columns, m->params->label);
    if (m->label >= 0 || !strcmp(m->params->label, "none")) return TR_OK;
    if (tr_parse_int(m->params->label, &index) && index >= -m->columns && index < m->columns) {
        m->label = (int)(index < 0 ? index + m->columns : index);
        return TR_OK;
    }
    tr_str_t text = {0};
    for (int i = 0; i < m->columns && i < 30; i++) tr_str_printf(&text, "%s%s", i ? ", " : "", field[i]);
    TR_FAIL(TR_ERR_CONFIG,
            "--label: '%s' has no column '%s'; its first row is: %s. Without labels: --label none.", m->path,
            m->params->label, text.text ? text.text : "");
    tr_str_free(&text);
    return TR_ERR_CONFIG;
}

static tr_status_t fail_one_column(const import_t *m, const char *text) {
    const char other = other_delimiter(m, text);
    char expected[4], found[4];
    delimiter_text(m->delimiter, expected);
    delimiter_text(other, found);
    if (m->hash)
        return TR_FAIL(
            TR_ERR_DATA,
            "'%s': its first row begins with '#' and has one column: remove it, if it is a comment; "
            "names of columns, or numbers, with %s between them are expected.",
            m->path, expected);
    if (other)
        return TR_FAIL(
            TR_ERR_DATA,
            "'%s', line %lld: expected columns with %s between them, found one with %s in it: add "
            "--delimiter %s, if that stands between columns%s.",
            m->path, (long long)tr_csv_line(m->csv), expected, found, found,
            other == ',' || m->decimal == ',' ? "" : ", and --decimal ',', if numbers are written as 1,5");
    return TR_FAIL(TR_ERR_DATA,
                   "'%s': its first row has one column; inputs and a label with %s between them are "
                   "expected (--delimiter names another character). Without labels: --label none.",
                   m->path, expected);
}

/* A header that is written as a comment begins with # before its first name. */
static tr_status_t note_inputs(import_t *m, char *const *field) {
    tr_names_t *names = &m->input_names;
    TR_TRY(tr_alloc((size_t)m->inputs * sizeof *names->name, "names of columns", &names->name));
    for (int i = 0; i < m->columns; i++)
        if (i != m->label)
            TR_TRY(tr_strdup(field[i] + (i ? 0 : strspn(field[i], "# ")), &names->name[names->count++]));
    return TR_OK;
}

static tr_status_t first_row(import_t *m, char *const *field, int count) {
    m->columns = count;
    m->hash = field[0][0] == '#';
    m->header = is_header(m, field, count);
    if (count == 1 && !(m->params->label && !strcmp(m->params->label, "none")))
        return fail_one_column(m, field[0]);
    TR_TRY(choose_label(m, field));
    m->inputs = count - (m->label >= 0);
    if (m->header) TR_TRY(note_inputs(m, field));
    if (m->header && m->label >= 0) TR_TRY(tr_strdup(field[m->label], &m->label_name));
    if (m->label >= 0)
        TR_INFO("the label is column %d of %d%s%s%s%s", m->label + 1, count, m->header ? ", '" : "",
                m->header ? m->label_name : "", m->header ? "'" : "",
                m->params->label ? "" : "; --label names another, --label none says that there is none");
    tr_moments_begin(&m->moments, m->inputs);
    TR_TRY(tr_alloc((size_t)count * sizeof *m->column, "columns", &m->column));
    return tr_alloc((size_t)count * sizeof *m->row, "a row", &m->row);
}

/* -- rows ------------------------------------------------------------------------------------------------ */

static tr_status_t fail_count(const import_t *m, char *const *field, int count) {
    char remedy[64] = "", option[4], other = '\0';
    for (int i = 0; i < count && !other; i++) other = other_delimiter(m, field[i]);
    if (m->hash)
        snprintf(remedy, sizeof remedy, " and begins with '#': remove it, if it is a comment");
    else if (other && other != ',')
        snprintf(remedy, sizeof remedy, ": add --delimiter %s, if that stands between columns",
                 delimiter_text(other, option));
    return TR_FAIL(TR_ERR_DATA, "'%s', line %lld: %d column%s, but the first row has %d%s.", m->path,
                   (long long)tr_csv_line(m->csv), count, count == 1 ? "" : "s", m->columns, remedy);
}

static tr_status_t parse_row(import_t *m, char *const *field, int count) {
    if (count != m->columns) return fail_count(m, field, count);
    for (int i = 0, at = 0; i < count; i++) {
        double *value = &m->column[i].value;
        if (i == m->label) continue;
        if (!parse_number(m, field[i], value) || !isfinite((float)*value))
            return fail_cell(m, field[i], i + 1);
        m->row[at++] = (float)*value;
    }
    return TR_OK;
}

static int group_of_row(const import_t *m, int64_t row) {
    tr_rng_block_t random = tr_rng_philox(m->params->seed, TR_RNG_SYNTHETIC, 3, (uint64_t)row, 0);
    return tr_rng_to_float(random.v[0]) < (float)m->params->test_fraction;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tr_status_t note_name(import_t *m, const char *text) {
    uint64_t at = tr_hash_name(text);
    char *copy;
    if (!m->slot) TR_TRY(tr_alloc(SLOTS * sizeof *m->slot, "labels", &m->slot));
    while (m->slot[at % SLOTS] && strcmp(m->names.data[m->slot[at % SLOTS] - 1], text)) at++;
    if (m->slot[at % SLOTS]) return TR_OK;
    TR_TRY(tr_strdup(text, &copy));
    tr_status_t status = tr_vec_push(&m->names, copy);
    if (status == TR_OK)
        m->slot[at % SLOTS] = (uint16_t)m->names.count;
    else
        tr_free(&copy);
    return status;
}

static tr_status_t note_label(import_t *m, const char *text) {
    double value = 0;
    bool number = parse_number(m, text, &value);
    m->column[m->label].value = value;
    if (!*text)
        return TR_FAIL(
            TR_ERR_DATA,
            "'%s', line %lld: the label is missing; leave the row out. Where no row has one: --label "
            "none.",
            m->path, (long long)tr_csv_line(m->csv));
    const bool whole = number && value >= 0 && value < 1e7 && value == floor(value);
    m->numbers &= number;
    m->whole &= whole;
    if (whole && value > m->largest) m->largest = value;
    if (number && !whole && m->odd++ == 0) {
        m->odd_value = value;
        m->odd_line = tr_csv_line(m->csv);
    }
    if (!number && !m->text) {
        TR_TRY(tr_strdup(text, &m->text));
        m->text_line = tr_csv_line(m->csv);
    }
    return m->names.count > MAX_NAMES ? TR_OK : note_name(m, text);
}

static void note_columns(import_t *m) {
    for (int i = 0; i < m->columns; i++) {
        column_t *column = &m->column[i];
        const double value = column->value, rounding = fabs(value - (double)(float)value);
        if (m->seen == 0) column->min = column->max = value;
        if (value < column->min) column->min = value;
        if (value > column->max) column->max = value;
        if (rounding > column->rounding) column->rounding = rounding;
    }
    if (m->label >= 0) tr_stats_add(&m->targets, 1, &m->column[m->label].value, 1);
}

static tr_status_t note_row(import_t *m, char *const *field, int count) {
    TR_TRY(parse_row(m, field, count));
    if (m->label >= 0) TR_TRY(note_label(m, field[m->label]));
    note_columns(m);
    int group = group_of_row(m, m->seen++);
    if (m->seen % IMPORT_ROWS == 0) TR_TRY(tr_import_progress(m->params, m->seen, 0));
    m->rows[group]++;
    if (group == 0) tr_moments_add(&m->moments, TR_F32, m->row, m->moments.channels);
    return TR_OK;
}

/* Numbers among which some are missing, infinite or written in another way would become classes, each number one. */
static tr_status_t check_names(const import_t *m) {
    const char *odd = NULL;
    char remedy[128] = "leave rows without a label out", line[32] = "";
    import_t other = *m;
    other.decimal = m->decimal == '.' ? ',' : '.';
    for (size_t i = 0; i <= m->names.count;
         i++) { /* the first text may have come behind as many numbers as are kept */
        const char *name = i < m->names.count ? m->names.data[i] : m->text;
        double value;
        if (!name || parse_number(m, name, &value)) continue;
        if (!is_missing(name) && !is_beyond(m, name) && !parse_number(&other, name, &value)) return TR_OK;
        if (!odd || is_missing(odd)) odd = name;
    }
    if (!odd || (is_missing(odd) && m->names.count < 3))
        return TR_OK; /* one number and "none" may be classes */
    if (!is_missing(odd)) say_remedy(m, odd, remedy, sizeof remedy);
    if (!strcmp(odd, m->text)) snprintf(line, sizeof line, ", line %lld", (long long)m->text_line);
    return TR_FAIL(TR_ERR_DATA, "'%s'%s: its labels (column %d) are numbers but for '%.*s': %s.", m->path,
                   line, m->label + 1, (int)tr_utf8_bytes(odd, 40), odd, remedy);
}

static tr_status_t first_pass(import_t *m) {
    char **field;
    int count;
    TR_TRY(open_csv(m));
    TR_TRY(tr_csv_row(m->csv, &field, &count));
    if (!count) return TR_FAIL(TR_ERR_DATA, "'%s' is empty.", m->path);
    TR_TRY(first_row(m, field, count));
    m->numbers = m->whole = m->label >= 0;
    if (m->header) TR_TRY(tr_csv_row(m->csv, &field, &count));
    while (count) {
        TR_TRY(note_row(m, field, count));
        TR_TRY(tr_csv_row(m->csv, &field, &count));
    }
    if (!m->seen) return TR_FAIL(TR_ERR_DATA, "'%s' has a header, but no rows.", m->path);
    TR_TRY(check_names(m));
    if (m->label >= 0 && !m->numbers && m->names.count > MAX_NAMES)
        return TR_FAIL(
            TR_ERR_DATA,
            "'%s': its labels (column %d) are more than %d different texts, such as '%.*s' in line %lld; "
            "--label names another column.",
            m->path, m->label + 1, MAX_NAMES, (int)tr_utf8_bytes(m->text, 40), m->text,
            (long long)m->text_line);
    if (m->names.count) qsort(m->names.data, m->names.count, sizeof *m->names.data, by_name);
    return TR_OK;
}

/* -- writing --------------------------------------------------------------------------------------------- */

static tr_status_t make_arrays(import_t *m) {
    static const char *const x_names[] = {"train/x", "test/x"}, *const y_names[] = {"train/y", "test/y"};
    tr_shape_t inputs = TR_SHAPE(m->inputs), scalar = {0};
    tr_dtype_t labels = m->numbers && !m->whole ? TR_F32 : TR_I32;
    for (int g = 0; g < 2; g++) {
        if (!m->rows[g] && g) continue;
        TR_TRY(tr_writer_array(m->writer, x_names[g], TR_F32, m->rows[g], &inputs, &m->x[g]));
        if (m->label >= 0)
            TR_TRY(tr_writer_array(m->writer, y_names[g], labels, m->rows[g], &scalar, &m->y[g]));
    }
    return TR_OK;
}

static tr_status_t write_label(import_t *m, const char *text, int group) {
    double value = 0;
    if (m->numbers) {
        parse_number(m, text, &value);
        if (!isfinite((float)value)) return fail_cell(m, text, m->label + 1);
    } else {
        char *const *found = bsearch(&text, m->names.data, m->names.count, sizeof *m->names.data, by_name);
        if (!found) return TR_FAIL(TR_ERR_DATA, "'%s' changed while it was read.", m->path);
        value = (double)(found - m->names.data);
    }
    if (m->numbers && !m->whole) return tr_writer_append(m->writer, m->y[group], 1, &(float){(float)value});
    return tr_writer_append(m->writer, m->y[group], 1, &(int32_t){(int32_t)value});
}

static tr_status_t write_row(import_t *m, char *const *field, int count) {
    int group = group_of_row(m, m->seen++);
    TR_TRY(parse_row(m, field, count));
    TR_TRY(tr_writer_append(m->writer, m->x[group], 1, m->row));
    if (m->seen % IMPORT_ROWS == 0) TR_TRY(tr_import_progress(m->params, m->seen, m->rows[0] + m->rows[1]));
    return m->label >= 0 ? write_label(m, field[m->label], group) : TR_OK;
}

static tr_status_t second_pass(import_t *m) {
    char **field;
    int count;
    TR_TRY(open_csv(m));
    TR_TRY(tr_csv_row(m->csv, &field, &count));
    if (m->header) TR_TRY(tr_csv_row(m->csv, &field, &count));
    while (count) {
        TR_TRY(write_row(m, field, count));
        TR_TRY(tr_csv_row(m->csv, &field, &count));
    }
    TR_TRY(tr_moments_write(&m->moments, m->writer));
    if (m->numbers && m->whole)
        TR_TRY(tr_writer_numbers(m->writer, "/", "classes", 1, &(double){m->largest + 1}));
    if (m->names.count && !m->numbers)
        TR_TRY(tr_writer_texts(m->writer, "/", "class_names", (int64_t)m->names.count,
                               (const char *const *)m->names.data));
    const tr_names_t *inputs = &m->input_names;
    if (inputs->count > MAX_COLUMNS)
        TR_INFO("the names of more than %d columns are not kept", MAX_COLUMNS);
    else if (inputs->count)
        TR_TRY(tr_writer_texts(m->writer, "/", tr_names_key(TR_NAMES_INPUTS), inputs->count,
                               (const char *const *)inputs->name));
    if (m->label_name)
        TR_TRY(tr_writer_texts(m->writer, "/", "label", 1, (const char *const *)&m->label_name));
    TR_TRY(tr_import_progress(m->params, m->seen, m->seen));
    return tr_writer_commit(m->writer);
}

/* -- what became of it ----------------------------------------------------------------------------------- */

static const char *column_name(const import_t *m, int column) {
    if (!m->header) return "";
    return column == m->label ? m->label_name
                              : m->input_names.name[column - (m->label >= 0 && column > m->label)];
}

static void warn_rounded(const import_t *m) {
    int rounded = 0;
    for (int i = 0; i < m->columns; i++) {
        const column_t *column = &m->column[i];
        const double range = column->max - column->min;
        if (i == m->label && (!m->numbers || m->whole)) continue;
        if (range == 0 || column->rounding <= range / STEPS || ++rounded > SAID) continue;
        TR_WARN(
            "'%s', column %d%s%s%s: its values are from %.15g to %.15g, and 32-bit floats round them by up "
            "to %.3g: subtract a number near them, in every table alike, or leave the column out, if it "
            "only tells rows apart",
            m->path, i + 1, m->header ? ", '" : "", column_name(m, i), m->header ? "'" : "", column->min,
            column->max, column->rounding);
    }
    if (rounded > SAID) TR_WARN("'%s': the same of %d more columns", m->path, rounded - SAID);
}

/* "1,5;2" is read as the number 1 and the text "5;2". */
static void warn_of_delimiter(const import_t *m) {
    const char *name = m->names.count && !m->numbers ? m->names.data[0] : "";
    const char other = other_delimiter(m, name);
    char option[4];
    double value;
    if (!other || other == ',' || !parse_number(m, strchr(name, other) + 1, &value)) return;
    delimiter_text(other, option);
    TR_WARN("'%s': its labels (column %d) are texts such as '%.*s': add --delimiter %s, if that stands "
            "between columns",
            m->path, m->label + 1, (int)tr_utf8_bytes(name, 40), name, option);
}

static void warn_of_mix(const import_t *m) {
    if (!m->numbers || !tr_nearly_labels(m->seen - m->odd, m->odd, (int64_t)m->largest + 1)) return;
    TR_WARN(
        "'%s': %lld of its %lld labels (column %d) are whole numbers from 0 on, but that of line %lld is "
        "%.9g: all are taken for numbers to predict. If they are classes, correct it and import the table "
        "anew",
        m->path, (long long)(m->seen - m->odd), (long long)m->seen, m->label + 1, (long long)m->odd_line,
        m->odd_value);
}

static void say_y(const import_t *m) {
    if (m->label < 0) return;
    if (!m->numbers)
        tr_import_say_classes(m->params, (int64_t)m->names.count, (const char *const *)m->names.data);
    else if (!m->whole)
        tr_import_say_numbers(m->params, 1, &m->targets);
    else
        tr_import_say_classes(m->params, (int64_t)m->largest + 1, NULL);
    if (m->params->y && m->numbers && m->whole && m->largest >= MANY)
        tr_str_append(m->params->y, "; if they are numbers to predict, train with data.classes=0");
}

static tr_status_t run(const char *in, const char *out, const tr_import_params_t *params) {
    import_t m = {.params = params,
                  .path = in,
                  .delimiter = params->delimiter ? params->delimiter : ',',
                  .decimal = params->decimal ? params->decimal : '.'};
    tr_status_t status;
    TR_TRY(tr_import_check_place(in, out));
    TR_TRY_GOTO(first_pass(&m), done);
    TR_TRY_GOTO(tr_writer_create(out, &params->writer, &m.writer), done);
    TR_TRY_GOTO(make_arrays(&m), done);
    TR_TRY_GOTO(second_pass(&m), done);
    warn_rounded(&m);
    warn_of_delimiter(&m);
    warn_of_mix(&m);
    say_y(&m);
done:
    tr_writer_destroy(&m.writer);
    tr_csv_close(&m.csv);
    for (size_t i = 0; i < m.names.count; i++) tr_free(&m.names.data[i]);
    tr_vec_free(&m.names);
    tr_free(&m.slot);
    tr_names_free(&m.input_names);
    tr_free(&m.label_name);
    tr_free(&m.text);
    tr_free(&m.row);
    tr_free(&m.column);
    return status;
}

const tr_importer_t tr_importer_csv = {
    "csv",
    "IN.csv OUT.h5 [--label NAME|INDEX|none] [--delimiter CHARACTER|tab] [--decimal .|,] [--test-fraction "
    "PART] [--seed N]",
    "A table of numbers, with a header or without. Labels may be whole "
    "numbers, other numbers (regression) or texts; none: rows to predict for. "
    "--delimiter ';' --decimal ',': where columns have semicolons between them (tab: tabs) and numbers are "
    "written as 1,5. "
    "--test-fraction 0.1 keeps a tenth of the rows for the test, drawn by --seed (0); without it there are "
    "no test data.",
    run};
