/* Writes comparisons as text, HTML, CSV and JSON. */
#include "comparison_table.h"
#include "report/page/html.h"
#include "report/page/svg.h"
#include "base/json_text.h"
#include "base/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- cells ------------------------------------------------------------------------------------- */

enum { COLUMNS = 64, CELL = 64, NAME_LEAST = 16 };
typedef enum {
    COL_NAME,
    COL_KEY,
    COL_COUNT,
    COL_FIGURE,
    COL_STEP,
    COL_STEPS,
    COL_TIME,
    COL_STATE
} column_kind_t;
typedef struct {
    column_kind_t kind;
    int index; /* of the key or figure */
    char title[CELL];
    int width;
    bool is_left, is_out; /* does not fit */
} column_t;
typedef struct {
    const tr_comparison_t *c;
    column_t column[COLUMNS];
    int count;
} table_t;

static void table_add(table_t *t, column_kind_t kind, size_t index, const char *title) {
    if (t->count == COLUMNS) return;
    column_t *column = &t->column[t->count++];
    *column = (column_t){.kind = kind, .index = (int)index};
    column->is_left = kind == COL_NAME || kind == COL_STATE;
    tr_snprintf(column->title, CELL, "%s", title);
}

static table_t table_of(const tr_comparison_t *c) {
    table_t t = {.c = c};
    table_add(&t, COL_NAME, 0, "run");
    for (size_t k = 0; k < c->keys.count && k < COLUMNS - TR_FIGURES - 8; k++)
        table_add(&t, COL_KEY, k, tr_comparison_short(c, c->keys.data[k]));
    if (c->groups.count < c->entries.count) table_add(&t, COL_COUNT, 0, "n");
    for (int f = 0; f < c->figures; f++) {
        table_add(&t, COL_FIGURE, (size_t)f, c->figure[f]);
        if (f == 0 && c->is_ranked && tr_comparison_is_valid(c, c->figure[0]))
            table_add(&t, COL_STEP, 0, "at step");
    }
    table_add(&t, COL_STEPS, 0, "steps");
    table_add(&t, COL_TIME, 0, "time");
    table_add(&t, COL_STATE, 0, "state");
    return t;
}

/* "0.0712", or "0.0712 (0.0031)" with the deviation to the same decimals. */
static void cell_figure(const tr_group_t *g, int f, tr_str_t *out) {
    const double mean = g->mean[f], deviation = g->deviation[f];
    if (!isfinite(mean)) {
        tr_str_append(out, "-");
        return;
    }
    const double power = mean != 0 ? floor(log10(fabs(mean))) : 0;
    const int decimals = power >= 3 ? 0 : (int)fmin(8, 3 - power);
    if (power < -4 || power > 6)
        tr_str_printf(out, "%.3e", mean);
    else
        tr_str_printf(out, "%.*f", decimals, mean);
    if (isfinite(deviation) && (power < -4 || power > 6))
        tr_str_printf(out, " (%.1e)", deviation);
    else if (isfinite(deviation))
        tr_str_printf(out, " (%.*f)", decimals, deviation);
}

/* "done", or "2 done, 1 killed". */
static void cell_state(const tr_comparison_t *c, const tr_group_t *g, tr_str_t *out) {
    for (size_t i = 0; i < g->runs.count; i++) {
        const char *text = c->entries.data[g->runs.data[i]].state.text;
        size_t same = 0, before = 0;
        for (size_t k = 0; k < g->runs.count; k++)
            if (strcmp(text, c->entries.data[g->runs.data[k]].state.text) == 0)
                same++, before += k < i;
        if (before > 0) continue;
        tr_str_append(out, i > 0 ? ", " : "");
        if (same < g->runs.count) tr_str_printf(out, "%zu ", same);
        tr_str_append(out, text);
    }
}

/* The mean of the double at `offset` of the entries of a group that count. */
static double group_mean(const tr_comparison_t *c, const tr_group_t *g, size_t offset) {
    double sum = 0, value;
    int known = 0;
    for (size_t i = 0; i < g->runs.count; i++) {
        const tr_entry_t *e = &c->entries.data[g->runs.data[i]];
        memcpy(&value, (const char *)e + offset, sizeof value);
        if (isfinite(value) && tr_group_counts(c, g, e)) sum += value, known++;
    }
    return known ? sum / known : NAN;
}

