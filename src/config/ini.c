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
} parser_t;

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static span_t trim(span_t s) {
    while (s.count > 0 && is_blank(s.at[0])) s.at++, s.count--;
    while (s.count > 0 && is_blank(s.at[s.count - 1])) s.count--;
    return s;
}

static bool is_name(span_t s) {
    for (size_t i = 0; i < s.count; i++)
        if (!isalnum((unsigned char)s.at[i]) && !strchr("_.-", s.at[i])) return false;
    return s.count > 0;
}

/* The column at which the text of the line starts; tabs advance to multiples of eight. */
static int column_of_text(span_t line) {
    int column = 0;
    for (size_t i = 0; i < line.count && is_blank(line.at[i]); i++)
        column = line.at[i] == '\t' ? (column / 8 + 1) * 8 : column + 1;
    return column;
}

/* The index after the quote that closes the one at `open`; 0: it is not closed. */
static size_t end_of_quotes(span_t line, size_t open) {
    for (size_t i = open + 1; i < line.count; i++) {
        if (line.at[i] == '\\')
            i++;
        else if (line.at[i] == '"')
            return i + 1;
    }
    return 0;
}

/* Removes a comment. A quote that is not closed is an ordinary character. */
static span_t without_comment(span_t line) {
    bool quotes_close = true;
    for (size_t i = 0; i < line.count; i++) {
        char c = line.at[i];
        if (c == '"' && quotes_close) {
            size_t end = end_of_quotes(line, i);
            quotes_close = end != 0;
            if (quotes_close) i = end - 1;
        } else if ((c == '#' || c == ';') && (i == 0 || is_blank(line.at[i - 1]))) {
            return (span_t){line.at, i};
        }
    }
    return line;
}

static tr_status_t problem(parser_t *p, int line, const char *message) {
    return p->events->on_problem(p->events->self, line, message);
}

/* Removes the quotes from a value that is completely inside one pair of them, in place. */
static void unquote(tr_str_t *value) {
    char *text = value->text;
    if (!text || text[0] != '"' || strchr(text, '\n')) return;
    if (end_of_quotes((span_t){text, value->length}, 0) != value->length) return;
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

static void reset(tr_str_t *s) {
    s->length = 0;
    tr_str_append_bytes(s, "", 0);
}

static void assign(tr_str_t *s, span_t text) {
    s->length = 0;
    tr_str_append_bytes(s, text.at, text.count);
}

static tr_status_t strings_status(const parser_t *p) {
    return p->section.status ? p->section.status : p->key.status ? p->key.status : p->value.status;
}

/* Reports the key whose value is complete. */
static tr_status_t flush(parser_t *p) {
    TR_TRY(strings_status(p));
    if (!p->has_key) return TR_OK;
    p->has_key = false;
    unquote(&p->value);
    return p->events->on_key(p->events->self, p->section.text, p->key.text, p->value.text,
                             p->key_line);
}

static void continue_value(parser_t *p, span_t text) {
    if (p->value.length > 0) tr_str_append(&p->value, "\n");
    tr_str_append_bytes(&p->value, text.at, text.count);
}

static tr_status_t take_section(parser_t *p, span_t text) {
    TR_TRY(flush(p));
    span_t name = trim((span_t){text.at + 1, text.count > 1 ? text.count - 2 : 0});
    if (text.at[text.count - 1] != ']' || !is_name(name))
        return problem(p, p->line, "expected a section, such as [data], alone on its line");
    assign(&p->section, name);
    return TR_OK;
}

static tr_status_t take_key(parser_t *p, span_t line, span_t text) {
    TR_TRY(flush(p));
    const char *equals = memchr(text.at, '=', text.count);
    span_t key = trim((span_t){text.at, equals ? (size_t)(equals - text.at) : 0});
    if (!is_name(key)) {
        char message[160];
        snprintf(message, sizeof message, "expected key = value, found '%.*s%s'",
                 (int)(text.count < 60 ? text.count : 60), text.at, text.count > 60 ? "..." : "");
        return problem(p, p->line, message);
    }
    assign(&p->key, key);
    assign(&p->value, trim((span_t){equals + 1, text.count - (size_t)(equals + 1 - text.at)}));
    p->has_key = true;
    p->key_line = p->line;
    p->key_column = column_of_text(line);
    return TR_OK;
}

static tr_status_t take_line(parser_t *p, span_t line) {
    if (line.count > TR_INI_LINE_BYTES) {
        char message[96];
        snprintf(message, sizeof message, "the line has %zu bytes; at most %d are allowed",
                 line.count, TR_INI_LINE_BYTES);
        return problem(p, p->line, message);
    }
    span_t text = trim(without_comment(line));
    if (text.count == 0) return TR_OK;
    if (p->has_key && column_of_text(line) > p->key_column) {
        continue_value(p, text);
        return TR_OK;
    }
    return text.at[0] == '[' ? take_section(p, text) : take_key(p, line, text);
}

static tr_status_t take_lines(parser_t *p, const char *text, size_t bytes) {
    const char *end = text + bytes;
    for (p->line = 1; text < end; p->line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *line_end = newline ? newline : end;
        TR_TRY(take_line(p, (span_t){text, (size_t)(line_end - text)}));
        text = line_end + 1;
    }
    return flush(p);
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
    parser_t p = {.events = events};
    int line, byte;
    if (!tr_ini_is_text(text, bytes, &line, &byte)) {
        char message[96];
        snprintf(message, sizeof message, "expected text (UTF-8), found the byte 0x%02x", byte);
        return problem(&p, line, message);
    }
    if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3, bytes -= 3;
    reset(&p.section);
    tr_status_t status = take_lines(&p, text, bytes);
    tr_str_free(&p.section);
    tr_str_free(&p.key);
    tr_str_free(&p.value);
    return status;
}

/* -- writing ----------------------------------------------------------------------------------- */

static void append_plain(tr_str_t *out, const char *key, const char *value) {
    tr_str_printf(out, "%s =%s", key, *value && *value != '\n' ? " " : "");
    for (const char *c = value; *c; c++) {
        tr_str_append_bytes(out, c, 1);
        if (*c == '\n') tr_str_append(out, "    ");
    }
    tr_str_append(out, "\n");
}

static void append_quoted(tr_str_t *out, const char *key, const char *value) {
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

static tr_status_t echo_key(void *self, const char *section, const char *key, const char *value,
                            int line) {
    echo_t *echo = self;
    bool same =
        strcmp(section, "") == 0 && strcmp(key, echo->key) == 0 && strcmp(value, echo->value) == 0;
    *(same ? &echo->matches : &echo->others) += 1;
    return TR_OK;
}

static tr_status_t echo_problem(void *self, int line, const char *message) {
    ((echo_t *)self)->others++;
    return TR_OK;
}

/* The reader itself decides which values need quotes, so that writer and reader cannot disagree. */
void tr_ini_append(tr_str_t *out, const char *key, const char *value) {
    tr_str_append(out, "");
    size_t start = out->length;
    append_plain(out, key, value);
    if (out->status != TR_OK) return;
    echo_t echo = {key, value, 0, 0};
    out->status = tr_ini_parse(out->text + start, out->length - start,
                               &(tr_ini_events_t){&echo, echo_key, echo_problem});
    if (out->status != TR_OK || (echo.matches == 1 && echo.others == 0)) return;
    out->length = start;
    append_quoted(out, key, value);
}
