/* Reads the tokenizer files of a folder of Hugging Face's GPT-2. */
#include "gpt2_folder.h"
#include "base/file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tr_status_t folder_open_file(const char *folder, const char *name, char path[4096],
                                    FILE **out) {
    if ((size_t)snprintf(path, 4096, "%s/%s", folder, name) >= 4096)
        return TR_FAIL(TR_ERR_USAGE,
                       "gpt2:DIR: the name of the folder is longer than %d characters.", 4096 - 32);
    *out = fopen(path, "re");
    if (*out) return TR_OK;
    return TR_FAIL(tr_status_of_errno(errno),
                   "cannot open '%s': %s. gpt2:DIR needs a folder with vocab.json and merges.txt, "
                   "or with tokenizer.json.",
                   path, strerror(errno));
}

static tr_status_t folder_read_json(const char *folder, const char *name, size_t flags,
                                    char path[4096], json_t **out) {
    FILE *file;
    json_error_t error;
    TR_TRY(folder_open_file(folder, name, path, &file));
    *out = json_loadf(file, JSON_REJECT_DUPLICATES | flags, &error);
    fclose(file);
    if (*out) return TR_OK;
    return TR_FAIL(TR_ERR_DATA, "%s: line %d, column %d: %s.", path, error.line, error.column,
                   error.text);
}

/* The lines of merges.txt, without the first line if that is the version. */
static tr_status_t folder_read_merges(const char *folder, char path[4096], json_t *out) {
    FILE *file;
    char *line = NULL;
    size_t room = 0;
    bool is_text = true;
    TR_TRY(folder_open_file(folder, "merges.txt", path, &file));
    for (int64_t number = 1; getline(&line, &room, file) >= 0; number++) {
        line[strcspn(line, "\r\n")] = '\0';
        if (*line == '\0' || (number == 1 && strncmp(line, "#version", 8) == 0)) continue;
        is_text = json_array_append_new(out, json_string(line)) == 0 && is_text;
    }
    const bool read = !ferror(file);
    free(line);
    fclose(file);
    if (!read) return TR_FAIL(TR_ERR_IO, "cannot read '%s'.", path);
    return is_text ? TR_OK : TR_FAIL(TR_ERR_DATA, "%s: the merges are not valid UTF-8.", path);
}

/* Vocabulary and merges of a tokenizer.json. Merges are "left right" in older files, and ["left",
 * "right"] in newer ones. */
static tr_status_t folder_take_model(const json_t *model, tr_gpt2_folder_t *out) {
    const json_t *merges = json_object_get(model, "merges");
    json_t *item;
    size_t i;
    out->vocab = json_incref(json_object_get(model, "vocab"));
    if (!json_is_object(out->vocab) || !json_is_array(merges))
        return TR_FAIL(TR_ERR_DATA, "%s: expected a model with vocab and merges.", out->path[0]);
    json_array_foreach(merges, i, item) {
        const char *left = json_string_value(json_array_get(item, 0)),
                   *right = json_string_value(json_array_get(item, 1));
        if (json_is_string(item))
            json_array_append(out->merges, item);
        else
            json_array_append_new(out->merges,
                                  json_sprintf("%s %s", left ? left : "", right ? right : ""));
    }
    out->merges_from = out->path[0];
    return TR_OK;
}

/* Steals `object`. The first file that has an id names it. */
static void folder_add(tr_gpt2_folder_t *out, json_t *object) {
    const json_t *id = json_object_get(object, "id"), *other;
    size_t i;
    bool is_known = !json_is_object(object);
    json_array_foreach(out->added, i, other) is_known |=
        json_equal(json_object_get(other, "id"), id) != 0;
    if (!is_known) json_array_append(out->added, object);
    json_decref(object);
}

/* Of {"ID": {"content": TEXT, ...}, ...}, or of {"TEXT": ID, ...} in older files. */
static void folder_add_all(tr_gpt2_folder_t *out, json_t *tokens) {
    const char *key;
    json_t *value;
    json_object_foreach(tokens, key, value) {
        json_t *object = json_is_object(value)
                             ? json_deep_copy(value)
                             : json_pack("{s:O, s:s}", "id", value, "content", key);
        if (json_is_object(value)) json_object_set_new(object, "id", json_integer(atoll(key)));
        folder_add(out, object);
    }
}

/* `whole`: the tokenizer.json, if it was read before. */
static tr_status_t folder_read_added(const char *folder, json_t *whole, tr_gpt2_folder_t *out) {
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                        "added_tokens.json"};
    char path[4096];
    for (int i = 0; i < 3; i++) {
        json_t *file = i == 0 ? json_incref(whole) : NULL, *item;
        size_t k;
        if (!tr_exists_in(folder, names[i], path)) continue;
        /* transformers writes model_max_length = 1e30 as an integer; ids there are keys */
        if (!file)
            TR_TRY(folder_read_json(folder, names[i], i == 1 ? JSON_DECODE_INT_AS_REAL : 0, path,
                                    &file));
        json_array_foreach(json_object_get(file, "added_tokens"), k, item)
            folder_add(out, json_incref(item));
        folder_add_all(out, i == 2 ? file : json_object_get(file, "added_tokens_decoder"));
        json_decref(file);
    }
    return TR_OK;
}

tr_status_t tr_gpt2_folder_read(const char *folder, tr_gpt2_folder_t *out) {
    char path[4096];
    json_t *file = NULL;
    tr_status_t status = TR_OK;
    out->merges = json_array();
    out->added = json_array();
    out->vocab_from = out->path[0];
    out->added_from = folder;
    out->merges_from = out->path[1];
    if (!tr_exists_in(folder, "vocab.json", path) && tr_exists_in(folder, "tokenizer.json", path)) {
        TR_TRY(folder_read_json(folder, "tokenizer.json", 0, out->path[0], &file));
        status = folder_take_model(json_object_get(file, "model"), out);
    } else {
        TR_TRY(folder_read_json(folder, "vocab.json", 0, out->path[0], &out->vocab));
        TR_TRY(folder_read_merges(folder, out->path[1], out->merges));
    }
    if (status == TR_OK) status = folder_read_added(folder, file, out);
    json_decref(file);
    return status;
}

void tr_gpt2_folder_free(tr_gpt2_folder_t *files) {
    json_decref(files->vocab);
    json_decref(files->merges);
    json_decref(files->added);
}
