/* Names of classes and inputs. Data that give one index different names are refused. */
#include "shared.h"
#include "base/mem.h"
#include <jansson.h>
#include <string.h>

#define SAID      12 /* names of a list in a message */
#define CUT(name) (int)tr_utf8_bytes(name, 60), name

static const struct {
    const char *key, *what, *remedy;
} lists[TR_NAMES_LISTS] = {
    [TR_NAMES_CLASSES] = {"class_names", "class",
                          "concatenate the tables and import them together (import csv "
                          "--test-fraction splits off test data), so that each class has the same "
                          "number in all of them"},
    [TR_NAMES_INPUTS] = {"feature_names", "input",
                         "import a table with the same columns in the same order, or name the CSV "
                         "file itself to eval or predict"},
};

const char *tr_names_key(int list) {
    return lists[list].key;
}

void tr_names_free(tr_names_t *names) {
    for (int64_t i = 0; names->name && i < names->count; i++) tr_free(&names->name[i]);
    tr_free(&names->name);
    names->count = 0;
}

tr_status_t tr_names_copy(const tr_names_t *names, const char *from, tr_names_t *out) {
    *out = (tr_names_t){.from = from};
    if (names->count == 0) return TR_OK;
    TR_TRY(tr_alloc((size_t)names->count * sizeof *out->name, "names", &out->name));
    out->count = names->count;
    for (int64_t i = 0; i < names->count; i++) TR_TRY(tr_strdup(names->name[i], &out->name[i]));
    return TR_OK;
}

tr_status_t tr_names_from_json(const json_t *array, const char *from, tr_names_t *out) {
    const size_t count = json_array_size(array);
    *out = (tr_names_t){.from = from};
    if (count == 0) return TR_OK;
    TR_TRY(tr_alloc(count * sizeof *out->name, "names", &out->name));
    out->count = (int64_t)count;
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(array, i));
        TR_TRY(tr_strdup(name ? name : "", &out->name[i]));
    }
    return TR_OK;
}

const char *const *tr_class_names(const tr_dataset_info_t *info) {
    const tr_names_t *names = &info->names[TR_NAMES_CLASSES];
    return names->count == info->classes ? (const char *const *)names->name : NULL;
}

void tr_names_say(const char *const *name, int64_t count, tr_str_t *out) {
    for (int64_t i = 0; i < count && i < SAID; i++)
        tr_str_printf(out, "%s%.*s", i ? ", " : "", CUT(name[i]));
    if (count > SAID) tr_str_append(out, ", ...");
}

static void names_say(const tr_names_t *names, tr_str_t *out) {
    tr_names_say((const char *const *)names->name, names->count, out);
}

static tr_status_t names_fail(int list, int64_t at, const tr_names_t *expected,
                              const tr_names_t *found) {
    tr_str_t a = {0}, b = {0};
    names_say(expected, &a);
    names_say(found, &b);
    TR_FAIL(TR_ERR_DATA, "%s %lld is '%.*s' in %s (%s: %s), but '%.*s' in %s (%s: %s): %s.",
            lists[list].what, (long long)at, CUT(expected->name[at]), expected->from,
            lists[list].key, a.text ? a.text : "", CUT(found->name[at]), found->from,
            lists[list].key, b.text ? b.text : "", lists[list].remedy);
    tr_str_free(&a);
    tr_str_free(&b);
    return TR_ERR_DATA;
}

tr_status_t tr_names_check(int list, const tr_names_t *expected, const tr_names_t *found) {
    for (int64_t i = 0; i < expected->count && i < found->count; i++)
        if (strcmp(expected->name[i], found->name[i]) != 0)
            return names_fail(list, i, expected, found);
    return TR_OK;
}
