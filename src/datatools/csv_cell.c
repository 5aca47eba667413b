/* A cell of a table: the number in it, and what to do about one that has none. */
#include "csv_int.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

bool tr_csv_number(const csv_table_t *t, const char *text, double *out) {
    char with_point[160];
    if (strchr(text, '_')) return false; /* settings may have it in numbers; in a table 2020_01 is a name */
    if (t->decimal == '.') return tr_parse_float(text, out);
    if (strchr(text, '.') || strlen(text) >= sizeof with_point) return false;
    strcpy(with_point, text);
    with_point[strcspn(text, ",")] = text[strcspn(text, ",")] ? '.' : '\0';
    return tr_parse_float(with_point, out);
}

bool tr_csv_is_missing(const char *text) {
    static const char *const usual[] = {"",  "NA", "N/A", "#N/A", "NaN",  "null", "none",
                                        "?", "-",  ".",   "inf",  "-inf", "+inf"};
    for (size_t i = 0; i < TR_COUNT(usual); i++)
        if (!strcasecmp(text, usual[i])) return true;
    return false;
}

/* A number that is too large for 32-bit floats, or even for doubles. */
static bool is_beyond(const csv_table_t *t, const char *text) {
    double value;
    char *end;
    if (tr_csv_number(t, text, &value)) return !isfinite((float)value);
    value = tr_strtod(text, &end);
    return *end == '\0' && isinf(value);
}

bool tr_csv_is_meant_as_number(const csv_table_t *t, const char *text) {
    csv_table_t other = *t;
    double value;
    other.decimal = t->decimal == '.' ? ',' : '.';
    return tr_csv_is_missing(text) || is_beyond(t, text) || tr_csv_number(&other, text, &value);
}

char tr_csv_other_delimiter(const csv_table_t *t, const char *text) {
    for (const char *c = ";\t|,"; *c; c++)
        if (*c != t->delimiter && strchr(text, *c)) return *c;
    return '\0';
}

const char *tr_csv_delimiter_text(char c, char text[4]) {
    snprintf(text, 4, c == '\t' ? "tab" : "'%c'", c);
    return text;
}

void tr_csv_remedy(const csv_table_t *t, const char *text, char *out, size_t room) {
    const char other = tr_csv_other_delimiter(t, text);
    char option[4];
    double value;
    if (tr_csv_is_missing(text))
        snprintf(out, room, "fill it in (usual: the column's mean)");
    else if (other && other != ',')
        snprintf(out, room, "add --delimiter %s, if it separates the columns",
                 tr_csv_delimiter_text(other, option));
    else if (t->decimal == '.' && strchr(text, ','))
        snprintf(out, room,
                 "add --decimal ',', if the comma is the decimal point, and remove thousands separators");
    else if (t->decimal == ',' && tr_parse_float(text, &value))
        snprintf(out, room,
                 "remove --decimal ',', if the point is the decimal point; otherwise remove thousands "
                 "separators");
    else if (t->decimal == ',' && strchr(text, '.'))
        snprintf(out, room, "with --decimal ',' the comma is the decimal point: remove thousands separators");
    else if (is_beyond(t, text))
        snprintf(out, room, "rescale the column (another unit, or the logarithm)");
    else
        snprintf(out, room, "convert texts to numbers");
}
