/* Writes tables of rows of structs. */
#include "table.h"
#include "mem.h"

#include <math.h>
#include <string.h>

enum { KEY = 64, MOST = 64 }; /* bytes of a key; columns of a table */

/* Of a number or bool; NAN: missing. */
static double column_number(const tr_table_column_t *c, const void *row) {
    const void *at = (const char *)row + c->offset;
    double value = NAN;
    switch (c->kind) {
    case TR_CELL_INT: value = *(const int *)at; break;
    case TR_CELL_INT64: value = (double)*(const int64_t *)at; break;
    case TR_CELL_SIZE: value = (double)*(const size_t *)at; break;
    case TR_CELL_REAL: value = *(const double *)at; break;
    case TR_CELL_BOOL: value = *(const bool *)at; break;
    case TR_CELL_STRING:
    case TR_CELL_CHARS: break;
    }
    return !isfinite(value) || (value == 0 && c->zero_is_missing) ? NAN : value;
}

/* Of a text; NULL: missing. */
static const char *column_string(const tr_table_column_t *c, const void *row) {
    const void *at = (const char *)row + c->offset;
    const char *text = c->kind == TR_CELL_CHARS ? at : *(const char *const *)at;
    return text && *text ? text : NULL;
}

/* -- text -------------------------------------------------------------------------------------- */

static int text_columns(const char *text, size_t bytes) {
    int columns = 0;
    for (size_t i = 0; i < bytes; i++) columns += ((unsigned char)text[i] & 0xC0) != 0x80;
    return columns;
}

int tr_text_columns(const char *text) {
    return text_columns(text, strlen(text));
}

void tr_text_wrap(const char *text, int columns, tr_str_t *out) {
    int at = 0;
    while (*text) {
        const size_t bytes = strcspn(text, " \n");
        const int width = text_columns(text, bytes);
        if (at > 0 && columns > 0 && at + 1 + width > columns) tr_str_append(out, "\n"), at = 0;
        if (at > 0) tr_str_append(out, " "), at++;
        tr_str_append_bytes(out, text, bytes);
        at += width;
        text += bytes;
        if (*text == '\n' && text[1]) tr_str_append(out, "\n"), at = 0;
        text += *text != '\0';
    }
    tr_str_append(out, "\n");
}

/* Control characters would move the cursor. */
static void cell_append(const tr_table_column_t *c, const void *row, tr_str_t *out) {
    const double value = c->kind <= TR_CELL_BOOL ? column_number(c, row) : NAN;
    const char *text = c->kind > TR_CELL_BOOL ? column_string(c, row) : NULL;
    const double shown = c->scale != 0 ? value * c->scale : value;
    char number[64];
    if (!text && isnan(value)) {
        tr_str_append(out, c->missing ? c->missing : "-");
    } else if (text) {
        for (; *text; text++)
            tr_str_append_bytes(out, (unsigned char)*text < ' ' || *text == 127 ? "?" : text, 1);
    } else if (c->kind == TR_CELL_BOOL) {
        tr_str_append(out, value != 0 ? (c->yes ? c->yes : "yes") : (c->no ? c->no : "no"));
    } else if (c->people) {
        tr_str_append(out, c->people(shown, number));
    } else {
        tr_snprintf(number, sizeof number, c->format ? c->format : "%.0f", shown);
        tr_str_append(out, number);
    }
}

/* A line: each column has its width, or is left out where that is 0. */
typedef struct {
    const tr_table_t *t;
    int width[MOST];
    tr_str_t *out;
    int blanks; /* before the next text: a line does not end with blanks */
} line_t;

static void line_add(line_t *l, const char *text, bool is_left, int width) {
    const int columns = tr_text_columns(text), pad = columns < width ? width - columns : 0;
    if (!is_left) l->blanks += pad;
    if (*text) {
        tr_str_printf(l->out, "%*s%s", l->blanks, "", text);
        l->blanks = 0;
    }
    if (is_left) l->blanks += pad;
    l->blanks += 2;
}

