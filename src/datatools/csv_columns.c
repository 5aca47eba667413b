/* The columns of a table that become inputs: their kinds, and from the rows for training their
 * categories and what replaces missing numbers. */
#include "csv_int.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUT(text) (int)tr_utf8_bytes(text, 60), text
#define SAID      8 /* columns with missing cells in a message */

tr_status_t tr_csv_columns_add(csv_columns_t *columns, int at, const char *text) {
    csv_column_t *c = &columns->of[at];
    const int64_t line = tr_csv_line(columns->table->csv);
    double value;
    if (tr_csv_is_missing(text, true)) {
        if (c->blank + c->dashes == 0) c->missing_line = line;
        ++*(tr_csv_is_missing(text, false) ? &c->blank : &c->dashes);
        return TR_OK;
    }
    if (tr_csv_number(columns->table, text, &value) && isfinite((float)value)) {
        c->numbers++;
        return TR_OK;
    }
    const bool is_odd =
        tr_csv_is_meant_as_number(columns->table, text) || tr_csv_is_like_number(text);
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

static tr_status_t columns_fail_mixed(const csv_columns_t *columns, int at) {
    const csv_column_t *c = &columns->of[at];
    char remedy[160], name[96], others[64] = "";
    tr_csv_remedy(columns->table, c->text, remedy, sizeof remedy);
    if (c->numbers > 0)
        snprintf(others, sizeof others, ", as %lld other cells of the column are",
                 (long long)c->numbers);
    return TR_FAIL(TR_ERR_DATA,
                   "'%s', line %lld, %s: expected a number in the range of a 32-bit float%s; found "
                   "'%.*s': %s. --one-hot or --ordinal reads the column as categories, --drop "
                   "leaves it out.",
                   columns->table->path, (long long)c->text_line, columns_say(columns, at, name),
                   others, CUT(c->text), remedy);
}

static tr_status_t columns_decide_one(const csv_columns_t *columns, int at, int64_t rows) {
    csv_column_t *c = &columns->of[at];
    char name[96];
    if (!c->is_chosen) {
        if (c->texts > 0 && (c->numbers > 0 || c->is_odd)) return columns_fail_mixed(columns, at);
        c->kind = c->texts > 0 || (c->numbers == 0 && c->dashes > 0) ? TR_COLUMN_ONE_HOT
                                                                     : TR_COLUMN_NUMBER;
    }
    c->missing = c->blank + (c->kind == TR_COLUMN_NUMBER ? c->dashes : 0);
    if (c->missing < rows) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "'%s', line %lld, %s: all %lld cells of the column are missing: "
                   "leave it out with --drop.",
                   columns->table->path, (long long)c->missing_line, columns_say(columns, at, name),
                   (long long)rows);
}

static tr_status_t columns_fail_missing(const csv_columns_t *columns, int64_t rows) {
    tr_str_t text = {0};
    int found = 0;
    for (size_t i = 0; i < columns->spec.input.count; i++) {
        const int at = columns->index[i];
        const csv_column_t *c = &columns->of[at];
        char name[96];
        if (c->missing == 0 || ++found > SAID) continue;
        tr_str_printf(&text, "%s %s in %lld of %lld rows, first in line %lld", found > 1 ? ";" : "",
                      columns_say(columns, at, name), (long long)c->missing, (long long)rows,
                      (long long)c->missing_line);
    }
    if (found > SAID) tr_str_printf(&text, "; and %d more columns", found - SAID);
    TR_FAIL(TR_ERR_DATA,
            "'%s': values are missing (an empty cell, NA or the like):%s. --missing mean, median "
            "or zero fills them in, --missing-indicator also adds a column that tells where; "
            "--drop leaves a column out.",
            columns->table->path, text.text ? text.text : "");
    tr_str_free(&text);
    return TR_ERR_DATA;
}

tr_status_t tr_csv_columns_decide(csv_columns_t *columns, int64_t rows) {
    bool has_missing = false;
    for (size_t i = 0; i < columns->spec.input.count; i++) {
        const int at = columns->index[i];
        TR_TRY(columns_decide_one(columns, at, rows));
        columns->spec.input.data[i].kind = columns->of[at].kind;
        has_missing = has_missing || columns->of[at].missing > 0;
    }
    columns->spec.fills = columns->params->missing != TR_MISSING_REFUSED;
    return has_missing && !columns->spec.fills ? columns_fail_missing(columns, rows) : TR_OK;
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
    for (size_t i = 0; i < inputs; i++) {
        tr_column_t *c = &columns->spec.input.data[i];
        const char *text = field[columns->index[i]];
        double value;
        if (tr_csv_is_missing(text, c->kind == TR_COLUMN_NUMBER)) {
            c->indicator = columns->params->missing_indicator;
        } else if (c->kind != TR_COLUMN_NUMBER) {
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
        if (c->kind != TR_COLUMN_ONE_HOT) continue;
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
        tr_free(&columns->of[i].text);
    for (size_t i = 0; columns->values && i < columns->spec.input.count; i++)
        tr_vec_free(&columns->values[i]);
    tr_free(&columns->of);
    tr_free(&columns->index);
    tr_free(&columns->stats);
    tr_free(&columns->values);
    tr_columns_free(&columns->spec);
}
