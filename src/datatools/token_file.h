/*
 * Making a file of tokens. It has the groups train and valid, each with
 *   tokens     (N) u16, or u32 where the vocabulary has more than 65,536 ids
 *   documents  (D) i64: where each document begins
 * and the attributes vocab_size, end_of_text and, where it is known, tokenizer (JSON).
 *
 * How many tokens there are is known at the end only, so they wait in a file without a name in the
 * folder of the result.
 */
#ifndef TOKEN_FILE_H
#define TOKEN_FILE_H

#include "datatools.h"
#include "text/tokenizer.h"

static inline tr_dtype_t tr_token_type(int32_t vocab_size) {
    return vocab_size <= 65536 ? TR_U16 : TR_U32;
}

typedef struct tr_token_file tr_token_file_t;
tr_status_t tr_token_file_create(const char *path, tr_dtype_t dtype, tr_token_file_t **out);
void tr_token_file_destroy(tr_token_file_t **file);
/* The next token begins a document. */
tr_status_t tr_token_file_document(tr_token_file_t *file);
/* The ids fit the type. */
tr_status_t tr_token_file_add(tr_token_file_t *file, const int32_t *ids, size_t count);
int64_t tr_token_file_count(const tr_token_file_t *file);

typedef struct {
    int32_t vocab_size, end;         /* end -1: not known */
    const tr_tokenizer_t *tokenizer; /* NULL: not known */
} tr_token_vocab_t;
/* Writes the file at its path. The last params->valid_fraction of the tokens go to the group
 * valid. */
tr_status_t tr_token_file_write(tr_token_file_t *file, const tr_token_vocab_t *vocab,
                                const tr_import_params_t *params);

#endif