static void line_end(line_t *l) {
    tr_str_append(l->out, "\n");
    l->blanks = l->t->indent;
}

static void line_heads(line_t *l) {
    const tr_table_t *t = l->t;
    bool has_above = false;
    if (t->has_no_heads) return;
    for (size_t i = 0; i < t->count; i++)
        has_above = has_above || (l->width[i] > 0 && t->columns[i].above);
    for (size_t i = 0; i < t->count && has_above; i++) {
        const char *above = t->columns[i].above, *next;
        int span = l->width[i];
        if (span == 0) continue;
        for (; i + 1 < t->count && above && (next = t->columns[i + 1].above); i++) {
            if (strcmp(above, next) != 0) break;
            span += l->width[i + 1] ? l->width[i + 1] + 2 : 0;
        }
        line_add(l, above ? above : "", false, span);
    }
    if (has_above) line_end(l);
    for (size_t i = 0; i < t->count; i++)
        if (l->width[i] > 0) line_add(l, t->columns[i].heading, t->columns[i].is_left, l->width[i]);
    line_end(l);
}

static void line_row(line_t *l, const void *row) {
    tr_str_t cell = {0};
    for (size_t i = 0; i < l->t->count; i++) {
        const tr_table_column_t *c = &l->t->columns[i];
        if (l->width[i] == 0) continue;
        cell_append(c, row, &cell);
        line_add(l, cell.text ? cell.text : "", c->is_left, l->width[i]);
        tr_str_free(&cell);
    }
    line_end(l);
}

/* As wide as the headings and the least widths say. */
static line_t line_of(const tr_table_t *t, tr_str_t *out) {
    line_t l = {.t = t, .out = out, .blanks = t->indent};
    for (size_t i = 0; i < t->count && i < MOST; i++) {
        const tr_table_column_t *c = &t->columns[i];
        if (!c->heading) continue;
        l.width[i] = tr_text_columns(c->heading);
        if (l.width[i] < c->width) l.width[i] = c->width;
        if (l.width[i] < 1) l.width[i] = 1;
    }
    return l;
}

static int line_columns(const line_t *l) {
    int columns = l->t->indent - 2;
    for (size_t i = 0; i < l->t->count; i++) columns += l->width[i] > 0 ? l->width[i] + 2 : 0;
    return columns;
}

/* Leaves columns out until the line fits. */
static void line_fit(line_t *l, int columns) {
    while (line_columns(l) > columns) {
        size_t out = 0;
        for (size_t i = 1; i < l->t->count; i++)
            if (l->width[i] > 0 && l->t->columns[i].drop > (out ? l->t->columns[out].drop : 0))
                out = i;
        if (out == 0) return;
        l->width[out] = 0;
    }
}

void tr_table_text(const tr_table_t *t, const void *rows, size_t count, int columns,
                   tr_str_t *out) {
    line_t l = line_of(t, out);
    tr_str_t cell = {0};
    for (size_t r = 0; r < count; r++)
        for (size_t i = 0; i < t->count; i++) {
            if (l.width[i] == 0) continue;
            cell_append(&t->columns[i], (const char *)rows + r * t->row_bytes, &cell);
            const int width = cell.text ? tr_text_columns(cell.text) : 0;
            if (width > l.width[i]) l.width[i] = width;
            tr_str_free(&cell);
        }
    if (columns > 0) line_fit(&l, columns);
    line_heads(&l);
    for (size_t r = 0; r < count; r++) line_row(&l, (const char *)rows + r * t->row_bytes);
}

void tr_table_head(const tr_table_t *t, tr_str_t *out) {
    line_t l = line_of(t, out);
    line_heads(&l);
}

void tr_table_line(const tr_table_t *t, const void *row, tr_str_t *out) {
    line_t l = line_of(t, out);
    line_row(&l, row);
}

