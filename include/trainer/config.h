/*
 * Configuration: typed field tables, one ini file, and overrides from the environment and the
 * command line.
 *
 * A field is one row: name, type, default, range, choices, help. A configuration key is a row in
 * the table of the module that uses it; an attribute of a layer (trainer/model.h) is a row in the
 * table of that layer. Parsing, range checks, `trainer help`, the reference pages in docs/, the
 * resolved configuration in the run folder and the record in checkpoints are derived from the row.
 * A table fills one plain struct of its module: tr_config_read(config, &table, &settings).
 *
 *   typedef struct { double lr; int64_t warmup; } sched_settings_t;
 *   static const tr_config_field_t fields[] = {
 *       TR_FIELD_FLOAT(sched_settings_t, lr, "0.001", 0, 1e3, "Peak learning rate."),
 *       ...
 *   };
 *   const tr_config_table_t sched_config = TR_CONFIG_TABLE("schedule", fields, sched_settings_t);
 *
 * Sources, from lowest to highest precedence: default, file, environment (TRAINER_<SECTION>_<KEY>),
 * command line (section.key=value). Load them in this order. tr_config_check reports all problems
 * at once, with file and line. Not collective: every rank loads the same values.
 */
#ifndef TRAINER_CONFIG_H
#define TRAINER_CONFIG_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    TR_TYPE_INT,      /* int64_t */
    TR_TYPE_FLOAT,    /* double */
    TR_TYPE_BOOL,     /* bool */
    TR_TYPE_STRING,   /* const char *, owned by the config; "" if unset */
    TR_TYPE_ENUM,     /* int, the index into `choices` ("a|b|c") */
    TR_TYPE_BYTES,    /* int64_t */
    TR_TYPE_DURATION, /* double, seconds */
    TR_TYPE_AUTO_INT, /* int64_t, -1 for "auto" */
    TR_TYPE_SIZES,    /* tr_sizes_t: "5", "5x5", "3x3x3" */
    TR_TYPE_PAD       /* tr_pad_t: "same", "valid", "1", "1x2" */
} tr_config_type_t;

/* One size per spatial dimension, up to three. count 1: one size for all; 0: not given. */
typedef struct {
    int count, size[3];
} tr_sizes_t;
typedef struct {
    bool same;
    tr_sizes_t sizes; /* if not same; "valid" is 0 */
} tr_pad_t;

/* Whether a resumed run may change the value from that of its checkpoint. Last column of a row. */
typedef enum {
    TR_RESUME_MATCH, /* no (the default of a row) */
    TR_RESUME_KEEP,  /* no; auto takes the checkpoint's value */
    TR_RESUME_NOTE,  /* yes, with a log line: the change may affect the result */
    TR_RESUME_FREE   /* yes: the key does not affect the result */
} tr_resume_t;

typedef struct {
    const char *name; /* without the section */
    tr_config_type_t type;
    size_t offset; /* of the member in the module's struct */
    /* The default as text, parsed like the user's text. NULL: required (layers only). */
    const char *fallback;
    double min, max;     /* inclusive range of numbers and sizes; min > max: no check */
    const char *choices; /* ENUM: "a|b|c" */
    const char *help;    /* one or two sentences */
    int resume;          /* tr_resume_t; keys only */
} tr_config_field_t;

typedef struct {
    const char *section; /* "" for keys without a section (device, precision, resume) */
    const tr_config_field_t *fields;
    size_t count;
    size_t struct_bytes;
} tr_config_table_t;

