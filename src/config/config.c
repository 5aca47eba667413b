/* The configuration object: create, look up, assign, record problems, read. */
#include "config_int.h"
#include "elsewhere.h"
#include "ini.h"
#include "trainer/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_PROBLEMS  64   /* kept */
#define PROBLEM_BYTES 1000 /* of each */

/* False if it does not fit. */
static bool full_key(const char *section, const char *name, char key[KEY_BYTES]) {
    int wanted = snprintf(key, KEY_BYTES, "%s%s%s", section, *section ? "." : "", name);
    return wanted > 0 && wanted < KEY_BYTES;
}

static entry_t *config_find(const tr_config_t *config, const char *key) {
    for (size_t i = 0; i < config->entries.count; i++)
        if (strcmp(config->entries.data[i].key, key) == 0) return &config->entries.data[i];
    return NULL;
}

/* -- create and destroy ------------------------------------------------------------------------ */

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static tr_status_t add_entry(tr_config_t *config, const char *section,
                             const tr_config_field_t *field) {
    char key[KEY_BYTES];
    entry_t entry = {.section = section, .field = field};
    if (!full_key(section, field->name, key))
        return TR_FAIL(TR_ERR_INTERNAL, "The key %s.%s is longer than %d bytes.", section,
                       field->name, KEY_BYTES - 1);
    const entry_t *other = config_find(config, key);
    if (other) {
        const tr_config_field_t *a = other->field;
        if (a->type == field->type && a->min == field->min && a->max == field->max &&
            same_text(a->choices, field->choices) && same_text(a->fallback, field->fallback))
            return TR_OK;
        return TR_FAIL(TR_ERR_INTERNAL,
                       "The key %s is defined in two tables, with different definitions.", key);
    }
    if (!field->fallback || !tr_config_parse_value(field, field->fallback, NULL))
        return TR_FAIL(TR_ERR_INTERNAL, "The default '%s' of %s is not a valid value of that key.",
                       field->fallback ? field->fallback : "(null)", key);
    TR_TRY(tr_vec_push(&config->entries, entry));
    entry_t *added = &config->entries.data[config->entries.count - 1];
    TR_TRY(tr_strdup(key, &added->key));
    return tr_strdup(field->fallback, &added->text);
}

tr_status_t tr_config_create(const tr_config_table_t *const *tables, size_t count,
                             tr_config_t **out) {
    tr_config_t *config = NULL;
    TR_TRY(tr_alloc(sizeof *config, "the configuration", &config));
    tr_status_t status = TR_OK;
    for (size_t t = 0; t < count; t++)
        for (size_t f = 0; f < tables[t]->count; f++)
            TR_TRY_GOTO(add_entry(config, tables[t]->section, &tables[t]->fields[f]), failed);
    *out = config;
    return TR_OK;
failed:
    tr_config_destroy(&config);
    return status;
}

void tr_config_destroy(tr_config_t **config) {
    if (!*config) return;
    for (size_t i = 0; i < (*config)->entries.count; i++) {
        entry_t *entry = &(*config)->entries.data[i];
        tr_free(&entry->key);
        tr_free(&entry->text);
        tr_free(&entry->origin);
    }
    tr_vec_free(&(*config)->entries);
    for (size_t i = 0; i < (*config)->problems.count; i++) tr_free(&(*config)->problems.data[i]);
    tr_vec_free(&(*config)->problems);
    tr_free(config);
}

void tr_config_where(const char *origin, int line, char where[WHERE_BYTES]) {
    if (line > 0)
        snprintf(where, WHERE_BYTES, "%.480s:%d", origin, line);
    else
        snprintf(where, WHERE_BYTES, "%.480s", origin);
}

/* -- problems ---------------------------------------------------------------------------------- */

void tr_config_note(tr_config_t *config, const char *origin, const char *format, ...) {
    config->problem_count++;
    if (config->problems.count == MAX_PROBLEMS) return;
    char message[PROBLEM_BYTES + 1], *problem = NULL;
    va_list args;
    va_start(args, format);
    tr_vsnprintf(message, sizeof message, format, args);
    va_end(args);
    tr_str_t text = {0};
    tr_str_printf(&text, "%s: %s", origin, message);
    tr_status_t status = tr_str_take(&text, &problem);
    if (status == TR_OK) status = tr_vec_push(&config->problems, problem);
    if (status == TR_OK) return;
    tr_free(&problem);
    config->status = status;
}

tr_status_t tr_config_check(tr_config_t *config) {
    if (config->status != TR_OK)
        return TR_FAIL(config->status, "Not enough memory to list the configuration errors.");
    if (config->problem_count == 0) return TR_OK;
    tr_str_t list = {0};
    int64_t shown = 0;
    for (; shown < (int64_t)config->problems.count; shown++) {
        const char *problem = config->problems.data[shown];
        if (list.length + strlen(problem) > TR_ERROR_MESSAGE_BYTES - 200) break;
        tr_str_printf(&list, "\n  %s", problem);
    }
    if (shown < config->problem_count)
        tr_str_printf(&list, "\n  ... and %lld more", (long long)(config->problem_count - shown));
    char *text;
    TR_TRY(tr_str_take(&list, &text));
    tr_status_t status =
        TR_FAIL(TR_ERR_CONFIG, "%lld problem%s in the configuration:%s",
                (long long)config->problem_count, config->problem_count == 1 ? "" : "s", text);
    tr_free(&text);
    return status;
}

