/* The list of tokenizers, and their common part. */
#include "tokenizer_int.h"
#include <string.h>

#define TOKENIZER(name) extern const tr_tokenizer_ops_t tr_tokenizer_##name##_ops;
#include "tokenizers.def"
#undef TOKENIZER

static const tr_tokenizer_ops_t *const list[] = {
#define TOKENIZER(name) &tr_tokenizer_##name##_ops,
#include "tokenizers.def"
#undef TOKENIZER
};
#define LIST_COUNT (sizeof list / sizeof *list)

static const tr_tokenizer_ops_t *tokenizer_find(const char *name, size_t length) {
    for (size_t i = 0; i < LIST_COUNT; i++)
        if (strlen(list[i]->name) == length && !memcmp(list[i]->name, name, length)) return list[i];
    return NULL;
}

tr_status_t tr_tokenizer_create(const char *spec, tr_tokenizer_t **out) {
    const size_t length = strcspn(spec, ":");
    const char *argument = spec[length] ? spec + length + 1 : "";
    const tr_tokenizer_ops_t *ops = tokenizer_find(spec, length);
    *out = NULL;
    if (ops && ops->has_argument == (*argument != '\0')) {
        TR_TRY(ops->create(argument, out));
        (*out)->ops = ops;
        return TR_OK;
    }
    tr_str_t all = {0};
    for (size_t i = 0; i < LIST_COUNT; i++)
        tr_str_printf(&all, "%s%s", i ? ", " : "", list[i]->usage);
    TR_FAIL(TR_ERR_USAGE, "unknown tokenizer '%s'; available: %s.", spec, all.text ? all.text : "");
    tr_str_free(&all);
    return TR_ERR_USAGE;
}

void tr_tokenizer_destroy(tr_tokenizer_t **tokenizer) {
    if (*tokenizer) (*tokenizer)->ops->destroy(*tokenizer);
    *tokenizer = NULL;
}

tr_status_t tr_tokenizer_learned(tr_tokenizer_t *tokenizer) {
    if (tokenizer->is_learning) TR_TRY(tokenizer->ops->learned(tokenizer));
    tokenizer->is_learning = false;
    return TR_OK;
}

const char *tr_tokenizer_name(const tr_tokenizer_t *tokenizer) {
    return tokenizer->ops->name;
}

/* -- JSON -------------------------------------------------------------------------------------- */

tr_status_t tr_tokenizer_to_json(const tr_tokenizer_t *tokenizer, char **out_text) {
    json_t *object = json_object();
    char *text = NULL;
    json_object_set_new(object, "type", json_string(tokenizer->ops->name));
    tr_status_t status = tokenizer->ops->write(tokenizer, object);
    if (status == TR_OK) text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    TR_TRY(status);
    if (!text) return TR_FAIL(TR_ERR_MEMORY, "Not enough memory to write the tokenizer as JSON.");
    status = tr_strdup(text, out_text);
    free(text);
    return status;
}

tr_status_t tr_tokenizer_file(const tr_tokenizer_t *tokenizer, int index, const char **out_name,
                              char **out_text) {
    tr_str_t text = {0};
    *out_name = NULL;
    *out_text = NULL;
    if (!tokenizer->ops->file) return TR_OK;
    tr_status_t status = tokenizer->ops->file(tokenizer, index, out_name, &text);
    if (status == TR_OK && *out_name) status = tr_str_take(&text, out_text);
    tr_str_free(&text);
    return status;
}

static tr_status_t read_object(const json_t *object, const char *from, tr_tokenizer_t **out) {
    const char *type = json_string_value(json_object_get(object, "type"));
    const tr_tokenizer_ops_t *ops = type ? tokenizer_find(type, strlen(type)) : NULL;
    if (!ops)
        return TR_FAIL(TR_ERR_DATA, "%s: expected a tokenizer, found the unknown type '%s'.", from,
                       type ? type : "");
    TR_TRY(ops->read(object, from, out));
    (*out)->ops = ops;
    return TR_OK;
}

tr_status_t tr_tokenizer_from_json(const char *text, const char *from, tr_tokenizer_t **out) {
    json_error_t error;
    json_t *object = json_loads(text, 0, &error);
    *out = NULL;
    if (!object)
        return TR_FAIL(TR_ERR_DATA, "%s: the tokenizer is not valid JSON: line %d: %s.", from,
                       error.line, error.text);
    tr_status_t status = read_object(object, from, out);
    json_decref(object);
    return status;
}

/* -- decoding ---------------------------------------------------------------------------------- */

tr_status_t tr_tokenizer_decode(const tr_tokenizer_t *tokenizer, const int32_t *ids, size_t count,
                                tr_str_t *out) {
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= tokenizer->vocab_size)
            return TR_FAIL(TR_ERR_DATA, "token %zu: expected an id from 0 to %d, found %d.", i,
                           (int)tokenizer->vocab_size - 1, (int)ids[i]);
        if (ids[i] == tokenizer->end)
            tr_str_append(out, TR_END_OF_TEXT);
        else
            tokenizer->ops->decode(tokenizer, ids[i], out);
    }
    return out->status;
}