/* The last argument, a tr_resume_t, is optional. */
#define TR_FIELD_(S, m, T, d, lo, hi, ch, h, ...)                                                  \
    { #m, T, offsetof(S, m), d, lo, hi, ch, h, __VA_ARGS__ + 0 }
#define TR_FIELD_INT(S, m, d, lo, hi, h, ...)                                                      \
    TR_FIELD_(S, m, TR_TYPE_INT, d, lo, hi, NULL, h, __VA_ARGS__)
#define TR_FIELD_AUTO_INT(S, m, d, lo, hi, h, ...)                                                 \
    TR_FIELD_(S, m, TR_TYPE_AUTO_INT, d, lo, hi, NULL, h, __VA_ARGS__)
#define TR_FIELD_FLOAT(S, m, d, lo, hi, h, ...)                                                    \
    TR_FIELD_(S, m, TR_TYPE_FLOAT, d, lo, hi, NULL, h, __VA_ARGS__)
#define TR_FIELD_BOOL(S, m, d, h, ...) TR_FIELD_(S, m, TR_TYPE_BOOL, d, 1, 0, NULL, h, __VA_ARGS__)
#define TR_FIELD_STRING(S, m, d, h, ...)                                                           \
    TR_FIELD_(S, m, TR_TYPE_STRING, d, 1, 0, NULL, h, __VA_ARGS__)
#define TR_FIELD_ENUM(S, m, d, choices, h, ...)                                                    \
    TR_FIELD_(S, m, TR_TYPE_ENUM, d, 1, 0, choices, h, __VA_ARGS__)
#define TR_FIELD_BYTES(S, m, d, lo, hi, h, ...)                                                    \
    TR_FIELD_(S, m, TR_TYPE_BYTES, d, lo, hi, NULL, h, __VA_ARGS__)
#define TR_FIELD_DURATION(S, m, d, lo, hi, h, ...)                                                 \
    TR_FIELD_(S, m, TR_TYPE_DURATION, d, lo, hi, NULL, h, __VA_ARGS__)
#define TR_FIELD_SIZES(S, m, d, lo, hi, h, ...)                                                    \
    TR_FIELD_(S, m, TR_TYPE_SIZES, d, lo, hi, NULL, h, __VA_ARGS__)
#define TR_FIELD_PAD(S, m, d, lo, hi, h, ...)                                                      \
    TR_FIELD_(S, m, TR_TYPE_PAD, d, lo, hi, NULL, h, __VA_ARGS__)

/* A table of an array of rows `fields` for the struct S. */
#define TR_CONFIG_TABLE(section, fields, S)                                                        \
    { section, fields, sizeof(fields) / sizeof *(fields), sizeof(S) }

typedef struct tr_config tr_config_t; /* opaque */

/*
 * `tables` and everything they point to must outlive the config. Tables may share sections, and
 * keys if their rows differ only in help. TR_ERR_INTERNAL for a default outside its range and for
 * rows that disagree about a key.
 */
tr_status_t tr_config_create(const tr_config_table_t *const *tables, size_t count,
                             tr_config_t **out);
void tr_config_destroy(tr_config_t **config);

/*
 * These functions record problems (unknown key, bad value) for tr_config_check and fail only on I/O
 * or memory errors: TR_ERR_NOINPUT for a missing file, TR_ERR_CONFIG for a folder or a binary file.
 */
tr_status_t tr_config_load_file(tr_config_t *config, const char *path);
tr_status_t tr_config_load_text(tr_config_t *config, const char *origin, const char *text,
                                size_t bytes);
tr_status_t tr_config_load_environment(tr_config_t *config, char *const *environment);
tr_status_t tr_config_set(tr_config_t *config, const char *assignment /* section.key=value */,
                          const char *origin);

/* TR_ERR_CONFIG with all problems, one per line, if there are any. */
tr_status_t tr_config_check(tr_config_t *config);

/*
 * Fills *out_settings (table->struct_bytes). The config owns the strings. Invalid values are
 * replaced by their defaults.
 */
void tr_config_read(const tr_config_t *config, const tr_config_table_t *table, void *out_settings);
/* The value or default of a key as text; NULL for an unknown key. Owned by the config. */
const char *tr_config_get(const tr_config_t *config, const char *key);
/* Whether the value differs from the default. A round trip through text does not change this. */
bool tr_config_is_set(const tr_config_t *config, const char *key);

#ifdef __cplusplus
}
#endif

#endif
