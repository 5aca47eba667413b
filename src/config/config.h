/* The configuration as text, for the library and the program. */
#ifndef TR_CONFIG_CONFIG_H
#define TR_CONFIG_CONFIG_H

#include "base/mem.h"
#include "base/str.h"
#include "trainer/config.h"

/* The resolved configuration as ini text with every key. Loading it gives the same configuration.
 * */
tr_status_t tr_config_serialize(const tr_config_t *config, tr_str_t *out);

/* The key at `index`, in the order of the tables; NULL after the last. Owned by the config. */
const char *tr_config_key(const tr_config_t *config, size_t index);
/* Whether some source set the key, also to its default. */
bool tr_config_is_given(const tr_config_t *config, const char *key);
/* The row of a key; NULL for an unknown key. */
const tr_config_field_t *tr_config_field(const tr_config_t *config, const char *key);

/* The known key that `key` is probably a typo of, or another program's name for; NULL if there is
 * none. Owned by the config. */
const char *tr_config_suggest(const tr_config_t *config, const char *key);

/*
 * Appends the help of all keys (key NULL), of a section, or of one key ("data.batch_size").
 * TR_ERR_USAGE with the nearest name for an unknown key.
 */
tr_status_t tr_config_help(const tr_config_table_t *const *tables, size_t count, const char *key,
                           tr_str_t *out);

#endif
