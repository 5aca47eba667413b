/* Columns of a table: what they become, and converting a row. */
#include "columns.h"
#include "base/mem.h"
#include "data/shared.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUT(text) (int)tr_utf8_bytes(text, 60), text
#define SAID      8 /* columns with cells that do not fit */

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
    char found[96] = "the cell is empty", remedy[TR_CSV_REMEDY_BYTES], called[80] = "";
    if (name) snprintf(called, sizeof called, " ('%.*s')", CUT(name));
    if (*text) snprintf(found, sizeof found, "found '%.*s'", (int)tr_utf8_bytes(text, 40), text);
    tr_csv_remedy(table, text, remedy, sizeof remedy);
    return TR_FAIL(TR_ERR_DATA,
                   "'%s', line %lld, column %d%s: %s; expected a number in the range of a 32-bit "
                   "float; %s, or remove the row or the column.",
                   table->path, (long long)tr_csv_line(table->csv), column + 1, called, found,
                   remedy);
}

/* -- cells that do not fit --------------------------------------------------------------------- */

tr_status_t tr_cells_add(tr_cells_t *cells, const tr_csv_table_t *table, const char *text) {
    if (cells->count++ > 0) return TR_OK;
    cells->line = tr_csv_line(table->csv);
    return tr_strdup(text, &cells->text);
}

void tr_cells_say(const tr_cells_t *cells, tr_str_t *out) {
    if (cells->text && *cells->text)
        tr_str_printf(out, ", found '%.*s' in line %lld", CUT(cells->text), (long long)cells->line);
    else
        tr_str_printf(out, ", found an empty cell in line %lld", (long long)cells->line);
    if (cells->count > 1) tr_str_printf(out, " (%lld more)", (long long)cells->count - 1);
}

void tr_cells_free(tr_cells_t *cells) {
    tr_free(&cells->text);
}

void tr_columns_free_faults(const tr_columns_t *columns, tr_column_faults_t **faults) {
    for (size_t i = 0; *faults && i < columns->input.count; i++) {
        tr_cells_free(&(*faults)[i].wrong);
        tr_cells_free(&(*faults)[i].missing);
        tr_cells_free(&(*faults)[i].unknown);
    }
    tr_free(faults);
}

void tr_columns_say_faults(const tr_columns_t *columns, const int *index,
                           const tr_column_faults_t *faults, tr_str_t *out) {
    bool has_missing = false, has_unknown = false;
    int found = 0;
    for (size_t i = 0; i < columns->input.count; i++) {
        const tr_column_t *c = &columns->input.data[i];
        const tr_column_faults_t *f = &faults[i];
        const bool refuses = columns->refuses_unknown && f->unknown.count > 0;
        if (f->wrong.count + f->missing.count == 0 && !refuses) continue;
        has_missing = has_missing || f->missing.count > 0;
        has_unknown = has_unknown || refuses;
        if (++found > SAID) continue;
        tr_str_printf(out, "%s column %d", found > 1 ? ";" : "", index[i] + 1);
        if (columns->has_header) tr_str_printf(out, " ('%.*s')", CUT(c->name));
        if (f->wrong.count > 0) {
            tr_str_append(out, ": expected a number in the range of a 32-bit float");
            tr_cells_say(&f->wrong, out);
        }
        if (f->missing.count > 0) {
            tr_str_append(out, f->wrong.count > 0 ? ", and a value" : ": expected a value");
            tr_cells_say(&f->missing, out);
        }
        if (refuses) {
            tr_str_append(out, ": expected one of the categories ");
            tr_names_say((const char *const *)c->categories.name, c->categories.count, out);
            tr_cells_say(&f->unknown, out);
        }
    }
    if (found > SAID) tr_str_printf(out, "; and %d more columns", found - SAID);
    if (found > 0) tr_str_append(out, ". Correct the cells or remove the rows");
    if (has_missing)
        tr_str_append(out,
                      "; for rows with missing cells, import the training table with --missing "
                      "mean, median or zero, and train again");
    if (has_unknown)
        tr_str_append(out, "; without --unknown error, the import accepts other categories");
    if (found > 0) tr_str_append(out, ".");
}

/* -- converting -------------------------------------------------------------------------------- */

tr_status_t tr_columns_encode(const tr_columns_t *columns, const tr_csv_table_t *table,
                              char *const *field, const int *index, tr_column_faults_t *faults,
                              float *out) {
    for (size_t i = 0; i < columns->input.count; i++) {
        const tr_column_t *c = &columns->input.data[i];
        const bool is_number = c->kind == TR_COLUMN_NUMBER;
        const char *text = field[index[i]];
        const int64_t category = is_number ? -1 : tr_column_category(c, text);
        const bool missing = category < 0 && tr_csv_is_missing(text, is_number);
        double value = c->fill;
        if (missing) {
            if (!columns->fills) TR_TRY(tr_cells_add(&faults[i].missing, table, text));
        } else if (is_number) {
            if (!tr_csv_number(table, text, &value) || !isfinite((float)value))
                TR_TRY(tr_cells_add(&faults[i].wrong, table, text));
        } else if (category < 0) {
            TR_TRY(tr_cells_add(&faults[i].unknown, table, text));
        }
        if (c->kind == TR_COLUMN_ONE_HOT) {
            memset(out, 0, (size_t)c->categories.count * sizeof *out);
            if (category >= 0) out[category] = 1;
        } else {
            *out = is_number ? (float)value : (float)category;
        }
        out += tr_column_width(c);
        if (c->indicator) out[-1] = missing;
    }
    return TR_OK;
}
