/* Models of Hugging Face: a folder with config.json, tokenizer and weights of GPT-2. */
#include "huggingface.h"
#include "base/file.h"
#include "session/session.h"
#include "text/tokenizer.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG  "config.json"
#define INDEX   "model.safetensors.index.json"
#define PREFIX  "transformer."
#define EPSILON 1e-5

bool tr_hf_is_folder(const char *path) {
    char file[4096];
    return tr_exists_in(path, CONFIG, file) && !tr_exists_in(path, TR_CHECKPOINT_MANIFEST, file) &&
           (tr_exists_in(path, TR_CHECKPOINT_MODEL, file) || tr_exists_in(path, INDEX, file));
}

static tr_status_t hf_read_json(const char *path, json_t **out) {
    char *text = NULL;
    json_error_t error;
    TR_TRY(tr_read_text(path, TR_TEXT_MAX_BYTES, &text, &(int64_t){0}));
    *out = json_loads(text, 0, &error);
    tr_free(&text);
    if (json_is_object(*out)) return TR_OK;
    json_decref(*out);
    return TR_FAIL(TR_ERR_DATA, "%s: line %d: expected a JSON object: %s.", path, error.line,
                   error.text);
}

/* -- config.json ------------------------------------------------------------------------------- */

static bool hf_is_one_of(const json_t *value, const char *a, const char *b) {
    const char *text = json_string_value(value);
    return !value || (text && (strcmp(text, a) == 0 || strcmp(text, b) == 0));
}

/* Options that change the computation. Absent ones have transformers' defaults, which are
 * GPT-2's. */
static tr_status_t hf_check_options(const json_t *object, const char *path) {
    const json_t *inner = json_object_get(object, "n_inner"),
                 *epsilon = json_object_get(object, "layer_norm_epsilon");
    const json_int_t width = json_integer_value(json_object_get(object, "n_embd"));
    const char *wrong = NULL;
    if (!hf_is_one_of(json_object_get(object, "activation_function"), "gelu_new",
                      "gelu_pytorch_tanh"))
        wrong = "activation_function";
    else if (json_is_integer(inner) && json_integer_value(inner) != 4 * width)
        wrong = "n_inner";
    else if (epsilon && fabs(json_number_value(epsilon) - EPSILON) > 1e-9)
        wrong = "layer_norm_epsilon";
    else if (json_is_false(json_object_get(object, "tie_word_embeddings")))
        wrong = "tie_word_embeddings";
    else if (json_is_false(json_object_get(object, "scale_attn_weights")))
        wrong = "scale_attn_weights";
    else if (json_is_true(json_object_get(object, "scale_attn_by_inverse_layer_idx")))
        wrong = "scale_attn_by_inverse_layer_idx";
    if (!wrong) return TR_OK;
    return TR_FAIL(
        TR_ERR_CONFIG,
        "%s: '%s' has another value than GPT-2's: expected gelu_new, n_inner of 4 n_embd, "
        "layer_norm_epsilon 1e-5, tied embeddings and scores scaled by the size of a "
        "head",
        path, wrong);
}

static tr_status_t hf_read_config(const char *dir, json_t **out) {
    char path[4096];
    TR_TRY(tr_path_join(dir, CONFIG, path));
    TR_TRY(hf_read_json(path, out));
    tr_status_t status = TR_OK;
    if (!hf_is_one_of(json_object_get(*out, "model_type"), "gpt2", "gpt2"))
        status = TR_FAIL(TR_ERR_CONFIG, "%s: expected model_type gpt2, found '%s'", path,
                         json_string_value(json_object_get(*out, "model_type")));
    if (status == TR_OK) status = hf_check_options(*out, path);
    if (status != TR_OK) json_decref(*out);
    return status;
}

/* Our keys and theirs. Older files have n_ctx instead of n_positions. */
static const char *const hf_sizes[][2] = {
    {"model.n_layer", "n_layer"}, {"model.n_head", "n_head"},
    {"model.n_embd", "n_embd"},   {"model.context", "n_positions"},
    {"model.context", "n_ctx"},   {"model.vocab_size", "vocab_size"}};

tr_status_t tr_hf_configure(tr_config_t *config) {
    tr_model_settings_t model;
    tr_status_t status = TR_OK;
    json_t *object = NULL;
    tr_config_read(config, &tr_model_config, &model);
    if (strcmp(model.type, "gpt") != 0 || !tr_hf_is_folder(model.init)) return TR_OK;
    TR_TRY(hf_read_config(model.init, &object));
    for (size_t i = 0; i < TR_COUNT(hf_sizes) && status == TR_OK; i++) {
        const char *value = tr_config_get(config, hf_sizes[i][0]);
        const json_t *size = json_object_get(object, hf_sizes[i][1]);
        char text[96];
        if (!value || strcmp(value, "auto") != 0 || !json_is_integer(size)) continue;
        snprintf(text, sizeof text, "%s=%lld", hf_sizes[i][0], (long long)json_integer_value(size));
        status = tr_config_set(config, text, model.init);
    }
    json_decref(object);
    return status;
}

