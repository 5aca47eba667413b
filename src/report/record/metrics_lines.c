/* Reads lines of metrics: those that the program writes without making JSON objects of them. */
#include "metrics_lines.h"
#include "base/file.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

/* -- values ------------------------------------------------------------------------------------ */

static bool char_is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Each of these returns what follows the value at `p`; NULL: it is none, or one for jansson. */

/* out: may be NULL. */
static const char *scan_json_number(const char *p, double *out) {
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    enum { EXACT_TENS = 22, EXACT_DIGITS = 18, MOST_DIGITS = 40, MOST_POWER = 250 };
    const char *begin = p;
    const bool is_negative = *p == '-';
    uint64_t digits = 0;
    int count = 0, scale = 0, power = 0;
    p += is_negative;
    if (!char_is_digit(*p) || (*p == '0' && char_is_digit(p[1]))) return NULL;
    for (; char_is_digit(*p); count++) digits = 10 * digits + (uint64_t)(*p++ - '0');
    const bool is_real = *p == '.' || *p == 'e' || *p == 'E';
    if (*p == '.') {
        if (!char_is_digit(*++p)) return NULL;
        for (; char_is_digit(*p); count++, scale--) digits = 10 * digits + (uint64_t)(*p++ - '0');
    }
    if (*p == 'e' || *p == 'E') {
        const bool is_small = *++p == '-';
        p += *p == '-' || *p == '+';
        if (!char_is_digit(*p)) return NULL;
        while (char_is_digit(*p) && power < MOST_POWER) power = 10 * power + (*p++ - '0');
        scale += is_small ? -power : power;
    }
    if (power >= MOST_POWER || count > (is_real ? MOST_DIGITS : EXACT_DIGITS)) return NULL;
    if (!out) return p;
    if (!is_real)
        *out = (double)(is_negative ? -(int64_t)digits : (int64_t)digits);
    else if (count > EXACT_DIGITS || digits > 1ull << 53 || abs(scale) > EXACT_TENS)
        *out = tr_strtod(begin, NULL);
    else /* one rounding of two exact numbers */
        *out = (is_negative ? -1 : 1) *
               (scale < 0 ? (double)digits / tens[-scale] : (double)digits * tens[scale]);
    return p;
}

/* `p` is behind the quote. Escapes, and what may be no UTF-8, are for jansson. */
static const char *scan_string(const char *p) {
    while ((unsigned char)*p >= ' ' && (unsigned char)*p < 127 && *p != '"' && *p != '\\') p++;
    return *p == '"' ? p + 1 : NULL;
}

/* -- lines ------------------------------------------------------------------------------------- */

enum { PLACES = 64, NAME = 32 };

/* Looks for keys. Lines have the same keys at the same places: where each was in the last line. */
typedef struct {
    tr_rows_t *rows;
    struct {
        char name[NAME];
        size_t length;
        int column; /* -1: nobody asked for it */
    } place[PLACES];
} scan_t;

static const char *scan_key(scan_t *s, size_t at, const char *p, int *out_column) {
    const bool has_place = at < PLACES;
    const size_t expected = has_place ? s->place[at].length : 0;
    if (expected > 0 && strncmp(p, s->place[at].name, expected) == 0 && p[expected] == '"') {
        *out_column = s->place[at].column;
        return p + expected + 1;
    }
    const char *end = scan_string(p);
    if (!end) return NULL;
    const size_t length = (size_t)(end - 1 - p);
    *out_column = -1;
    for (size_t i = 0; i < s->rows->keys && *out_column < 0; i++)
        if (strncmp(s->rows->key[i].name, p, length) == 0 && !s->rows->key[i].name[length])
            *out_column = (int)i;
    if (has_place && length < NAME) {
        memcpy(s->place[at].name, p, length);
        s->place[at].length = length;
        s->place[at].column = *out_column;
    }
    return end;
}

static const char *scan_value(scan_t *s, int column, const char *p, double *out) {
    static const char *const words[] = {"false", "true", "null"};
    const tr_value_kind_t kind = column >= 0 ? s->rows->key[column].kind : TR_VALUE_NUMBER;
    const bool is_number = column >= 0 && kind == TR_VALUE_NUMBER;
    const char *end;
    *out = NAN;
    if (*p == '"') {
        char text[256];
        if (!(end = scan_string(p + 1))) return NULL;
        const size_t length = (size_t)(end - p - 2);
        if (column < 0 || kind != TR_VALUE_TEXT) return end;
        if (length >= sizeof text) return NULL;
        memcpy(text, p + 1, length);
        text[length] = '\0';
        return tr_rows_number_text(s->rows, text, out) == TR_OK ? end : NULL;
    }
    for (int i = 0; i < 3; i++) {
        const size_t length = strlen(words[i]);
        if (*p != words[i][0]) continue;
        if (strncmp(p, words[i], length) != 0) return NULL;
        if (kind == TR_VALUE_FLAG && i < 2) *out = i;
        return p + length;
    }
    return scan_json_number(p, is_number ? out : NULL);
}