/* -- JSON, CSV, plots -------------------------------------------------------------------------- */

/* In the units of the key. */
static double column_value(const tr_table_column_t *c, const void *row) {
    const double value = column_number(c, row);
    return c->key_scale != 0 ? value * c->key_scale : value;
}

/* NULL: it is missing, and the column is optional. */
static json_t *cell_json(const tr_table_column_t *c, const void *row) {
    const char *text = c->kind > TR_CELL_BOOL ? column_string(c, row) : NULL;
    const double value = c->kind <= TR_CELL_BOOL ? column_value(c, row) : NAN;
    if (text) return json_string(text);
    if (isnan(value)) return c->is_optional ? NULL : json_null();
    if (c->kind == TR_CELL_BOOL) return json_boolean(value != 0);
    return c->kind == TR_CELL_REAL || c->key_scale != 0 ? json_real(value)
                                                        : json_integer((json_int_t)value);
}

json_t *tr_table_object(const tr_table_t *t, const void *row) {
    json_t *object = json_object();
    for (size_t i = 0; i < t->count; i++) {
        const tr_table_column_t *c = &t->columns[i];
        json_t *cell = c->key ? cell_json(c, row) : NULL, *in = object;
        const char *point = c->key ? strchr(c->key, '.') : NULL;
        if (!cell) continue;
        if (point) {
            char outer[KEY];
            tr_snprintf(outer, sizeof outer, "%.*s", (int)(point - c->key), c->key);
            if (!json_object_get(object, outer)) json_object_set_new(object, outer, json_object());
            in = json_object_get(object, outer);
        }
        json_object_set_new(in, point ? point + 1 : c->key, cell);
    }
    return object;
}

json_t *tr_table_json(const tr_table_t *t, const void *rows, size_t count) {
    json_t *list = json_array();
    for (size_t r = 0; r < count; r++)
        json_array_append_new(list, tr_table_object(t, (const char *)rows + r * t->row_bytes));
    return list;
}

/* Quoted where it must be (RFC 4180). */
static void table_csv_append(const char *text, tr_str_t *out) {
    const bool is_quoted = text[strcspn(text, ",\"\r\n")] != '\0';
    if (is_quoted) tr_str_append(out, "\"");
    for (; *text; text++) {
        if (*text == '"') tr_str_append(out, "\"");
        tr_str_append_bytes(out, text, 1);
    }
    if (is_quoted) tr_str_append(out, "\"");
}

void tr_table_csv(const tr_table_t *t, const void *rows, size_t count, bool has_head,
                  tr_str_t *out) {
    const char *comma = "";
    for (size_t i = 0; i < t->count && has_head; i++) {
        if (!t->columns[i].key) continue;
        tr_str_printf(out, "%s%s", comma, t->columns[i].key);
        comma = ",";
    }
    if (has_head) tr_str_append(out, "\n");
    for (size_t r = 0; r < count; r++) {
        const void *row = (const char *)rows + r * t->row_bytes;
        comma = "";
        for (size_t i = 0; i < t->count; i++) {
            const tr_table_column_t *c = &t->columns[i];
            if (!c->key) continue;
            tr_str_append(out, comma);
            comma = ",";
            const double value = c->kind <= TR_CELL_BOOL ? column_value(c, row) : NAN;
            if (c->kind > TR_CELL_BOOL)
                table_csv_append(column_string(c, row) ? column_string(c, row) : "", out);
            else if (isfinite(value))
                tr_str_printf(out, "%.*g", value == floor(value) ? 17 : 6, value);
        }
        tr_str_append(out, "\n");
    }
}

double tr_table_number(const tr_table_t *t, const void *row, const char *key) {
    for (size_t i = 0; i < t->count; i++)
        if (t->columns[i].key && strcmp(t->columns[i].key, key) == 0)
            return column_value(&t->columns[i], row);
    return NAN;
}
