/* The ini reader and writer. */
#include "ini.h"
#include "base/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *at;
    size_t count;
} span_t;

typedef struct {
    const tr_ini_events_t *events;
    int line;
    tr_str_t section, key, value;
    bool has_key;
    int key_line, key_column;
} ini_parser_t;

static bool ini_is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static span_t span_trim(span_t s) {
    while (s.count > 0 && ini_is_blank(s.at[0])) s.at++, s.count--;
    while (s.count > 0 && ini_is_blank(s.at[s.count - 1])) s.count--;
    return s;
}

static bool span_is_name(span_t s) {
    for (size_t i = 0; i < s.count; i++)
        if (!isalnum((unsigned char)s.at[i]) && !strchr("_.-", s.at[i])) return false;
    return s.count > 0;
}

/* The column at which the text of the line starts; tabs advance to multiples of eight. */
static int span_column(span_t line) {
    int column = 0;
    for (size_t i = 0; i < line.count && ini_is_blank(line.at[i]); i++)
        column = line.at[i] == '\t' ? (column / 8 + 1) * 8 : column + 1;
    return column;
}

/* The index after the quote that closes the one at `open`; 0: it is not closed. */
static size_t span_end_of_quotes(span_t line, size_t open) {
    for (size_t i = open + 1; i < line.count; i++) {
        if (line.at[i] == '\\')
            i++;
        else if (line.at[i] == '"')
            return i + 1;
    }
    return 0;
}

/* Removes a comment. A quote that is not closed is an ordinary character. */
static span_t span_without_comment(span_t line) {
    bool quotes_close = true;
    for (size_t i = 0; i < line.count; i++) {
        char c = line.at[i];
        if (c == '"' && quotes_close) {
            size_t end = span_end_of_quotes(line, i);
            quotes_close = end != 0;
            if (quotes_close) i = end - 1;
        } else if ((c == '#' || c == ';') && (i == 0 || ini_is_blank(line.at[i - 1]))) {
            return (span_t){line.at, i};
        }
    }
    return line;
}

static tr_status_t ini_problem(ini_parser_t *p, int line, const char *message) {
    return p->events->on_problem(p->events->self, line, message);
}

/* Removes the quotes from a value that is completely inside one pair of them, in place. */
static void ini_unquote(tr_str_t *value) {
    char *text = value->text;
    if (!text || text[0] != '"' || strchr(text, '\n')) return;
    if (span_end_of_quotes((span_t){text, value->length}, 0) != value->length) return;
    size_t used = 0;
    for (size_t i = 1; i + 1 < value->length; i++) {
        static const char escapes[] = "nrt\"\\", meanings[] = "\n\r\t\"\\";
        const char *escape = text[i] == '\\' ? strchr(escapes, text[i + 1]) : NULL;
        text[used++] = escape ? meanings[escape - escapes] : text[i];
        if (escape) i++;
    }
    text[used] = '\0';
    value->length = used;
}

static void str_set(tr_str_t *s, span_t text) {
    s->length = 0;
    tr_str_append_bytes(s, text.at, text.count);
}

/* Reports the key whose value is complete. */
static tr_status_t ini_end_key(ini_parser_t *p) {
    TR_TRY(p->section.status);
    TR_TRY(p->key.status);
    TR_TRY(p->value.status);
    if (!p->has_key) return TR_OK;
    p->has_key = false;
    ini_unquote(&p->value);
    return p->events->on_key(p->events->self, p->section.text, p->key.text, p->value.text,
                             p->key_line);
}

