/*
 * GPT-2 models in folders of Hugging Face transformers: config.json, the weights in
 * model.safetensors or in the shards listed in model.safetensors.index.json, and the tokenizer in
 * vocab.json and merges.txt, or in tokenizer.json. Not collective.
 */
#ifndef TR_WEIGHTS_HUGGINGFACE_H
#define TR_WEIGHTS_HUGGINGFACE_H

#include "checkpoint/checkpoint.h"
#include "config/config.h"

/* Whether `path` is a folder with config.json and weights, but not a checkpoint of trainer. */
bool tr_hf_is_folder(const char *path);
/* TR_ERR_NOINPUT: a folder with config.json, but with weights that cannot be read, or none. */
tr_status_t tr_hf_check_folder(const char *path);

/* If model.type is gpt and model.init is such a folder, sets those of model.n_layer, n_head,
 * n_embd, context and vocab_size that are auto to the values in config.json. TR_ERR_CONFIG:
 * config.json describes another model, or a GPT-2 with options that model.type = gpt does not
 * support. */
tr_status_t tr_hf_configure(tr_config_t *config);
/* TR_ERR_CONFIG, with each key: the sizes in the configuration are not those of the folder. */
tr_status_t tr_hf_check_sizes(const tr_config_t *config, const char *dir);

/* Opens the weights. *out_state_json: a state.json with the vocabulary size and the tokenizer, if
 * the folder has one. TR_ERR_CONFIG also: as tr_hf_check_names and, unless `is_checked` by another
 * rank, tr_hf_check_head. */
tr_status_t tr_hf_open(const char *path, bool is_checked, tr_safetensors_t **out_model,
                       char **out_state_json /* tr_free */);

/* TR_ERR_CONFIG: the file has a GPT-2 whose tensors have other names or another order than those of
 * transformers. `path` is for messages. */
tr_status_t tr_hf_check_names(const tr_safetensors_t *file, const char *path);
/* Compares lm_head.weight, if the file has it, with the token embedding, which is used in its place.
 * If they differ: TR_ERR_CONFIG, or with `is_tied` a warning. `path` is for messages. */
tr_status_t tr_hf_check_head(const tr_safetensors_t *file, const char *path, bool is_tied);

/* The tensor of parameter `name`, in the file possibly without the prefix "transformer."; NULL if
 * absent. */
const tr_named_tensor_t *tr_hf_find(const tr_safetensors_t *file, const char *name);
/* Whether a tensor of the file is not a parameter: attention masks, and the weight of the head,
 * which is tied to the token embedding. */
bool tr_hf_is_extra(const char *name);

#endif
