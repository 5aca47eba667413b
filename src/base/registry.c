/* Lists of named things that embedding programs may add to. */
#include "registry.h"
#include "base/str.h"
#include <string.h>

static const char *registry_name_of(const void *entry) {
    return *(const char *const *)entry;
}

const void *tr_registry_at(const tr_registry_t *registry, size_t index) {
    return index < TR_REGISTRY_MAX ? registry->entry[index] : NULL;
}

const void *tr_registry_find(const tr_registry_t *registry, const char *name) {
    const void *entry;
    for (size_t i = 0; (entry = tr_registry_at(registry, i)) != NULL; i++)
        if (strcmp(registry_name_of(entry), name) == 0) return entry;
    return NULL;
}

tr_status_t tr_registry_fail_unknown(const tr_registry_t *registry, const char *name) {
    const char *names[TR_REGISTRY_MAX];
    size_t count = 0;
    for (const void *entry; (entry = tr_registry_at(registry, count)) != NULL; count++)
        names[count] = registry_name_of(entry);
    return tr_fail_unknown(registry->key, registry->kind, name, names, count);
}

tr_status_t tr_registry_add(tr_registry_t *registry, const void *entry) {
    size_t count = 0;
    if (registry_name_of(entry) == NULL)
        return TR_FAIL(TR_ERR_CONFIG, "The name of a %s to register is NULL.", registry->kind);
    if (tr_registry_find(registry, registry_name_of(entry)) != NULL)
        return TR_FAIL(TR_ERR_CONFIG, "The %s '%s' is already registered: use another name.",
                       registry->kind, registry_name_of(entry));
    while (tr_registry_at(registry, count) != NULL) count++;
    if (count == TR_REGISTRY_MAX)
        return TR_FAIL(TR_ERR_CONFIG, "Cannot register the %s '%s': the limit is %d.",
                       registry->kind, registry_name_of(entry), TR_REGISTRY_MAX);
    registry->entry[count] = entry;
    return TR_OK;
}
