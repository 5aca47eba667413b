/* The columns of a table that become inputs: their kinds, and from the rows for training their
 * categories and what replaces missing numbers. */
#include "csv_int.h"
#include "trainer/log.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUT(text) (int)tr_utf8_bytes(text, 60), text
#define SAID      8 /* columns with missing cells in a message */
#define DIFFERENT_ROWS 20 /* in fewer rows, different texts may be categories */

/* pandas names columns without a name "Unnamed: 0", and an index without one "index". */
static bool column_is_unnamed(const csv_columns_t *columns, int at) {
    const char *name = columns->names->name[at];
    return columns->spec.has_header &&
           (!*name || strncmp(name, "Unnamed:", 8) == 0 || strcmp(name, "index") == 0);
}

tr_status_t tr_csv_columns_add(csv_columns_t *columns, int at, const char *text) {
    csv_column_t *c = &columns->of[at];
    const int64_t line = tr_csv_line(columns->table->csv);
    double value;
    if (tr_csv_is_missing(text, true)) {
        const int64_t before = c->blank + c->dashes;
        if (before < (int)TR_COUNT(c->missing_line)) c->missing_line[before] = line;
        ++*(tr_csv_is_missing(text, false) ? &c->blank : &c->dashes);
        return TR_OK;
    }
    if (tr_csv_number(columns->table, text, &value) && isfinite((float)value)) {
        if (c->numbers == 0) c->first = value;
        c->is_broken |= value != c->first + (double)c->numbers;
        c->numbers++;
        return column_is_unnamed(columns, at) ? tr_vec_push(&c->values, value) : TR_OK;
    }
    const char *parts;
    const bool is_odd = tr_csv_is_meant_as_number(columns->table, text) ||
                        tr_csv_is_like_number(text) || tr_csv_is_date(text, &parts);
    c->texts++;
    if (c->text && (c->is_odd || !is_odd)) return TR_OK;
    tr_free(&c->text);
    c->is_odd = is_odd;
    c->text_line = line;
    return tr_strdup(text, &c->text);
}

/* "column 3 ('age')", or "column 3" without a header. Returns `text`. */
static const char *columns_say(const csv_columns_t *columns, int at, char text[96]) {
    const char *name = columns->names->name[at];
    snprintf(text, 96, "column %d", at + 1);
    if (columns->spec.has_header) snprintf(text, 96, "column %d ('%.*s')", at + 1, CUT(name));
    return text;
}

/* -- what the columns are ---------------------------------------------------------------------- */

csv_index_t tr_csv_columns_index(const csv_columns_t *columns, int at, int64_t rows) {
    const csv_column_t *c = &columns->of[at];
    double *values = c->values.data;
    if (c->is_chosen || c->numbers + c->texts == 0)
        return !c->is_chosen && column_is_unnamed(columns, at) ? CSV_EMPTY : CSV_NO_INDEX;
    if (c->numbers < rows) return CSV_NO_INDEX;
    if (!column_is_unnamed(columns, at))
        return !c->is_broken && (c->first == 0 || c->first == 1) ? CSV_COUNTS : CSV_NO_INDEX;
    if (!c->is_broken) return c->first == floor(c->first) ? CSV_INDEX : CSV_NO_INDEX;
    tr_sort(values, rows); /* of shuffled rows */
    for (int64_t i = 0; i < rows; i++)
        if (values[i] < 0 || values[i] != floor(values[i]) || (i > 0 && values[i] == values[i - 1]))
            return CSV_NO_INDEX;
    return CSV_INDEX;
}

/* Appends how to make numbers of a column of dates, whose parts are "year,month,day": a command, if
 * no cell has quotes, within which awk would see delimiters. */
static void columns_say_date(const csv_columns_t *columns, int at, const char *parts,
                             tr_str_t *out) {
    const char delimiter[] = {columns->table->delimiter, '\0'};
    const char *shown = *delimiter == '\t' ? "\\t" : delimiter;
    const bool is_triple = strchr(strchr(parts, ',') + 1, ',') != NULL;
    if (tr_csv_has_quotes(columns->table->csv)) {
        tr_str_printf(out, "write the columns %s instead of it", parts);
        return;
    }
    tr_str_printf(out, "`awk -F'%s' -v OFS='%s' '{ split($%d, d, /[^0-9]+/); $%d = ", shown, shown,
                  at + 1, at + 1);
    if (columns->spec.has_header) {
        tr_str_append(out, "NR == 1 ? \"");
        for (const char *p = parts; *p; p++)
            if (*p == ',')
                tr_str_append(out, shown);
            else
                tr_str_append_bytes(out, p, 1);
        tr_str_append(out, "\" : ");
    }
    tr_str_printf(out, "d[1] OFS d[2]%s } 1' '%s' >table.csv` makes the columns %s of it",
                  is_triple ? " OFS d[3]" : "", columns->table->path, parts);
}

