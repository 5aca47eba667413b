/*
 * Folders of the library transformers that hold a GPT-2: config.json, the weights in
 * model.safetensors or in the shards that model.safetensors.index.json lists, and the tokenizer's
 * vocab.json and merges.txt, or tokenizer.json. Not collective.
 */
#ifndef TRAINER_HUGGINGFACE_H
#define TRAINER_HUGGINGFACE_H

#include "checkpoint/checkpoint.h"
#include "trainer/config.h"

/* Whether `path` is a folder with config.json and weights, and no checkpoint of trainer. */
bool tr_hf_is_folder(const char *path);

/* Where model.type is gpt and model.init such a folder: sets model.n_layer, n_head, n_embd, context
 * and vocab_size to the numbers in config.json where they are auto. TR_ERR_CONFIG: config.json is
 * of another model, or of a GPT-2 with options that model.type = gpt does not have. */
tr_status_t tr_hf_configure(tr_config_t *config);

/* The weights, and what a state.json would say of the data: the vocabulary's size and the
 * tokenizer, if the folder has one. */
tr_status_t tr_hf_open(const char *path, tr_safetensors_t **out_model,
                       char **out_state_json /* tr_free */);

/* The tensor of the parameter `name`, which a file may have without the prefix "transformer.". NULL
 * where absent. */
const tr_named_tensor_t *tr_hf_find(const tr_safetensors_t *file, const char *name);
/* Whether a file's tensor is none that a model needs: masks of attention, and the weight of the
 * head, which is that of the token embedding. */
bool tr_hf_is_extra(const char *name);

#endif
