/* Tensors in several files, listed in an index: {"weight_map": {"NAME": "FILE", ...}}. */
#include "checkpoint_int.h"
#include "safetensors_int.h"

#include <jansson.h>
#include <string.h>

enum { MOST_SHARDS = 500 };

tr_status_t tr_safetensors_open_shards(const char *dir, const char *index, tr_safetensors_t **out) {
    tr_safetensors_t *files[MOST_SHARDS];
    size_t count = 0;
    char *text = NULL, path[4096];
    const char *name;
    json_t *value;
    json_error_t error;
    TR_TRY(tr_read_text(index, TR_TEXT_MAX_BYTES, &text, &(int64_t){0}));
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    json_t *map = json_object_get(root, "weight_map");
    json_t *numbers = json_object(); /* of each file in `files`, by its name */
    tr_status_t status = TR_OK;
    tr_free(&text);
    if (json_object_size(map) == 0) {
        status = TR_FAIL(TR_ERR_DATA, "%s: expected an object with weight_map.", index);
        goto done;
    }
    json_object_foreach(map, name, value) {
        const char *file_name = json_is_string(value) ? json_string_value(value) : "";
        const json_t *known = json_object_get(numbers, file_name);
        size_t number = known ? (size_t)json_integer_value(known) : count;
        if (!known) {
            if (count == MOST_SHARDS || strchr(file_name, '/')) {
                status = TR_FAIL(TR_ERR_DATA,
                                 "%s: expected the names of at most %d files of its folder, found "
                                 "'%.200s'.",
                                 index, MOST_SHARDS, file_name);
                goto done;
            }
            TR_TRY_GOTO(tr_path_join(dir, file_name, path), done);
            TR_TRY_GOTO(tr_safetensors_open(path, &files[count]), done);
            count++;
            if (json_object_set_new(numbers, file_name, json_integer((json_int_t)number)) != 0) {
                status = TR_FAIL(TR_ERR_MEMORY, "%s: not enough memory for its files.", index);
                goto done;
            }
        }
        if (!tr_safetensors_find(files[number], name)) {
            status = TR_FAIL(TR_ERR_DATA, "%s: the tensor '%.200s' is not in the file '%.200s'.",
                             index, name, file_name);
            goto done;
        }
    }
    TR_TRY_GOTO(tr_safetensors_join(files, count, out), done);
done:
    for (size_t i = 0; status != TR_OK && i < count; i++) tr_safetensors_close(&files[i]);
    json_decref(numbers);
    json_decref(root);
    return status;
}
