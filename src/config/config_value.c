/* Values of fields: parsing by type, ranges, normal form, descriptions for messages. */
#include "field.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool in_range(const tr_config_field_t *field, double value) {
    return field->min > field->max || (value >= field->min && value <= field->max);
}

/* The index of `text` among "a|b|c", -1 for none. */
static int choice_index(const char *choices, const char *text) {
    size_t length = strlen(text);
    int index = 0;
    for (const char *at = choices; *at; index++) {
        size_t count = strcspn(at, "|");
        if (count == length && strncmp(at, text, count) == 0) return index;
        at += count + (at[count] == '|');
    }
    return -1;
}

/* "5", "5x5", "3x3x3"; "" is count 0. */
static bool parse_sizes(const tr_config_field_t *field, const char *text, tr_sizes_t *out) {
    *out = (tr_sizes_t){0};
    for (const char *at = text; *text != '\0'; at += strcspn(at, "x") + 1) {
        char digits[8];
        const size_t length = strcspn(at, "x");
        int64_t size;
        if (length == 0 || length >= sizeof digits || out->count == 3) return false;
        memcpy(digits, at, length);
        digits[length] = '\0';
        if (strspn(digits, "0123456789") != length || !tr_parse_int(digits, &size)) return false;
        if (!in_range(field, (double)size)) return false;
        out->size[out->count++] = (int)size;
        if (at[length] == '\0') break;
    }
    return true;
}

/* A value of any type, as its member in a settings struct. */
typedef union {
    int64_t whole;
    double number;
    bool flag;
    int choice;
    const char *text;
    tr_sizes_t sizes;
    tr_pad_t pad;
} value_t;

static const size_t member_bytes[] = {
    [TR_TYPE_INT] = sizeof(int64_t),      [TR_TYPE_FLOAT] = sizeof(double),
    [TR_TYPE_BOOL] = sizeof(bool),        [TR_TYPE_STRING] = sizeof(const char *),
    [TR_TYPE_ENUM] = sizeof(int),         [TR_TYPE_BYTES] = sizeof(int64_t),
    [TR_TYPE_DURATION] = sizeof(double),  [TR_TYPE_AUTO_INT] = sizeof(int64_t),
    [TR_TYPE_SIZES] = sizeof(tr_sizes_t), [TR_TYPE_PAD] = sizeof(tr_pad_t),
};

static bool config_value_parse(const tr_config_field_t *field, const char *text, value_t *out) {
    memset(out, 0, sizeof *out);
    switch (field->type) {
    case TR_TYPE_AUTO_INT:
        out->whole = -1;
        if (strcmp(text, "auto") == 0) return true;
        return tr_parse_int(text, &out->whole) && in_range(field, (double)out->whole);
    case TR_TYPE_INT: return tr_parse_int(text, &out->whole) && in_range(field, (double)out->whole);
    case TR_TYPE_BYTES:
        return tr_parse_bytes(text, &out->whole) && in_range(field, (double)out->whole);
    case TR_TYPE_FLOAT: return tr_parse_float(text, &out->number) && in_range(field, out->number);
    case TR_TYPE_DURATION:
        return tr_parse_duration(text, &out->number) && in_range(field, out->number);
    case TR_TYPE_BOOL: return tr_parse_bool(text, &out->flag);
    case TR_TYPE_STRING: out->text = text; return true;
    case TR_TYPE_ENUM: out->choice = choice_index(field->choices, text); return out->choice >= 0;
    case TR_TYPE_SIZES: return parse_sizes(field, text, &out->sizes);
    case TR_TYPE_PAD:
        out->pad.same = strcmp(text, "same") == 0;
        out->pad.sizes.count = 1;
        return out->pad.same || strcmp(text, "valid") == 0 ||
               (*text != '\0' && parse_sizes(field, text, &out->pad.sizes));
    }
    return false;
}

bool tr_config_parse_value(const tr_config_field_t *field, const char *text, void *settings) {
    value_t value;
    if (!config_value_parse(field, text, &value)) return false;
    if (settings) memcpy((char *)settings + field->offset, &value, member_bytes[field->type]);
    return true;
}

bool tr_config_same_value(const tr_config_field_t *field, const char *a, const char *b) {
    value_t values[2];
    if (field->type == TR_TYPE_STRING || !config_value_parse(field, a, &values[0]) ||
        !config_value_parse(field, b, &values[1]))
        return strcmp(a, b) == 0;
    return memcmp(&values[0], &values[1], sizeof(value_t)) == 0;
}

static void append_sizes(const tr_sizes_t *sizes, tr_str_t *out) {
    bool equal = true;
    for (int i = 1; i < sizes->count; i++) equal = equal && sizes->size[i] == sizes->size[0];
    for (int i = 0; i < sizes->count && (i == 0 || !equal); i++)
        tr_str_printf(out, i ? "x%d" : "%d", sizes->size[i]);
}