/* Appends what is wrong with a column of texts that are no categories. */
static void columns_say_mixed(const csv_columns_t *columns, int at, tr_str_t *out) {
    const csv_column_t *c = &columns->of[at];
    const char *parts;
    char remedy[TR_CSV_REMEDY_BYTES], name[96];
    tr_csv_remedy(columns->table, c->text, remedy, sizeof remedy);
    tr_str_printf(out, " line %lld, %s: expected a number in the range of a 32-bit float",
                  (long long)c->text_line, columns_say(columns, at, name));
    if (c->numbers > 0)
        tr_str_printf(out, ", as %lld other cell%s of the column %s", (long long)c->numbers,
                      c->numbers == 1 ? "" : "s", c->numbers == 1 ? "is" : "are");
    tr_str_printf(out, "; found '%.*s'", CUT(c->text));
    if (tr_csv_is_date(c->text, &parts)) {
        tr_str_append(out, ", a date or a time: ");
        columns_say_date(columns, at, parts, out);
    } else {
        tr_str_printf(out, ": %s",
                      strcmp(c->text, columns->names->name[at]) == 0
                          ? "remove the line if it is a header"
                          : remedy);
    }
}

static void columns_decide_one(const csv_columns_t *columns, int at, int64_t rows, tr_str_t *odd) {
    csv_column_t *c = &columns->of[at];
    char name[96];
    if (!c->is_chosen) {
        if (c->texts > 0 && (c->numbers > 0 || c->is_odd)) {
            tr_str_append(odd, odd->text ? ";" : "");
            columns_say_mixed(columns, at, odd);
            return;
        }
        c->kind = c->texts > 0 || (c->numbers == 0 && c->dashes > 0) ? TR_COLUMN_ONE_HOT
                                                                     : TR_COLUMN_NUMBER;
    }
    c->missing = c->blank + (c->kind == TR_COLUMN_NUMBER ? c->dashes : 0);
    if (c->missing == rows)
        tr_str_printf(odd, "%s line %lld, %s: all %lld cells of the column are missing",
                      odd->text ? ";" : "", (long long)c->missing_line[0],
                      columns_say(columns, at, name), (long long)rows);
}

/* Appends the columns at[] that have missing cells. Returns their number. */
static int columns_say_missing(const csv_columns_t *columns, const int *at, size_t count,
                               int64_t rows, tr_str_t *out) {
    int found = 0;
    for (size_t i = 0; i < count; i++) {
        const csv_column_t *c = &columns->of[at[i]];
        const int lines = (int)TR_COUNT(c->missing_line);
        char name[96];
        if (c->missing == 0 || ++found > SAID) continue;
        tr_str_printf(out, "%s %s in %lld of %lld rows, in line", found > 1 ? ";" : "",
                      columns_say(columns, at[i], name), (long long)c->missing, (long long)rows);
        for (int k = 0; k < lines && k < c->missing; k++)
            tr_str_printf(out, "%s %lld", k ? "," : "", (long long)c->missing_line[k]);
        if (c->missing > lines) tr_str_append(out, " and so on");
    }
    if (found > SAID) tr_str_printf(out, "; and %d more columns", found - SAID);
    return found;
}

#define MISSING "(an empty cell, NA or the like)"

tr_status_t tr_csv_columns_check_labels(csv_columns_t *columns, const int *at, size_t count,
                                        bool are_numbers, int64_t rows) {
    tr_str_t text = {0};
    bool all = false;
    for (size_t i = 0; i < count; i++) {
        csv_column_t *c = &columns->of[at[i]];
        c->missing = c->blank + (are_numbers ? c->dashes : 0);
        all = all || c->missing == rows;
    }
    const int found = columns_say_missing(columns, at, count, rows, &text);
    if (found > 0)
        TR_FAIL(TR_ERR_DATA, "'%s': labels are missing " MISSING ":%s. %s", columns->table->path,
                text.text ? text.text : "",
                all ? "Leave an empty column out with --drop; if no row has a label: --label none."
                    : "Remove these rows; if such a word names a class, rename the class.");
    tr_str_free(&text);
    return found > 0 ? TR_ERR_DATA : TR_OK;
}

