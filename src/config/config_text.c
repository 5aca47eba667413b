/* Text output: the resolved configuration, help, and the nearest key. */
#include "config_int.h"
#include "elsewhere.h"
#include "ini.h"

#include <string.h>

/* -- the resolved configuration ---------------------------------------------------------------- */

/* Whether entry i is the first of its section: tables may share one. */
static bool starts_section(const tr_config_t *config, size_t i) {
    for (size_t j = 0; j < i; j++)
        if (strcmp(config->entries.data[j].section, config->entries.data[i].section) == 0)
            return false;
    return true;
}

static void append_section(const tr_config_t *config, const char *section, tr_str_t *out) {
    if (*section) tr_str_printf(out, "%s[%s]\n", out->length ? "\n" : "", section);
    for (size_t i = 0; i < config->entries.count; i++) {
        const entry_t *entry = &config->entries.data[i];
        if (strcmp(entry->section, section) == 0)
            tr_ini_append(out, entry->field->name, entry->text);
    }
}

/* Keys without a section come first: after a section header they would belong to that section. */
tr_status_t tr_config_serialize(const tr_config_t *config, tr_str_t *out) {
    append_section(config, "", out);
    for (size_t i = 0; i < config->entries.count; i++)
        if (*config->entries.data[i].section && starts_section(config, i))
            append_section(config, config->entries.data[i].section, out);
    return out->status;
}

/* -- the key that was meant -------------------------------------------------------------------- */

static const char *last_part(const char *key) {
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

typedef TR_VEC(const char *) names_t;

/* Among keys whose last part is `part` (NULL: all keys): the nearest to `key`, else the only
 * one. */
static tr_status_t nearest_key(const tr_config_t *config, const char *key, const char *part,
                               const char **out) {
    names_t names = {0};
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < config->entries.count && status == TR_OK; i++) {
        const char *known = config->entries.data[i].key;
        if (!part || strcmp(last_part(known), part) == 0) status = tr_vec_push(&names, known);
    }
    if (status == TR_OK) *out = tr_nearest(key, names.data, names.count);
    if (status == TR_OK && !*out && part && names.count == 1) *out = names.data[0];
    tr_vec_free(&names);
    return status;
}

/* The key whose last part is nearest to that of `key`, in any section. */
static tr_status_t nearest_part(const tr_config_t *config, const char *key, const char **out) {
    names_t parts = {0};
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < config->entries.count && status == TR_OK; i++)
        status = tr_vec_push(&parts, last_part(config->entries.data[i].key));
    const char *part = status == TR_OK ? tr_nearest(last_part(key), parts.data, parts.count) : NULL;
    for (size_t i = 0; part && i < parts.count && !*out; i++)
        if (parts.data[i] == part) *out = config->entries.data[i].key;
    tr_vec_free(&parts);
    return status;
}

/* "learning_rate" and "lr" */
static bool are_initials(const char *name, const char *initials) {
    if (!strchr(name, '_')) return false;
    for (; name && *initials && *name == *initials; initials++)
        if ((name = strchr(name, '_'))) name++;
    return !name && !*initials;
}

/* "num_epochs" and "epochs" */
static bool has_words(const char *name, const char *words) {
    const size_t length = strlen(words);
    for (const char *at = name; length > 1 && (at = strstr(at, words)); at++)
        if ((at == name || at[-1] == '_') && (at[length] == '_' || at[length] == '\0')) return true;
    return false;
}

/* Names of other programs: the longest of our names that is part of that of `key`, preferably in
 * the same section. */
static const char *same_words(const tr_config_t *config, const char *key) {
    const char *name = last_part(key), *meant = NULL;
    size_t best = 0;
    for (size_t i = 0; i < config->entries.count; i++) {
        const entry_t *entry = &config->entries.data[i];
        const char *known = last_part(entry->key);
        const size_t section = strlen(entry->section),
                     same = strncmp(key, entry->section, section) == 0 && key[section] == '.',
                     score = 2 * strlen(known) + same;
        if (score <= best || !(are_initials(name, known) || has_words(name, known))) continue;
        best = score;
        meant = entry->key;
    }
    return meant;
}