static void cell_write(const table_t *t, int column, size_t group, tr_str_t *out) {
    const tr_comparison_t *c = t->c;
    const tr_group_t *g = &c->groups.data[group];
    const tr_entry_t *first = &c->entries.data[g->runs.data[0]];
    const int index = t->column[column].index;
    char time[32];
    double value, total;
    switch (t->column[column].kind) {
    case COL_NAME:
        tr_str_append(out, first->record->name);
        if (g->runs.count > 1) tr_str_printf(out, " +%zu", g->runs.count - 1);
        break;
    case COL_KEY: tr_comparison_value(c, first, c->keys.data[index], out); break;
    case COL_COUNT:
        tr_str_printf(out, "%d", g->counted);
        if ((size_t)g->counted < g->runs.count) tr_str_printf(out, " of %zu", g->runs.count);
        break;
    case COL_FIGURE: cell_figure(g, index, out); break;
    case COL_STEP:
        value = group_mean(c, g, offsetof(tr_entry_t, best_step));
        tr_str_printf(out, isfinite(value) ? "%.0f" : "-", value);
        break;
    case COL_STEPS:
        value = group_mean(c, g, offsetof(tr_entry_t, steps));
        total = group_mean(c, g, offsetof(tr_entry_t, of_steps));
        tr_str_printf(out, isfinite(value) ? "%.0f" : "-", value);
        if (isfinite(total)) tr_str_printf(out, "/%.0f", total);
        break;
    case COL_TIME:
        value = group_mean(c, g, offsetof(tr_entry_t, sec));
        tr_str_append(out, isfinite(value) ? tr_format_duration(value, time) : "-");
        break;
    case COL_STATE: cell_state(c, g, out); break;
    }
    if (!out->length) tr_str_append(out, " ");
}

/* -- terminal ---------------------------------------------------------------------------------- */

static int table_width(const table_t *t) {
    int width = 2;
    for (int i = 0; i < t->count; i++)
        if (!t->column[i].is_out) width += t->column[i].width + 2;
    return width - 2;
}

/* Shortens names, then leaves out columns. */
static void table_fit(table_t *t, int columns) {
    static const column_kind_t order[] = {COL_FIGURE, COL_TIME, COL_STEPS, COL_STEP, COL_KEY};
    const int over = table_width(t) - columns, name = t->column[0].width;
    if (over > 0 && name > NAME_LEAST)
        t->column[0].width = name - over > NAME_LEAST ? name - over : NAME_LEAST;
    for (size_t k = 0; k < TR_COUNT(order); k++)
        for (int i = t->count - 1; i > 0 && table_width(t) > columns; i--)
            if (t->column[i].kind == order[k] && (order[k] != COL_FIGURE || t->column[i].index > 0))
                t->column[i].is_out = true;
    const int room = columns - table_width(t);
    if (t->column[0].width < name && room > 0)
        t->column[0].width = name < t->column[0].width + room ? name : t->column[0].width + room;
}

static void table_print_cell(const column_t *column, const char *text, bool is_last,
                             tr_str_t *out) {
    int columns = tr_text_columns(text);
    const char *end = text + strlen(text);
    if (columns > column->width) { /* a name: its end, where numbers are */
        for (; columns > column->width - 2; columns--) do
                text++;
            while (((unsigned char)*text & 0xC0) == 0x80);
        tr_str_append(out, "..");
        columns += 2;
    }
    if (!column->is_left) tr_str_printf(out, "%*s", column->width - columns, "");
    for (; text < end; text++) /* control characters move the cursor */
        tr_str_append_bytes(out, (unsigned char)*text < ' ' || *text == 127 ? "?" : text, 1);
    if (column->is_left && !is_last) tr_str_printf(out, "%*s", column->width - columns, "");
    tr_str_append(out, is_last ? "\n" : "  ");
}

static void comparison_explain(const tr_comparison_t *c, tr_str_t *out) {
    if (c->note[0]) tr_str_printf(out, "%s ", c->note);
    if (!c->is_ranked) {
        tr_str_append(out, "The runs are not ranked.");
    } else {
        const char *by = c->figure[0];
        const bool is_valid = tr_comparison_is_valid(c, by);
        tr_str_printf(out, "Ranked by %s%s; %s is better.", is_valid ? "the best " : "", by,
                      c->is_up ? "higher" : "lower");
    }
    int selected = 0;
    for (size_t i = 0; i < c->entries.count; i++)
        selected +=
            json_is_true(json_object_get(c->entries.data[i].record->summary, "test_selected"));
    if (selected > 0)
        tr_str_printf(out,
                      " The test data of %d run%s are the validation data, on which the best "
                      "checkpoint was selected: these scores are too good.",
                      selected, selected > 1 ? "s" : "");
    if (c->groups.count < c->entries.count && c->seeds.count > 0)
        tr_str_printf(out,
                      " A row of several runs, which differ only in %s%s, shows the mean (sample "
                      "standard deviation) of its n runs that are done, or of all if none is.",
                      c->seeds.data[0], c->seeds.count > 1 ? " and data.fold" : "");
}