tr_status_t tr_csv_columns_decide(csv_columns_t *columns, int64_t rows) {
    const size_t count = columns->spec.input.count;
    tr_str_t odd = {0}, missing = {0};
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < count; i++) {
        columns_decide_one(columns, columns->index[i], rows, &odd);
        columns->spec.input.data[i].kind = columns->of[columns->index[i]].kind;
    }
    columns->spec.fills = columns->params->missing != TR_MISSING_REFUSED;
    if (odd.text)
        status = TR_FAIL(TR_ERR_DATA,
                         "'%s',%s. --one-hot or --ordinal reads a column as categories, --drop "
                         "leaves it out.%s",
                         columns->table->path, odd.text,
                         columns->spec.has_header
                             ? ""
                             : " The first row was read as data: --header yes reads it as names.");
    else if (!columns->spec.fills &&
             columns_say_missing(columns, columns->index, count, rows, &missing) > 0)
        status = TR_FAIL(TR_ERR_DATA,
                         "'%s': values are missing " MISSING ":%s. --missing mean, median or zero "
                         "fills them in, --missing-indicator also adds a column that tells where; "
                         "--drop leaves a column out.",
                         columns->table->path, missing.text ? missing.text : "");
    tr_str_free(&odd);
    tr_str_free(&missing);
    return status;
}

/* -- what is learned from rows for training ---------------------------------------------------- */

bool tr_csv_columns_must_learn(const csv_columns_t *columns) {
    bool must = columns->spec.fills;
    for (size_t i = 0; i < columns->spec.input.count; i++)
        must = must || columns->spec.input.data[i].kind != TR_COLUMN_NUMBER;
    return must;
}

/* Inserts a category where the order of bytes has it. */
static tr_status_t column_add_category(const csv_columns_t *columns, tr_column_t *c,
                                       const char *text) {
    tr_names_t *names = &c->categories;
    int64_t place = names->count;
    if (tr_column_category(c, text) >= 0) return TR_OK;
    if (names->count == TR_CATEGORIES_MAX)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s', line %lld: column '%.*s' has more than %d different texts, such as "
                       "'%.*s': leave it out with --drop, or keep it beside the data with --id.",
                       columns->table->path, (long long)tr_csv_line(columns->table->csv),
                       CUT(c->name), TR_CATEGORIES_MAX, CUT(text));
    if (!names->name)
        TR_TRY(tr_alloc(TR_CATEGORIES_MAX * sizeof *names->name, "categories", &names->name));
    char *copy;
    TR_TRY(tr_strdup(text, &copy));
    for (; place > 0 && strcmp(names->name[place - 1], text) > 0; place--)
        names->name[place] = names->name[place - 1];
    names->name[place] = copy;
    names->count++;
    return TR_OK;
}

tr_status_t tr_csv_columns_learn(csv_columns_t *columns, char *const *field) {
    const size_t inputs = columns->spec.input.count;
    if (!columns->stats)
        TR_TRY(tr_alloc(inputs * sizeof *columns->stats, "columns", &columns->stats));
    if (!columns->values)
        TR_TRY(tr_alloc(inputs * sizeof *columns->values, "columns", &columns->values));
    if (!columns->rows) TR_TRY(tr_alloc(inputs * sizeof *columns->rows, "columns", &columns->rows));
    for (size_t i = 0; i < inputs; i++) {
        tr_column_t *c = &columns->spec.input.data[i];
        const char *text = field[columns->index[i]];
        double value;
        if (tr_csv_is_missing(text, c->kind == TR_COLUMN_NUMBER)) {
            c->indicator = columns->params->missing_indicator;
        } else if (c->kind != TR_COLUMN_NUMBER) {
            columns->rows[i]++;
            TR_TRY(column_add_category(columns, c, text));
        } else if (tr_csv_number(columns->table, text, &value)) {
            tr_stats_add(&columns->stats[i], 1, &value, 1);
            if (columns->params->missing == TR_MISSING_MEDIAN)
                TR_TRY(tr_vec_push(&columns->values[i], value));
        }
    }
    return TR_OK;
}

