/* Parses a cell of a table, or describes the remedy. */
#include "csv_int.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

bool tr_csv_number(const csv_table_t *t, const char *text, double *out) {
    char with_point[160];
    /* allowed in settings, but in a table 2020_01 is a name */
    if (strchr(text, '_')) return false;
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

/* Whether a number is too large for 32-bit floats, or even for doubles. */
static bool csv_is_beyond(const csv_table_t *t, const char *text) {
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
    return tr_csv_is_missing(text) || csv_is_beyond(t, text) || tr_csv_number(&other, text, &value);
}

void tr_csv_remedy(const csv_table_t *t, const char *text, char *out, size_t room) {
    if (tr_csv_is_missing(text))
        snprintf(out, room, "fill it in (usual: the column's mean)");
    else if (csv_is_beyond(t, text))
        snprintf(out, room, "rescale the column (another unit, or the logarithm)");
    else
        snprintf(out, room, "convert texts to numbers; " CSV_FORMAT_HINT);
}