/* The likeliest mistakes first: a name of another program that is listed, the right name in a wrong
 * section, a typing error, both, then a name that is like those of other programs. */
const char *tr_config_suggest(const tr_config_t *config, const char *key) {
    const tr_elsewhere_t *other = tr_elsewhere_find(key);
    const char *meant = NULL;
    if (other) return other->key && tr_config_get(config, other->key) ? other->key : NULL;
    if (nearest_key(config, key, last_part(key), &meant) == TR_OK && !meant &&
        nearest_key(config, key, NULL, &meant) == TR_OK && !meant &&
        nearest_part(config, key, &meant) == TR_OK && !meant)
        meant = same_words(config, key);
    return meant;
}

/* -- help -------------------------------------------------------------------------------------- */

static const char *shown_default(const entry_t *entry) {
    return *entry->field->fallback ? entry->field->fallback : "(empty)";
}

static void append_overview(const tr_config_t *config, const char *section, tr_str_t *out) {
    bool has_title = false;
    for (size_t i = 0; i < config->entries.count; i++) {
        const entry_t *entry = &config->entries.data[i];
        if (strcmp(entry->section, section) != 0) continue;
        if (!has_title)
            tr_str_printf(out, "%s[%s]\n", out->length ? "\n" : "",
                          *section ? section : "keys without a section");
        has_title = true;
        const char *help = entry->field->help;
        int count = 0; /* of the first sentence */
        while (help[count] && !(help[count] == '.' && strchr(" ", help[count + 1]))) count++;
        tr_str_printf(out, "  %-28s %-14s %.*s\n", entry->key, shown_default(entry), count, help);
    }
}

static void append_key_help(const entry_t *entry, tr_str_t *out) {
    static const char *const resume[] = {
        [TR_RESUME_MATCH] = "must be the same as in the checkpoint",
        [TR_RESUME_KEEP] = "auto takes the value of the checkpoint; a different value is an error",
        [TR_RESUME_NOTE] = "may change; the change is logged",
        [TR_RESUME_FREE] = "may change",
    };
    tr_str_printf(out, "%s = %s\n    %s\n    Values: ", entry->key, shown_default(entry),
                  entry->field->help);
    tr_config_describe(entry->field, NULL, out);
    tr_str_printf(out, ".\n    On resume: %s.\n", resume[entry->field->resume]);
}

static bool is_asked_for(const entry_t *entry, const char *key) {
    return strcmp(entry->key, key) == 0 || (*key && strcmp(entry->section, key) == 0);
}

/* "lr": in any section */
static bool has_name(const entry_t *entry, const char *key) {
    return strcmp(last_part(entry->key), key) == 0;
}

static bool append_matching(const tr_config_t *config, const char *key,
                            bool (*matches)(const entry_t *entry, const char *key), tr_str_t *out) {
    bool found = false;
    for (size_t i = 0; i < config->entries.count; i++) {
        if (!matches(&config->entries.data[i], key)) continue;
        if (found) tr_str_append(out, "\n");
        append_key_help(&config->entries.data[i], out);
        found = true;
    }
    return found;
}

static tr_status_t append_help(const tr_config_t *config, const char *key, tr_str_t *out) {
    if (!key) {
        append_overview(config, "", out);
        for (size_t i = 0; i < config->entries.count; i++)
            if (*config->entries.data[i].section && starts_section(config, i))
                append_overview(config, config->entries.data[i].section, out);
        return out->status;
    }
    if (append_matching(config, key, is_asked_for, out) ||
        append_matching(config, key, has_name, out))
        return out->status;
    const char *meant = tr_config_suggest(config, key);
    return TR_FAIL(TR_ERR_USAGE, "unknown key or section %s%s%s%s", key,
                   meant ? "; did you mean " : "", meant ? meant : "",
                   meant ? "?" : "; `trainer help` lists all.");
}

tr_status_t tr_config_help(const tr_config_table_t *const *tables, size_t count, const char *key,
                           tr_str_t *out) {
    tr_config_t *config = NULL;
    TR_TRY(tr_config_create(tables, count, &config));
    tr_status_t status = append_help(config, key, out);
    tr_config_destroy(&config);
    return status;
}