/* Without a value in the rows for training there is nothing to fill in, and no category. */
static tr_status_t columns_fail_empty(const csv_columns_t *columns, int at) {
    char name[96];
    return TR_FAIL(TR_ERR_DATA,
                   "'%s', %s: expected values in the rows for training, found only missing cells: "
                   "leave it out with --drop, or divide the rows with another --seed.",
                   columns->table->path, columns_say(columns, at, name));
}

/* Names and ids: a category that one row has cannot be learned. */
static tr_status_t columns_fail_different(const csv_columns_t *columns, int input) {
    const tr_column_t *c = &columns->spec.input.data[input];
    char name[96];
    return TR_FAIL(TR_ERR_DATA,
                   "'%s', %s: %lld of its %lld texts in the rows for training are different, such "
                   "as '%.*s': if they name the rows, leave the column out with --drop, or keep it "
                   "beside the data with --id; if they are categories: --one-hot.",
                   columns->table->path, columns_say(columns, columns->index[input], name),
                   (long long)c->categories.count, (long long)columns->rows[input],
                   CUT(c->categories.name[0]));
}

/* Many texts that all have digits are probably numbers with a unit: "12 kg", "0x1F", "(3.50)". */
static void columns_warn_digits(const csv_columns_t *columns, int at, const tr_column_t *c) {
    enum { MANY = 20 };
    char column[96];
    if (c->kind != TR_COLUMN_ONE_HOT || columns->of[at].is_chosen || c->categories.count <= MANY)
        return;
    for (int64_t i = 0; i < c->categories.count; i++)
        if (!strpbrk(c->categories.name[i], "0123456789")) return;
    TR_WARN(
        "'%s', %s: its %lld different texts, such as '%.*s', all have digits, and each becomes an "
        "input: if they are numbers, write them without units; --one-hot says that they are "
        "categories",
        columns->table->path, columns_say(columns, at, column), (long long)c->categories.count,
        CUT(c->categories.name[0]));
}

tr_status_t tr_csv_columns_end(csv_columns_t *columns) {
    const tr_column_t *widest = NULL;
    int64_t one_hot = 0;
    for (size_t i = 0; i < columns->spec.input.count; i++) {
        tr_column_t *c = &columns->spec.input.data[i];
        const int64_t count = (int64_t)columns->values[i].count;
        double *values = columns->values[i].data;
        if (columns->stats[i].count == 0 && c->categories.count == 0)
            return columns_fail_empty(columns, columns->index[i]);
        if (c->kind == TR_COLUMN_NUMBER && columns->params->missing == TR_MISSING_MEAN)
            c->fill = columns->stats[i].mean;
        if (count > 0) {
            tr_sort(values, count);
            c->fill = (values[(count - 1) / 2] + values[count / 2]) / 2;
        }
        if (columns->rows[i] >= DIFFERENT_ROWS && !columns->of[columns->index[i]].is_chosen &&
            10 * c->categories.count >= 9 * columns->rows[i])
            return columns_fail_different(columns, (int)i);
        if (c->kind != TR_COLUMN_ONE_HOT) continue;
        columns_warn_digits(columns, columns->index[i], c);
        one_hot += c->categories.count;
        if (!widest || c->categories.count > widest->categories.count) widest = c;
    }
    if (one_hot <= TR_CATEGORIES_MAX) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "'%s': its columns of texts become %lld inputs, expected at most %d. The widest "
                   "is '%.*s' with %lld categories: leave it out with --drop, or number its "
                   "categories with --ordinal.",
                   columns->table->path, (long long)one_hot, TR_CATEGORIES_MAX, CUT(widest->name),
                   (long long)widest->categories.count);
}

void tr_csv_columns_free(csv_columns_t *columns) {
    for (int64_t i = 0; columns->of && i < columns->names->count; i++)
        tr_vec_free(&columns->of[i].values), tr_free(&columns->of[i].text);
    for (size_t i = 0; columns->values && i < columns->spec.input.count; i++)
        tr_vec_free(&columns->values[i]);
    tr_free(&columns->of);
    tr_free(&columns->index);
    tr_free(&columns->stats);
    tr_free(&columns->values);
    tr_free(&columns->rows);
    tr_columns_free(&columns->spec);
}
