/*
 * A registry: a list of implementations of one kind, looked up by name. Compiled-in entries come
 * first, then those added by an embedding program. An entry is a const struct whose first member is
 * `const char *name`. Models, optimizers, schedules and data sets wrap a registry with their types.
 * Not collective and not locked: register before threads start.
 */
#ifndef TR_BASE_REGISTRY_H
#define TR_BASE_REGISTRY_H

#include "trainer/status.h"
#include <stddef.h>

#define TR_REGISTRY_MAX 64

typedef struct {
    const char *kind;                   /* "model", for messages */
    const char *key;                    /* "model.type", the key that selects one */
    const void *entry[TR_REGISTRY_MAX]; /* borrowed; NULL after the last */
} tr_registry_t;

/* The entry at `index`; NULL after the last. */
const void *tr_registry_at(const tr_registry_t *registry, size_t index);
/* The entry named `name`; NULL if there is none. */
const void *tr_registry_find(const tr_registry_t *registry, const char *name);
/* Records TR_ERR_CONFIG for an unknown `name`, with the nearest name and a list of all. */
tr_status_t tr_registry_fail_unknown(const tr_registry_t *registry, const char *name);
/* Adds an entry, which must outlive every use. TR_ERR_CONFIG if its name is NULL or already used.
 * */
tr_status_t tr_registry_add(tr_registry_t *registry, const void *entry);

#endif
