/* The fields of the records of a run: their list, and setting one. */
#include "record_fields.h"

#include "json_text.h"
#include <math.h>

const char *const tr_record_titles[] = {
#define RECORD(name, title) title,
#include "record_fields.def"
};

const char *const tr_value_types[] = {
#define TYPE(name, text) text,
#include "record_fields.def"
};

const struct tr_unit_info tr_units[] = {
#define UNIT(name, text, scale) {text, scale},
#include "record_fields.def"
};

const char *const tr_when_texts[] = {
#define WHEN(name, text) text,
#include "record_fields.def"
};

const struct tr_record_field_info tr_record_fields[TR_RECORD_FIELD_COUNT] = {
#define FIELD(record, key, type, unit, when, help)                                                 \
    {TR_RECORD_##record, #key, TR_RECORD_TYPE_##type, TR_UNIT_##unit, TR_WHEN_##when, help},
#include "record_fields.def"
};

void tr_record_json(json_t *to, tr_record_field_t field, json_t *value) {
    json_object_set_new(to, tr_record_fields[field].key, value);
}

void tr_record_text(json_t *to, tr_record_field_t field, const char *value) {
    tr_record_json(to, field, value ? json_string(value) : json_null());
}

void tr_record_number(json_t *to, tr_record_field_t field, double value) {
    const tr_value_type_t type = tr_record_fields[field].type;
    json_t *json = type == TR_RECORD_TYPE_BOOL                     ? json_boolean(value != 0)
                   : type == TR_RECORD_TYPE_MEASURED               ? tr_json_measured(value)
                   : type == TR_RECORD_TYPE_INT && isfinite(value) ? json_integer((json_int_t)value)
                                                                   : tr_json_finite(value);
    tr_record_json(to, field, json);
}