/* False: it is not the flat object, without blanks, that the program writes. */
static bool scan_flat(scan_t *s, const char *text, size_t bytes, double *row) {
    const char *p = text;
    if (*p++ != '{') return false;
    for (size_t i = 0; i < s->rows->keys; i++) row[i] = NAN;
    for (size_t at = 0;; at++) {
        int column;
        double value;
        if (*p++ != '"' || !(p = scan_key(s, at, p, &column)) || *p++ != ':') return false;
        if (!(p = scan_value(s, column, p, &value))) return false;
        if (column >= 0) row[column] = value;
        if (*p != ',') break;
        p++;
    }
    if (*p++ != '}') return false;
    return p + (*p == '\n') == text + bytes;
}

/* What follows the words; NULL: the text does not begin with them. */
static const char *text_behind(const char *text, const char *words) {
    const size_t length = strlen(words);
    return strncmp(text, words, length) == 0 ? text + length : NULL;
}

/* By its first keys, which the program writes in a fixed order. */
static tr_line_kind_t line_kind(const char *text, size_t bytes) {
    const char *p = text_behind(text, "{\"step\":");
    if (p) p = scan_json_number(p, NULL);
    if (p && text_behind(p, ",\"alert\":")) return TR_LINE_OTHER;
    if (p) p = text_behind(p, ",\"epoch\":");
    if (p) p = scan_json_number(p, NULL);
    if (p && text_behind(p, ",\"loss\":")) return TR_LINE_TRAINING;
    if (p && text_behind(p, ",\"valid_loss\":")) return TR_LINE_VALIDATION;
    json_t *line = json_loadb(text, bytes, 0, NULL);
    const tr_line_kind_t kind = !json_is_object(line) || json_object_get(line, "alert")
                                    ? TR_LINE_OTHER
                                : json_object_get(line, "valid_loss") ? TR_LINE_VALIDATION
                                                                      : TR_LINE_TRAINING;
    json_decref(line);
    return kind;
}

/* -- files ------------------------------------------------------------------------------------- */

typedef struct {
    const tr_metrics_lines_t *how;
    scan_t training, validation;
    bool has_best;
    tr_status_t status;
} reader_t;

static tr_status_t reader_keep(reader_t *r, tr_line_kind_t kind, const char *text, size_t bytes) {
    scan_t *scan = kind == TR_LINE_TRAINING ? &r->training : &r->validation;
    tr_rows_t *rows = scan->rows;
    double row[TR_ROW_KEYS];
    if (!scan_flat(scan, text, bytes, row)) {
        json_t *line = json_loadb(text, bytes, 0, NULL);
        const bool is_object = json_is_object(line);
        const tr_status_t status = is_object ? tr_rows_take_json(rows, line, row) : TR_OK;
        json_decref(line);
        if (status != TR_OK || !is_object) return status;
    }
    if (r->how->see) TR_TRY(r->how->see(r->how->self, kind, text, bytes, row));
    TR_TRY(tr_rows_push(rows, row));
    if (r->how->lines == TR_LINES_SPREAD && kind == TR_LINE_TRAINING)
        (void)tr_rows_thin(rows, r->how->most);
    return TR_OK;
}

static bool reader_take(void *self, const char *text, size_t bytes) {
    reader_t *r = self;
    const tr_line_kind_t kind = line_kind(text, bytes);
    if (kind == TR_LINE_OTHER) return true;
    if (kind == TR_LINE_TRAINING && !tr_rows_wants(r->training.rows)) return true;
    r->status = reader_keep(r, kind, text, bytes);
    return r->status == TR_OK;
}

static bool reader_take_newest(void *self, const char *text, size_t bytes) {
    reader_t *r = self;
    const tr_rows_t *training = r->training.rows, *validation = r->validation.rows;
    const tr_line_kind_t kind = line_kind(text, bytes);
    const bool is_full = training->count >= r->how->most;
    if (kind == TR_LINE_VALIDATION ? !r->has_best : kind == TR_LINE_TRAINING && !is_full)
        r->status = reader_keep(r, kind, text, bytes);
    if (kind == TR_LINE_VALIDATION)
        r->has_best |= tr_rows_number(validation, validation->count - 1, "best") == 1;
    return r->status == TR_OK && !(r->has_best && training->count >= r->how->most);
}

tr_status_t tr_metrics_lines_read(const char *path, const tr_metrics_lines_t *how,
                                  tr_rows_t *training, tr_rows_t *validation) {
    reader_t r = {.how = how, .training.rows = training, .validation.rows = validation};
    if (how->lines != TR_LINES_NEWEST) {
        TR_TRY(tr_each_line(path, reader_take, &r));
        return r.status;
    }
    TR_TRY(tr_each_line_back(path, reader_take_newest, &r));
    tr_rows_reverse(training);
    tr_rows_reverse(validation);
    return r.status;
}
