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
    static const char *const usual[] = {
        "",    "NA", "N/A",    "#N/A",    "#NA",     "<NA>",     "NaN",      "-NaN", "NaT", "null",
        "\\N", "?",  "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "#N/A N/A", "none", "-",   "."};
    const size_t of_numbers = 3; /* the last ones */
    /* most cells are numbers; "1.#IND" has a sign */
    if (*text >= '0' && *text <= '9' && !strchr(text, '#')) return false;
    for (size_t i = 0; i < TR_COUNT(usual) - (is_number ? 0 : of_numbers); i++)
        if (!strcasecmp(text, usual[i])) return true;
    return false;
}

bool tr_csv_is_date(const char *text, const char **out) {
    int part[3] = {0}, parts, used = 0;
    char first, second = 0;
    *out = NULL;
    if (strspn(text, "0123456789") == 0 || strlen(text) > 40) return false;
    parts = sscanf(text, "%4d%c%2d%n%c%4d%n", &part[0], &first, &part[1], &used, &second, &part[2],
                   &used);
    if (parts < 3) return false;
    if (first == ':') { /* 12:30, 12:30:15.5 */
        *out = parts == 5 && second == ':' ? "hour,minute,second" : "hour,minute";
        return part[0] < 25 && part[1] < 60 && strspn(text, "0123456789:. APMapm") == strlen(text);
    }
    if (!strchr("-/.", first)) return false;
    if (parts == 3 && first != '.' && part[0] > 1000) { /* 2024-01 */
        *out = "year,month";
        return part[1] >= 1 && part[1] <= 12 && text[used] == '\0';
    }
    if (parts < 5 || second != first) return false;
    const bool year_first = part[0] > 31, month_first = first == '/' && part[0] <= 12;
    const int year = year_first ? part[0] : part[2], month = part[year_first || !month_first],
              day = year_first ? part[2] : part[month_first];
    *out = year_first ? "year,month,day" : month_first ? "month,day,year" : "day,month,year";
    return ((year > 9 && year < 100) || (year > 1000 && year < 3000)) && month >= 1 &&
           month <= 12 && day >= 1 && day <= 31 &&
           strspn(text + used, "T 0123456789:.+-ZAPMapm") == strlen(text + used);
}

bool tr_csv_is_like_number(const char *text) {
    static const char *const currencies[] = {"$", "€", "£", "¥"};
    for (size_t i = 0; i < TR_COUNT(currencies); i++)
        if (strncmp(text, currencies[i], strlen(currencies[i])) == 0) text += strlen(currencies[i]);
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

/* 1,234 or -1,234,567.8: with the sign between thousands, which is not the decimal sign. */
static bool csv_has_thousands(const tr_csv_table_t *t, const char *text) {
    static const char digits[] = "0123456789";
    const char between = t->decimal == '.' ? ',' : '.';
    text += *text == '-' || *text == '+';
    size_t count = strspn(text, digits);
    if (count < 1 || count > 3 || text[count] != between) return false;
    for (text += count; *text == between; text += 4)
        if (strspn(text + 1, digits) != 3) return false;
    return *text == '\0' || (*text == t->decimal && text[1 + strspn(text + 1, digits)] == '\0');
}

bool tr_csv_is_meant_as_number(const tr_csv_table_t *t, const char *text) {
    tr_csv_table_t other = *t;
    double value;
    other.decimal = t->decimal == '.' ? ',' : '.';
    return tr_csv_is_missing(text, true) || csv_is_beyond(t, text) || csv_has_thousands(t, text) ||
           tr_csv_number(&other, text, &value);
}

void tr_csv_remedy(const tr_csv_table_t *t, const char *text, char *out, size_t room) {
    const char between = t->decimal == '.' ? ',' : '.';
    /* A delimiter that also separates thousands is within quotes there. */
    const char *open = between == t->delimiter ? "\"(-?[0-9]+)" : "([0-9])",
               *close = between == t->delimiter ? "([0-9]{3}[^\"]*\")" : "([0-9]{3})";
    if (tr_csv_is_missing(text, true))
        snprintf(out, room, "fill it in");
    else if (csv_is_beyond(t, text))
        snprintf(out, room, "rescale the column (another unit, or the logarithm)");
    else if (csv_has_thousands(t, text))
        snprintf(out, room,
                 "the '%c' looks like a separator of thousands: remove it (sed -E "
                 "':a; s/%s[%c]%s/%s\\1\\2/; ta')%s",
                 between, open, between, close, *open == '"' ? "\"" : "",
                 t->is_fixed      ? ""
                 : between == ',' ? "; if it is a decimal comma: --decimal ,"
                                  : "; if it is a decimal point: --decimal .");
    else
        snprintf(out, room, "convert texts to numbers%s",
                 t->is_fixed ? "" : "; " TR_CSV_FORMAT_HINT);
}