void tr_comparison_print(const tr_comparison_t *c, int columns, tr_str_t *out) {
    table_t t = table_of(c);
    tr_str_t words = {0}, cell = {0};
    for (int i = 0; i < t.count; i++) t.column[i].width = tr_text_columns(t.column[i].title);
    for (size_t g = 0; g < c->groups.count; g++)
        for (int i = 0; i < t.count; i++) {
            cell_write(&t, i, g, &cell);
            const int width = cell.text ? tr_text_columns(cell.text) : 0;
            if (width > t.column[i].width) t.column[i].width = width;
            tr_str_free(&cell);
        }
    if (columns > 0) table_fit(&t, columns);
    tr_str_append(out, "  ");
    for (int i = 0; i < t.count; i++)
        if (!t.column[i].is_out)
            table_print_cell(&t.column[i], t.column[i].title, i == t.count - 1, out);
    for (size_t g = 0; g < c->groups.count; g++) {
        const bool is_best = g == 0 && c->is_ranked && isfinite(c->groups.data[0].mean[0]);
        tr_str_append(out, is_best ? "* " : "  ");
        for (int i = 0; i < t.count; i++) {
            if (t.column[i].is_out) continue;
            cell_write(&t, i, g, &cell);
            if (cell.text) table_print_cell(&t.column[i], cell.text, i == t.count - 1, out);
            tr_str_free(&cell);
        }
    }
    comparison_explain(c, &words);
    const char *first = " Left out to fit the terminal: ";
    for (int i = 0; i < t.count; i++)
        if (t.column[i].is_out) {
            tr_str_printf(&words, "%s%s", first, t.column[i].title);
            first = ", ";
        }
    if (first[0] == ',') tr_str_append(&words, ".");
    tr_str_append(out, "\n");
    if (words.text) tr_text_wrap(words.text, columns, out);
    tr_str_free(&words);
    for (size_t i = 0; i < c->entries.count; i++) {
        const tr_entry_t *e = &c->entries.data[i];
        if (e->state.kind != TR_RUN_FAILED || !e->record->reason[0]) continue;
        tr_str_printf(&words, "%s %s: %s", e->record->name, e->state.text, e->record->reason);
        if (words.text) tr_text_wrap(words.text, columns, out);
        tr_str_free(&words);
    }
}

/* -- page -------------------------------------------------------------------------------------- */

void tr_comparison_html(const tr_comparison_t *c, bool has_curves, tr_str_t *out) {
    const table_t t = table_of(c);
    tr_str_t text = {0};
    comparison_explain(c, &text);
    tr_html_element(out, "p", text.text ? text.text : "");
    tr_str_free(&text);
    tr_str_append(out, "<table class=\"compared\"><tr>");
    for (int i = 0; i < t.count; i++)
        tr_html_element(out, t.column[i].is_left ? "th class=\"text\"" : "th", t.column[i].title);
    tr_str_append(out, "</tr>\n");
    for (size_t g = 0; g < c->groups.count; g++) {
        const bool is_best = g == 0 && c->is_ranked && isfinite(c->groups.data[0].mean[0]);
        tr_str_append(out, is_best ? "<tr class=\"best\">" : "<tr>");
        for (int i = 0; i < t.count; i++) {
            cell_write(&t, i, g, &text);
            tr_str_append(out, t.column[i].is_left ? "<td class=\"text\">" : "<td>");
            if (has_curves && i == 0 && g < TR_RUN_ROLES)
                tr_svg_swatch((tr_svg_role_t)(TR_SHOWS_RUN_1 + g), out);
            tr_html_text(out, text.text ? text.text : "");
            tr_str_append(out, "</td>\n");
            tr_str_free(&text);
        }
        tr_str_append(out, "</tr>\n");
    }
    tr_str_append(out, "</table>\n");
}
