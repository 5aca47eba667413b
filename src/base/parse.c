/* Parses numbers, sizes and durations. */
#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_NUMBER 127 /* a longer text is not a number */

/* A decimal number as written: sign, the digits of its mantissa, and the power of ten they are
 * scaled by. */
typedef struct {
    bool negative;
    char digits[MAX_NUMBER + 1];
    int count;
    int exponent;
} decimal_t;

static bool parse_is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Digits with single underscores between them; returns the first character after them, NULL if
 * there are too many. */
static const char *decimal_scan_digits(const char *at, decimal_t *number) {
    while (parse_is_digit(*at)) {
        if (number->count == MAX_NUMBER) return NULL;
        number->digits[number->count++] = *at++;
        if (*at == '_' && parse_is_digit(at[1])) at++;
    }
    return at;
}

/* e6, E-3; leaves `at` where no exponent follows (the "e" may belong to a unit). NULL if it is
 * absurdly large. */
static const char *decimal_scan_exponent(const char *at, int *exponent) {
    if (*at != 'e' && *at != 'E') return at;
    const char *digit = at + 1;
    bool negative = *digit == '-';
    if (*digit == '-' || *digit == '+') digit++;
    if (!parse_is_digit(*digit)) return at;
    int value = 0;
    for (; parse_is_digit(*digit); digit++) {
        if (value > 999) return NULL;
        value = value * 10 + (*digit - '0');
    }
    *exponent += negative ? -value : value;
    return digit;
}

/* The longest number at the start of `text`; returns the text after it, NULL if there is no
 * number. */
static const char *decimal_scan(const char *text, decimal_t *number) {
    *number = (decimal_t){.negative = *text == '-'};
    if (*text == '-' || *text == '+') text++;
    const char *at = decimal_scan_digits(text, number);
    if (at && *at == '.') {
        int before = number->count;
        at = decimal_scan_digits(at + 1, number);
        number->exponent = before - number->count;
    }
    if (!at || number->count == 0) return NULL;
    number->digits[number->count] = '\0';
    return decimal_scan_exponent(at, &number->exponent);
}

/* Exact, unlike a conversion through a double. Works on negative values, whose range is larger by
 * one. */
static bool decimal_to_int(const decimal_t *number, int64_t *out) {
    int64_t value = 0;
    int kept = number->count, exponent = number->exponent;
    while (kept > 0 && exponent < 0 && number->digits[kept - 1] == '0') kept--, exponent++;
    for (int i = 0; i < kept; i++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, number->digits[i] - '0', &value))
            return false;
    if (value != 0 && exponent < 0) return false;
    for (; value != 0 && exponent > 0; exponent--)
        if (__builtin_mul_overflow(value, 10, &value)) return false;
    if (!number->negative && __builtin_sub_overflow(0, value, &value)) return false;
    *out = value;
    return true;
}

static bool decimal_to_double(const decimal_t *number, double *out) {
    char text[MAX_NUMBER + 16];
    size_t used = 0;
    if (number->negative) text[used++] = '-';
    memcpy(text + used, number->digits, (size_t)number->count);
    used += (size_t)number->count;
    text[used++] = 'e';
    int exponent = number->exponent;
    if (exponent < 0) text[used++] = '-', exponent = -exponent;
    for (int power = 10000; power > 0; power /= 10)
        text[used++] = (char)('0' + exponent / power % 10);
    text[used] = '\0';
    const double value = tr_strtod(text, NULL);
    if (!isfinite(value)) return false;
    *out = value;
    return true;
}

bool tr_parse_int(const char *text, int64_t *out) {
    decimal_t number;
    const char *rest = decimal_scan(text, &number);
    return rest && *rest == '\0' && decimal_to_int(&number, out);
}

bool tr_parse_float(const char *text, double *out) {
    decimal_t number;
    const char *rest = decimal_scan(text, &number);
    return rest && *rest == '\0' && decimal_to_double(&number, out);
}

bool tr_parse_floats(const char *text, int most, float *out, int *out_count) {
    for (*out_count = 0;; text++) {
        char number[MAX_NUMBER + 1];
        double value;
        text += strspn(text, " ");
        const size_t length = strcspn(text, ", ");
        if (length >= sizeof number) return false;
        memcpy(number, text, length);
        number[length] = '\0';
        if (!tr_parse_float(number, &value) || !isfinite((float)value)) return false;
        if (*out_count < most) out[*out_count] = (float)value;
        ++*out_count;
        text += length;
        text += strspn(text, " ");
        if (*text != ',') return *text == '\0' && *out_count <= most;
    }
}

bool tr_parse_bool(const char *text, bool *out) {
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(text, words[i]) != 0) continue;
        *out = i % 2 == 1;
        return true;
    }
    return false;
}

static const char *parse_skip_blanks(const char *at) {
    return at + strspn(at, " \t");
}

/* "", "B", "k", "kB", "KiB", ...: the power of two of the unit, -1 for an unknown unit. */
static int parse_byte_unit_shift(const char *unit) {
    static const char letters[] = "KMGTPE";
    if (*unit == '\0' || strcasecmp(unit, "b") == 0) return 0;
    const char *letter = strchr(letters, *unit & ~0x20);
    if (!letter || *letter == '\0') return -1;
    unit++;
    if (*unit != '\0' && strcasecmp(unit, "b") != 0 && strcasecmp(unit, "ib") != 0) return -1;
    return 10 * (int)(letter - letters + 1);
}

bool tr_parse_bytes(const char *text, int64_t *out) {
    decimal_t number;
    const char *rest = decimal_scan(text, &number);
    int shift = rest ? parse_byte_unit_shift(parse_skip_blanks(rest)) : -1;
    if (shift < 0) return false;
    int64_t whole;
    if (decimal_to_int(&number, &whole)) {
        if (__builtin_mul_overflow(whole, INT64_C(1) << shift, &whole)) return false;
        *out = whole;
        return true;
    }
    double value;
    if (!decimal_to_double(&number, &value)) return false;
    value = floor(ldexp(value, shift));
    if (fabs(value) >= 0x1p63) return false;
    *out = (int64_t)value;
    return true;
}

static bool parse_duration_unit(const char *unit, size_t length, double *out_sec) {
    static const struct {
        const char *name;
        double sec;
    } units[] = {{"ms", 1e-3}, {"s", 1},    {"sec", 1},  {"m", 60},
                 {"min", 60},  {"h", 3600}, {"d", 86400}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strlen(units[i].name) != length || strncmp(unit, units[i].name, length) != 0) continue;
        *out_sec = units[i].sec;
        return true;
    }
    return false;
}

/* One number with or without a unit, or several with one each: "1h30min". */
bool tr_parse_duration(const char *text, double *out_sec) {
    double total = 0, value, unit_sec;
    decimal_t number;
    const char *at = text;
    bool is_first = true;
    do {
        at = decimal_scan(at, &number);
        if (!at || !decimal_to_double(&number, &value)) return false;
        bool is_only = is_first && *at == '\0';
        is_first = false;
        at = parse_skip_blanks(at);
        size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz");
        if (is_only)
            unit_sec = 1;
        else if (!parse_duration_unit(at, length, &unit_sec))
            return false;
        total += value * unit_sec;
        at = parse_skip_blanks(at + length);
    } while (*at != '\0');
    if (!isfinite(total)) return false;
    *out_sec = total;
    return true;
}
