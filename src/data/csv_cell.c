/* Parses a cell of a table, or describes the remedy. */
#include "csv.h"
#include "base/mem.h"
#include "base/str.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

bool tr_csv_number(const tr_csv_table_t *t, const char *text, double *out) {
    char with_point[160];
    /* allowed in settings, but in a table 2020_01 is a name */
    if (strchr(text, '_')) return false;
    if (t->decimal == '.') return tr_parse_float(text, out);
    if (strchr(text, '.') || strlen(text) >= sizeof with_point) return false;
    strcpy(with_point, text);
    with_point[strcspn(text, ",")] = text[strcspn(text, ",")] ? '.' : '\0';
    return tr_parse_float(with_point, out);
}

bool tr_csv_is_missing(const char *text, bool is_number) {
    static const char *const usual[] = {"",     "NA", "N/A",  "#N/A", "NaN",
                                        "null", "?",  "none", "-",    "."};
    const size_t of_numbers = 3; /* the last ones */
    for (size_t i = 0; i < TR_COUNT(usual) - (is_number ? 0 : of_numbers); i++)
        if (!strcasecmp(text, usual[i])) return true;
    return false;
}

bool tr_csv_is_like_number(const char *text) {
    const size_t length = strlen(text);
    return length > 0 && strspn(text, "0123456789.,+-%:/' ") == length;
}

/* Whether a number is too large for 32-bit floats, or even for doubles. */
static bool csv_is_beyond(const tr_csv_table_t *t, const char *text) {
    double value;
    char *end;
    if (tr_csv_number(t, text, &value)) return !isfinite((float)value);
    value = tr_strtod(text, &end);
    return *end == '\0' && isinf(value);
}

bool tr_csv_is_meant_as_number(const tr_csv_table_t *t, const char *text) {
    tr_csv_table_t other = *t;
    double value;
    other.decimal = t->decimal == '.' ? ',' : '.';
    return tr_csv_is_missing(text, true) || csv_is_beyond(t, text) ||
           tr_csv_number(&other, text, &value);
}

void tr_csv_remedy(const tr_csv_table_t *t, const char *text, char *out, size_t room) {
    if (tr_csv_is_missing(text, true))
        snprintf(out, room, "fill it in");
    else if (csv_is_beyond(t, text))
        snprintf(out, room, "rescale the column (another unit, or the logarithm)");
    else
        snprintf(out, room, "convert texts to numbers%s",
                 t->is_fixed ? "" : "; " TR_CSV_FORMAT_HINT);
}
