/*
 * The tokenizer files of a folder of Hugging Face's GPT-2: vocab.json and merges.txt, or
 * tokenizer.json; and tokens that were added, in tokenizer.json, tokenizer_config.json and
 * added_tokens.json. Not collective.
 */
#ifndef TR_TEXT_GPT2_FOLDER_H
#define TR_TEXT_GPT2_FOLDER_H

#include "tokenizer_int.h"

typedef struct {
    json_t *vocab;  /* tokens to ids */
    json_t *merges; /* a list of "left right" */
    json_t *added;  /* a list of objects with id and content, each id once; or NULL */
    const char *vocab_from, *merges_from, *added_from; /* for messages */
    char path[2][4096];                                /* of the latter */
} tr_gpt2_folder_t;

/* TR_ERR_NOINPUT: a file is missing; TR_ERR_DATA: one is not valid. Call tr_gpt2_folder_free also
 * after an error. */
tr_status_t tr_gpt2_folder_read(const char *folder, tr_gpt2_folder_t *out);
void tr_gpt2_folder_free(tr_gpt2_folder_t *files);

#endif
