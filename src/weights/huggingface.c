/* Models of Hugging Face: a folder with config.json, tokenizer and weights of GPT-2. */
#include "huggingface.h"
#include "base/file.h"
#include "base/int_math.h"
#include "base/mem.h"
#include "session/session.h"
#include "text/tokenizer.h"
#include "trainer/log.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG  "config.json"
#define INDEX   "model.safetensors.index.json"
#define PREFIX  "transformer."
#define HEAD    "lm_head.weight"
#define EPSILON 1e-5

bool tr_hf_is_folder(const char *path) {
    char file[4096];
    return tr_exists_in(path, CONFIG, file) && !tr_exists_in(path, TR_CHECKPOINT_MANIFEST, file) &&
           (tr_exists_in(path, TR_CHECKPOINT_MODEL, file) || tr_exists_in(path, INDEX, file));
}

tr_status_t tr_hf_check_folder(const char *path) {
    char file[4096];
    if (tr_hf_is_folder(path) || !tr_exists_in(path, CONFIG, file) ||
        tr_exists_in(path, TR_CHECKPOINT_MANIFEST, file))
        return TR_OK;
    if (tr_exists_in(path, "pytorch_model.bin", file) ||
        tr_exists_in(path, "pytorch_model.bin.index.json", file))
        return TR_FAIL(TR_ERR_NOINPUT,
                       "%s has %s, which only PyTorch reads, and no model.safetensors. Convert it, "
                       "in Python: from transformers import GPT2LMHeadModel; "
                       "GPT2LMHeadModel.from_pretrained('%s').save_pretrained('%s')",
                       path, tr_file_name(file), path, path);
    return TR_FAIL(TR_ERR_NOINPUT,
                   "%s has config.json, but no model.safetensors and no "
                   "model.safetensors.index.json: copy the weights to it",
                   path);
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
    else if (json_is_false(json_object_get(object, "scale_attn_weights")))
        wrong = "scale_attn_weights";
    else if (json_is_true(json_object_get(object, "scale_attn_by_inverse_layer_idx")))
        wrong = "scale_attn_by_inverse_layer_idx";
    if (!wrong) return TR_OK;
    return TR_FAIL(
        TR_ERR_CONFIG,
        "%s: '%s' has another value than GPT-2's: expected gelu_new, n_inner of 4 n_embd, "
        "layer_norm_epsilon 1e-5 and scores scaled by the size of a head",
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

/* What ends a text: eos_token_id, a number or a list. generation_config.json overrides config.json.
 * An id that is no token is the default of GPT2Config, 50256, beside a smaller vocabulary. */
static tr_status_t hf_read_ends(const char *dir, const json_t *config,
                                const tr_tokenizer_t *tokenizer, tr_ids_t *out) {
    char path[4096];
    json_t *generation = NULL;
    if (tr_exists_in(dir, "generation_config.json", path)) TR_TRY(hf_read_json(path, &generation));
    const json_t *ends = json_object_get(generation, "eos_token_id");
    if (!ends || json_is_null(ends)) ends = json_object_get(config, "eos_token_id");
    const size_t count = json_is_array(ends) ? json_array_size(ends) : ends && !json_is_null(ends);
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < count && status == TR_OK; i++) {
        const json_t *id = json_is_array(ends) ? json_array_get(ends, i) : ends;
        const int32_t number = (int32_t)json_integer_value(id);
        if (!json_is_integer(id) || json_integer_value(id) != number)
            status =
                TR_FAIL(TR_ERR_DATA,
                        "%s: eos_token_id: expected the id of a token, or a list of them", dir);
        else if (tr_tokenizer_has(tokenizer, number))
            status = tr_vec_push(out, number);
    }
    json_decref(generation);
    return status;
}

/* -- the equivalent of state.json -------------------------------------------------------------- */

static tr_status_t hf_describe(const char *dir, char **out_state_json) {
    json_t *object = NULL;
    tr_tokenizer_t *tokenizer = NULL;
    char *tokens = NULL, *text = NULL, path[4096];
    tr_str_t spec = {0};
    TR_TRY(hf_read_config(dir, &object));
    tr_status_t status = TR_OK;
    if ((tr_exists_in(dir, "vocab.json", path) && tr_exists_in(dir, "merges.txt", path)) ||
        tr_exists_in(dir, "tokenizer.json", path)) {
        tr_str_printf(&spec, "gpt2:%s", dir);
        status = spec.status ? spec.status : tr_tokenizer_create(spec.text, &tokenizer);
        tr_str_free(&spec);
        if (status == TR_OK) status = hf_read_ends(dir, object, tokenizer, &tokenizer->ends);
    }
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

static tr_status_t hf_are_equal(const tr_named_tensor_t *a, const tr_named_tensor_t *b, bool *out) {
    enum { PART = 1 << 20 };
    const int64_t bytes = tr_shape_elems(&a->shape) * (int64_t)tr_dtype_bytes(a->dtype);
    char *parts = NULL;
    *out = a->dtype == b->dtype && tr_shape_equal(&a->shape, &b->shape);
    TR_TRY(tr_alloc(2 * PART, "parts of two tensors", &parts));
    tr_status_t status = TR_OK;
    for (int64_t at = 0; at < bytes && *out && status == TR_OK; at += PART) {
        const int64_t count = min64(PART, bytes - at);
        status = tr_safetensors_read(a, at, count, parts);
        if (status == TR_OK) status = tr_safetensors_read(b, at, count, parts + PART);
        *out = memcmp(parts, parts + PART, (size_t)count) == 0;
    }
    tr_free(&parts);
    return status;
}

tr_status_t tr_hf_check_head(const tr_safetensors_t *file, const char *path, bool is_tied) {
    const tr_named_tensor_t *head = tr_safetensors_find(file, HEAD),
                            *table = tr_hf_find(file, PREFIX "wte.weight");
    bool are_equal = is_tied;
    if (head && table) TR_TRY(hf_are_equal(head, table, &are_equal));
    if (are_equal) return TR_OK;
    if (!is_tied)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: the model has a separate output layer (tie_word_embeddings is false in "
                       "its config.json, and " HEAD " is %s). A model of type gpt computes its "
                       "output with the token embedding, wte.weight: expected a model whose two "
                       "matrices are equal",
                       path, head ? "not equal to wte.weight" : "missing");
    TR_WARN("%s: " HEAD " differs from wte.weight and is not used: the output is computed with the "
            "token embedding, because the model has tied embeddings (tie_word_embeddings). If it "
            "was trained with a separate output layer, its texts and losses are wrong here",
            path);
    return TR_OK;
}

/* Who puts these before the names of tensors. */
static const char *const hf_wrappers[][2] = {
    {"_orig_mod.", "as torch.compile does"},
    {"module.", "as DistributedDataParallel does"},
    {"model.", "as Lightning does"},
    {"state_dict.", "of the dictionary that they were in"},
};

tr_status_t tr_hf_check_names(const tr_safetensors_t *file, const char *path) {
    static const char first[] = "h.0.attn.c_attn.weight";
    const tr_named_tensor_t *found = NULL;
    for (size_t i = 0; i < tr_safetensors_count(file) && !found; i++) {
        const tr_named_tensor_t *tensor = tr_safetensors_at(file, i);
        if (tr_text_ends_in(tensor->name, first)) found = tensor;
    }
    if (!found || found->shape.ndim != 2) return TR_OK;
    char before[256], biases[512];
    tr_str_t differs = {0};
    tr_snprintf(before, sizeof before, "%.*s", (int)(strlen(found->name) - strlen(first)),
                found->name);
    if (tr_text_ends_in(before, PREFIX)) before[strlen(before) - strlen(PREFIX)] = '\0';
    if (before[0]) {
        const char *who = "";
        for (size_t i = TR_COUNT(hf_wrappers); i-- > 0;)
            if (strncmp(before, hf_wrappers[i][0], strlen(hf_wrappers[i][0])) == 0)
                who = hf_wrappers[i][1];
        tr_str_printf(&differs,
                      "\n  the names of the tensors begin with '%s', %s: remove it from each name",
                      before, who[0] ? who : "where transformers has 'transformer.' or nothing");
    }
    if (found->shape.dim[0] == 3 * found->shape.dim[1])
        tr_str_printf(&differs,
                      "\n  %s is (%lld, %lld), the order of torch.nn.Linear, which nanoGPT has: "
                      "transpose attn.c_attn.weight, attn.c_proj.weight, mlp.c_fc.weight and "
                      "mlp.c_proj.weight of each block",
                      found->name, (long long)found->shape.dim[0], (long long)found->shape.dim[1]);
    tr_snprintf(biases, sizeof biases, "%.*s.bias", (int)(strlen(found->name) - strlen(".weight")),
                found->name);
    if (differs.length > 0 && !tr_safetensors_find(file, biases))
        tr_str_append(&differs, "\n  it has no biases: add biases of zeros, also to ln_1, ln_2 and "
                                "ln_f");
    tr_status_t status = differs.status;
    if (differs.length > 0)
        status = TR_FAIL(TR_ERR_CONFIG,
                         "%s has a GPT-2, but not as transformers writes it:%s\n"
                         "load_file and save_file of safetensors.torch read and write the tensors "
                         "in Python",
                         path, differs.text);
    tr_str_free(&differs);
    return status;
}

tr_status_t tr_hf_open(const char *path, bool is_checked, tr_safetensors_t **out_model,
                       char **out_state_json) {
    json_t *config = NULL;
    char file[4096];
    TR_TRY(hf_describe(path, out_state_json));
    if (tr_exists_in(path, INDEX, file)) {
        TR_TRY(tr_safetensors_open_shards(path, file, out_model));
    } else {
        TR_TRY(tr_path_join(path, TR_CHECKPOINT_MODEL, file));
        TR_TRY(tr_safetensors_open(file, out_model));
    }
    TR_TRY(tr_hf_check_names(*out_model, path));
    if (is_checked) return TR_OK;
    TR_TRY(hf_read_config(path, &config));
    const bool is_tied = !json_is_false(json_object_get(config, "tie_word_embeddings"));
    json_decref(config);
    return tr_hf_check_head(*out_model, path, is_tied);
}

const tr_named_tensor_t *tr_hf_find(const tr_safetensors_t *file, const char *name) {
    const size_t length = sizeof PREFIX - 1;
    const tr_named_tensor_t *found = tr_safetensors_find(file, name);
    if (found || strncmp(name, PREFIX, length) != 0) return found;
    return tr_safetensors_find(file, name + length);
}

bool tr_hf_is_extra(const char *name) {
    return tr_text_ends_in(name, ".attn.bias") || tr_text_ends_in(name, ".attn.masked_bias") ||
           strcmp(name, HEAD) == 0;
}
