/* Keeps numbers of lines of metrics.jsonl. */
#include "rows.h"
#include "base/mem.h"

#include <string.h>

/* -- adding ------------------------------------------------------------------------------------ */

void tr_rows_ask(tr_rows_t *rows, const char *key, tr_value_kind_t kind) {
    if (tr_rows_key(rows, key) >= 0 || rows->keys == TR_ROW_KEYS) return;
    rows->key[rows->keys++] = (tr_key_t){key, kind};
    rows->width = rows->keys;
}

tr_status_t tr_rows_number_text(tr_rows_t *rows, const char *text, double *out) {
    if (!rows->texts) rows->texts = json_object();
    const json_t *known = json_object_get(rows->texts, text);
    const size_t next = json_object_size(rows->texts);
    *out = known ? (double)json_integer_value(known) : (double)next;
    if (!known && json_object_set_new(rows->texts, text, json_integer((json_int_t)next)) != 0)
        return TR_FAIL(TR_ERR_MEMORY, "metrics.jsonl: not enough memory for its texts");
    return TR_OK;
}

tr_status_t tr_rows_take_json(tr_rows_t *rows, const json_t *line, double *row) {
    for (size_t i = 0; i < rows->keys; i++) {
        const json_t *value = json_object_get(line, rows->key[i].name);
        row[i] = NAN;
        switch (rows->key[i].kind) {
        case TR_VALUE_NUMBER:
            if (json_is_number(value)) row[i] = json_number_value(value);
            break;
        case TR_VALUE_FLAG:
            if (json_is_boolean(value)) row[i] = json_is_true(value);
            break;
        case TR_VALUE_TEXT:
            if (json_is_string(value))
                TR_TRY(tr_rows_number_text(rows, json_string_value(value), &row[i]));
            break;
        }
    }
    return TR_OK;
}

tr_status_t tr_rows_push(tr_rows_t *rows, const double *row) {
    if (rows->count == rows->room) { /* by a quarter: a long run should not take twice its memory */
        const size_t room = rows->room + rows->room / 4 + 64;
        TR_TRY(tr_realloc(&rows->values, room * rows->width * sizeof *row, "lines of metrics"));
        rows->room = room;
    }
    memcpy(rows->values + rows->count++ * rows->width, row, rows->width * sizeof *row);
    return TR_OK;
}

/* -- keeping some ------------------------------------------------------------------------------ */

bool tr_rows_wants(tr_rows_t *rows) {
    if (rows->every == 0) rows->every = 1;
    return rows->seen++ % rows->every == 0;
}

static double *rows_row(const tr_rows_t *rows, size_t i) {
    return rows->values + i * rows->width;
}

bool tr_rows_thin(tr_rows_t *rows, size_t most) {
    const int flag = tr_rows_column(rows, "best");
    size_t best = rows->count, kept = 0;
    if (rows->count < 2 * most) return false;
    while (best-- > 0 && tr_rows_at(rows, best, flag) != 1) {
    }
    for (size_t i = 0; i < rows->count; i++)
        if (i % 2 == 0 || i == best)
            memmove(rows_row(rows, kept++), rows_row(rows, i), rows->width * sizeof(double));
    rows->count = kept;
    rows->every *= 2;
    return true;
}

void tr_rows_reverse(tr_rows_t *rows) {
    double row[TR_ROW_KEYS];
    const size_t bytes = rows->width * sizeof *row;
    for (size_t i = 0, k = rows->count; i + 1 < k--; i++) {
        memcpy(row, rows_row(rows, i), bytes);
        memcpy(rows_row(rows, i), rows_row(rows, k), bytes);
        memcpy(rows_row(rows, k), row, bytes);
    }
}

tr_status_t tr_rows_copy(const tr_rows_t *rows, tr_rows_t *out) {
    const size_t bytes = rows->count * rows->width * sizeof *rows->values;
    *out = *rows;
    out->values = NULL;
    out->texts = json_deep_copy(rows->texts);
    out->room = rows->count;
    TR_TRY(tr_alloc(bytes, "lines of metrics", &out->values));
    if (bytes > 0) memcpy(out->values, rows->values, bytes);
    return TR_OK;
}

void tr_rows_free(tr_rows_t *rows) {
    tr_free(&rows->values);
    json_decref(rows->texts);
    *rows = (tr_rows_t){0};
}

/* -- reading ----------------------------------------------------------------------------------- */

int tr_rows_key(const tr_rows_t *rows, const char *key) {
    for (size_t i = 0; i < rows->keys; i++)
        if (strcmp(rows->key[i].name, key) == 0) return (int)i;
    return -1;
}

int tr_rows_column(const tr_rows_t *rows, const char *key) {
    const int at = tr_rows_key(rows, key);
    return at < (int)rows->width ? at : -1;
}

double tr_rows_number(const tr_rows_t *rows, size_t i, const char *key) {
    return i < rows->count ? tr_rows_at(rows, i, tr_rows_column(rows, key)) : (double)NAN;
}

const char *tr_rows_text(const tr_rows_t *rows, double number) {
    const char *text;
    json_t *value;
    json_object_foreach(rows->texts, text, value) {
        if ((double)json_integer_value(value) == number) return text;
    }
    return NULL;
}
