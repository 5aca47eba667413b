/* Columns of a table: what they become, and converting a row. */
#include "columns.h"
#include "base/mem.h"
#include "shared.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUT(text) (int)tr_utf8_bytes(text, 60), text

void tr_columns_free(tr_columns_t *columns) {
    for (size_t i = 0; i < columns->input.count; i++) {
        tr_free(&columns->input.data[i].name);
        tr_names_free(&columns->input.data[i].categories);
    }
    tr_vec_free(&columns->input);
    tr_names_free(&columns->targets);
    tr_free(&columns->id);
}

int64_t tr_column_width(const tr_column_t *column) {
    return (column->kind == TR_COLUMN_ONE_HOT ? column->categories.count : 1) + column->indicator;
}

tr_status_t tr_columns_names(const tr_columns_t *columns, tr_names_t *out) {
    int64_t width = 0;
    *out = (tr_names_t){0};
    for (size_t i = 0; i < columns->input.count; i++)
        width += tr_column_width(&columns->input.data[i]);
    TR_TRY(tr_alloc((size_t)width * sizeof *out->name, "column names", &out->name));
    for (size_t i = 0; i < columns->input.count; i++) {
        const tr_column_t *c = &columns->input.data[i];
        const int64_t width_of = tr_column_width(c);
        for (int64_t k = 0; k < width_of; k++) {
            tr_str_t name = {0};
            tr_str_append(&name, c->name);
            if (c->indicator && k == width_of - 1)
                tr_str_append(&name, " missing");
            else if (c->kind == TR_COLUMN_ONE_HOT)
                tr_str_printf(&name, "=%s", c->categories.name[k]);
            TR_TRY(tr_str_take(&name, &out->name[out->count]));
            out->count++;
        }
    }
    return TR_OK;
}

static int column_order(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int64_t tr_column_category(const tr_column_t *c, const char *text) {
    if (c->categories.count == 0) return -1;
    char *const *found = bsearch(&text, c->categories.name, (size_t)c->categories.count,
                                 sizeof *c->categories.name, column_order);
    return found ? found - c->categories.name : -1;
}

tr_status_t tr_columns_fail_cell(const tr_csv_table_t *table, const char *text, int column,
                                 const char *name) {
    char found[96] = "the cell is empty", remedy[128], called[80] = "";
    if (name) snprintf(called, sizeof called, " ('%.*s')", CUT(name));
    if (*text) snprintf(found, sizeof found, "found '%.*s'", (int)tr_utf8_bytes(text, 40), text);
    tr_csv_remedy(table, text, remedy, sizeof remedy);
    return TR_FAIL(TR_ERR_DATA,
                   "'%s', line %lld, column %d%s: %s; expected a number in the range of a 32-bit "
                   "float; %s, or remove the row or the column.",
                   table->path, (long long)tr_csv_line(table->csv), column + 1, called, found,
                   remedy);
}

static tr_status_t column_fail_missing(const tr_column_t *c, const tr_csv_table_t *table,
                                       const char *text) {
    return TR_FAIL(TR_ERR_DATA,
                   "'%s', line %lld: the value of column '%.*s' is missing ('%s'). The training "
                   "table was imported without --missing, so no value is known to replace it: "
                   "remove the row, or import and train with --missing mean, median or zero.",
                   table->path, (long long)tr_csv_line(table->csv), CUT(c->name), text);
}

static tr_status_t column_encode_text(const tr_columns_t *columns, const tr_column_t *c,
                                      const tr_csv_table_t *table, const char *text, bool missing,
                                      float *out) {
    const int64_t category = missing ? -1 : tr_column_category(c, text);
    if (category < 0 && !missing && columns->refuses_unknown) {
        tr_str_t known = {0};
        tr_names_say((const char *const *)c->categories.name, c->categories.count, &known);
        TR_FAIL(TR_ERR_DATA,
                "'%s', line %lld, column '%.*s': the training rows have no category '%.*s', but "
                "%s. Correct the cell, or import without --unknown error.",
                table->path, (long long)tr_csv_line(table->csv), CUT(c->name), CUT(text),
                known.text ? known.text : "none");
        tr_str_free(&known);
        return TR_ERR_DATA;
    }
    if (c->kind == TR_COLUMN_ORDINAL) {
        *out = (float)category;
        return TR_OK;
    }
    memset(out, 0, (size_t)c->categories.count * sizeof *out);
    if (category >= 0) out[category] = 1;
    return TR_OK;
}

tr_status_t tr_columns_encode(const tr_columns_t *columns, const tr_csv_table_t *table,
                              char *const *field, const int *index, float *out) {
    for (size_t i = 0; i < columns->input.count; i++) {
        const tr_column_t *c = &columns->input.data[i];
        const bool is_number = c->kind == TR_COLUMN_NUMBER;
        const char *text = field[index[i]];
        const bool missing = tr_csv_is_missing(text, is_number);
        double value = c->fill;
        if (missing && !columns->fills) return column_fail_missing(c, table, text);
        if (is_number) {
            if (!missing && (!tr_csv_number(table, text, &value) || !isfinite((float)value)))
                return tr_columns_fail_cell(table, text, index[i],
                                            columns->has_header ? c->name : NULL);
            *out = (float)value;
        } else {
            TR_TRY(column_encode_text(columns, c, table, text, missing, out));
        }
        out += tr_column_width(c);
        if (c->indicator) out[-1] = missing;
    }
    return TR_OK;
}
