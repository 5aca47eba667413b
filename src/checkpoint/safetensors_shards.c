/* Tensors in several files, listed in an index: {"weight_map": {"NAME": "FILE", ...}}. */
#include "checkpoint_int.h"
#include "safetensors_int.h"

#include <jansson.h>
#include <string.h>

enum { MOST_SHARDS = 500 };

typedef struct {
    const char *dir, *index;
    json_t *number; /* of each file in `file`, by its name */
    tr_safetensors_t *file[MOST_SHARDS];
    size_t count;
} shards_t;

static tr_status_t shard_of(shards_t *s, const char *name, const tr_safetensors_t **out) {
    char path[4096];
    const json_t *known = json_object_get(s->number, name);
    if (known) return *out = s->file[json_integer_value(known)], TR_OK;
    if (s->count == MOST_SHARDS || strchr(name, '/'))
        return TR_FAIL(TR_ERR_DATA,
                       "%s: expected the names of at most %d files of its folder, found '%.200s'.",
                       s->index, MOST_SHARDS, name);
    TR_TRY(tr_path_join(s->dir, name, path));
    TR_TRY(tr_safetensors_open(path, &s->file[s->count]));
    const size_t number = s->count++;
    if (json_object_set_new(s->number, name, json_integer((json_int_t)number)) != 0)
        return TR_FAIL(TR_ERR_MEMORY, "%s: not enough memory for its files.", s->index);
    return *out = s->file[number], TR_OK;
}

static tr_status_t open_all(shards_t *s, json_t *map) {
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value) {
        const char *file_name = json_string_value(value);
        const tr_safetensors_t *file = NULL;
        TR_TRY(shard_of(s, file_name ? file_name : "", &file));
        if (!tr_safetensors_find(file, name))
            return TR_FAIL(TR_ERR_DATA, "%s: the tensor '%.200s' is not in the file '%.200s'.",
                           s->index, name, file_name);
    }
    return TR_OK;
}

tr_status_t tr_safetensors_open_shards(const char *dir, const char *index, tr_safetensors_t **out) {
    shards_t s = {.dir = dir, .index = index};
    char *text = NULL;
    json_error_t error;
    TR_TRY(tr_read_text(index, TR_TEXT_MAX_BYTES, &text, &(int64_t){0}));
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    json_t *map = json_object_get(root, "weight_map");
    tr_free(&text);
    s.number = json_object();
    tr_status_t status =
        json_object_size(map) > 0
            ? open_all(&s, map)
            : TR_FAIL(TR_ERR_DATA, "%s: expected an object with weight_map.", index);
    if (status == TR_OK) status = tr_safetensors_join(s.file, s.count, out);
    for (size_t i = 0; status != TR_OK && i < s.count; i++) tr_safetensors_close(&s.file[i]);
    json_decref(s.number);
    json_decref(root);
    return status;
}
