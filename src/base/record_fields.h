/*
 * The fields of the records that a run leaves in its folder. record_fields.def lists them: writers, the
 * metrics of Prometheus and TensorBoard, `trainer help records` and the tests follow from it.
 */
#ifndef TR_BASE_RECORD_FIELDS_H
#define TR_BASE_RECORD_FIELDS_H

#include <jansson.h>

typedef enum {
#define RECORD(name, title) TR_RECORD_##name,
#include "record_fields.def"
    TR_RECORD_COUNT
} tr_record_kind_t;

typedef enum {
#define TYPE(name, text) TR_RECORD_TYPE_##name,
#include "record_fields.def"
} tr_value_type_t;

typedef enum {
#define UNIT(name, text, scale) TR_UNIT_##name,
#include "record_fields.def"
} tr_unit_t;

typedef enum {
#define WHEN(name, text) TR_WHEN_##name,
#include "record_fields.def"
} tr_when_t;

/* TR_TRAINING_loss, TR_SUMMARY_steps, ... */
typedef enum {
#define FIELD(record, key, type, unit, when, help) TR_##record##_##key,
#include "record_fields.def"
    TR_RECORD_FIELD_COUNT
} tr_record_field_t;

extern const struct tr_record_field_info {
    tr_record_kind_t record;
    const char *key;
    tr_value_type_t type;
    tr_unit_t unit;
    tr_when_t when;
    const char *help;
} tr_record_fields[TR_RECORD_FIELD_COUNT];

/* By the enumerations above; a text is "" for no unit, and for always. */
extern const char *const tr_record_titles[], *const tr_value_types[], *const tr_when_texts[];
extern const struct tr_unit_info {
    const char *text;
    double scale; /* to the base unit: 1e-3 for ms */
} tr_units[];

/* Sets the field of an object. A number is written as the type says: a BOOL is whether it is not 0. One
 * that is not finite, and a text that is NULL, is null. */
void tr_record_number(json_t *to, tr_record_field_t field, double value);
void tr_record_text(json_t *to, tr_record_field_t field, const char *value);
void tr_record_json(json_t *to, tr_record_field_t field, json_t *value); /* steals `value` */

#endif
