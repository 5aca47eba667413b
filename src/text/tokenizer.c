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
    if (*tokenizer) {
        tr_vec_free(&(*tokenizer)->ends);
        (*tokenizer)->ops->destroy(*tokenizer);
    }
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

bool tr_tokenizer_has(const tr_tokenizer_t *tokenizer, int32_t id) {
    if (id < 0 || id >= tokenizer->vocab_size) return false;
    return !tokenizer->ops->has || tokenizer->ops->has(tokenizer, id);
}

/* -- JSON -------------------------------------------------------------------------------------- */

#define ENDS "ends" /* absent: `end` alone */

static void tokenizer_write_ends(const tr_tokenizer_t *tokenizer, json_t *object) {
    const tr_ids_t *ends = &tokenizer->ends;
    json_t *ids = json_array();
    for (size_t i = 0; i < ends->count; i++)
        json_array_append_new(ids, json_integer(ends->data[i]));
    if (ends->count > 1 || (ends->count == 1 && ends->data[0] != tokenizer->end))
        json_object_set(object, ENDS, ids);
    json_decref(ids);
}

static tr_status_t tokenizer_read_ends(const json_t *object, tr_tokenizer_t *tokenizer) {
    const json_t *ids = json_object_get(object, ENDS);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const int32_t id = (int32_t)json_integer_value(json_array_get(ids, i));
        if (tr_tokenizer_has(tokenizer, id)) TR_TRY(tr_vec_push(&tokenizer->ends, id));
    }
    return TR_OK;
}

tr_status_t tr_tokenizer_to_json(const tr_tokenizer_t *tokenizer, char **out_text) {
    json_t *object = json_object();
    char *text = NULL;
    json_object_set_new(object, "type", json_string(tokenizer->ops->name));
    tokenizer_write_ends(tokenizer, object);
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

static tr_status_t tokenizer_read_object(const json_t *object, const char *from,
                                         tr_tokenizer_t **out) {
    const char *type = json_string_value(json_object_get(object, "type"));
    const tr_tokenizer_ops_t *ops = type ? tokenizer_find(type, strlen(type)) : NULL;
    if (!ops)
        return TR_FAIL(TR_ERR_DATA, "%s: expected a tokenizer, found the unknown type '%s'.", from,
                       type ? type : "");
    TR_TRY(ops->read(object, from, out));
    (*out)->ops = ops;
    const tr_status_t status = tokenizer_read_ends(object, *out);
    if (status != TR_OK) tr_tokenizer_destroy(out);
    return status;
}

tr_status_t tr_tokenizer_from_json(const char *text, const char *from, tr_tokenizer_t **out) {
    json_error_t error;
    json_t *object = json_loads(text, 0, &error);
    *out = NULL;
    if (!object)
        return TR_FAIL(TR_ERR_DATA, "%s: the tokenizer is not valid JSON: line %d: %s.", from,
                       error.line, error.text);
    tr_status_t status = tokenizer_read_object(object, from, out);
    json_decref(object);
    return status;
}

bool tr_tokenizer_is_same(const char *a, const char *b) {
    if (strcmp(a, b) == 0) return true;
    json_t *both[] = {json_loads(a, 0, NULL), json_loads(b, 0, NULL)};
    for (int i = 0; i < 2; i++) {
        json_object_del(both[i], ENDS);
        json_object_del(both[i], TR_TOKENIZER_ADDED);
    }
    const bool are_equal = json_equal(both[0], both[1]);
    json_decref(both[0]);
    json_decref(both[1]);
    return are_equal;
}

tr_status_t tr_tokenizer_keep(const char *text, const char *trained, const char *from,
                              char **out_text) {
    tr_tokenizer_t *t = NULL;
    bool has_end = false;
    if (!trained || strcmp(text, trained) == 0 || !tr_tokenizer_is_same(text, trained))
        return tr_strdup(text, out_text);
    TR_TRY(tr_tokenizer_from_json(trained, from, &t));
    for (size_t i = 0; i < t->ends.count; i++) has_end |= t->ends.data[i] == t->end;
    tr_status_t status = t->ends.count > 0 && !has_end ? tr_vec_push(&t->ends, t->end) : TR_OK;
    if (status == TR_OK) status = tr_tokenizer_to_json(t, out_text);
    tr_tokenizer_destroy(&t);
    return status;
}

/* -- decoding ---------------------------------------------------------------------------------- */

tr_status_t tr_tokenizer_decode(const tr_tokenizer_t *tokenizer, const int32_t *ids, size_t count,
                                tr_str_t *out) {
    for (size_t i = 0; i < count; i++) {
        if (!tr_tokenizer_has(tokenizer, ids[i]))
            return TR_FAIL(TR_ERR_DATA, "token %zu: expected an id from 0 to %d, found %d.", i,
                           (int)tokenizer->vocab_size - 1, (int)ids[i]);
        if (ids[i] == tokenizer->end)
            tr_str_append(out, TR_END_OF_TEXT);
        else
            tokenizer->ops->decode(tokenizer, ids[i], out);
    }
    return out->status;
}
