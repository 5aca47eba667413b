/* Reading the JSON files of `trainer bench`, with messages that name file and key. */
#include "forecast_int.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

tr_status_t tr_source_open(const tr_source_t *from, json_t **out) {
    json_error_t error;
    if (access(from->path, R_OK) != 0)
        return TR_FAIL(tr_status_of_errno(errno), "%s cannot be read: %s; `%s` writes it",
                       from->path, strerror(errno), from->command);
    *out = json_load_file(from->path, 0, &error);
    if (!*out)
        return TR_FAIL(TR_ERR_DATA, "%s, line %d: %s; expected the JSON file of `%s`", from->path,
                       error.line, error.text, from->command);
    return TR_OK;
}

tr_status_t tr_source_number(const tr_source_t *from, const json_t *object, const char *key,
                             double least, double *out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value) || json_number_value(value) < least)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: expected a number \"%s\" of at least %g, found %s; `%s` writes such a "
                       "file",
                       from->path, key, least,
                       !value                  ? "none"
                       : json_is_number(value) ? "a smaller one"
                                               : "something else",
                       from->command);
    *out = json_number_value(value);
    return TR_OK;
}

tr_status_t tr_source_int(const tr_source_t *from, const json_t *object, const char *key,
                          double least, int *out) {
    double value;
    TR_TRY(tr_source_number(from, object, key, least, &value));
    if (value > 1e9) return TR_FAIL(TR_ERR_DATA, "%s: \"%s\" is %g", from->path, key, value);
    *out = (int)value;
    return TR_OK;
}

tr_status_t tr_source_list(const tr_source_t *from, const json_t *object, const char *key,
                           const json_t **out) {
    *out = json_object_get(object, key);
    if (json_array_size(*out) == 0)
        return TR_FAIL(TR_ERR_DATA, "%s: expected a list \"%s\", found none; `%s` writes it",
                       from->path, key, from->command);
    return TR_OK;
}