void tr_config_append_value(const tr_config_field_t *field, const char *text, tr_str_t *out) {
    value_t value;
    if (!config_value_parse(field, text, &value)) {
        tr_str_append(out, text);
        return;
    }
    switch (field->type) {
    case TR_TYPE_INT: tr_str_printf(out, "%lld", (long long)value.whole); break;
    case TR_TYPE_FLOAT: tr_str_printf(out, "%.9g", value.number); break;
    case TR_TYPE_BOOL: tr_str_append(out, value.flag ? "yes" : "no"); break;
    case TR_TYPE_SIZES: append_sizes(&value.sizes, out); break;
    case TR_TYPE_PAD:
        if (value.pad.same)
            tr_str_append(out, "same");
        else if (value.pad.sizes.count == 1 && value.pad.sizes.size[0] == 0)
            tr_str_append(out, "valid");
        else
            append_sizes(&value.pad.sizes, out);
        break;
    default: tr_str_append(out, text);
    }
}

/* A bound as the user would write it: "64k", "10min". */
static void append_bound(const tr_config_field_t *field, double bound, tr_str_t *out) {
    static const char *const byte_units[] = {"", "k", "M", "G", "T", "P"};
    static const struct {
        double sec;
        const char *name;
    } time_units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    const char *unit = "";
    if (field->type == TR_TYPE_BYTES) {
        int power = 0;
        for (; power < 5 && bound != 0 && fmod(bound, 1024) == 0; power++) bound /= 1024;
        unit = byte_units[power];
    } else if (field->type == TR_TYPE_DURATION) {
        unit = "s";
        for (int i = 0; i < 4 && bound != 0; i++) {
            if (fmod(bound, time_units[i].sec) != 0) continue;
            bound /= time_units[i].sec;
            unit = time_units[i].name;
            break;
        }
    }
    tr_str_printf(out, "%.15g%s", bound, unit);
}

#define UNBOUNDED 9e15 /* a larger bound means "any" */

static void append_range(const tr_config_field_t *field, tr_str_t *out) {
    bool has_min = field->min > -UNBOUNDED, has_max = field->max < UNBOUNDED;
    if (field->min > field->max || (!has_min && !has_max)) return;
    tr_str_append(out, has_min && has_max ? " from " : has_min ? " of at least " : " of at most ");
    append_bound(field, has_min ? field->min : field->max, out);
    if (!has_min || !has_max) return;
    tr_str_append(out, " to ");
    append_bound(field, field->max, out);
}

#define MAX_CHOICES 32

static void append_choices(const char *choices, const char *found, tr_str_t *out) {
    char text[1024], *names[MAX_CHOICES], *rest = NULL;
    size_t count = 0;
    snprintf(text, sizeof text, "%s", choices);
    for (char *name = strtok_r(text, "|", &rest); name && count < MAX_CHOICES;
         name = strtok_r(NULL, "|", &rest))
        names[count++] = name;
    for (size_t i = 0; i < count; i++)
        tr_str_printf(out, "%s%s",
                      i == 0           ? (count > 2 ? "one of " : "")
                      : i + 1 == count ? " or "
                                       : ", ",
                      names[i]);
    const char *meant = found ? tr_nearest(found, (const char *const *)names, count) : NULL;
    if (meant) tr_str_printf(out, " (did you mean %s?)", meant);
}

void tr_config_describe(const tr_config_field_t *field, const char *found, tr_str_t *out) {
    switch (field->type) {
    case TR_TYPE_INT: tr_str_append(out, "an integer"); break;
    case TR_TYPE_AUTO_INT: tr_str_append(out, "auto or an integer"); break;
    case TR_TYPE_FLOAT: tr_str_append(out, "a number"); break;
    case TR_TYPE_BOOL: tr_str_append(out, "yes or no"); return;
    case TR_TYPE_STRING: tr_str_append(out, "text"); return;
    case TR_TYPE_ENUM: append_choices(field->choices, found, out); return;
    case TR_TYPE_BYTES: tr_str_append(out, "a size in bytes, such as 64k or 1.5G,"); break;
    case TR_TYPE_DURATION: tr_str_append(out, "a duration, such as 90s, 10min or 2h,"); break;
    case TR_TYPE_SIZES: tr_str_append(out, "a size, such as 3 or 3x3,"); break;
    case TR_TYPE_PAD: tr_str_append(out, "same, valid, or a size, such as 1 or 1x1,"); break;
    }
    size_t before = out->length;
    append_range(field, out);
    if (out->status == TR_OK && out->length == before && out->text[before - 1] == ',')
        out->text[--out->length] = '\0';
}

void tr_config_quote(const char *text, tr_str_t *out) {
    enum { LIMIT = 60 };
    if (*text == '\0') {
        tr_str_append(out, "nothing");
        return;
    }
    tr_str_append(out, "'");
    size_t i = 0;
    for (; text[i] && i < LIMIT; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n')
            tr_str_append(out, "\\n");
        else if (c < ' ' || c == 0x7F)
            tr_str_printf(out, "\\x%02x", c);
        else
            tr_str_append_bytes(out, text + i, 1);
    }
    tr_str_append(out, text[i] ? "...'" : "'");
}