/* -- values ------------------------------------------------------------------------------------ */

static tr_status_t set_text(entry_t *entry, const char *text, const char *where) {
    char *new_text = NULL, *new_origin = NULL;
    TR_TRY(tr_strdup(text, &new_text));
    tr_status_t status = tr_strdup(where, &new_origin);
    if (status != TR_OK) {
        tr_free(&new_text);
        return status;
    }
    tr_free(&entry->text);
    tr_free(&entry->origin);
    entry->text = new_text;
    entry->origin = new_origin;
    return TR_OK;
}

/* Keys of earlier releases, which saved configurations have: `fallback` needs no warning. */
static const struct {
    const char *key, *fallback, *why;
} retired[] = {
    {"cuda.conv_stats", "no", "batch normalisation is faster with a pass of its own"},
};

static bool config_is_retired(const char *key, const char *text, const char *where) {
    for (size_t i = 0; i < sizeof retired / sizeof *retired; i++) {
        if (strcmp(key, retired[i].key) != 0) continue;
        if (strcmp(text, retired[i].fallback) != 0)
            TR_WARN("%s: %s has no effect any more: %s", where, key, retired[i].why);
        return true;
    }
    return false;
}

static tr_status_t note_unknown(tr_config_t *config, const char *key, const char *where) {
    if (config->problems.count == MAX_PROBLEMS) { /* the search for the nearest key takes time */
        config->problem_count++;
        return TR_OK;
    }
    const char *meant = tr_config_suggest(config, key);
    const tr_elsewhere_t *other = tr_elsewhere_find(key);
    tr_str_t message = {0};
    tr_str_append(&message, "unknown key ");
    tr_config_quote(key, &message);
    if (meant)
        tr_str_printf(&message, "; did you mean %s?", meant);
    else if (other && !other->key)
        tr_str_printf(&message, ". %s", other->text);
    else
        tr_str_append(&message, "; `trainer help` lists all keys");
    if (message.status == TR_OK) tr_config_note(config, where, "%s", message.text);
    tr_status_t status = message.status;
    tr_str_free(&message);
    return status;
}

static tr_status_t note_bad_value(tr_config_t *config, const entry_t *entry, const char *text,
                                  const char *where) {
    tr_str_t message = {0};
    tr_str_append(&message, "expected ");
    tr_config_describe(entry->field, text, &message);
    tr_str_append(&message, ", found ");
    tr_config_quote(text, &message);
    if (strchr(text, '\n'))
        tr_str_append(&message, " (an indented line continues the value above)");
    tr_str_printf(&message, "; the default is %s",
                  *entry->field->fallback ? entry->field->fallback : "empty");
    if (message.status == TR_OK) tr_config_note(config, where, "%s: %s", entry->key, message.text);
    tr_status_t status = message.status;
    tr_str_free(&message);
    return status;
}

/* A bad value is recorded as a problem, and the key keeps its default. */
tr_status_t tr_config_assign(tr_config_t *config, const char *key, const char *text,
                             const char *origin, int line) {
    char where[WHERE_BYTES];
    tr_config_where(origin, line, where);
    entry_t *entry = config_find(config, key);
    if (!entry && config_is_retired(key, text, where)) return TR_OK;
    if (!entry) return note_unknown(config, key, where);
    if (line > 0 && entry->load == config->loads) {
        tr_config_note(config, where, "%s: set twice; first in line %d", key, entry->line);
        return TR_OK;
    }
    if (line > 0) {
        entry->load = config->loads;
        entry->line = line;
    }
    if (strlen(text) > TR_INI_VALUE_BYTES) {
        tr_config_note(config, where, "%s: the value has %zu bytes; at most %d are allowed", key,
                       strlen(text), TR_INI_VALUE_BYTES);
        return TR_OK;
    }
    if (!tr_config_parse_value(entry->field, text, NULL)) {
        TR_TRY(note_bad_value(config, entry, text, where));
        text = entry->field->fallback;
    }
    return set_text(entry, text, where);
}

void tr_config_read(const tr_config_t *config, const tr_config_table_t *table, void *out_settings) {
    memset(out_settings, 0, table->struct_bytes);
    for (size_t i = 0; i < table->count; i++) {
        const tr_config_field_t *field = &table->fields[i];
        char key[KEY_BYTES];
        const entry_t *entry =
            full_key(table->section, field->name, key) ? config_find(config, key) : NULL;
        /* A table that the configuration was not created with has its defaults. */
        (void)tr_config_parse_value(field, entry ? entry->text : field->fallback, out_settings);
    }
}

const char *tr_config_get(const tr_config_t *config, const char *key) {
    const entry_t *entry = config_find(config, key);
    return entry ? entry->text : NULL;
}

bool tr_config_is_given(const tr_config_t *config, const char *key) {
    const entry_t *entry = config_find(config, key);
    return entry && entry->origin;
}

const char *tr_config_key(const tr_config_t *config, size_t index) {
    return index < config->entries.count ? config->entries.data[index].key : NULL;
}

const tr_config_field_t *tr_config_field(const tr_config_t *config, const char *key) {
    const entry_t *entry = config_find(config, key);
    return entry ? entry->field : NULL;
}

bool tr_config_is_set(const tr_config_t *config, const char *key) {
    const entry_t *entry = config_find(config, key);
    return entry && strcmp(entry->text, entry->field->fallback) != 0;
}
