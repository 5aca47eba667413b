/* Reads the fields of a request. */
#include "json_request.h"

#include "base/mem.h"
#include "base/str.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* jansson is recursive too, but its limit of 2048 is more than the stack of a connection's thread
 * has. */
static tr_status_t json_check_depth(const char *text, size_t bytes) {
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        else if (!in_string && (text[i] == '[' || text[i] == '{') && ++depth > TR_JSON_DEPTH)
            return TR_FAIL(TR_ERR_DATA,
                           "expected lists and objects nested at most %d deep, found more at byte "
                           "%zu",
                           TR_JSON_DEPTH, i);
        else if (!in_string && (text[i] == ']' || text[i] == '}'))
            depth--;
    }
    return TR_OK;
}

tr_status_t tr_json_request(const char *body, size_t bytes, json_t **out) {
    json_error_t error;
    *out = NULL;
    TR_TRY(json_check_depth(body, bytes));
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
    json_t *value = json_loadb(body, bytes, flags, &error);
    /* Integers of more than 64 bits are read as reals: the error is then one of their field. */
    if (!value && json_error_code(&error) == json_error_numeric_overflow)
        value = json_loadb(body, bytes, flags | JSON_DECODE_INT_AS_REAL, &error);
    if (!value)
        return TR_FAIL(TR_ERR_DATA, "expected a JSON object, found an error at byte %d: %s",
                       error.position, error.text);
    if (json_is_object(value)) {
        *out = value;
        return TR_OK;
    }
    tr_json_unexpected("the body", "a JSON object", value);
    json_decref(value);
    return TR_ERR_DATA;
}

int tr_json_status(tr_status_t status) {
    return status == TR_ERR_MEMORY ? 503 : status == TR_ERR_NOINPUT ? 404 : 400;
}

tr_status_t tr_json_unexpected(const char *field, const char *expected, const json_t *found) {
    enum { SHOWN = 60 };
    char *text = found ? json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    const size_t length = text ? strlen(text) : 0,
                 shown = length > SHOWN ? tr_utf8_bytes(text, SHOWN) : length;
    if (text)
        TR_FAIL(TR_ERR_DATA, "%s: expected %s, found %.*s%s", field, expected, (int)shown, text,
                length > shown ? "..." : "");
    else
        TR_FAIL(TR_ERR_DATA, "%s: expected %s, found nothing", field, expected);
    free(text);
    return TR_ERR_DATA;
}

/* NULL: missing, or null. */
static const json_t *json_field(const json_t *object, const char *field) {
    const json_t *value = json_object_get(object, field);
    return json_is_null(value) ? NULL : value;
}

tr_status_t tr_json_take_int(const json_t *object, const char *field, int64_t min, int64_t max,
                             int64_t *out) {
    const json_t *value = json_field(object, field);
    const double real = json_number_value(value);
    const bool is_whole = json_is_integer(value) ||
                          (json_is_real(value) && real == floor(real) && fabs(real) < 0x1p53);
    const int64_t whole = json_is_integer(value) ? json_integer_value(value)
                          : is_whole             ? (int64_t)real
                                                 : 0;
    char expected[96];
    if (!value) return TR_OK;
    if (is_whole && whole >= min && whole <= max) {
        *out = whole;
        return TR_OK;
    }
    tr_snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)min,
                (long long)max);
    return tr_json_unexpected(field, expected, value);
}

tr_status_t tr_json_take_real(const json_t *object, const char *field, double min, double max,
                              double *out) {
    const json_t *value = json_field(object, field);
    const double number = json_number_value(value);
    char expected[96];
    if (!value) return TR_OK;
    if (json_is_number(value) && number >= min && number <= max) {
        *out = number;
        return TR_OK;
    }
    tr_snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
    return tr_json_unexpected(field, expected, value);
}

tr_status_t tr_json_take_bool(const json_t *object, const char *field, bool *out) {
    const json_t *value = json_field(object, field);
    if (!value) return TR_OK;
    if (!json_is_boolean(value)) return tr_json_unexpected(field, "true or false", value);
    *out = json_is_true(value);
    return TR_OK;
}

tr_status_t tr_json_take_text(const json_t *object, const char *field, const char **out) {
    const json_t *value = json_field(object, field);
    if (!value) return TR_OK;
    if (!json_is_string(value)) return tr_json_unexpected(field, "a string", value);
    *out = json_string_value(value);
    return TR_OK;
}

static bool json_is_neutral(const json_t *value, const tr_json_ignored_t *field) {
    if (!field->neutral || json_is_null(value)) return true;
    json_t *neutral = json_loads(field->neutral, JSON_DECODE_ANY, NULL);
    const bool is_equal = json_is_number(neutral) && json_is_number(value)
                              ? json_number_value(neutral) == json_number_value(value)
                              : json_equal(neutral, value);
    json_decref(neutral);
    return is_equal;
}

static tr_status_t json_check_field(const char *name, const json_t *value, const char *const *known,
                                    size_t known_count, const tr_json_ignored_t *ignored,
                                    size_t ignored_count) {
    char expected[96];
    for (size_t i = 0; i < known_count; i++)
        if (strcmp(known[i], name) == 0) return TR_OK;
    for (size_t i = 0; i < ignored_count; i++) {
        if (strcmp(ignored[i].name, name) != 0) continue;
        if (json_is_neutral(value, &ignored[i])) return TR_OK;
        tr_snprintf(expected, sizeof expected, "%s, because it is not supported",
                    ignored[i].neutral);
        return tr_json_unexpected(name, expected, value);
    }
    const char *nearest = tr_nearest(name, known, known_count);
    if (nearest)
        return TR_FAIL(TR_ERR_DATA, "%.100s: there is no such field; did you mean %s?", name,
                       nearest);
    tr_str_t list = {0};
    for (size_t i = 0; i < known_count; i++) tr_str_printf(&list, "%s%s", i ? ", " : "", known[i]);
    TR_FAIL(TR_ERR_DATA, "%.100s: there is no such field; the fields are %s", name,
            list.text ? list.text : "");
    tr_str_free(&list);
    return TR_ERR_DATA;
}

tr_status_t tr_json_check_fields(const json_t *object, const char *const *known, size_t known_count,
                                 const tr_json_ignored_t *ignored, size_t ignored_count) {
    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at))
        TR_TRY(json_check_field(json_object_iter_key(at), json_object_iter_value(at), known,
                                known_count, ignored, ignored_count));
    return TR_OK;
}

json_t *tr_json_text(const char *bytes, size_t count) {
    tr_str_t clean = {0};
    tr_str_append_utf8(&clean, bytes, count);
    json_t *result =
        clean.status == TR_OK ? json_stringn(clean.text ? clean.text : "", clean.length) : NULL;
    tr_str_free(&clean);
    return result;
}