tr_status_t tr_hf_check_sizes(const tr_config_t *config, const char *dir) {
    tr_str_t differ = {0};
    json_t *object = NULL;
    TR_TRY(hf_read_config(dir, &object));
    if (json_object_get(object, "n_positions")) json_object_del(object, "n_ctx");
    for (size_t i = 0; i < TR_COUNT(hf_sizes); i++) {
        const char *value = tr_config_get(config, hf_sizes[i][0]);
        const json_t *size = json_object_get(object, hf_sizes[i][1]);
        int64_t set = 0;
        if (!value || !json_is_integer(size) || !tr_parse_int(value, &set)) continue;
        if (set != (int64_t)json_integer_value(size))
            tr_str_printf(&differ, "%s%s = %lld (there %lld)", differ.length > 0 ? ", " : "",
                          hf_sizes[i][0], (long long)set, (long long)json_integer_value(size));
    }
    json_decref(object);
    tr_status_t status = differ.status;
    if (status == TR_OK && differ.length > 0)
        status = TR_FAIL(TR_ERR_CONFIG,
                         "model.init: the model in %s has other sizes: %s. Set them to auto, which "
                         "takes them from its config.json",
                         dir, differ.text);
    tr_str_free(&differ);
    return status;
}

/* -- the tokenizer ----------------------------------------------------------------------------- */

/* What ends a text: eos_token_id, a number or a list. generation_config.json overrides config.json. */
static tr_status_t hf_read_ends(const char *dir, const json_t *config, tr_ids_t *out) {
    char path[4096];
    json_t *generation = NULL;
    if (tr_exists_in(dir, "generation_config.json", path)) TR_TRY(hf_read_json(path, &generation));
    const json_t *ends = json_object_get(generation, "eos_token_id");
    if (!ends || json_is_null(ends)) ends = json_object_get(config, "eos_token_id");
    const size_t count = json_is_array(ends) ? json_array_size(ends) : ends && !json_is_null(ends);
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < count && status == TR_OK; i++) {
        const json_t *id = json_is_array(ends) ? json_array_get(ends, i) : ends;
        status =
            json_is_integer(id) && json_integer_value(id) == (int32_t)json_integer_value(id)
                ? tr_vec_push(out, (int32_t)json_integer_value(id))
                : TR_FAIL(TR_ERR_DATA,
                          "%s: eos_token_id: expected the id of a token, or a list of them", dir);
    }
    json_decref(generation);
    return status;
}

/* *out is NULL if the folder has none. */
static tr_status_t hf_open_tokenizer(const char *dir, const json_t *config, tr_tokenizer_t **out) {
    char path[4096];
    tr_str_t spec = {0};
    *out = NULL;
    if (!(tr_exists_in(dir, "vocab.json", path) && tr_exists_in(dir, "merges.txt", path)) &&
        !tr_exists_in(dir, "tokenizer.json", path))
        return TR_OK;
    tr_str_printf(&spec, "gpt2:%s", dir);
    tr_status_t status = spec.status ? spec.status : tr_tokenizer_create(spec.text, out);
    tr_str_free(&spec);
    if (status == TR_OK) status = hf_read_ends(dir, config, &(*out)->ends);
    return status;
}

/* -- the equivalent of state.json -------------------------------------------------------------- */

static tr_status_t hf_describe(const char *dir, char **out_state_json) {
    json_t *object = NULL;
    tr_tokenizer_t *tokenizer = NULL;
    char *tokens = NULL, *text = NULL;
    TR_TRY(hf_read_config(dir, &object));
    tr_status_t status = hf_open_tokenizer(dir, object, &tokenizer);
    if (status == TR_OK && tokenizer) status = tr_tokenizer_to_json(tokenizer, &tokens);
    if (status == TR_OK) {
        json_t *data =
            json_pack("{s:s, s:s, s:s, s:O*, s:s*}", "x", "i32", "mean", "0", "std", "1", "classes",
                      json_object_get(object, "vocab_size"), "tokenizer", tokens);
        json_t *state = json_pack("{s:o*}", "data", data);
        text = state ? json_dumps(state, JSON_COMPACT) : NULL;
        json_decref(state);
        status = text ? tr_strdup(text, out_state_json)
                      : TR_FAIL(TR_ERR_MEMORY, "not enough memory for a tokenizer");
    }
    free(text);
    tr_free(&tokens);
    tr_tokenizer_destroy(&tokenizer);
    json_decref(object);
    return status;
}

/* -- weights ----------------------------------------------------------------------------------- */

tr_status_t tr_hf_open(const char *path, tr_safetensors_t **out_model, char **out_state_json) {
    char file[4096];
    TR_TRY(hf_describe(path, out_state_json));
    if (tr_exists_in(path, INDEX, file)) return tr_safetensors_open_shards(path, file, out_model);
    TR_TRY(tr_path_join(path, TR_CHECKPOINT_MODEL, file));
    return tr_safetensors_open(file, out_model);
}

const tr_named_tensor_t *tr_hf_find(const tr_safetensors_t *file, const char *name) {
    const size_t length = sizeof PREFIX - 1;
    const tr_named_tensor_t *found = tr_safetensors_find(file, name);
    if (found || strncmp(name, PREFIX, length) != 0) return found;
    return tr_safetensors_find(file, name + length);
}

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

bool tr_hf_is_extra(const char *name) {
    return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
           strcmp(name, "lm_head.weight") == 0;
}