static tr_status_t ini_take_line(ini_parser_t *p, span_t line) {
    char message[160];
    if (line.count > TR_INI_LINE_BYTES) {
        snprintf(message, sizeof message, "the line has %zu bytes; at most %d are allowed",
                 line.count, TR_INI_LINE_BYTES);
        return ini_problem(p, p->line, message);
    }
    span_t text = span_trim(span_without_comment(line));
    if (text.count == 0) return TR_OK;
    if (p->has_key && span_column(line) > p->key_column) { /* continues the value */
        if (p->value.length > 0) tr_str_append(&p->value, "\n");
        tr_str_append_bytes(&p->value, text.at, text.count);
        return TR_OK;
    }
    TR_TRY(ini_end_key(p));
    if (text.at[0] == '[') {
        span_t name = span_trim((span_t){text.at + 1, text.count > 1 ? text.count - 2 : 0});
        if (text.at[text.count - 1] != ']' || !span_is_name(name))
            return ini_problem(p, p->line, "expected a section, such as [data], alone on its line");
        str_set(&p->section, name);
        return TR_OK;
    }
    const char *equals = memchr(text.at, '=', text.count);
    span_t key = span_trim((span_t){text.at, equals ? (size_t)(equals - text.at) : 0});
    if (!span_is_name(key)) {
        snprintf(message, sizeof message, "expected key = value, found '%.*s%s'",
                 (int)(text.count < 60 ? text.count : 60), text.at, text.count > 60 ? "..." : "");
        return ini_problem(p, p->line, message);
    }
    str_set(&p->key, key);
    str_set(&p->value,
            span_trim((span_t){equals + 1, text.count - (size_t)(equals + 1 - text.at)}));
    p->has_key = true;
    p->key_line = p->line;
    p->key_column = span_column(line);
    return TR_OK;
}

bool tr_ini_is_text(const char *text, size_t bytes, int *out_line, int *out_byte) {
    int line = 1;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        line += c == '\n';
        if ((c >= ' ' && c != 0x7F) || c == '\t' || c == '\n' || c == '\r') continue;
        *out_line = line;
        *out_byte = c;
        return false;
    }
    return true;
}

tr_status_t tr_ini_parse(const char *text, size_t bytes, const tr_ini_events_t *events) {
    ini_parser_t p = {.events = events};
    const char *end = text + bytes;
    tr_status_t status = TR_OK;
    int line, byte;
    if (!tr_ini_is_text(text, bytes, &line, &byte)) {
        char message[96];
        snprintf(message, sizeof message, "expected text (UTF-8), found the byte 0x%02x", byte);
        return ini_problem(&p, line, message);
    }
    if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3;
    str_set(&p.section, (span_t){"", 0});
    for (p.line = 1; text < end && status == TR_OK; p.line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *line_end = newline ? newline : end;
        status = ini_take_line(&p, (span_t){text, (size_t)(line_end - text)});
        text = line_end + 1;
    }
    if (status == TR_OK) status = ini_end_key(&p);
    tr_str_free(&p.section);
    tr_str_free(&p.key);
    tr_str_free(&p.value);
    return status;
}

/* -- writing ----------------------------------------------------------------------------------- */

static void ini_append_quoted(tr_str_t *out, const char *key, const char *value) {
    tr_str_printf(out, "%s = \"", key);
    for (const char *c = value; *c; c++) {
        switch (*c) {
        case '\n': tr_str_append(out, "\\n"); break;
        case '\r': tr_str_append(out, "\\r"); break;
        case '\t': tr_str_append(out, "\\t"); break;
        case '"': tr_str_append(out, "\\\""); break;
        case '\\': tr_str_append(out, "\\\\"); break;
        default: tr_str_append_bytes(out, c, 1);
        }
    }
    tr_str_append(out, "\"\n");
}

typedef struct {
    const char *key, *value;
    int matches, others;
} echo_t;

static tr_status_t echo_on_key(void *self, const char *section, const char *key, const char *value,
                               int line) {
    echo_t *echo = self;
    bool same =
        strcmp(section, "") == 0 && strcmp(key, echo->key) == 0 && strcmp(value, echo->value) == 0;
    *(same ? &echo->matches : &echo->others) += 1;
    return TR_OK;
}

static tr_status_t echo_on_problem(void *self, int line, const char *message) {
    ((echo_t *)self)->others++;
    return TR_OK;
}

/* The reader itself decides which values need quotes, so that writer and reader cannot disagree. */
void tr_ini_append(tr_str_t *out, const char *key, const char *value) {
    tr_str_append(out, "");
    size_t start = out->length;
    tr_str_printf(out, "%s =%s", key, *value && *value != '\n' ? " " : "");
    for (const char *c = value; *c; c++) {
        tr_str_append_bytes(out, c, 1);
        if (*c == '\n') tr_str_append(out, "    ");
    }
    tr_str_append(out, "\n");
    if (out->status != TR_OK) return;
    echo_t echo = {key, value, 0, 0};
    out->status = tr_ini_parse(out->text + start, out->length - start,
                               &(tr_ini_events_t){&echo, echo_on_key, echo_on_problem});
    if (out->status != TR_OK || (echo.matches == 1 && echo.others == 0)) return;
    out->length = start;
    ini_append_quoted(out, key, value);
}
