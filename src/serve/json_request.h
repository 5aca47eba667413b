/*
 * The JSON object of a request, of which fields are taken one by one. Errors name the field, what
 * was expected and what was found; they are TR_ERR_DATA. Not collective.
 */
#ifndef TR_SERVE_JSON_REQUEST_H
#define TR_SERVE_JSON_REQUEST_H

#include "trainer/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TR_JSON_DEPTH = 16 }; /* brackets in brackets; the parser is recursive */

/* Parses `bytes` bytes, after which there is a zero byte. TR_ERR_DATA: not JSON, not an object, a key
 * twice, or too deep. *out: json_decref. */
tr_status_t tr_json_request(const char *body, size_t bytes, json_t **out);

/* The status of HTTP for an error of a request: 400, 404, or 503 where memory is missing. */
int tr_json_status(tr_status_t status);
/* Records "FIELD: expected EXPECTED, found VALUE" of a value, NULL: nothing. Returns TR_ERR_DATA. */
tr_status_t tr_json_unexpected(const char *field, const char *expected, const json_t *found);

/* These leave *out as it is where the field is missing or null. Numbers: from min to max. Integers
 * may be written as reals (1.0). */
tr_status_t tr_json_take_int(const json_t *object, const char *field, int64_t min, int64_t max,
                             int64_t *out);
tr_status_t tr_json_take_real(const json_t *object, const char *field, double min, double max,
                              double *out);
tr_status_t tr_json_take_bool(const json_t *object, const char *field, bool *out);
/* Borrowed from the object. */
tr_status_t tr_json_take_text(const json_t *object, const char *field, const char **out);

/* A field that has no effect here: where `neutral` is not NULL, its value (JSON: "0", "{}"), and null
 * are accepted; NULL: any value is. */
typedef struct {
    const char *name, *neutral;
} tr_json_ignored_t;
/* Every field is in `known`, or in `ignored` with a value without effect. */
tr_status_t tr_json_check_fields(const json_t *object, const char *const *known, size_t known_count,
                                 const tr_json_ignored_t *ignored, size_t ignored_count);

/* Bytes as a JSON string, as tr_str_append_utf8. New reference; NULL: no memory. */
json_t *tr_json_text(const char *bytes, size_t count);

#endif
